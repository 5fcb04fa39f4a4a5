/** The bound of bench/conditions.ts: its programs do no more work than any kernel must. */
import { describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { tileWords, vectorWords } from "../bench/conditions-bound.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { plainSchedule } from "../mapper/schedule/mapped.ts";
import { createCounts } from "../perfmodel/counts.ts";

const product = (where: string, heads = 1): Computation =>
  defineComputation({
    equation: `c[h,i,j] += s32(x[h,i,k]) * s32(y[h,j,k])${where}`,
    extents: { h: heads, i: 96, j: 96, k: 160 },
    tensors: { x: "u8", y: "s8", c: "s32" },
  });

/** Products of tiles that the fewest issues of any mapping are. */
function issuesOf(computation: Computation): number {
  const [intrinsic] = intrinsicsNamed("amx.tdpbusd");
  if (!intrinsic) throw new Error("no amx.tdpbusd");
  const counts = mappings(computation, intrinsic, { reasons: false }).valid.map(
    (m) => createCounts(m)(plainSchedule(m))?.issues ?? Number.POSITIVE_INFINITY,
  );
  return Math.min(...counts);
}

/** Products of tiles that the program does. */
function productsIn([head = "", ...pairs]: readonly string[]): number {
  const steps = pairs.flatMap((pair) => (pair.split(":")[1] ?? "").split(",").map(Number));
  return 4 * Number(head.split(",")[1]) * steps.reduce((sum, n) => sum + n, 0);
}

describe("the program that measures the bound of tiles", () => {
  it("is given the blocks of a triangle, three quarters of the products on its edge, and no others", () => {
    expect(tileWords(product(" where j <= i"))).toEqual(["8,1,96,30720,15t", "0:2", "0:3,2", "0:3,3,2"]);
    expect(tileWords(product(" where i - j < 16 and j - i < 16", 3))).toEqual([
      "8,3,96,92160,45t",
      "0:3,0",
      "0:0,3,0",
      "32:0,3",
    ]);
  });

  it("transposes a factor that is no constant, and copies only its tiles that the edge crosses", () => {
    const factor = (where: string): string | undefined =>
      tileWords(
        defineComputation({
          equation: `c[i,j] += f32(x[i,k]) * f32(y[k,j])${where}`,
          extents: { i: 128, j: 64, k: 128 },
          tensors: { x: "bf16", y: { dtype: "bf16", constant: true }, c: "f32" },
        }),
      )[0];
    expect(factor("")).toBe("16,1,64,49152,0");
    // Two tiles a column, of the 8 by 4 tiles of x.
    expect(factor(" where k <= i")).toBe("16,1,64,32896,8c");
  });

  it("is given the vectors of a triangle, fewer where the kernel makes fewer issues", () => {
    const triangle = defineComputation({
      equation: "c[i,j] += x[i,k] * y[k,j] where j <= i",
      extents: { i: 64, j: 64, k: 48 },
      tensors: { x: "f32", y: { dtype: "f32", constant: true }, c: "f32" },
    });
    // Of 32 rows of two vectors 32 have the first and 16 the second: 48 * 48 / 96 steps; below them all 64.
    expect(vectorWords(triangle, 1e9)).toEqual(["32,1,64,24576,0", "0:24", "0:32,24"]);
    expect(vectorWords(triangle, (48 + 64 + 48) * 24)).toEqual(["32,1,64,24576,0", "0:12", "0:16,12"]);
  });

  it("does as many products as the fewest issues, or up to three fewer a block", () => {
    for (const where of ["", " where j <= i", " where i <= j", " where k <= i", " where i - j < 40 and j - i < 40"]) {
      const computation = product(where, 2);
      const told = productsIn(tileWords(computation));
      const needed = issuesOf(computation);
      expect(told, where).toBeLessThanOrEqual(needed);
      expect(told, where).toBeGreaterThanOrEqual(needed - 3 * 2 * 9);
    }
  });
});
