/**
 * @file What no kernel of a computation can beat on this machine: the largest of three times.
 *
 *     memory   every byte of the inputs that some point reads is read once, every byte of the result written once, and nothing else done:
 *              measured (bench/peers/touch.cpp), the fastest call of four ways to do it
 *     issues   the tiles, at multiples of the instruction's extents, in which the condition holds at some point, times the cycles between two
 *              issues (calibrated)
 *     tiles    for AMX: the same bytes and the same products at once, with the loads and stores of tiles that no kernel does without:
 *              measured (bench/peers/tiles.cpp), the fastest call of sixteen ways to do it
 *
 * Of all mappings onto all instructions the least counts. What packs inputs, loads an operand from beyond the nearest cache a second time,
 * masks, and waits is left out. "At once" is measured and not proved: a kernel in another order may be faster, and then refutes the bound.
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
import { conditionOf, outlook, usefulPoints } from "../abstraction/condition.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { accessesIn, axesIn } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { plainSchedule, unschedulable } from "../mapper/schedule/mapped.ts";
import type { Calibration } from "../perfmodel/calibrate.ts";
import { createCounts } from "../perfmodel/counts.ts";
import { runChild } from "../runtime/child.ts";
import type { Cores } from "../runtime/cores.ts";
import { nativeIntrinsics } from "../session/tune.ts";

export interface Bound {
  /** Seconds of a call: the largest of the three. */
  readonly seconds: number;
  readonly memory: number;
  readonly issues: number;
  /** Undefined where the instruction is none of AMX. */
  readonly tiles?: number | undefined;
  /** The instruction of which the larger of issues and tiles is the least. */
  readonly instruction: string;
}

/** Times a program is run: where its pages lie in the caches is another matter each time. */
const RUNS = 3;

/**
 * Compiles the two programs into a folder.
 * @returns the bound of a computation in which two loops are kept in the last two places of the result, and one is summed
 */
export function boundsOn(
  folder: string,
  cores: Cores,
  calibration: Calibration,
): (computation: Computation) => Promise<Bound> {
  const compiled = (name: string, flags: readonly string[]): string => {
    const source = fileURLToPath(new URL(`./peers/${name}.cpp`, import.meta.url));
    execFileSync("g++", ["-O3", ...flags, source, "-o", join(folder, name)]);
    return join(folder, name);
  };
  const hasTiles = nativeIntrinsics().some(isTiled);
  const touch = compiled("touch", ["-march=native"]);
  const tiles = hasTiles
    ? compiled("tiles", ["-mavx512f", "-mavx512bw", "-mamx-tile", "-mamx-int8", "-mamx-bf16"])
    : undefined;
  const fastest = async (program: string, words: readonly string[]): Promise<number> => {
    let least = Number.POSITIVE_INFINITY;
    for (let n = 0; n < RUNS; n++) {
      const run = await cores.measuring(1, ([cpu = 0]) =>
        runChild([program, ...words], { timeLimitMs: 60_000, cpus: [cpu] }),
      );
      if (run.status !== "ok") throw new Error(`${program} ${words.join(" ")}: ${run.status} ${run.stderr}`);
      least = Math.min(least, Number(run.stdout));
    }
    return least;
  };
  return async (computation) => {
    const memory = await fastest(touch, [`${bytesIn(outputOf(computation))}:${readBytes(computation)}`]);
    let least: Bound | undefined;
    let tiled: number | undefined;
    for (const { intrinsic, issues } of issueBounds(computation, calibration)) {
      if (tiles !== undefined && isTiled(intrinsic)) tiled ??= await fastest(tiles, tileWords(computation));
      const own = tiles !== undefined && isTiled(intrinsic) ? tiled : undefined;
      const seconds = Math.max(memory, issues, own ?? 0);
      if (least === undefined || seconds < least.seconds)
        least = { seconds, memory, issues, tiles: own, instruction: intrinsic.name };
    }
    return least ?? { seconds: memory, memory, issues: 0, instruction: "none" };
  };
}

