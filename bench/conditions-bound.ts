/**
 * @file A lower bound on the time of any kernel of a computation on this machine: over all mappings onto all instructions, the least of the
 * larger of two times.
 *
 *     memory     every byte of the inputs that some point reads is read once, every byte of the result written once, and nothing else done:
 *                measured (bench/peers/touch.cpp), the fastest call of four ways to do it
 *     products   the same bytes, and at once the products in which the condition holds at some point, with the loads, stores and packed tiles
 *                that no kernel does without: measured (bench/peers/products.cpp), the fastest call of up to 32 ways to do it. For AMX, and
 *                for multiply-adds of sixteen f32; for other instructions the issues alone, times the calibrated cycles between two
 *
 * Both are measured in turns with the kernels that they bound, so that clock and caches are the same. What is left out: that an operand comes
 * from beyond the nearest cache a second time, masks, and waiting. "At once" is measured and not proved: a kernel in another order may be
 * faster, and then refutes the bound.
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
  /** The instruction of which it is the least. */
  readonly instruction: string;
}

/** Measures the bound of a computation once: what disturbs a measurement makes it larger, so that of several the least counts. */
export type MeasureBound = () => Promise<Bound>;

/** Of two measurements of a bound. */
export const lesser = (a: Bound | undefined, b: Bound): Bound => (a === undefined || b.seconds < a.seconds ? b : a);

/**
 * Compiles the two programs into a folder.
 * @returns for a computation in which two loops are kept in the last two places of the result, and one is summed, what measures its bound
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
    const [bytes, ways] = [
      `${bytesIn(outputOf(computation))}:${readBytes(computation)}`,
      waysOf(computation, calibration),
    ];
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
/** Multiply-adds of sixteen elements, which the program of vectors does. */
const isVector = ({ isa, family, operands }: Intrinsic): boolean =>
  isa === "avx512f" && family === "fma" && operands.every((o) => o.dtype === "f32");

const bytesIn = (tensor: ReturnType<typeof outputOf>): number => memoryElements(tensor) * bytesOf(tensor.dtype);

/** Of each input what some point reads, where its index is loops alone; a condition among its own loops leaves the rest unread. */
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

/** An instruction, the cycles that its fewest issues take, and what the program of products is to do for it, where it can. */
interface WayToCompute {
  readonly instruction: string;
  readonly cycles: number;
  readonly words: string[] | undefined;
}

/** Of the tiled instructions, of the vectors of f32 and of all others the one with the fewest cycles. */
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

/** Cycles between two issues: a multiple of a half, which noise adds to. */
const halfCycles = (calibrated: number): number => Math.floor(2 * calibrated + 0.1) / 2;

/** Rows and columns of a tile of the result, and bytes of a row of an input's tile. */
const TILE = { rows: 16, columns: 16, bytes: 64 };
/** What the program does at a time: four products of tiles, or multiply-adds of sixteen elements. */
const STEP = { tiles: 4, multiplyAdds: 96 };

/** The loops of a product of two matrices, and what a condition says of boxes of them. */
interface Product {
  readonly rows: number;
  readonly columns: number;
  readonly depth: number;
  readonly repetitions: number;
  readonly factorBytes: number;
  readonly tied: { readonly row: boolean; readonly column: boolean; readonly depth: boolean };
  /** @param row, column, depth first and last value */
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
  const [rows, columns, depth] = [extent(row), extent(column), k.extent];
  return {
    ...{ rows, columns, depth },
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

/** A box of a size, by the number of it. */
const piece = (n: number, size: number): Range => [size * n, size * (n + 1) - 1];

/** What bench/peers/products.cpp is to do with tiles: of each block of 2 by 2 a quarter of the products in which the condition holds somewhere. */
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
 * Tiles that every kernel writes before it loads them: a second factor that is not known ahead of time is turned, or the first in its place;
 * tiles of a first factor that the edge crosses are copied with zeros beyond it.
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
 * The same with vectors: of each block of 32 by 32 the multiply-adds of sixteen results in which the condition holds somewhere.
 * @param issues of all blocks; fewer than that where an instruction lies across the edge in another way
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

/** The words of the program. @param steps of a block of 32 by 32 */
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
    const [first, last] = [all.findIndex((b) => b.isComputed), all.findLastIndex((b) => b.isComputed)];
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
