/**
 * @file Random lane designs: filters, stencils and sums of every rank, with strides, dilation, padding, borders,
 * channels, narrow types and epilogues. Also any enumerated design in the four forms of its registers.
 */

import type { ArrayPlan, DesignSchedule, WarpDesignSchedule } from "../../../abstraction/candidate.ts";
import { type Computation, computationKey, defineComputation, outputOf } from "../../../abstraction/computation.ts";
import type { DType } from "../../../abstraction/dtype.ts";
import { partsOf } from "../../../abstraction/epilogue.ts";
import { UsageError } from "../../../abstraction/error.ts";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";
import type { SpaceTime } from "../../../abstraction/recurrence.ts";
import { finished } from "../../../abstraction/steps.ts";
import { arrayPass, derive } from "../../../mapper/space-time/derive.ts";
import { designSpace } from "../../../mapper/space-time/enumerate.ts";
import { arrayDesigns, placeArray } from "../../../mapper/space-time/lane-array.ts";
import { lowerDesign } from "../../../mapper/space-time/lower.ts";
import { parseDataTypes } from "../../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../../operators/index.ts";
import { ADVERSE_ORDERS } from "../../../runtime/emulated-kernel.ts";
import { kernelFor } from "../../../session/kinds/kernel.ts";
import { lanesFor } from "../../../tuner/warp-array-candidates.ts";
import { lowerArray } from "../arrays.ts";
import { type Drawn, type DrawnKind, smallInputs } from "./drawn.ts";

const make = (operator: string, parameters: Readonly<Record<string, number>>, types = "f32"): Computation =>
  instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });

export const EPILOGUE = defineComputation({
  name: "filter and rectify",
  equation: "sum[k,i,j] += s32(x[i+r,2*j+s]) * s32(w[k,r,s])",
  epilogue: "y[k,i,j] = sat_u8(max(sum[k,i,j] + b[k], 0))",
  extents: { k: 3, i: 4, j: 19, r: 2, s: 3 },
  tensors: { x: "u8", w: "s8", b: "s32" },
});

export const ARRAY_OPERATORS: readonly ((random: Random) => Computation)[] = [
  (r) =>
    make("conv1d-single", {
      l: randomInteger(r, 20, 59),
      r: randomInteger(r, 2, 6),
      stride: randomInteger(r, 1, 2),
    }),
  (r) =>
    make(
      "conv1d",
      { n: 1, c: 2, k: 3, l: randomInteger(r, 20, 39), r: 3, stride: randomInteger(r, 1, 3) },
      pick(r, ["f32", "f64", "s32"]),
    ),
  (r) =>
    make(
      "conv2d-single",
      { h: randomInteger(r, 5, 8), w: randomInteger(r, 18, 41), r: 3, s: 3, pad: randomInteger(r, 0, 1) },
      pick(r, ["f32", "s16", "f16"]),
    ),
  (r) =>
    make(
      "conv2d",
      { n: 1, c: 2, k: 4, h: 5, w: randomInteger(r, 12, 23), r: 3, s: 2, pad: 1, stride: randomInteger(r, 1, 2) },
      pick(r, ["f32", "u8s8", "bf16"]),
    ),
  (r) => make("dilated-conv2d", { n: 1, c: 2, k: 2, h: 9, w: randomInteger(r, 20, 25), r: 2, s: 3 }),
  (r) => make("depthwise-conv2d", { n: 1, c: 3, h: 6, w: randomInteger(r, 14, 22), m: 1 }, pick(r, ["f32", "bf16"])),
  (r) => make("conv3d", { n: 1, c: 2, k: 2, d: 4, h: 4, w: randomInteger(r, 9, 17), t: 2, r: 2, s: 2 }),
  (r) => make(pick(r, ["2d5pt", "2d9pt"]), { h: 6, w: randomInteger(r, 19, 27) }, pick(r, ["f32", "f64"])),
  (r) => make("3d7pt", { d: 4, h: 5, w: randomInteger(r, 17, 25) }),
  (r) => make("matmul", { m: 3, n: randomInteger(r, 15, 23), k: 5 }),
  () => EPILOGUE,
  (r) =>
    make(
      "conv2d-single",
      { h: randomInteger(r, 5, 8), w: randomInteger(r, 18, 60), r: randomInteger(r, 1, 3), s: randomInteger(r, 1, 9) },
      pick(r, ["s16", "u8s8", "s8u8", "s8"]),
    ),
  (r) => {
    const how = pick(r, ["clamp", "reflect", "wrap"]);
    return defineComputation({
      name: how,
      equation: `y[i,j] += x[${how}(i+r-1),${how}(j+s-1)] * w[r,s]`,
      extents: { i: 5, j: randomInteger(r, 18, 31), r: 3, s: 3 },
      tensors: { x: "f32", w: "f32" },
    });
  },
];

