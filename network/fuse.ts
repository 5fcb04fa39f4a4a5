/**
 * @file Operator fusion: element-wise computation on a result becomes part of the step that produces it.
 *
 *     out[n,k,p,q] += in[..] * w[..]                                      out[n,k,p,q] += in[..] * w[..]
 *     y = out * f[k] + b[k]                                        ->     res[..] = max(out[..] * f[k] + b[k] + e1[..], 0)
 *     z = y + x,   r = max(z, 0)
 *
 * Factors of each channel are then folded into the weights, and moves of elements are folded into the products next to them (moves.ts). All rewrite
 * equations, whatever nodes these came from.
 */

import { shapeOf } from "../abstraction/affine.ts";
import { mapValues, namesOf } from "../abstraction/collections.ts";
import { type Computation, outputOf, type TensorSpec, targetOf } from "../abstraction/computation.ts";
import { attempt } from "../abstraction/error.ts";
import {
  type Access,
  access,
  axesOf,
  axis,
  childrenOf,
  type Equation,
  type Expr,
  plainAxes,
  readsOf,
  rewriteReads,
  substitute,
  walk,
} from "../abstraction/expression.ts";
import { problemOfSize } from "../abstraction/parse.ts";
import { rebuilt, specOf } from "../abstraction/rebuild.ts";
import { scaledWeights, withoutDivision } from "./fold-factors.ts";
import { liftedNumbers } from "./lift-numbers.ts";
import { withoutMoves } from "./moves.ts";
import { type Network, returnedBy, rootOf, rootsRead, type Step } from "./network.ts";
import { underShape } from "./reshape.ts";
import { isSameShape, type Value } from "./value.ts";

/** Values of at most this many nodes may be recomputed at each reader instead of being stored. */
const CHEAP_NODES = 8;
/** Functions that cost no more than an addition. */
const CHEAP_FUNCTIONS: ReadonlySet<string> = new Set(["max", "min", "abs"]);
/** Share of the notation's limits that a fused equation may take. The rest is for the casts and constants that later passes add. */
const FUSED_SHARE = 0.5;

export function fuse(program: Network): Network {
  const surroundings: Surroundings = {
    readers: readersOf(program.steps),
    makers: new Map(),
    outputs: returnedBy(program),
  };
  const { readers, makers } = surroundings;
  for (const step of program.steps) {
    let whole = step;
    // Only the joined step may join again: no earlier one reads other values than before.
    for (let found = joinedWithProducer(whole, surroundings); found; found = joinedWithProducer(whole, surroundings)) {
      count(readers, [whole, found.producer], -1);
      count(readers, [found.step], 1);
      makers.delete(found.producer.output);
      whole = found.step;
    }
    makers.set(whole.output, whole);
  }
  return withoutMoves({
    ...program,
    steps: [...makers.values()]
      .map(scaledWeights)
      .map(withoutDivision)
      .map((step) => attempt(() => liftedNumbers(step)) ?? step),
  });
}

/** Number of steps that read each value, in any shape. */
function readersOf(steps: readonly Step[]): Map<Value, number> {
  const readers = new Map<Value, number>();
  count(readers, steps, 1);
  return readers;
}

function count(readers: Map<Value, number>, steps: readonly Step[], by: number): void {
  for (const step of steps) for (const value of rootsRead(step)) readers.set(value, (readers.get(value) ?? 0) + by);
}

interface Surroundings {
  readonly readers: Map<Value, number>;
  /** The steps so far, by what they make. */
  readonly makers: Map<Value, Step>;
  readonly outputs: ReadonlySet<Value>;
}

function joinedWithProducer(
  consumer: Step,
  { readers, makers, outputs }: Surroundings,
): { readonly step: Step; readonly producer: Step } | undefined {
  const { equation, epilogue } = consumer.computation;
  if (epilogue || !isElementwise(equation)) return undefined;
  for (const [tensor, value] of Object.entries(consumer.reads)) {
    const root = rootOf(value);
    const producer = makers.get(root);
    // Plain axes do not prove that every element is read once: Concat and Pad have more elements, Slice has fewer.
    if (!isSameShape(value.shape, shapeOf(outputOf(consumer.computation)))) continue;
    if (!producer || readers.get(root) !== 1 || outputs.has(root)) continue;
    if (Object.values(consumer.reads).filter((other) => rootOf(other) === root).length > 1) continue;
    const reads = readsOf(equation.value, tensor);
    if (!reads.every((read) => isSameElement(read, equation.target))) continue;
    const shaped = inShapeOf(producer, consumer);
    const step = shaped && attempt(() => joined(producer, shaped, tensor, reads.length));
    if (step) return { step, producer };
  }
  return undefined;
}

/** The consumer rewritten over the producer's dimensions. Images keep their dimensions, because these decide their layout. */
function inShapeOf(producer: Step, consumer: Step): Step | undefined {
  const [made, read] = [producer, consumer].map(({ computation }) => shapeOf(outputOf(computation)));
  if (!made || !read) return undefined;
  if (isSameShape(made, read) && isSameShape(made, producer.output.shape)) return consumer;
  if ([made, read, consumer.output.shape, producer.output.shape].some((shape) => shape.length === 4)) return undefined;
  return isSameShape(made, read) ? consumer : attempt(() => underShape(consumer, made));
}

