/**
 * @file Shared by tests of GPU kernels: small inputs, a mapping's context by name, a nest with something left out, and kernels run on the emulated
 * device or compiled by nvcc.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS as INTERPRETED_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, outputOf, targetOf } from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import type { Random } from "../../abstraction/random.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { GRID, gridProblem } from "../../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../../mapper/schedule/schedules.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { ADVERSE_ORDERS, runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { reordered } from "../../tuner/reordered.ts";
import { keptProgram } from "./kept-compiler.ts";
import { inFull } from "./slow.ts";
import { inMemory, mappingsOnto, operation, rowNamed, smallIntegers } from "./subjects.ts";

interface Example {
  readonly inputs: Inputs;
  readonly expected: Values;
}
const examples = new WeakMap<Computation, Example>();

/** Small integers, and what the equation makes of them. */
export function exampleOf(computation: Computation): Example {
  let example = examples.get(computation);
  if (!example) {
    const inputs = smallIntegers(computation);
    example = { inputs, expected: interpret(computation, inputs) };
    examples.set(computation, example);
  }
  return example;
}

/** The computation, of which some inputs are given, the others small integers. */
export function withInputs(computation: Computation, given: Inputs): Computation {
  const inputs = { ...smallIntegers(computation), ...given };
  examples.set(computation, { inputs, expected: interpret(computation, inputs) });
  return computation;
}

/** An adverse order of threads for the case of a number, another for the next; in full all of them for each. */
export const ordersInTurn = (turn: number): typeof INTERPRETED_ORDERS =>
  INTERPRETED_ORDERS.filter((_, i) => inFull(true, i === turn % INTERPRETED_ORDERS.length));

const CHANNELS_LAST: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  conv1d: { in: "NLC", w: "KRC", y: "NPK" },
  conv2d: { in: "NHWC", w: "KRSC", y: "NPQK" },
  conv3d: { in: "NDHWC", w: "KTRSC", y: "NOPQK" },
  "transposed-conv2d": { in: "NHWC", w: "KRSC", y: "NPQK" },
  "capsule-conv2d": { in: "NHWC", w: "KURSC", y: "NPQKU" },
};

/**
 * A convolution of f16 into f16, summed in f32.
 * @param last whether channels lie innermost
 * @param result what is stored of a sum
 */
export function convolutionF16(words: string, last = true, result = "f16(sum)"): Computation {
  const [name = ""] = words.split(" ");
  const layouts = last ? CHANNELS_LAST[name] : {};
  if (!layouts) throw new Error(`no layout with channels innermost for ${name}`);
  const dims = targetOf(operation(words, "f16"))
    .dims.map((d) => d.name)
    .join(",");
  return operation(words, "f16", { epilogue: `y[${dims}] = ${result.replace("sum", `out[${dims}]`)}`, layouts });
}

/** The same through a ReLU. */
export const reluConvolutionF16 = (words: string): Computation => convolutionF16(words, true, "f16(max(sum, 0))");

/** A product of f16 into f16, summed in f32. */
export const matmulF16 = (m: number, n: number, k: number): Computation =>
  operation(`matmul m=${m} n=${n} k=${k}`, "f16", { epilogue: "c[m,n] = f16(out[m,n])" });

/** How `matmulF16` is matched. */
export const MATMUL = "m <- m; n <- n; k <- k";

/** Tiles that a warp multiplies by `mma`. */
export const mmaSchedule = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule => ({
  tile: { m, n, k },
  warps: { m: 1, n: 1 },
  stage: 2,
  swizzle: "swizzled",
  transfer: "async",
  order: 1,
  fragments: "inline",
  store: "direct",
  ...more,
});

/** Tiles that a warpgroup multiplies by `wgmma`, products in flight from step to step. */
export const wgmmaSchedule = (m: number, n: number, k: number, more: Partial<GridSchedule> = {}): GridSchedule =>
  mmaSchedule(m, n, k, { stage: 3, swizzle: "spans", fragments: "across", ...more });

