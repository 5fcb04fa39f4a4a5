/**
 * @file Weights of 4 and 8 bits for Tensor Cores: a thread loads several at once, makes f16 of two in a word, and stores 16 bytes of a tile.
 */

import { describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { axis, number } from "../../abstraction/expression.ts";
import type { Statement } from "../../abstraction/loop-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { gridCosts } from "../../perfmodel/grid.ts";
import { stepCycles } from "../../perfmodel/grid-step.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  type GridSubject,
  gridContextOf,
  gridKernelOf,
  gridSubject,
  itEqualsTheEquation,
  mmaSchedule,
  verdict,
  wgmmaSchedule,
  withInputs,
  withoutStatements,
} from "../support/grid-kernels.ts";
import { stated } from "../support/subjects.ts";

const [M, N, GROUPS, GROUP] = [24, 72, 4, 32] as const;

/** Every byte; the numbers of a row have one of eight scales that round, or a subnormal one. */
const GIVEN = {
  w: Float64Array.from({ length: N * GROUPS * GROUP }, (_, i) => (i * 89 + Math.floor(i / 256)) % 256),
  s: Float64Array.from({ length: N * GROUPS }, (_, i) =>
    Math.floor(i / GROUPS) % 9 === 8 ? ((i % 7) + 1) * 2 ** -24 : (1024 + 2 * (i % 50) + 1) / 1024,
  ),
};
const BYTES = { ...GIVEN, w: GIVEN.w.map((byte) => (byte % 64) - 32) };

const numbers = `--m ${M} --n ${N} --g ${GROUPS} --dtype a=f16,s=f16,y=f32`;
const HALVES = stated(
  `y[m,n] += f32(a[m,32*g+2*b+h]) * f32((f16(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g]) ${numbers},w=u8 --b 16 --h 2`,
);

function subjectOf(what: "half bytes" | "bytes", row: string, matching: string, schedule: GridSchedule): GridSubject {
  const computation =
    what === "half bytes"
      ? withInputs(HALVES, { ...GIVEN, w: GIVEN.w.slice(0, N * GROUPS * 16) })
      : withInputs(stated(`y[m,n] += f32(a[m,32*g+j]) * f32(f16(w[n,g,j]) * s[n,g]) ${numbers},w=s8 --j 32`), BYTES);
  return gridSubject(`${what} on ${row}, ${matching}`, gridContextOf(computation, row, matching), schedule);
}

const MMA = "mma.m16n8k16.f32.f16";
const GROUP_MMA = "wgmma.m64n8k16.f32.f16";
const AS_A = subjectOf("half bytes", MMA, "m <- n; n <- m; k <- g,b,h", mmaSchedule(32, 8, 64, { transfer: "plain" }));
/** A warp's own fragments, made in its registers. */
const IN_REGISTERS = subjectOf("half bytes", MMA, "m <- n; n <- m; k <- g,b,h", mmaSchedule(32, 8, 64, { stage: 3 }));
/** The same for a warpgroup, which makes half a step while the other half is multiplied. */
const HELD = subjectOf("half bytes", `${GROUP_MMA}.rs`, "m <- n; n <- m; k <- g,b,h", wgmmaSchedule(64, 8, 64));
const SUBJECTS = [
  AS_A,
  IN_REGISTERS,
  subjectOf(
    "half bytes",
    MMA,
    "m <- m; n <- n; k <- g,b,h",
    mmaSchedule(16, 16, 32, { swizzle: "padded", transfer: "plain" }),
  ),
  subjectOf("half bytes", GROUP_MMA, "m <- n; n <- m; k <- g,b,h", wgmmaSchedule(64, 8, 64)),
  subjectOf("half bytes", MMA, "m <- n; n <- m; k <- g,b,h", mmaSchedule(16, 24, 32, { stage: 1 })),
  subjectOf("half bytes", MMA, "m <- n; n <- m; k <- g,b,h", mmaSchedule(32, 8, 32, { stage: 4, fragments: "across" })),
  subjectOf("half bytes", GROUP_MMA, "m <- n; n <- m; k <- g,b,h", wgmmaSchedule(64, 8, 64, { persistent: 2 })),
  subjectOf(
    "half bytes",
    MMA,
    "m <- n; n <- m; k <- g,b,h",
    mmaSchedule(64, 16, 128, { stage: 3, warps: { m: 2, n: 1 } }),
  ),
  subjectOf(
    "half bytes",
    MMA,
    "m <- n; n <- m; k <- g,b,h",
    mmaSchedule(16, 24, 128, { stage: 3, fragments: "ahead", swizzle: "padded" }),
  ),
  subjectOf("half bytes", MMA, "m <- m; n <- n; k <- g,b,h", mmaSchedule(32, 16, 64, { warps: { m: 1, n: 2 } })),
  subjectOf("bytes", MMA, "m <- n; n <- m; k <- g,j", mmaSchedule(32, 24, 16, { stage: 5 })),
  subjectOf("bytes", MMA, "m <- n; n <- m; k <- g,j", mmaSchedule(32, 8, 128, { stage: 3, fragments: "across" })),
  subjectOf("bytes", "wgmma.m64n24k16.f32.f16", "m <- n; n <- m; k <- g,j", wgmmaSchedule(64, 24, 32)),
  subjectOf("bytes", "wgmma.m64n24k16.f32.f16", "m <- n; n <- m; k <- g,j", wgmmaSchedule(64, 24, 32, { stage: 4 })),
  HELD,
  subjectOf("half bytes", `${GROUP_MMA}.rs`, "m <- n; n <- m; k <- g,b,h", wgmmaSchedule(64, 8, 64, { persistent: 2 })),
  subjectOf("bytes", `${GROUP_MMA}.rs`, "m <- n; n <- m; k <- g,j", wgmmaSchedule(128, 16, 64, { stage: 4 })),
  subjectOf(
    "half bytes",
    "wgmma.m64n24k16.f32.f16.rs",
    "m <- n; n <- m; k <- g,b,h",
    wgmmaSchedule(128, 24, 64, { stage: 2, fragments: "inline", warps: { m: 2, n: 1 } }),
  ),
];

