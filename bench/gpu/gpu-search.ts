/**
 * @file Searches computations on this machine's GPU beside their peers in the same call, and measures the kernels that the model ranks first.
 *
 *     npm run build
 *     node dist/bench/gpu/gpu-search.js --cases gemm-4096,conv-16-64x56-nhwc --searches any:60 --out products.jsonl
 *     node dist/bench/gpu/gpu-search.js --cases gemm-2048:e4m3,gemm-4096:e4m3,gemm-8192:e4m3 --searches tensor-cores:60 --target h200
 *     node dist/bench/gpu/gpu-search.js --cases gemm-4096 --searches picked:128x256x4-bulk,picked:128x256x4-quads    by hand
 *     node dist/bench/gpu/gpu-search.js --suite all --batches 1,16 --layout last --shard 1/4 --out part-1.jsonl      the operators of AMOS
 *     node dist/bench/gpu/gpu-search.js --suite c2d,gmm --dtype bf16 --layout last --trials trials.jsonl             or tf32, s8
 *     node dist/bench/gpu/gpu-search.js --suite lm --dtype bf16 --layout last --target h200                          products of language models
 *     node dist/bench/gpu/gpu-search.js --cases filters,stencils:f32,stencils:f64 --within 330 --out lanes.jsonl
 *     node dist/bench/gpu/gpu-search.js --cases "filter 9:f16" --searches mappings:4,lanes:4                         bands beside windows
 *     node dist/bench/gpu/gpu-search.js --cases "steps 2d5pt:f64,steps 3d7pt:f32" --searches ""                      each depth's best, no search
 *     node dist/bench/gpu/gpu-search.js --cases "design conv1d:f32,design fir:f32,fetched 3d13pt:f64"
 *     node dist/bench/gpu/gpu-search.js --cases "design conv1d:f32" --emulated --small                               without a GPU: right or wrong
 *     node dist/bench/gpu/gpu-search.js --cases "matmul-4bit m=16 n=14336 k=4096:f16" --searches any:10,warps:10     an operator; on mma.sync alone
 *     node dist/bench/gpu/gpu-search.js --cases resnet18-1-nhwc --searches tensor-cores:15,im2col:15,fused-hw:15
 *     node dist/bench/gpu/gpu-search.js --cases resnet18-16-nhwc --searches tensor-cores:150 --after 15,30
 *     node dist/bench/gpu/gpu-search.js --report part-1.jsonl,part-2.jsonl
 *
 * Every kernel must equal the reference in every element of three sets of inputs before its time counts. Searches begin with an empty database. Winners of
 * several searches of a case, and cuBLAS, are timed once more in turns in one process. PyTorch (benchmark mode, CUDA graphs, all forms of
 * peers/torch-operators.py) and NPP run before the searches, copies of as many bytes before and after. Cases found in the output are skipped.
 *
 * `im2col` maps the pixels of all images to rows and the whole window to the sum (n,p,q and c,r,s), `fused-hw` the pixels of one image and the channels
 * (p,q and c), on either side of the instruction: the fixed mappings that AMOS (ISCA 2022, section 7.5) compares with. `--after 30` adds the best
 * after 30 s, which equals a search of 30 s: proposals do not depend on the time left. `--ranked` says how many schedules of a depth are measured.
 */

