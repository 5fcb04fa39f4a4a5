/** @file Schedules a second that the latency model evaluates on one core. Goal: 200,000, or 5 microseconds each. */

import { bench, describe } from "vitest";
import { internal } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { createModel, createTerms } from "../../perfmodel/model.ts";
import { Plan } from "../../perfmodel/plan.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { nativeTarget } from "../../targets/native.ts";
import { mutateSchedule } from "../../test/support/mapped.ts";

const CASES = [
  { operator: "conv2d", types: "u8s8", layouts: "NHWC", intrinsic: "avx512.vpdpbusd" },
  { operator: "conv2d", types: "f32", layouts: "NCHW", intrinsic: "avx512.fma.f32.broadcast" },
  { operator: "matmul", types: "f32", layouts: {}, intrinsic: "avx512.fma.f32.broadcast" },
];

describe("evaluations of the latency model", () => {
  for (const { operator, types, layouts, intrinsic: name } of CASES) {
    const computation = instantiate(operatorNamed(operator), { types: parseDataTypes(types), layouts });
    const mapping =
      mappings(computation, intrinsicsNamed(name)[0] ?? internal(name)).valid.at(-1) ?? internal(operator);
    const random = seededRandom(1);
    const schedules = Array.from({ length: 512 }, () =>
      mutateSchedule(mapping, randomSchedule(mapping, random, 2), random),
    );
    const target = modelTarget(nativeTarget());
    const predict = createModel(mapping, target);
    const termsOf = createTerms(mapping, target);
    let turn = 0;
    const next = () => schedules[turn++ % schedules.length] ?? internal("schedule");
    bench(`${operator} ${types}: prediction`, () => {
      predict(next());
    });
    // A prediction first asks its plan whether the schedule can be lowered. The decisions answer the same in words.
    const legality = new Plan(mapping);
    bench(`${operator} ${types}: legality by the plan`, () => {
      legality.read(next());
    });
    bench(`${operator} ${types}: legality by the decisions`, () => {
      scheduleProblem(mapping, { ...next() });
    });
    bench(`${operator} ${types}: terms`, () => {
      termsOf(next());
    });
  }
});
