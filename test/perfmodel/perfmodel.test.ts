/** The layered model: cases worked out by hand, and properties of every schedule. */

import { describe, expect, test } from "vitest";
import type { Schedule } from "../../abstraction/candidate.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import type { Figure } from "../../abstraction/machine.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { dimensionsOf } from "../../mapper/schedule/dimensions.ts";
import { plainSchedule, randomSchedule } from "../../mapper/schedule/mapped.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import type { Costs } from "../../perfmodel/correct.ts";
import { explainPrediction } from "../../perfmodel/explain.ts";
import { createModel, createTerms, type ModelOptions } from "../../perfmodel/model.ts";
import { type ModelTarget, modelTarget } from "../../perfmodel/target.ts";
import { mappingOf } from "../../session/recorded.ts";
import { REFERENCE_CPU } from "../../targets/x86.ts";
import { mapped, mappingNamed, mappingsOnto, operation, rowNamed } from "../support/subjects.ts";

const is = (value: number): Figure => ({ value, source: "this test" });

/** Round figures: 1 GHz, two issues and two loads a cycle, 32 KiB and 1 MiB of cache. */
const TARGET: ModelTarget = {
  name: "a test's CPU",
  clockHz: is(1e9),
  memory: [
    { name: "l1", bytes: 32 * 1024, readBytesPerCycle: is(128), writeBytesPerCycle: is(64) },
    { name: "l2", bytes: 1024 ** 2, readBytesPerCycle: is(32), writeBytesPerCycle: is(16) },
    { name: "dram", bytes: undefined, readBytesPerCycle: is(4), writeBytesPerCycle: is(2) },
  ],
  loadsPerCycle: is(2),
  storesPerCycle: is(1),
  instructionsPerCycle: is(6),
  loopInstructions: is(4),
  // No block begins before the one before it has ended.
  window: is(1),
  blockCycles: is(5),
  barrierCycles: is(0),
  scalar: {
    copyByte: is(0.03),
    copyRun: is(8),
    strided: is(1),
    indexed: is(0.5),
    scattered: is(1),
    sideBySide: is(0.25),
    operation: is(0.5),
    vectorOperation: is(0.04),
    digit: is(1.5),
    guard: is(0.5),
    gatheredLane: is(0.5),
    scatteredLane: is(0.5),
  },
  machine: REFERENCE_CPU,
  timings: {
    "avx512.fma.f32.broadcast": {
      issueCycles: 0.5,
      latencyCycles: 4,
      loadCycles: { a: 0.5, b: 0.5 },
      storeCycles: 1,
      source: "this test",
    },
  },
};

const matmul = (m: number, n: number, k: number): Mapping =>
  mapped(`matmul m=${m} n=${n} k=${k}`, "avx512.fma.f32.broadcast", "n <- n");

const inPlace = (block: Record<string, number>, order = ["m", "n", "k"], threads = 1): Schedule => ({
  order,
  block,
  placement: { a: "in-place", b: "in-place" },
  threads,
});

function costsOf(mapping: Mapping, schedule: Schedule, options?: Pick<ModelOptions, "cache">, target = TARGET): Costs {
  const costs = createTerms(mapping, target, options)(schedule);
  if (!costs) throw new Error("the schedule cannot be lowered");
  return costs;
}

/** Three rows of sums of bytes in two groups of 32, scaled in the instruction. */
function mappingWithScales(): Mapping {
  const computation = instantiate(operatorNamed("matmul-4bit-s8"), { parameters: { m: 3, n: 16, k: 64, group: 32 } });
  const [mapping] = mappingsOnto(computation, rowNamed("avx512.vpdpbusd.scaled"));
  if (!mapping) throw new Error("nothing maps");
  return mapping;
}

/** Cycles of a term, at 1 GHz. */
function cyclesOf(costs: Costs, name: string): number {
  const found = costs.terms.find((t) => t.name === name);
  if (!found) throw new Error(`no term ${name} among ${costs.terms.map((t) => t.name).join(", ")}`);
  return found.seconds * 1e9;
}

