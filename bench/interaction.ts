/**
 * @file The pairwise products of a recommendation model (DLRM's interaction), as one kernel and as several.
 *
 *     node dist/bench/interaction.js --samples 32768 --dtype bf16 --out interaction.md
 *
 * A sample has 27 vectors of 128: the first is one input, the others another. The fused kernel reads them in place and
 * stores only the 351 products below the diagonal behind the first vector. The sequence runs cat, all products, index
 * and cat, each over all samples. Both product kernels are the fastest, measured on a chunk, of one list of schedules
 * that pack a sample while fetching the next. Both sides run in turns and are checked (bench/peers/interaction.cpp).
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { plainSchedule, scheduleProblem } from "../mapper/schedule/mapped.ts";
import { placementsOf } from "../mapper/schedule/place.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { summarise } from "../runtime/statistics.ts";
import { generate } from "../session/kernel.ts";
import { endingOf, readOptions, wordOf } from "./options.ts";

export const VECTORS = 27;
export const WIDTH = 128;

/** The fused computation of `b` samples. */
export function interaction(b: number, dtype: "f32" | "bf16" | "f16"): Computation {
  const sum = dtype === "f32" ? "c[b,i,j]" : `${dtype}(c[b,i,j])`;
  return defineComputation({
    name: "interaction",
    equation: "c[b,i,j] += f32(e[b,i,k]) * f32(select(j == 0, d[b,k], e[b,j-1,k]))",
    epilogue: `z[b,i*(i+1)/2+j+${WIDTH}] = ${sum} where j <= i, z[b,k] = d[b,k]`,
    extents: { b, i: VECTORS - 1, j: VECTORS - 1, k: WIDTH },
    tensors: { d: dtype, e: dtype },
  });
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

const BLOCKS = [7, 9, 13, 14, 16, 26, 27].flatMap((i) => [1, 2].flatMap((j) => [1, 2].map((k) => ({ i, j, k }))));

/** The fastest verified schedule of the list. */
async function fastest(computation: Computation, name: string, runner: Runner): Promise<Kernel> {
  const [intrinsic] = intrinsicsNamed(name);
  const mapping =
    intrinsic && mappings(computation, intrinsic, { reasons: false }).valid.find((m) => m.matching["n"]?.[0] === "j");
  if (!mapping) throw new Error(`internal: ${name} does not map ${computation.name}`);
  const reference = await runner.reference(computation, 3);
  const b = placementsOf(mapping)
    .find((c) => c.operand === "b")
    ?.open.includes("tiled")
    ? "tiled"
    : "padded";
  let best: { readonly seconds: number; readonly kernel: Kernel; readonly says: string } | undefined;
  for (const block of BLOCKS) {
    const order = ["b", "i", "j", "k"];
    const once = { ...plainSchedule(mapping), order, block, placement: { a: "in-place", b } } as const;
    // Pack a sample's vectors just before multiplying them. With one sample a call, packing once is the same.
    const within = { ...once, within: { b: "b" } };
    const schedule = scheduleProblem(mapping, within) === undefined ? within : once;
    if (scheduleProblem(mapping, schedule) !== undefined) continue;
    const kernel = generate({ intrinsic: name, matching: mapping.matching, operands: {}, schedule }, mapping);
    const measured = await runner.measure(kernel, reference, { budgetSeconds: 0.1, batches: [3, 10] });
    if (measured.status !== "ok") throw new Error(`${computation.name} ${JSON.stringify(block)}: ${measured.status}`);
    if (best === undefined || measured.median < best.seconds)
      best = { seconds: measured.median, kernel, says: JSON.stringify(block) };
  }
  if (!best) throw new Error(`internal: no schedule of ${computation.name}`);
  console.error(`${computation.name}: block ${best.says}, ${(1e6 * best.seconds).toFixed(2)} us a chunk`);
  return best.kernel;
}

const STEPS = ["fused", "cat0", "product", "index", "cat1"] as const;

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
  const name = dtype === "f32" ? "avx512.fma.f32.broadcast" : "avx512.vdpbf16ps";
  const made = await createRunner({});
  if (made.status === "environment") throw new EnvironmentError(made);
  const folder = mkdtempSync(join(tmpdir(), "interaction-"));
  try {
    const libraries: string[] = [];
    for (const computation of [interaction(Number(chunk), dtype), products(Number(chunk), dtype)]) {
      const { source } = await fastest(computation, name, made.runner);
      const [text, library] = ["cpp", "so"].map((ending) => join(folder, `${computation.name}.${ending}`));
      if (text === undefined || library === undefined) continue;
      writeFileSync(text, source);
      execFileSync("g++", ["-O3", "-march=native", "-fwrapv", "-shared", "-fPIC", text, "-o", library]);
      libraries.push(library);
    }
    const program = join(folder, "interaction");
    const source = fileURLToPath(new URL("./peers/interaction.cpp", import.meta.url));
    execFileSync("g++", [
      "-O3",
      "-march=native",
      ...(dtype === "bf16" ? ["-DBF16"] : []),
      source,
      "-o",
      program,
      "-ldl",
    ]);
    const printed = execFileSync(program, [...libraries, samples, chunk, rounds], { encoding: "utf8" });
    const rounded = printed
      .trim()
      .split("\n")
      .map((line) => STEPS.map((_, i) => Number(line.split(" ")[2 * i + 1])));
    const text = reportOf(rounded, { samples, chunk, rounds, dtype, name });
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
  readonly name: string;
}

/** @param rows one for each round, with the seconds of each of {@link STEPS} */
export function reportOf(rows: readonly (readonly number[])[], { samples, chunk, rounds, dtype, name }: Run): string {
  const middle = (all: readonly number[]): number => summarise(all, 1).median;
  const of = (step: (typeof STEPS)[number]): number[] => rows.map((row) => row[STEPS.indexOf(step)] ?? Number.NaN);
  const sequence = rows.map((row) => row.slice(1).reduce((sum, x) => sum + x, 0));
  const ratios = sequence.map((x, i) => x / (of("fused")[i] ?? Number.NaN));
  const ms = (seconds: number): string => (1e3 * seconds).toFixed(2);
  const ends = [Math.min(...ratios), Math.max(...ratios)].map((x) => x.toFixed(2));
  return [
    `# DLRM's interaction in ${dtype} on a CPU, fused and as a sequence of kernels`,
    "",
    `${cpus()[0]?.model ?? "a CPU"}, one thread, ${new Date().toISOString().slice(0, 10)}. ${samples} samples of ${VECTORS} vectors of ${WIDTH}, ${name};`,
    `medians of ${rounds} rounds, each side first in every second one. Kernels of products take ${chunk} samples a call. Every element of both sides was checked in a round ahead of them.`,
    "",
    `    node dist/bench/interaction.js --samples ${samples} --chunk ${chunk} --rounds ${rounds} --dtype ${dtype}`,
    "",
    "| | ms |",
    "|---|---|",
    ...STEPS.map((step) => `| ${step} | ${ms(middle(of(step)))} |`),
    `| cat0, product, index, cat1 | ${ms(middle(sequence))} |`,
    "",
    `The sequence takes ${middle(ratios).toFixed(2)} times as long as the fused kernel (${ends.join(" to ")} in single rounds).`,
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
