/**
 * @file Products of floats of one byte with scales: what maps onto Tensor Cores and is right on the emulated device, and what does not map.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { defineComputation } from "../../abstraction/computation.ts";
import { number, substitute } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { finished } from "../../abstraction/steps.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { mappings, validMappings } from "../../mapper/match/enumerate.ts";
import {
  changed,
  expectRightEmulated,
  gridContextOf,
  gridSubject,
  itEqualsTheEquation,
  refusals,
  verdict,
  wgmmaSchedule,
} from "../support/grid-kernels.ts";
import { rowNamed } from "../support/subjects.ts";

const SIZES = { m: 40, n: 24, k: 160 };
const FACTORS = { a: "e4m3", b: "e5m2", c: "f32" } as const;

/** A product whose summed axis is innermost in both factors, with an epilogue. */
const product = (epilogue: string, tensors: Parameters<typeof defineComputation>[0]["tensors"]): Computation =>
  defineComputation({
    equation: "c[m,n] += f32(a[m,k]) * f32(b[n,k])",
    epilogue,
    extents: SIZES,
    tensors: { ...FACTORS, ...tensors },
  });

const SCALED: Readonly<Record<string, Computation>> = {
  "one scale for a tensor": product("z[m,n] = bf16(c[m,n] * 0.0625)", { z: "bf16" }),
  "a scale for each row and each column": product("z[m,n] = bf16(c[m,n] * s[m] * t[n])", {
    s: "f32",
    t: "f32",
    z: "bf16",
  }),
  "results of one byte that stop at the largest": product("z[m,n] = sat_e4m3(c[m,n] * s[m])", { s: "f32", z: "e4m3" }),
};
/** Blocks of 32 k and 8 columns: sums of each block of k, scaled, which a second step adds. */
const BLOCKS = defineComputation({
  equation: "c[g,m,u,v] += f32(a[m,32*g+k]) * f32(b[8*u+v,32*g+k])",
  epilogue: "z[g,m,u,v] = c[g,m,u,v] * s[m,g] * t[u,g]",
  extents: { g: 3, m: 40, u: 3, v: 8, k: 32 },
  tensors: { ...FACTORS, s: "f32", t: "f32", z: "f32" },
});

const schedule = {
  tile: {},
  warps: { m: 1, n: 1 },
  stage: 3,
  order: 1,
} as const;

function subjects(name: string, computation: Computation, mapping: string) {
  const onHopper = {
    ...schedule,
    tile: { m: 64, n: 16, k: 32 },
    swizzle: "spans",
    transfer: "async",
    fragments: "across",
    store: "direct",
  } as const;
  const onAda = {
    ...schedule,
    tile: { m: 16, n: 8, k: 32 },
    swizzle: "swizzled",
    transfer: "async",
    fragments: "inline",
    store: "staged",
  } as const;
  return [
    {
      name: `${name} wgmma`,
      schedule: onHopper,
      context: gridContextOf(computation, "wgmma.m64n16k32.f32.e4m3e5m2", mapping),
    },
    { name: `${name} mma`, schedule: onAda, context: gridContextOf(computation, "mma.m16n8k32.f32.e4m3e5m2", mapping) },
  ];
}

describe("products of floats of one byte", () => {
  it("with scales of tensors, rows, columns and blocks of parts are right on the emulated device", () =>
    expectRightEmulated([
      ...Object.entries(SCALED).flatMap(([name, computation]) => subjects(name, computation, "m <- m; n <- n; k <- k")),
      ...subjects("blocks", BLOCKS, "m <- m; n <- u,v; k <- k"),
    ]));

  it("do not map with scales that move within a sum, nor onto an instruction that always adds", () => {
    const inside = defineComputation({
      equation: "c[m,n] += f32(a[m,k]) * f32(b[n,k]) * s[m,k/32] * t[n/8,k/32]",
      extents: SIZES,
      tensors: {
        ...FACTORS,
        s: { dtype: "f32", shape: [40, 5] },
        t: { dtype: "f32", shape: [3, 5] },
      },
    });
    const refusalsOf = (computation: Computation, row: string): readonly string[] => {
      const { valid, refused } = mappings(computation, rowNamed(row));
      expect(valid).toEqual([]);
      return refused.map((r) => r.because);
    };
    expect(refusalsOf(inside, "wgmma.m64n16k32.f32.e4m3e5m2")).toMatchInlineSnapshot(`
      [
        "k is summed, axis m of wgmma.m64n16k32.f32.e4m3e5m2 is kept",
        "k is summed, axis n of wgmma.m64n16k32.f32.e4m3e5m2 is kept",
        "m is kept, axis k of wgmma.m64n16k32.f32.e4m3e5m2 is summed",
        "n is kept, axis k of wgmma.m64n16k32.f32.e4m3e5m2 is summed",
        "the scale of a sum depends on k: it must be the same for all that wgmma.m64n16k32.f32.e4m3e5m2 sums at once",
      ]
    `);
    expect(refusalsOf(IN_GROUPS, "mma.m16n8k32.f32.e4m3e5m2")).toMatchInlineSnapshot(`
      [
        "b of mma.m16n8k32.f32.e4m3e5m2 is e5m2, f32(b[8*u+v,64*g+k]) * s[m,g] * t[u,g] is f32",
      ]
    `);
  });
});

