/**
 * @file Searches of the same layer on this machine's GPU: over all mappings or one, and with different budgets.
 *
 *     node dist/bench/cuda-searches.js --cases resnet18-16-nhwc --searches all:150 --after 30 --out budgets.jsonl
 *     node dist/bench/cuda-searches.js --cases resnet18-1-nhwc --searches all:15,im2col:15,fused-hw:15 --out maps.jsonl
 *     node dist/bench/cuda-searches.js --report budgets.jsonl,more.jsonl
 *
 * `im2col` maps the pixels of all images to rows and the whole window to the sum (n,p,q and c,r,s). `fused-hw` maps the
 * pixels of one image and the channels (p,q and c). Both allow either side of the instruction; they are the fixed
 * mappings that AMOS (ISCA 2022, section 7.5) compares with. Searches cover instructions of warps and warpgroups from
 * an empty database. One process times a layer's winners in turns; ratios are to the first search. `--after 30` adds
 * the best after 30 s, which equals a 30 s search: proposals do not depend on the time left.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { z } from "zod";
import type { Candidate } from "../abstraction/candidate.ts";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { Mapping } from "../abstraction/mapping.ts";
import { scheduleText } from "../report/describe-candidate.ts";
import { createCudaRunner } from "../runtime/run/cuda.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { kernelFor } from "../session/kernel.ts";
import { tuneComputation } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { contendersOf } from "../tuner/trials.ts";
import { type Case, casesNamed } from "./cuda-cases.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "resnet18-16-nhwc" },
    searches: { type: "string", default: "all:150" },
    /** Seconds into each search at which its best kernel so far is recorded, to be timed too. */
    after: { type: "string" },
    shard: { type: "string", default: "1/1" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
  },
});

/** Loops of pixels and of the sum. Loops of extent 1 may be missing. */
const FIXED: Readonly<Record<string, readonly [pixels: string, summed: string] | undefined>> = {
  all: undefined,
  im2col: ["npq", "crs"],
  "fused-hw": ["pq", "c"],
};

const found = z.object({
  kind: z.literal("search"),
  case: z.string(),
  search: z.string(),
  seconds: z.number(),
  trials: z.number(),
  measured: z.number(),
  /** Median of the winner, in turns; missing when nothing mapped or worked. */
  median: z.number().optional(),
  interval: z.tuple([z.number(), z.number()]).optional(),
  instruction: z.string().optional(),
  schedule: z.string().optional(),
});
type Found = z.infer<typeof found>;

if (values.report === undefined) await run();
else console.log(report(values.report.split(",")));

function keeps(which: string, extents: ReadonlyMap<string, number>): (mapping: Mapping) => boolean {
  if (!(which in FIXED)) throw new UsageError(`no search "${which}": ${Object.keys(FIXED).join(", ")}`);
  const fixed = FIXED[which];
  if (!fixed) return () => true;
  const named = (loops: readonly string[]): string =>
    loops
      .filter((loop) => (extents.get(loop) ?? 1) > 1)
      .sort()
      .join("");
  const wanted = [...fixed, "k"].map((loops) => named([...loops])).sort();
  return ({ matching }) =>
    Object.values(matching)
      .map((loops) => named(loops))
      .sort()
      .join() === wanted.join();
}

async function run(): Promise<void> {
  const made = await createCudaRunner();
  if (made.status === "environment") throw new EnvironmentError(made);
  const { runner } = made;
  const [shard = 1, shards = 1] = values.shard.split("/").map(Number);
  write({ kind: "device", ...runner.device, seed: Number(values.seed) });
  const cases = values.cases.split(",").flatMap(casesNamed);
  for (const one of cases.filter((_, i) => i % shards === shard - 1)) {
    const searched: Searched[] = [];
    for (const search of values.searches.split(",")) searched.push(...(await searchedBy(search, one)));
    const reference = await runner.reference(one.computation, Number(values.seed));
    // A kernel that several searches found is measured once.
    const kernels = new Map(searched.flatMap(({ best }) => best.map(({ kernel }) => [kernel.source, kernel])));
    const sources = [...kernels.keys()];
    const measured = await runner.measureTogether([...kernels.values()], reference, {
      budgetSeconds: 2,
      batches: [30, 1000],
    });
    for (const { line, best } of searched) {
      const timed = best.flatMap(({ kernel, candidate }) => {
        const own = measured[sources.indexOf(kernel.source)];
        return own?.status === "ok" ? [{ own, candidate }] : [];
      });
      const [winner] = timed.sort((a, b) => a.own.median - b.own.median);
      write({
        ...line,
        ...(winner && {
          instruction: winner.candidate.intrinsic,
          schedule: scheduleText(winner.candidate),
          median: winner.own.median,
          interval: [winner.own.interval[0], winner.own.interval[1]],
        }),
      } satisfies Found);
    }
  }
  await runner.close();
}

