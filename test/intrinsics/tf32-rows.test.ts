/** @file Matrix products of tf32 in OpenCL C: by the functions of the extension and by those of an older compiler. */

import { describe, expect, it } from "vitest";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { compileForIntel, findOcloc, promisedDpas } from "../../runtime/ocloc.ts";
import { sourceOf } from "../support/source.ts";
import { disagreements, kernelsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const row = intrinsicNamed("opencl.dpas.8x16.f32.tf32");
const made = kernelsOf(operation("matmul m=21 n=37 k=19", "tf32"), row ? [row] : [], 2);
const EXTENSION = "cl_intel_subgroup_matrix_multiply_accumulate_tf32";
const ocloc = findOcloc();

describe("a product of tf32", () => {
  it("is right with the functions of the extension", async () => {
    expect(String(made[0]?.kernel.source)).toContain(`#ifdef ${EXTENSION}`);
    expect(await disagreements(made)).toEqual([]);
  });

  it("is right with the functions of an older compiler", async () => {
    const older = made.map((one) => ({
      ...one,
      kernel: { ...one.kernel, source: sourceOf(String(one.kernel.source).replaceAll(EXTENSION, "no_such_extension")) },
    }));
    expect(await disagreements(older)).toEqual([]);
  });

  it.skipIf(ocloc === undefined)(
    `is compiled without a spill to as many products as its source issues${ocloc ? "" : " (skipped: no ocloc)"}`,
    async () => {
      const [one] = made;
      if (!one || ocloc === undefined) throw new Error("nothing was made");
      const built = await compileForIntel(one.kernel, "pvc", ocloc);
      if (built.status !== "compiled") throw new Error(`${built.status}: ${built.log}`);
      const found = built.functions.filter((f) => f.dpas > 0).map((f) => [f.name, f.dpas]);
      expect(found).toEqual([...promisedDpas(one.kernel)].filter(([, count]) => count > 0));
      expect(found).not.toEqual([]);
    },
  );
});
