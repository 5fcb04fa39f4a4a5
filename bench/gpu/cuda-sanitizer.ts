/**
 * @file Random kernels of every kind under NVIDIA's compute-sanitizer on this machine's GPU.
 *
 *     npm run build
 *     node dist/bench/gpu/cuda-sanitizer.js --kernels 100 --tools memcheck,racecheck --seconds 240 --out sanitizer.jsonl
 *     node dist/bench/gpu/cuda-sanitizer.js --kernels 100 --list                                 how many of each kind; needs no GPU
 *     node dist/bench/gpu/cuda-sanitizer.js --report sanitizer.jsonl
 *
 * Kernels are drawn from the spaces of small cases, the kinds that were drawn least first. All kernels of a case run in one process of the measuring
 * program, which verifies each and calls it once, under each tool. The tool writes what it found when that process ends as any other does.
 */

import { spawn } from "node:child_process";
import { Readable } from "node:stream";
import pLimit from "p-limit";
import { z } from "zod";
import type { Candidate } from "../../abstraction/candidate.ts";
import { upTo } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Inputs } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { stated } from "../../test/support/subjects.ts";
import { gpuRunner, linesIn, linesOf, table, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    kernels: { type: "string", default: "100" },
    tools: { type: "string", default: "memcheck,racecheck" },
    /** A process that has not ended by then is ended. */
    seconds: { type: "string", default: "240" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h200" },
    list: { type: "boolean", default: false },
    out: { type: "string" },
    report: { type: "string" },
  },
});

interface Case {
  readonly computation: Computation;
  /** What decides at run time. */
  readonly fixed?: Inputs;
}

const NHWC =
  "out[n,k,p,q] += f32(in[n,c,p+r-1,q+s-1]) * f32(w[k,c,r,s]) --n 2 --c 32 --k 32 --p 14 --q 14 --r 3 --s 3 --dtype in=f16,w=f16";
const HALVES = "--dtype a=f16,b=f16,z=f16";

/** Small enough for racecheck, large enough for several blocks and for rings that wrap around. */
const CASES: Readonly<Record<string, Case>> = {
  product: {
    computation: stated(`c[m,n] += f32(a[m,k]) * f32(b[k,n]); z[m,n] = f16(c[m,n]) --m 320 --n 320 --k 320 ${HALVES}`),
  },
  "many tiles": {
    computation: stated(
      `c[m,n] += f32(a[m,k]) * f32(b[n,k]); z[m,n] = f16(c[m,n]) --m 2048 --n 2048 --k 128 ${HALVES}`,
    ),
  },
  bytes: { computation: stated("c[m,n] += s32(a[m,k]) * s32(b[n,k]) --m 128 --n 192 --k 256 --dtype a=s8,b=s8") },
  convolution: { computation: stated(NHWC) },
  "uneven groups": {
    computation: stated(
      "c[t,m,n] += f32(a[t,m,k]) * f32(w[clamp(group[t]),n,k]) where group[t] >= 0; z[t,m,n] = f16(c[t,m,n]) --t 40 --m 128 --n 256 --k 320 --shape w=5x256x320 --dtype a=f16,w=f16,z=f16,group=s32",
    ),
    fixed: { group: upTo(40).map((t) => (t % 3 === 1 ? -1 : t % 5)) },
  },
  "counted rows": {
    computation: stated(
      "c[g,m,n] += f32(a[g,m,k]) * f32(w[g,n,k]) where m < count[g]; z[g,m,n] = f16(c[g,m,n]) --g 6 --m 512 --n 256 --k 320 --dtype a=f16,w=f16,z=f16,count=s32",
    ),
    fixed: { count: [0, 77, 512, 130, 1, 256] },
  },
  stencil: { computation: stated("y[i,j] += x[i+r-1,j+s-1] * w[r,s] --i 96 --j 96 --r 3 --s 3 --dtype f32") },
};

const LINE = z.object({
  case: z.string(),
  tool: z.string(),
  /** By kind. */
  kernels: z.record(z.string(), z.number()),
  status: z.string(),
  summary: z.string().optional(),
  findings: z.array(z.string()),
});

interface Drawn {
  readonly kind: string;
  readonly kernel: Kernel;
}

/** The kind of a kernel: its instruction's family, and how tiles of blocks and warps are fetched, dealt and stored. */
function kindOf(candidate: Candidate): string {
  const family = intrinsicNamed(candidate.intrinsic)?.family ?? "";
  if (candidate.kind !== "grid") return `${candidate.kind ?? "mapping"} ${family}`;
  const { transfer, producer, split, persistent, multicast, store } = candidate.schedule;
  const dealt = split ? `split ${split.through}` : persistent === undefined ? "" : "persistent";
  return [family, transfer, producer && "producer", dealt, multicast && "multicast", store].filter(Boolean).join(" ");
}

/** How many candidates are drawn for each that is taken. */
const DRAWS = 24;

