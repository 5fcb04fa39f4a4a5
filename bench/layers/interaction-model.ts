/**
 * @file Bounds on the pairwise products of a recommendation model (DLRM's interaction) on a GPU we do not have.
 *
 *     node dist/bench/layers/interaction-model.js
 *
 * 32,768 samples of 27 vectors of 128. Steps: concatenate (cat0), multiply all pairs (bmm), extract the 351 below the
 * diagonal (index), append to the first vector (cat1). A 2021 talk measured it on one tile of Arctic Sound, with memory
 * times at 70 % of the stated bandwidth. A kernel takes between max(compute, memory) and compute + memory.
 */

import { fileURLToPath } from "node:url";
import { inputsOf, memoryElements, outputOf, pointCount } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { levelOf, readRate, type Target, unitOf } from "../../abstraction/machine.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { ATS } from "../../targets/index.ts";
import { table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const SAMPLES = 32768;
const VECTORS = 27;
const WIDTH = 128;
/** Pairs below the diagonal. */
const PAIRS = (VECTORS * (VECTORS - 1)) / 2;
/** The fraction of its stated bandwidth that the talk's figures imply. */
export const EFFICIENCY = 0.7;

const products = instantiate(operatorNamed("batched-matmul"), {
  parameters: { b: SAMPLES, m: VECTORS, n: VECTORS, k: WIDTH },
});

/** A kernel: its multiply-adds, and the elements it moves to and from memory. */
interface Step {
  readonly name: string;
  readonly multiplyAdds: number;
  readonly elements: number;
}

const moved = (name: string, read: number, written: number, multiplyAdds = 0): Step => ({
  name,
  elements: SAMPLES * (read + written),
  multiplyAdds,
});

const BOTH: Step = {
  name: "bmm",
  multiplyAdds: pointCount(products),
  elements: [...inputsOf(products), outputOf(products)].reduce((sum, t) => sum + memoryElements(t), 0),
};
const SOURCE = VECTORS * WIDTH;
/** Tiles of 8 x 8 on or below the diagonal: 10 of 16. */
const TILES = Math.ceil(VECTORS / 8);
const HALF = (TILES + 1) / 2 / TILES;

const cat0 = moved("cat0", SOURCE, SOURCE);
const index = moved("index", VECTORS ** 2, PAIRS);
const cat1 = moved("cat1", WIDTH + PAIRS, WIDTH + PAIRS);
const fused = (name: string, written: number, part = 1): Step => moved(name, SOURCE, written, part * BOTH.multiplyAdds);

export interface Variant {
  readonly name: string;
  readonly dtype: DType;
  readonly unit: "vector" | "matrix";
  readonly steps: readonly Step[];
  /** Milliseconds measured in the talk. */
  readonly measured?: number;
}

const vector = (name: string, steps: readonly Step[], measured?: number, dtype: DType = "f16"): Variant => ({
  name,
  dtype,
  unit: "vector",
  steps,
  ...(measured !== undefined && { measured }),
});

/** The product on its own. */
export const PRODUCTS: readonly Variant[] = [
  vector("fp32", [BOTH], 5.2906, "f32"),
  vector("fp16", [BOTH], 3.0827),
  { ...vector("fp16, matrix engine", [BOTH]), unit: "matrix" },
  vector("fp16, one source", [fused("bmm", VECTORS ** 2)], 1.42),
];

/** The whole interaction in fp16, with one source for the product; slowest first, as measured. */
export const SEQUENCES: readonly Variant[] = [
  vector("cat0, bmm, index, cat1", [cat0, fused("bmm", VECTORS ** 2), index, cat1], 3.75),
  vector("cat0, bmm+index, cat1", [cat0, fused("bmm+index", PAIRS), cat1], 3.22),
  vector("cat0, bmm+index+cat1", [cat0, fused("bmm+index+cat1", PAIRS + WIDTH)], 2.99),
  vector("cat0+bmm+index, cat1", [fused("cat0+bmm+index", PAIRS), cat1], 1.98),
  vector("all in one", [fused("all", PAIRS + WIDTH)], 1.87),
  vector("all in one, half of the products", [fused("all", PAIRS + WIDTH, HALF)], 1.39),
];

export interface Bounds {
  /** Milliseconds of the steps in sequence. */
  readonly compute: number;
  readonly memory: number;
  /** Sums over the steps: the larger of the two times, and both times. */
  readonly least: number;
  readonly most: number;
}

/** @param efficiency fraction of the target's stated bandwidth */
export function boundsOf({ steps, dtype, unit }: Variant, target: Target, efficiency: number): Bounds {
  const engines = levelOf(target, "core").units;
  const hertz = target.clockHz?.value ?? Number.NaN;
  const operations = (unitOf(target, unit).operationsPerCycle?.[dtype] ?? Number.NaN) * engines * hertz;
  const bandwidth = (readRate(target, "dram", "core")?.value ?? Number.NaN) * engines * hertz * efficiency;
  const each = steps.map(({ multiplyAdds, elements }) => ({
    compute: (2e3 * multiplyAdds) / operations,
    memory: (1e3 * elements * bytesOf(dtype)) / bandwidth,
  }));
  const sum = (of: (step: { compute: number; memory: number }) => number): number =>
    each.reduce((total, step) => total + of(step), 0);
  return {
    compute: sum((s) => s.compute),
    memory: sum((s) => s.memory),
    least: sum((s) => Math.max(s.compute, s.memory)),
    most: sum((s) => s.compute + s.memory),
  };
}

function report(): string {
  const cells = (v: Variant) => {
    const [stated, used] = [1, EFFICIENCY].map((efficiency) => boundsOf(v, ATS, efficiency));
    const figures = [stated?.memory, used?.memory, used?.least, used?.most];
    return [v.name, used?.compute.toFixed(4), ...figures.map((x) => x?.toFixed(3)), v.measured];
  };
  const heads = ["compute", "memory", `memory at ${100 * EFFICIENCY} %`, "at least", "at most", "measured by the talk"];
  const tableOf = (variants: readonly Variant[]): string[] => table(["", ...heads], variants.map(cells));
  const { multiplyAdds, elements } = BOTH;
  return [
    "# DLRM's interaction on Arctic Sound, as its rates bound it",
    "",
    `${ATS.summary}; ${VECTORS} vectors of ${WIDTH}, ${SAMPLES} samples. Milliseconds; nothing was measured here.`,
    `The product has ${2 * multiplyAdds} operations on ${elements} elements, ${((2 * multiplyAdds) / elements).toFixed(2)} an element.`,
    "`At least` is the larger of compute and memory at 70 %, step by step; `at most` is both, one behind the other.",
    "",
    "    node dist/bench/layers/interaction-model.js",
    "",
    ...tableOf(PRODUCTS),
    "",
    ...tableOf(SEQUENCES),
    "",
    "With tiles in shared local memory the talk's fp16 kernel took 2.3721 ms. That moves neither bound: as much is read from memory and computed. What it",
    "saves is waiting (the share of cycles in which engines stall fell from 51 to 27 %), which brings a kernel from the sum of both times nearer to the larger.",
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  readOptions({ options: {} });
  console.log(report());
}
