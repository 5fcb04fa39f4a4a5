/**
 * @file How the threads of a GPU share the rows of a chain of equations.
 *
 *     128 rows of 768 in f16      together 8, lanes 32, column warps 3, pieces 1, row warps 1      a block of three warps for each row
 *     1536 rows of 128 in f16     together 8, lanes 16, column warps 1, pieces 1, row warps 4      eight rows in a block of four warps
 *
 * A thread has `together` neighbouring columns of each of its pieces. Lanes come next, then the warps of a row, then pieces.
 */

import { type Computation, extentsOf, outputOf, tensorOf } from "../../abstraction/computation.ts";
import { accessesOf } from "../../abstraction/equation.ts";
import { type Access, axesIn } from "../../abstraction/expression.ts";
import { type ChainPart, type RowChain, storingEquation } from "../../abstraction/row-chain.ts";
import { type GridLimits, runAlong } from "./grid-context.ts";

export interface ChainShape {
  /** Neighbouring columns that a thread moves at once: a power of two. */
  readonly together: number;
  /** Lanes that share a row: a power of two. */
  readonly lanes: number;
  /** Warps that share a row, and rows of warps in a block. */
  readonly columnWarps: number;
  readonly rowWarps: number;
  /** Runs of neighbouring columns of each thread. */
  readonly pieces: number;
}

/** The most elements that a thread moves at once: 16 bytes of f16. */
const MOST_TOGETHER = 8;
const ROW_WARPS = [1, 2, 4, 8] as const;
/** Registers of a thread other than elements of a row: addresses and sums. */
const OTHER_REGISTERS = 40;
/** Of a thread; with more the compiler would keep some in memory. */
const MOST_REGISTERS = 168;
/** Threads of a row beyond those that it has columns for. */
const MOST_WASTE = 2;

/** All legal shapes; none if no block holds a row. */
export function chainShapes(chain: RowChain, limits: GridLimits): ChainShape[] {
  const { columns } = chain;
  const most = mostTogether(chain);
  const shapes: ChainShape[] = [];
  for (let together = most; together >= 1; together /= 2)
    for (let lanes = limits.lanes; lanes >= 1; lanes /= 2)
      for (let columnWarps = 1; columnWarps <= limits.threads / limits.lanes; columnWarps++) {
        if (columnWarps > 1 && lanes < limits.lanes) continue;
        const pieces = Math.ceil(columns / (together * lanes * columnWarps));
        if (together * lanes * columnWarps * pieces >= MOST_WASTE * columns) continue;
        for (const rowWarps of ROW_WARPS) {
          const shape = { together, lanes, columnWarps, rowWarps, pieces };
          if (fits(chain, shape, limits)) shapes.push(shape);
        }
      }
  return shapes;
}

function fits(chain: RowChain, shape: ChainShape, limits: GridLimits): boolean {
  const threads = limits.lanes * shape.columnWarps * shape.rowWarps;
  const registers = chainRegisters(chain, shape);
  return registers <= MOST_REGISTERS && threads <= limits.threads && threads * registers <= limits.blockRegisters;
}

/** Registers of a thread, as if all its elements were held from first to last. */
export function chainRegisters({ parts }: RowChain, { together, pieces }: ChainShape): number {
  const files = new Set(
    parts.flatMap((part) => [
      ...movingReads(part).map(({ tensor }) => part.names[tensor] ?? tensor),
      ...(part.makes === "each" ? [part.names[outputOf(part.computation).name]] : []),
    ]),
  );
  return OTHER_REGISTERS + files.size * together * pieces;
}

/** The loop whose neighbours are neighbouring columns. */
const innermost = ({ computation, digits }: ChainPart): Computation["axes"][number] | undefined =>
  computation.axes.find(({ name }) => digits[name]?.of === "column" && digits[name]?.stride === 1);

/** What an equation reads for each column. */
export function movingReads(part: ChainPart): Access[] {
  const columns = part.computation.axes.filter(({ name }) => part.digits[name]?.of === "column");
  const own = part.computation.equation.target.tensor;
  return [
    ...accessesOf(part.computation.equation).slice(1),
    ...accessesOf(storingEquation(part.computation)).slice(1),
  ].filter(
    (e) => e.tensor !== own && e.index.some((i) => axesIn(i).some((name) => columns.some((c) => c.name === name))),
  );
}

/** Neighbouring columns that every access can move at once. */
function mostTogether({ parts }: RowChain): number {
  return parts.reduce((most, part) => {
    const { computation } = part;
    const along = innermost(part);
    if (!along) return most;
    const { name, kind, extent } = along;
    const steps = { step: 1, extent, steps: extent, wholeSteps: extent };
    const dimension = { name, kind, loops: [along], weights: [1], axis: undefined, ...steps };
    const stored = part.makes === "each" ? [storingEquation(computation).target] : [];
    const moved = [...movingReads(part), ...stored];
    return moved.reduce((least, e) => {
      const run = runAlong(e, dimension, (tensor) => tensorOf(computation, tensor), least, {
        extents: extentsOf(computation),
      });
      return Math.max(1, Math.min(least, run));
    }, most);
  }, MOST_TOGETHER);
}
