/**
 * Filters of one channel as products with bands of their weights: the same elements, mapped and lowered for blocks and warps.
 */
import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, equationText, extentsOf } from "../../abstraction/computation.ts";
import { writesAll } from "../../abstraction/elements.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { BAND_NAMES } from "../../mapper/match/bands.ts";
import { rewrittenAs } from "../../mapper/match/phases.ts";
import { boxOf } from "../../mapper/schedule/gather.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { mappingOf } from "../../session/recorded.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { gridContextOf, gridSubject, itEqualsTheEquation, mmaSchedule } from "../support/grid-kernels.ts";
import { inFull } from "../support/slow.ts";
import { operation, smallIntegers } from "../support/subjects.ts";

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

const gathering = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  mmaSchedule(m, n, k, { swizzle: "padded", gather: "a", ...more });

const MAPPED = "m <- p,q,p_in,q_run; n <- q_in; k <- r,s";
const ACROSS = "m <- q_in; n <- p,q,p_in,q_run; k <- r,s";
const ROLLED = { gather: "b", stage: 1, fragments: "rolled" } as const;

/** Even and odd filters, borders cut by runs, either binding, f16 and f32 sums, tf32. */
const KERNELS = (
  [
    [{ h: 24, w: 128, r: 3, s: 3, pad: 1 }, "f16", "bands-16", "mma.m16n8k16.f16.f16", MAPPED, gathering(32, 16, 32)],
    [
      { h: 20, w: 64, r: 4, s: 4, pad: 2 },
      "f16->f32",
      "bands-8",
      "mma.m16n8k16.f32.f16",
      MAPPED,
      gathering(64, 8, 16, { warps: { m: 2, n: 1 }, fragments: "ahead" }),
    ],
    // The image across.
    [
      { h: 16, w: 128, r: 9, s: 9, pad: 4 },
      "f16->f32",
      "bands-16",
      "mma.m16n8k16.f32.f16",
      ACROSS,
      gathering(16, 32, 32, { gather: "b" }),
    ],
    // All weights at once.
    [
      { h: 32, w: 128, r: 5, s: 5, pad: 2 },
      "f16",
      "bands-16",
      "mma.m16n8k16.f16.f16",
      ACROSS,
      gathering(16, 64, 160, { gather: "b", stage: 1, fragments: "ahead", warps: { m: 1, n: 2 } }),
    ],
    [{ h: 16, w: 64, r: 5, s: 5, pad: 2 }, "tf32->f32", "bands-8", "mma.m16n8k8.f32.tf32", MAPPED, gathering(32, 8, 8)],
    [
      { h: 20, w: 200, r: 9, s: 9, pad: 4 },
      "f16",
      "bands-16",
      "mma.m16n8k16.f16.f16",
      ACROSS,
      gathering(16, 64, 288, { ...ROLLED, warps: { m: 1, n: 2 } }),
    ],
    // Over several blocks.
    [
      { h: 20, w: 504, r: 4, s: 6, pad: 2 },
      "f16->f32",
      "bands-16",
      "mma.m16n8k16.f32.f16",
      ACROSS,
      gathering(16, 512, 128, { ...ROLLED, store: "staged", warps: { m: 1, n: 4 } }),
    ],
    [
      { h: 16, w: 128, r: 3, s: 3, pad: 1 },
      "tf32->f32",
      "bands-16",
      "mma.m16n8k8.f32.tf32",
      ACROSS,
      gathering(16, 128, 72, { ...ROLLED, warps: { m: 1, n: 2 } }),
    ],
  ] as const
).map(([shape, types, kind, instruction, matching, schedule]) => {
  const context = gridContextOf(formOf(filter(shape, types), kind), instruction, matching);
  return gridSubject(`${JSON.stringify(shape)} ${types} ${schedule.fragments}`, context, schedule);
});

describe("a kernel of bands", () => {
  itEqualsTheEquation(KERNELS);

  it("reads rows of 16 bytes from the staged image", () => {
    for (const { name, context, schedule } of KERNELS) expect(boxOf(context, schedule)?.inRows, name).toBe(true);
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
    expect(kindsOf(filter({ h: 2048, w: 2048, r: 15, s: 15, pad: 7 }))).toEqual(["warp-window", "grid"]);
    // The Tensor Cores take a twentieth of the time of a window of 64 channels.
    expect(kindsOf(operation("conv2d c=64 k=64 h=56 w=56", "f16"))).toEqual([]);
  });
});