import { appendFileSync, existsSync, mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Candidate, CandidateKinds } from "../../abstraction/candidate.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { placeText, scheduleText } from "../../report/describe-candidate.ts";
import type { CudaRunner } from "../../runtime/run/cuda.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { choiceOnGpu, predictOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { type TuneComputationOptions, tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { caseLines, type RecordedTrial } from "../../test/support/recorded-trials.ts";
import { layersNamed, suiteCases, suiteLayers, suiteType } from "../../test/support/suite.ts";
import { contendersOf, type TrialOf } from "../../tuner/trials.ts";
import { gpuRunner, inShard, linesIn, linesOf, writerTo } from "../support/frame.ts";
import { readOptions, wordOf } from "../support/options.ts";
import { caseOfSuite, cellsOf, copyBytesOf, type GpuCase, gpuCases, windowOperations } from "./gpu-cases.ts";
import { copies, cublas, nppPeers, PEER, torchPeers } from "./gpu-peers.ts";
import { pickedCandidate } from "./gpu-picked.ts";
import { groupOf, rankedKernels } from "./gpu-ranked.ts";
import { RANKED, report, SEARCH, type SearchLine } from "./gpu-report.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "" },
    /** Operators and ids of bench/suites, or `all`. */
    suite: { type: "string", default: "" },
    /** Takes one in this many of each operator's configurations. */
    every: { type: "string", default: "1" },
    batches: { type: "string", default: "1,16" },
    /** Where channels of the suite lie: `first` (NCHW) or `last` (NHWC). */
    layout: { type: "string", default: "first" },
    /** Type of the suite's factors: `f16`, `bf16`, `tf32`, `s8` or `e4m3`. */
    dtype: { type: "string", default: "f16" },
    side: { type: "string", default: "8192" },
    cube: { type: "string", default: "512" },
    steps: { type: "string", default: "48" },
    "cube-steps": { type: "string", default: "24" },
    small: { type: "boolean", default: false },
    /** What is searched, and for how many seconds; empty for no search. */
    searches: { type: "string", default: "any:5" },
    /** Seconds into each search at which its best kernel so far is timed too. */
    after: { type: "string" },
    ranked: { type: "string", default: "3" },
    /** No case begins after this many seconds. */
    within: { type: "string", default: "100000" },
    shard: { type: "string", default: "1/1" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    emulated: { type: "boolean", default: false },
    out: { type: "string" },
    /** File that receives every kernel that was right, for bench/model/accuracy.ts. */
    trials: { type: "string" },
    report: { type: "string" },
    python: { type: "string", default: "python3" },
  },
});

type Options = Pick<TuneComputationOptions, "kinds" | "intrinsics" | "keeps">;
const machine = nvidiaTarget(values.target);

/** What a search may look at. Loops of extent 1 may be missing from a fixed mapping. */
const SEARCHES: Readonly<Record<string, (one: GpuCase) => Options>> = {
  any: ({ kinds }) => ({ kinds }),
  mappings: () => ({ kinds: "mappings" }),
  lanes: () => ({ kinds: "lanes" }),
  "tensor-cores": () => onTensorCores(),
  warps: () => onTensorCores(["warp"]),
  im2col: (one) => ({ ...onTensorCores(), keeps: fixedMapping(one, ["npq", "crs", "k"]) }),
  "fused-hw": (one) => ({ ...onTensorCores(), keeps: fixedMapping(one, ["pq", "c", "k"]) }),
};

/** @param scopes who issues the instructions */
function onTensorCores(scopes: readonly string[] = ["warp", "warpgroup"]): Options {
  const intrinsics = usableIntrinsics(machine).filter((i) => scopes.includes(i.scope));
  return { kinds: "mappings" satisfies CandidateKinds, intrinsics };
}

function fixedMapping({ computation }: GpuCase, wanted: readonly string[]): (mapping: Mapping) => boolean {
  const extents = new Map(computation.axes.map((axis) => [axis.name, axis.extent]));
  const named = (loops: Iterable<string>): string =>
    [...loops]
      .filter((loop) => (extents.get(loop) ?? 1) > 1)
      .sort()
      .join("");
  const keyOf = (sets: readonly Iterable<string>[]): string => sets.map(named).sort().join();
  return ({ matching }) => keyOf(Object.values(matching)) === keyOf(wanted);
}

/** A kernel of a product by its tile, stages and stores, in place of a search. */
const PICKED = "picked";
const searches = values.searches === "" ? [] : values.searches.split(",");
for (const search of searches) wordOf("searches", search.split(":")[0] ?? "", [...Object.keys(SEARCHES), PICKED]);
const write = writerTo(values.out);
if (values.report === undefined) await run(casesOfShard());
else console.log(report(linesIn(values.report)));

function casesOfShard(): readonly GpuCase[] {
  const { small } = values;
  const named = gpuCases(values.cases, {
    side: small ? 40 : Number(values.side),
    cube: small ? 40 : Number(values.cube),
    steps: Number(values.steps),
    cubeSteps: Number(values["cube-steps"]),
    small,
  });
  const layout = wordOf("layout", values.layout, ["first", "last"]);
  const options = { every: Number(values.every), dtype: wordOf("dtype", values.dtype, suiteType.options) };
  const layers = values.suite === "all" ? suiteLayers() : values.suite === "" ? [] : layersNamed(values.suite);
  const suite = suiteCases(layers, values.batches.split(",").map(Number), layout, options).map(caseOfSuite);
  return inShard([...named, ...suite], values.shard);
}

