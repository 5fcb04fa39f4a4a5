/** Conditions on several loops: decided on boxes, lowered, compiled, and refused with a reason where that is impossible. */

import { availableParallelism } from "node:os";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import { type Computation, defineComputation, equationText, outputOf } from "../../abstraction/computation.ts";
import { conditionOf, everywhere, outlook, somewhere, type Truth, usefulPoints } from "../../abstraction/condition.ts";
import { number } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { defineIntrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type Mapping, printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { plainSchedule, randomSchedule, scheduleProblem, unschedulable } from "../../mapper/schedule/mapped.ts";
import { placementsOf } from "../../mapper/schedule/place.ts";
import type { Runner } from "../../runtime/measure.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nativeTarget } from "../../targets/index.ts";
import { candidateSpace } from "../../tuner/candidates.ts";
import { runnerHere } from "../support/here.ts";
import { mutateSchedule } from "../support/mapped.ts";
import { randomTie, randomTriangle } from "../support/random-triangle.ts";
import { inFull } from "../support/slow.ts";
import { mappedKernel, mappingsOnto, operation, rowNamed, smallIntegers, stated } from "../support/subjects.ts";

/** So small a cache that everything overflows it: tiles and passes are drawn. */
const NEAR_BYTES = 32;

const product = (where: string, extents = { i: 40, j: 40, k: 5 }, target = "c[i,j]"): Computation =>
  defineComputation({
    equation: `${target} += x[i,k] * y[k,j] where ${where}`,
    extents,
    tensors: { x: "f32", y: "f32" },
  });

/** The mapping of a computation onto an instruction that has this among its matches. */
function mappingWith(computation: Computation, on: string, match: string): Mapping {
  const mapping = mappingsOnto(computation, rowNamed(on)).find((m) => printMatching(m.matching).includes(match));
  if (!mapping) throw new Error("nothing maps");
  return mapping;
}

/** The mapping `n <- j` of a product onto a multiply-add with one factor broadcast. */
const rows = (computation: Computation): Mapping => mappingWith(computation, "avx512.fma.f32.broadcast", "n <- j");

/** Compiles and runs it here, and compares every element with the equation. */
async function expectRightCompiled(kernel: Kernel, computation: Computation): Promise<void> {
  const runner = await runnerHere({ flags: inFull([], ["-O1"]) });
  try {
    const measured = await runner.measure(kernel, await runner.reference(computation, 3), {
      budgetSeconds: 0.002,
      batchSeconds: 1e-5,
      batches: [1, 2],
    });
    expect(measured.status, "log" in measured ? measured.log : "").toBe("ok");
  } finally {
    await runner.close();
  }
}

describe("a condition on a box", () => {
  const LOOPS = ["i", "j", "k"];

  it("holds where it holds at every point, and fails where it holds at none", () => {
    const random = seededRandom(3);
    const known = { always: 0, sometimes: 0, never: 0 };
    for (let n = 0; n < 3000; n++) {
      const { where } = product(randomTie(random, ["i", "j"], ["k"])).equation;
      if (where === undefined) throw new Error("no condition");
      const condition = conditionOf(where);
      const box = new Map(
        LOOPS.map((l) => [l, [randomInteger(random, 0, 9), randomInteger(random, 0, 5)] as const] as const),
      );
      const spans = Object.fromEntries([...box].map(([l, [, more]]) => [l, more + 1]));
      const held = [...pointsOf(LOOPS, spans)].map((at) => {
        const point = Object.fromEntries(LOOPS.map((l) => [l, (at[l] ?? 0) + (box.get(l)?.[0] ?? 0)]));
        return evaluateIndex(where, point) !== 0;
      });
      const found = outlook(condition, (l) => {
        const [low, more] = box.get(l) ?? [0, 0];
        return [low, low + more];
      });
      known[found]++;
      if (found === "always") expect(held).not.toContain(false);
      if (found === "never") expect(held).not.toContain(true);
      // A program's tests say the same.
      const spanOf = (l: string): { low: ReturnType<typeof number>; span: number } => {
        const [low, more] = box.get(l) ?? [0, 0];
        return { low: number(low), span: more + 1 };
      };
      const truth = (t: Truth): boolean => (typeof t === "boolean" ? t : evaluateIndex(t, {}) !== 0);
      expect([truth(somewhere(condition, spanOf)), truth(everywhere(condition, spanOf))]).toEqual([
        found !== "never",
        found === "always",
      ]);
    }
    expect(Object.values(known).every((times) => times > 300)).toBe(true);
  });

  it("has as many points as a count one by one", () => {
    const random = seededRandom(5);
    for (let n = 0; n < 300; n++) {
      const extents = {
        i: randomInteger(random, 1, 20),
        j: randomInteger(random, 1, 20),
        k: randomInteger(random, 1, 6),
      };
      const computation = product(randomTie(random, ["i", "j"], ["k"]), extents);
      const { where } = computation.equation;
      const counted = [...pointsOf(LOOPS, extents)].filter((p) => where && evaluateIndex(where, p) !== 0).length;
      expect(usefulPoints(computation), equationText(computation)).toBe(counted);
    }
    expect(usefulPoints(product("j <= i", { i: 4096, j: 4096, k: 64 }))).toBe((4096 * 4097 * 64) / 2);
  });
});

describe("triangles and bands", () => {
  const COMPUTATIONS = inFull(1000, 80);

  it(`map, lower and compute the equation, every element written: ${COMPUTATIONS} of them`, () => {
    const random = seededRandom(29);
    let computations = 0;
    let scheduled = 0;
    while (computations < COMPUTATIONS) {
      const { computation, intrinsic } = randomTriangle(random);
      const valid = mappingsOnto(computation, intrinsic);
      if (valid.length === 0) continue;
      computations++;
      const inputs = smallIntegers(computation, random);
      const expected = interpret(computation, inputs);
      const mapping = pick(random, valid);
      const said = `${equationText(computation)} on ${intrinsic.name}: ${printMatching(mapping.matching)}`;
      expect(interpretNest(lowerMapping(mapping), computation, inputs), said).toEqual(expected);
      if (unschedulable(mapping) !== undefined) continue;
      scheduled++;
      let schedule = randomSchedule(mapping, random, randomInteger(random, 1, 2), NEAR_BYTES);
      for (let steps = randomInteger(random, 0, 3); steps > 0; steps--)
        schedule = mutateSchedule(mapping, schedule, random, NEAR_BYTES);
      const got = interpretNest(lowerSchedule(mapping, schedule), computation, inputs, 2);
      expect(got, `${said} ${JSON.stringify(schedule)}`).toEqual(expected);
    }
    expect(scheduled).toBeGreaterThan(0.9 * COMPUTATIONS);
  });

  it("skip blocks outside, mask blocks across the edge, and store the others whole", () => {
    const mapping = rows(product("j <= i and k <= i"));
    const plain = plainSchedule(mapping);
    const schedule = { ...plain, block: { i: 8, j: 2 }, placement: { ...plain.placement, a: "tiled" as const } };
    const text = printNest(lowerSchedule(mapping, schedule));
    expect(
      text.slice(text.indexOf("barrier"), text.indexOf("for unrolled i_block in 0..8\n    c_register{i_block}")),
    ).toMatchInlineSnapshot(`
      "barrier
      for parallel i_outer in 0..5 in turn
        for unrolled i_block in 0..8
          for unrolled j_block in 0..2
            c_register{i_block*2 + j_block} <- identity
        for k_outer in 0..min(5, i_outer*8 + 8)
          for unrolled j_block in 0..2
            b_register{j_block} <- y_padded[j_block*16 + k_outer*48 .. by 16]
          for unrolled i_block in 0..8
            a_register{0} <- a_tiles[i_outer*40 + i_block + k_outer*8 .. by 1]
            for unrolled j_block in 0..2
              c_register{i_block*2 + j_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{j_block})
        when 31 <= 8*i_outer
          for unrolled i_block in 0..8
            for unrolled j_block in 0..2
              c[(i_outer*8 + i_block)*40 + j_block*16 .. by 16] <- c_register{i_block*2 + j_block}
        otherwise
          for unrolled i_block in 0..8
            for unrolled j_block in 0..2
              c_results[(i_block*2 + j_block)*16 .. by 16] <- c_register{i_block*2 + j_block}
          for i_block in 0..8
            for j_block in 0..2
              for n_inner in 0..16
                c[i_outer*8+i_block,j_block*16+n_inner] = select(j_block*16+n_inner <= i_outer*8+i_block, c_results[(i_block*2+j_block)*16+n_inner], 0)
        when 8*i_outer > 39 or 8*i_outer > 39
          for unrolled i_block in 0..8
            for unrolled j_block in 0..2
              c_register{i_block*2 + j_block} <- identity
          for unrolled i_block in 0..8
            for unrolled j_block in 0..2
              c[((4 - i_outer)*8 + i_block)*40 + j_block*16 .. by 16] <- c_register{i_block*2 + j_block}
        "
    `);
  });

  it("are packed across the edge only, and loaded in place elsewhere", () => {
    const mapping = rows(product("k <= i", { i: 20, j: 16, k: 20 }));
    const schedule = { ...plainSchedule(mapping), block: { i: 8, k: 4 } };
    expect(schedule.placement).toEqual({ a: "in-place", b: "in-place" });
    const text = printNest(lowerSchedule(mapping, schedule));
    expect(text.slice(0, text.indexOf("barrier"))).toMatchInlineSnapshot(`
      "scratch a_edges: f32[480]
      registers c_register: 8 x avx512.fma.f32.broadcast.c
      registers b_register: 1 x avx512.fma.f32.broadcast.b
      registers a_register: 1 x avx512.fma.f32.broadcast.a
      for parallel i_edge in 0..3
        for k_edge in 0..min(5, (i_edge*8 + 11)/4)
          when 4*k_edge <= 8*i_edge+7 and 4*k_edge+3 > 8*i_edge
            for i_step in 0..min(8, 20 - i_edge*8)
              for k_step in 0..4
                a_edges[i_edge*160+i_step+k_edge*32+k_step*8] = select(k_edge*4+k_step <= i_edge*8+i_step, x[i_edge*8+i_step,k_edge*4+k_step], 0)
      "
    `);
    const whole = text.slice(text.indexOf("for k_outer"));
    expect(whole.slice(0, whole.indexOf("c[i_outer"))).toMatchInlineSnapshot(`
      "for k_outer in 0..min(5, (i_outer*8 + 11)/4)
          when 4*k_outer+3 <= 8*i_outer
            for unrolled k_block in 0..4
              b_register{0} <- y[(k_outer*4 + k_block)*16 .. by 16]
              for unrolled i_block in 0..8
                a_register{0} <- x[(i_outer*8 + i_block)*20 + (k_outer*4 + k_block) .. by 1]
                c_register{i_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
          otherwise
            for unrolled k_block in 0..4
              b_register{0} <- y[(k_outer*4 + k_block)*16 .. by 16]
              for unrolled i_block in 0..8
                a_register{0} <- a_edges[i_outer*160 + i_block + k_outer*32 + k_block*8 .. by 1]
                c_register{i_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
        for unrolled i_block in 0..8
          c[(i_outer*8 + i_block)*16 .. by 16] <- c_register{i_block}
      for parallel i_rest in 0..1
        for unrolled i_block in 0..4
          c_register{i_block} <- identity
        for k_outer in 0..5
          when 4*k_outer <= 13
            for unrolled k_block in 0..4
              b_register{0} <- y[(k_outer*4 + k_block)*16 .. by 16]
              for unrolled i_block in 0..4
                a_register{0} <- x[(16 + i_block)*20 + (k_outer*4 + k_block) .. by 1]
                c_register{i_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
          otherwise
            for unrolled k_block in 0..4
              b_register{0} <- y[(k_outer*4 + k_block)*16 .. by 16]
              for unrolled i_block in 0..4
                a_register{0} <- a_edges[320 + i_block + k_outer*32 + k_block*8 .. by 1]
                c_register{i_block} <- avx512.fma.f32.broadcast(a_register{0}, b_register{0})
        for unrolled i_block in 0..4
          c[(16 + i_block)*16 .. by 16] <- c_register{i_block"
    `);
  });

  it("deal blocks of unequal work to the threads in turn", () => {
    const mapping = rows(product("j <= i"));
    const nest = printNest(lowerSchedule(mapping, { ...plainSchedule(mapping, 2), block: { i: 8 } }));
    expect(nest).toContain("for parallel i_outer in 0..5 in turn");
    const whole = printNest(lowerSchedule(mapping, { ...plainSchedule(mapping, 2), order: ["j", "i", "k"] }));
    expect(whole).toContain("for parallel j_outer in 0..2 in turn");
  });
});

describe("conditions, compiled,", () => {
  const CASES = [
    ["j <= i", "c[i,j]"],
    ["i - j <= 6 and j - i <= 9", "c[i,j]"],
    ["k <= i and j*2 >= k", "c[i,j]"],
    ["(i + j) % 2 == 0 or i < 3", "c[i,j]"],
    ["j < i", "c[i,j+1]"],
  ] as const;
  const THREADS = Math.min(2, availableParallelism());
  let runner: Runner;
  beforeAll(async () => {
    runner = await runnerHere({ threads: THREADS, flags: inFull([], ["-O1"]) });
  });
  afterAll(() => runner.close());

  it.each(CASES)("where %s, of %s, equal the equation on every thread", async (where, target) => {
    const on = nativeTarget().isa.includes("avx512f") ? "avx512.fma.f32.broadcast" : "portable.mla.f32.broadcast";
    const intrinsic = INTRINSICS.find((row) => row.name === on);
    if (!intrinsic) throw new Error(`no intrinsic ${on}`);
    const computation = product(where, { i: 37, j: 50, k: 21 }, target);
    const random = seededRandom(7);
    const reference = await runner.reference(computation, 3);
    for (let n = 0; n < inFull(6, 1); n++) {
      const mapping = pick(random, mappingsOnto(computation, intrinsic));
      const schedule = randomSchedule(mapping, random, THREADS);
      const kernel = mappedKernel(mapping, schedule);
      const measured = await runner.measure(kernel, reference, {
        budgetSeconds: 0.002,
        batchSeconds: 1e-5,
        batches: [1, 2],
      });
      expect(measured.status, `${JSON.stringify(schedule)} ${"log" in measured ? measured.log : ""}`).toBe("ok");
    }
  });

  it.skipIf(!nativeTarget().isa.includes("amx_int8"))(
    "edges of tiles are copied a row at a time under a mask, in the type of the input (needs amx_int8)",
    async () => {
      for (const [on, types, k] of [
        ["amx.tdpbusd", ["u8", "s8", "s32"], 128],
        ["amx.tdpbusd", ["u8", "s8", "s32"], 100],
        ["amx.tdpbf16ps", ["bf16", "bf16", "f32"], 96],
      ] as const) {
        const [x, y, c] = types;
        const computation = stated(
          `c[i,j] += ${c}(x[i,k]) * ${c}(y[k,j]) where i - k < 21 and k - i < 67 --i ${k === 100 ? 70 : 64} --j 40 --k ${k} --dtype x=${x},y=${y},c=${c}`,
        );
        const mapping = mappingWith(computation, on, "m <- i");
        const reference = await runner.reference(computation, 3);
        const [place = "padded"] = placementsOf(mapping)[0]?.open ?? [];
        expect(place).toBe(k === 100 ? "padded" : "in-place");
        for (const a of [place, "tiled"] as const) {
          const schedule = {
            ...plainSchedule(mapping, THREADS),
            block: { i: 2, j: 2 },
            placement: { a, b: "tiled" as const },
          };
          const kernel = mappedKernel(mapping, schedule);
          expect(kernel.source).toContain(`_mm512_maskz_loadu_epi${x === "u8" ? 8 : 16}(`);
          const options = { budgetSeconds: 0.002, batchSeconds: 1e-5, batches: [1, 2] } as const;
          const measured = await runner.measure(kernel, reference, options);
          expect(measured.status, `${a} ${"log" in measured ? measured.log : ""}`).toBe("ok");
        }
      }
    },
  );
});

describe.skipIf(!nativeTarget().isa.includes("amx_int8"))("tiles of words turned in registers (needs amx_int8)", () => {
  it.each([
    ["amx.tdpbusd", "u8", "s8", "s32", 128],
    ["amx.tdpbusd", "u8", "s8", "s32", 100],
    ["amx.tdpbf16ps", "bf16", "bf16", "f32", 64],
    ["amx.tdpbf16ps", "bf16", "bf16", "f32", 40],
  ] as const)("on %s, of %s by %s to %s with %i terms, equal the equation", async (on, x, y, c, k) => {
    const computation = stated(
      `c[i,j] += ${c}(x[i,k]) * ${c}(y[j,k]) --i 32 --j 48 --k ${k} --dtype x=${x},y=${y},c=${c}`,
    );
    const mapping = mappingWith(computation, on, "m <- i");
    const schedule = { ...plainSchedule(mapping), block: { j: 2 }, placement: { a: "tiled", b: "tiled" } as const };
    const kernel = mappedKernel(mapping, schedule);
    expect(kernel.source).toContain(`turn_words<${x === "u8" ? 1 : 2}>(b_tiles`);
    await expectRightCompiled(kernel, computation);
  });
});

describe("words of elements from neighbouring rows", () => {
  const runs = (feature: string): boolean => nativeTarget().isa.includes(feature);
  it.each(
    (
      [
        ["avx512.vpdpbusd", "avx512_vnni", "u8", "s8", "s32", 48],
        ["avx512.vpdpbusd", "avx512_vnni", "u8", "s8", "s32", 40],
        ["avx512.vdpbf16ps", "avx512_bf16", "bf16", "bf16", "f32", 48],
        ["avx512.vdpbf16ps", "avx512_bf16", "bf16", "bf16", "f32", 40],
        ["amx.tdpbusd", "amx_int8", "u8", "s8", "s32", 48],
        ["amx.tdpbf16ps", "amx_bf16", "bf16", "bf16", "f32", 48],
      ] as const
    ).filter(([, feature]) => runs(feature)),
  )("on %s (%s), of %s by %s to %s with %i columns, equal the equation", async (on, _, x, y, c, j) => {
    const computation = stated(
      `c[i,j] += ${c}(x[i,k]) * ${c}(y[k,j]) --i 32 --j ${j} --k 128 --dtype x=${x},y=${y},c=${c}`,
    );
    const mapping = mappingWith(computation, on, "n <- j");
    const schedule = { ...plainSchedule(mapping), placement: { a: "tiled", b: "tiled" } as const };
    const kernel = mappedKernel(mapping, schedule);
    if (j === 48) expect(kernel.source).toContain(`mix_rows<${x === "u8" ? 1 : 2}>(b_tiles`);
    await expectRightCompiled(kernel, computation);
  });
});

describe.skipIf(!nativeTarget().isa.includes("avx512f"))("rows of words turned in registers (needs avx512f)", () => {
  it.each([
    ["tiled", 64, "turn_rows(b_tiles + j_step * 1280, 64, y + (j_step * 16) * 77, 308, 16, 77);"],
    ["padded", 48, "turn_rows(y_padded + k_copy * 48, 192, y + k_copy, 308, 48, 77L * (part + 1) / parts - k_copy);"],
    // The last tile of columns is no whole one.
    ["tiled", 40, undefined],
    ["padded", 40, "turn_rows(y_padded + k_copy * 48, 192, y + k_copy, 308, 40, 77L * (part + 1) / parts - k_copy);"],
  ] as const)("%s, of %i columns, equal the equation", async (placement, columns, turned) => {
    const computation = stated(`c[i,j] += x[i,k] * y[j,k] --i 24 --j ${columns} --k 77`);
    const on = "avx512.fma.f32.broadcast";
    const mapping = mappingWith(computation, on, "n <- j");
    const schedule = {
      ...plainSchedule(mapping),
      block: { k: 4 },
      placement: { a: "in-place", b: placement } as const,
    };
    const kernel = mappedKernel(mapping, schedule);
    expect(/^[^a-z]*(?:const long k_copy = 77L \* part \/ parts; )?(turn_rows\(.*?;)/m.exec(kernel.source)?.[1]).toBe(
      turned,
    );
    await expectRightCompiled(kernel, computation);
  });
});

describe("a computation under a condition", () => {
  const space = (computation: Computation, on: string): string => {
    const found = finished(candidateSpace(computation, [rowNamed(on)], () => 1, 1, 1));
    if (!Array.isArray(found)) return "maps";
    return found.map((r: { rule: string; because: string }) => `${r.rule}: ${r.because}`).join("\n");
  };

  it("is refused by tuning when it maps but no schedule can keep to the condition", () => {
    const tied = product("k <= i + j");
    expect(mappingsOnto(tied, rowNamed("avx512.fma.f32.broadcast"))).toHaveLength(2);
    expect(space(tied, "avx512.fma.f32.broadcast")).toMatchInlineSnapshot(
      `"schedule: the condition ties k, i and j together, and no operand is indexed by all of them"`,
    );
    expect(space(product("j <= i"), "avx512.fma.f32.broadcast")).toBe("maps");
  });

  it("is refused where several kept points join one sum, which would pass through memory", () => {
    const pairs = stated("y[i/2] += x[i] * w[i] --i 40");
    expect(space(pairs, "avx512.fma.f32")).toMatchInlineSnapshot(
      `"schedule: several points of the kept loops join one element of y"`,
    );
    const ranked = rankByModel(pairs, { intrinsics: [rowNamed("avx512.fma.f32")] });
    expect("refused" in ranked && ranked.refused[0]?.because).toContain("join one element of y");
    // Skewed, but each element once.
    const skewed = stated("y[i+j,j] += x[i,j] * w[i] --i 20 --j 6");
    expect(space(skewed, "avx512.fma.f32")).toBe("maps");
  });
});

describe("schedules under conditions", () => {
  it("drawn at random and the plainest are legal, of every mapping that has one", () => {
    // Both inputs would run past the end of a padded copy, the simplest place open to each.
    const past = stated("c[i,j] += s32(x[i,k,l]) * s32(y[j,k,l]) --i 4 --j 4 --k 2 --l 2 --dtype s8");
    // Blocks of several steps with its border in place would be written out as more issues than are compiled in reasonable time.
    const wide = operation("conv2d c=4 k=16 h=66 w=66 r=65 s=65 pad=32 NHWC", "u8s8");
    const rowProduct = defineIntrinsic({
      name: "rows.s8",
      family: "own",
      isa: "virtual",
      language: "none",
      summary: "Rows of three on boundaries of four.",
      compute: "c[m,n] += s32(a[m,k]) * s32(b[n,k])",
      extents: { m: 2, n: 2, k: 3 },
      operands: {
        a: { dtype: "s8", storage: "tile[4*m + k]" },
        b: { dtype: "s8", storage: "tile[4*n + k]" },
        c: { dtype: "s32", storage: "tile[2*m + n]" },
      },
      emit: "",
      source: "this test",
    });
    const random = seededRandom(1);
    let simplest = 0;
    for (const [computation, on] of [
      [past, rowProduct],
      [wide, rowNamed("avx512.vpdpbusd")],
    ] as const) {
      for (const mapping of mappingsOnto(computation, on)) {
        const first = Object.fromEntries(placementsOf(mapping).map((c) => [c.operand, c.open[0] ?? "tiled"]));
        if (scheduleProblem(mapping, { ...plainSchedule(mapping), placement: first }) !== undefined) simplest++;
        for (const schedule of [plainSchedule(mapping), randomSchedule(mapping, random)])
          expect(scheduleProblem(mapping, schedule)).toBeUndefined();
      }
    }
    expect(simplest).toBeGreaterThan(0);
    const [lost] = mappingsOnto(product("k <= i + j"), rowNamed("avx512.fma.f32.broadcast"));
    if (!lost) throw new Error("nothing maps");
    expect(() => randomSchedule(lost, random)).toThrow("no schedule: the condition ties k, i and j together");
  });

  it("write the identity where no point writes", () => {
    const shifted = product("j <= i", { i: 6, j: 20, k: 3 }, "c[i,j+2]");
    const mapping = rows(shifted);
    const inputs = smallIntegers(shifted, seededRandom(2));
    const got = interpretNest(lowerSchedule(mapping, plainSchedule(mapping)), shifted, inputs);
    expect(got).toEqual(interpret(shifted, inputs));
    expect([...got.slice(0, 2)]).toEqual([0, 0]);
    expect(outputOf(shifted).dims.map((d) => d.extent)).toEqual([6, 22]);
  });
});
