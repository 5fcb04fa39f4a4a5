/**
 * @file The decisions of a convolution by Winograd's transforms, on the cores of a processor.
 *
 *     outputs 4   images 1   rows 2   windows 14   vectors 2   threads 1      blocks of two rows of windows, tiles of 14 x 2 registers
 */

import { z } from "zod";
import { extentOf } from "../../abstraction/affine.ts";
import type { WinogradSchedule } from "../../abstraction/candidate.ts";
import { memoised, unique, upTo } from "../../abstraction/collections.ts";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { placedProblem } from "../../abstraction/epilogue.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import {
  type Convolution,
  convolutionOf,
  TRANSFORMS,
  type Transform,
  winogradParts,
} from "../../abstraction/winograd.ts";
import { scheduleOfProducts, type WinogradForm } from "../lower/winograd.ts";
import { bindOperands } from "../match/bind.ts";
import { defineProblem } from "../match/problem.ts";
import { validate } from "../match/validate.ts";
import { positive, threads } from "./lane-decisions.ts";
import { scheduleProblem } from "./mapped.ts";
import type { ScheduleKind } from "./schedules.ts";

export interface WinogradContext {
  readonly computation: Computation;
  readonly convolution: Convolution;
  /** Multiplies a window's element with a vector of filters. */
  readonly intrinsic: Intrinsic;
  /** Elements of that vector. */
  readonly lanes: number;
  readonly threads: number;
  /** Bytes of a core's own caches; undefined where they are not known. */
  readonly cacheBytes: number | undefined;
}

/** What schedules are of; or why a computation, or an instruction, has none. */
export function winogradContext(
  computation: Computation,
  intrinsic: Intrinsic,
  threads: number,
  cacheBytes?: number,
): WinogradContext | string {
  const convolution = convolutionOf(computation);
  if (!convolution)
    return "it is no convolution of 3 x 3 in f32 with stride 1, 16 channels or more and constant filters";
  const stored = placedProblem(computation);
  if (stored !== undefined) return stored;
  const [axis, ...others] = intrinsic.computation.axes;
  if (axis?.kind !== "spatial" || others.length > 0) return `${intrinsic.name} is not of one row of sums`;
  const context = { computation, convolution, intrinsic, lanes: axis.extent, threads, cacheBytes };
  const form = formUnder(context, { outputs: 2, images: 1, rows: 1, windows: 1, vectors: 1, threads });
  return typeof form === "string" ? form : context;
}

const known = memoised((_: WinogradContext) => new Map<string, WinogradForm | string>());

/** What a schedule computes, or why it cannot. */
export function formUnder(context: WinogradContext, schedule: WinogradSchedule): WinogradForm | string {
  const { outputs, images, rows, vectors } = schedule;
  const key = [outputs, images, rows, vectors].join();
  const forms = known(context);
  const found = forms.get(key) ?? findForm(context, schedule);
  forms.set(key, found);
  return found;
}

function findForm(
  { computation, convolution, intrinsic, lanes }: WinogradContext,
  schedule: WinogradSchedule,
): WinogradForm | string {
  const { images, rows, vectors } = schedule;
  const transform = transformOf(schedule);
  const whole = sizesIn(computation, convolution, transform);
  if (whole.images % images !== 0) return `images: ${images} do not divide ${whole.images}`;
  if (rows > whole.rows) return `rows: ${rows} of ${whole.rows}`;
  const parts = winogradParts(computation, convolution, transform, { images, rows, width: vectors * lanes });
  const mapping = mappingOf(parts.products, intrinsic);
  return mapping
    ? { computation, convolution, parts, mapping }
    : `${intrinsic.name} does not multiply windows with filters`;
}

const transformOf = ({ outputs }: Pick<WinogradSchedule, "outputs">): Transform =>
  outputs === 2 ? TRANSFORMS.winograd2 : TRANSFORMS.winograd4;

/** The mapping of vectors of filters onto the vectors of an instruction. */
function mappingOf(products: Computation, intrinsic: Intrinsic): Mapping | undefined {
  const matching = Object.fromEntries(intrinsic.computation.axes.map(({ name }) => [name, ["k"]]));
  for (const binding of bindOperands(products, intrinsic, true).bindings) {
    const verdict = validate(defineProblem(products, intrinsic, binding), matching, { rule: "gather", strict: false });
    if (!verdict.ok) continue;
    const plain = scheduleOfProducts({ windows: 1, vectors: 1 }, verdict.mapping);
    if (scheduleProblem(verdict.mapping, plain) === undefined) return verdict.mapping;
  }
  return undefined;
}

