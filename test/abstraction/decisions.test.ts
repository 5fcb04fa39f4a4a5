/**
 * A decision is known in one place. Here a made-up one is added to each list, and nothing else: it is searched, counted, explained,
 * documented, stored and read back.
 */
import { readFileSync } from "node:fs";
import { afterAll, describe, expect, it, vi } from "vitest";
import { z } from "zod";
import type { Candidate, GridCandidate, MappedCandidate } from "../../abstraction/candidate.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Workload } from "../../db/index.ts";
import type { Decisions } from "../../mapper/schedule/schedules.ts";
import type { SearchSpace } from "../../tuner/space.ts";
import { rowNamed } from "../support/subjects.ts";

interface Invented {
  readonly invented?: number;
}

/** All that anybody says of it. */
const INVENTED = {
  name: "invented",
  label: "made up",
  summary: "Lines asked for ahead.",
  example: "3 lines",
  schema: z.number().int().min(0).max(64).optional(),
  values: () => [0, 1, 3, 7],
  print: (lines: number | undefined) => (lines === undefined ? undefined : `${lines} lines`),
  traits: ({ invented = 0 }: Invented) => (invented > 0 ? [`invented ${invented}`] : []),
  problem: (_: unknown, { invented = 0 }: Invented) => (invented === 7 ? "7 lines are too many" : undefined),
};

/** Two lists, each with one more decision. Test files share what they import, so all is imported anew here, and for the next file. */
const LISTS = ["mapped", "grid"].map((kind) => `../../mapper/schedule/${kind}-decisions.ts`);
vi.resetModules();
for (const file of LISTS)
  vi.doMock(file, async (original) => {
    const lists = Object.entries(await original<object>());
    return Object.fromEntries(lists.map(([name, list]) => [name, { ...list, invented: INVENTED }]));
  });
afterAll(() => {
  for (const file of LISTS) vi.doUnmock(file);
  vi.resetModules();
});

const { exportLines, importLines, openDatabase, queryTrials, recordTrial } = await import("../../db/index.ts");
const { GRID } = await import("../../mapper/schedule/grid.ts");
const { gridLimits } = await import("../../mapper/schedule/grid-context.ts");
const { KINDS } = await import("../../mapper/schedule/kinds.ts");
const { scheduleProblem } = await import("../../mapper/schedule/mapped.ts");
const { drawSchedule, problemIn } = await import("../../mapper/schedule/schedules.ts");
const { gridCosts } = await import("../../perfmodel/grid.ts");
const { createTerms } = await import("../../perfmodel/model.ts");
const { modelTarget } = await import("../../perfmodel/target.ts");
const { candidateRows } = await import("../../report/describe-candidate.ts");
const { nativeTarget, nvidiaTarget } = await import("../../targets/index.ts");
const { candidateSpace } = await import("../../tuner/candidates.ts");
const { gridSpace } = await import("../../tuner/grid-candidates.ts");
const { MACHINE, measured, trial, WARM, workloadNamed, workshop } = await import("../support/database.ts");

/** A space as both machines have it, and what is asked of a candidate besides. */
interface Subject {
  readonly workload: Workload;
  readonly intrinsic: Intrinsic;
  readonly space: Required<Pick<SearchSpace<Candidate>, "key" | "random" | "mutate" | "crossover" | "distance">>;
  readonly traits: (candidate: Candidate) => readonly string[];
  /** Why a candidate with seven of them cannot be lowered. */
  readonly refused: (candidate: Candidate) => string | undefined;
}

/** @param isOwn whether a candidate is of the space's kind */
function widened<K extends Candidate>(
  space: Required<Pick<SearchSpace<K>, "key" | "random" | "mutate" | "crossover" | "distance">>,
  isOwn: (candidate: Candidate) => candidate is K,
): Subject["space"] {
  const own = (candidate: Candidate): K => {
    if (!isOwn(candidate)) throw new Error("a candidate of another space");
    return candidate;
  };
  return {
    key: (c) => space.key(own(c)),
    random: (random) => space.random(random),
    mutate: (c, random) => space.mutate(own(c), random),
    crossover: (a, b, random) => space.crossover(own(a), own(b), random),
    distance: (a, b) => space.distance(own(a), own(b)),
  };
}

function onCores(): Subject {
  const workload = workloadNamed("matmul", { m: 64, n: 64, k: 64 }, "u8s8");
  const intrinsic = rowNamed("avx512.vpdpbusd");
  const space = finished(candidateSpace(workload.computation, [intrinsic], () => 1, 1, 1));
  if (!("random" in space)) throw new Error(space[0]?.because);
  const isOwn = (c: Candidate): c is MappedCandidate => c.kind === "mapping";
  const only = (c: Candidate): MappedCandidate => (isOwn(c) ? c : fail());
  return {
    workload,
    intrinsic,
    space: widened(space, isOwn),
    traits: (c) =>
      createTerms(space.mappingOf(only(c)), modelTarget(nativeTarget()))(only(c).schedule)?.traits ?? fail(),
    refused: (c) => scheduleProblem(space.mappingOf(only(c)), { ...only(c).schedule, ...SEVEN }),
  };
}

