/**
 * @file Lowers a mapping with the plainest schedule: pack, issue tile by tile, unpack.
 *
 *     out[i,j] += a[i,k] * b[k,j]  on 2x2x2        ->     for every outer loop that is kept
 *                                                           c_tiles = 0
 *                                                           for every outer loop that is summed
 *                                                             a_tiles, b_tiles = packed elements, 0 beyond the end
 *                                                             for m_tile, n_tile, k_tile
 *                                                               c_tiles[..] <- toy.2x2x2(a_tiles[..], b_tiles[..])
 *                                                           out += unpacked c_tiles
 *
 * It uses only the addresses of the physical mapping, so that interpreting the result proves them.
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { identityIn, keptIn, summedIn } from "../../abstraction/computation.ts";
import { allOf, selected } from "../../abstraction/condition.ts";
import { epilogueAt } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  access,
  axis,
  compare,
  type Equation,
  type Expr,
  guarded,
  number,
  plus,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import {
  assign,
  FreshNames,
  type LoopNest,
  loops,
  type Scratch,
  type Statement,
  scalar,
  type TileAt,
} from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { tileOffset } from "../../abstraction/memory-tile.ts";
import { conditionParts, partsPackedIn, storedCondition, storedSum } from "../match/conditions.ts";
import { type FusedAxis, operandAxes, physicalMapping, tileBase } from "../match/physical.ts";
import { defineProblem } from "../match/problem.ts";
import { digitsAlong } from "../schedule/dimensions.ts";
import { storedBeside } from "./beside.ts";

/** The loop nest of a mapping under the trivial schedule. */
export function lowerMapping(mapping: Mapping): LoopNest {
  const { computation, intrinsic, binding } = mapping;
  const physical = physicalMapping(mapping);
  const problem = defineProblem(computation, intrinsic, binding);
  const names = new FreshNames(computation);
  const target = operandOf(intrinsic, intrinsic.computation.equation.target.tensor);
  const inputs = intrinsic.operands.filter((o) => o !== target);
  const condition = conditionParts(problem, Object.values(mapping.matching).flat());
  const bufferOf = (operand: Operand): string => names.fresh(`${operand.name}_tiles`);

  // 1. Scratch memory: all tiles of each operand, one after another.
  const scratch = physical.operands.map(
    ({ operand, elements }): Scratch => ({
      name: bufferOf(operand),
      dtype: operand.dtype,
      elements,
      scope: "workspace",
    }),
  );

  // 2. Accumulators start as the identity.
  const identity = identityIn(intrinsic.computation);
  const place = names.fresh("element");
  const size = physical.operands.find((o) => o.operand === target)?.elements ?? 0;
  const clear = loops(
    [{ name: place, extent: size }],
    [assign(access(bufferOf(target), [axis(place)]), number(identity))],
  );

  // 3. Inputs are packed. Elements beyond the end, and points that a condition excludes, get the padding value.
  const pack = inputs.flatMap((operand): readonly Statement[] => {
    const bound = binding[operand.name] ?? internal(`operand ${operand.name} is not bound`);
    const walk = tileWalk(operand, operandAxes(operand, physical.axes), names);
    const conditions = partsPackedIn(condition, operand.name).map((part) => substitute(part, walk.counters));
    const guards = [...walk.guards, ...conditions];
    const padded = selected(allOf(guards), substitute(bound, walk.counters), problem.padding ?? number(0));
    return loops(walk.loops, [assign(access(bufferOf(operand), [walk.place]), padded)]);
  });

  // 4. One issue for each combination of tiles.
  const tileLoops = physical.axes.map((a) => ({ name: names.fresh(`${a.axis}_tile`), extent: a.tiles }));
  const tiles = Object.fromEntries(
    intrinsic.operands.map((operand): [string, TileAt] => {
      const base = tileBase(operand, operandAxes(operand, physical.axes), (a) => axis(names.fresh(`${a.axis}_tile`)));
      return [operand.name, { buffer: bufferOf(operand), base }];
    }),
  );
  const issue = loops(tileLoops, [{ kind: "issue", intrinsic, tiles }]);

  // 5. Results are stored as the equation says, through the epilogue if there is one. Padding is not stored.
  const walk = tileWalk(target, operandAxes(target, physical.axes), names);
  const { equation } = computation;
  const index = equation.target.index.map((e) => substitute(e, walk.counters));
  const sum = access(bufferOf(target), [walk.place]);
  const result = storedSum(computation, storedCondition(condition), walk.counters, sum);
  const unpacked: Equation = computation.epilogue
    ? epilogueAt(computation.epilogue, index, result)
    : { target: { ...equation.target, index }, op: equation.op, value: result };
  const unpack = loops(walk.loops, [scalar(guarded(unpacked, walk.guards))]);

  const kept = keptIn(physical.outer);
  const summed = summedIn(physical.outer);
  const all = loops(kept, [...clear, ...loops(summed, [...pack, ...issue]), ...unpack]);
  return { scratch, registers: [], prepare: [], body: [...storedBeside(computation, names), ...all] };
}

/** A walk over every element of an operand's tiles. */
interface TileWalk {
  readonly loops: readonly Dimension[];
  /** Index in the scratch buffer. */
  readonly place: Expr;
  /** The computation's loop counters at this element. */
  readonly counters: ReadonlyMap<string, Expr>;
  /** Conditions for the element not to be padding. */
  readonly guards: readonly Expr[];
}

function tileWalk(operand: Operand, own: readonly FusedAxis[], names: FreshNames): TileWalk {
  const counters = new Map<string, Expr>();
  const guards: Expr[] = [];
  const inner = new Map<string, Expr>();
  const walk: Dimension[] = [];
  for (const a of own) {
    const outerName = names.fresh(`${a.axis}_outer`);
    const innerName = names.fresh(`${a.axis}_inner`);
    walk.push({ name: outerName, extent: a.tiles }, { name: innerName, extent: a.extent });
    inner.set(a.axis, axis(innerName));
    const fused = plus(times(axis(outerName), a.extent), axis(innerName));
    if (a.padded !== a.fused) guards.push(compare("<", fused, a.fused));
    for (const [name, digit] of digitsAlong(a.loops, fused)) counters.set(name, digit);
  }
  const base = tileBase(operand, own, (a) => axis(names.fresh(`${a.axis}_outer`)));
  return { loops: walk, place: plus(base, substitute(tileOffset(operand), inner)), counters, guards };
}