/** Images, and rows of windows. */
function sizesIn(computation: Computation, { axes }: Convolution, { outputs }: Transform) {
  const extents = extentsOf(computation);
  return { images: extentOf(axes.n, extents), rows: Math.ceil(extentOf(axes.p, extents) / outputs) };
}

/** Bytes of a block between its steps: transformed windows, and the sums of their products. */
function bytesOfBlock({ computation, convolution: { axes } }: WinogradContext, schedule: WinogradSchedule): number {
  const { input, outputs } = transformOf(schedule);
  const extents = extentsOf(computation);
  const windows = schedule.images * schedule.rows * Math.ceil(extentOf(axes.q, extents) / outputs);
  return input.length ** 2 * windows * (extentOf(axes.c, extents) + extentOf(axes.k, extents)) * bytesOf("f32");
}

/** Blocks that are tried take between so many times the bytes of a core's caches. */
const SHARES = [1 / 8, 2] as const;
/** Independent sums that hide the latency of a multiply-add on two ports. */
const LEAST_SUMS = 8;

const divisors = (whole: number): readonly number[] =>
  upTo(whole)
    .map((i) => i + 1)
    .filter((by) => whole % by === 0);

export const WINOGRAD: ScheduleKind<WinogradSchedule, WinogradContext> = {
  decisions: {
    outputs: {
      summary:
        "Outputs of a window along each dimension. Four need a quarter of the products of the convolution, two need 4/9 and round less.",
      example: "4",
      schema: z.union([z.literal(2), z.literal(4)]),
      values: () => [4, 2],
    },
    images: {
      summary: "Images whose windows are computed together, where all rows of an image are.",
      example: "1",
      schema: positive,
      values: ({ computation, convolution }) =>
        divisors(sizesIn(computation, convolution, TRANSFORMS.winograd4).images),
    },
    rows: {
      summary:
        "Rows of windows that are transformed, multiplied and transformed back before the next. More of them read the filters less often, fewer stay in the caches.",
      example: "2",
      schema: positive,
      values: ({ computation, convolution }) => {
        const all = Object.values(TRANSFORMS).map((transform) => sizesIn(computation, convolution, transform).rows);
        const most = Math.max(...all);
        return unique([...upTo(8).map((i) => i + 1), ...all.flatMap((rows) => [rows, Math.ceil(rows / 2)])]).filter(
          (rows) => rows <= most,
        );
      },
      problem: (context, schedule) => {
        const form = formUnder(context, schedule);
        return typeof form === "string" ? form : undefined;
      },
      worthTrying: (context, schedule) => {
        const { computation, convolution, cacheBytes, threads: sharing } = context;
        const whole = sizesIn(computation, convolution, transformOf(schedule));
        const { rows, images } = schedule;
        if (rows > whole.rows || (images > 1 && rows < whole.rows)) return false;
        const isWhole = rows === whole.rows && images === whole.images;
        const blocks = Math.ceil(whole.rows / rows) * (whole.images / images);
        if (isWhole) return true;
        if (blocks < sharing) return false;
        const bytes = bytesOfBlock(context, schedule);
        return cacheBytes === undefined || (bytes >= SHARES[0] * cacheBytes && bytes <= SHARES[1] * cacheBytes);
      },
    },
    windows: {
      summary: "Windows of a register tile, which meet its filters.",
      example: "14",
      schema: positive,
      values: () => upTo(14).map((i) => 14 - i),
    },
    vectors: {
      summary: "Vectors of filters of a register tile, which lie side by side in memory.",
      example: "2",
      schema: positive,
      values: () => [2, 1, 3, 4],
      problem: (context, schedule) => {
        const form = formUnder(context, schedule);
        return typeof form === "string"
          ? form
          : scheduleProblem(form.mapping, scheduleOfProducts(schedule, form.mapping));
      },
      worthTrying: ({ computation, convolution, lanes }, { vectors, windows }) =>
        windows * vectors >= LEAST_SUMS && (vectors - 1) * lanes < extentOf(convolution.axes.k, extentsOf(computation)),
    },
    threads,
  },
  tries: 200,
};
