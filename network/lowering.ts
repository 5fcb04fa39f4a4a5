/**
 * @file The interface by which an operator states what a node computes: the node's inputs and attributes, and functions that add equations.
 *
 *     const x = node.input(0);
 *     return node.equation("y[i] = max(x[i], 0)", { x });
 *
 * An equation whose inputs are all known before the run is evaluated at once, which folds constants.
 */

import { pointsIn, shapeOf } from "../abstraction/affine.ts";
import { mapValues } from "../abstraction/collections.ts";
import { type Computation, defineComputation, type TensorSpec } from "../abstraction/computation.ts";
import { internal, UsageError } from "../abstraction/error.ts";
import { type Access, accessesIn, plainAxes } from "../abstraction/expression.ts";
import { interpret } from "../abstraction/interpret.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { type Attribute, type Body, type Constant, isBody, type Node } from "./graph.ts";
import type { Step } from "./network.ts";
import { type NumberArray, numbersFor } from "./numbers.ts";
import {
  bracketed,
  describeValue,
  type ElementType,
  elementsOf,
  heldAs,
  isSameShape,
  type Quantised,
  type Range,
  type Reads,
  toElement,
  type Value,
} from "./value.ts";
import { wholeResult } from "./whole.ts";

/** What an equation and its inputs leave open. */
interface EquationOptions {
  /** Shape of the output; by default the sizes of what its axes index by themselves. */
  readonly shape?: readonly number[];
  /** That of the first input by default. */
  readonly type?: ElementType;
  /** Extents of axes that index nothing by themselves. */
  readonly extents?: Readonly<Record<string, number>>;
  /** Names of dimensions by tensor, for layouts; the axes by default. */
  readonly dims?: Readonly<Record<string, readonly string[]>>;
  /** The numbers that an output of s64 may hold, where more is known than its equation says. */
  readonly range?: Range;
}

/** Most points of an equation over constants that are folded when the network is read; larger ones run with the network. */
const MOST_FOLDED_POINTS = 50_000_000;
/** Limit on the elements of all constants that nodes create together, because a few bytes of a file can request any number. */
const MOST_MADE_ELEMENTS = 2 ** 28;
/** Limit on the steps of all nodes together: recurrent nodes of a few bytes are written out step by step. A BERT has 300. */
const MOST_STEPS = 100_000;
/** Limits on the passes of all loops, and on the nodes lowered in them, because a few bytes of a file can ask for any number. */
const MOST_PASSES = 10_000;
const MOST_NODES = 1_000_000;

/** The values that a node can read, by name. */
export type Scope = Pick<ReadonlyMap<string, Value>, "get">;
/** Writes the equations of a graph inside a node. @param given the values of its inputs, by name */
export type LowerBody = (body: Body, given: ReadonlyMap<string, Value>) => { steps: readonly Step[]; made: Value[] };

/** State that all nodes share while a network is lowered. */
export class SharedLowering {
  /** Whether nodes that allow it may round numbers to bytes, and whether one did. */
  readonly mayRound: boolean;
  hasRounded = false;
  /** Points that may still be folded. */
  points = 10 * MOST_FOLDED_POINTS;
  elements = MOST_MADE_ELEMENTS;
  steps = MOST_STEPS;
  passes = MOST_PASSES;
  /** Nodes that may still be lowered: those of a loop count in each pass. */
  nodes = MOST_NODES;
  /** Values that are dequantised integers, with these integers. */
  readonly quantised = new Map<Value, Quantised>();

  constructor(mayRound = false) {
    this.mayRound = mayRound;
  }
}

/** Names of an output's axes, by position. */
export const axesOfRank = (rank: number): string[] => Array.from({ length: rank }, (_, d) => `i${d}`);

/** A node while its equations are written. */
export class Lowering {
  readonly node: Node;
  readonly opset: number;
  readonly steps: Step[] = [];
  /** Attributes and inputs that the operator has read. */
  private readonly asked = { attributes: new Set<string>(), inputs: new Set<number>() };
  private readonly values: Scope;
  private readonly lowerBody: LowerBody | undefined;
  private readonly shared: SharedLowering;
  private readonly stand = new Map<number, Value>();

  constructor(node: Node, opset: number, values: Scope, shared: SharedLowering, lowerBody?: LowerBody) {
    this.node = node;
    this.opset = opset;
    this.values = values;
    this.shared = shared;
    this.lowerBody = lowerBody;
    shared.nodes--;
    if (shared.nodes < 0) this.refuse(`the network would be written out as more than ${MOST_NODES} nodes`);
  }

