/** @file The parser as the first line of defence: a hostile line or file becomes a valid record or is refused. */

import { beforeEach, describe, expect, it } from "vitest";
import type { GridCandidate, ThreadCandidate } from "../../abstraction/candidate.ts";
import { isVisible, visible } from "../../abstraction/text.ts";
import {
  beginRun,
  best,
  type Database,
  endRun,
  exportLines,
  importLines,
  queryTrials,
  recordCalibration,
  recordTrial,
  verifyDatabase,
} from "../../db/index.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { OPERATORS } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import {
  CONV,
  candidate,
  eachWorkshop,
  MACHINE,
  measured,
  newTrial,
  trial,
  workloadNamed,
} from "../support/database.ts";
import { LANES, MAPPED } from "../support/every-fact.ts";
import { forgedLines, type Line, type Path, plant, recordsIn, textsIn } from "../support/forge.ts";
import { inFull } from "../support/slow.ts";

const shop = eachWorkshop();
let db: Database;
beforeEach(() => {
  db = shop.open("automap.db");
});

const GRID: GridCandidate = {
  kind: "grid",
  intrinsic: "mma.m16n8k16.f32.f16",
  matching: { m: ["m"], n: ["n"], k: ["k"] },
  operands: { a: "a", b: "b", c: "out" },
  schedule: {
    tile: { m: 32, n: 16, k: 32 },
    warps: { m: 2, n: 1 },
    stage: 3,
    swizzle: "swizzled",
    transfer: "async",
    order: 2,
    fragments: "across",
    store: "direct",
  },
};

const THREADS: ThreadCandidate = {
  kind: "threads",
  intrinsic: "thread.fma.f32.f16",
  matching: {},
  operands: { c: "out[m,n]", a: "a[m,k]", b: "b[k,n]" },
  schedule: { lanes: { k: 32 }, warps: { m: 2 }, each: { k: 2 }, split: 1 },
};

/** A record of every kind, and of every kind of candidate. */
function records(): Line[] {
  const environment = { ...MACHINE, driver: "550.54" };
  const run = beginRun(db, {
    workload: CONV,
    environment,
    seed: 1,
    options: {
      strategy: "genetic",
      intrinsics: ["avx512.vpdpbusd"],
      target: { name: "native", levels: [{ name: "l1" }] },
    },
    budget: { trials: 10 },
    started: 1,
    process: 1,
  });
  const levels = [{ level: "l1", trips: 1, inner: 2, read: 3, write: 4, bound: "read" as const }];
  recordTrial(db, {
    ...newTrial(60, { run, environment }),
    trial: {
      ...trial(measured(60), 5, { ...MAPPED, schedule: { ...MAPPED.schedule, spread: ["p"], within: { a: "k/8" } } }),
      prediction: { seconds: 1e-5, uncorrectedSeconds: 1e-5, levels },
    },
    conditions: { threads: 1, cache: "warm", affinity: [0] },
  });
  const lanes = newTrial(60, { workload: workloadNamed("matmul", { m: 8, n: 8, k: 8 }), environment });
  const { intrinsic: _, ...bare } = lanes;
  recordTrial(db, { ...bare, trial: trial({ status: "wrong", log: "off by one" }, 6, LANES) });
  recordTrial(db, { ...bare, trial: trial(measured(60), 8, GRID) });
  recordTrial(db, { ...bare, trial: trial(measured(60), 9, THREADS) });
  recordCalibration(db, { environment, data: { machine: "a CPU", memory: { l1: { read: 1 } } }, at: 7 });
  endRun(db, run, { status: "done", ended: 9 });
  return recordsIn(exportLines(db));
}