/** Weighted by repetition; dot products are rare because few computations have them. */
const INPUTS = ["passed", "passed", "loaded", "loaded", "dots"] as const;
/** Schedules drawn for one computation, since enumerating its designs is as expensive as judging some. */
const OF_ONE = 8;

function besideOf({ axes }: Computation, { transform, tile }: ArrayPlan, random: Random): DesignSchedule["beside"] {
  const outside = axes.filter(
    (a) => a.kind === "spatial" && a.extent > 1 && (!transform.loops.includes(a.name) || tile[a.name]),
  );
  return Object.fromEntries(
    outside.flatMap((a) => (random() < 0.5 ? [[a.name, randomInteger(random, 1, 3)] as const] : [])),
  );
}

export function drawArrays(random: Random, count = OF_ONE): readonly Drawn[] {
  const computation = pick(random, ARRAY_OPERATORS)(random);
  const inputs = smallInputs(computation, randomInteger(random, 1, 1e9));
  const designs = finished(arrayDesigns(computation, pick(random, [8, 16]), pick(random, [2, 2, 3])));
  if ("rule" in designs) return [{ status: "refused", because: designs.because }];
  return Array.from({ length: count }, (): Drawn => {
    const { plan, dataflow } = pick(random, designs.fitting);
    const beside = besideOf(computation, plan, random);
    const schedule: DesignSchedule = {
      ...plan,
      beside,
      inputs: pick(random, INPUTS),
      streaming: false,
      threads: 1,
    };
    const placed = placeArray(computation, schedule);
    if (!placed.ok) return { status: "refused", because: placed.refusal.because };
    const said = `${dataflow} of ${computationKey(computation)} by ${JSON.stringify(schedule)}`;
    return { status: "nest", said, computation, inputs, nest: () => lowerArray(computation, schedule) };
  });
}

/** Boxes small enough that a design runs quickly lane by lane. */
const SMALL: readonly (readonly [Computation, rows: number])[] = [
  [["out[c] += x[c+q] * w[q]", { c: 16, q: 5 }] as const, 1] as const,
  [["out[c] += x[2*c+q] * w[q]", { c: 7, q: 5 }] as const, 1] as const,
  [["out[c] += x[p,c+q] * w[p,q]", { c: 3, p: 2, q: 2 }] as const, 1] as const,
  [["out[c] += x[p,c+q] * w[p,q]", { c: 4, p: 3, q: 2 }] as const, 2] as const,
  [["out[i,j] += x[i,k] * w[k,j]", { i: 3, j: 3, k: 2 }] as const, 1] as const,
  [["out[i,j] += x[i,k] * w[k,j]", { i: 3, j: 3, k: 2 }] as const, 2] as const,
].map(([[equation, extents], rows]) => [
  defineComputation({ equation, extents, tensors: { x: "f32", w: "f32" } }),
  rows,
]);

