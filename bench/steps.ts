/**
 * @file Stencils in time: several steps a pass over memory, one step a pass, and the compiler's sweeps, in turns.
 *
 *     npm run build
 *     node dist/bench/steps.js                      2d5pt and 3d7pt, f32, 48 steps, planes of 256 MB, one thread
 *     node dist/bench/steps.js --threads 2 --steps 24
 *     node dist/bench/steps.js --cases 2d5pt --steps 100 --side 4096 --candidates 24
 *
 * Ratios are medians over neighbouring batches in one process; above 1 several steps a pass are faster. Every kernel is
 * checked in every element. GCells/s = points x steps / time of a call.
 */

import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { StepSchedule } from "../abstraction/candidate.ts";
import { type Computation, elementCount, outputOf } from "../abstraction/computation.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { createRunner } from "../runtime/measure.ts";
import { summariseRatio } from "../runtime/statistics.ts";
import { calibrateMachine } from "../session/calibrate.ts";
import { kernelFor } from "../session/kernel.ts";
import { stepSpace } from "../tuner/lane-candidates.ts";
import { readOptions, wordOf } from "./options.ts";
import { randomSetOnly } from "./peers/reference.ts";
import { sweepsKernel } from "./peers/steps.ts";
import { STEP_CASES, stepCase } from "./step-cases.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "2d5pt,3d7pt" },
    type: { type: "string", default: "f32" },
    steps: { type: "string", default: "48" },
    side: { type: "string", default: "8192" },
    threads: { type: "string", default: "1" },
    candidates: { type: "string", default: "16" },
    seconds: { type: "string", default: "3" },
    out: { type: "string", default: "steps" },
  },
});

// Checks the names before anything is measured.
const cases = values.cases.split(",").map((name) => wordOf("cases", name, Object.keys(STEP_CASES)));
const dtype = wordOf("type", values.type, ["f32", "f64"]);
const threads = Number(values.threads);

// The calibration decides which schedules are tried.
const calibrated = await calibrateMachine(":memory:", {}, (text) => console.error(text));
if (calibrated.status === "environment") throw new EnvironmentError(calibrated.problem);
const { target } = calibrated;

/** As many points as a square of this side. */
function subject(name: string): Computation {
  const side = Number(values.side);
  const edge = 2 ** Math.ceil(Math.log2(side * side) / 3);
  const plane = name.startsWith("3d")
    ? { i: Math.round((side * side) / edge / edge), j: edge, k: edge }
    : { i: side, j: side };
  return stepCase(name, Number(values.steps), plane, dtype);
}

const lines = [
  "| case | steps a pass, best | GCells/s | one step a pass | g++ | over one a pass | over g++ |",
  "|---|---|---|---|---|---|---|",
];
for (const name of cases) lines.push(await compare(name));
const head = `${cpus()[0]?.model ?? "unknown processor"}, ${threads === 1 ? "one thread" : `${threads} threads`}, ${dtype}, ${values.steps} steps. Times in ms: least of all batches.`;
writeFileSync(`${values.out}.md`, `${head}\n\n${lines.join("\n")}\n`);
console.error(`written: ${values.out}.md`);

async function compare(name: string): Promise<string> {
  const computation = subject(name);
  const made = await createRunner({
    threads,
    memoryBytes: 2 ** 33,
    stepSeconds: 120,
    budgetSeconds: Number(values.seconds),
    batches: [3, 20],
  });
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  try {
    const space = stepSpace(computation, { threads, target });
    if ("because" in space) throw new Error(`${name}: ${space.because}`);
    // One set of inputs, since planes are large.
    const expected = randomSetOnly(await runner.reference(computation, 1));
    const ranked = [...space.all()].sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b));
    const single = ranked.filter((s) => s.depth === 1).slice(0, 6);
    // The best of each depth first: the model ranks similar schedules more reliably than different depths.
    const depths = [...new Set(ranked.map((s) => s.depth))].filter((d) => d > 1);
    const several = [...depths.flatMap((d) => ranked.filter((s) => s.depth === d).slice(0, 2))]
      .sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b))
      .slice(0, Number(values.candidates));
    const kernelOf = (schedule: StepSchedule) =>
      kernelFor(computation, { kind: "steps", intrinsic: `avx512.fma.${outputOf(computation).dtype}`, schedule });
    const best = async (schedules: readonly StepSchedule[]) => {
      const measured = await runner.compareKernels(schedules.map(kernelOf), expected, {
        budgetSeconds: 0.5,
        batches: [2, 3],
      });
      const tried = schedules.map((schedule, i) => ({
        schedule,
        seconds: leastOf(measured[i]),
        measured: measured[i],
      }));
      for (const { schedule, seconds, measured: m } of tried)
        console.error(
          `${name}: depth ${schedule.depth} strip ${schedule.strip} vectors ${schedule.vectors}${schedule.streaming ? " streaming" : ""}: ` +
            `${(1e3 * seconds).toFixed(1)} ms, expected ${(1e3 * space.expectedSeconds(schedule)).toFixed(1)}${m && m.status !== "ok" ? ` ${m.status} ${m.log}` : ""}`,
        );
      return tried.reduce((a, b) => (b.seconds < a.seconds ? b : a)).schedule;
    };
    const deep = await best(several);
    const flat = await best(single);
    const peer = await sweepsKernel(computation, { compiler: runner.compiler, workdir: runner.workdir });
    if (peer.status === "refused") throw new Error(`${name}: ${peer.reason}`);
    const [ours, one, loops] = await runner.compareKernels([kernelOf(deep), kernelOf(flat), peer.kernel], expected);
    const cells = elementCount(outputOf(computation)) * Number(values.steps);
    const ms = (m: Measurement | undefined): string => (1e3 * leastOf(m)).toFixed(1);
    const over = (m: Measurement | undefined): string =>
      ours?.status === "ok" && m?.status === "ok"
        ? summariseRatio(m.samples, ours.samples, 1).median.toFixed(2)
        : "failed";
    const shape = outputOf(computation)
      .dims.map((d) => d.extent)
      .join(" x ");
    return `| ${name} ${shape} | ${deep.depth}${deep.strip > 0 ? `, strips of ${deep.strip}` : ""}: ${ms(ours)} | ${(cells / leastOf(ours) / 1e9).toFixed(2)} | ${ms(one)} | ${ms(loops)} | ${over(one)} | ${over(loops)} |`;
  } finally {
    await runner.close();
  }
}

function leastOf(m: Measurement | undefined): number {
  return m?.status === "ok" ? Math.min(...m.samples) : Number.POSITIVE_INFINITY;
}
