/**
 * Filters of one channel as products with bands of their weights: the same elements, mapped and lowered for blocks and warps.
 */
import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation, equationText, extentsOf } from "../abstraction/computation.ts";
import { writesAll } from "../abstraction/elements.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import { finished } from "../abstraction/steps.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { BAND_NAMES } from "../mapper/match/bands.ts";
import { rewrittenAs } from "../mapper/match/phases.ts";
import { boxOf } from "../mapper/schedule/gather.ts";
import { gridProblem } from "../mapper/schedule/grid.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { instantiate, operatorNamed } from "../operators/index.ts";
import { usableIntrinsics } from "../session/choose.ts";
import { rankByModel } from "../session/rank.ts";
import { mappingOf } from "../session/recorded.ts";
import { isRefusals, sessionSpace } from "../session/space.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { expectRightEmulated, gridContextOf, smallIntegers } from "./support/grid-kernels.ts";
import { inFull } from "./support/slow.ts";

const equation = (text: string, extents: Record<string, number>, dtype: "f16" | "f32" | "tf32" = "f16"): Computation =>
  defineComputation({
    equation: text,
    extents,
    tensors: { in: { dtype }, w: { dtype, constant: true } },
  });

interface Shape {
  readonly h: number;
  readonly w: number;
  readonly r: number;
  readonly s: number;
  readonly pad: number;
}

/** The types of the image, and of the sums. */
const TYPES = {
  f16: ["f16", "f16", ""],
  "f16->f32": ["f16", "f32", "f32"],
  "tf32->f32": ["tf32", "f32", "f32"],
} as const;

function filter({ h, w, r, s, pad }: Shape, types: keyof typeof TYPES = "f16"): Computation {
  const [dtype, sums, cast] = TYPES[types];
  return defineComputation({
    name: "filter",
    equation: `out[p,q] += ${cast}(in[p+r-${pad},q+s-${pad}]) * ${cast}(w[r,s])`,
    extents: { p: h, q: w, r, s },
    tensors: { in: { dtype, shape: [h, w] }, w: { dtype, constant: true }, out: { dtype: sums } },
  });
}

function formOf(computation: Computation, kind: (typeof BAND_NAMES)[number]): Computation {
  const found = rewrittenAs(computation, kind);
  if (typeof found === "string") throw new Error(found);
  return found;
}

const printed = (computation: Computation): string =>
  [
    equationText(computation),
    Object.entries(extentsOf(computation)).flat().join(" "),
    ...(computation.rewriting?.places ?? []),
  ].join("\n");

describe("a filter of one channel as a product with bands", () => {
  it("splits its columns and slides its weights", () => {
    expect(printed(formOf(filter({ h: 64, w: 64, r: 9, s: 9, pad: 4 }), "bands-16"))).toMatchInlineSnapshot(`
      "out[p,q*16+q_in] += in[p+r-4,q*16+s-8] * w[r,s-q_in-4]
      p 64 q 4 q_in 16 r 9 s 32
      q = q*16+q_in
      s = s-q_in-4"
    `);
    expect(printed(formOf(equation("out[q] += in[q+s] * w[s]", { q: 100, s: 5 }), "bands-8"))).toMatchInlineSnapshot(`
      "out[q*8+q_in] += in[q*8+s] * w[s-q_in]
      q 13 q_in 8 s 16
      q = q*8+q_in
      s = s-q_in"
    `);
  });

  it.each([
    ["channels of its own", "out[k,q] += in[q+s] * w[k,s]", { k: 4, q: 64, s: 3 }],
    ["a stride", "out[q] += in[q*2+s] * w[s]", { q: 64, s: 3 }],
    ["a dilation", "out[q] += in[q+s*2] * w[s]", { q: 64, s: 3 }],
    ["a condition", "out[q] += in[q+s] * w[s] where s <= q", { q: 64, s: 3 }],
    ["a maximum", "out[q] max= in[q+s] * w[s]", { q: 64, s: 3 }],
    ["weights that are not all read", "out[q] += in[q+s] * w[s+1]", { q: 64, s: 3 }],
    ["weights in a function", "out[q] += in[q+s] * exp(w[s])", { q: 64, s: 3 }],
    ["a shifted output", "out[q+1] += in[q+s] * w[s]", { q: 64, s: 3 }],
    ["few results", "out[q] += in[q+s] * w[s]", { q: 5, s: 3 }],
  ] as const)("is refused with %s", (_, text, extents) => {
    for (const kind of BAND_NAMES) expect(rewrittenAs(equation(text, extents, "f32"), kind)).toBeTypeOf("string");
  });

  it("equals the equation, whatever its filter, borders and size, and writes each element once", () => {
    const random = seededRandom(14);
    for (let i = 0; i < inFull(2000, 15); i++) {
      const r = randomInteger(random, 1, 20);
      const s = randomInteger(random, 1, 20);
      const shape = {
        r,
        s,
        pad: randomInteger(random, 0, Math.min(r, s)),
        h: randomInteger(random, 1, 36),
        w: randomInteger(random, 8, 70),
      };
      const types = (["f16", "f16->f32", "tf32->f32"] as const)[i % 3] ?? "f16";
      const stated = filter(shape, types);
      const inputs = smallIntegers(stated, random);
      const right = [...interpret(stated, inputs)];
      for (const kind of BAND_NAMES) {
        const form = rewrittenAs(stated, kind);
        const what = `${kind} ${JSON.stringify(shape)}`;
        if (typeof form === "string") {
          expect(form, what).toMatch(/^q is shorter/);
          continue;
        }
        expect(writesAll(form), what).toBe(true);
        expect([...interpret(form, inputs)], what).toEqual(right);
      }
    }
  });
});

