/** @file The elements that lanes hold, derived from the table's formulas, against the manual and for every row. */

import { describe, expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { defineIntrinsic, lanesOf, type Operand, operandOf, readsShared } from "../../abstraction/intrinsic.ts";
import { heldElements, LANE, matricesOf, rowOfLane } from "../../codegen/cuda/fragment.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { rowNamed } from "../support/subjects.ts";

const held = (name: string, operand: string): string[] =>
  heldElements(rowNamed(name), operandOf(rowNamed(name), operand)).map((place) =>
    place.map((e) => printExpr(e, "index").replaceAll(LANE, "t")).join(" "),
  );

const LANES = Array.from({ length: 32 }, (_, lane) => lane);
const FRAGMENTS = INTRINSICS.filter((i) => i.operands.some((o) => o.file === "frag"));

describe("a lane's elements", () => {
  // PTX ISA, Matrix Fragments for mma.m16n8k16, .m16n8k8 and .m16n8k32: groupID is lane / 4, threadID_in_group lane % 4.
  it("are those that the manual draws", () => {
    expect(held("mma.m16n8k16.f32.f16", "c")).toEqual([
      "t/4 2*(t%4)",
      "t/4 2*(t%4)+1",
      "t/4+8 2*(t%4)",
      "t/4+8 2*(t%4)+1",
    ]);
    expect(held("mma.m16n8k16.f32.f16", "a")).toEqual([
      "t/4 2*(t%4)",
      "t/4 2*(t%4)+1",
      "t/4+8 2*(t%4)",
      "t/4+8 2*(t%4)+1",
      "t/4 2*(t%4)+8",
      "t/4 2*(t%4)+9",
      "t/4+8 2*(t%4)+8",
      "t/4+8 2*(t%4)+9",
    ]);
    expect(held("mma.m16n8k16.f32.f16", "b")).toEqual([
      "2*(t%4) t/4",
      "2*(t%4)+1 t/4",
      "2*(t%4)+8 t/4",
      "2*(t%4)+9 t/4",
    ]);
    expect(held("mma.m16n8k8.f32.tf32", "a")).toEqual(["t/4 t%4", "t/4+8 t%4", "t/4 t%4+4", "t/4+8 t%4+4"]);
    expect(held("mma.m16n8k32.s32.u8s8", "b")).toEqual([
      "4*(t%4) t/4",
      "4*(t%4)+1 t/4",
      "4*(t%4)+2 t/4",
      "4*(t%4)+3 t/4",
      "4*(t%4)+16 t/4",
      "4*(t%4)+17 t/4",
      "4*(t%4)+18 t/4",
      "4*(t%4)+19 t/4",
    ]);
  });

  it.each(FRAGMENTS.map((i) => [i.name, i] as const))("of %s lie where its storage formula says", (_, intrinsic) => {
    const lanes = Array.from({ length: lanesOf(intrinsic) }, (_, lane) => lane);
    const inRegisters = intrinsic.operands.filter((o) => !readsShared(o));
    const wrong = inRegisters.flatMap((operand) => {
      const { storage } = operand;
      if (!storage) throw new Error("a secret layout");
      const places = heldElements(intrinsic, operand);
      return places.flatMap((place, e) =>
        lanes.filter((lane) => {
          const at = place.map((p) => evaluateIndex(p, { [LANE]: lane }));
          const point = Object.fromEntries(operand.dims.map((d, i) => [d.name, at[i] ?? -1]));
          return evaluateIndex(storage, point) !== places.length * lane + e;
        }),
      );
    });
    expect(wrong).toEqual([]);
  });

  it("are refused for a secret layout, and for one that is not made of bits of the lane's number", () => {
    const wmma = rowNamed("wmma.m16n16k16.f32.f16");
    expect(() => heldElements(wmma, operandOf(wmma, "a"))).toThrow("which lane holds what of wmma.m16n16k16.f32.f16.a");
    const odd = defineIntrinsic({
      name: "odd",
      family: "odd",
      isa: "sm_80",
      language: "cuda",
      scope: "warp",
      summary: "",
      source: "",
      emit: "",
      compute: "c[l] = a[l]",
      extents: { l: 32 },
      operands: { c: { dtype: "f32", storage: "frag[l]" }, a: { dtype: "f32", storage: "frag[(l + 1)%32]" } },
    });
    expect(() => heldElements(odd, operandOf(odd, "a"))).toThrow("odd: l is no sum of the bits of a lane's number");
  });
});

describe("the rows of ldmatrix", () => {
  const rows = (name: string, operand: string, transposed: boolean, count = 4): string | undefined => {
    const on = rowNamed(name);
    const matrices = matricesOf(on, operandOf(on, operand), transposed);
    const place = rowOfLane(matrices, matrices.origins.slice(0, count));
    return `along ${matrices.along}: ${place?.map((e) => printExpr(e, "index").replaceAll(LANE, "t")).join(" ")}`;
  };

  it("have one address a lane", () => {
    expect(rows("mma.m16n8k16.f32.f16", "a", false)).toBe("along 1: t%16 8*(t/16)");
    expect(rows("mma.m16n8k16.f32.f16", "a", false, 2)).toBe("along 1: t%16 0");
    expect(rows("mma.m16n8k16.f32.f16", "a", true)).toBe("along 0: 8*(t/8%2) t%8+8*(t/16)");
    expect(rows("mma.m16n8k16.f32.f16", "b", false)).toBe("along 0: 8*(t/8%2) t%8");
    expect(rows("mma.m16n8k16.f32.f16", "b", true)).toBe("along 1: t%16 0");
    expect(rows("mma.m16n8k8.f32.tf32", "a", false)).toBe("along 1: t%16 4*(t/16)");
    expect(rows("mma.m16n8k32.s32.s8", "a", false)).toBe("along 1: t%16 16*(t/16)");
  });

  /** PTX ISA, ldmatrix: thread t receives 32 bits of row t/4 of matrix i in register i; with .trans, 16-bit elements of a column. */
  const given = (operand: Operand, transposed: boolean, bytes: Uint8Array[]): Uint8Array[] =>
    LANES.map((t) => {
      const size = operand.dtype === "tf32" ? 4 : operand.dtype.endsWith("8") ? 1 : 2;
      return Uint8Array.from(
        bytes.flatMap((matrix) =>
          transposed
            ? [0, 1].flatMap((e) =>
                [0, 1].map((b) => matrix[16 * (2 * (t % 4) + e) + size * Math.floor(t / 4) + b] ?? 0),
              )
            : [0, 1, 2, 3].map((b) => matrix[16 * Math.floor(t / 4) + 4 * (t % 4) + b] ?? 0),
        ),
      );
    });

  it.each([
    ["mma.m16n8k16.f32.f16", "a", false],
    ["mma.m16n8k16.f32.bf16", "a", true],
    ["mma.m16n8k16.f32.f16", "b", false],
    ["mma.m16n8k16.f32.f16", "b", true],
    ["mma.m16n8k8.f32.f16", "b", true],
    ["mma.m16n8k8.f32.tf32", "a", false],
    ["mma.m16n8k8.f32.tf32", "b", false],
    ["mma.m16n8k32.s32.s8", "a", false],
    ["mma.m16n8k32.s32.u8s8", "b", false],
  ] as const)("give the lanes of %s the elements of its %s, transposed: %s", (name, which, transposed) => {
    const intrinsic = rowNamed(name);
    const operand = operandOf(intrinsic, which);
    const { along, across, columns, origins } = matricesOf(intrinsic, operand, transposed);
    const size = 16 / columns;
    // The tile holds at each element its own number: two dimensions of at most 32, a byte is enough.
    const idOf = (place: readonly number[]): number =>
      (place[0] ?? 0) * (operand.dims[1]?.extent ?? 1) + (place[1] ?? 0);
    const matrices = origins.map((origin) => {
      const matrix = new Uint8Array(128);
      for (let r = 0; r < 8; r++)
        for (let c = 0; c < columns; c++) {
          const place = [0, 1].map((d) => (origin[d] ?? 0) + (d === along ? c : d === across ? r : 0));
          new DataView(matrix.buffer).setUint8(16 * r + size * c, idOf(place) % 251);
        }
      return matrix;
    });
    const lanes = given(operand, transposed, matrices);
    const wrong = heldElements(intrinsic, operand).flatMap((place, e) =>
      LANES.filter((lane) => {
        const want = idOf(place.map((p) => evaluateIndex(p, { [LANE]: lane }))) % 251;
        return lanes[lane]?.[e * size] !== want;
      }),
    );
    expect(wrong).toEqual([]);
  });

  it("are refused for operands that ldmatrix cannot load", () => {
    expect(() => rows("mma.m16n8k8.f32.tf32", "a", true)).toThrow(
      "ldmatrix.trans does not fill registers of mma.m16n8k8.f32.tf32.a",
    );
    expect(() => rows("mma.m16n8k32.s32.s8", "b", true)).toThrow("ldmatrix.trans does not fill");
  });
});