describe("one register block", () => {
  // c[m,n] of 4 rows by 2 vectors: 8 accumulators, 8 summed steps; each loads 2 vectors of b, holds them, and 4 elements of a.
  const mapping = matmul(4, 32, 8);
  const costs = costsOf(mapping, inPlace({ m: 4, n: 2 }));

  test("issues 8 times a step at two a cycle", () => expect(cyclesOf(costs, "issue")).toBeCloseTo(8 * 8 * 0.5));
  test("waits for no accumulator when there are as many as latency over issue", () =>
    expect(cyclesOf(costs, "chain")).toBeCloseTo(8 * 4));
  test("loads each tile once a step", () => expect(cyclesOf(costs, "load")).toBeCloseTo(8 * (2 + 4) * 0.5));
  test("sends issues, loads and the loop through the front end", () =>
    expect(cyclesOf(costs, "front end")).toBeCloseTo((8 * (8 + 6 + 4)) / 6));
  test("stores its accumulators once", () => expect(cyclesOf(costs, "store")).toBeCloseTo(8));

  test("loads what an issue reads beyond two factors at each issue, and makes each tile once", () => {
    // Three rows by one vector, two groups: a step loads a vector of b, three of a, and two scales for each of three issues. To make b of half bytes,
    // each of its eight registers takes two instructions to widen and one to subtract 8. Issues share 4 cycles of a tile of a, and one of b's.
    const scaled = mappingWithScales();
    const summed = dimensionsOf(scaled).filter((d) => d.kind === "reduce");
    const order = ["m", "n", ...summed.map((d) => d.name)];
    const schedule = { ...plainSchedule(scaled), order, block: { m: 3 } };
    const timing = { issueCycles: 8, latencyCycles: 4, loadCycles: {}, storeCycles: 1, source: "this test" };
    const timed = { ...TARGET, timings: { [scaled.intrinsic.name]: timing } };
    const costs = costsOf(scaled, schedule, {}, timed);
    expect(cyclesOf(costs, "load")).toBeCloseTo(2 * (1 + 3 + 2 * 3) * 0.5);
    expect(cyclesOf(costs, "issue")).toBeCloseTo(2 * (3 * 8 + 3 * 4 + 1 + 8 * 3 * 0.15));
    // Made in each step of a loop before the products, where four such instructions take a cycle.
    const within = { ...schedule, order: ["g/1", ...order], within: { b: "g/1" } };
    const apart = costsOf(scaled, within, {}, timed);
    expect(cyclesOf(apart, "issue")).toBeCloseTo(2 * (3 * 8 + 3 * 4 + 1));
    expect(cyclesOf(apart, "pack") - cyclesOf(costs, "pack")).toBeCloseTo((2 * 8 * 3) / 4);
  });

  test("with one accumulator waits the latency at every step", () => {
    const single = costsOf(mapping, inPlace({}));
    expect(cyclesOf(single, "chain")).toBeCloseTo(4 * 2 * 8 * 4);
    expect(cyclesOf(single, "issue")).toBeCloseTo(4 * 2 * 8 * 0.5);
    expect(single.bounds[0]).toBeGreaterThan(costs.bounds[0]);
  });

  test("waits less when later blocks begin in the meantime", () => {
    // A block of one accumulator is 8 steps of one issue and two loads: 24 instructions, so that 96 are four blocks.
    const wide = costsOf(mapping, inPlace({}), {}, { ...TARGET, window: is(96) });
    expect(cyclesOf(wide, "chain")).toBeCloseTo((4 * 2 * 8 * 4) / 4);
  });

  test("a remainder waits as the smaller block it is", () => {
    // Five rows in blocks of four: 8 accumulators and 2.
    const peeled = costsOf(matmul(5, 32, 8), inPlace({ m: 4, n: 2 }));
    expect(cyclesOf(peeled, "issue")).toBeCloseTo(8 * 8 * 0.5 + 8 * 2 * 0.5);
    expect(cyclesOf(peeled, "chain")).toBeCloseTo(8 * 4 + 8 * 4);
  });
});