/** @param matching as it is printed, `m <- n,p; n <- k; k <- c` */
export function gridContextOf(
  computation: Computation,
  instruction: string,
  matching: string,
  target = nvidiaTarget("h100"),
): GridContext {
  const intrinsic = rowNamed(instruction);
  const valid = mappingsOnto(computation, intrinsic);
  const named = valid
    .flatMap((m) => [m, ...reordered(m).map((other) => other.mapping())])
    .map((mapping) => [printMatching(mapping.matching).replaceAll(/ {2,}/g, "; "), mapping] as const);
  const found = named.find(([name]) => name === matching)?.[1];
  if (!found) throw new Error(`no ${matching} among ${named.map(([name]) => name).join(", ")}`);
  const context = gridContext(found, gridLimits(target));
  if (typeof context === "string") throw new Error(`${matching}: ${context}`);
  return context;
}

/** The nest with statements in place of some of its own, at any depth. @param change is told which statement of its body it is */
export function changed(nest: LoopNest, change: (s: Statement, at: number) => readonly Statement[]): LoopNest {
  const inside = (all: readonly Statement[]): Statement[] =>
    all.flatMap((s, at) => change(s.kind === "loop" ? { ...s, body: inside(s.body) } : s, at));
  return { ...nest, body: inside(nest.body) };
}

/** The nest without the statements that are left out, at any depth. */
export const withoutStatements = (nest: LoopNest, leave: (s: Statement) => boolean): LoopNest =>
  changed(nest, (s) => (leave(s) ? [] : [s]));

/** Every mapping of a computation onto instructions of these names that blocks can run. */
export const gridContextsOf = (computation: Computation, intrinsics: readonly Intrinsic[]): GridContext[] =>
  intrinsics.flatMap((intrinsic) =>
    mappingsOnto(computation, intrinsic).flatMap((mapping) => {
      const context = gridContext(mapping, gridLimits(nvidiaTarget("h100")));
      return typeof context === "string" ? [] : [context];
    }),
  );

export interface GridSubject {
  readonly name: string;
  readonly context: GridContext;
  readonly schedule: GridSchedule;
}

export const gridSubject = (name: string, context: GridContext, schedule: GridSchedule): GridSubject => ({
  name,
  context,
  schedule,
});

/** A schedule that is drawn, whose nest runs at most so many multiply-adds, padding included: what interpreting it costs. */
export function affordableSchedule(context: GridContext, random: Random, mostWork: number): GridSchedule | undefined {
  const { rows, columns, sum, outer, outerSums } = context;
  const loops = [...outer, ...outerSums].reduce((product, d) => product * d.extent, 1);
  for (let i = 0; i < 30; i++) {
    const schedule = drawSchedule(GRID, context, random);
    const work = [rows, columns, sum].reduce((product, { axis, elements }) => {
      const size = schedule?.tile[axis] ?? 1;
      return product * Math.ceil(elements / size) * size;
    }, loops);
    if (schedule && work <= mostWork) return schedule;
  }
  return undefined;
}

