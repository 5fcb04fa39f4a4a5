/**
 * @file One candidate in five languages: golden files side by side, each equal to the equation; what a language cannot say is refused with its reason.
 * Designs on lanes stand beside one another in codegen-lanes.deep.test.ts.
 */

import { describe, expect, it } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import { KERNEL_LANGUAGES, type KernelLanguage } from "../../abstraction/kernel.ts";
import { withoutDoubles } from "../../codegen/subgroup/subgroup.ts";
import { INTRINSICS, intrinsicNamed } from "../../intrinsics/index.ts";
import { kernelInLanguage } from "../../session/kinds/languages.ts";
import { nativeTarget, runsOn } from "../../targets/index.ts";
import { MALI_G76 } from "../../targets/mali-gpus.ts";
import { sourceOf } from "../support/source.ts";
import { disagreements, kernelsOf, type Made } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const EXTENSIONS = { "c++": "cpp", cuda: "cu", cm: "cm", opencl: "cl", sycl: "sycl.cpp" } as const;
const CASES = [
  {
    name: "matmul.fma",
    row: "opencl.fma.f32.broadcast",
    computation: operation("matmul m=5 n=37 k=9"),
    refused: ["cuda: no instruction computes c[n] += a[] * b[n] of c f32, a f32, b f32 with n 16"],
  },
  {
    name: "matmul.tile",
    row: "opencl.dpas.8x16.f32.f16",
    computation: operation("matmul m=21 n=19 k=37", "f16"),
    refused: ["c++", "cuda"].map(
      (language) =>
        `${language}: no instruction computes c[m,n] += f32(a[m,k]) * f32(b[k,n]) of c f32, a f16, b f16 with m 8, n 16, k 16`,
    ),
  },
] as const;

describe.each(CASES)("$name on $row", ({ name, row, computation, refused }) => {
  const intrinsic = intrinsicNamed(row);
  const [made] = kernelsOf(computation, intrinsic ? [intrinsic] : [], 1);
  if (!made) throw new Error(`${name}: nothing was made`);
  const { candidate } = made;
  const said = KERNEL_LANGUAGES.map(
    (language) => [language, kernelInLanguage(computation, candidate, language)] as const,
  );
  const kernels = said.flatMap(([language, kernel]): (Made & { readonly language: KernelLanguage })[] =>
    "refused" in kernel ? [] : [{ language, computation, candidate, kernel }],
  );

  it("equals its golden file in each language that can express it", async () => {
    for (const { language, kernel } of kernels)
      await expect(kernel.source.replace(/(made by +automap) .*/, "$1")).toMatchFileSnapshot(
        `../golden/${name}.${EXTENSIONS[language]}`,
      );
  });

  it("is refused by the others with a reason", () => {
    const reasons = said.flatMap(([, kernel]) => ("refused" in kernel ? [kernel.refused] : []));
    expect(reasons).toEqual(refused);
  });

  it("is refused as a grid or a design, which have languages of their own", () => {
    const lanes = { kind: "window", intrinsic: "avx512.fma.f32", schedule: {} } as unknown as Candidate; // nothing of it is looked at
    expect(kernelInLanguage(computation, lanes, "sycl")).toEqual({
      refused: "sycl: only a mapping under the schedule of a CPU changes its language",
    });
  });

  it("equals the equation in each of them", async () => {
    const here = kernels.filter(({ kernel }) => kernel.language !== "c++" || runsOn(nativeTarget(), kernel));
    expect(await disagreements(here)).toEqual([]);
  });
});

describe("a language that cannot express a candidate", () => {
  const said = (row: string, types: string, epilogue: string, language: KernelLanguage, own = row): string => {
    const intrinsic = intrinsicNamed(row);
    const computation = operation("matmul m=16 n=16 k=32", types, { epilogue });
    const plain = operation("matmul m=16 n=16 k=32", types);
    const [made] = kernelsOf(plain, intrinsic ? [intrinsic] : [], 1);
    if (!made) throw new Error(`nothing was made of ${row}`);
    const candidate = { ...made.candidate, intrinsic: own } as Candidate; // a row of the same shape
    const kernel = kernelInLanguage(computation, candidate, language);
    return "refused" in kernel ? kernel.refused : "written";
  };

  it("is refused with the reason, as any other", () => {
    expect(said("opencl.dpas.8x16.f32.f16", "f16", "res[m,n] = exp(out[m,n])", "cm", "dpas.8x16.f32.f16")).toBe(
      "cm: dpas.8x16.f32.f16: CM: no documented function computes exp as exactly as the equation says",
    );
  });

  it("is OpenCL C with doubles for a Mali, which has none although its emulation does", () => {
    const rows = INTRINSICS.filter(({ isa }) => MALI_G76.isa.includes(isa));
    expect(rows.map(({ name }) => name)).toContain("mali.arm_dot");
    for (const row of rows) {
      expect(() => withoutDoubles(sourceOf("double sum;"), row), row.name).toThrow("computes in double precision");
      expect(() => withoutDoubles(sourceOf("float sum; /* not double */"), row), row.name).not.toThrow();
    }
  });

  it("is SYCL for DG2 where a result is rounded twice, but not SYCL for PVC", () => {
    const narrowed = "res[m,n] = f16(out[m,n])";
    expect(said("sycl.fma.8.s32.s8.broadcast", "s8", narrowed, "sycl")).toBe(
      "sycl: sycl.fma.8.s32.s8.broadcast: the kernel computes in double precision, which the GPU does not have",
    );
    expect(said("sycl.fma.16.s32.s8.broadcast", "s8", narrowed, "sycl")).toBe("written");
  });
});