/** Texts that some reader takes for more than text. */
const HOSTILE: readonly (readonly [what: string, text: string])[] = [
  ["the end of a comment", '*/ int planted = system("touch planted"); /*'],
  ["a backslash before a line's end", "*\\\n/ system(1); /*"],
  ["the end of a literal", '"); system("touch planted"); ("'],
  // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the text that is hostile.
  ["a template", "${process.exit(1)}`"],
  ["a command", "$(touch planted); `touch planted`"],
  ["an escape of a terminal", "\u001b]0;owned\u0007\u001b[2J"],
  ["an escape in eight bits", "\u009b2J"],
  ["a line", "one\r\ntwo"],
  ["a separator of lines", "one\u2028two"],
  ["text that turns round", "\u202egnp.exe"],
  ["nothing at all", "\u0000"],
  ["half a character", "\ud800"],
  ["what a byte order mark is", "\ufeffk"],
  ["a way up", "../../planted"],
  ["markup", "<script>alert(1)</script>"],
  ["a formula", "=cmd|' /C calc'!A0"],
  ["a prototype", "__proto__"],
  ["what every object answers to", "constructor"],
  ["a text without end", "k".repeat(70_000)],
];

/** Columns whose text is what a machine says of itself: a line of anything that can be seen. */
const LINES = ["target", "cpu", "compiler", "compiler_version", "flags", "kernel", "driver", "node", "automap"];

/** Every text of what was taken that is not of its kind. */
function strangers(taken: readonly Line[]): string[] {
  return taken.flatMap((record) =>
    textsIn(record).flatMap(({ path, isName }) => {
      const [column = ""] = path.map(String);
      let text: unknown = record;
      for (const key of path) text = (text as Record<string, unknown>)[key];
      const found = isName ? String(path.at(-1)) : String(text);
      const free = LINES.includes(column) || (["options", "data", "budget"].includes(column) && !isName);
      const known =
        column === "log"
          ? isVisible(found.replaceAll(/[\n\t]/g, ""))
          : free
            ? isVisible(found)
            : /^[\w .,;:+\-*/%()[\]<>=!@]*$/.test(found) && !found.includes("*/") && !(found in {});
      return known ? [] : [`${record.kind} ${path.join(".")}: ${visible(found).slice(0, 80)}`];
    }),
  );
}

/** All records once for each change, imported together: what was taken, and why each other line was not. */
function importForged(
  all: readonly Line[],
  changes: readonly { readonly of: Line; readonly change: (line: Line) => void }[],
) {
  const [header = "", ...first] = forgedLines(all, () => undefined);
  const lines = changes.flatMap(({ of, change }) =>
    forgedLines(all, (line) => {
      if (line["id"] === of["id"]) change(line);
    }).slice(1),
  );
  const other = shop.open(":memory:");
  // What a change leaves as it is was there before.
  const report = importLines(other, new Set([header, ...first, ...lines]));
  return { other, report, taken: recordsIn(exportLines(other)) };
}

describe("a text of a record", () => {
  it.each(HOSTILE)("that is %s is accepted only in fields of free text", (_, text) => {
    const all = records();
    const turn = HOSTILE.findIndex(([, other]) => other === text);
    // Each text in some places and each place with some text; in full each with each.
    const places = all
      .filter(({ kind }) => kind !== "header")
      .flatMap((of) => textsIn(of).map((place) => ({ of, place })))
      .filter(({ place }) => !["kind", "id"].includes(String(place.path[0])))
      .filter((_place, i) => (i + turn) % inFull(1, 6) === 0);
    const { other, report, taken } = importForged(
      all,
      places.map(({ of, place }) => ({ of, change: (line) => plant(line, place, text) })),
    );
    expect(strangers(taken)).toEqual([]);
    expect(report.rejected.every(({ reason }) => isVisible(reason) && reason.length < 500)).toBe(true);
    // A text that cannot be seen is refused everywhere, but for the lines of a log.
    const least = isVisible(text.replaceAll(/[\n\t]/g, "")) ? places.length / 2 : places.length;
    expect(report.rejected.length).toBeGreaterThanOrEqual(least);
    expect(verifyDatabase(other).problems).toEqual([]);
    expect(() => [queryTrials(other), best(other)]).not.toThrow();
  });

  it("is accepted where the tables have it: instructions, features and operators", () => {
    for (const intrinsic of INTRINSICS) {
      const environment = { ...MACHINE, isa: [intrinsic.isa] };
      recordTrial(
        db,
        newTrial(600, { environment, intrinsic, trial: trial(measured(600), 1, candidate(1, intrinsic.name)) }),
      );
    }
    for (const operator of OPERATORS)
      recordTrial(db, newTrial(1e5, { workload: { computation: instantiate(operator) } }));
    expect(queryTrials(db)).toHaveLength(INTRINSICS.length + OPERATORS.length);
  });

  it("is escaped where this machine reports control characters", () => {
    recordTrial(
      db,
      newTrial(60, {
        environment: { ...MACHINE, cpu: "a\u0007b" },
        trial: trial({ status: "crashed", log: "\u001b[31mred\nline" }, 1),
      }),
    );
    const [found] = queryTrials(db);
    expect(found?.environment.cpu).toBe("a\\u0007b");
    expect(found?.measurement).toEqual({ status: "crashed", log: "\\u001b[31mred\nline" });
  });
});