/** Why a schedule with each of these changes is refused, a line each; `legal` where it is not. */
export const refusals = (
  context: GridContext,
  schedule: GridSchedule,
  changes: readonly Partial<GridSchedule>[],
): string =>
  changes
    .map((change) => {
      const words = JSON.stringify(change).replaceAll(/["{}]/g, "").replaceAll(":", " ");
      return `${words || "unchanged"}: ${gridProblem(context, { ...schedule, ...change }) ?? "legal"}`;
    })
    .join("\n");

/** The kernels of subjects equal the equation: as nests in adverse orders of threads, and as text on the emulated device. */
export function itEqualsTheEquation(
  subjects: readonly GridSubject[],
  {
    interpreted = subjects,
    emulated = subjects,
  }: { interpreted?: readonly GridSubject[]; emulated?: readonly GridSubject[] } = {},
): void {
  it.each(interpreted.map((subject, turn) => ({ ...subject, turn })))(
    "equals the equation in adverse orders: $name",
    ({ context, schedule, turn }) => {
      expect(predictGrid(context, schedule, nvidiaTarget("h100"))?.seconds).toBeGreaterThan(0);
      expectRightInterpreted({ context, schedule }, ordersInTurn(turn));
    },
  );

  it("is right on the emulated device", () => expectRightEmulated(emulated));
}

/** What an order of threads makes of a nest: `right`, `wrong`, or the fault that is found. */
export function verdict(
  { nest, computation }: { readonly nest: LoopNest; readonly computation: Computation },
  order: (typeof INTERPRETED_ORDERS)[number] = {},
  calls = 1,
): string {
  const { inputs, expected } = exampleOf(computation);
  try {
    const got = interpretNest(nest, computation, inputs, calls, order);
    return got.every((v, i) => v === expected[i]) ? "right" : "wrong";
  } catch (error) {
    if (error instanceof NestFault) return error.message;
    throw error;
  }
}

export const gridKernelOf = ({ context, schedule }: Omit<GridSubject, "name">, chained = false): Kernel =>
  generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), { lines: [], chained });

/** Every kernel equals the equation, each in another order of threads. A subject that is named again is compiled once. */
export async function expectRightEmulated(subjects: readonly GridSubject[]): Promise<void> {
  const kernels = new Map(subjects.map((subject) => [subject, gridKernelOf(subject)]));
  const runs = await runEmulated(
    subjects.map((subject, i) => {
      const { computation } = subject.context.mapping;
      const { inputs } = exampleOf(computation);
      const order = ADVERSE_ORDERS[i % ADVERSE_ORDERS.length];
      const kernel = kernels.get(subject) ?? gridKernelOf(subject);
      return { kernel, inputs: inMemory(computation, inputs), ...(order && { order }) };
    }),
  );
  for (const [i, { name, context }] of subjects.entries()) {
    const { computation } = context.mapping;
    const right = toMemory(outputOf(computation), exampleOf(computation).expected);
    const run = runs[i];
    expect(run?.status === "ok" ? [...run.output] : run?.log, name).toEqual([...right]);
  }
}

/** The schedule is legal, and its nest equals the equation in each order of threads. */
export function expectRightInterpreted(
  { context, schedule }: Omit<GridSubject, "name">,
  orders: typeof INTERPRETED_ORDERS,
): void {
  const { computation } = context.mapping;
  expect(gridProblem(context, schedule)).toBeUndefined();
  const nest = lowerGrid(context, schedule);
  const { inputs, expected } = exampleOf(computation);
  expect(orders).not.toEqual([]);
  for (const order of orders) expect([...interpretNest(nest, computation, inputs, 1, order)]).toEqual([...expected]);
}

/** nvcc, where there is one. */
export const NVCC = findProgram("nvcc");

/** nvcc compiles the kernel without a warning, a serialised product, a spill or a byte of stack. @param capability `80`, `90a` */
export async function expectCompiled(subject: GridSubject, capability = "90a"): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "automap-nvcc-"));
  try {
    const file = join(folder, "kernel.cu");
    writeFileSync(file, gridKernelOf(subject).source);
    const target = `-gencode=arch=compute_${capability},code=sm_${capability}`;
    const flags = ["-std=c++17", "-O3", target, "-Xptxas", "-v", "-Werror", "all-warnings", "-c", "-o", `${file}.o`];
    const run = await runChild([keptProgram(NVCC ?? "nvcc"), ...flags, file], { timeLimitMs: 900_000 });
    const said = `${run.stdout}${run.stderr}`;
    expect([run.status, ...(said.match(/.*(?:error|warning|C75\d\d).*/g) ?? [])], subject.name).toEqual(["ok"]);
    expect(said, subject.name).toContain("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
  } finally {
    rmSync(folder, { recursive: true });
  }
}
