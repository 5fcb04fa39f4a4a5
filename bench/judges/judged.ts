/**
 * @file Random candidates, checked: each is lowered and interpreted, and must equal its equation in every element.
 *
 *     npm run build
 *     node dist/bench/judges/judged.js             10,000 candidates of CPUs, 1,250 of blocks and warps: some ten minutes
 *     node dist/bench/judges/judged.js --cpu 1000 --grid 100 --seed 7
 *
 * CPU candidates are drawn, mutated and crossed, on one thread and several, and run twice in a row. Those of blocks and
 * warps (products of s8) run in adverse orders, where a race is an error. Prints a line a kind. Exit code 1: error.
 */

import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { pick, type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { INTRINSICS, intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { GRID } from "../../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../../mapper/schedule/grid-context.ts";
import { randomSchedule, unschedulable } from "../../mapper/schedule/mapped.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { type OperandTypes, operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { crossSchedules, mutateSchedule } from "../../test/support/mapped.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    cpu: { type: "string", default: "10000" },
    grid: { type: "string", default: "1250" },
    seed: { type: "string", default: "1" },
  },
});

/** Sizes that no tile divides, with strides, groups and padding. */
const OPERATORS = [
  { operator: "conv2d", parameters: { c: 5, k: 18, h: 5, w: 6, r: 3, s: 3 }, layouts: "NHWC" },
  { operator: "conv2d", parameters: { c: 4, k: 16, h: 6, w: 5, r: 3, s: 3, stride: 2, pad: 2 }, layouts: "NCHW" },
  { operator: "grouped-conv2d", parameters: { c: 12, k: 6, h: 4, w: 4, r: 3, s: 3, groups: 3 }, layouts: "NHWC" },
  { operator: "depthwise-conv2d", parameters: { c: 17, h: 5, w: 6, m: 1, r: 3, s: 3 }, layouts: "NHWC" },
  { operator: "transposed-conv2d", parameters: { c: 4, k: 3, h: 3, w: 4, r: 3, s: 3, stride: 2, pad: 1 } },
  { operator: "matmul", parameters: { m: 7, n: 37, k: 9 } },
] as const;
const INSTRUCTIONS = [
  "avx512.fma.f32.broadcast",
  "avx512.fma.f32",
  "avx2.fma.f32.broadcast",
  "avx512.vpdpbusd",
  "avx512.vpdpbusd.lanes",
  "avx512.vdpbf16ps",
  "amx.tdpbusd",
  "amx.tdpbf16ps",
  "toy.2x2x2",
];

/** Small integers, which every type represents exactly. */
function inputsFor(computation: Computation, random: Random): Inputs {
  return Object.fromEntries(
    inputsOf(computation).map(({ dims, dtype, ...t }) => {
      const least = dtype.startsWith("u") ? 0 : -3;
      const tensor = { ...t, dims, dtype };
      return [t.name, Float64Array.from({ length: elementCount(tensor) }, () => randomInteger(random, least, 3))];
    }),
  );
}

function judge(found: Values, expected: Values, subject: () => string): void {
  const wrong = expected.findIndex((x, i) => x !== found[i]);
  if (wrong < 0 && found.length === expected.length) return;
  console.error(`element ${wrong} is ${found[wrong]}, the equation gives ${expected[wrong]}\n${subject()}`);
  process.exit(1);
}

/** Judges candidates of the kinds in turn until the count is reached. */
function judged(what: string, count: number, kinds: readonly (() => boolean)[]): void {
  const begun = performance.now();
  let done = 0;
  for (let i = 0; done < count; i++) {
    if (kinds[i % kinds.length]?.()) done++;
    if (i > 100 * count) throw new Error(`only ${done} of ${count} could be drawn`);
    if (i % 500 === 499) console.error(`${what}: ${done} of ${count}`);
  }
  console.log(`${what}: ${done} candidates equal the equation, ${((performance.now() - begun) / 1000).toFixed(0)} s`);
}

const random = seededRandom(Number(values.seed));

const onCpus = OPERATORS.flatMap(({ operator, parameters, ...rest }) =>
  INSTRUCTIONS.flatMap((name) => {
    const [intrinsic] = intrinsicsNamed(name);
    const [c, a, b] = intrinsic?.operands ?? [];
    if (!intrinsic || !a || !b || !c) throw new Error(`no instruction ${name} of two inputs`);
    const types: OperandTypes = { inputs: [a.dtype, b.dtype], sum: c.dtype };
    const computation = instantiate(operatorNamed(operator), { parameters, types, ...rest });
    const valid = mappings(computation, intrinsic).valid.filter((m) => unschedulable(m) === undefined);
    if (valid.length === 0) return [];
    const inputs = inputsFor(computation, random);
    const expected = interpret(computation, inputs);
    return [
      (): boolean => {
        const mapping = pick(random, valid);
        const threads = pick(random, [1, 1, 3]);
        const draw = (): ReturnType<typeof randomSchedule> => randomSchedule(mapping, random, threads);
        let schedule = pick(random, [draw, () => crossSchedules(mapping, draw(), draw(), random)])();
        for (let steps = randomInteger(random, 0, 3); steps > 0; steps--)
          schedule = mutateSchedule(mapping, schedule, random);
        const found = interpretNest(lowerSchedule(mapping, schedule), computation, inputs, 2);
        judge(found, expected, () => `${operator} on ${name} ${JSON.stringify([mapping.matching, schedule])}`);
        return true;
      },
    ];
  }),
);
judged("CPUs", Number(values.cpu), onCpus);

const MOST_WORK = 150_000;
const size = { m: 16, n: 24, k: 64 };

/** Multiply-adds of a schedule including padding, a measure of the interpreter's cost. */
function workOf({ rows, columns, sum }: GridContext, { tile }: GridSchedule): number {
  return [rows, columns, sum].reduce((product, { axis, elements }) => {
    const along = tile[axis] ?? 1;
    return product * Math.ceil(elements / along) * along;
  }, 1);
}

const product = instantiate(operatorNamed("matmul"), { parameters: size, types: { inputs: ["s8", "s8"], sum: "s32" } });
const limits = gridLimits(nvidiaTarget("h100"));
const contexts = INTRINSICS.filter((i) => i.scope === "warp").flatMap((intrinsic) =>
  mappings(product, intrinsic).valid.flatMap((mapping) => {
    const context = gridContext(mapping, limits);
    return typeof context === "string" ? [] : [context];
  }),
);
const inputs = inputsFor(product, random);
const expected = interpret(product, inputs);
let turn = 0;
judged("blocks and warps, s8", Number(values.grid), [
  (): boolean => {
    const context = pick(random, contexts);
    const schedule = drawSchedule(GRID, context, random);
    if (!schedule || workOf(context, schedule) > MOST_WORK) return false;
    const order = ADVERSE_ORDERS[turn++ % ADVERSE_ORDERS.length] ?? {};
    const found = interpretNest(lowerGrid(context, schedule), product, inputs, 1, order);
    judge(found, expected, () => `${context.intrinsic.name} ${JSON.stringify(schedule)}`);
    return true;
  },
]);
