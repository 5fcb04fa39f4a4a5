/**
 * @file How long two versions of automap take to map and to judge the same candidates, in processor time and in turns.
 *
 *     npm run build                                              here, and in a checkout of the other version
 *     node dist/bench/two-versions.js --other ../before/dist --rounds 7
 *
 * Each measurement is a process of its own, of one version then of the other, so that both meet the same other load. Times are of the processor
 * (user and system), the median over the rounds of what one thing took. Schedules are drawn by the other version and judged by both.
 */

import { execFileSync } from "node:child_process";
import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { parseArgs } from "node:util";
import { seededRandom } from "../abstraction/random.ts";
import type * as Automap from "../automap.ts";
import type * as Model from "../perfmodel/model.ts";
import type * as Machine from "../perfmodel/target.ts";
import { median } from "../runtime/statistics.ts";

const { values } = parseArgs({
  options: {
    other: { type: "string" },
    rounds: { type: "string", default: "7" },
    /** Of one measurement: the version, and the one that draws schedules. */
    dist: { type: "string" },
    drawn: { type: "string" },
  },
});

/** Seconds of processor time that one row is measured for, after as much again to warm up: with less, the compiler of JavaScript is not done. */
const BUDGET = 2;
const SCHEDULES = 128;

const CASES = [
  { operator: "conv2d", types: "u8s8", layouts: "NHWC", intrinsic: "avx512.vpdpbusd" },
  { operator: "conv2d", types: "f32", layouts: "NCHW", intrinsic: "avx512.fma.f32.broadcast" },
  { operator: "matmul", types: "f32", layouts: {}, intrinsic: "avx512.fma.f32.broadcast" },
] as const;

/** Microseconds of each row. */
type Times = Readonly<Record<string, number>>;

if (values.dist !== undefined && values.drawn !== undefined)
  console.log(JSON.stringify(await measured(values.dist, values.drawn)));
else if (values.other !== undefined) compare(values.other, fileURLToPath(new URL("..", import.meta.url)));
else throw new Error("--other DIST: the built files of the version to compare with");

async function load<T>(dist: string, file: string): Promise<T> {
  return import(pathToFileURL(resolve(dist, file)).href) as Promise<T>; // the other version has the same names
}

async function measured(dist: string, drawnBy: string): Promise<Times> {
  const own = await load<typeof Automap>(dist, "automap.js");
  const other = await load<typeof Automap>(drawnBy, "automap.js");
  const { createModel, createTerms } = await load<typeof Model>(dist, "perfmodel/model.js");
  const { modelTarget } = await load<typeof Machine>(dist, "perfmodel/target.js");
  const times: Record<string, number> = {};

  // 1. The mapper, on the largest space of the AMOS operators.
  const [wmma] = own.intrinsicsNamed("wmma.m16n16k16.f32.f16");
  if (!wmma) throw new Error("no wmma.m16n16k16.f32.f16");
  const conv3d = own.instantiate(own.operatorNamed("conv3d"), { types: own.parseDataTypes("f16") });
  const { valid } = own.mappings(conv3d, wmma, { binding: "fixed" });
  times[`map conv3d, every set, operands fixed: ${valid.length}`] = timeOf(() =>
    own.mappings(conv3d, wmma, { binding: "fixed" }),
  );
  times["map conv3d, either order"] = timeOf(() => own.mappings(conv3d, wmma));
  times["map conv3d, the unions of AMOS"] = timeOf(() => own.mappings(conv3d, wmma, { rule: "amos" }));
  // All of a list in each run: some take much longer than others.
  const timeOfEach = <T>(items: readonly T[], run: (item: T) => unknown): number =>
    timeOf(() => {
      for (const item of items) run(item);
    }) / items.length;
  times["lower a mapping"] = timeOfEach(valid, own.lowerMapping);

  // 2. The model, and lowering under a schedule.
  for (const { operator, types, layouts, intrinsic: name } of CASES) {
    const mappingOf = (version: typeof Automap) => {
      const computation = version.instantiate(version.operatorNamed(operator), {
        types: version.parseDataTypes(types),
        layouts,
      });
      const [intrinsic] = version.intrinsicsNamed(name);
      const mapping = intrinsic && version.mappings(computation, intrinsic).valid.at(-1);
      if (!mapping) throw new Error(`${operator} does not map onto ${name}`);
      return mapping;
    };
    const drawn = mappingOf(other);
    const mapping = mappingOf(own);
    if (own.printMatching(mapping.matching) !== other.printMatching(drawn.matching))
      throw new Error(`${operator}: the versions take different mappings`);
    const random = seededRandom(1);
    const schedules = Array.from({ length: SCHEDULES }, () => other.randomSchedule(drawn, random, 2));
    const target = modelTarget(own.nativeTarget());
    const [predict, termsOf] = [createModel(mapping, target), createTerms(mapping, target)];
    const what = `${operator} ${types}`;
    times[`${what}: prediction`] = timeOfEach(schedules, predict);
    times[`${what}: terms`] = timeOfEach(schedules, termsOf);
    times[`${what}: lower a schedule`] = timeOfEach(schedules, (schedule) => own.lowerSchedule(mapping, schedule));
  }
  return times;
}

/** Microseconds of processor time that one call takes. */
function timeOf(run: () => unknown): number {
  let calls = 0;
  const until = (seconds: number): number => {
    const begun = process.cpuUsage();
    for (calls = 0; ; ) {
      // The clock is asked seldom: what is measured may take less than it.
      for (let i = 0; i < Math.max(1, calls / 8); i++, calls++) run();
      const { user, system } = process.cpuUsage(begun);
      if (user + system > seconds * 1e6) return user + system;
    }
  };
  until(BUDGET);
  return until(BUDGET) / calls;
}

function compare(other: string, own: string): void {
  const rounds: { readonly before: Times; readonly now: Times }[] = [];
  const once = (dist: string): Times =>
    JSON.parse(
      execFileSync(process.execPath, [fileURLToPath(import.meta.url), "--dist", dist, "--drawn", other], {
        encoding: "utf8",
      }),
    ) as Times; // what `measured` prints
  for (let i = 0; i < Number(values.rounds); i++) {
    // Which is first changes with the round.
    const [first, second] = i % 2 === 0 ? [other, own] : [own, other];
    const [a, b] = [once(first), once(second)];
    rounds.push(i % 2 === 0 ? { before: a, now: b } : { before: b, now: a });
    process.stderr.write(`round ${i + 1}\n`);
  }
  console.log("| what | before, us | now, us | now / before | of single rounds |\n|---|---|---|---|---|");
  for (const what of Object.keys(rounds[0]?.now ?? {})) {
    const of = (version: "before" | "now"): number[] => rounds.map((r) => r[version][what] ?? Number.NaN);
    const ratios = of("now").map((t, i) => t / (of("before")[i] ?? Number.NaN));
    const range = `${Math.min(...ratios).toFixed(2)} to ${Math.max(...ratios).toFixed(2)}`;
    const [before, now] = [median(of("before")), median(of("now"))];
    console.log(
      `| ${what} | ${before.toPrecision(4)} | ${now.toPrecision(4)} | ${median(ratios).toFixed(2)} | ${range} |`,
    );
  }
}
