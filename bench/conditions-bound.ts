/**
 * @file A lower bound on the time of any kernel of a computation on this machine: the larger of two times, minimised
 * over all mappings onto all instructions.
 *
 *     memory     reads every input byte that some point needs once, writes every result byte once, and computes
 *                nothing. Measured as the fastest of four such programs (bench/peers/touch.cpp)
 *     products   moves the same bytes and computes the products in which the condition holds at some point, with the
 *                loads, stores and packed tiles that no kernel avoids. Measured as the fastest of up to 32 programs
 *                (bench/peers/products.cpp), for AMX and f32 vectors; otherwise issues x calibrated cycles an issue
 *
 * Both are measured in turns with the kernels they bound, at the same clock and cache state. They leave out operands
 * that are fetched again from beyond the nearest cache, masks, and stalls. The overlap of movement and products is
 * measured, not proved: a kernel in another order may be faster, and then refutes the bound.
 */

import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type Computation,
  inputsOf,
  memoryElements,
  outputOf,
  pointCount,
  targetOf,
} from "../abstraction/computation.ts";
import { conditionOf, type Outlook, outlook, usefulPoints } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { plainSchedule, unschedulable } from "../mapper/schedule/mapped.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { createCounts } from "../perfmodel/counts.ts";
import { runChild } from "../runtime/child.ts";
import type { Cores } from "../runtime/cores.ts";
import { nativeIntrinsics } from "../session/choose.ts";

export interface Bound {
  /** Seconds of a call: the larger of the two. */
  readonly seconds: number;
  readonly memory: number;
  readonly products: number;
  /** The instruction with the least time. */
  readonly instruction: string;
}

/** Measures a computation's bound once. Disturbances only lengthen it, so the least of several measurements counts. */
export type MeasureBound = () => Promise<Bound>;

/** The smaller of two measurements of a bound. */
export const lesser = (a: Bound | undefined, b: Bound): Bound => (a === undefined || b.seconds < a.seconds ? b : a);

/**
 * Compiles the two programs into a folder.
 * @returns a function from a computation (two kept loops in the result's last places, one summed) to its measurement
 */
export function boundsOn(
  folder: string,
  cores: Cores,
  calibration: Calibration,
): (computation: Computation) => MeasureBound {
  const compiled = (name: string, flags: readonly string[]): string => {
    const source = fileURLToPath(new URL(`./peers/${name}.cpp`, import.meta.url));
    execFileSync("g++", ["-O3", ...flags, source, "-o", join(folder, name)]);
    return join(folder, name);
  };
  const touch = compiled("touch", ["-march=native"]);
  const products = nativeIntrinsics().some(isVector)
    ? compiled("products", ["-mavx512f", "-mavx512bw", "-mamx-tile", "-mamx-int8", "-mamx-bf16"])
    : undefined;
  const printed = async (program: string, words: readonly string[]): Promise<number[]> => {
    const run = await cores.measuring(1, ([cpu = 0]) =>
      runChild([program, ...words], { timeLimitMs: 60_000, cpus: [cpu] }),
    );
    if (run.status !== "ok") throw new Error(`${program} ${words.join(" ")}: ${run.status} ${run.stderr}`);
    return run.stdout.trim().split("\n").map(Number);
  };
  return (computation) => {
    const bytes = `${bytesIn(outputOf(computation))}:${readBytes(computation)}`;
    const ways = waysOf(computation, calibration);
    return async () => {
      const [cycle = 0, memory = 0] = await printed(touch, [bytes]);
      let least: Bound | undefined;
      for (const { instruction, words, cycles } of ways) {
        const [measured = cycles * cycle] = words && products ? await printed(products, words) : [];
        const seconds = Math.max(memory, measured);
        least = lesser(least, { seconds, memory, products: measured, instruction });
      }
      return least ?? { seconds: memory, memory, products: 0, instruction: "none" };
    };
  };
}

const isTiled = ({ isa }: Intrinsic): boolean => isa.startsWith("amx_");
/** A multiply-add of sixteen f32, the instruction of the program's vector form. */
const isVector = ({ isa, family, operands }: Intrinsic): boolean =>
  isa === "avx512f" && family === "fma" && operands.every((o) => o.dtype === "f32");

const bytesIn = (tensor: ReturnType<typeof outputOf>): number => memoryElements(tensor) * bytesOf(tensor.dtype);

