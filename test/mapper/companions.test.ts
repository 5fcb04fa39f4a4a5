/**
 * Companion blocks: blocks without points are zeroed within the products of others, so that every element is written.
 */
import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { companionsOf } from "../../mapper/lower/companions.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { plainSchedule } from "../../mapper/schedule/mapped.ts";
import { inFull } from "../support/slow.ts";
import { mappingsOnto, smallIntegers, stated } from "../support/subjects.ts";

const product = (where: string, i: number, j: number, k: number): Computation =>
  stated(`c[i,j] += x[i,k] * y[k,j] where ${where} --i ${i} --j ${j} --k ${k}`);

/** Sixteen columns at a time. */
function broadcast(computation: Computation): Mapping {
  const [intrinsic] = intrinsicsNamed("avx512.fma.f32.broadcast");
  const found = intrinsic && mappingsOnto(computation, intrinsic);
  const mapping = found?.find((m) => m.matching.n?.join() === "j");
  if (!mapping) throw new Error("j is not matched");
  return mapping;
}

/** A nest from the products of a block on, as far as they are done. */
function stepsOf(where: string, i: number, j: number, k: number): string {
  const mapping = broadcast(product(where, i, j, k));
  const text = printNest(lowerSchedule(mapping, { ...plainSchedule(mapping), block: { i: 4 } }));
  return text.slice(text.indexOf("for k_outer"), text.indexOf("b_register{0} <-"));
}

describe("companion blocks, which zero the elements outside a triangle or a band", () => {
  it("are the opposite block in a triangle, and those at a band's distance in a band", () => {
    expect(companionsOf([4, 4], ([i = 0, j = 0]) => j <= i)).toEqual({ kind: "opposite" });
    const shifted = { kind: "shifted", dimension: 1, distance: 3, times: 2 };
    expect(companionsOf([7, 9], ([i = 0, j = 0]) => Math.abs(i - j) < 2)).toEqual(shifted);
    // Where all or nothing takes part there is nothing to share out.
    expect(companionsOf([3, 3], () => true)).toEqual({ kind: "opposite" });
    expect(companionsOf([3, 3], () => false)).toEqual({ kind: "opposite" });
  });

  it("are stored as registers of zeros in the steps of the summed loop", () => {
    expect(stepsOf("j <= i", 64, 64, 3)).toMatchInlineSnapshot(`
      "for k_outer in 0..3
              when 4*i_outer > 16*j_outer+15
                when k_outer*2 < 4
                  c[((15 - i_outer)*4 + k_outer*2)*64 + (3 - j_outer)*16 .. by 16] <- c_zeros{0}
                when k_outer*2+1 < 4
                  c[((15 - i_outer)*4 + (k_outer*2 + 1))*64 + (3 - j_outer)*16 .. by 16] <- c_zeros{0}
              "
    `);
    expect(stepsOf("i - j < 8 and j - i < 8", 64, 96, 4)).toMatchInlineSnapshot(`
      "for k_outer in 0..4
              when i_outer*4*-1+(j_outer+2)%6*16+22 < 0 or (j_outer+2)%6*16*-1+i_outer*4+10 < 0
                c[(i_outer*4 + k_outer)*96 + (j_outer + 2)%6*16 .. by 16] <- c_zeros{0}
              when i_outer*4*-1+(j_outer+4)%6*16+22 < 0 or (j_outer+4)%6*16*-1+i_outer*4+10 < 0
                c[(i_outer*4 + k_outer)*96 + (j_outer + 4)%6*16 .. by 16] <- c_zeros{0}
              "
    `);
  });

  it("leave no element unwritten, whatever the band, the blocks and the order of loops", () => {
    const random = seededRandom(3);
    for (let n = inFull(200, 12); n > 0; n--) {
      const low = randomInteger(random, 1, 40);
      const high = randomInteger(random, 0, 40);
      const where = pick(random, [`i - j < ${low} and j - i < ${high}`, "j <= i", `j <= i and i - j < ${low}`]);
      const computation = product(
        where,
        randomInteger(random, 24, 48),
        randomInteger(random, 20, 150),
        randomInteger(random, 1, 6),
      );
      const mapping = broadcast(computation);
      const block = { i: randomInteger(random, 1, 4), ...(random() < 0.5 && { k: 1 }) };
      const order = pick(random, [
        ["i", "j", "k"],
        ["j", "i", "k"],
        ["i/2", "j", "i", "k"],
      ]);
      const schedule = { ...plainSchedule(mapping, randomInteger(random, 1, 2)), block, order };
      const inputs = smallIntegers(computation, random);
      const got = interpretNest(lowerSchedule(mapping, schedule), computation, inputs, 2);
      expect(got, `${where} ${JSON.stringify([computation.axes, schedule])}`).toEqual(interpret(computation, inputs));
    }
  });
});