function drawnOf({ computation }: Case, count: number): Drawn[] {
  const machine = nvidiaTarget(values.target);
  const seed = Number(values.seed);
  const random = seededRandom(seed);
  const space = finished(
    sessionSpace(computation, { machine, intrinsics: usableIntrinsics(machine), threads: 1, seed }),
  );
  if (isRefusals(space)) return [];
  const taken = new Map<string, number>();
  const timesTaken = (candidate: Candidate): number => taken.get(kindOf(candidate)) ?? 0;
  const drawn = new Map<string, Drawn>();
  for (let tries = 0; drawn.size < count && tries < 4 * count; tries++) {
    const candidate = upTo(DRAWS)
      .map(() => space.random(random))
      .reduce((a, b) => (timesTaken(b) < timesTaken(a) ? b : a));
    const kind = kindOf(candidate);
    taken.set(kind, (taken.get(kind) ?? 0) + 1);
    const kernel = space.kernelOf(candidate);
    drawn.set(JSON.stringify(candidate), { kind, kernel });
  }
  return [...drawn.values()];
}

const countsOf = (drawn: readonly Drawn[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const { kind } of drawn) counts[kind] = (counts[kind] ?? 0) + 1;
  return counts;
};

type Found = Pick<z.infer<typeof LINE>, "status" | "summary" | "findings">;

/** The exit status by which the tool says that it found something. */
const FOUND = 9;

function underTool(tool: string, harness: string, request: string, kernels: number): Promise<Found> {
  return new Promise((resolve) => {
    const words = ["--tool", tool, "--target-processes", "all", "--error-exitcode", String(FOUND), harness];
    const child = spawn("compute-sanitizer", words, {
      stdio: ["pipe", "pipe", "pipe", "pipe"],
      timeout: 1000 * Number(values.seconds),
    });
    let said = "";
    let answers = "";
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (text: Buffer) => (said += text));
    const channel = child.stdio[3];
    if (channel instanceof Readable) channel.on("data", (text: Buffer) => (answers += text));
    child.on("error", (error) => resolve({ status: "not run", findings: [error.message] }));
    child.on("close", (code, signal) => {
      const lines = said.split("\n").map((line) => line.replace(/^=+ ?/, ""));
      const summary = lines.findLast((line) => line.includes("SUMMARY"));
      const called = answers.match(/^samples /gm)?.length ?? 0;
      const told = lines.filter((line) => /error|warning|hazard|invalid|uninitialized/i.test(line) && line !== summary);
      const failed = answers.match(/^(?:wrong|fault|refused).*$/gm) ?? [];
      const findings = [...told, ...failed].slice(0, 5);
      const isWhole = code === 0 && called === kernels && summary !== undefined;
      const status = signal
        ? "too long"
        : code === FOUND
          ? "found"
          : isWhole
            ? "clean"
            : `exit ${code}, ${called} called`;
      resolve({ status, ...(summary !== undefined && { summary }), findings });
    });
    child.stdin?.on("error", () => undefined);
    child.stdin?.end(request);
  });
}

async function run(): Promise<void> {
  const write = writerTo(values.out);
  const runner = await gpuRunner();
  write({ kind: "device", ...runner.device, seed: Number(values.seed) });
  const each = Math.ceil(Number(values.kernels) / Object.keys(CASES).length);
  const atOnce = pLimit(4);
  const cases = Object.entries(CASES).map(async ([name, one]) => {
    const reference = await runner.reference(one.computation, 1, one.fixed && { fixed: one.fixed });
    const all = drawnOf(one, each);
    const made = await Promise.all(all.map(({ kernel }) => runner.compile(kernel)));
    const built = all.flatMap((drawn, i) => {
      const compiled = made[i];
      if (compiled?.status === "compiled") return [{ ...drawn, file: compiled.file }];
      console.error(`${name}: ${drawn.kind}: ${compiled?.status}`);
      return [];
    });
    const files = built.map(({ file }) => file);
    const request = runner.requestOf(files, reference, { budgetSeconds: 0, batches: [1, 1], batchSeconds: 0 });
    for (const tool of values.tools.split(","))
      write({
        case: name,
        tool,
        kernels: countsOf(built),
        ...(await atOnce(() => underTool(tool, runner.harness, request, files.length))),
      });
  });
  await Promise.all(cases);
  await runner.close();
}

function reportOf(lines: readonly unknown[]): string {
  const rows = linesOf(LINE, lines).map(({ case: name, tool, kernels, status, summary = "", findings }) => {
    const counts = Object.values(kernels);
    const all = counts.reduce((sum, count) => sum + count, 0);
    return [name, tool, String(all), String(counts.length), status, summary, findings[0] ?? ""];
  });
  return table(["case", "tool", "kernels", "kinds", "status", "summary", "first finding"], rows).join("\n");
}

if (values.report !== undefined) console.log(reportOf(linesIn(values.report)));
else if (!values.list) await run();
else
  for (const [name, one] of Object.entries(CASES))
    console.log(name, countsOf(drawnOf(one, Math.ceil(Number(values.kernels) / Object.keys(CASES).length))));