/** Bytes of inputs that are read. A condition leaves part of an input unread when all its loops index that input. */
function readBytes(computation: Computation): number {
  const { where, value } = computation.equation;
  const share = usefulPoints(computation) / pointCount(computation);
  return inputsOf(computation).reduce((sum, tensor) => {
    const read = accessesIn(value).find((a) => a.tensor === tensor.name);
    const loops = read?.index.flatMap(axesIn) ?? [];
    const isTied = where !== undefined && axesIn(where).every((l) => loops.includes(l));
    return sum + (isTied ? share : 1) * bytesIn(tensor);
  }, 0);
}

/** An instruction, the cycles of its fewest issues, and the arguments of products.cpp if it can run the instruction. */
interface WayToCompute {
  readonly instruction: string;
  readonly cycles: number;
  readonly words: string[] | undefined;
}

/** The instruction with the fewest cycles of each group: tiled ones, f32 vectors, all others. */
function waysOf(computation: Computation, calibration: Calibration): readonly WayToCompute[] {
  const found = nativeIntrinsics().flatMap((intrinsic) => {
    const timing = calibration.intrinsics[intrinsic.name];
    if (timing === undefined) return [];
    const counts = mappings(computation, intrinsic).valid.flatMap((mapping) =>
      unschedulable(mapping) === undefined ? (createCounts(mapping)(plainSchedule(mapping))?.issues ?? []) : [],
    );
    if (counts.length === 0) return [];
    const issues = Math.min(...counts);
    return [{ intrinsic, issues, cycles: issues * halfCycles(timing.issueCycles.median) }];
  });
  const least = (of: typeof found): typeof found => of.sort((a, b) => a.cycles - b.cycles).slice(0, 1);
  const way = ({ intrinsic, cycles }: (typeof found)[number], words?: string[]): WayToCompute => ({
    instruction: intrinsic.name,
    cycles,
    words,
  });
  return [
    ...least(found.filter((f) => isTiled(f.intrinsic))).map((f) => way(f, tileWords(computation))),
    ...least(found.filter((f) => isVector(f.intrinsic))).map((f) => way(f, vectorWords(computation, f.issues))),
    ...least(found.filter((f) => !isTiled(f.intrinsic) && !isVector(f.intrinsic))).map((f) => way(f)),
  ];
}

/** Cycles between two issues, rounded down to a half: noise only adds to them. */
const halfCycles = (calibrated: number): number => Math.floor(2 * calibrated + 0.1) / 2;

/** Rows and columns of a result tile, and bytes in a row of an input tile. */
const TILE = { rows: 16, columns: 16, bytes: 64 };
/** Work of one step of products.cpp: four tile products, or 96 multiply-adds of sixteen elements. */
const STEP = { tiles: 4, multiplyAdds: 96 };

/** The loops of a matrix product, and a test of the condition over boxes of them. */
interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly repetitions: number;
  readonly factorBytes: number;
  readonly tied: { readonly row: boolean; readonly column: boolean; readonly depth: boolean };
  /** Whether the condition holds in a box. @param row, column, depth first and last index */
  readonly outlook: (row: Range, column: Range, depth: Range) => Outlook;
}
type Range = readonly [first: number, last: number];

function productOf(computation: Computation): Product {
  const target = targetOf(computation);
  const [column, row] = computation.equation.target.index.toReversed().map((e) => axesIn(e)[0] ?? "");
  const summed = computation.axes.filter((a) => !computation.equation.target.index.flatMap(axesIn).includes(a.name));
  const [k] = summed;
  if (k === undefined || row === undefined || column === undefined || summed.length > 1)
    throw new Error(`${computation.name}: the bound is of products of two matrices`);
  const extent = (name: string): number => computation.axes.find((a) => a.name === name)?.extent ?? 1;
  const { where } = computation.equation;
  const condition = where && conditionOf(where);
  const tied = where === undefined ? [] : axesIn(where);
  const rows = extent(row);
  const columns = extent(column);
  const depth = k.extent;
  return {
    rows,
    columns,
    depth,
    repetitions: memoryElements(target) / (rows * columns),
    factorBytes: bytesOf(inputsOf(computation)[0]?.dtype ?? "u8"),
    tied: { row: tied.includes(row), column: tied.includes(column), depth: tied.includes(k.name) },
    outlook: (i, j, d) => {
      if (condition === undefined) return "always";
      const within = ([first, last]: Range, size: number): Range => [first, Math.min(last, size - 1)];
      return outlook(condition, (l) => {
        if (l === row) return within(i, rows);
        if (l === column) return within(j, columns);
        return l === k.name ? within(d, depth) : [0, extent(l) - 1];
      });
    },
  };
}

/** The n-th piece of a size, as its first and last index. */
const piece = (n: number, size: number): Range => [size * n, size * (n + 1) - 1];