const isTiled = ({ isa }: Intrinsic): boolean => isa.startsWith("amx_");

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

/** The fewest seconds that issues take, of each instruction; the fewest first. */
function issueBounds(
  computation: Computation,
  calibration: Calibration,
): { readonly intrinsic: Intrinsic; readonly issues: number }[] {
  return nativeIntrinsics()
    .flatMap((intrinsic) => {
      const timing = calibration.intrinsics[intrinsic.name];
      if (timing === undefined) return [];
      const counts = mappings(computation, intrinsic).valid.flatMap((mapping) =>
        unschedulable(mapping) === undefined ? (createCounts(mapping)(plainSchedule(mapping))?.issues ?? []) : [],
      );
      if (counts.length === 0) return [];
      const issues = (Math.min(...counts) * timing.issueCycles.median) / calibration.clockHz.median;
      return [{ intrinsic, issues }];
    })
    .sort((a, b) => a.issues - b.issues);
}

/** Rows and columns of a tile of the result, and bytes of a row of an input's tile. */
const TILE = { rows: 16, columns: 16, bytes: 64 };

/**
 * What bench/peers/tiles.cpp is to do: blocks of 2 by 2 tiles, and of each a quarter of the products in which the condition holds somewhere,
 * rounded down.
 */
export function tileWords(computation: Computation): string[] {
  const target = targetOf(computation);
  const [columns, rows] = computation.equation.target.index.toReversed().map((e) => axesIn(e)[0] ?? "");
  const summed = computation.axes.filter((a) => !computation.equation.target.index.flatMap(axesIn).includes(a.name));
  const [k] = summed;
  const extent = (name: string | undefined): number => computation.axes.find((a) => a.name === name)?.extent ?? 1;
  if (k === undefined || rows === undefined || columns === undefined || summed.length > 1)
    throw new Error(`${computation.name}: the bound of tiles is of products of two matrices`);
  const elements = TILE.bytes / bytesOf(inputsOf(computation)[0]?.dtype ?? "u8");
  const { where } = computation.equation;
  const condition = where && conditionOf(where);
  const takesPart = (i: number, j: number, step: number): boolean =>
    condition === undefined ||
    outlook(condition, (l) => {
      if (l === rows) return [TILE.rows * i, Math.min(TILE.rows * (i + 1), extent(rows)) - 1];
      if (l === columns) return [TILE.columns * j, Math.min(TILE.columns * (j + 1), extent(columns)) - 1];
      if (l === k.name) return [elements * step, Math.min(elements * (step + 1), k.extent) - 1];
      return [0, extent(l) - 1];
    }) !== "never";
  const products = (i: number, j: number): number =>
    count(Math.ceil(k.extent / elements), (step) => takesPart(i, j, step));
  const blocks = (name: string): number => Math.floor(extent(name) / (2 * TILE.rows));
  const pairs = Array.from({ length: blocks(rows) }, (_, i) => {
    const all = Array.from({ length: blocks(columns) }, (_, j) =>
      [0, 1, 2, 3].reduce((sum, n) => sum + products(2 * i + (n >> 1), 2 * j + (n & 1)), 0),
    );
    const [first, last] = [all.findIndex((n) => n > 0), all.findLastIndex((n) => n > 0)];
    const steps = first < 0 ? [] : all.slice(first, last + 1).map((n) => Math.floor(n / 4));
    return `${2 * TILE.columns * Math.max(0, first)}${steps.length > 0 ? ":" : ""}${steps.join(",")}`;
  });
  const repetitions = memoryElements(target) / (extent(rows) * extent(columns));
  const bits = 8 * bytesOf(inputsOf(computation)[0]?.dtype ?? "u8");
  return [`${bits},${repetitions},${extent(columns)},${Math.round(readBytes(computation))}`, ...pairs];
}

function count(extent: number, holds: (n: number) => boolean): number {
  return Array.from({ length: extent }, (_, n) => holds(n)).filter(Boolean).length;
}