/** The state of a search, at its end or earlier. */
interface Searched {
  readonly line: Pick<Found, "kind" | "case" | "search" | "seconds" | "trials" | "measured">;
  /** The winner, or the finalists at that time. */
  readonly best: readonly { readonly kernel: Kernel; readonly candidate: Candidate }[];
}

/** Runs a search. Returns its states at the requested times, then its result. */
async function searchedBy(search: string, { name, computation }: Case): Promise<Searched[]> {
  const [which = "", seconds] = search.split(":");
  const begun = Date.now();
  const machine = nvidiaTarget(values.target);
  const outcome = await tuneComputation(
    { computation },
    {
      machine,
      database: ":memory:",
      seconds: Number(seconds),
      seed: Number(values.seed),
      intrinsics: usableIntrinsics(machine).filter((i) => i.scope !== "thread"),
      kinds: "mappings",
      // No limit in practice: the budget is in seconds.
      trials: 1_000_000,
      earlyStop: false,
      keeps: keeps(which, new Map(computation.axes.map((axis) => [axis.name, axis.extent]))),
    },
  );
  const trials = "trials" in outcome ? outcome.trials : [];
  const said = (label: string, took: number, within: typeof trials): Searched["line"] => {
    const measured = within.filter((t) => t.measurement.status === "ok").length;
    const line = { kind: "search" as const, case: name, search: label, seconds: took, trials: within.length, measured };
    console.error(JSON.stringify(line));
    return line;
  };
  const early = (values.after?.split(",") ?? []).map((after): Searched => {
    const within = trials.filter((trial) => trial.at <= begun + 1000 * Number(after));
    const best = contendersOf(within, () => undefined);
    return {
      line: said(`${which}:${after}`, Number(after), within),
      best: best.map(({ candidate }) => ({ kernel: kernelFor(computation, candidate, machine), candidate })),
    };
  });
  const winner = "best" in outcome && outcome.best;
  const whole = { line: said(search, (Date.now() - begun) / 1000, trials), best: winner ? [winner] : [] };
  return [...early, whole];
}

function write(line: unknown): void {
  const text = JSON.stringify(line);
  if (values.out === undefined) console.log(text);
  else appendFileSync(values.out, `${text}\n`);
}

function report(files: readonly string[]): string {
  const lines = files
    .flatMap((file) => readFileSync(file, "utf8").split("\n"))
    .flatMap((text) => (text === "" ? [] : (found.safeParse(JSON.parse(text)).data ?? [])));
  const searches = [...new Set(lines.map((l) => l.search))];
  const first = searches[0] ?? "";
  const cases = [...new Set(lines.map((l) => l.case))];
  const of = (name: string, search: string): Found | undefined =>
    lines.find((l) => l.case === name && l.search === search);
  const ratio = (name: string, search: string): number | undefined => {
    const own = of(name, search)?.median;
    const to = of(name, first)?.median;
    return own === undefined || to === undefined ? undefined : own / to;
  };
  const others = searches.slice(1);
  const geomean = (search: string): string => {
    const known = cases.flatMap((name) => ratio(name, search) ?? []);
    return `${Math.exp(known.reduce((sum, r) => sum + Math.log(r), 0) / known.length).toFixed(2)} (${known.length})`;
  };
  const cells = (name: string): string[] => [
    ...searches.map((s) => {
      const one = of(name, s);
      return one?.median === undefined ? "nothing" : `${(one.median * 1e6).toFixed(2)} (${one.measured})`;
    }),
    ...others.map((s) => ratio(name, s)?.toFixed(2) ?? ""),
  ];
  return [
    `| layer | ${searches.map((s) => `${s} us (kernels measured)`).join(" | ")} | ${others.map((s) => `${s} / ${first}`).join(" | ")} |`,
    `|---|${"---|".repeat(searches.length + others.length)}`,
    ...cases.map((name) => `| ${[name, ...cells(name)].join(" | ")} |`),
    `| geomean | ${searches.map(() => "").join(" | ")} | ${others.map(geomean).join(" | ")} |`,
  ].join("\n");
}
