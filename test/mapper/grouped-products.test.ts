/**
 * @file Products of groups, whose matrix is found by an index that is read from a tensor, and whose rows are counted at run time: kernels equal
 * the equation in adverse orders of threads and on the emulated device, with uneven and empty groups and with indices beyond the end.
 */

import { describe, expect, it } from "vitest";
import { upTo } from "../../abstraction/collections.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { generateCpp } from "../../codegen/cpp/cpp.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { randomSchedule } from "../../mapper/schedule/mapped.ts";
import { runEmulated } from "../../runtime/emulated-kernel.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";
import {
  affordableSchedule,
  exampleOf,
  expectRightEmulated,
  expectRightInterpreted,
  gridContextOf,
  gridContextsOf,
  gridSubject,
  mmaSchedule,
  ordersInTurn,
  refusals,
  verdict,
  wgmmaSchedule,
  withInputs,
} from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { mappingsOnto, rowNamed, stated } from "../support/subjects.ts";

const MMA = "mma.m16n8k16.f32.f16";
const WGMMA = "wgmma.m64n32k16.f32.f16";
const MATCHED = "m <- m; n <- n; k <- k";

/** Tiles of rows, each of a group: two of the last matrix, one of a matrix beyond the end, empty ones, one of the first. */
const tiled = (rows: number, more = "", k = 64) =>
  withInputs(
    stated(
      `c[t,m,n] += f32(a[t,m,k]) * f32(w[clamp(group[t]),n,k])${more}; y[t,m,n] = f16(c[t,m,n]) --t 6 --m ${rows} --n 64 --k ${k} --shape w=3x64x${k} --dtype a=f16,w=f16,y=f16,group=s32`,
    ),
    { group: [2, 2, 7, -1, 0, -5] },
  );

/** The same of uneven sizes and another type. */
const tiledOf = (rows: number, dtype: "f32", more: string) =>
  withInputs(
    stated(
      `c[t,m,n] += f32(a[t,m,k]) * f32(w[clamp(group[t]),n,k])${more} --t 6 --m ${rows} --n 40 --k 17 --shape w=3x40x17 --dtype a=${dtype},w=${dtype},group=s32`,
    ),
    { group: [2, 2, 7, -1, 0, -5] },
  );

/** Matrices of the same number of rows, of which so many count: none, some, all, fewer than none, more than there are. */
const masked = (rows: number) =>
  withInputs(
    stated(
      `c[g,m,n] += f32(a[g,m,k]) * f32(w[g,n,k]) where m < count[g]; y[g,m,n] = f16(c[g,m,n]) --g 5 --m ${rows} --n 64 --k 64 --dtype a=f16,w=f16,y=f16,count=s32`,
    ),
    { count: [0, rows / 2 - 3, rows, -2, rows + 9] },
  );

const EMPTY = " where group[t] >= 0";
const mma = mmaSchedule(16, 32, 32);
const wgmma = wgmmaSchedule(64, 32, 32, { store: "quads" });
const engine = { ...wgmma, transfer: "engine" } as const;
const byProducer = { ...engine, producer: "warp" } as const;
const shared = { ...byProducer, multicast: { blocks: 2, along: "rows" } } as const;

const inTurn = { ...byProducer, stage: 2, fragments: "inline", tile: { m: 64, n: 32, k: 16 } } as const;
const inFlight = { ...inTurn, stage: 4, fragments: "across" } as const;