describe("weights that a product of f16 makes numbers of", () => {
  itEqualsTheEquation(SUBJECTS);

  it("are made in the registers of the warp that multiplies them, of bytes in rows that lie in different banks", () => {
    const source = String(gridKernelOf(IN_REGISTERS).source);
    expect(source).not.toContain("a_ring");
    expect(source).toContain(`uint8_t w_of_a[${3 * 32 * 32}]`);
    const lines = source.split("\n");
    const first = lines.findIndex((line) => line.includes("w_of_a_piece_0 ="));
    expect(lines.slice(first, first + 11).join("\n")).toMatchInlineSnapshot(`
      "      const Piece<uint32_t, 2> w_of_a_piece_0 = *(const Piece<uint32_t, 2>*)&w_of_a[8 * lane + 1024 * step];
            const uint16_t s_of_a_piece_1 = s_of_a[s_of_a_from + 64 * step];
            a_[0][0] = multiplied_halves(added_halves(small_halves<0xf000f>(w_of_a_piece_0.values[0]), 0xe408e408u), spread_half(s_of_a_piece_1));
            a_[0][2] = multiplied_halves(fma_halves(small_halves<0xf000f0>(w_of_a_piece_0.values[0]), 0x2c002c00u, 0xd480d480u), spread_half(s_of_a_piece_1));
            a_[1][0] = multiplied_halves(added_halves(small_halves<0xf000f>(w_of_a_piece_0.values[0] >> 8), 0xe408e408u), spread_half(s_of_a_piece_1));
            a_[1][2] = multiplied_halves(fma_halves(small_halves<0xf000f0>(w_of_a_piece_0.values[0] >> 8), 0x2c002c00u, 0xd480d480u), spread_half(s_of_a_piece_1));
            a_[2][0] = multiplied_halves(added_halves(small_halves<0xf000f>(w_of_a_piece_0.values[1]), 0xe408e408u), spread_half(s_of_a_piece_1));
            a_[2][2] = multiplied_halves(fma_halves(small_halves<0xf000f0>(w_of_a_piece_0.values[1]), 0x2c002c00u, 0xd480d480u), spread_half(s_of_a_piece_1));
            a_[3][0] = multiplied_halves(added_halves(small_halves<0xf000f>(w_of_a_piece_0.values[1] >> 8), 0xe408e408u), spread_half(s_of_a_piece_1));
            a_[3][2] = multiplied_halves(fma_halves(small_halves<0xf000f0>(w_of_a_piece_0.values[1] >> 8), 0x2c002c00u, 0xd480d480u), spread_half(s_of_a_piece_1));
          }"
    `);
  });

  it("are loaded as runs, and the model counts these loads", () => {
    const { context, schedule } = IN_REGISTERS;
    const { shared } = stepCycles(context, schedule, nvidiaTarget("h100"), 1);
    // A lane reads four runs of 8 bytes, which take two cycles each, and their scales; the other factor has 8 rows of 128 bytes. Copies write 1 KB of
    // bytes, 128 bytes of scales, and these rows, which are eight lines; narrow copies of
    // scales look up a line for each of 32 rows.
    expect(shared).toBe(4 * 2 + 4 + 8 + (8 + 1) + 8 + 8 + 32);
  });

  it("are made while products of the other half of a step run, whose registers stay as they are until these have ended", () => {
    const { computation } = HELD.context.mapping;
    const nest = lowerGrid(HELD.context, HELD.schedule);
    const verdicts = (leave: (s: Statement) => boolean): string =>
      verdict({ nest: withoutStatements(nest, leave), computation });
    const isOf = (kind: Statement["kind"]) => (s: Statement) =>
      s.kind === kind && "of" in s && s.of === HELD.context.intrinsic;
    expect(verdicts(() => false)).toBe("right");
    expect(verdicts((s) => isOf("fence")(s) && s.kind === "fence" && s.on === "registers")).toContain(
      "no fence of registers",
    );
    expect(verdicts(isOf("wait"))).toContain("a{0} is used before the issue that takes it has ended");
  });

  it("are predicted without trees, which no such kernel taught", () => {
    const h100 = nvidiaTarget("h100");
    for (const { context, schedule } of SUBJECTS)
      expect(gridCosts(context, schedule, h100)).not.toHaveProperty("factor");
  });

  it("are wrong where the factors of a sum are taken in different orders", () => {
    const { context, schedule } = IN_REGISTERS;
    const { computation } = context.mapping;
    const nest = lowerGrid(context, schedule);
    const inOrder = (s: Statement): Statement => {
      if (s.kind === "loop") return { ...s, body: s.body.map(inOrder) };
      if (s.kind !== "fetch" || s.register.file !== "b") return s;
      const [stage = number(0), row = number(0)] = s.tile.access.index;
      return { ...s, tile: { ...s.tile, access: { ...s.tile.access, index: [stage, row, axis("k_in")] } } };
    };
    expect(verdict({ nest, computation })).toBe("right");
    expect(verdict({ nest: { ...nest, body: nest.body.map(inOrder) }, computation })).toBe("wrong");
  });

  it("are loaded four bytes at once, with one scale, and stored 16 bytes at once", () => {
    const { context } = AS_A;
    expect(context.inputs.map(({ width }) => width)).toEqual([8, 8]);
    const lines = String(gridKernelOf(AS_A).source).split("\n");
    const first = lines.findIndex((line) => line.includes("w_piece_0 ="));
    expect(lines.slice(first, first + 8).join("\n")).toMatchInlineSnapshot(`
      "    const Piece<uint32_t, 1> w_piece_0 = *(const Piece<uint32_t, 1>*)&w[w_from];
          const uint16_t s_piece_1 = s[s_from];
          {
            *(Piece<uint32_t, 4>*)&a_ring[a_ring_to] = {{
              multiplied_halves(fma_halves(joined_halves<0x4040>(w_piece_0.values[0], 0x64u) & 0xfff0ff0fu, 0x2c003c00u, 0xd480e408u), spread_half(s_piece_1)),
              multiplied_halves(fma_halves(joined_halves<0x4141>(w_piece_0.values[0], 0x64u) & 0xfff0ff0fu, 0x2c003c00u, 0xd480e408u), spread_half(s_piece_1)),
              multiplied_halves(fma_halves(joined_halves<0x4242>(w_piece_0.values[0], 0x64u) & 0xfff0ff0fu, 0x2c003c00u, 0xd480e408u), spread_half(s_piece_1)),
              multiplied_halves(fma_halves(joined_halves<0x4343>(w_piece_0.values[0], 0x64u) & 0xfff0ff0fu, 0x2c003c00u, 0xd480e408u), spread_half(s_piece_1)),"
    `);
  });
});
