/**
 * @file Converts a network to half precision: values between steps and operands of products are f16; sums and what follows them are f32.
 *
 *     out[n,k,p,q] += in[n,c,p,q] * w[k,c]              out[n,k,p,q] += f32(in[n,c,p,q]) * f32(w[k,c])
 *     res[n,k,p,q] = max(out[n,k,p,q] + b[k], 0)   ->   res[n,k,p,q] = f16(max(out[n,k,p,q] + b[k], 0))
 *
 * Biases and scales, which are not operands of products, stay f32. So do statistics, that is, sums without products as in a softmax or a layer
 * norm, unless a product reads them.
 */

import { mapValues, remembered } from "../abstraction/collections.ts";
import {
  type Computation,
  outputOf,
  type Tensor,
  type TensorSpec,
  targetOf,
  tensorOf,
} from "../abstraction/computation.ts";
import { rangeOf, wrapperOf } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import {
  access,
  accessesIn,
  axis,
  type Equation,
  type Expr,
  plainAxes,
  readsInIndex,
  rewrite,
  rewriteReads,
} from "../abstraction/expression.ts";
import { rebuilt, specOf } from "../abstraction/rebuild.ts";
import { type Network, returnedBy, rootOf, rootsRead, type Step } from "./network.ts";
import { multiplyAddsOf } from "./tasks.ts";
import type { Reads, Value } from "./value.ts";

/** The program with f16 instead of f32, including inputs and outputs. @throws UsageError when a constant exceeds the range of f16 */
export function inHalf(program: Network): Network {
  const types = new Types(program);
  return {
    ...program,
    inputs: program.inputs.map((value) => types.of(value)),
    outputs: program.outputs.map(({ name, value }) => ({ name, value: types.of(value) })),
    steps: program.steps.map((step) => halved(step, types)),
  };
}

const isSum = ({ equation: { op } }: Computation): boolean => op !== "=";

/** Which values of a network are held in 16 bits. */
export interface NarrowTypes {
  readonly type: "f16" | "bf16";
  /** The values that a step reads, by tensor. */
  reads(step: Step): Reads;
  /** A value as a step writes it. */
  writes(value: Value): Value;
}

/** Which values are held in f16; a value is converted once, however often it is read. */
class Types implements NarrowTypes {
  readonly type = "f16";
  private readonly known = new Map<Value, Value>();
  private readonly wide: ReadonlySet<Value>;

  constructor({ steps, outputs }: Network) {
    const multiplied = new Set<Value>();
    for (const step of steps)
      if (multiplyAddsOf(step.computation) > 0) for (const value of rootsRead(step)) multiplied.add(value);
    const given = returnedBy({ outputs });
    this.wide = new Set(
      steps.flatMap(({ computation, output }) =>
        isSum(computation) && multiplyAddsOf(computation) === 0 && !multiplied.has(output) && !given.has(output)
          ? [output]
          : [],
      ),
    );
  }

  reads({ computation, reads }: Step): Reads {
    const { value } = computation.equation;
    // Rows of a table are moved as they are.
    const picked = accessesIn(value).flatMap((a) => (readsInIndex(a).length > 0 ? [a.tensor] : []));
    const summed = new Set(isSum(computation) ? accessesIn(value).map((a) => a.tensor) : picked);
    return mapValues(reads, (read, tensor) => this.of(read, summed.has(tensor)));
  }

  writes(value: Value): Value {
    return this.of(value);
  }

  /** A value in the half-precision network. @param multiplied for a constant, whether a sum reads it */
  of(value: Value, multiplied = true): Value {
    const isWide = value.constant ? !multiplied : this.wide.has(rootOf(value));
    if (value.type !== "f32" || isWide) return value;
    const { constant, of } = value;
    return remembered(this.known, value, () => ({
      ...value,
      type: "f16",
      ...(constant && { constant: rounded("f16", value.name, constant) }),
      ...(of && { of: this.of(of) }),
    }));
  }
}

type Elements = NonNullable<Value["constant"]>;

/** Constants rounded to a narrow type. @throws UsageError when one exceeds its range */
export function rounded(type: NarrowTypes["type"], name: string, elements: Elements): Elements {
  const narrow = wrapperOf(type);
  return elements.map((element) => {
    const half = narrow(element);
    if (Number.isFinite(element) && !Number.isFinite(half))
      throw new UsageError(
        `${name}: ${element} is beyond what ${type} holds, which ends at ${rangeOf(type)[1]}`,
        "divide these constants, and multiply what is made of them by the same number",
      );
    return half;
  });
}