const schedule = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule => ({
  tile: { m, n, k },
  warps: { m: 1, n: 1 },
  stage: 2,
  swizzle: "padded",
  transfer: "async",
  gather: "a",
  order: 1,
  fragments: "inline",
  store: "direct",
  ...more,
});

const MAPPED = "m <- p,q,p_in,q_run; n <- q_in; k <- r,s";
const ACROSS = "m <- q_in; n <- p,q,p_in,q_run; k <- r,s";

/** Even and odd filters, borders cut by runs, either binding, f16 and f32 sums, tf32. */
const KERNELS = {
  "f16, 3": [
    filter({ h: 24, w: 128, r: 3, s: 3, pad: 1 }),
    "bands-16",
    "mma.m16n8k16.f16.f16",
    MAPPED,
    schedule(32, 16, 32),
  ],
  "f16, 4, summed in f32": [
    filter({ h: 20, w: 64, r: 4, s: 4, pad: 2 }, "f16->f32"),
    ...(["bands-8", "mma.m16n8k16.f32.f16", MAPPED] as const),
    schedule(64, 8, 16, { warps: { m: 2, n: 1 }, fragments: "ahead" }),
  ],
  "f16, 9, the image across": [
    filter({ h: 16, w: 128, r: 9, s: 9, pad: 4 }, "f16->f32"),
    ...(["bands-16", "mma.m16n8k16.f32.f16", ACROSS] as const),
    schedule(16, 32, 32, { gather: "b" }),
  ],
  "f16, 5, all weights at once": [
    filter({ h: 32, w: 128, r: 5, s: 5, pad: 2 }),
    ...(["bands-16", "mma.m16n8k16.f16.f16", ACROSS] as const),
    schedule(16, 64, 160, { gather: "b", stage: 1, fragments: "ahead", warps: { m: 1, n: 2 } }),
  ],
  "tf32, 5": [
    filter({ h: 16, w: 64, r: 5, s: 5, pad: 2 }, "tf32->f32"),
    ...(["bands-8", "mma.m16n8k8.f32.tf32", MAPPED] as const),
    schedule(32, 8, 8),
  ],
  "f16, 9, rolled": [
    filter({ h: 20, w: 200, r: 9, s: 9, pad: 4 }),
    ...(["bands-16", "mma.m16n8k16.f16.f16", ACROSS] as const),
    schedule(16, 64, 288, { gather: "b", stage: 1, fragments: "rolled", warps: { m: 1, n: 2 } }),
  ],
  "f16, 4 x 6, rolled over several blocks": [
    filter({ h: 20, w: 504, r: 4, s: 6, pad: 2 }, "f16->f32"),
    ...(["bands-16", "mma.m16n8k16.f32.f16", ACROSS] as const),
    schedule(16, 512, 128, { gather: "b", stage: 1, fragments: "rolled", store: "staged", warps: { m: 1, n: 4 } }),
  ],
  "tf32, 3, rolled": [
    filter({ h: 16, w: 128, r: 3, s: 3, pad: 1 }, "tf32->f32"),
    ...(["bands-16", "mma.m16n8k8.f32.tf32", ACROSS] as const),
    schedule(16, 128, 72, { gather: "b", stage: 1, fragments: "rolled", warps: { m: 1, n: 2 } }),
  ],
} as const;

