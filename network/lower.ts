/**
 * @file Lowers a graph to equations: nodes in dependence order, every shape known, constants folded.
 *
 *     lowerGraph(graph, { dims: { batch: 1 } })      Network
 */

import { addTo, entryOf, hasName, namesOf, unique } from "../abstraction/collections.ts";
import { quotedWords, suggestion, UsageError } from "../abstraction/error.ts";
import { type Body, type Constant, type Dimension, type Graph, type Input, type Node, readsOf } from "./graph.ts";
import { type LowerBody, Lowering, type Scope, SharedLowering } from "./lowering.ts";
import { type Network, rootOf, rootsRead, type Step } from "./network.ts";
import type { NumberArray } from "./numbers.ts";
import { broughtToOpset7 } from "./operators/early.ts";
import { HARMLESS, NETWORK_OPERATORS, networkOperatorNamed, refusalOf } from "./operators/index.ts";
import { bracketed, describeValue, elementsOf, type Quantised, type Value } from "./value.ts";
import { INPUT_RANGE, rangeIn } from "./whole.ts";

/** Facts that a graph leaves open. */
export interface LowerOptions {
  /** Sizes of named dimensions. */
  readonly dims?: Readonly<Record<string, number>>;
  /** Inputs whose elements are known, such as a shape. */
  readonly constants?: ReadonlyMap<string, Constant>;
  /** Whether products whose `accuracy_level` is 4 round their numbers to bytes; false when left out. */
  readonly inBytes?: boolean;
}

/** @throws UsageError, naming the node or input, when the network is not supported */
export function lowerGraph(graph: Graph, options: LowerOptions = {}): Network {
  const { dims = {}, constants = new Map(), inBytes } = options;
  const unknown = [...constants.keys()].find((name) => !hasName(graph.inputs, name));
  if (unknown !== undefined)
    throw new UsageError(`the network has no input "${unknown}"`, suggestion(unknown, namesOf(graph.inputs)));
  checkDims(graph, { dims, constants });
  const values = valuesOf([...graph.constants, ...constants]);
  const inputs: Value[] = [];
  for (const input of graph.inputs) {
    const bound = constants.get(input.name);
    if (bound) checkBound(input, bound, dims);
    // Before version 4 of the format, constants were also listed as inputs.
    if (values.has(input.name)) continue;
    const range = input.type === "s64" ? INPUT_RANGE : undefined;
    const value: Value = { name: input.name, type: input.type, shape: shapeOf(input, dims), ...(range && { range }) };
    inputs.push(value);
    values.set(input.name, value);
  }
  const steps: Step[] = [];
  const shared = new SharedLowering(inBytes);
  for (const node of inOrder(graph, graph.name, (name) => values.has(name)))
    for (const step of lowerNode(node, graph, values, shared)) steps.push(step);
  const outputs = graph.outputs.map((name) => ({ name, value: outputNamed(name, values, graph) }));
  const kept = needed(
    steps,
    outputs.map((o) => o.value),
  );
  const integers = integersBehind(kept, shared);
  return {
    name: graph.name,
    inputs,
    outputs,
    steps: kept,
    nodes: graph.nodes.length,
    ...(graph.halves && { halves: true }),
    ...(shared.hasRounded && { inBytes: true }),
    ...(integers.size > 0 && { integers }),
  };
}

const valuesOf = (constants: Iterable<readonly [string, Constant]>): Map<string, Value> =>
  new Map(Array.from(constants, ([name, { type, shape, values }]) => [name, { name, type, shape, constant: values }]));

/** The known integers of 8 bits behind the constants that steps read. */
function integersBehind(steps: readonly Step[], { quantised }: SharedLowering): Map<NumberArray, Quantised> {
  const read = new Set(steps.flatMap(({ reads }) => Object.values(reads).map(({ constant }) => constant)));
  const integers = new Map<NumberArray, Quantised>();
  for (const [{ constant }, shown] of quantised) {
    const { type, constant: stored } = shown.stored;
    if (constant && stored && (type === "u8" || type === "s8") && read.has(constant)) integers.set(constant, shown);
  }
  return integers;
}