  /** The integers that a value dequantises; undefined for a plain value. */
  quantised(value: Value | undefined): Quantised | undefined {
    return value && this.shared.quantised.get(value);
  }

  /** Marks a value as dequantised integers. @returns the value */
  shows(value: Value, quantised: Quantised): Value {
    this.shared.quantised.set(value, quantised);
    return value;
  }

  /** Replaces an input by another value from now on. */
  replace(place: number, value: Value): void {
    this.stand.set(place, value);
  }

  /** @throws UsageError that names the node */
  refuse(because: string, hint?: string): never {
    throw new UsageError(`${this.subject}: ${because}`, hint);
  }

  /** Whether numbers of a node that allows it may be rounded to bytes. The network says that they were. */
  roundsToBytes(): boolean {
    this.shared.hasRounded ||= this.shared.mayRound;
    return this.shared.mayRound;
  }

  get subject(): string {
    return `${this.node.name} (${this.node.op})`;
  }

  attribute(name: string): Attribute | undefined {
    this.asked.attributes.add(name);
    return this.node.attributes[name];
  }

  /** A graph inside the node. */
  body(name: string): Body {
    const given = this.attribute(name);
    return isBody(given) ? given : this.refuse(`its ${name} is missing`);
  }

  /** Counts a pass of a loop. @throws UsageError when the network's loops make too many */
  countPass(): void {
    this.shared.passes--;
    if (this.shared.passes < 0) this.refuse(`the network's loops make more than ${MOST_PASSES} passes`);
  }

  /** Adds the equations of a graph inside the node. @param given the values of its inputs. @returns those of its outputs */
  inside(body: Body, given: readonly Value[] = []): Value[] {
    if (!this.lowerBody) internal(`${this.subject} holds no graphs`);
    if (given.length !== body.inputs.length)
      this.refuse(`the graph inside it takes ${body.inputs.length} values, and ${given.length} are given`);
    const { steps, made } = this.lowerBody(body, new Map(given.map((value, i) => [body.inputs[i] ?? "", value])));
    for (const step of steps) this.steps.push(step);
    return made;
  }

  /**
   * Refuses attributes and inputs that the operator never read, which would otherwise be ignored.
   * @param harmless attributes that do not affect the result here
   * @throws UsageError that names the first
   */
  checkAllAsked(harmless: readonly string[]): void {
    const { attributes, inputs } = this.asked;
    const strange = Object.keys(this.node.attributes).find((name) => !attributes.has(name) && !harmless.includes(name));
    if (strange !== undefined) this.refuse(`the attribute ${strange} is not supported in opset ${this.opset}`);
    const place = this.node.inputs.findIndex((name, i) => name !== "" && !inputs.has(i));
    if (place >= 0) this.refuse(`input ${place}, ${this.node.inputs[place]}, is not supported in opset ${this.opset}`);
  }

  /** An input that may be left out. */
  optional(place: number): Value | undefined {
    this.asked.inputs.add(place);
    const name = this.node.inputs[place] ?? "";
    if (name === "") return undefined;
    const value =
      this.stand.get(place) ?? this.values.get(name) ?? internal(`${this.subject} reads ${name} before it is made`);
    return value;
  }

  input(place: number): Value {
    return this.optional(place) ?? this.refuse(`input ${place} is missing`);
  }

  /** All inputs, none of which may be omitted. */
  inputs(): Value[] {
    if (this.node.inputs.length === 0) this.refuse("it has no inputs");
    return this.node.inputs.map((_, place) => this.input(place));
  }

  /** The elements of an input that must be known before the run, as shapes and axes must. */
  known(place: number, what: string): NumberArray | undefined {
    const value = this.optional(place);
    if (value && !value.constant)
      this.refuse(
        `${what} comes from ${value.name}, which is known only when the network runs`,
        "simplify the model so that it becomes a constant, or bind it: --constant NAME=FILE",
      );
    return value?.constant;
  }

  /** The same of an input that may not be left out. */
  required(place: number, what: string): NumberArray {
    return this.known(place, what) ?? this.refuse(`${what} is missing`);
  }

  /** Numbers that are input `place` from opset `since` on, and were an attribute before. */
  numbersSince(since: number, name: string, place: number, what: string): ArrayLike<number> | undefined {
    if (this.opset >= since) return this.known(place, what);
    const given = this.attribute(name);
    const list = typeof given === "number" ? [given] : given;
    if (list === undefined) return undefined;
    if (!Array.isArray(list)) return this.refuse(`${name} must hold numbers`);
    return list.map((x) => (typeof x === "number" ? x : this.refuse(`${name} must hold numbers`)));
  }

