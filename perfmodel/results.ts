/**
 * @file The results of a scheduled mapping: how whole tiles reach the output, which elements go through the scratch block, and the memory both
 * touch.
 *
 *     results.ownStores()        { tiles: 12544, scattered: 0, digits: 0, sideBySide: false }
 */

import { product } from "../abstraction/collections.ts";
import { outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import type { Operand } from "../abstraction/intrinsic.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { tileRowElements } from "../abstraction/memory-tile.ts";
import { type LoopDimension, wholeStepsOf } from "../mapper/schedule/dimensions.ts";
import { reachOfTarget } from "../mapper/schedule/reach.ts";
import { writesVectorRows } from "../targets/index.ts";
import type { Census } from "./census.ts";
import type { Footprint } from "./footprint.ts";
import {
  at,
  bytesOfTensor,
  type DimensionState,
  operationsIn,
  outputFootprint,
  outputPlace,
  type ResultDimension,
  resultDimension,
  straddlingShare,
} from "./placed.ts";

interface Stores {
  readonly tiles: number;
  /** Elements moved from the scratch block to the output. */
  readonly scattered: number;
  /** Quotients and remainders computed for each of them. */
  readonly digits: number;
  /** Whether they are contiguous in the scratch block and in the output. */
  readonly sideBySide: boolean;
}

/** The output of a plan. Dimensions are those of the schedule read last. */
export class Results {
  readonly output: Footprint;
  readonly bytes: number;
  /** Dimensions that move it. */
  readonly own: ReadonlySet<DimensionState>;
  /** Fraction of the direct stores of whole tiles that touch two lines; 0 when none is direct. */
  readonly straddling: number;
  /** Operations of the epilogue, and whether the instruction set has the vectors in which its rows are computed. */
  readonly operations: number;
  readonly vectorRows: boolean;
  /** Whether whole tiles are stored directly into the output. */
  private readonly straight: boolean;
  private readonly dimensions: readonly ResultDimension[];
  private readonly census: Census | undefined;

  constructor(
    mapping: Mapping,
    operand: Operand,
    dimensions: readonly LoopDimension[],
    states: readonly DimensionState[],
    census: Census | undefined,
  ) {
    const { computation, intrinsic } = mapping;
    this.census = census;
    this.bytes = bytesOfTensor(outputOf(computation));

    // The same rule as in mapper/lower/scheduled.ts: partial steps go through the scratch block.
    const reach = computation.epilogue ? "an epilogue comes first" : reachOfTarget(mapping, wholeStepsOf(dimensions));
    const elementBytes = bytesOf(outputOf(computation).dtype);
    const tile = product(operand.dims.map((o) => o.extent));
    const rowBytes = Math.min(tile, tileRowElements(operand)) * elementBytes;
    this.straight = typeof reach !== "string";
    this.straddling = typeof reach === "string" ? 0 : straddlingShare(reach, elementBytes, rowBytes);
    this.operations = computation.epilogue ? operationsIn(computation.epilogue.equation.value) : 0;
    this.vectorRows = writesVectorRows(intrinsic.isa);
    const flat = outputPlace(computation);
    this.output = outputFootprint(computation, flat, dimensions, states);
    this.dimensions = dimensions.flatMap((d, i): ResultDimension[] =>
      d.kind === "spatial" ? [resultDimension(d, at(states, i), flat, operand)] : [],
    );
    this.own = new Set(states.filter((s) => s.spatial));
  }

  /** Output tiles of the thread that finishes last, and the elements of those that go through the scratch block. */
  ownStores(): Stores {
    let tiles = 1;
    let elements = 1;
    let straight = this.straight ? 1 : 0;
    // The innermost loop over the scratch block is the one with the smallest stride in the output (mapper/lower/store.ts).
    let innermost: ResultDimension | undefined;
    let digits = 0;
    for (const r of this.dimensions) {
      const { state, step } = r;
      const wholeElements = (state.partial ? state.ownWhole * state.block : state.ownSteps) * step;
      tiles *= state.ownSteps;
      elements *= state.partial ? wholeElements + r.extent - state.whole * state.block * step : wholeElements;
      if (!this.census?.plain.speaksOf(state)) straight *= wholeElements;
      digits += r.digits;
      if ((step > 1 || state.block > 1) && (innermost === undefined || r.coefficient < innermost.coefficient))
        innermost = r;
    }
    if (straight > 0 && this.census)
      straight *= this.census.plain.sum((state, count, isLeft) => {
        const step = this.dimensions.find((r) => r.state === state)?.step ?? 1;
        const own = isLeft ? 1 : state.ownWhole / Math.max(1, state.whole);
        return isLeft && state.partial ? 0 : count * step * own;
      });
    const own = innermost?.digits ?? 0;
    const run = innermost === undefined ? 1 : Math.max(innermost.step, innermost.state.block);
    return {
      tiles,
      scattered: elements - straight,
      digits: own + (digits - own) / run,
      sideBySide: innermost?.coefficient === 1 && innermost.last && own === 0,
    };
  }
}
