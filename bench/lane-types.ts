/**
 * @file The cost of element types on lanes: one filter over one image in each type. For integers also the gain from dot
 * products of neighbouring taps.
 *
 *     npm run build
 *     node dist/bench/lane-types.js --out bench/results/lane-types            a minute and a half on a quiet machine
 *     node dist/bench/lane-types.js --sides 5 --height 256
 *
 * The most promising designs of each type and filter are checked in every element, then timed in turns in one process;
 * the fastest batch counts. Integers use 32-bit multiply-adds (VPMULLD) and dot products (VPDPBUSD, VPDPWSSD).
 */

import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { finished } from "../abstraction/steps.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { instantiate, operatorNamed } from "../operators/index.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { createRunner } from "../runtime/measure.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { multiplyAddOf } from "../session/design-kinds.ts";
import { kernelFor } from "../session/kernel.ts";
import { nativeTarget } from "../targets/index.ts";
import { arraySpaceOf } from "../tuner/array-candidates.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    sides: { type: "string", default: "3,5,9" },
    height: { type: "string", default: "1024" },
    seconds: { type: "string", default: "0.2" },
    /** Designs measured for each way to multiply. */
    designs: { type: "string", default: "3" },
    out: { type: "string", default: "lane-types" },
  },
});

const TYPES = ["f32", "bf16", "f16", "s16", "u8s8"] as const;
const target = modelTarget(nativeTarget());

const leastOf = (measured: readonly (Measurement | undefined)[]): number | undefined => {
  const times = measured.flatMap((m) => (m?.status === "ok" ? [Math.min(...m.samples)] : []));
  return times.length === 0 ? undefined : Math.min(...times);
};

async function measured(side: number, types: (typeof TYPES)[number]): Promise<string> {
  const height = Number(values.height);
  const computation = instantiate(operatorNamed("conv2d-single"), {
    parameters: { h: height, w: height, r: side, s: side },
    types: parseDataTypes(types),
  });
  const intrinsic = multiplyAddOf(computation, usableIntrinsics(nativeTarget()));
  const space = finished(arraySpaceOf(computation, { threads: 1, target, mixed: 2, hasDots: true }));
  if (!intrinsic || "rule" in space)
    throw new UsageError(`${types}: no lanes of this machine hold it`, { hint: "AVX-512 holds all types" });
  const made = await createRunner({ threads: 1, budgetSeconds: Number(values.seconds), batches: [3, 40] });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const ways = [false, true].map((dots) =>
      space.ranked.filter((r) => (r.schedule.inputs === "dots") === dots).slice(0, Number(values.designs)),
    );
    const kernels = ways
      .flat()
      .map(({ schedule }) => kernelFor(computation, { kind: "design", intrinsic: intrinsic.name, schedule }));
    const results = await runner.compareKernels(kernels, await runner.reference(computation, 1));
    for (const [i, { schedule, seconds, design }] of ways.flat().entries()) {
      const time = leastOf([results[i]]);
      const said = time === undefined ? (results[i]?.status ?? "nothing") : `${(1e6 * time).toFixed(1)} us`;
      console.error(
        `${side}x${side} ${types}: ${design.dataflow} ${schedule.inputs} ${JSON.stringify(schedule.beside)}: ${said}, expected ${(1e6 * seconds).toFixed(1)}`,
      );
      if (time === undefined) process.exitCode = 4;
    }
    const plain = leastOf(results.slice(0, ways[0]?.length));
    const dots = leastOf(results.slice(ways[0]?.length));
    const best = Math.min(plain ?? Number.POSITIVE_INFINITY, dots ?? Number.POSITIVE_INFINITY);
    const rate = (2 * side * side * (height - side + 1) ** 2) / best / 1e9;
    const cell = (time: number | undefined): string => (time === undefined ? "" : (1e6 * time).toFixed(1));
    const gain = plain !== undefined && dots !== undefined ? (plain / dots).toFixed(2) : "";
    return `| ${side}x${side} | ${types} | ${cell(plain)} | ${cell(dots)} | ${gain} | ${rate.toFixed(0)} |`;
  } finally {
    await runner.close();
  }
}

const lines: string[] = [];
for (const side of values.sides.split(",").map(Number))
  for (const types of TYPES) lines.push(await measured(side, types));
const page = [
  "# Element types on lanes",
  "",
  `${cpus()[0]?.model ?? "unknown processor"}, one thread, ${new Date().toISOString().slice(0, 10)}. One filter over an image of ${values.height} x ${values.height}; every element of each kernel is compared.`,
  'Times in microseconds, the least of all batches; sums of integers are s32, of floats f32. "Dots" joins neighbouring taps, four bytes or two words an',
  "instruction.",
  "",
  `    node dist/bench/lane-types.js --sides ${values.sides} --height ${values.height}`,
  "",
  "| filter | type | multiply-adds, us | dots, us | gain | G operations/s |",
  "|---|---|---|---|---|---|",
  ...lines,
  "",
].join("\n");
writeFileSync(`${values.out}.md`, page);
console.log(page);