const SUBJECTS = [
  gridSubject("mma, every tile summed", gridContextOf(tiled(32), MMA, MATCHED), mma),
  gridSubject("mma", gridContextOf(tiled(32, EMPTY), MMA, MATCHED), mma),
  gridSubject("mma, counted rows", gridContextOf(masked(48), MMA, MATCHED), mma),
  gridSubject("wgmma, every tile summed", gridContextOf(tiled(64), WGMMA, MATCHED), byProducer),
  gridSubject("wgmma", gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED), wgmma),
  gridSubject("wgmma, boxes", gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED), engine),
  gridSubject("wgmma, a producer", gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED), byProducer),
  gridSubject("wgmma, counted rows", gridContextOf(masked(128), WGMMA, MATCHED), byProducer),
  gridSubject("wgmma, in turn", gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED), { ...inTurn, persistent: 4 }),
  gridSubject("wgmma, in turn, some once more", gridContextOf(tiled(128, EMPTY), WGMMA, MATCHED), {
    ...inTurn,
    order: 2,
    persistent: 5,
  }),
  gridSubject("wgmma, in turn, counted rows", gridContextOf(masked(130), WGMMA, MATCHED), { ...inTurn, persistent: 7 }),
  gridSubject("wgmma, in turn, products in flight", gridContextOf(tiled(64, EMPTY, 128), WGMMA, MATCHED), {
    ...inFlight,
    persistent: 5,
  }),
  gridSubject("wgmma, in turn, stages that steps do not divide", gridContextOf(masked(130), WGMMA, MATCHED), {
    ...inTurn,
    stage: 3,
    persistent: 7,
  }),
  gridSubject("wgmma, in turn, shared tiles", gridContextOf(tiled(128, EMPTY), WGMMA, MATCHED), {
    ...inTurn,
    stage: 3,
    persistent: 4,
    multicast: { blocks: 2, along: "columns" },
  }),
  gridSubject("wgmma, in turn, counted rows, shared tiles", gridContextOf(masked(256), WGMMA, MATCHED), {
    ...inFlight,
    stage: 3,
    persistent: 4,
    multicast: { blocks: 2, along: "rows" },
  }),
  gridSubject("wgmma, in turn, every tile summed", gridContextOf(tiled(64), WGMMA, MATCHED), {
    ...byProducer,
    persistent: 5,
  }),
  gridSubject("wgmma, in turn without a producer", gridContextOf(tiled(64), WGMMA, MATCHED), {
    ...engine,
    persistent: 5,
  }),
  gridSubject("wgmma, in turn, copied by threads", gridContextOf(tiled(64), WGMMA, MATCHED), {
    ...wgmma,
    persistent: 5,
  }),
  gridSubject("wgmma, counted rows, shared tiles", gridContextOf(masked(128), WGMMA, MATCHED), shared),
];