describe("register blocks of 128 rows with 4096 x 4096 weights of 4 bits", () => {
  // Milliseconds of processor time on Zen 5, 2026-11-30, in turns with the block before them.
  const parameters = { m: 128, n: 4096, k: 4096, group: 32 };
  const floats = { row: "avx512.fma.f32.broadcast", operator: "matmul-4bit", matching: "n <- n" };
  const bytes = { row: "avx512.vpdpbusd.scaled", operator: "matmul-4bit-s8", matching: "n <- n   k <- b,h" };
  test.each([
    { ...floats, loops: "n m g b h", faster: { m: 8, n: 3 }, of: [23.8, 27.4], slower: { m: 3, n: 7 } },
    { ...bytes, loops: "n m g b_h", faster: { m: 4, n: 4 }, of: [9.5, 10.3], slower: { m: 4, n: 2 } },
    { ...bytes, loops: "n m g b_h", faster: { m: 4, n: 2 }, of: [10.4, 12.7], slower: { m: 8 } },
    { ...bytes, loops: "n m g b_h", faster: { m: 4, n: 2 }, of: [10.4, 13], slower: { n: 8 } },
  ])("on $row: $faster before $slower, which took $of ms", ({ row, operator, matching, loops, faster, slower }) => {
    const computation = instantiate(operatorNamed(operator), { parameters });
    const mapping = mappingsOnto(computation, rowNamed(row)).find(
      ({ matching: found, binding }) => printMatching(found) === matching && binding["b"]?.kind !== "access",
    );
    if (!mapping) throw new Error("nothing maps");
    const { placement } = plainSchedule(mapping);
    const predicted = (block: Readonly<Record<string, number>>): number => {
      const schedule = {
        order: loops.split(" "),
        block,
        placement: { ...placement, a: "in-place" },
        threads: 1,
      } as const;
      return createModel(mapping, modelTarget(REFERENCE_CPU))(schedule)?.seconds ?? 0;
    };
    expect(predicted(faster)).toBeGreaterThan(0);
    expect(predicted(slower) / predicted(faster)).toBeGreaterThan(1.05);
  });
});

describe("one cache", () => {
  test("data that does not fit is fetched again by every outer trip", () => {
    // A block of 4 rows goes through 64 KiB of b and 16 KiB of a: more than the 32 KiB of l1. 16 blocks; all of it fits l2.
    const costs = costsOf(matmul(64, 16, 1024), inPlace({ m: 4 }));
    expect(cyclesOf(costs, "read l2")).toBeCloseTo((16 * (64 + 16) * 1024) / 32);
    expect(cyclesOf(costs, "read dram")).toBe(0);
  });

  test("data that fits is fetched once", () => {
    // 8 KiB of b stay while 16 blocks go through 32 KiB of a.
    const costs = costsOf(matmul(64, 16, 128), inPlace({ m: 4 }));
    expect(cyclesOf(costs, "read l2")).toBeCloseTo(((8 + 32) * 1024) / 32);
  });

  test("a call after flushing reads everything from memory once", () => {
    const costs = costsOf(matmul(64, 16, 1024), inPlace({ m: 4 }), { cache: "flushed" });
    // Runs of 16 and of 64 pages, begun anywhere in a page: the prefetcher starts 82 times.
    expect(cyclesOf(costs, "read dram")).toBeCloseTo((64 * 1024 + 256 * 1024) / 4 + 12 * 82, 0);
    expect(cyclesOf(costs, "write dram")).toBeCloseTo((64 * 16 * 4) / 2 + 12 * 2, 0);
  });

  test("each level counts its trips within one trip of the next outer level", () => {
    const mapping = matmul(64, 16, 1024);
    const prediction = createModel(mapping, TARGET)(inPlace({ m: 4 }));
    // 1024 steps a block, the block does not fit l1 but its 1024 steps do one by one; 16 blocks of them in l2; one call.
    expect(prediction?.levels.map((l) => [l.level, l.trips])).toEqual([
      ["registers", 1],
      ["l1", 16 * 1024],
      ["l2", 1],
    ]);
  });
});

test("blocks left without work by a condition fetch nothing", () => {
  const readL2 = (where: string): number => {
    const computation = defineComputation({
      equation: `c[m,n] += a[m,k] * b[k,n]${where}`,
      extents: { m: 512, n: 64, k: 512 },
      tensors: { a: "f32", b: "f32" },
    });
    const mapping = mappingNamed(computation, rowNamed("avx512.fma.f32.broadcast"), "n <- n");
    return cyclesOf(costsOf(mapping, inPlace({ m: 8, n: 2 })), "read l2");
  };
  // b, four times the first cache, comes round for every block of m: half of it where k <= m.
  expect(readL2(" where k <= m") / readL2("")).toBeCloseTo(0.5, 1);
});

