/**
 * @file Stencils in time and other recurrences on lanes of this CPU, against the loops of a careful programmer, in turns.
 *
 *     npm run build
 *     node dist/bench/lanes/recurrences.js                         2d5pt and 3d7pt, f32, 48 steps, planes of 256 MB, one thread
 *     node dist/bench/lanes/recurrences.js --threads 2 --steps 24 --candidates 24
 *     node dist/bench/lanes/recurrences.js --cases alignment,common,chain,sums --side 4096
 *
 * A stencil takes several steps a pass over memory, or one; the best of each kind by the model's order runs beside the other and beside sweeps by g++
 * (peers/steps.ts). Of the others all designs run beside plain loops (peers/recurrent.ts). Loops are compiled by g++ -O3 -march=native. Ratios are
 * medians over neighbouring batches; above 1 lanes, or several steps a pass, are faster. Every kernel is checked in every element. A cell is a point
 * of a step, an element or a sum.
 */

import { writeFileSync } from "node:fs";
import type { StepSchedule } from "../../abstraction/candidate.ts";
import {
  type Computation,
  defineComputation,
  elementCount,
  outputOf,
  pointCount,
} from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Runner } from "../../runtime/measure.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { stepSpace } from "../../tuner/lane-candidates.ts";
import { recurrentSpace } from "../../tuner/recurrent-candidates.ts";
import type { Peer } from "../peers/loops.ts";
import { recurrentLoops } from "../peers/recurrent.ts";
import { randomSetOnly } from "../peers/reference.ts";
import { sweepsKernel } from "../peers/steps.ts";
import {
  calibratedTarget,
  cpuName,
  cpuRunner,
  leastOf,
  ms,
  page,
  ratioOf,
  table,
  threadsText,
} from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
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
    out: { type: "string", default: "recurrences" },
  },
});

interface Recurrence {
  readonly equation: string;
  readonly extents: (side: number) => Record<string, number>;
  readonly tensors: Readonly<Record<string, DType>>;
}

const RECURRENCES: Readonly<Record<string, Recurrence>> = {
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

// Checks the names before anything is measured.
const known = [...Object.keys(STEP_CASES), ...Object.keys(RECURRENCES)];
const cases = values.cases.split(",").map((name) => wordOf("cases", name, known));
const dtype = wordOf("type", values.type, ["f32", "f64"]);
const threads = Number(values.threads);
const side = Number(values.side);
// The calibration decides which schedules are tried.
const target = await calibratedTarget();

/** A kernel with what the model expects of it. */
interface Design {
  readonly says: string;
  readonly kernel: Kernel;
  readonly expected: number;
}
/** Groups of designs, of each of which the fastest stays; several steps a pass come before one. */
interface Subject {
  readonly computation: Computation;
  readonly groups: readonly (readonly Design[])[];
  readonly peer: (runner: Runner) => Promise<Peer>;
}

const rows: string[][] = [];
for (const name of cases) rows.push(await compare(name, name in STEP_CASES ? stepsOf(name) : designsOf(name)));
const head = ["case", "lanes, best, ms", "Gcells/s", "one step a pass, ms", "g++, ms", "over one a pass", "over g++"];
const about = `${cpuName()}, ${threadsText(threads)}. Times are the least of all batches.`;
const text = page("Recurrences on lanes", about, ...table(head, rows));
writeFileSync(`${values.out}.md`, text);
console.log(text);

/** As many points as a square of this side. */
function stepsOf(name: string): Subject {
  const edge = 2 ** Math.ceil(Math.log2(side * side) / 3);
  const cube = { i: Math.round((side * side) / edge / edge), j: edge, k: edge };
  const computation = stepCase(name, Number(values.steps), name.startsWith("3d") ? cube : { i: side, j: side }, dtype);
  const space = stepSpace(computation, { threads, target });
  if ("because" in space) throw new Error(`${name}: ${space.because}`);
  const ranked = [...space.all()].sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b));
  // The best of each depth first: the model ranks similar schedules more reliably than different depths.
  const depths = [...new Set(ranked.map((s) => s.depth))].filter((d) => d > 1);
  const several = depths
    .flatMap((d) => ranked.filter((s) => s.depth === d).slice(0, 2))
    .sort((a, b) => space.expectedSeconds(a) - space.expectedSeconds(b))
    .slice(0, Number(values.candidates));
  const one = ranked.filter((s) => s.depth === 1).slice(0, 6);
  const designOf = (schedule: StepSchedule): Design => ({
    says: `${schedule.depth}${schedule.strip > 0 ? `, strips of ${schedule.strip}` : ""}`,
    kernel: kernelFor(computation, { kind: "steps", intrinsic: `avx512.fma.${dtype}`, schedule }),
    expected: space.expectedSeconds(schedule),
  });
  return {
    computation,
    groups: [several.map(designOf), one.map(designOf)],
    peer: ({ compiler, workdir }) => sweepsKernel(computation, { compiler, workdir }),
  };
}

