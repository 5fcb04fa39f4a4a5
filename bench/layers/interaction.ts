/**
 * @file The pairwise products of a recommendation model (DLRM's interaction), as one kernel and as several.
 *
 *     node dist/bench/layers/interaction.js --samples 32768 --dtype bf16 --out interaction.md
 *
 * A sample has 27 vectors of 128: the first is one input, the others another. The fused kernel reads them in place and
 * stores only the 351 products below the diagonal behind the first vector. The sequence runs cat, all products, index
 * and cat, each over all samples. Both product kernels are the fastest, measured on a chunk, of one list of schedules
 * on two instructions. Where oneDNN is installed, its primitives are a second sequence. All sides run in turns and are
 * checked (bench/peers/interaction.cpp).
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { printPairs } from "../../mapper/schedule/decision.ts";
import { plainSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { placementsOf } from "../../mapper/schedule/place.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { summarise } from "../../runtime/statistics.ts";
import type { Reference } from "../../runtime/verify.ts";
import { generate } from "../../session/mapping-kind.ts";
import { endingOf, readOptions, wordOf } from "../support/options.ts";

export const VECTORS = 27;
export const WIDTH = 128;

/** The fused computation of `b` samples. */
export function interaction(b: number, dtype: "f32" | "bf16" | "f16"): Computation {
  const parameters = { b, v: VECTORS, k: WIDTH };
  return instantiate(operatorNamed("interaction"), { parameters, types: parseDataTypes(dtype) });
}

/** All products of vectors that lie contiguously in memory. */
export function products(b: number, dtype: "f32" | "bf16" | "f16"): Computation {
  return defineComputation({
    name: "products",
    equation: "c[b,i,j] += f32(x[b,i,k]) * f32(x[b,j,k])",
    ...(dtype !== "f32" && { epilogue: `y[b,i,j] = ${dtype}(c[b,i,j])` }),
    extents: { b, i: VECTORS, j: VECTORS, k: WIDTH },
    tensors: { x: dtype },
  });
}

type Block = Readonly<Record<"i" | "j" | "k", number>>;

const unrolled = (blocks: readonly (readonly [i: number, j: number])[]): readonly Block[] =>
  blocks.flatMap(([i, j]) => [1, 2].map((k) => ({ i, j, k })));
/** Rows by vectors of columns, for an instruction that broadcasts a row's element. */
const BROADCAST = unrolled([7, 9, 13, 14, 16, 26, 27].flatMap((i) => [1, 2].map((j) => [i, j] as const)));
/** Rows by rows, for one that adds the products of two rows up. */
const INNER = unrolled([
  [4, 6],
  [4, 7],
  [5, 5],
  [6, 4],
  [7, 3],
  [7, 4],
  [9, 3],
  [13, 2],
]);

/** Instructions for each type, with the blocks to try. */
const TRIED = {
  f32: { "avx512.fma.f32.broadcast": BROADCAST, "avx512.fma.f32.inner": INNER },
  bf16: { "avx512.vdpbf16ps": BROADCAST, "avx512.vdpbf16ps.inner": INNER },
} as const;

interface Fastest {
  readonly seconds: number;
  readonly kernel: Kernel;
  readonly name: string;
  readonly says: string;
}

/** The fastest verified schedule of the lists of a type, with caches flushed between calls: samples come from memory. */
async function fastest(computation: Computation, dtype: keyof typeof TRIED, runner: Runner): Promise<Fastest> {
  const reference = await runner.reference(computation, 3);
  let best: Fastest | undefined;
  for (const [name, blocks] of Object.entries(TRIED[dtype])) {
    const found = await fastestOf(computation, { name, blocks }, runner, reference);
    if (best === undefined || found.seconds < best.seconds) best = found;
  }
  if (!best) throw new Error(`internal: no instruction for ${dtype}`);
  return best;
}