/** Whether each element has one term, read at plain axes. */
function isElementwise({ op, target, where, value }: Equation): boolean {
  const own = plainAxes(target);
  return (
    op === "=" &&
    where === undefined &&
    own.length === target.index.length &&
    axesOf({ target, op, value }).length === own.length
  );
}

const isSameElement = (read: Access, target: Access): boolean =>
  read.index.length === target.index.length &&
  read.index.every((e, d) => {
    const other = target.index[d];
    return e.kind === "axis" && other?.kind === "axis" && e.name === other.name;
  });

/** New names for the consumer's tensors, where the producer uses a name for another value. */
function renamed(producer: Step, consumer: Step, without: string): ReadonlyMap<string, string> {
  const taken = new Set([...Object.keys(producer.computation.tensors), targetOf(producer.computation).name, "res"]);
  const names = new Map<string, string>();
  for (const name of Object.keys(consumer.reads)) {
    if (name === without) continue;
    const same = Object.entries(producer.reads).find(([, value]) => value === consumer.reads[name]);
    if (same) {
      names.set(name, same[0]);
      continue;
    }
    let number = 0;
    while (taken.has(`e${number}`)) number++;
    taken.add(`e${number}`);
    names.set(name, `e${number}`);
  }
  return names;
}

/** Whether a value may be recomputed. Where only arithmetic follows the reads, as in a batch norm before a hard swish, their indices cost nothing. */
function isCheap(value: Expr): boolean {
  if ([...walk(value)].length <= CHEAP_NODES) return true;
  const nodes = [...walk(value, (e) => (e.kind === "access" ? [] : childrenOf(e)))];
  const isArithmetic = (e: Expr): boolean => e.kind !== "call" || CHEAP_FUNCTIONS.has(e.fn);
  return nodes.length <= CHEAP_NODES && nodes.every(isArithmetic);
}

/** @throws UsageError when the notation does not allow the fused step; the steps then stay separate */
function joined(producer: Step, consumer: Step, tensor: string, times: number): Step | undefined {
  const first = producer.computation;
  const second = consumer.computation;
  const made =
    first.epilogue?.equation ??
    (first.equation.op === "=" && isPlainTarget(first.equation.target) ? first.equation : undefined);
  if (made && times > 1 && !isCheap(made.value)) return undefined;
  const names = renamed(producer, consumer, tensor);
  // 1. The consumer's value, over the axes of the producer's elements.
  const index = made
    ? made.target.index
    : first.equation.target.index.map((e, d) => (e.kind === "axis" ? e : axis(`d${d}`)));
  const axes = new Map(
    second.equation.target.index.flatMap((e, d) => (e.kind === "axis" ? [[e.name, index[d] ?? e] as const] : [])),
  );
  const element = made ? made.value : access(first.equation.target.tensor, index);
  const value = rewriteReads(substitute(second.equation.value, axes, "value"), (read) =>
    read.tensor === tensor ? element : { ...read, tensor: names.get(read.tensor) ?? read.tensor },
  );
  // 2. Descriptions of the tensors of both.
  const added = <T>(of: Readonly<Record<string, T>>): (readonly [string, T])[] =>
    Object.entries(of).flatMap(([name, one]) => {
      const short = names.get(name);
      return short === undefined ? [] : [[short, one] as const];
    });
  const specs = mapValues(Object.fromEntries(added(second.tensors)), (described) => specOf(described, false));
  const reads = { ...producer.reads, ...Object.fromEntries(added(consumer.reads)) };
  const output = specOf(outputOf(second), false);
  const computation = assembled(first, value, { index, specs, output });
  if (problemOfSize(computation.epilogue?.equation ?? computation.equation, FUSED_SHARE) !== undefined)
    return undefined;
  const { operator } = producer;
  const isNew = (_: string, i: number): boolean => !producer.nodes.includes(consumer.nodes[i] ?? "");
  return {
    nodes: [...producer.nodes, ...consumer.nodes.filter(isNew)],
    ops: [...producer.ops, ...consumer.ops.filter(isNew)],
    computation,
    reads,
    output: consumer.output,
    ...(operator && { operator }),
  };
}

const isPlainTarget = ({ index }: Access): boolean => index.every((e) => e.kind === "axis");

/** A sum with an epilogue, or a single equation when the producer sums nothing. */
function assembled(
  first: Computation,
  value: Expr,
  {
    index,
    specs,
    output,
  }: { readonly index: readonly Expr[]; readonly specs: Record<string, TensorSpec>; readonly output: TensorSpec },
): Computation {
  const { dims: _, ...spec } = output;
  if (!first.epilogue && first.equation.op === "=" && isPlainTarget(first.equation.target)) {
    const equation: Equation = { target: access(first.equation.target.tensor, index), op: "=", value };
    return rebuilt(first, { equation, tensors: { [equation.target.tensor]: spec, ...specs } });
  }
  const sum = targetOf(first);
  const epilogue: Equation = { target: access("res", index), op: "=", value };
  const dims = namesOf(sum.dims);
  return rebuilt(first, { epilogue, tensors: { res: { ...spec, dims }, ...specs } });
}