test("results on many pages are written more slowly than contiguous ones", () => {
  // 512 rows of one page; down the columns every vector of 16 begins a page that was left 511 vectors ago.
  const mapping = matmul(512, 1024, 8);
  const [rows, columns] = [
    ["m", "n", "k"],
    ["n", "m", "k"],
  ].map((order) => cyclesOf(costsOf(mapping, inPlace({}, order)), "write l2"));
  expect(rows).toBeCloseTo((512 * 4096) / 16 + 12 * 513, -1);
  expect(columns).toBeCloseTo((512 * 4096) / 16 + 12 * 512 * 64, -1);
});

describe("packing", () => {
  const mapping = mapped("conv2d c=16 k=32 h=14 w=14 NHWC", "avx512.vpdpbusd", "n <- k; k <- c");
  const schedule = (a: "padded" | "tiled"): Schedule => ({
    order: ["n", "k", "p", "q", "r", "s", "c"],
    block: { q: 7, k: 2 },
    placement: { a, b: "tiled" },
    threads: 1,
  });

  test("constants are packed ahead of time and cost nothing", () => {
    const costs = costsOf(mapping, schedule("padded"));
    // 14 * 14 runs of 16 bytes of the input; nothing of the weights.
    expect(cyclesOf(costs, "pack")).toBeCloseTo(14 * 14 * (16 * 0.03 + 8));
  });

  test("tiles copy shared inputs once for each output, with guards at the border", () => {
    // Tests of p + r - 1 and q + s - 1 on both sides, once a run of four.
    const elements = 14 * 14 * 9 * 16;
    expect(cyclesOf(costsOf(mapping, schedule("tiled")), "pack")).toBeCloseTo(elements * (0.5 + (4 / 4) * 0.5));
  });
});

describe("packing into tiles of a matrix unit", () => {
  const pixels = "conv2d c=64 k=64 h=16 w=16 r=1 s=1 pad=0 NHWC";
  const schedule = (order: readonly string[]): Schedule => ({
    order,
    block: {},
    placement: { a: "tiled", b: "tiled" },
    threads: 1,
  });
  const packOf = (matched: string, order: readonly string[], strided = 1, on = "amx.tdpbf16ps"): number => {
    const target = { ...TARGET, scalar: { ...TARGET.scalar, strided: is(strided) } };
    return cyclesOf(costsOf(mapped(pixels, on, matched), schedule(order), {}, target), "pack");
  };

  test("loops of one step cost no division", () => {
    const plain = packOf("m <- q; n <- k; k <- c", ["n", "k", "p", "q", "r", "s", "c"]);
    expect(plain).toBeCloseTo(16 * 16 * 64 * 0.5);
    expect(packOf("m <- n,q; n <- k; k <- c", ["n_q", "k", "p", "r", "s", "c"])).toBeCloseTo(plain);
  });

  test("rows whose elements lie apart in the tensor are gathered one by one", () => {
    const order = ["n", "k", "p", "q", "r", "s", "c"];
    const gathered = "n <- q; k <- c";
    const on = "avx512.vdpbf16ps";
    expect(packOf(gathered, order, 3, on) - packOf(gathered, order, 1, on)).toBeCloseTo(16 * 16 * 64 * 2);
  });

  test("rows of words that fill a tile are copied and transposed", () => {
    const order = ["n", "k", "p", "q", "r", "s", "c"];
    const turned = "m <- k; n <- q; k <- c";
    expect(packOf(turned, order, 3)).toBeCloseTo(16 * 16 * 64 * 2 * 0.03 + ((16 * 16 * 64) / 32) * 8);
  });

  test("rows of words of which some are left out are packed one by one, each under its conditions", () => {
    // Tests of q + s - 1 on both sides for each element, of p + r - 1 once a row of sixteen.
    const mapping = mapped("conv2d c=64 k=64 h=16 w=16 NHWC", "amx.tdpbf16ps", "m <- k; n <- q; k <- c");
    const costs = costsOf(mapping, schedule(["n", "k", "p", "q", "r", "s", "c"]));
    const elements = 16 * 16 * 9 * 64;
    expect(cyclesOf(costs, "pack")).toBeCloseTo(elements * (1 + (2 + 2 / 16) * 0.5));
  });

  test("windows copied inside a loop are tested where they leave the image, row by row", () => {
    const on = rowNamed("amx.tdpbusd");
    const packed = (pad: number): Costs => {
      const matching = { m: ["q"], n: ["k"], k: ["r", "s", "c"] };
      const operands = {
        a: pad === 0 ? "in[n,c,p+r,q+s]" : `in[n,c,p+r-${pad},q+s-${pad}]`,
        b: "w[k,c,r,s]",
        c: "out[n,k,p,q]",
      };
      const computation = operation(`conv2d c=4 k=16 h=${34 - 2 * pad} w=${34 - 2 * pad} pad=${pad} NHWC`, on);
      const schedule = {
        order: ["n", "p", "q", "k", "r_s_c"],
        block: {},
        placement: { a: "windowed", b: "tiled" },
        within: { a: "q" },
        threads: 1,
      } as const;
      const mapping = mappingOf(computation, { kind: "mapping", intrinsic: on.name, matching, operands, schedule });
      return costsOf(mapping, schedule);
    };
    // Three neighbours of four bytes are one run; with a border each is one, after four comparisons.
    expect(cyclesOf(packed(0), "pack")).toBeCloseTo(32 * 32 * 3 * (12 * 0.03 + 8));
    expect(cyclesOf(packed(1), "pack")).toBeCloseTo(32 * 32 * 9 * (4 * 0.03 + 8 + 4 * 0.5));
  });
});

