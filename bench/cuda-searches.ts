/**
 * @file Searches of the same layer on this machine's GPU, side by side: over all mappings and over one alone, for a while and for longer.
 *
 *     node dist/bench/cuda-searches.js --cases resnet18-16-nhwc --searches all:30,all:150 --out budgets.jsonl
 *     node dist/bench/cuda-searches.js --cases resnet18-1-nhwc --searches all:15,im2col:15,fused-hw:15 --out mappings.jsonl
 *     node dist/bench/cuda-searches.js --report budgets.jsonl,more.jsonl
 *
 * `im2col` maps pixels of all images to rows and the whole window to the sum (n,p,q and c,r,s), `fused-hw` pixels of an image and channels
 * (p,q and c), on either side of the instruction: the fixed mappings that AMOS (ISCA 2022, section 7.5) compares with. All search the
 * instructions of warps and warpgroups, from an empty database. The winners of a layer are then measured in turns, in one process;
 * ratios are to the first search's.
 */

import { appendFileSync, readFileSync } from "node:fs";
import { z } from "zod";
import type { Mapping } from "../abstraction/mapping.ts";
import { scheduleText } from "../report/describe-candidate.ts";
import { createCudaRunner } from "../runtime/run/cuda.ts";
import { tuneComputation, usableIntrinsics } from "../session/tune.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { type Case, casesNamed } from "./cuda-cases.ts";
import { readOptions } from "./options.ts";

const { values } = readOptions({
  options: {
    cases: { type: "string", default: "resnet18-16-nhwc" },
    searches: { type: "string", default: "all:30,all:150" },
    shard: { type: "string", default: "1/1" },
    seed: { type: "string", default: "1" },
    target: { type: "string", default: "h100" },
    out: { type: "string" },
    report: { type: "string" },
  },
});

/** The loops of pixels and of the sum; those of extent 1 may be left out. */
const FIXED: Readonly<Record<string, readonly [pixels: string, summed: string] | undefined>> = {
  all: undefined,
  im2col: ["npq", "crs"],
  "fused-hw": ["pq", "c"],
};

const found = z.object({
  kind: z.literal("search"),
  ...{ case: z.string(), search: z.string(), seconds: z.number(), trials: z.number(), measured: z.number() },
  /** Medians of the winners, in turns; none where nothing mapped or worked. */
  ...{ median: z.number().optional(), interval: z.tuple([z.number(), z.number()]).optional() },
  ...{ instruction: z.string().optional(), schedule: z.string().optional() },
});
type Found = z.infer<typeof found>;

if (values.report === undefined) await run();
else console.log(report(values.report.split(",")));

function keeps(which: string, extents: ReadonlyMap<string, number>): (mapping: Mapping) => boolean {
  if (!(which in FIXED)) throw new Error(`no search "${which}": ${Object.keys(FIXED).join(", ")}`);
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
  if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
  const { runner } = made;
  const [shard = 1, shards = 1] = values.shard.split("/").map(Number);
  write({ kind: "device", ...runner.device, seed: Number(values.seed) });
  const cases = values.cases.split(",").flatMap(casesNamed);
  for (const one of cases.filter((_, i) => i % shards === shard - 1)) {
    const searched: Awaited<ReturnType<typeof searchedBy>>[] = [];
    for (const search of values.searches.split(",")) searched.push(await searchedBy(search, one));
    const reference = await runner.reference(one.computation, Number(values.seed));
    const kernels = searched.flatMap(({ winner }) => winner?.kernel ?? []);
    const measured = await runner.measureTogether(kernels, reference, { budgetSeconds: 2, batches: [30, 1000] });
    for (const { line, winner } of searched) {
      const own = winner && measured[kernels.indexOf(winner.kernel)];
      write({
        ...line,
        ...(winner && { instruction: winner.candidate.intrinsic, schedule: scheduleText(winner.candidate) }),
        ...(own?.status === "ok" && { median: own.median, interval: [own.interval[0], own.interval[1]] }),
      } satisfies Found);
    }
  }
  await runner.close();
}

async function searchedBy(search: string, { name, computation }: Case) {
  const [which = "", seconds] = search.split(":");
  const begun = Date.now();
  const machine = nvidiaTarget(values.target);
  const outcome = await tuneComputation(
    { computation },
    {
      ...{ machine, database: ":memory:", seconds: Number(seconds), seed: Number(values.seed) },
      intrinsics: usableIntrinsics(machine).filter((i) => i.scope !== "thread"),
      kinds: "mappings",
      // The budget is of seconds.
      trials: 1_000_000,
      earlyStop: false,
      keeps: keeps(which, new Map(computation.axes.map((axis) => [axis.name, axis.extent]))),
    },
  );
  const trials = "trials" in outcome ? outcome.trials : [];
  const line = {
    ...{ kind: "search" as const, case: name, search, seconds: (Date.now() - begun) / 1000 },
    ...{ trials: trials.length, measured: trials.filter((t) => t.measurement.status === "ok").length },
  };
  console.error(JSON.stringify(line));
  return { line, winner: "best" in outcome ? outcome.best : undefined };
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
    const [own, to] = [of(name, search)?.median, of(name, first)?.median];
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
