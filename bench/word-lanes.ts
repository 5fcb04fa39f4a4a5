/**
 * @file Lanes of 16 bits on this CPU: random designs in s16 and f16 verified in every element, and filters timed beside
 * lanes of f32 and beside what g++ makes of plain loops.
 *
 *     npm run build
 *     node dist/bench/word-lanes.js --out bench/results/word-lanes             two or three minutes
 *     node dist/bench/word-lanes.js --seconds 20 --jobs 8 --cases 3x3          random designs for 20 s, eight at a time
 *
 * f16 needs AVX512-FP16, s16 AVX2 or AVX-512. Wrong designs are printed; the exit code is then 4.
 */

import { writeFileSync } from "node:fs";
import { cpus } from "node:os";
import type { Computation } from "../abstraction/computation.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { seededRandom } from "../abstraction/random.ts";
import type { Measurement } from "../abstraction/trial.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { instantiate, operatorNamed } from "../operators/index.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { createRunner, type Runner } from "../runtime/measure.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { kernelFor } from "../session/kernel.ts";
import { registersOf, windowLanes } from "../session/window-kinds.ts";
import { nativeTarget } from "../targets/index.ts";
import { rankWindows, windowSpace } from "../tuner/lane-candidates.ts";
import { drawWords, type WordType } from "./drawn/words.ts";
import { readOptions } from "./options.ts";
import { loopsKernel } from "./peers/loops.ts";

const { values } = readOptions({
  options: {
    /** Seconds of random designs. */
    seconds: { type: "string", default: "60" },
    seed: { type: "string", default: "1" },
    jobs: { type: "string", default: "1" },
    cases: { type: "string", default: "5,17,3x3,5x5,9x9" },
    size: { type: "string", default: "1024" },
    designs: { type: "string", default: "8" },
    out: { type: "string" },
  },
});

const intrinsics = usableIntrinsics(nativeTarget());
const has = (name: string): boolean => intrinsics.some((i) => i.name === name);
/** The lanes of this machine. */
const KINDS: readonly { readonly dtype: WordType; readonly lanes: 16 | 32 }[] = [
  ...(has("avx2.fma.f32") ? [{ dtype: "s16", lanes: 16 } as const] : []),
  ...(has("avx512.fma.f32") ? [{ dtype: "s16", lanes: 32 } as const] : []),
  ...(has("avx512.fma.f16") ? [{ dtype: "f16", lanes: 32 } as const] : []),
];

async function runnerOf(seconds: number): Promise<Runner> {
  const made = await createRunner({ threads: 1, budgetSeconds: seconds, batches: [1, 40] });
  if (made.status === "environment") throw new EnvironmentError(made);
  return made.runner;
}

// ---- random designs -----------------------------------------------------------------------------------------------------------------

interface Tally {
  right: number;
  refused: number;
  readonly wrong: string[];
}

/** Verifies random designs of one kind until the time is over. */
async function judged(dtype: WordType, lanes: 16 | 32, until: number, seed: number): Promise<Tally> {
  const random = seededRandom(seed);
  const tally: Tally = { right: 0, refused: 0, wrong: [] };
  const runner = await runnerOf(0.001);
  try {
    while (performance.now() < until) {
      const drawn = drawWords(random, dtype, lanes);
      if ("because" in drawn) {
        tally.refused++;
        continue;
      }
      const { computation, candidate } = drawn;
      const kernel = kernelFor(computation, candidate);
      const measured = await runner.measure(kernel, await runner.reference(computation, 1));
      if (measured.status === "ok") tally.right++;
      else
        tally.wrong.push(
          `${dtype} ${computation.name}: ${JSON.stringify(candidate)}: ${JSON.stringify(measured).slice(0, 600)}`,
        );
    }
  } finally {
    await runner.close();
  }
  return tally;
}

async function judgedAll(): Promise<string[]> {
  const until = performance.now() + 1000 * Number(values.seconds);
  const jobs = Number(values.jobs);
  // Kinds share the jobs; with fewer jobs than kinds, they run one after another.
  const each = Math.max(1, Math.floor(jobs / KINDS.length));
  const lines: string[] = [];
  const ofKind = async ({ dtype, lanes }: (typeof KINDS)[number], k: number): Promise<void> => {
    const end = jobs >= KINDS.length ? until : performance.now() + (1000 * Number(values.seconds)) / KINDS.length;
    const tallies = await Promise.all(
      Array.from({ length: each }, (_, j) => judged(dtype, lanes, end, Number(values.seed) * 1000 + 100 * k + j)),
    );
    const right = tallies.reduce((n, t) => n + t.right, 0);
    const refused = tallies.reduce((n, t) => n + t.refused, 0);
    const wrong = tallies.flatMap((t) => t.wrong);
    if (wrong.length > 0) process.exitCode = 4;
    for (const text of wrong) console.error(`WRONG ${text}`);
    lines.push(`| ${dtype}, ${lanes} lanes | ${right} | ${wrong.length} | ${refused} |`);
  };
  if (jobs >= KINDS.length) await Promise.all(KINDS.map(ofKind));
  else for (const [k, kind] of KINDS.entries()) await ofKind(kind, k);
  return lines.toSorted();
}

