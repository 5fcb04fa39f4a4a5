/** The bound of bench/conditions.ts: what its programs are told to do is no more than every kernel does. */
import { describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { tileWords } from "../bench/conditions-bound.ts";
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

describe("the program that bounds tiles", () => {
  it("is told the blocks of a triangle, three quarters of the products on its edge, and of no others", () => {
    expect(tileWords(product(" where j <= i"))).toEqual(["8,1,96,30720", "0:2", "0:3,2", "0:3,3,2"]);
    expect(tileWords(product(" where i - j < 16 and j - i < 16", 3))).toEqual([
      "8,3,96,92160",
      "0:3,0",
      "0:0,3,0",
      "32:0,3",
    ]);
  });

  it("does as many products as the fewest issues, or up to three fewer a block", () => {
    for (const where of ["", " where j <= i", " where i <= j", " where k <= i", " where i - j < 40 and j - i < 40"]) {
      const computation = product(where, 2);
      const [told, needed] = [productsIn(tileWords(computation)), issuesOf(computation)];
      expect(told, where).toBeLessThanOrEqual(needed);
      expect(told, where).toBeGreaterThanOrEqual(needed - 3 * 2 * 9);
    }
  });
});