function outputNamed(name: string, values: ReadonlyMap<string, Value>, graph: Graph): Value {
  const value = values.get(name);
  if (!value) throw new UsageError(`output "${name}" of ${graph.name} is made by no node`);
  if (value.type === "s64" && rangeIn(value)?.some((x) => Math.abs(x) === Number.MAX_SAFE_INTEGER))
    throw new UsageError(
      `output "${name}" of ${graph.name} would hold s64 elements beyond 2^53, which is not supported`,
    );
  return value;
}

/** Adds the values of a node's outputs. */
function lowerNode(
  node: Node,
  { opset, declared }: Pick<Graph, "opset" | "declared">,
  values: Scope & { set(name: string, value: Value): unknown },
  shared: SharedLowering,
): readonly Step[] {
  const lower = networkOperatorNamed(node.op);
  const because = refusalOf(node.op);
  if (because !== undefined)
    throw new UsageError(
      `${node.name} (${node.op}): ${because}`,
      "let the network end before this node, and compute it from the outputs",
    );
  if (!lower)
    throw new UsageError(
      `${node.name}: the operator ${node.op} is not supported`,
      `automap network operators lists those that are; ${suggestion(node.op, NETWORK_OPERATORS)}`,
    );
  const lowering = new Lowering(node, opset, values, shared, lowerBodyWithin(node.name, opset, values, shared));
  if (opset < 7) broughtToOpset7(lowering);
  const made = [lower(lowering)].flat();
  lowering.checkAllAsked(HARMLESS.get(node.op) ?? []);
  for (const [place, name] of node.outputs.entries()) {
    if (name === "") continue;
    const value = made[place];
    if (!value) return lowering.refuse(`its output ${place}, ${name}, is not supported`);
    const shape = declared?.get(name);
    if (shape && !fits(value.shape, shape))
      lowering.refuse(`its output ${name} is ${describeValue(value)}, and the model says ${bracketed(shape)}`);
    values.set(name, value);
  }
  return lowering.steps;
}

/** How graphs inside a node are lowered: their nodes in order, with the values around them. */
function lowerBodyWithin(called: string, opset: number, around: Scope, shared: SharedLowering): LowerBody {
  return (body, given) => {
    const own = new Map([...valuesOf(body.constants), ...given]);
    const values = {
      get: (name: string) => own.get(name) ?? around.get(name),
      set: (name: string, value: Value) => own.set(name, value),
    };
    const steps: Step[] = [];
    for (const node of inOrder(body, `the graph inside ${called}`, (name) => values.get(name) !== undefined))
      for (const step of lowerNode(node, { opset }, values, shared)) steps.push(step);
    const made = body.outputs.map((name) => {
      const value = values.get(name);
      if (!value) throw new UsageError(`output "${name}" of the graph inside ${called} is made by no node`);
      return value;
    });
    return { steps, made };
  };
}

/** Whether a shape agrees with declared sizes, as far as these are numbers or have been given. */
const fits = (
  sizes: readonly number[],
  shape: readonly Dimension[],
  dims: Readonly<Record<string, number>> = {},
): boolean =>
  sizes.length === shape.length &&
  shape.every((size, d) => {
    const known = typeof size === "number" ? size : entryOf(dims, size);
    return known === undefined || known === sizes[d];
  });

/** @throws UsageError when a constant does not fit the input it replaces */
function checkBound({ name, type, shape }: Input, bound: Constant, dims: Readonly<Record<string, number>>): void {
  if (bound.type === type && fits(bound.shape, shape, dims)) return;
  const sizes = shape.map((size) => (Object.hasOwn(dims, size) ? (dims[size] ?? size) : size));
  throw new UsageError(
    `--constant ${name}: input ${name} is ${type}${bracketed(sizes)}, and the constant is ${describeValue(bound)}`,
  );
}

/**
 * Nodes ordered so that each follows those whose outputs it reads; otherwise in the graph's order.
 * @param isKnown whether a value is there before any of the nodes
 * @throws UsageError for a name with no maker or two, and for a cycle
 */