describe("products of groups", () => {
  it.each(SUBJECTS.map((subject, turn) => ({ ...subject, turn })))(
    "equal the equation: $name",
    ({ turn, ...subject }) => {
      expectRightInterpreted(subject, ordersInTurn(turn));
    },
  );

  it("equal the equation on the emulated device", () => expectRightEmulated(SUBJECTS));

  it("sum nothing for a tile without points", () => {
    const nest = printNest(lowerGrid(gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED), byProducer));
    expect(nest.match(/when .*/g)).toEqual(["when 0 <= group[t_block]", "when 0 <= group[t_block]"]);
    const counted = printNest(lowerGrid(gridContextOf(masked(128), WGMMA, MATCHED), byProducer));
    expect(counted.match(/when .*/g)).toEqual([
      "when 64*m_tile+1 <= count[g_block]",
      "when 64*m_tile+1 <= count[g_block]",
    ]);
  });

  it("are summed by random schedules of blocks and warps", () => {
    const random = seededRandom(8);
    const small = [MMA, "mma.m16n8k8.f32.f16", "wgmma.m64n8k16.f32.f16"].map(rowNamed);
    for (const computation of [tiled(32, EMPTY), masked(48)]) {
      const contexts = gridContextsOf(computation, small);
      for (let done = 0; done < inFull(200, 2); done++) {
        const context = pick(random, contexts);
        const schedule = affordableSchedule(context, random, 6_000_000);
        if (schedule) expectRightInterpreted({ context, schedule }, ordersInTurn(done));
      }
    }
  });

  it("say why an instruction does not run along a loop of an index that is read, nor along a part of a sum", () => {
    const { refused } = mappings(tiled(32), rowNamed(MMA));
    expect(refused.map((r) => r.because)).toContain(
      "an index that depends on t is read from a tensor: an instruction moves with its loops",
    );
    const cut = stated(
      "c[g,m,n] += f32(a[g,m,k]) * f32(w[g,n,k]) where k < length[g] --g 2 --m 16 --n 16 --k 16 --dtype a=f16,w=f16,length=s32",
    );
    const { valid, refused: all } = mappings(cut, rowNamed(MMA));
    expect(valid).toEqual([]);
    expect(all.map((r) => r.because)).toContain("elements decide which points of a sum are left out: k < length[g]");
  });

  it("are taken in turn by blocks with a producer, which knows the next one", () => {
    const context = gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED);
    expect(refusals(context, inTurn, [{ persistent: 4, producer: undefined }])).toBe(
      "persistent 4: elements decide which tiles have sums, and only a producer knows the next one",
    );
  });

  it("need the count of the tiles summed before: stages run on from one to the next", () => {
    const context = gridContextOf(tiled(64, EMPTY), WGMMA, MATCHED);
    const nest = lowerGrid(context, { ...inTurn, stage: 3, persistent: 4 });
    const { computation } = context.mapping;
    const counting = (body: readonly Statement[]): readonly Statement[] =>
      body.map((s) => {
        if (s.kind === "loop") return { ...s, body: counting(s.body) };
        return s.kind === "when" && s.counted ? { ...s, counted: { ...s.counted, name: "another" } } : s;
      });
    expect(verdict({ nest, computation })).toBe("right");
    expect(verdict({ nest: { ...nest, body: counting(nest.body) }, computation })).toMatch(/parity alone|never go on/);
  });
});

describe("products of groups on a CPU", () => {
  const ROWS = ["avx2.fma.f32.broadcast", "avx512.fma.f32.broadcast"];
  const FLOATS = [
    tiledOf(5, "f32", ""),
    tiledOf(5, "f32", EMPTY),
    withInputs(
      stated(
        "c[g,m,n] += f32(a[g,m,k]) * f32(w[g,n,k]) where m < count[g] --g 5 --m 9 --n 40 --k 17 --dtype a=f32,w=f32,count=s32",
      ),
      { count: [0, 4, 9, -2, 12] },
    ),
  ];
  const cases = FLOATS.flatMap((computation) => {
    const random = seededRandom(4);
    return ROWS.flatMap((row) =>
      mappingsOnto(computation, rowNamed(row)).flatMap((mapping) =>
        upTo(inFull(20, 3)).map(() => ({ mapping, nest: lowerSchedule(mapping, randomSchedule(mapping, random)) })),
      ),
    );
  });

  it("equal the equation under random schedules", () => {
    expect(cases.length).toBeGreaterThan(20);
    for (const { mapping, nest } of cases)
      expect(verdict({ nest, computation: mapping.computation }), printNest(nest)).toBe("right");
  });

  it("equal the equation where they are compiled and run", async () => {
    const possible = cases
      .filter(({ mapping }) => hasFeature(nativeTarget(), mapping.intrinsic.isa))
      .filter((_, i) => inFull(true, i % 4 === 0));
    const jobs = possible.map(({ mapping, nest }) => ({
      kernel: generateCpp(mapping.computation, mapping.intrinsic, nest, { lines: [] }),
      inputs: exampleOf(mapping.computation).inputs,
    }));
    const runs = await runEmulated(jobs);
    for (const [i, { mapping, nest }] of possible.entries()) {
      const run = runs[i];
      const expected = exampleOf(mapping.computation).expected;
      expect(run?.status === "ok" ? [...run.output] : run?.log, printNest(nest)).toEqual([...expected]);
    }
  });
});
