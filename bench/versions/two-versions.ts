/**
 * @file Time of two versions of automap to map, lower and judge the same candidates, in turns.
 *
 *     npm run build                                              here, and in a checkout of the other version
 *     node dist/bench/versions/two-versions.js --other ../before/dist     a table for bench/results/
 *
 * Both run in one process and take turns every few milliseconds, so that other load affects both alike. Times are
 * processor time (user and system). A ratio is of two neighbouring turns; the table has their median and quartiles.
 * The other version draws the schedules, and both judge them.
 */

import { resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import type * as Automap from "../../automap.ts";
import type * as Model from "../../perfmodel/model.ts";
import type * as Machine from "../../perfmodel/target.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({ options: { other: { type: "string" }, turns: { type: "string", default: "60" } } });
if (values.other === undefined) throw new UsageError("--other DIST: the built files of the version to compare with");

/** Turns before those that count, while the JIT compiler warms up. */
const WARM_UP = 40;
/** Minimum processor time of a turn, in microseconds. */
const TURN = 15_000;

const CASES = [
  { operator: "conv2d", types: "u8s8", layouts: "NHWC", intrinsic: "avx512.vpdpbusd" },
  { operator: "conv2d", types: "f32", layouts: "NCHW", intrinsic: "avx512.fma.f32.broadcast" },
  { operator: "matmul", types: "f32", layouts: {}, intrinsic: "avx512.fma.f32.broadcast" },
] as const;

async function load(dist: string): Promise<typeof Automap & typeof Model & typeof Machine> {
  const files = ["automap.js", "perfmodel/model.js", "perfmodel/target.js"];
  const modules = await Promise.all(files.map((file) => import(pathToFileURL(resolve(dist, file)).href)));
  return Object.assign({}, ...modules); // the other version has the same names
}
const before = await load(values.other);
const now = await load(fileURLToPath(new URL("../..", import.meta.url)));
type Version = typeof now;

console.log("| what | before, us | now, us | now / before | quartiles |\n|---|---|---|---|---|");

// 1. The mapper, on the largest space of the AMOS operators.
const spaceOf = (version: Version) => {
  const [wmma] = version.intrinsicsNamed("wmma.m16n16k16.f32.f16");
  if (!wmma) throw new Error("no wmma.m16n16k16.f32.f16");
  const conv3d = version.instantiate(version.operatorNamed("conv3d"), { types: version.parseDataTypes("f16") });
  return (options: Automap.MappingOptions) => version.mappings(conv3d, wmma, options);
};
compare("map conv3d, every set of loops, operands fixed", 1, (v) => {
  const map = spaceOf(v);
  return () => map({ binding: "fixed" });
});
compare("map conv3d, either order", 1, (v) => {
  const map = spaceOf(v);
  return () => map({});
});
compare("map conv3d, the unions of AMOS", 1, (v) => {
  const map = spaceOf(v);
  return () => map({ rule: "amos" });
});
compare("lower a mapping", spaceOf(before)({ binding: "fixed" }).valid.length, (v) => {
  const { valid } = spaceOf(v)({ binding: "fixed" });
  return () => {
    for (const mapping of valid) v.lowerMapping(mapping);
  };
});

// 2. Lowering under a schedule, and the model.
for (const { operator, types, layouts, intrinsic: name } of CASES) {
  const mappingOf = (v: Version) => {
    const [intrinsic] = v.intrinsicsNamed(name);
    const computation = v.instantiate(v.operatorNamed(operator), { types: v.parseDataTypes(types), layouts });
    const mapping = intrinsic && v.mappings(computation, intrinsic).valid.at(-1);
    if (!mapping) throw new Error(`${operator} does not map onto ${name}`);
    return mapping;
  };
  const drawn = mappingOf(before);
  const random = seededRandom(1);
  const schedules = Array.from({ length: 256 }, () => before.randomSchedule(drawn, random, 2));
  const each = (what: string, of: (v: Version) => (schedule: (typeof schedules)[number]) => unknown): void =>
    compare(`${operator} ${types}: ${what}`, schedules.length, (v) => {
      const run = of(v);
      return () => {
        for (const schedule of schedules) run(schedule);
      };
    });
  each("prediction", (v) => v.createModel(mappingOf(v), v.modelTarget(v.nativeTarget())));
  each("terms", (v) => v.createTerms(mappingOf(v), v.modelTarget(v.nativeTarget())));
  each("lower", (v) => {
    const mapping = mappingOf(v);
    return (schedule) => v.lowerSchedule(mapping, schedule);
  });
}

/** @param things done in one run; times are for one of them */
function compare(what: string, things: number, made: (version: Version) => () => unknown): void {
  const runs = [made(before), made(now)];
  const timed = (run: (() => unknown) | undefined, count: number): number => {
    const begun = process.cpuUsage();
    for (let i = 0; i < count; i++) run?.();
    const { user, system } = process.cpuUsage(begun);
    return (user + system) / count;
  };
  const [one = TURN] = runs.map((run) => timed(run, 3));
  const count = Math.ceil(TURN / one);
  const times: [number, number][] = [];
  for (let turn = 0; turn < WARM_UP + Number(values.turns); turn++) {
    // The version that goes first alternates.
    const order = turn % 2 === 0 ? [0, 1] : [1, 0];
    const of: [number, number] = [0, 0];
    for (const version of order) of[version] = timed(runs[version], count) / things;
    if (turn >= WARM_UP) times.push(of);
  }
  const at = (all: readonly number[], share: number): number =>
    all.toSorted((a, b) => a - b)[Math.floor(share * (all.length - 1))] ?? Number.NaN;
  const ratios = times.map(([a, b]) => b / a);
  const medians = [0, 1].map((version) =>
    at(
      times.map((t) => t[version] ?? Number.NaN),
      0.5,
    ).toPrecision(4),
  );
  const quartiles = [0.25, 0.75].map((share) => at(ratios, share).toFixed(2)).join(" to ");
  console.log(`| ${what} | ${medians.join(" | ")} | ${at(ratios, 0.5).toFixed(2)} | ${quartiles} |`);
}