/** A list within a list within a list. */
function nested(depth: number): unknown {
  let inner: unknown = 1;
  for (let i = 0; i < depth; i++) inner = [inner];
  return inner;
}

describe("a number of a record", () => {
  const NUMBERS = [0, -1, 1.5, 1e-12, 2 ** 31, 2 ** 53, Number.MAX_VALUE, null];

  const numbersIn = (value: unknown, path: Path = []): Path[] => {
    if (typeof value === "number") return [path];
    if (value === null || typeof value !== "object") return [];
    return Object.entries(value).flatMap(([key, inner]) =>
      numbersIn(inner, [...path, Array.isArray(value) ? Number(key) : key]),
    );
  };

  it("that is impossible is refused, and no number makes a command slow", () => {
    const all = records();
    const changes = all
      .filter(({ kind }) => kind !== "header")
      .flatMap((of) => numbersIn(of).map((path) => ({ of, path })))
      .flatMap(({ of, path }, i) =>
        NUMBERS.filter((_number, at) => (i + at) % inFull(1, 5) === 0).map((number) => ({
          of,
          change: (line: Line) => plant(line, { path, isName: false }, number),
        })),
      );
    const { other, report } = importForged(all, changes);
    expect(report.rejected.length).toBeGreaterThan(changes.length / 2);
    expect(verifyDatabase(other).problems).toEqual([]);
    for (const { measurement: m, workload } of queryTrials(other))
      if (m.status === "ok") expect((2 * workload.points) / m.median).toBeLessThan(1e15);
  });

  const at =
    (path: string, value: unknown) =>
    (line: Line): void =>
      plant(line, { path: path.split("."), isName: false }, value);
  it.each<[string, Line["kind"], (line: Line) => void, RegExp]>([
    ["a block of two million steps", "mapping", at("candidate.schedule.block.q", 2_000_000), /block\.q: Too big.*1024/],
    ["two million lanes", "window", at("candidate.schedule.lanes", 2_000_000), /lanes: Too big.*1024/],
    ["a tile of a million rows", "grid", at("candidate.schedule.tile.m", 1e6), /tile\.m: Too big/],
    ["a tile that ends a comment", "grid", at("candidate.schedule.tile", { "*/": 16 }), /tile\.\*\/: Invalid key/],
    ["a ring of a thousand stages", "grid", at("candidate.schedule.stage", 1000), /stage: Too big/],
    ["a decision nobody knows", "grid", at("candidate.schedule.cluster", 2), /Unrecognized key: "cluster"/],
    ["a sum in a thousand parts", "grid", at("candidate.schedule.split", { parts: 1000, through: "memory" }), /parts/],
    ["half a part", "grid", at("candidate.schedule.split", { parts: 1.5, through: "memory" }), /parts/],
    ["parts that meet in the air", "grid", at("candidate.schedule.split", { parts: 2, through: "air" }), /through/],
    ["tiles taken by nobody", "grid", at("candidate.schedule.persistent", 0), /persistent: Too small/],
    ["tiles taken by a million blocks", "grid", at("candidate.schedule.persistent", 1e6), /persistent: Too big/],
    ["taps of a kind nobody knows", "grid", at("candidate.schedule.taps", "x"), /taps/],
    ["a warp of 64 lanes", "threads", at("candidate.schedule.lanes.m", 64), /lanes\.m/],
    ["a million neighbours", "threads", at("candidate.schedule.each.k", 1e6), /each\.k: /],
    ["a sum shared by a million blocks", "threads", at("candidate.schedule.split", 1e6), /split: Too big/],
    ["two threads that launch a grid", "grid", at("threads", 2), /its candidate runs on 1 threads/],
    ["a loop over no tiles", "mapping", at("candidate.schedule.order.0", "p/0"), /order\.0: is no loop/],
    ["a million samples", "mapping", at("samples", Array(1e6).fill(6e-5)), /longer than|samples/],
    ["twenty thousand samples", "mapping", at("samples", Array(20_000).fill(6e-5)), /samples: Too big/],
    ["an entry nobody knows", "mapping", at("candidate.schedule.unroll", "4"), /Unrecognized key: "unroll"/],
    ["a time of a million years", "mapping", at("at", 1e17), /its field at: Too big/],
    [
      "more threads than its candidate",
      "mapping",
      at("threads", 2),
      /its candidate runs on 1 threads, its field threads says 2/,
    ],
    ["more cores than were ever built", "environment", at("cores", 1e6), /its field cores: Too big/],
    ["an extent beyond all numbers", "workload", at("extents.n", 2 ** 60), /extents\.n: Too big/],
    [
      "a tensor of an exabyte",
      "workload",
      (line) => enlarge(line, 2 ** 21),
      /its tensors take .* bytes, more than 1\.10e\+12/,
    ],
    [
      "a calibration without end",
      "calibration",
      at("data.memory", Array(30_000).fill(1)),
      /holds more than 20000 entries/,
    ],
    ["a calibration nested without end", "calibration", at("data.memory", nested(20)), /nests deeper than 8 levels/],
    [
      "more threads than cores",
      "mapping",
      (line) => void [at("threads", 3)(line), at("candidate.schedule.threads", 3)(line)],
      /it ran on 3 threads of 2 cores/,
    ],
  ])("is bounded: %s", (_, kind, change, reason) => {
    const all = records();
    const of = all.find((line) => nameOf(line) === kind);
    if (!of) throw new Error(`no ${kind}`);
    const { report } = importForged(all, [{ of, change }]);
    expect(report.rejected[0]?.reason).toMatch(reason);
  });

  const nameOf = ({ kind, candidate: tried }: Line): string =>
    kind !== "trial" ? kind : (tried as { kind: string }).kind;
  /** The convolution of so many images, whole in all its parts. */
  const enlarge = (line: Line, images: number): void => {
    const { computation } = workloadNamed("conv2d", { n: images });
    Object.assign(line, {
      extents: { ...(line["extents"] as object), n: images },
      points: Number(line["points"]) * images,
    });
    const tensors = line["tensors"] as Record<string, { shape: number[] }>;
    for (const { name } of Object.values(computation.tensors))
      if (name !== "w") tensors[name]?.shape.splice(0, 1, images);
    line["computation"] = String(line["computation"]).replace("n=1,", `n=${images},`).replaceAll("[1,", `[${images},`);
  };
});