test("loops that lie one behind the other in the output are stored as one", () => {
  const mapping = mapped(
    "capsule-conv2d c=32 k=4 h=8 w=8 r=3 s=3 pad=1 stride=1 NHWC",
    "amx.tdpbf16ps",
    "m <- n,p,q; n <- k,u; k <- c",
  );
  const schedule: Schedule = {
    spread: ["n_p_q"],
    order: ["n_p_q", "k_u", "r", "s", "c"],
    block: {},
    placement: { a: "padded", b: "tiled" },
    threads: 1,
  };
  // Eight rows of eight pixels, and two pixels between rows that are not stored.
  expect(cyclesOf(costsOf(mapping, schedule), "scatter")).toBeCloseTo((8 * 8 + 7 * 2) * 4 * 8 * 0.25);
});

test("sums wait longer for the pass before the farther away they were kept", () => {
  const waits = (n: number): number => {
    const mapping = matmul(64, n, 64);
    const inPasses = costsOf(mapping, inPlace({ m: 4 }, ["k/32", "m", "n", "k"]));
    const inOne = costsOf(mapping, inPlace({ m: 4 }));
    return (cyclesOf(inPasses, "blocks") - 2 * cyclesOf(inOne, "blocks")) / (16 * (n / 16));
  };
  // 8 KiB of sums in the first level, 128 KiB in the second, 2 MiB behind it.
  expect([32, 512, 8192].map((n) => Math.round(waits(n)))).toEqual([10, 76, 340]);
});