  int(name: string, otherwise: number): number;
  int(name: string): number | undefined;
  int(name: string, otherwise?: number): number | undefined {
    const given = this.attribute(name);
    if (given === undefined) return otherwise;
    if (typeof given !== "number" || !Number.isSafeInteger(given)) this.refuse(`${name} must be a whole number`);
    return given;
  }

  /** A whole number that stands for no (0) or yes. */
  flag(name: string, otherwise = false): boolean {
    return this.int(name, Number(otherwise)) !== 0;
  }

  float(name: string, otherwise: number): number {
    const given = this.attribute(name);
    if (given === undefined) return otherwise;
    if (typeof given !== "number") this.refuse(`${name} must be a number`);
    return given;
  }

  ints(name: string): readonly number[] | undefined {
    const given = this.attribute(name);
    if (given === undefined) return undefined;
    // An empty list has no type of its own.
    if (!Array.isArray(given) || !given.every((x) => Number.isSafeInteger(x)))
      this.refuse(`${name} must be a list of whole numbers`);
    return given.filter((x) => typeof x === "number");
  }

  text(name: string, otherwise: string, known: readonly string[]): string {
    const given = this.attribute(name) ?? otherwise;
    if (typeof given !== "string") this.refuse(`${name} must be a word`);
    if (!known.includes(given))
      this.refuse(`${name} "${given.slice(0, 40)}" is not supported`, `supported: ${known.join(", ")}`);
    return given;
  }

  /** Converts an axis counted from either end to 0 .. rank-1. */
  axis(given: number, rank: number): number {
    const place = given < 0 ? given + rank : given;
    if (!Number.isSafeInteger(place) || place < 0 || place >= rank)
      this.refuse(`axis ${given} of a tensor with ${rank} dimension${rank === 1 ? "" : "s"}`);
    return place;
  }

  /** The attribute `axis` of an operator on a tensor. */
  axisGiven({ shape }: Value, otherwise: number): number {
    return this.axis(this.int("axis", otherwise), shape.length);
  }

  axes(given: ArrayLike<number>, rank: number): number[] {
    const axes = Array.from(given, (a) => this.axis(a, rank));
    if (new Set(axes).size !== axes.length) this.refuse(`an axis stands twice in [${Array.from(given).join(",")}]`);
    return axes;
  }

  /** An array for a new constant. @throws UsageError when the network's nodes create too many elements */
  numbers(type: ElementType, elements: number): NumberArray {
    this.shared.elements -= elements;
    if (this.shared.elements < 0)
      this.refuse(`constants made while the network is read would hold more than ${MOST_MADE_ELEMENTS} elements`);
    return numbersFor(type, elements, this.subject);
  }

  /** A constant with elements of some numbers: a list, unless a shape is given. */
  constantFrom(
    type: ElementType,
    given: ArrayLike<number>,
    shape: readonly number[] = [given.length],
    name?: string,
  ): Value {
    return this.constant({ type, shape, values: this.numbersFrom(type, given) }, name);
  }

  /** A constant of one number, or of what a function gives for each place, row-major. */
  filled(
    type: ElementType,
    shape: readonly number[],
    element: number | ((place: number) => number),
    name?: string,
  ): Value {
    const values = this.numbers(type, this.elements(shape));
    if (typeof element === "number") values.fill(toElement(type, element));
    else for (let i = 0; i < values.length; i++) values[i] = toElement(type, element(i));
    return this.constant({ type, shape, values }, name);
  }

  /** @throws UsageError when a shape has too many elements */
  elements(shape: readonly number[]): number {
    return elementsOf(shape, this.subject);
  }

  numbersFrom(type: ElementType, given: ArrayLike<number>): NumberArray {
    const made = this.numbers(type, given.length);
    for (let i = 0; i < given.length; i++) made[i] = toElement(type, given[i] ?? 0);
    return made;
  }

  /** A tensor with known elements. */
  constant({ type, shape, values }: Constant, name = this.nameOf()): Value {
    const elements = this.elements(shape);
    if (elements !== values.length)
      this.refuse(`a constant of ${describeValue({ type, shape })} has ${values.length} elements`);
    return { name, type, shape, constant: values };
  }

  /** The same elements in the same order with another shape. */
  reshaped(value: Value, shape: readonly number[]): Value {
    const from = this.elements(value.shape);
    const to = this.elements(shape);
    if (from !== to) this.refuse(`${describeValue(value)} has ${from} elements, ${bracketed(shape)} ${to}`);
    if (isSameShape(value.shape, shape)) return value;
    const { type, constant } = value;
    if (constant) return { name: this.nameOf(), type, shape, constant };
    const shown: Value = { name: this.nameOf(), type, shape, of: value };
    const quantised = this.quantised(value);
    if (quantised?.axis === undefined && quantised)
      this.shows(shown, { ...quantised, stored: this.reshaped(quantised.stored, shape) });
    return shown;
  }