function designsOf(name: string): Subject {
  const { equation, extents, tensors } = RECURRENCES[name] as Recurrence; // its name was checked
  const computation = defineComputation({ name, equation, extents: extents(side), tensors });
  const space = recurrentSpace(computation, { threads: 1, target });
  if ("because" in space) throw new Error(`${name}: ${space.because}`);
  const designs = [...space.all()].map((schedule) => ({
    says: `${schedule.lanes} lanes, beside ${JSON.stringify(schedule.beside)}`,
    kernel: kernelFor(computation, { kind: "recurrence", intrinsic: "avx512.fma.f32", schedule }),
    expected: space.expectedSeconds(schedule),
  }));
  return {
    computation,
    groups: [designs],
    peer: ({ compiler, workdir }) => recurrentLoops(name, computation, { compiler, workdir }),
  };
}

async function compare(name: string, { computation, groups, peer }: Subject): Promise<string[]> {
  const runner = await cpuRunner({
    threads: computation.time ? threads : 1,
    memoryBytes: 2 ** 33,
    stepSeconds: 120,
    budgetSeconds: Number(values.seconds),
    batches: [3, 20],
  });
  try {
    const reference = await runner.reference(computation, 1);
    // One set of inputs, since planes are large.
    const expected = computation.time ? randomSetOnly(reference) : reference;
    const fastest: Design[] = [];
    for (const designs of groups) {
      const timing = { budgetSeconds: 0.5, batches: [2, 3] } as const;
      const measured = await runner.compareKernels(
        designs.map((d) => d.kernel),
        expected,
        timing,
      );
      for (const [i, { says, expected: seconds }] of designs.entries()) {
        const m = measured[i];
        const failed = m?.status === "ok" ? "" : ` ${m?.status} ${m?.log}`;
        console.error(`${name}: ${says}: ${ms(leastOf(m))} ms, expected ${ms(seconds)}${failed}`);
      }
      const least = Math.min(...measured.map(leastOf));
      fastest.push(...designs.filter((_, i) => leastOf(measured[i]) === least).slice(0, 1));
    }
    const loops = await peer(runner);
    if (loops.status === "refused") throw new Error(`${name}: ${loops.reason}`);
    const measured = await runner.compareKernels([...fastest.map((d) => d.kernel), loops.kernel], expected);
    const [ours] = measured;
    const one = groups.length > 1 ? measured[1] : undefined;
    const theirs = measured.at(-1);
    const over = (m: typeof ours): string => (m === undefined ? "" : (ratioOf(m, ours)?.toFixed(2) ?? "failed"));
    const shape = outputOf(computation)
      .dims.map((d) => d.extent)
      .join(" x ");
    const steps = computation.time?.steps;
    const cells = steps === undefined ? pointCount(computation) : steps * elementCount(outputOf(computation));
    return [
      `${name} ${shape}`,
      `${fastest[0]?.says}: ${ms(leastOf(ours))}`,
      (cells / leastOf(ours) / 1e9).toFixed(2),
      one === undefined ? "" : ms(leastOf(one)),
      ms(leastOf(theirs)),
      over(one),
      over(theirs),
    ];
  } finally {
    await runner.close();
  }
}
