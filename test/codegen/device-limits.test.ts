/**
 * @file A kernel beyond a device's limits is refused when it is generated; tensors beyond 2^31 elements are indexed in
 * 64 bits.
 */

import { describe, expect, it } from "vitest";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { generateOpenCl } from "../../codegen/subgroup/opencl.ts";
import { generateSycl } from "../../codegen/subgroup/sycl.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappingOf } from "../../session/recorded.ts";
import { readNest } from "../support/nest-text.ts";
import { kernelsOf } from "../support/subgroup-kernels.ts";
import { operation, stated } from "../support/subjects.ts";

/** A copy by lanes, of so many blocks of sixteen elements; with the sum of each block, which lanes fold. */
function copied(blocks: number) {
  const computation = stated(`out[i] += x[i] --i ${16 * blocks} --dtype s32 --name copy`);
  const nest = readNest(`
    for parallel block in 0..${blocks}
      for lanes lane in 0..16
        out[16*block+lane] = x[16*block+lane]
        out[16*block] += x[16*block+lane]`);
  return { computation, nest };
}

describe("a design on lanes", () => {
  it.each(["sycl", "opencl"] as const)(
    "of 2^31 elements has 64-bit offsets in %s, a smaller one has 32-bit ones",
    (language) => {
      const text = (blocks: number): string => {
        const { computation, nest } = copied(blocks);
        return generateLanes(language, computation, nest, { lines: [] }).source;
      };
      const small = text(2 ** 27 - 1);
      const large = text(2 ** 27);
      for (const name of ["part", "lane", "step", "block"]) {
        expect(small, name).toMatch(new RegExp(`\\bint ${name} =`));
        expect(large, name).toMatch(new RegExp(`\\blong ${name} =`));
        expect(large, name).not.toMatch(new RegExp(`\\bint ${name} =`));
      }
    },
  );

  it("of 2^31 elements has counters of 64 bits in cuda", () => {
    const text = (blocks: number): string => {
      const { computation, nest } = copied(blocks);
      return generateLanes("cuda", computation, nest, { lines: [] }).source;
    };
    expect(text(2 ** 27 - 1)).toContain("const int block = ");
    expect(text(2 ** 27)).toContain("const long block = ");
  });

  it("is refused in CM where a surface would have 2^31 bytes", () => {
    const { computation, nest } = copied(2 ** 25);
    expect(() => generateLanes("cm", computation, nest, { lines: [] })).toThrow(
      expect.objectContaining({
        name: "UsageError",
        message: "CM: out has 2147483648 bytes, and a buffer surface fewer than 2^31",
      }),
    );
    const smaller = copied(2 ** 25 - 1);
    expect(generateLanes("cm", smaller.computation, smaller.nest, { lines: [] }).source).toContain("cm_group_id(0)");
  });
});

describe("local memory", () => {
  const computation = operation("matmul m=16 n=16 k=32", "f16");
  /** The text of a kernel whose nest keeps so many bytes for each thread. */
  function withOwn(row: string, bytes: number, print: typeof generateSycl): string {
    const intrinsic: Intrinsic | undefined = intrinsicNamed(row);
    const [made] = kernelsOf(computation, intrinsic ? [intrinsic] : [], 1);
    if (!intrinsic || !made || made.candidate.kind !== "mapping") throw new Error(`nothing was made of ${row}`);
    const nest = lowerSchedule(mappingOf(computation, made.candidate), made.candidate.schedule);
    const kept = nest.scratch
      .filter((s) => s.scope === "local")
      .reduce((all, s) => all + s.elements * bytesOf(s.dtype), 0);
    const own = { name: "own", dtype: "u8", elements: bytes - kept, scope: "local" } as const;
    return print(computation, intrinsic, { ...nest, scratch: [...nest.scratch, own] }, { lines: [] }).source;
  }

  it.each([
    ["sycl.joint.8x8x16.f32.f16", generateSycl, 64],
    ["sycl.joint.8x16x16.f32.f16", generateSycl, 128],
    ["opencl.dpas.8x8.f32.f16", generateOpenCl, 64],
    ["opencl.dpas.8x16.f32.f16", generateOpenCl, 128],
  ] as const)("of %s is what its device has", (row, print, kib) => {
    expect(() => withOwn(row, kib * 1024 + 64, print)).toThrow(
      expect.objectContaining({
        name: "UsageError",
        message: `a sub-group keeps ${kib * 1024 + 64} bytes of its own, and a work-group has ${kib * 1024} of local memory`,
      }),
    );
    expect(withOwn(row, kib * 1024, print)).toContain("automap");
  });
});