async function fastestOf(
  computation: Computation,
  { name, blocks }: { readonly name: string; readonly blocks: readonly Block[] },
  runner: Runner,
  reference: Reference,
): Promise<Fastest> {
  const [intrinsic] = intrinsicsNamed(name);
  const mapping =
    intrinsic &&
    mappings(computation, intrinsic, { reasons: false }).valid.find(
      ({ matching, binding }) =>
        binding["a"]?.kind === "access" && (matching["n"] ?? ["j"])[0] === "j" && (matching["k"] ?? ["k"])[0] === "k",
    );
  if (!mapping) throw new Error(`internal: ${name} does not map ${computation.name}`);
  const open = placementsOf(mapping).find((c) => c.operand === "b")?.open ?? [];
  const places = (["tiled", "in-place", "padded"] as const).filter((place) => open.includes(place));
  let best: Fastest | undefined;
  for (const block of blocks)
    for (const b of places.length > 1 ? places.filter((place) => place !== "padded") : places) {
      const order = ["b", "i", "j", "k"];
      const once = { ...plainSchedule(mapping), order, block, placement: { a: "in-place", b } } as const;
      // Pack a sample's vectors just before multiplying them. With one sample a call, packing once is the same.
      const within = { ...once, within: { b: "b" } };
      const schedule = b === "tiled" && scheduleProblem(mapping, within) === undefined ? within : once;
      if (scheduleProblem(mapping, schedule) !== undefined) continue;
      const kernel = generate(
        { kind: "mapping", intrinsic: name, matching: mapping.matching, operands: {}, schedule },
        mapping,
      );
      const measured = await runner.measure(kernel, reference, {
        budgetSeconds: 0.1,
        batches: [3, 10],
        cache: "flushed",
      });
      if (measured.status !== "ok") throw new Error(`${computation.name} ${JSON.stringify(block)}: ${measured.status}`);
      if (best === undefined || measured.median < best.seconds)
        best = { seconds: measured.median, kernel, name, says: `${printPairs(block)}, b ${b}` };
    }
  if (!best) throw new Error(`internal: no schedule of ${computation.name}`);
  console.error(`${computation.name}: ${name}, ${best.says}, ${(1e6 * best.seconds).toFixed(2)} us a chunk`);
  return best;
}

/** The steps of the sequence. oneDNN's have the same names with a word before. */
const SEQUENCE = ["cat0", "product", "index", "cat1"] as const;

async function main(): Promise<void> {
  const { values } = readOptions({
    options: {
      samples: { type: "string", default: "32768" },
      chunk: { type: "string", default: "32" },
      rounds: { type: "string", default: "11" },
      dtype: { type: "string", default: "bf16" },
      out: { type: "string" },
    },
  });
  const { samples, chunk, rounds } = values;
  for (const [name, given] of Object.entries({ samples, chunk, rounds }))
    if (!/^[1-9]\d{0,7}$/.test(given)) throw new UsageError(`--${name}: ${given} is no number from 1 on`);
  if (Number(samples) % Number(chunk) !== 0)
    throw new UsageError(`--samples: ${samples} is no multiple of --chunk ${chunk}`, {
      hint: "one call takes a chunk",
    });
  const dtype = wordOf("dtype", values.dtype, ["bf16", "f32"]);
  const made = await createRunner({});
  if (made.status === "environment") throw new EnvironmentError(made);
  const folder = mkdtempSync(join(tmpdir(), "interaction-"));
  try {
    const libraries: string[] = [];
    const chosen: string[] = [];
    for (const computation of [interaction(Number(chunk), dtype), products(Number(chunk), dtype)]) {
      const { kernel, name, says } = await fastest(computation, dtype, made.runner);
      chosen.push(`${computation.name} on ${name}, ${says}`);
      const { source } = kernel;
      const [text, library] = ["cpp", "so"].map((ending) => join(folder, `${computation.name}.${ending}`));
      if (text === undefined || library === undefined) continue;
      writeFileSync(text, source);
      execFileSync("g++", ["-O3", "-march=native", "-fwrapv", "-shared", "-fPIC", text, "-o", library]);
      libraries.push(library);
    }
    const program = join(folder, "interaction");
    const source = fileURLToPath(new URL("../peers/interaction.cpp", import.meta.url));
    const typed = dtype === "bf16" ? ["-DBF16"] : [];
    const build = (more: readonly string[]): void => {
      execFileSync("g++", ["-O3", "-march=native", ...typed, source, "-o", program, ...more, "-ldl"], {
        stdio: "pipe",
      });
    };
    try {
      build(["-DONEDNN", "-ldnnl"]);
    } catch (error) {
      console.error(`without oneDNN: ${error instanceof Error ? error.message.split("\n")[1] : String(error)}`);
      build([]);
    }
    // One thread each: this oneDNN divides its work by OpenMP.
    const env = { ...process.env, OMP_NUM_THREADS: "1" };
    const printed = execFileSync(program, [...libraries, samples, chunk, rounds], { encoding: "utf8", env });
    const text = reportOf(printed.trim().split("\n").map(secondsIn), { samples, chunk, rounds, dtype, chosen });
    console.log(text);
    if (values.out !== undefined) writeFileSync(values.out, `${text}\n`);
  } finally {
    rmSync(folder, { recursive: true, force: true });
    await made.runner.close();
  }
}

