/**
 * @file Recurrences on lanes against the compiler's loops, in alternating batches in one process.
 *
 *     npm run build
 *     node dist/bench/recurrent.js --out recurrent         4096 x 4096, 500 steps of 512 states, 2^24 sums; one thread
 *     node dist/bench/recurrent.js --cases alignment,common --side 1024
 *
 * The loops are what a careful programmer would write (peers/recurrent.ts), compiled by g++ -O3 -march=native. All are
 * checked in every element. Ratios are medians over neighbouring batches; above 1 lanes win. A cell: an element or sum.
 */

import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { type Computation, defineComputation, outputOf, pointCount } from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { createRunner } from "../runtime/measure.ts";
import { summariseRatio } from "../runtime/statistics.ts";
import { kernelFor } from "../session/kernel.ts";
import { nativeTarget } from "../targets/native.ts";
import { recurrentSpace } from "../tuner/recurrent-candidates.ts";
import { readOptions, wordOf } from "./options.ts";
import { recurrentLoops } from "./peers/recurrent.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "alignment,common,chain,sums" },
    side: { type: "string", default: "4096" },
    seconds: { type: "string", default: "2" },
    out: { type: "string", default: "recurrent" },
  },
});

interface Case {
  readonly equation: string;
  readonly extents: (side: number) => Record<string, number>;
  readonly tensors: Readonly<Record<string, DType>>;
}

const CASES: Readonly<Record<string, Case>> = {
  alignment: {
    equation: "h[i,j] = max(0, h[i-1,j-1] + select(a[i] == b[j], 2, -1), h[i-1,j] - g, h[i,j-1] - g)",
    extents: (side) => ({ i: side, j: side, g: 1 }),
    tensors: { h: "s32", a: "u8", b: "u8" },
  },
  common: {
    equation: "h[i,j] = select(a[i] == b[j], h[i-1,j-1] + 1, max(h[i-1,j], h[i,j-1]))",
    extents: (side) => ({ i: side, j: side }),
    tensors: { h: "s32", a: "u8", b: "u8" },
  },
  chain: {
    equation: "v[t,j] max= select(t == 0, p[j], v[t-1,i] + a[i,j]) + b[t,j]",
    extents: (side) => ({ t: 500, i: side / 8, j: side / 8 }),
    tensors: { v: "f32", p: "f32", a: "f32", b: "f32" },
  },
  sums: {
    equation: "y[i] = y[i-1] + x[i]",
    extents: (side) => ({ i: side * side }),
    tensors: { y: "f32", x: "f32" },
  },
};

const cases = values.cases.split(",").map((name) => wordOf("cases", name, Object.keys(CASES)));
const lines = ["| case | lanes, best | Gcells/s | g++ | over g++ |", "|---|---|---|---|---|"];
for (const name of cases) lines.push(await compare(name));
const head = `${cpus()[0]?.model ?? "unknown processor"}, one thread. Times in ms: least of all batches.`;
writeFileSync(`${values.out}.md`, `${head}\n\n${lines.join("\n")}\n`);
console.error(`written: ${values.out}.md`);

function subject(name: string): Computation {
  const own = CASES[name];
  if (!own) throw new Error(`internal: no case ${name}`);
  const { equation, tensors } = own;
  return defineComputation({ name, equation, extents: own.extents(Number(values.side)), tensors });
}

async function compare(name: string): Promise<string> {
  const computation = subject(name);
  const made = await createRunner({
    threads: 1,
    memoryBytes: 2 ** 33,
    stepSeconds: 120,
    budgetSeconds: Number(values.seconds),
    batches: [3, 20],
  });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const space = recurrentSpace(computation, { threads: 1, target: modelTarget(nativeTarget()) });
    if ("because" in space) throw new Error(`${name}: ${space.because}`);
    const schedules = [...space.all()];
    const kernels = schedules.map((schedule) =>
      kernelFor(computation, { kind: "recurrence", intrinsic: "avx512.fma.f32", schedule }),
    );
    const peer = await recurrentLoops(name, computation, { compiler: runner.compiler, workdir: runner.workdir });
    if (peer.status === "refused") throw new Error(`${name}: ${peer.reason}`);
    const expected = await runner.reference(computation, 1);
    const measured = await runner.compareKernels([peer.kernel, ...kernels], expected);
    const [loops, ...lanes] = measured;
    for (const [i, schedule] of schedules.entries())
      console.error(
        `${name}: ${schedule.lanes} lanes, beside ${JSON.stringify(schedule.beside)}: ${(1e3 * leastOf(lanes[i])).toFixed(2)} ms, expected ${(1e3 * space.expectedSeconds(schedule)).toFixed(2)}`,
      );
    const best = lanes.reduce((a, b) => (leastOf(b) < leastOf(a) ? b : a));
    const at = schedules[lanes.indexOf(best)];
    const over =
      best?.status === "ok" && loops?.status === "ok"
        ? summariseRatio(loops.samples, best.samples, 1).median.toFixed(2)
        : `failed: ${[best, loops].map((m) => m?.status).join(", ")}`;
    const shape = outputOf(computation)
      .dims.map((d) => d.extent)
      .join(" x ");
    const rate = pointCount(computation) / leastOf(best) / 1e9;
    return `| ${name} ${shape} | ${at?.lanes} lanes: ${(1e3 * leastOf(best)).toFixed(2)} | ${rate.toFixed(2)} | ${(1e3 * leastOf(loops)).toFixed(2)} | ${over} |`;
  } finally {
    await runner.close();
  }
}

function leastOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? Math.min(...m.samples) : Number.POSITIVE_INFINITY;
}
