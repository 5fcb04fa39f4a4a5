import { describe, expect, it } from "vitest";
import { NestFault } from "../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { number } from "../abstraction/expression.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import type { Copy, LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import type { GridContext } from "../mapper/schedule/grid-context.ts";
import { viewForm } from "../mapper/schedule/views.ts";
import {
  convolutionF16,
  expectCompiled,
  expectRightEmulated,
  expectRightInterpreted,
  gridContextOf,
  NVCC,
  ordersInTurn,
  smallIntegers,
} from "./support/grid-kernels.ts";

const INSTRUCTION = "wgmma.m64n16k16.f32.f16";

const SCHEDULE: GridSchedule = {
  tile: { m: 64, n: 16, k: 32 },
  warps: { m: 1, n: 1 },
  stage: 3,
  swizzle: "spans",
  transfer: "engine",
  order: 1,
  fragments: "across",
  store: "direct",
};

/** Sizes with borders, tails along every axis, and tiles that cross the ends of rows and images. */
const CASES = [
  ["conv2d", { n: 3, c: 40, k: 24, h: 5, w: 7 }, "m <- n,p,q; n <- k; k <- c"],
  ["conv2d", { n: 1, c: 32, k: 20, h: 9, w: 11, stride: 2 }, "m <- p,q; n <- k; k <- c"],
  ["conv2d", { n: 2, c: 32, k: 16, h: 9, w: 9, dilation: 2, pad: 2 }, "m <- k; n <- n,p,q; k <- c"],
  ["conv2d", { n: 1, c: 16, k: 16, h: 12, w: 10, r: 5, s: 3, pad: 1, stride: 2 }, "m <- q; n <- k; k <- c"],
  ["conv2d", { n: 2, c: 16, k: 16, h: 9, w: 9, r: 1, s: 1, pad: 0, stride: 2 }, "m <- k; n <- p,q; k <- c"],
  ["conv1d", { n: 3, c: 32, k: 16, l: 30, r: 5, pad: 2, stride: 3 }, "m <- n,p; n <- k; k <- c"],
  ["conv3d", { n: 1, c: 16, k: 16, d: 4, h: 5, w: 5, t: 3, r: 3, s: 3 }, "m <- o,p,q; n <- k; k <- c"],
  // Dimensions that lie one behind the other are one: pixels of a filter of one tap, and the capsules of a channel's filter.
  ["conv2d", { n: 3, c: 32, k: 16, h: 5, w: 7, r: 1, s: 1, pad: 0 }, "m <- n,p,q; n <- k; k <- c"],
  ["conv3d", { n: 1, c: 16, k: 16, d: 2, h: 5, w: 5, t: 3, r: 1, s: 1, pad: 0 }, "m <- o,p,q; n <- k; k <- c"],
  ["capsule-conv2d", { n: 2, c: 32, k: 5, caps: 8, h: 6, w: 6 }, "m <- n,p,q; n <- k,u; k <- c"],
  ["capsule-conv2d", { n: 1, c: 16, k: 3, caps: 8, h: 7, w: 5, stride: 2 }, "m <- k,u; n <- p,q; k <- c"],
] as const;

const contextNamed = (computation: Computation, mapping: string): GridContext =>
  gridContextOf(computation, INSTRUCTION, mapping);

describe("the copy engine, fetching tiles of a convolution,", () => {
  it.each(CASES.map((one, i) => [...one, i] as const))(
    "brings the elements of the equation: %s %o, %s",
    (name, parameters, mapping, turn) => {
      const context = contextNamed(convolutionF16(name, parameters), mapping);
      expectRightInterpreted({ context, schedule: SCHEDULE }, ordersInTurn(turn));
    },
  );

  // Rows of 10 bytes are no rows of a box; images of 80 bytes are.
  const IMAGES = convolutionF16("conv2d", { n: 2, c: 24, k: 24, h: 8, w: 5, r: 1, s: 1, pad: 0 }, false);

  it("brings images for a filter of one tap, whose pixels are contiguous", () => {
    const context = contextNamed(IMAGES, "m <- k; n <- p,q; k <- c");
    expectRightInterpreted({ context, schedule: SCHEDULE }, ordersInTurn(1));
  });

  it("is right on the emulated device", () => {
    const subjects = CASES.map(([name, parameters, mapping], i) => ({
      name: `${name} ${i}`,
      context: contextNamed(convolutionF16(name, parameters), mapping),
      schedule: SCHEDULE,
    }));
    const images = { name: "images", context: contextNamed(IMAGES, "m <- k; n <- p,q; k <- c"), schedule: SCHEDULE };
    return expectRightEmulated([...subjects, images]);
  });
});

const STRIDED = convolutionF16("conv2d", { n: 1, c: 32, k: 20, h: 9, w: 11, stride: 2 });

describe("a view that walks over pixels", () => {
  const context = contextNamed(STRIDED, "m <- p,q; n <- k; k <- c");
  const nest = lowerGrid(context, SCHEDULE);
  const inputs = smallIntegers(STRIDED);

  it("prints as this program", () => {
    const sends = printNest(nest)
      .split("\n")
      .filter((l) => l.includes("engine"));
    expect(sends.slice(-2).map((l) => l.trim())).toMatchInlineSnapshot(`
      [
        "copy m_in 64, k_in 32, engine, by block, as 64 pixels of w -1..9 by 2, h -1..7 by 2, offset (step + 1)%3, (step + 1)/3   a_ring[(step+1)%3,m_in,k_in] = select(64*m_tile+m_in < 30, in[n_block,k_in,(64*m_tile+m_in)/6*2+(step+1)/3-1,(64*m_tile+m_in)%6*2+(step+1)%3-1], 0)",
        "copy n_in 16, k_in 32, engine, by block, as a box of c 32, s 1, r 1, k 16   b_ring[(step+1)%3,n_in,k_in] = select(16*n_tile+n_in < 20, w[16*n_tile+n_in,k_in,(step+1)/3,(step+1)%3], 0)",
      ]
    `);
  });

  /** The walks of a nest changed. */
  const changed = (change: (view: NonNullable<Copy["view"]>) => NonNullable<Copy["view"]>): LoopNest => {
    const inside = (all: readonly Statement[]): Statement[] =>
      all.map((s) => {
        if (s.kind === "loop") return { ...s, body: inside(s.body) };
        if (s.kind !== "send") return s;
        return { ...s, copies: s.copies.map((c) => (c.view ? { ...c, view: change(c.view) } : c)) };
      });
    return { ...nest, body: inside(nest.body) };
  };
  const faultOf = (wrong: LoopNest): string => {
    try {
      interpretNest(wrong, STRIDED, inputs, 1, ADVERSE_ORDERS[0]);
      return "none";
    } catch (error) {
      if (!(error instanceof NestFault)) throw error;
      return error.message.split("\n")[0] ?? "";
    }
  };

  it("is found faulty when it begins, steps or is offset otherwise", () => {
    const pixels = (change: (rows: Extract<NonNullable<Copy["view"]>["rows"], { kind: "pixels" }>) => object): string =>
      faultOf(
        changed((view) =>
          view.rows.kind === "pixels" ? { ...view, rows: { ...view.rows, ...change(view.rows) } } : view,
        ),
      );
    expect(pixels(() => ({}))).toBe("none");
    const brings = /^the engine brings .* where .* is asked for$/;
    expect(pixels(({ offsets }) => ({ offsets: offsets.toReversed() }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, count: w.count - 1 })) }))).toMatch(brings);
    expect(pixels(({ walks }) => ({ walks: walks.map((w) => ({ ...w, step: 1 })) }))).toMatch(brings);
    expect(faultOf(changed((view) => ({ ...view, at: view.at.map(() => number(0)) })))).toMatch(brings);
    const shifted = ({ at: [, ...others], ...view }: NonNullable<Copy["view"]>) => ({
      ...view,
      at: [number(7), ...others],
    });
    expect(faultOf(changed(shifted))).toBe("the engine begins at multiples of 16 bytes along c, not at 14");
  });
});

