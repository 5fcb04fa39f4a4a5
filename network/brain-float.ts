/**
 * @file Converts a network to bf16 for CPUs: factors of products are bf16, all else is f32.
 *
 *     out[m,n] += a[m,k] * w[k,n]               out[m,n] += f32(a[m,k]) * f32(w[k,n])        a, w in bf16
 *     res[m,n] = max(out[m,n] + b[n], 0)   ->   res[m,n] = bf16(max(out[m,n] + b[n], 0))     where a product reads res
 *
 * A value is stored in bf16 if a product reads it, or if it is only moved to where products do. Sums, biases, norms, softmax, and the network's
 * inputs and outputs stay f32; a separate step rounds those that products read.
 */

import { addTo, mapValues, remembered } from "../abstraction/collections.ts";
import { defineComputation } from "../abstraction/computation.ts";
import { accessesIn } from "../abstraction/expression.ts";
import { halved, type NarrowTypes, rounded } from "./half.ts";
import { axesOfRank } from "./lowering.ts";
import { type Network, returnedBy, rootOf, rootsRead, type Step } from "./network.ts";
import { multiplyAddsOf } from "./tasks.ts";
import { bracketed, type Reads, type Value } from "./value.ts";

/** The program with factors of products in bf16. */
export function inBrainFloats(program: Network): Network {
  const factors = new Factors(program);
  return {
    ...program,
    steps: [
      ...program.inputs.flatMap((value) => factors.roundingOf(value)),
      ...program.steps.flatMap((step) => [halved(step, factors), ...factors.roundingOf(step.output)]),
    ],
  };
}

/** Names of the tensors whose elements a step multiplies and sums. */
const factorsIn = ({ computation }: Step): ReadonlySet<string> =>
  new Set(multiplyAddsOf(computation) === 0 ? [] : accessesIn(computation.equation.value).map((a) => a.tensor));

/** Whether a step only moves the elements of one value. */
const isMove = ({ computation: { equation, epilogue } }: Step): boolean =>
  epilogue === undefined && equation.op === "=" && equation.value.kind === "access";

/** Roots of the values whose elements products multiply, in f32 and made when the network runs. */
function multipliedIn({ steps }: Network): Set<Value> {
  const read = steps.flatMap((step) => [...factorsIn(step)].flatMap((tensor) => step.reads[tensor] ?? []));
  return new Set(read.filter((value) => value.type === "f32" && !value.constant).map(rootOf));
}

/** Adds the values that are only moved to where products read them. @param border values that stay as they are */
function withMoves(narrow: Set<Value>, border: ReadonlySet<Value>, { steps }: Network): ReadonlySet<Value> {
  const readers = new Map<Value, Step[]>();
  for (const step of steps) for (const value of rootsRead(step)) addTo(readers, value, step);
  // Later steps first, so that a chain of moves is found in one pass.
  for (const { output } of steps.toReversed()) {
    const all = readers.get(output) ?? [];
    if (output.type !== "f32" || border.has(output) || all.length === 0) continue;
    if (all.every((step) => isMove(step) && narrow.has(step.output))) narrow.add(output);
  }
  return narrow;
}

/** Which values are bf16; a value is converted once, however often it is read. */
class Factors implements NarrowTypes {
  readonly type = "bf16";
  private readonly narrow: ReadonlySet<Value>;
  /** Rounded copies of inputs and outputs that products read. */
  private readonly copies: ReadonlyMap<Value, Value>;
  private readonly made = new Map<Value, Value>();

  constructor(program: Network) {
    const border = new Set([...program.inputs, ...returnedBy(program)]);
    const multiplied = multipliedIn(program);
    const given = [...multiplied].filter((value) => border.has(value));
    this.narrow = withMoves(new Set([...multiplied].filter((value) => !border.has(value))), border, program);
    this.copies = new Map(
      given.map((value) => [value, { name: `${value.name}.bf16`, type: "bf16", shape: value.shape }]),
    );
  }

  reads(step: Step): Reads {
    const factors = factorsIn(step);
    return mapValues(step.reads, (value, tensor) => this.read(value, factors.has(tensor)));
  }

  writes(value: Value): Value {
    return this.narrow.has(value) ? this.inNarrow(value, undefined) : value;
  }

  /** The step that rounds an input or output that products read. */
  roundingOf(value: Value): Step[] {
    const copy = this.copies.get(value);
    if (!copy) return [];
    const axes = bracketed(axesOfRank(value.shape.length));
    const computation = defineComputation({
      name: "Cast",
      equation: `y${axes} = bf16(x${axes})`,
      extents: Object.fromEntries(value.shape.map((size, d) => [`i${d}`, size])),
      tensors: { y: { dtype: "bf16", shape: value.shape }, x: { dtype: "f32", shape: value.shape } },
    });
    return [{ nodes: [copy.name], ops: ["Cast"], computation, reads: { x: value }, output: copy }];
  }

  private read(value: Value, isFactor: boolean): Value {
    if (value.type !== "f32") return value;
    const root = rootOf(value);
    if (value.constant) return isFactor ? this.inNarrow(value, undefined) : value;
    if (this.narrow.has(root)) return this.inNarrow(value, undefined);
    const copy = isFactor ? this.copies.get(root) : undefined;
    return copy ? this.inNarrow(value, copy) : value;
  }

  /** A value in bf16, and the value whose memory it shows. @param copy stands for its root */
  private inNarrow(value: Value, copy: Value | undefined): Value {
    if (copy && !value.of) return copy;
    const { name, shape, constant, of } = value;
    return remembered(this.made, value, () => ({
      name,
      type: "bf16",
      shape,
      ...(constant && { constant: rounded("bf16", name, constant) }),
      ...(of && { of: this.inNarrow(of, copy) }),
    }));
  }
}