// ---- filters --------------------------------------------------------------------------------------------------------------------------

const TYPES = { f32: "f32", f16: "f16->f16", s16: "s16->s16" } as const;

function filter(name: string, types: string): Computation {
  const size = Number(values.size);
  const [r = 1, s] = name.split("x").map(Number);
  const [operator, parameters] =
    s === undefined
      ? (["conv1d-single", { l: size * size, r }] as const)
      : (["conv2d-single", { h: size, w: size, r, s }] as const);
  return instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });
}

const leastOf = (m: Measurement | undefined): number | undefined =>
  m?.status === "ok" ? Math.min(...m.samples) : undefined;

/** Microseconds of the best lanes and of the faster loops, checked in every element and timed in turns. */
async function timed(
  name: string,
  dtype: keyof typeof TYPES,
): Promise<{ readonly lanes?: number; readonly loops?: number }> {
  const computation = filter(name, TYPES[dtype]);
  const intrinsic = windowLanes(dtype, intrinsics);
  if (!intrinsic) return {};
  const space = windowSpace(computation, {
    threads: 1,
    vectors: registersOf(intrinsic),
    target: modelTarget(nativeTarget()),
  });
  if ("rule" in space) throw new Error(space.because);
  const runner = await runnerOf(0.1);
  try {
    const schedules = rankWindows(space, Number(values.designs));
    const ours = schedules.map((schedule) =>
      kernelFor(computation, { kind: "window", intrinsic: intrinsic.name, schedule }),
    );
    const options = { compiler: runner.compiler, workdir: runner.workdir };
    const peers: Kernel[] = [];
    for (const form of ["window", "rows"] as const) {
      const peer = await loopsKernel(computation, form, options);
      if (peer.status === "ready") peers.push(peer.kernel);
    }
    const results = await runner.compareKernels([...ours, ...peers], await runner.reference(computation, 1));
    for (const [i, m] of results.entries())
      if (m.status !== "ok") {
        console.error(
          `${name} ${dtype}, ${i < ours.length ? JSON.stringify(schedules[i]) : "g++"}: ${JSON.stringify(m).slice(0, 400)}`,
        );
        if (i < ours.length) process.exitCode = 4;
      }
    const best = (of: readonly Measurement[]): number | undefined => {
      const times = of.flatMap((m) => leastOf(m) ?? []);
      return times.length === 0 ? undefined : 1e6 * Math.min(...times);
    };
    const lanes = best(results.slice(0, ours.length));
    const loops = best(results.slice(ours.length));
    console.error(`${name} ${dtype}: lanes ${lanes?.toFixed(1)} us, g++ ${loops?.toFixed(1)} us`);
    return { ...(lanes !== undefined && { lanes }), ...(loops !== undefined && { loops }) };
  } finally {
    await runner.close();
  }
}

const cases = values.cases.split(",").filter((name) => name !== "");
for (const name of cases)
  if (!/^[1-9]\d*(x[1-9]\d*)?$/.test(name))
    throw new UsageError(`--cases: "${name}" is no filter`, {
      hint: "for example --cases 5,3x3: its taps, in one or two dimensions",
    });

const random = Number(values.seconds) > 0 ? await judgedAll() : [];
const rows: string[] = [];
for (const name of cases) {
  const [f32, f16, s16] = [await timed(name, "f32"), await timed(name, "f16"), await timed(name, "s16")];
  const cell = (us: number | undefined): string => us?.toFixed(1) ?? "";
  const over = (a: number | undefined, b: number | undefined): string =>
    a === undefined || b === undefined ? "" : (a / b).toFixed(2);
  for (const [type, t] of [
    ["f32", f32],
    ["f16", f16],
    ["s16", s16],
  ] as const)
    rows.push(
      `| ${name} | ${type} | ${cell(t.lanes)} | ${cell(t.loops)} | ${over(t.loops, t.lanes)} | ${over(f32.lanes, t.lanes)} |`,
    );
}
const page = [
  "# Lanes of 16 bits",
  "",
  `${cpus()[0]?.model ?? "unknown processor"}, ${new Date().toISOString().slice(0, 10)}.`,
  "",
  `    node dist/bench/word-lanes.js --seconds ${values.seconds} --jobs ${values.jobs} --seed ${values.seed} --cases "${values.cases}" --size ${values.size} --designs ${values.designs}`,
  "",
  "Random windows and designs by their transforms, compiled and run between guard pages on random and on extreme inputs, every element compared:",
  "",
  "| lanes | right | wrong | refused |",
  "|---|---|---|---|",
  ...random,
  "",
  `Filters over ${values.size} x ${values.size} elements, one thread, data and sums of one type. The model's ${values.designs} most promising windows and the loops`,
  "of a careful programmer (g++ -O3 -march=native, the window innermost or row by row) are checked in every element and timed in turns; the fastest batch",
  "of the fastest counts, in microseconds.",
  "",
  "| filter | type | lanes, us | g++, us | g++ / lanes | f32 lanes / lanes |",
  "|---|---|---|---|---|---|",
  ...rows,
  "",
].join("\n");
if (values.out) writeFileSync(`${values.out}.md`, page);
console.log(page);
