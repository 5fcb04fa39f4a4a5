/**
 * @file Shared by tests of GPU kernels: small inputs, a mapping's context by name, a nest with something left out, and kernels run on the emulated
 * device or compiled by nvcc.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect } from "vitest";
import { ADVERSE_ORDERS as INTERPRETED_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, inputsOf, outputOf, targetOf } from "../../abstraction/computation.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { type Random, randomInteger, seededRandom } from "../../abstraction/random.ts";
import { generateCuda } from "../../codegen/cuda.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { gridProblem } from "../../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../../mapper/schedule/grid-context.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { ADVERSE_ORDERS, runEmulated } from "../../runtime/emulated-kernel.ts";
import { toMemory } from "../../runtime/verify.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { reordered } from "../../tuner/reordered.ts";
import { keptProgram } from "./kept-compiler.ts";
import { inFull } from "./slow.ts";

/** Small integers: every sum is exact in f32, in whatever order. */
export function smallIntegers(computation: Computation, random: Random = seededRandom(3)): Inputs {
  const drawn = (count: number): Float64Array =>
    Float64Array.from({ length: count }, () => randomInteger(random, -3, 3));
  return Object.fromEntries(inputsOf(computation).map((t) => [t.name, drawn(elementCount(t))]));
}

/** An adverse order of threads for the case of a number, another for the next; in full all of them for each. */
export const ordersInTurn = (turn: number): typeof INTERPRETED_ORDERS =>
  INTERPRETED_ORDERS.filter((_, i) => inFull(true, i === turn % INTERPRETED_ORDERS.length));

const CHANNELS_LAST = {
  conv1d: { in: "NLC", w: "KRC", y: "NPK" },
  conv2d: { in: "NHWC", w: "KRSC", y: "NPQK" },
  conv3d: { in: "NDHWC", w: "KTRSC", y: "NOPQK" },
  "transposed-conv2d": { in: "NHWC", w: "KRSC", y: "NPQK" },
  "capsule-conv2d": { in: "NHWC", w: "KURSC", y: "NPQKU" },
} as const;
export type Convolution = keyof typeof CHANNELS_LAST;

/** A convolution of f16 into f16, summed in f32. @param last whether channels lie innermost */
export function convolutionF16(name: Convolution, parameters: Record<string, number>, last = true): Computation {
  const operator = operatorNamed(name);
  const types = parseDataTypes("f16");
  const output = targetOf(instantiate(operator, { parameters, types }))
    .dims.map((d) => d.name)
    .join(",");
  return instantiate(operator, {
    parameters,
    types,
    epilogue: `y[${output}] = f16(out[${output}])`,
    ...(last && { layouts: CHANNELS_LAST[name] }),
  });
}

/** @param matching as it is printed, `m <- n,p; n <- k; k <- c` */
export function gridContextOf(
  computation: Computation,
  instruction: string,
  matching: string,
  target = nvidiaTarget("h100"),
): GridContext {
  const [intrinsic] = intrinsicsNamed(instruction);
  if (!intrinsic) throw new Error(`no row ${instruction}`);
  const valid = mappings(computation, intrinsic, { reasons: false }).valid;
  const named = valid
    .flatMap((m) => [m, ...reordered(m).map((other) => other.mapping())])
    .map((mapping) => [printMatching(mapping.matching).replaceAll(/ {2,}/g, "; "), mapping] as const);
  const found = named.find(([name]) => name === matching)?.[1];
  if (!found) throw new Error(`no ${matching} among ${named.map(([name]) => name).join(", ")}`);
  const context = gridContext(found, gridLimits(target));
  if (typeof context === "string") throw new Error(`${matching}: ${context}`);
  return context;
}

/** The nest without the statements that are left out, at any depth. */
export function withoutStatements(nest: LoopNest, leave: (s: Statement) => boolean): LoopNest {
  const left = (all: readonly Statement[]): Statement[] =>
    all.filter((s) => !leave(s)).map((s) => (s.kind === "loop" ? { ...s, body: left(s.body) } : s));
  return { ...nest, body: left(nest.body) };
}

export interface GridSubject {
  readonly name: string;
  readonly context: GridContext;
  readonly schedule: GridSchedule;
}

const sourceOf = ({ context, schedule }: GridSubject) =>
  generateCuda(context.mapping.computation, context.intrinsic, lowerGrid(context, schedule), { lines: [] });

/** Every kernel equals the equation, each in another order of threads. */
export async function expectRightEmulated(subjects: readonly GridSubject[]): Promise<void> {
  const runs = await runEmulated(
    subjects.map((subject, i) => {
      const { computation } = subject.context.mapping;
      const inputs = smallIntegers(computation);
      const memory = inputsOf(computation).map((t) => [t.name, toMemory(t, inputs[t.name] ?? [], () => 0)] as const);
      const order = ADVERSE_ORDERS[i % ADVERSE_ORDERS.length];
      return { kernel: sourceOf(subject), inputs: Object.fromEntries(memory), ...(order && { order }) };
    }),
  );
  for (const [i, { name, context }] of subjects.entries()) {
    const { computation } = context.mapping;
    const right = toMemory(outputOf(computation), interpret(computation, smallIntegers(computation)), () => 0);
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
  const inputs = smallIntegers(computation);
  const expected = [...interpret(computation, inputs)];
  expect(orders).not.toEqual([]);
  for (const order of orders) expect([...interpretNest(nest, computation, inputs, 1, order)]).toEqual(expected);
}

/** nvcc, where there is one. */
export const NVCC = findProgram("nvcc");

/** nvcc compiles the kernel without a warning, a serialised product, a spill or a byte of stack. @param capability `80`, `90a` */
export async function expectCompiled(subject: GridSubject, capability = "90a"): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "automap-nvcc-"));
  try {
    const file = join(folder, "kernel.cu");
    writeFileSync(file, sourceOf(subject).source);
    const target = `-gencode=arch=compute_${capability},code=sm_${capability}`;
    const flags = ["-std=c++17", "-O3", target, "-Xptxas", "-v", "-Werror", "all-warnings", "-c", "-o", `${file}.o`];
    const run = await runChild([keptProgram(NVCC ?? "nvcc"), ...flags, file], { timeLimitMs: 120_000 });
    const said = `${run.stdout}${run.stderr}`;
    expect([run.status, ...(said.match(/.*(?:error|warning|C75\d\d).*/g) ?? [])], subject.name).toEqual(["ok"]);
    expect(said, subject.name).toContain("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
  } finally {
    rmSync(folder, { recursive: true });
  }
}
