/**
 * @file The traffic of a lane kernel: its loops, loads, stores and prefetches in their order, without its arithmetic.
 *
 *     X[0,lane] = in[i-1,16*b + lane]          stays, though nothing uses it: an empty assembler statement reads the register
 *     A[0,lane] += X[0,lane] * w[0,1]          goes
 *     X[0,lane] = in[i,16*b + lane]            stays
 *     A[0,lane] += X[0,lane] * w[1,1]    ->    A[0,lane] = X[0,lane]
 *     out[i,16*b + lane] = A[0,lane]           stays
 *
 * The neighbour at the output's own place is stored. That is the stencil with this weight 1 and all others 0, as is a copy,
 * so that a kernel, its traffic and a copy can be verified and timed in turns on the same memory. How long the traffic
 * takes is a bound for kernels with this order of accesses, not for all.
 */

import type { WindowSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { type Access, printAccess, printExpr } from "../../abstraction/expression.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { type Code, code } from "../../abstraction/source-text.ts";
import { argumentsOf, type SourceNotes } from "../../codegen/cpp/cpp-frame.ts";
import { LaneExpressions, X86Lanes, x86Source } from "../../codegen/cpp/lanes-x86.ts";
import { AVX512, type X86Vectors } from "../../codegen/cpp/x86-vectors.ts";
import type { LaneContext } from "../../codegen/lane-printer.ts";
import type { LanePlace } from "../../codegen/vector-expressions.ts";
import { windowProblem } from "../../mapper/schedule/lanes.ts";
import { lowerWindow } from "../../mapper/space-time/lower-window.ts";
import { shiftAt, type Tap, type TapSum } from "../../mapper/space-time/taps.ts";
import { compilerFeatures } from "../../targets/features.ts";
import { sumOf, weightPlaces } from "../peers/loops.ts";

/** The nest of a schedule without its arithmetic. @throws Error if no neighbour lies at the output's own place */
export function trafficNest(computation: Computation, schedule: WindowSchedule): LoopNest {
  const { factor } = ownTap(sumOf(computation)) ?? {};
  if (factor?.kind !== "access")
    throw new Error(`${computation.name}: no weighted neighbour at the output's own place`);
  return withoutArithmetic(lowerWindow(computation, schedule), factor);
}

export function trafficKernel(computation: Computation, schedule: WindowSchedule, notes: SourceNotes): Kernel {
  const nest = trafficNest(computation, schedule);
  const c = new LaneExpressions(computation, nest);
  const { streaming } = schedule;
  const options = { streaming, vectors: KEEPING };
  const source = x86Source(c, nest, notes, [], options, new TrafficLanes(c, streaming, KEEPING));
  const features = compilerFeatures([KEEPING.feature]);
  return { language: "c++", source, features, promises: undefined, arguments: argumentsOf(computation) };
}

/**
 * Schedules whose traffic is to be timed beside a kernel: its own, those of other prefetch distances and other forms of
 * rows, and those of other schedules.
 * @param others in the order in which they are wanted
 */
export function trafficSchedules(
  computation: Computation,
  schedule: WindowSchedule,
  others: readonly WindowSchedule[],
  most: number,
): readonly WindowSchedule[] {
  const forms = ([undefined, "loaded", "carried"] as const).map((lines): WindowSchedule => {
    const { lines: _, ...plain } = schedule;
    return lines === undefined ? plain : { ...plain, lines };
  });
  const distances = [8192, 2048, 512].map((prefetchBytes) => ({ ...schedule, prefetchBytes }));
  const wanted = [schedule, ...others.slice(0, 2), ...forms, ...distances, ...others.slice(2)];
  // A loop over taps is unrolled: its loads are the same. Weights cost no traffic.
  const unrolled = wanted.map((s): WindowSchedule => ({ ...s, rolled: [], weights: "memory" }));
  const distinct = new Map(unrolled.map((s) => [JSON.stringify(s, Object.keys(s).sort()), s]));
  const sum = sumOf(computation);
  return [...distinct.values()]
    .filter((s) => s.dataflow === "FBS-load" && windowProblem(sum, s) === undefined)
    .slice(0, most);
}

/** The weights of a copy: 1 for the output's own place, 0 elsewhere. Undefined where the stencil has no such weight. */
export function copyingWeights(computation: Computation): Readonly<Record<string, Float64Array>> | undefined {
  const sum = sumOf(computation);
  const [copied, weights] = inputsOf(computation);
  const own = ownTap(sum);
  if (copied?.name !== sum.input.name || !weights || !own?.factor) return undefined;
  // A copy moves the elements from the first on, so rows of input and output must be equally long.
  const pitches = [sum.input, sum.output].map(({ dims }) => dims.slice(1).map((d) => d.extent));
  if (String(pitches[0]) !== String(pitches[1])) return undefined;
  const places = weightPlaces(sum);
  const place = places[sum.taps.indexOf(own)] ?? 0;
  if (places.filter((p) => p === place).length !== 1) return undefined;
  const values = new Float64Array(elementCount(weights));
  values[place] = 1;
  return { [weights.name]: values };
}

function ownTap({ taps, shifts }: TapSum): Tap | undefined {
  return taps.find((tap) => shifts.every((_, d) => shiftAt(tap, d) === 0));
}

/** Drops weights and products, and stores the data of the one tap with the factor `kept`. */
function withoutArithmetic(nest: LoopNest, kept: Access): LoopNest {
  const held = new Map<string, string>();
  const moved = (s: Statement): readonly Statement[] => {
    if (s.kind === "loop") {
      const body = s.body.flatMap(moved);
      return body.length === 0 ? [] : [{ ...s, body }];
    }
    if (s.kind !== "scalar") return [s];
    const { target, value } = s.equation;
    if (value.kind === "access" && value.tensor === kept.tensor) {
      held.set(printAccess(target), printAccess(value));
      return [];
    }
    if (value.kind !== "binary" || value.op !== "*") return [s];
    const factor = printExpr(value.right);
    const isKept = (held.get(factor) ?? factor) === printAccess(kept);
    return isKept ? [{ ...s, equation: { target, op: "=", value: value.left } }] : [];
  };
  return { ...nest, body: nest.body.flatMap(moved) };
}

/** Lanes whose loads the compiler may neither drop, nor merge, nor take for known. */
class TrafficLanes extends X86Lanes {
  protected override load(place: LanePlace, context: LaneContext): Code {
    return code`@kept(${super.load(place, context)})`;
  }
}

const KEPT = code`template <class T> static inline T kept(T v) { asm volatile("" : "+v"(v)); return v; }`;
const KEEPING: X86Vectors = { ...AVX512, helpers: { kept: KEPT, ...AVX512.helpers } };