/** A step on values in 16 bits: what it reads is widened to f32, and what it writes is rounded. */
export function halved(step: Step, types: NarrowTypes): Step {
  const { type: dtype } = types;
  const { computation, output } = step;
  const { epilogue } = computation;
  const reads = types.reads(step);
  const made = types.writes(output);
  const halves = new Set(Object.keys(reads).filter((tensor) => reads[tensor]?.type !== step.reads[tensor]?.type));
  if (halves.size === 0 && made === output) return step;
  const widened = (value: Expr): Expr =>
    rewriteReads(value, (read) =>
      halves.has(read.tensor) ? { kind: "cast", dtype: "f32", saturate: false, value: read } : read,
    );
  const narrowed = (value: Expr): Expr => (made === output ? value : { kind: "cast", dtype, saturate: false, value });
  const parts = partsIn(computation, epilogue?.equation, { widened, narrowed, halves, isHalf: made !== output });
  const narrow = [...halves].map((name): [string, TensorSpec] => [
    name,
    { ...specOf(tensorOf(computation, name)), dtype },
  ]);
  const result = { ...specOf(renamed(outputOf(computation), parts.axes)), ...(made !== output && { dtype }) };
  return {
    ...step,
    computation: rebuilt(computation, {
      equation: parts.equation,
      ...(parts.epilogue && { epilogue: parts.epilogue }),
      tensors: { ...Object.fromEntries(narrow), [parts.result]: result },
    }),
    reads,
    output: made,
  };
}

interface Casts {
  readonly widened: (value: Expr) => Expr;
  readonly narrowed: (value: Expr) => Expr;
  /** Tensors that are read in 16 bits. */
  readonly halves: ReadonlySet<string>;
  readonly isHalf: boolean;
}

interface Parts {
  readonly equation: Equation;
  readonly epilogue?: Equation;
  /** Name of the output, and its axes when it is new. */
  readonly result: string;
  readonly axes: readonly string[];
}

function partsIn(
  computation: Computation,
  epilogue: Equation | undefined,
  { widened, narrowed, halves, isHalf }: Casts,
): Parts {
  const { equation } = computation;
  const output = outputOf(computation);
  const same = { result: output.name, axes: [] };
  if (epilogue)
    return {
      ...same,
      equation: { ...equation, value: widened(equation.value) },
      epilogue: { ...epilogue, value: narrowed(widened(epilogue.value)) },
    };
  if (equation.op === "=") {
    const { value } = equation;
    const isMoved = isHalf && value.kind === "access" && halves.has(value.tensor);
    return { ...same, equation: isMoved ? equation : { ...equation, value: narrowed(widened(value)) } };
  }
  const summing = { ...equation, value: widened(equation.value) };
  if (!isHalf) return { ...same, equation: summing };
  const sum = targetOf(computation);
  const axes = axesAt(equation, sum);
  const taken = new Set([...Object.keys(computation.tensors), ...axes]);
  let result = "res";
  for (let n = 1; taken.has(result); n++) result = `res${n}`;
  const index = axes.map(axis);
  const stored: Equation = { target: access(result, index), op: "=", value: narrowed(access(sum.name, index)) };
  return { equation: summing, epilogue: stored, result, axes };
}

/** Axis names of an epilogue: those of the target where they are plain. */
function axesAt({ target }: Equation, { dims }: Tensor): string[] {
  const names = plainAxes(target);
  return target.index.map((e, d) => {
    if (e.kind === "axis") return e.name;
    let name = dims[d]?.name ?? `i${d}`;
    while (names.includes(name)) name += "_";
    names.push(name);
    return name;
  });
}

/** A tensor with its dimensions, and so its storage formula, renamed. */
function renamed(tensor: Tensor, axes: readonly string[]): Tensor {
  const names = new Map(tensor.dims.map((d, i) => [d.name, axes[i] ?? d.name]));
  return {
    ...tensor,
    dims: tensor.dims.map((d, i) => ({ ...d, name: axes[i] ?? d.name })),
    storage: rewrite(tensor.storage, (e) => (e.kind === "axis" ? axis(names.get(e.name) ?? e.name) : e), "index"),
  };
}