interface Run {
  readonly samples: string;
  readonly chunk: string;
  readonly rounds: string;
  readonly dtype: string;
  /** The kernels that were compared. */
  readonly chosen: readonly string[];
}

/** Seconds of each step of a round: `fused 0.03 cat0 0.01 ...`. */
function secondsIn(line: string): Readonly<Record<string, number>> {
  const words = line.trim().split(" ");
  return Object.fromEntries(words.flatMap((word, i) => (i % 2 === 0 ? [[word, Number(words[i + 1])]] : [])));
}

/** @param rounds one for each round, with the seconds of each step */
export function reportOf(
  rows: readonly Readonly<Record<string, number>>[],
  { samples, chunk, rounds, dtype, chosen }: Run,
): string {
  const middle = (all: readonly number[]): number => summarise(all, 1).median;
  const of = (step: string): number[] => rows.map((row) => row[step] ?? Number.NaN);
  const ms = (seconds: readonly number[]): string => (1e3 * middle(seconds)).toFixed(2);
  const fused = of("fused");
  const sides = (["", "onednn-"] as const)
    .map((before) => ({ title: before === "" ? "" : "oneDNN ", steps: SEQUENCE.map((step) => `${before}${step}`) }))
    .filter(({ steps }) => rows.every((row) => steps.every((step) => row[step] !== undefined)));
  const told = sides.map(({ title, steps }) => {
    const all = rows.map((row) => steps.reduce((sum, step) => sum + (row[step] ?? Number.NaN), 0));
    const ratios = all.map((x, i) => x / (fused[i] ?? Number.NaN));
    const ends = [Math.min(...ratios), Math.max(...ratios)].map((x) => x.toFixed(2));
    return {
      table: [
        ...steps.map((step, i) => `| ${title}${SEQUENCE[i]} | ${ms(of(step))} |`),
        `| ${title}${SEQUENCE.join(", ")} | ${ms(all)} |`,
      ],
      text: `The ${title}sequence takes ${middle(ratios).toFixed(2)} times as long as the fused kernel (${ends.join(" to ")} in single rounds).`,
    };
  });
  return [
    `# DLRM's interaction in ${dtype} on a CPU, fused and as a sequence of kernels`,
    "",
    `${cpus()[0]?.model ?? "a CPU"}, one thread, ${new Date().toISOString().slice(0, 10)}. ${samples} samples of ${VECTORS} vectors of ${WIDTH}; medians of ${rounds} rounds,`,
    `in which sides take turns in going first. Kernels of products take ${chunk} samples a call. Every element of each side was checked in a round ahead of them.`,
    `Kernels: ${chosen.join("; ")}.`,
    "",
    `    node dist/bench/layers/interaction.js --samples ${samples} --chunk ${chunk} --rounds ${rounds} --dtype ${dtype}`,
    "",
    "| | ms |",
    "|---|---|",
    `| fused | ${ms(fused)} |`,
    ...told.flatMap(({ table }) => table),
    "",
    ...told.map(({ text }) => text),
  ].join("\n");
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  try {
    await main();
  } catch (error) {
    const { says, code } = endingOf(error, "interaction");
    console.error(says);
    process.exit(code);
  }
}