describe("a view that no descriptor of the copy engine expresses", () => {
  const reasonOf = (computation: Computation, mapping: string): string => {
    const context = contextNamed(computation, mapping);
    const reasons = context.inputs.map((i) => viewForm(context, i)).filter((f) => typeof f === "string");
    return reasons.join("; ");
  };
  it("is refused with the reason", () => {
    expect(reasonOf(STRIDED, "m <- q; n <- k; k <- c,r,s")).toMatchInlineSnapshot(
      `"the columns of in are neither one loop nor several loops that are contiguous in memory; the columns of w are neither one loop nor several loops that are contiguous in memory"`,
    );
    expect(
      reasonOf(convolutionF16("conv2d", { n: 2, c: 16, k: 16, h: 6, w: 6 }), "m <- n,q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(`"rows do not walk along h in memory order"`);
    expect(
      reasonOf(convolutionF16("conv2d", { n: 1, c: 12, k: 16, h: 6, w: 6 }), "m <- q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(
      `"in has 24 bytes from one w to the next, which is not a multiple of 16; w has 24 bytes from one s to the next, which is not a multiple of 16"`,
    );
    expect(
      reasonOf(convolutionF16("conv2d", { n: 1, c: 16, k: 16, h: 30, w: 30, stride: 9 }), "m <- p,q; n <- k; k <- c"),
    ).toMatchInlineSnapshot(`"a copy engine cannot walk along w in steps of 9"`);
    expect(
      reasonOf(convolutionF16("conv2d", { n: 1, c: 16, k: 16, h: 6, w: 6 }, false), "m <- k; n <- p,q; k <- c"),
    ).toMatchInlineSnapshot(
      `"w has 6 bytes from one r to the next, which is not a multiple of 16; in has 12 bytes from one h to the next, which is not a multiple of 16"`,
    );
  });

  it("is refused where taps or borders begin off 16 bytes, which faults on an H100", () => {
    const layer = (more: Record<string, number>): string =>
      reasonOf(
        convolutionF16("conv2d", { n: 1, c: 64, k: 64, h: 56, w: 56, r: 1, ...more }, false),
        "m <- k; n <- q; k <- c",
      );
    const border = layer({ s: 1, pad: 1 });
    const tap = layer({ s: 3, pad: 0 });
    expect(border).toBe(
      "tiles of in begin at an offset of 2 bytes along w, and a copy engine begins at multiples of 16 bytes",
    );
    expect(tap).toContain(
      "tiles of in begin at an offset of 2 bytes along w, and a copy engine begins at multiples of 16 bytes",
    );
    expect(layer({ s: 1, pad: 0 })).not.toContain("tiles of in");
    expect(layer({ s: 3, pad: 8, dilation: 8 })).not.toContain("tiles of in");
  });
});

describe.skipIf(NVCC === undefined)("nvcc", () => {
  it.each(CASES.filter((_, i) => [0, 5, 6, 9].includes(i)))(
    "takes walks without a warning or a byte of stack: %s",
    (name, parameters, mapping) =>
      expectCompiled({ name, context: contextNamed(convolutionF16(name, parameters), mapping), schedule: SCHEDULE }),
    120_000,
  );

  it("takes products in flight from step to step where results end inside a tile", () => {
    const strided = { n: 16, c: 128, k: 256, h: 28, w: 28, stride: 2 };
    const mapping = "m <- k,u; n <- p,q; k <- c";
    const context = gridContextOf(convolutionF16("capsule-conv2d", strided), "wgmma.m64n208k16.f32.f16", mapping);
    const schedule = { ...SCHEDULE, tile: { m: 128, n: 208, k: 64 }, warps: { m: 2, n: 1 }, stage: 5, order: 8 };
    return expectCompiled({ name: "edges", context, schedule });
  }, 120_000);
});