async function run(cases: readonly GpuCase[]): Promise<void> {
  const workdir = mkdtempSync(join(tmpdir(), "automap-gpu-search-"));
  const runner = await gpuRunner({ workdir, ...(values.emulated && { emulated: true }) });
  const before = values.out !== undefined && existsSync(values.out) ? linesIn(values.out) : [];
  const { name, driver, nvcc } = runner.device;
  write({ kind: "device", name, driver, nvcc: nvcc.version, seed: Number(values.seed), searches: values.searches });
  const timed = new Set(linesOf(PEER, before).map((l) => l.case));
  for await (const line of torchPeers(values.emulated ? [] : cases.filter((c) => !timed.has(c.name)), values.python))
    write(line);
  const windows = values.emulated ? [] : cases.filter((c) => c.kinds === "lanes");
  const sizes = new Set(windows.map((c) => copyBytesOf(c.computation)).filter((bytes) => bytes > 0));
  const copied = async (): Promise<void> => {
    for (const bytes of sizes) for (const line of await copies(bytes, runner, workdir)) write(line);
  };
  await copied();
  if (windows.some((c) => c.filter !== undefined))
    for (const line of nppPeers(runner, workdir, Number(values.side))) write(line);
  const known = new Set([...linesOf(SEARCH, before), ...linesOf(RANKED, before)].map((l) => l.case));
  const begun = Date.now();
  for (const one of cases.filter((c) => !known.has(c.name))) {
    if ((Date.now() - begun) / 1000 > Number(values.within)) write({ kind: "left out", case: one.name });
    else await caseDone(one, runner, workdir);
  }
  await copied();
  await runner.close();
}

async function caseDone(one: GpuCase, runner: CudaRunner, workdir: string): Promise<void> {
  await measureRanked(one, runner);
  const found: Searched[] = [];
  for (const search of values.emulated ? [] : searches) found.push(...(await searchedBy(search, one)));
  // A kernel that several searches found is measured once.
  const kernels = new Map(found.flatMap(({ best }) => best.map(({ kernel }) => [kernel.source, kernel])));
  const [first] = kernels.values();
  const library = one.product && first ? [cublas(runner, workdir, one.product, first.arguments)] : [];
  const timing = { budgetSeconds: 1, batches: [30, 1000] } as const;
  const isAlone = kernels.size + library.length < 2 && values.after === undefined;
  const measured = isAlone
    ? []
    : await runner.measureTogether([...kernels.values(), ...library], referenceOf(one, runner), timing);
  const peer = library.length > 0 ? measured.at(-1) : undefined;
  const places = [...kernels.keys()];
  for (const { line, best } of found) {
    const timed = best.flatMap(({ kernel, candidate, expected, finals }) => {
      const own = isAlone ? finals : measured[places.indexOf(kernel.source)];
      return own?.status === "ok" ? [{ own, candidate, expected }] : [];
    });
    const [winner] = timed.sort((a, b) => a.own.median - b.own.median);
    write({
      ...line,
      ...(peer?.status === "ok" && { cublas: peer.median }),
      ...(winner && { best: bestOf(one, winner.candidate, winner.own, winner.expected) }),
    } satisfies SearchLine);
  }
}

function referenceOf({ computation, fixed }: GpuCase, runner: CudaRunner): ReturnType<CudaRunner["reference"]> {
  return runner.reference(computation, Number(values.seed), fixed && { fixed });
}

function bestOf(
  { computation }: GpuCase,
  candidate: Candidate,
  { median, interval }: Extract<Measurement, { readonly status: "ok" }>,
  expected: number | undefined,
): NonNullable<SearchLine["best"]> {
  return {
    median,
    interval: [interval[0], interval[1]],
    instruction: candidate.intrinsic,
    place: placeText(candidate),
    schedule: scheduleText(candidate),
    group: groupOf(computation, candidate),
    ...(expected !== undefined && { expected }),
  };
}

/** Measures the kernels that the model ranks first, in alternating batches. */
async function measureRanked(one: GpuCase, runner: CudaRunner): Promise<void> {
  const ranked = rankedKernels(one, machine, Number(values.ranked));
  if (ranked.length === 0) return;
  const { name, computation } = one;
  const kernels = ranked.map(({ candidate }) => kernelFor(computation, candidate, machine));
  const all = await runner.measureTogether(kernels, referenceOf(one, runner), { budgetSeconds: 0.1 });
  const trials: RecordedTrial[] = [];
  for (const [i, { candidate, group, expected }] of ranked.entries()) {
    const m = all[i];
    if (m?.status === "ok") trials.push({ candidate, median: m.median, interval: m.interval });
    const result = m?.status === "ok" ? { seconds: m.median } : { log: m?.log.slice(0, 300) };
    const schedule = `${placeText(candidate)}; ${scheduleText(candidate)}`;
    const cells = cellsOf(computation);
    write({ kind: "ranked", case: name, cells, group, schedule, expected, status: m?.status ?? "nothing", ...result });
  }
  keepTrials(one, trials);
}