/** Blocks of 64 k and 8 columns, whose sums are scaled before they are added. */
const IN_GROUPS = defineComputation({
  equation: "c[m,8*u+v] += f32(a[m,64*g+k]) * f32(b[8*u+v,64*g+k]) * (s[m,g] * t[u,g])",
  epilogue: "z[m,n] = bf16(c[m,n])",
  extents: { g: 3, m: 136, u: 5, v: 8, k: 64 },
  tensors: { ...FACTORS, s: "f32", t: "f32", z: "bf16" },
});

const IN_TURN = { ...wgmmaSchedule(64, 16, 64), fragments: "inline" } as const;
const FILLED = { ...IN_TURN, transfer: "engine", producer: "warp" } as const;
const BY_SCHEDULE: Readonly<Record<string, GridSchedule>> = {
  "in stages that threads fill": IN_TURN,
  "in one stage": { ...IN_TURN, stage: 1, transfer: "plain" },
  "half a group a step": { ...IN_TURN, tile: { m: 64, n: 16, k: 32 } },
  "in stages that the engine fills": { ...IN_TURN, transfer: "engine" },
  "in stages that a producer fills, two warpgroups": {
    ...FILLED,
    tile: { m: 128, n: 16, k: 64 },
    warps: { m: 2, n: 1 },
  },
  "several fragments of a warpgroup": { ...FILLED, tile: { m: 128, n: 32, k: 64 } },
  "of blocks that take several tiles": { ...FILLED, persistent: 4 },
  "of split sums": { ...FILLED, split: { parts: 3, through: "memory" } },
};

describe("sums of groups that are scaled", () => {
  itEqualsTheEquation(
    ["m <- m; n <- u,v; k <- k", "m <- m; n <- v; k <- k"].flatMap((matching) => {
      const width = matching.includes("u") ? 16 : 8;
      const context = gridContextOf(IN_GROUPS, `wgmma.m64n${width}k32.f32.e4m3e5m2`, matching);
      return Object.entries(BY_SCHEDULE).flatMap(([name, schedule]) => {
        const { n = 0 } = schedule.tile;
        const fitted = { ...schedule, tile: { ...schedule.tile, n: (n * width) / 16 } };
        return gridSubject(`${name}, ${matching}`, context, fitted);
      });
    }),
  );

  it("are mapped in a search onto rows that begin sums alone, though others compute and take the same", () => {
    const found = (row: string): number => finished(validMappings(IN_GROUPS, rowNamed(row))).length;
    expect(found("wgmma.m64n16k32.f32.e4m3e5m2")).toBeGreaterThan(0);
    expect(found("mma.m16n8k32.f32.e4m3e5m2")).toBe(0);
  });

  it("are not what a product without scales is refused for", () => {
    const gathered = defineComputation({
      equation: "c[m,n] += f32(a[m,clamp(i[k])]) * f32(b[n,clamp(i[k])])",
      extents: SIZES,
      tensors: { a: { dtype: "e4m3", shape: [40, 160] }, b: { dtype: "e5m2", shape: [24, 160] }, c: "f32", i: "s32" },
    });
    const { valid, refused } = mappings(gathered, rowNamed("wgmma.m64n16k32.f32.e4m3e5m2"));
    expect(valid).not.toEqual([]);
    expect(refused.map((r) => r.because).filter((because) => because.includes("scale"))).toEqual([]);
  });

  it("wait for their step, and take twice the registers", () => {
    const context = gridContextOf(IN_GROUPS, "wgmma.m64n16k32.f32.e4m3e5m2", "m <- m; n <- u,v; k <- k");
    expect(
      refusals(context, FILLED, [{}, { fragments: "across" }, { tile: { m: 256, n: 256, k: 64 } }]),
    ).toMatchInlineSnapshot(`
      "unchanged: legal
      fragments across: sums that are scaled are awaited in their own step
      tile m 256,n 256,k 64: 1060 registers a thread, it has 255"
    `);
  });

  it("are refused by the interpreter where the step's sums are not begun, not awaited, or of another operand", () => {
    const context = gridContextOf(IN_GROUPS, "wgmma.m64n16k32.f32.e4m3e5m2", "m <- m; n <- u,v; k <- k");
    const nest = lowerGrid(context, FILLED);
    const changes: Readonly<Record<string, (s: Statement) => readonly Statement[]>> = {
      "as they are": (s) => [s],
      "not begun": (s) => {
        if (s.kind !== "register-issue") return [s];
        const { begins: _, ...adds } = s;
        return [adds];
      },
      "not awaited": (s) => (s.kind === "wait" && s.of ? [] : [s]),
      "not added": (s) => (s.kind === "accumulate" ? [] : [s]),
      "scaled by another group": (s) => {
        if (s.kind !== "fetch" || !s.tile.made) return [s];
        const made = substitute(s.tile.made, new Map([["step", number(0)]]));
        return [{ ...s, tile: { ...s.tile, made } }];
      },
    };
    const { computation } = context.mapping;
    const verdicts = Object.entries(changes).map(
      ([name, change]) =>
        `${name}: ${verdict({ nest: changed(nest, change), computation }, { copies: "late" }).split("\n")[0]}`,
    );
    expect(verdicts.join("\n")).toMatchInlineSnapshot(`
      "as they are: right
      not begun: c_step{0} is read, and nothing has filled it
      not awaited: c_step{0} is used before the issue that takes it has ended
      not added: wrong
      scaled by another group: wrong"
    `);
  });
});