function onBlocks(): Subject {
  const workload = workloadNamed("matmul", { m: 256, n: 256, k: 256 }, "f16");
  const intrinsic = rowNamed("mma.m16n8k16.f32.f16");
  const target = nvidiaTarget("h100");
  const space = finished(gridSpace(workload.computation, [intrinsic], gridLimits(target), () => 1, 1));
  if (!("random" in space)) throw new Error(space[0]?.because);
  const isOwn = (c: Candidate): c is GridCandidate => c.kind === "grid";
  const only = (c: Candidate): GridCandidate => (isOwn(c) ? c : fail());
  return {
    workload,
    intrinsic,
    space: widened(space, isOwn),
    traits: (c) => gridCosts(space.contextOf(only(c)), only(c).schedule, target)?.traits ?? fail(),
    refused: (c) => problemIn(GRID, space.contextOf(only(c)), { ...only(c).schedule, ...SEVEN }),
  };
}

const SEVEN: Invented = { invented: 7 };

function fail(): never {
  throw new Error("a candidate of another space, or one that cannot be lowered");
}

const valueIn = ({ schedule }: Candidate): number | undefined =>
  z.object({ invented: z.number().optional() }).parse(schedule).invented;

describe.each([
  { machine: "the cores of a processor", ...onCores() },
  { machine: "blocks and warps", ...onBlocks() },
])("a decision added to the list for $machine", ({ workload, intrinsic, space, traits, refused }) => {
  const random = seededRandom(7);
  const drawn = Array.from({ length: 30 }, () => space.random(random));

  it("is drawn, mutated, crossed and part of the key", () => {
    expect(new Set(drawn.map(valueIn))).toEqual(new Set([0, 1, 3]));
    const [first = space.random(random)] = drawn;
    const others = Array.from({ length: 200 }, () => space.mutate(first, random));
    const alone = others.find((c) => valueIn(c) !== valueIn(first) && space.distance(c, first) === 1);
    if (!alone) throw new Error("no mutation changed it alone");
    expect(space.key(alone)).not.toBe(space.key(first));
    const crossed = Array.from({ length: 20 }, () => valueIn(space.crossover(first, alone, random)));
    expect(new Set(crossed)).toEqual(new Set([valueIn(first), valueIn(alone)]));
    expect(refused(first)).toBe("7 lines are too many");
  });

  it("is counted by the model", () => {
    for (const candidate of drawn) {
      const value = valueIn(candidate) ?? 0;
      expect(traits(candidate).includes(`invented ${value}`)).toBe(value > 0);
    }
  });

  it("is explained", () => {
    for (const candidate of drawn)
      expect(candidateRows(candidate)).toContainEqual(["made up", `${valueIn(candidate)} lines`]);
  });

  it("is stored, read back, exported and imported; a value out of its bounds is refused", () => {
    const shop = workshop();
    const db = openDatabase(shop.path("a.db"));
    const record = (candidate: Candidate): string =>
      recordTrial(db, {
        workload,
        environment: MACHINE,
        intrinsic,
        conditions: WARM,
        trial: trial(measured(5000), 1_700_000_000_000, candidate),
      });
    for (const candidate of drawn) record(candidate);
    const held = (path: typeof db): string[] => queryTrials(path).map((t) => space.key(t.candidate));
    const keys = [...new Set(drawn.map((c) => space.key(c)))].sort();
    expect(held(db).sort()).toEqual(keys);
    const other = openDatabase(shop.path("b.db"));
    expect(importLines(other, exportLines(db)).rejected).toEqual([]);
    expect(held(other).sort()).toEqual(keys);
    const [first = space.random(random)] = drawn;
    const beyond = { ...first, schedule: { ...first.schedule, invented: 65 } };
    expect(() => record(beyond as unknown as Candidate)).toThrow(
      "its field candidate.schedule.invented: Too big: expected number to be <=64",
    );
    db.close();
    other.close();
    shop.remove();
  });
});

describe("a decision without a value", () => {
  it("leaves the mapping without a schedule", () => {
    const draw = (values: readonly number[]) =>
      drawSchedule<Invented, object>(
        { tries: 3, decisions: { invented: { ...INVENTED, values: () => values } } },
        {},
        seededRandom(1),
      );
    expect(draw([])).toBeUndefined();
    expect(draw([3])).toEqual({ invented: 3 });
  });
});

describe("the tables of docs/schedule.md", () => {
  const documented = readFileSync(`${import.meta.dirname}/../../docs/schedule.md`, "utf8");

  it.each(Object.entries(KINDS))("are made from the decisions: %s", (kind, { summary, decisions }) => {
    const invented = ["| `invented` | Lines asked for ahead. | `3 lines` |"];
    const table = Object.entries(decisions as Decisions<object, never>).map(
      ([name, { summary, example }]) => `| \`${name}\` | ${summary} | \`${example}\` |`,
    ); // each kind has its own
    const rows = table.filter((row) => !documented.includes(row));
    expect(rows).toEqual(kind === "mapping" || kind === "grid" ? invented : []);
    expect(documented).toContain(`\`${kind}\`: ${summary}`);
  });

  it("are in the glossary beside the field's words, every one", () => {
    const glossary = readFileSync(`${import.meta.dirname}/../../docs/glossary.md`, "utf8");
    const names = Object.values(KINDS).flatMap(({ decisions }) => Object.keys(decisions));
    const missing = [...new Set(names)].filter((name) => name !== "invented" && !glossary.includes(`\`${name}\``));
    expect(missing).toEqual([]);
  });
});