  /**
   * Adds an equation, or evaluates it at once when everything it reads is known.
   * @throws UsageError for an element type in which networks are not computed
   */
  equation(text: string, reads: Reads, options: EquationOptions = {}): Value {
    const { type = Object.values(reads)[0]?.type ?? "f32", dims = {}, range } = options;
    const equation = parseEquation(text);
    const { target } = equation;
    const extents = {
      ...Object.assign({}, ...accessesIn(equation.value).map((read) => sizesAt(read, reads[read.tensor]?.shape ?? []))),
      ...(options.shape && sizesAt(target, options.shape)),
      ...options.extents,
    };
    const shape = options.shape ?? plainAxes(target).map((name) => extents[name] ?? 1);
    const elements = this.elements(shape);
    // Empty lists occur in shapes that a model computes.
    if (elements === 0 && Object.values(reads).every(({ constant }) => constant))
      return this.constant({ type, shape, values: this.numbers(type, 0) });
    if (elements === 0) this.refuse(`its output ${bracketed(shape)} has no elements, which is not supported`);
    const spec = (tensor: string, value: Pick<Value, "type" | "shape" | "constant">): TensorSpec => ({
      dtype: heldAs(value.type),
      shape: value.shape,
      ...(dims[tensor] && { dims: dims[tensor] }),
      ...(value.constant && { constant: true }),
    });
    const computation = defineComputation({
      name: this.node.op,
      equation,
      extents,
      tensors: {
        [target.tensor]: spec(target.tensor, { type, shape }),
        ...mapValues(reads, (value, tensor) => spec(tensor, value)),
      },
    });
    return this.computed(computation, reads, type, { ...(range && { range }) });
  }

  /** The same for an existing computation. */
  computed(
    computation: Computation,
    reads: Reads,
    type: ElementType,
    { operator, range }: Pick<Step, "operator"> & Pick<EquationOptions, "range"> = {},
  ): Value {
    const output = Object.values(computation.tensors)[0] ?? internal(`${this.subject} assigns nothing`);
    const shape = shapeOf(output);
    const name = this.nameOf(this.steps.length);
    const folded = foldedBy(this, this.shared, computation, { reads, type });
    if (folded) return { name, type, shape, constant: folded };
    const whole = type === "s64" ? (range ?? wholeResult(computation, reads)) : undefined;
    if (type === "s64" && !whole)
      this.refuse(
        `${name} would hold s64 elements beyond 2^53, or a quotient by what may be 0, which is not supported`,
        "compute them in 32 bits, or bind the inputs that they are made of: --constant NAME=FILE",
      );
    const value: Value = { name, type, shape, ...(whole && { range: whole }) };
    this.shared.steps--;
    if (this.shared.steps < 0) this.refuse(`the network would be written out as more than ${MOST_STEPS} steps`);
    this.steps.push({
      nodes: [this.node.name],
      ops: [this.node.op],
      computation,
      reads,
      output: value,
      ...(operator && { operator }),
    });
    return value;
  }

  /** The name of the first output, or of an intermediate value before it. */
  private nameOf(before = 0): string {
    const name = this.node.outputs[0] ?? this.node.name;
    return before === 0 ? name : `${name}.${before}`;
  }
}

/** The sizes of the axes that index a tensor by themselves. */
const sizesAt = ({ index }: Access, shape: readonly number[]): Record<string, number> =>
  Object.fromEntries(index.flatMap((e, d) => (e.kind === "axis" ? [[e.name, shape[d] ?? 1]] : [])));

/** The result of a computation whose inputs are all known, if it has few enough points. */
function foldedBy(
  node: Lowering,
  shared: SharedLowering,
  computation: Computation,
  { reads, type }: { readonly reads: Reads; readonly type: ElementType },
): NumberArray | undefined {
  const known: Record<string, NumberArray> = {};
  for (const [tensor, { constant }] of Object.entries(reads)) {
    if (!constant) return undefined;
    known[tensor] = constant;
  }
  const points = pointsIn(computation.axes);
  if (points > MOST_FOLDED_POINTS || points > shared.points) return undefined;
  shared.points -= points;
  const values = interpret(computation, known);
  if (type === "s64" && !values.every(Number.isSafeInteger))
    node.refuse("a folded s64 constant lies beyond 2^53, which is not supported");
  return node.numbersFrom(type, values);
}