/** Arguments of products.cpp for tiles: a quarter of the needed products of each 2 x 2 block. */
export function tileWords(computation: Computation): string[] {
  const p = productOf(computation);
  const elements = TILE.bytes / p.factorBytes;
  const steps = Math.ceil(p.depth / elements);
  const outlookOf = (i: number, j: number, k: number): Outlook =>
    p.outlook(piece(i, TILE.rows), piece(j, TILE.columns), piece(k, elements));
  const products = (i: number, j: number): number => count(steps, (k) => outlookOf(i, j, k) !== "never");
  return wordsOf(computation, p, packedTiles(computation, p, elements), (i, j) =>
    Math.floor([0, 1, 2, 3].reduce((sum, n) => sum + products(2 * i + (n >> 1), 2 * j + (n & 1)), 0) / STEP.tiles),
  );
}

/**
 * Tiles that every kernel packs: those of one factor, since a second factor not known ahead of time is transposed
 * (or the first in its place), and those of a first factor that cross the edge, which are copied with zeros beyond it.
 */
function packedTiles(computation: Computation, p: Product, elements: number): string {
  const [, second] = inputsOf(computation);
  if (second?.constant !== true)
    return `${p.repetitions * Math.floor((Math.min(p.rows, p.columns) * p.depth) / (TILE.rows * elements))}t`;
  if (!p.tied.depth) return "0";
  const columns: Range = [0, p.columns - 1];
  let crossed = 0;
  for (let i = 0; i < Math.floor(p.rows / TILE.rows); i++)
    crossed += count(
      Math.floor(p.depth / elements),
      (k) => p.outlook(piece(i, TILE.rows), columns, piece(k, elements)) === "sometimes",
    );
  return `${p.repetitions * crossed}c`;
}

/**
 * Arguments of products.cpp for vectors: the multiply-adds needed in each 32 x 32 block, sixteen results at a time.
 * @param issues of all blocks; fewer than the blocks' sum where an instruction may cross the edge another way
 */
export function vectorWords(computation: Computation, issues: number): string[] {
  const p = productOf(computation);
  const depths = p.tied.depth ? p.depth : 1;
  const multiplyAdds = (i: number, j: number): number => {
    let sum = 0;
    for (let row = 32 * i; row < 32 * (i + 1); row++)
      for (let column = 2 * j; column < 2 * (j + 1); column++)
        sum += count(
          depths,
          (k) =>
            p.outlook([row, row], piece(column, TILE.columns), p.tied.depth ? [k, k] : [0, p.depth - 1]) !== "never",
        );
    return (sum * p.depth) / depths;
  };
  const blocks = Array.from({ length: Math.floor(p.rows / 32) }, (_, i) =>
    Array.from({ length: Math.floor(p.columns / 32) }, (_, j) =>
      p.tied.column || j === 0 ? multiplyAdds(i, j) : undefined,
    ),
  );
  const at = (i: number, j: number): number => blocks[i]?.[j] ?? blocks[i]?.[0] ?? 0;
  const all = blocks.flatMap((row, i) => row.map((_, j) => at(i, j))).reduce((a, b) => a + b, 0);
  const share = Math.min(1, issues / Math.max(1, p.repetitions * all));
  return wordsOf(computation, p, "0", (i, j) => Math.floor((share * at(i, j)) / STEP.multiplyAdds));
}

/** The arguments of products.cpp. @param steps of a block of 32 by 32 */
function wordsOf(
  computation: Computation,
  p: Product,
  packed: string,
  steps: (row: number, column: number) => number,
): string[] {
  const pairs = Array.from({ length: Math.floor(p.rows / 32) }, (_, i) => {
    const all = Array.from({ length: Math.floor(p.columns / 32) }, (_, j) => ({
      steps: steps(i, j),
      isComputed: p.outlook(piece(i, 32), piece(j, 32), [0, p.depth - 1]) !== "never",
    }));
    const first = all.findIndex((b) => b.isComputed);
    const last = all.findLastIndex((b) => b.isComputed);
    const computed = first < 0 ? [] : all.slice(first, last + 1).map((b) => b.steps);
    return `${32 * Math.max(0, first)}${computed.length > 0 ? ":" : ""}${computed.join(",")}`;
  });
  return [[8 * p.factorBytes, p.repetitions, p.columns, Math.round(readBytes(computation)), packed].join(), ...pairs];
}

function count(extent: number, holds: (n: number) => boolean): number {
  let found = 0;
  for (let n = 0; n < extent; n++) if (holds(n)) found++;
  return found;
}