let known: readonly { readonly computation: Computation; readonly designs: readonly SpaceTime[] }[] | undefined;

/** All designs of the small boxes with entries up to 2: some hundred thousand, enumerated once. */
function allDesigns(): NonNullable<typeof known> {
  known ??= SMALL.map(([computation, arrayRows]) => {
    const { problem } = arrayPass(computation, { loops: computation.axes.map((a) => a.name) });
    const designs = designSpace(problem, { bound: 2, arrayRows }).pairs.map(({ array, time }) => ({
      allocation: array.rows,
      schedule: time.rows,
    }));
    return { computation, designs };
  });
  return known;
}

export function drawRegisterForms(random: Random): readonly Drawn[] {
  const { computation, designs } = pick(random, allDesigns());
  const design = pick(random, designs);
  const form = { coalesced: random() < 0.5, checkTime: random() < 0.5 };
  const loops = computation.axes.map((a) => a.name);
  return [
    {
      status: "nest",
      said: `${computationKey(computation)} by ${JSON.stringify(design)} ${JSON.stringify(form)}`,
      computation,
      inputs: smallInputs(computation, randomInteger(random, 1, 1e9)),
      nest: () => lowerDesign(derive(computation, loops), design, form),
    },
  ];
}

/** Intrinsics of the lanes of warps, by the type of the sum. */
const ON_WARPS: Readonly<Partial<Record<DType, string>>> = {
  f32: "cuda.fma.f32",
  f16: "cuda.fma.f32",
  bf16: "cuda.fma.f32",
  f64: "cuda.fma.f64",
  s32: "cuda.mad.s32",
  s16: "cuda.mad.s32",
};

/** Kernels drawn for one computation: each takes a second to compile. */
const KERNELS_OF_ONE = 2;

/** Designs on warps and on parts of them, as the searches of a GPU have them. */
export function drawArrayKernels(random: Random, count = KERNELS_OF_ONE): readonly Drawn[] {
  const computation = pick(random, ARRAY_OPERATORS)(random);
  const inputs = smallInputs(computation, randomInteger(random, 1, 1e9));
  const intrinsic = ON_WARPS[outputOf(partsOf(computation).sum).dtype];
  const designs = finished(arrayDesigns(computation, pick(random, [8, 16, 32, 32]), pick(random, [2, 2, 3])));
  if ("rule" in designs) return [{ status: "refused", because: designs.because }];
  if (intrinsic === undefined) return [{ status: "refused", because: "no lanes of warps of this type" }];
  return Array.from({ length: count }, (): Drawn => {
    const { plan, dataflow, judged } = pick(random, designs.fitting);
    const narrow = lanesFor(judged.design.pes);
    const schedule: WarpDesignSchedule = {
      ...plan,
      lanes: pick(random, [narrow, narrow, 32]),
      beside: besideOf(computation, plan, random),
      inputs: pick(random, ["passed", "loaded"] as const),
      ...(random() < 0.5 && { warps: pick(random, [1, 2, 8]) }),
    };
    const said = `cuda ${dataflow} of ${computationKey(computation)} by ${JSON.stringify(schedule)}`;
    try {
      const kernel = kernelFor(computation, { kind: "warp-design", intrinsic, schedule });
      return { status: "kernel", said, computation, inputs, kernel, orders: ADVERSE_ORDERS };
    } catch (error) {
      if (error instanceof UsageError) return { status: "refused", because: error.message };
      throw error;
    }
  });
}

export const ARRAYS: DrawnKind = { name: "designs by their transforms", share: 300, draw: (r) => drawArrays(r) };
export const ARRAY_KERNELS: DrawnKind = {
  name: "designs by their transforms as CUDA, six orders of threads",
  share: 15,
  draw: (r) => drawArrayKernels(r),
};
export const REGISTER_FORMS: DrawnKind = {
  name: "enumerated designs, forms of registers",
  share: 90,
  draw: drawRegisterForms,
};