/** The state of a search, at its end or earlier. */
interface Searched {
  readonly line: Omit<SearchLine, "best" | "cublas">;
  /** The winner, or the finalists at that time. */
  readonly best: readonly {
    readonly kernel: Kernel;
    readonly candidate: Candidate;
    readonly expected: number | undefined;
    readonly finals?: Measurement;
  }[];
}

/** Runs a search. Returns its states at the requested times, then its result. */
async function searchedBy(search: string, one: GpuCase): Promise<Searched[]> {
  const [which = "", seconds] = search.split(":");
  const { name, group, computation, fixed, suite } = one;
  const begun = Date.now();
  const operations = windowOperations(computation);
  const line = {
    kind: "search",
    case: name,
    group,
    bytes: copyBytesOf(computation),
    cells: cellsOf(computation),
    ...(operations !== undefined && { operations }),
    ...(suite && { suite }),
    ...(one.filter !== undefined && { filter: one.filter }),
  } as const;
  const failedWith = (because: string): Searched[] => {
    console.error(`${name} ${search}: ${because}`);
    const took = (Date.now() - begun) / 1000;
    return [{ line: { ...line, search, took, trials: 0, measured: 0, failed: {}, because }, best: [] }];
  };
  try {
    if (which === PICKED && suite) {
      const candidate = pickedCandidate(seconds ?? "", computation, suite, machine);
      const kernel = kernelFor(computation, candidate, machine);
      const expected = predictOnGpu(choiceOnGpu(computation, candidate, machine), machine)?.seconds;
      return [
        {
          line: { ...line, search, took: 0, trials: 1, measured: 1, failed: {} },
          best: [{ kernel, candidate, expected }],
        },
      ];
    }
    const outcome = await tuneComputation(
      { computation, ...(fixed && { fixed }) },
      {
        machine,
        database: ":memory:",
        seconds: Number(seconds),
        // Windows take long to enumerate and little to compile: their budget has both in it.
        ...(one.kinds === "lanes" && { within: Number(seconds) }),
        seed: Number(values.seed),
        // No limit in practice: the budget is in seconds.
        trials: 1_000_000,
        earlyStop: false,
        ...SEARCHES[which]?.(one),
      },
    );
    if (!("trials" in outcome))
      return failedWith(
        outcome.status === "environment" ? outcome.problem.what : (outcome.refused[0]?.because ?? "nothing maps"),
      );
    const { trials, best, failed } = outcome;
    keepTrials(one, trials.flatMap(timedOf));
    const said = (label: string, took: number, within: typeof trials): Searched["line"] => {
      const measured = within.filter((t) => t.measurement.status === "ok").length;
      const at = { ...line, search: label, took, trials: within.length, measured, failed };
      console.error(`${name} ${label}: ${measured} of ${within.length} kernels, ${took.toFixed(1)} s`);
      return at;
    };
    const early = (values.after?.split(",") ?? []).map((after): Searched => {
      const within = trials.filter((trial) => trial.at <= begun + 1000 * Number(after));
      const finalists = contendersOf(within, () => undefined);
      return {
        line: said(`${which}:${after}`, Number(after), within),
        best: finalists.map(({ candidate }) => ({
          kernel: kernelFor(computation, candidate, machine),
          candidate,
          expected: undefined,
        })),
      };
    });
    const winner = best && {
      kernel: best.kernel,
      candidate: best.candidate,
      expected: best.prediction?.uncorrectedSeconds,
      finals: best.measurement,
    };
    const whole = { line: said(search, (Date.now() - begun) / 1000, trials), best: winner ? [winner] : [] };
    return [...early, whole];
  } catch (error) {
    return failedWith(error instanceof Error ? error.message.slice(0, 300) : String(error));
  }
}

function timedOf({ candidate, measurement: m }: TrialOf<Candidate>): RecordedTrial[] {
  return m.status === "ok" ? [{ candidate, median: m.median, interval: m.interval }] : [];
}

function keepTrials({ name, group, computation }: GpuCase, trials: readonly RecordedTrial[]): void {
  if (values.trials === undefined || trials.length === 0) return;
  appendFileSync(values.trials, caseLines({ name, operator: group, target: values.target, computation, trials }));
}
