/**
 * @file Emitted programs of systolic designs and of SSAM kernels, compiled against emulation headers, run, and equal to
 * their equation.
 */

import { describe, expect, it } from "vitest";
import type { WarpWindowSchedule } from "../../abstraction/candidate.ts";
import { elementCount, inputsOf } from "../../abstraction/computation.ts";
import { type ArrayPass, arrayPass, recurrenceOf } from "../../mapper/space-time/derive.ts";
import { type Design, designOf } from "../../mapper/space-time/design.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { type LowerOptions, lowerDesign } from "../../mapper/space-time/lower.ts";
import { lowerWarpWindow } from "../../mapper/space-time/lower-window.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { nativeTarget } from "../../targets/index.ts";
import { convolution1d, convolution2d, FORMS, type LaneProgram, wrongEmulated } from "../support/space-time.ts";

/** Compilers on a busy machine. */
/** All twelve designs of a 1-D convolution by name, and SBM and FBS of a 2-D one, whose steps are p + KP*q. */
function designs(forms: readonly LowerOptions[]): LaneProgram[] {
  const line = arrayPass(convolution1d(16, 5));
  const found = enumerateDesigns(line.problem, { bound: 1, arrayRows: 1 }).designs;
  const subjects: { design: Design; pass: ArrayPass }[] = found.map((design) => ({ design, pass: line }));
  for (const side of [2, 5]) {
    const image = arrayPass(convolution2d(16, side, side), { loops: ["c", "p", "q"] });
    for (const [name, allocation] of Object.entries({ SBM: [1, 0, 1], FBS: [1, 0, 0] })) {
      const spaceTime = { allocation: [allocation], schedule: [[0, 1, side]] };
      subjects.push({ design: designOf(image.problem, spaceTime, name), pass: image });
    }
  }
  return subjects.flatMap(({ design, pass }) =>
    forms.map((form) => ({
      label: `${pass.computation.name} ${design.name} ${JSON.stringify(form)}`,
      computation: pass.computation,
      nest: lowerDesign(recurrenceOf(pass, design), design.spaceTime, form),
    })),
  );
}

describe("named designs", () => {
  it("emitted as CM equal the convolution, plain and coalesced", async () => {
    const subjects = designs(FORMS.filter((f) => f.checkTime === f.coalesced));
    expect(subjects.length).toBe(2 * (12 + 4));
    expect(await wrongEmulated("cm", subjects)).toEqual([]);
  });

  it("emitted as CUDA equal the convolution", async () => {
    expect(await wrongEmulated("cuda", designs(FORMS.slice(2, 3)))).toEqual([]);
  });

  const avx512 = nativeTarget().isa.includes("avx512f");
  it.skipIf(!avx512)(`emitted as AVX-512 equal the convolution${avx512 ? "" : " (skipped: no avx512f)"}`, async () => {
    expect(await wrongEmulated("c++", designs(FORMS.slice(2, 3)))).toEqual([]);
  });
});

/** A block of one warp, as CUDA runs it. */
function ssam(changes: Partial<WarpWindowSchedule> = {}): WarpWindowSchedule {
  return {
    dataflow: "SBM",
    lanes: 32,
    rows: 4,
    vectors: 1,
    rolled: [],
    ...changes,
  };
}

describe("SSAM kernels", () => {
  it("emitted as CUDA equal the equation: a sample of filters and stencils in f32 and f64", async () => {
    const of = (operator: string, parameters: Readonly<Record<string, number>>, types: string): LaneProgram => {
      const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });
      return {
        label: `${operator} ${JSON.stringify(parameters)} ${types}`,
        computation,
        nest: lowerWarpWindow(computation, ssam(operator === "conv1d-single" ? { rows: 1 } : {})),
      };
    };
    const subjects = ["f32", "f64"].flatMap((types) => [
      of("conv1d-single", { l: 97, r: 9 }, types),
      of("conv2d-single", { h: 9, w: 70, r: 3, s: 3 }, types),
      of("conv2d-single", { h: 11, w: 41, r: 5, s: 5 }, types),
      of("2d9pt", { h: 9, w: 40 }, types),
      of("2d25pt", { h: 9, w: 33 }, types),
      of("3d7pt", { d: 4, h: 5, w: 35 }, types),
    ]);
    expect(await wrongEmulated("cuda", subjects)).toEqual([]);
    expect(subjects.every(({ computation }) => inputsOf(computation).every((t) => elementCount(t) > 0))).toBe(true);
  });
});