describe("for every schedule", () => {
  const row = rowNamed("avx512.fma.f32.broadcast");
  const valid = mappingsOnto(operation("conv2d c=20 k=48 h=14 w=14 NCHW", row), row);
  const random = seededRandom(2);
  const cases = Array.from({ length: 200 }, () => {
    const mapping = pick(random, valid);
    return { mapping, schedule: randomSchedule(mapping, random) };
  });
  const seconds = (mapping: Mapping, schedule: Schedule, target: ModelTarget, options?: ModelOptions): number => {
    const prediction = createModel(mapping, target, options)(schedule);
    if (!prediction) throw new Error("a legal schedule has no prediction");
    return prediction.seconds;
  };
  // Rounding of sums in another order is no slowdown.
  const slack = 1 + 1e-9;

  test("more bandwidth is never slower", () => {
    const caches = ["warm", "flushed"] as const;
    const before = caches.map((cache) => cases.map((c) => seconds(c.mapping, c.schedule, TARGET, { cache })));
    for (const [i] of TARGET.memory.entries()) {
      const memory = TARGET.memory.map((m, at) =>
        at === i
          ? {
              ...m,
              readBytesPerCycle: is(2 * m.readBytesPerCycle.value),
              writeBytesPerCycle: is(2 * m.writeBytesPerCycle.value),
            }
          : m,
      );
      for (const [c, cache] of caches.entries())
        for (const [at, { mapping, schedule }] of cases.entries())
          expect(seconds(mapping, schedule, { ...TARGET, memory }, { cache })).toBeLessThanOrEqual(
            slack * (before[c]?.[at] ?? 0),
          );
    }
  });

  test("more threads are never slower where barriers cost nothing", () => {
    for (const { mapping, schedule } of cases) {
      const times = [1, 2, 4, 8].map((threads) => seconds(mapping, { ...schedule, threads }, TARGET));
      for (const [i, time] of times.entries()) expect(time).toBeLessThanOrEqual(slack * (times[i - 1] ?? time));
    }
  });

  test("a loop divided among threads takes its share of the time", () => {
    const mapping = matmul(64, 32, 64);
    const one = costsOf(mapping, inPlace({ m: 4, n: 2 }));
    const four = costsOf(mapping, inPlace({ m: 4, n: 2 }, ["m", "n", "k"], 4));
    expect(cyclesOf(four, "issue")).toBeCloseTo(cyclesOf(one, "issue") / 4);
    // Three threads take at most six of 16 blocks.
    const three = costsOf(mapping, inPlace({ m: 4, n: 2 }, ["m", "n", "k"], 3));
    expect(cyclesOf(three, "issue")).toBeCloseTo((cyclesOf(one, "issue") * 6) / 16);
  });

  test("a faster instruction is never slower", () => {
    const timing = TARGET.timings["avx512.fma.f32.broadcast"];
    if (!timing) throw new Error("no timing");
    const faster = { ...TARGET, timings: { [row.name]: { ...timing, issueCycles: 0.25, latencyCycles: 2 } } };
    for (const { mapping, schedule } of cases)
      expect(seconds(mapping, schedule, faster)).toBeLessThanOrEqual(slack * seconds(mapping, schedule, TARGET));
  });

  test("both forms take at least as long as the longest part", () => {
    for (const { mapping, schedule } of cases) {
      const { bounds, terms } = costsOf(mapping, schedule);
      const longest = Math.max(...terms.map((t) => t.seconds));
      expect(bounds[0]).toBeGreaterThanOrEqual(longest / slack);
      expect(bounds[1]).toBeGreaterThanOrEqual(longest / slack);
      expect(seconds(mapping, schedule, TARGET)).toBe(bounds[0]);
      expect(seconds(mapping, schedule, TARGET, { form: "sum" })).toBe(bounds[1]);
    }
  });

  test("the levels multiplied out give the prediction", () => {
    for (const { mapping, schedule } of cases) {
      const prediction = createModel(mapping, TARGET)(schedule);
      const { terms } = costsOf(mapping, schedule);
      const of = (name: string): number => (terms.find((t) => t.name === name)?.seconds ?? 0) * 1e9;
      const outermost = prediction?.levels.findLast((l) => l.level !== "pack");
      if (!prediction || !outermost) throw new Error("no prediction");
      const { trips, inner, read, write } = outermost;
      const cycles = trips * Math.max(inner, read, write) + Math.max(of("pack"), of("pack memory"));
      const total = prediction.uncorrectedSeconds * 1e9;
      expect(cycles).toBeLessThanOrEqual(slack * total);
      expect(cycles + of("fill")).toBeGreaterThanOrEqual(total / slack);
    }
  });

  test("a correction changes seconds and leaves the uncorrected prediction visible", () => {
    const correction = { scale: Math.log(2), overlap: 0, weights: {}, ridge: 1, observations: 9 };
    const [first] = cases;
    if (!first) throw new Error("no case");
    const prediction = createModel(first.mapping, TARGET, { correction })(first.schedule);
    expect(prediction?.seconds).toBeCloseTo(2 * (prediction?.uncorrectedSeconds ?? 0), 12);
  });
});

test("a prediction explains itself level by level", () => {
  const mapping = matmul(64, 32, 256);
  const schedule = inPlace({ m: 6, n: 2 });
  const prediction = createModel(mapping, TARGET)(schedule);
  if (!prediction) throw new Error("no prediction");
  expect(explainPrediction(prediction, costsOf(mapping, schedule))).toMatchInlineSnapshot(`
    "level            trips         inner        read       write   bound
    registers            1           5.8         3.9         0.0   inner
    l1                2816           5.8         4.5         0.2   inner
    l2                   1       16443.7         0.0         0.0   inner
    cycles of a level = trips * max(inner, read, write), each trip a call of the level inside
    16.4 us
      issue             16.4 us
      chain             11.3 us
      front end         11.0 us
      load              11.0 us
      store            0.128 us
      blocks          0.0550 us
      read l2           12.6 us
      write l2         0.563 us
      fill           0.00466 us
      between 16.4 us (all overlaps) and 40.7 us (nothing does)"
  `);
});