describe("a time", () => {
  const forgedMedian = (microseconds: number, given: Partial<Parameters<typeof newTrial>[1]> = {}): string => {
    const honest = shop.open(":memory:");
    recordTrial(honest, newTrial(60, given));
    const lines = forgedLines(recordsIn(exportLines(honest)), (line) => {
      if (line.kind !== "trial") return;
      const median = microseconds * 1e-6;
      Object.assign(line, { samples: [median], median, low: median, high: median });
    });
    return importLines(shop.open(":memory:"), lines).rejected[0]?.reason ?? "taken";
  };

  it("shorter than any machine needs is refused with the bound", () => {
    expect(forgedMedian(1e-6)).toBe(
      "its median of 1.00e-12 s is shorter than any call: 5 cycles at 10 GHz are 5.00e-10 s",
    );
    expect(forgedMedian(1)).toBe(
      "its median of 1.00e-6 s would be 2.31e+14 operations a second; 1 thread at 10 GHz and 8192 a cycle can do 8.19e+13",
    );
    expect(forgedMedian(3)).toBe("taken");
    expect(forgedMedian(1, { environment: { ...MACHINE, driver: "550" } })).toBe("taken");
  });

  it("that this process reports must meet the same bound", () => {
    expect(() => recordTrial(db, newTrial(1))).toThrow(/cannot be recorded: its median of 1.00e-6 s would be/);
  });
});