function kernelOf([stated, kind, instruction, matching, how]: (typeof KERNELS)[keyof typeof KERNELS]) {
  return { stated, context: gridContextOf(formOf(stated, kind), instruction, matching), schedule: how };
}

describe("a kernel of bands", () => {
  it.each(Object.entries(KERNELS))("equals the equation: %s", (_, given) => {
    const { stated, context, schedule: how } = kernelOf(given);
    expect(gridProblem(context, how)).toBeUndefined();
    const inputs = smallIntegers(stated);
    expect([...interpretNest(lowerGrid(context, how), stated, inputs)]).toEqual([...interpret(stated, inputs)]);
  });

  it("reads rows of 16 bytes from the staged image", () => {
    for (const given of Object.values(KERNELS)) {
      const { context, schedule: how } = kernelOf(given);
      expect(boxOf(context, how)?.inRows).toBe(true);
    }
  });

  it("is right on the emulated device", async () => {
    await expectRightEmulated(Object.entries(KERNELS).map(([name, given]) => ({ name, ...kernelOf(given) })));
  });
});

describe("a search for a filter of one channel", () => {
  it("ranks bands beside windows, and finds them again from their record", () => {
    const stated = filter({ h: 2048, w: 2048, r: 15, s: 15, pad: 7 });
    const ranked = rankByModel(stated, { machine: nvidiaTarget("h100"), count: 1, kinds: "mappings" });
    if ("refused" in ranked) throw new Error(JSON.stringify(ranked.refused));
    const [best] = ranked;
    expect(best?.candidate).toMatchObject({ kind: "grid", rewriting: expect.stringMatching(/^bands-/) });
    expect(best && mappingOf(stated, best.candidate).id).toBe(best?.mapping?.id);
  });

  it("leaves types without gathered fragments to their other matrix instructions", () => {
    const f64 = (name: string) => ({ [name]: { dtype: "f64", constant: name === "w" } }) as const;
    const stated = defineComputation({
      equation: "out[p,q] += in[p+r,q+s] * w[r,s]",
      extents: { p: 64, q: 64, r: 9, s: 9 },
      tensors: { ...f64("in"), ...f64("w"), ...f64("out") },
    });
    const ranked = rankByModel(stated, { machine: nvidiaTarget("h100"), count: 50, kinds: "mappings" });
    if ("refused" in ranked) throw new Error(JSON.stringify(ranked.refused));
    expect(ranked.some(({ candidate }) => candidate.intrinsic.startsWith("wmma."))).toBe(true);
  });

  it("measures the best window and the best product before all others, where either may win", () => {
    const machine = nvidiaTarget("h100");
    const kindsOf = (computation: Computation): (string | undefined)[] => {
      const asked = { machine, intrinsics: usableIntrinsics(machine), threads: 1, seed: 1, kinds: "all" } as const;
      const space = finished(sessionSpace(computation, asked));
      if (isRefusals(space)) throw new Error(JSON.stringify(space));
      return (space.representatives ?? []).map(({ kind }) => kind);
    };
    expect(kindsOf(filter({ h: 2048, w: 2048, r: 15, s: 15, pad: 7 }))).toEqual(["lanes", "grid"]);
    // The Tensor Cores take a twentieth of the time of a window of 64 channels.
    const channels = { parameters: { c: 64, k: 64, h: 56, w: 56 }, types: parseDataTypes("f16") };
    expect(kindsOf(instantiate(operatorNamed("conv2d"), channels))).toEqual([]);
  });
});