function inOrder({ nodes }: Pick<Body, "nodes">, graphName: string, isKnown: (name: string) => boolean): Node[] {
  const makers = new Map<string, Node>();
  for (const node of nodes)
    for (const output of node.outputs) {
      if (output === "") continue;
      if (makers.has(output) || isKnown(output))
        throw new UsageError(`${node.name}: "${output}" is made twice in ${graphName}`);
      makers.set(output, node);
    }
  const waiting = new Map<Node, number>();
  const readers = new Map<Node, Node[]>();
  for (const node of nodes) {
    const from = new Set<Node>();
    for (const input of readsOf(node)) {
      if (isKnown(input)) continue;
      const maker = makers.get(input);
      if (!maker)
        throw new UsageError(`${node.name} (${node.op}) reads "${input}", which nothing in ${graphName} makes`);
      from.add(maker);
    }
    waiting.set(node, from.size);
    for (const maker of from) addTo(readers, maker, node);
  }
  // The list grows while it is traversed.
  const order = nodes.filter((node) => waiting.get(node) === 0);
  for (const node of order)
    for (const reader of readers.get(node) ?? []) {
      const left = (waiting.get(reader) ?? 0) - 1;
      waiting.set(reader, left);
      if (left === 0) order.push(reader);
    }
  const stuck = nodes.find((node) => (waiting.get(node) ?? 0) > 0);
  if (stuck) throw new UsageError(`${graphName} is cyclic: ${stuck.name} (${stuck.op}) waits for its own output`);
  return order;
}

function shapeOf({ name, shape, type }: Input, dims: Readonly<Record<string, number>>): number[] {
  const sizes = shape.map((size) => (typeof size === "number" ? size : (dims[size] ?? 0)));
  if (elementsOf(sizes, `input ${name}`) === 0)
    throw new UsageError(`input ${name} is ${describeValue({ type, shape: sizes })}: it has no elements`);
  return sizes;
}

/** Checks that every given size is one that the graph asks for, and that none is missing, except in inputs that are bound. */
function checkDims({ inputs, constants }: Graph, { dims = {}, constants: bound }: LowerOptions): void {
  const openIn = ({ shape }: Input): string[] => shape.filter((size) => typeof size === "string");
  const asked = unique(inputs.flatMap(openIn));
  for (const [name, size] of Object.entries(dims)) {
    if (!Number.isSafeInteger(size) || size < 1)
      throw new UsageError(`--dim ${name}=${size}: a size is a whole number, 1 at least`);
    if (!asked.includes(name))
      throw new UsageError(
        `no input has a size "${name}"`,
        asked.length > 0 ? suggestion(name, asked) : "all sizes of its inputs are known",
      );
  }
  const isGiven = (name: string): boolean => Object.hasOwn(dims, name);
  const missing = inputs
    .filter(({ name }) => !bound?.has(name) && !constants.has(name))
    .flatMap((input) => openIn(input).flatMap((size) => (isGiven(size) ? [] : [{ size, input: input.name }])));
  const names = unique(missing.map(({ size }) => size));
  if (names.length === 0) return;
  const of = names.map((size) => {
    const readers = unique(missing.filter((each) => each.size === size).map(({ input }) => input));
    return `"${size}" of input ${readers.join(" and ")}`;
  });
  throw new UsageError(
    names.length === 1 ? `the size ${of.join()} is not known` : `these sizes are not known: ${of.join(", ")}`,
    `give ${names.length === 1 ? "it" : "them"}: ${quotedWords(names.flatMap((size) => ["--dim", `${size}=1`]))}`,
  );
}

/** Steps whose outputs are read or returned. */
function needed(steps: readonly Step[], outputs: readonly Value[]): Step[] {
  const read = new Set(outputs.map(rootOf));
  const kept: Step[] = [];
  for (const step of steps.toReversed()) {
    if (!read.has(step.output)) continue;
    kept.push(step);
    for (const value of rootsRead(step)) read.add(value);
  }
  return kept.reverse();
}
