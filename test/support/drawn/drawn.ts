/**
 * @file A random case: a candidate's nest to interpret, a candidate's kernel to compile, or a refusal with its reason.
 *
 *     const [first] = ARRAYS.draw(seededRandom(1));
 *     if (first?.status === "nest") wrongNest(first)          undefined if it equals the equation
 */

import { type Computation, elementCount, inputsOf } from "../../../abstraction/computation.ts";
import { axis, binary, number } from "../../../abstraction/expression.ts";
import { type Inputs, interpret } from "../../../abstraction/interpret.ts";
import { interpretNest } from "../../../abstraction/interpret-nest.ts";
import type { Kernel } from "../../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../../abstraction/loop-nest.ts";
import { type Random, randomInteger, seededRandom } from "../../../abstraction/random.ts";
import { substituteAxis } from "../../../abstraction/rewrite-statement.ts";
import { runEmulated, type ThreadOrder } from "../../../runtime/emulated-kernel.ts";

interface Subject {
  /** Equation, extents and schedule, for the report of a failure. */
  readonly said: string;
  readonly computation: Computation;
  readonly inputs: Inputs;
}

export interface DrawnNest extends Subject {
  readonly status: "nest";
  readonly nest: () => LoopNest;
}

export interface DrawnKernel extends Subject {
  readonly status: "kernel";
  readonly kernel: Kernel;
  /** One run for each order. */
  readonly orders: readonly ThreadOrder[];
}

export interface Refused {
  readonly status: "refused";
  readonly because: string;
}

export type Drawn = DrawnNest | DrawnKernel | Refused;

/** A kind of candidates. */
export interface DrawnKind {
  readonly name: string;
  /** Share of all candidates, in thousandths. */
  readonly share: number;
  /** Draws some candidates of one computation. */
  readonly draw: (random: Random) => readonly Drawn[];
}

/** Small integers, so that sums are exact in every type and order. */
export function smallInputs(computation: Computation, seed: number, most = 3): Record<string, Float64Array> {
  const random = seededRandom(seed);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () =>
        randomInteger(random, t.dtype.startsWith("u") ? 0 : -most, most),
      ),
    ]),
  );
}

/** The nest with its parallel loops reversed, which exposes a dependence on their order. */
export function reversed(nest: LoopNest): LoopNest {
  const turned = (s: Statement): Statement => {
    if (s.kind === "when") return { ...s, body: s.body.map(turned), otherwise: s.otherwise.map(turned) };
    if (s.kind !== "loop") return s;
    const body = s.body.map(turned);
    if (s.mode !== "parallel" || s.range) return { ...s, body };
    const mirrored = binary("-", number(s.extent - 1), axis(s.axis));
    return { ...s, body: body.map((inner) => substituteAxis(inner, s.axis, mirrored)) };
  };
  return { ...nest, body: nest.body.map(turned) };
}

/** The first wrong element of a nest, run once forward, then twice in a row with its parallel loops reversed. */
export function wrongNest({ computation, inputs, nest }: Omit<DrawnNest, "status" | "said">): string | undefined {
  const expected = interpret(computation, inputs);
  const lowered = nest();
  const runs = [
    ["forward", interpretNest(lowered, computation, inputs)],
    ["reversed and twice", interpretNest(reversed(lowered), computation, inputs, 2)],
  ] as const;
  for (const [order, found] of runs) {
    const at = found.length === expected.length ? expected.findIndex((x, i) => x !== found[i]) : found.length;
    if (at >= 0) return `${order}: element ${at} is ${found[at]}, the equation gives ${expected[at]}`;
  }
  return undefined;
}

/** A fused multiply-add rounds a product and its sum only once. */
const ROUNDING = 1e-5;

/** Compiles kernels together and returns each one's first error in any of its orders. */
export async function wrongKernels(kernels: readonly DrawnKernel[]): Promise<readonly (string | undefined)[]> {
  const jobs = kernels.flatMap(({ kernel, inputs, orders }) => orders.map((order) => ({ kernel, inputs, order })));
  const runs = await runEmulated(jobs, { timeLimitMs: 600_000, batch: 60 });
  let job = 0;
  return kernels.map(({ computation, inputs, orders }) => {
    const expected = [...interpret(computation, inputs)];
    const bound = ROUNDING * Math.max(1, ...expected.map(Math.abs));
    const wrong = orders.map((order): string | undefined => {
      const run = runs[job++];
      if (run?.status !== "ok") return run?.log ?? "no result";
      const at = expected.findIndex((x, i) => !(Math.abs(x - (run.output[i] ?? Number.NaN)) <= bound));
      if (at < 0) return undefined;
      return `${JSON.stringify(order)}: element ${at} is ${run.output[at]}, the equation gives ${expected[at]}`;
    });
    return wrong.find((text) => text !== undefined);
  });
}
