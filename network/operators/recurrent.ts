/**
 * @file Recurrent layers, unrolled in time. Equal time steps share a kernel, which reads the number of the step from a constant.
 *
 *     RNN    x[t,n,j] += in[t,n,k] * W[j,k],   rest[n,j] += h[n,k] * R[j,k],   h' = tanh(x[wrap(step[0]),n,j] + rest[n,j])
 *
 * Gates and biases as in https://onnx.ai/onnx/operators/onnx__LSTM.html, onnx__GRU.html and onnx__RNN.html.
 */

import { entryOf, memoised } from "../../abstraction/collections.ts";
import { internal } from "../../abstraction/error.ts";
import { axesOfRank, type Lowering } from "../lowering.ts";
import { bracketed, type Value } from "../value.ts";
import { elementwise } from "./elementwise.ts";
import { stacked } from "./move.ts";
import type { OperatorTable } from "./table.ts";

/** Most steps that are written out, each as a few equations. */
const MOST_STEPS = 512;

type Activation = (x: string) => string;
const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  relu: (x) => `max(${x}, 0)`,
  sigmoid: (x) => `1 / (1 + exp(-(${x})))`,
  tanh: (x) => `tanh(${x})`,
};

/** What all recurrent layers have. */
interface Layer {
  readonly node: Lowering;
  /** Inputs by step: [steps, batch, features]. */
  readonly x: Value;
  readonly steps: number;
  readonly batch: number;
  readonly hidden: number;
  /** Gates that each input feeds. */
  readonly gates: number;
  /** For each direction, whether it runs backwards. */
  readonly directions: readonly boolean[];
  readonly activations: readonly Activation[];
  readonly isBatchFirst: boolean;
}

/** One direction of a layer. */
interface Direction {
  readonly layer: Layer;
  /** Products of all inputs, with the biases of `W`, and those of `R` where these can be added at once: [steps, batch, gates * hidden]. */
  readonly inputs: Value;
  /** [gates * hidden, hidden] */
  readonly weights: Value;
  /** The biases of `R` that are not in `inputs`, [gates * hidden]. */
  readonly biases: Value | undefined;
  readonly activations: readonly Activation[];
}

function layerOf(node: Lowering, gates: number, defaults: readonly string[]): Layer {
  const given = node.input(0);
  const w = node.input(1);
  const r = node.input(2);
  const isBatchFirst = node.flag("layout");
  if (given.type !== "f32" || w.type !== "f32" || r.type !== "f32")
    node.refuse("types other than f32 are not supported");
  if (given.shape.length !== 3) node.refuse(`${given.name} has ${given.shape.length} dimensions and not 3`);
  const x = isBatchFirst ? swapped(node, given) : given;
  const [steps = 1, batch = 1, features = 1] = x.shape;
  if (steps > MOST_STEPS)
    node.refuse(`${steps} steps are written out one by one, which is supported for ${MOST_STEPS}`);
  const direction = node.text("direction", "forward", ["forward", "reverse", "bidirectional"]);
  const directions = direction === "bidirectional" ? [false, true] : [direction === "reverse"];
  const hidden = r.shape[2] ?? 1;
  const told = node.int("hidden_size", hidden);
  checkShape(node, w, [directions.length, gates * hidden, features]);
  checkShape(node, r, [directions.length, gates * hidden, hidden]);
  if (told !== hidden) node.refuse(`hidden_size is ${told}, and its weights have ${hidden}`);
  const lengths = node.optional(4);
  if (lengths && !lengths.constant?.every((length) => length === steps))
    node.refuse("sequences of different lengths are not supported");
  return {
    node,
    x,
    steps,
    batch,
    hidden,
    gates,
    directions,
    isBatchFirst,
    activations: activationsOf(node, directions.length, defaults),
  };
}

function activationsOf(node: Lowering, directions: number, defaults: readonly string[]): Activation[] {
  const given = node.attribute("activations") ?? directionsOf(directions, defaults);
  const words = Array.isArray(given) ? given : [];
  if (words.length !== directions * defaults.length)
    node.refuse(`it takes ${directions * defaults.length} activations`);
  return words.map((word) => {
    const found = typeof word === "string" ? word.toLowerCase() : "";
    const activation = entryOf(ACTIVATIONS, found);
    return (
      activation ??
      node.refuse(`the activation ${found.slice(0, 40)} is not supported; ${Object.keys(ACTIVATIONS).join(", ")} are`)
    );
  });
}

const directionsOf = (count: number, words: readonly string[]): string[] =>
  Array.from({ length: count }, () => words).flat();

function checkShape(node: Lowering, { name, shape }: Value, wanted: readonly number[]): void {
  if (shape.join() !== wanted.join()) node.refuse(`${name} is ${bracketed(shape)} and not ${bracketed(wanted)}`);
}

/** The first two dimensions exchanged. */
function swapped(node: Lowering, x: Value): Value {
  const [first = "", second = "", ...tail] = axesOfRank(x.shape.length);
  return node.equation(`y${bracketed([first, second, ...tail])} = x${bracketed([second, first, ...tail])}`, { x });
}

/** One matrix or list of those that stand along dimension 0, or a part of it. */
function part(node: Lowering, all: Value, at: number, from = 0, count = all.shape[1] ?? 1): Value {
  const [, , ...rest] = all.shape;
  const tail = rest.map((_, d) => `,i${d + 1}`).join("");
  const row = from === 0 ? "i0" : `i0+${from}`;
  return node.equation(`y[i0${tail}] = x[${at},${row}${tail}]`, { x: all }, { shape: [count, ...rest] });
}

/** @param apart gates whose biases of `R` are added later */
function directionOf(layer: Layer, d: number, apart: readonly number[] = []): Direction {
  const { node, x, steps, batch, hidden, gates } = layer;
  const rows = gates * hidden;
  const w = part(node, node.input(1), d);
  const bias = node.optional(3);
  const features = x.shape[2] ?? 1;
  const flat = timesTurned(node, node.reshaped(x, [steps * batch, features]), w);
  let inputs = flat;
  if (bias) {
    checkShape(node, bias, [layer.directions.length, 2 * rows]);
    const own = part(node, bias, d, 0, rows);
    const other = part(node, bias, d, rows, rows);
    const late = apart.map((gate) => `(j >= ${gate * hidden} and j < ${(gate + 1) * hidden})`).join(" or ");
    const both = node.equation(`y[j] = x[j] + ${late === "" ? "z[j]" : `select(${late}, 0, z[j])`}`, {
      x: own,
      z: other,
    });
    inputs = elementwise(node, "flat + both", { flat, both });
  }
  const each = layer.activations.length / layer.directions.length;
  return {
    layer,
    inputs: node.reshaped(inputs, [steps, batch, rows]),
    weights: part(node, node.input(2), d),
    biases: bias && apart.length > 0 ? part(node, bias, d, rows, rows) : undefined,
    activations: layer.activations.slice(d * each, (d + 1) * each),
  };
}

/** `a * b'`: products with the weights of some of the gates. */
const timesTurned = (node: Lowering, a: Value, b: Value): Value =>
  node.equation("out[m,n] += a[m,k] * b[n,k]", { a, b });

/** An equation over batch and units. */
function unitwise({ layer: { node, batch, hidden } }: Direction, value: string, reads: Record<string, Value>): Value {
  return node.equation(`y[n,j] = ${value}`, reads, { shape: [batch, hidden], type: "f32" });
}

/** What reaches a gate from the inputs of a step, and from the state before. */
const fromInputs = (hidden: number, gate: number): string => `x[wrap(step[0]),n,${unit(hidden, gate)}]`;
const fromState = (hidden: number, gate: number): string => `rest[n,${unit(hidden, gate)}]`;
const unit = (hidden: number, gate: number): string => (gate === 0 ? "j" : `j+${gate * hidden}`);

/** The states of a step from those of the step before: the first is the output. */
type Advance = (direction: Direction, states: readonly Value[], step: Value) => readonly Value[];

/** Runs all directions. @param states inputs that hold the first states */
function unrolled(layer: Layer, states: readonly number[], apart: readonly number[], advance: Advance): Value[] {
  const { node, steps, batch, hidden, directions, isBatchFirst } = layer;
  const numbers = Array.from({ length: steps }, (_, t) =>
    node.constantFrom("s32", [t], [1], `${node.node.name}.step${t}`),
  );
  const outputs: Value[] = [];
  const last = directions.map((isBackwards, d): readonly Value[] => {
    const direction = directionOf(layer, d, apart);
    let now = states.map((place) => firstState(layer, place, d));
    for (let i = 0; i < steps; i++) {
      const t = isBackwards ? steps - 1 - i : i;
      now = [...advance(direction, now, numbers[t] ?? node.refuse("it has no steps"))];
      outputs[t * directions.length + d] = now[0] ?? node.refuse("it has no state");
    }
    return now;
  });
  const y = node.reshaped(stacked(node, outputs), [steps, directions.length, batch, hidden]);
  const ends = states.map((_, s) =>
    stacked(
      node,
      last.map((now) => now[s] ?? node.refuse("it has no state")),
    ),
  );
  if (!isBatchFirst) return [y, ...ends];
  // [steps, directions, batch, hidden] -> [batch, steps, directions, hidden]
  const turned = node.equation("y[i0,i1,i2,i3] = x[i1,i2,i0,i3]", { x: y });
  return [turned, ...ends.map((end) => swapped(node, end))];
}

/** The state before the first step: 0 where it is not given. */
function firstState({ node, batch, hidden, directions, isBatchFirst }: Layer, place: number, d: number): Value {
  const given = node.optional(place);
  if (!given) return node.filled("f32", [batch, hidden], 0);
  const first = isBatchFirst ? swapped(node, given) : given;
  checkShape(node, first, [directions.length, batch, hidden]);
  return directions.length === 1 ? node.reshaped(first, [batch, hidden]) : part(node, first, d);
}

/** The size is known from the weights, so `hidden_size` is only compared. */
export const RECURRENT: OperatorTable = {
  /** Gates update, reset, new: z, r, h. */
  GRU(node: Lowering) {
    const layer = layerOf(node, 3, ["Sigmoid", "Tanh"]);
    const { hidden } = layer;
    const isLate = node.flag("linear_before_reset");
    /** R of the first two gates, and of the last. */
    const halvesOf = memoised((direction: Direction) => {
      const whole = node.reshaped(direction.weights, [1, 3 * hidden, hidden]);
      return [part(node, whole, 0, 0, 2 * hidden), part(node, whole, 0, 2 * hidden, hidden)] as const;
    });
    return unrolled(layer, [5], isLate ? [2] : [], (direction, [h], step) => {
      const [f, g] = direction.activations;
      if (!h || !f || !g) internal("a step without a state");
      const { inputs: x, biases, weights } = direction;
      const gate = (at: number): string => `(${f(`${fromInputs(hidden, at)} + ${fromState(hidden, at)}`)})`;
      const mixed = (fresh: string): string => `(1 - ${gate(0)}) * ${g(fresh)} + ${gate(0)} * h[n,j]`;
      if (isLate) {
        const rest = timesTurned(node, h, weights);
        const late = biases ? `(${fromState(hidden, 2)} + late[j+${2 * hidden}])` : fromState(hidden, 2);
        const value = mixed(`${fromInputs(hidden, 2)} + ${gate(1)} * ${late}`);
        return [unitwise(direction, value, { x, step, rest, h, ...(biases && { late: biases }) })];
      }
      const [first, second] = halvesOf(direction);
      const rest = timesTurned(node, h, first);
      const reset = unitwise(direction, `${gate(1)} * h[n,j]`, { x, step, rest, h });
      const fresh = timesTurned(node, reset, second);
      return [unitwise(direction, mixed(`${fromInputs(hidden, 2)} + fresh[n,j]`), { x, step, rest, h, fresh })];
    });
  },
  /** Gates input, output, forget, cell: i, o, f, c. */
  LSTM(node: Lowering) {
    const layer = layerOf(node, 4, ["Sigmoid", "Tanh", "Tanh"]);
    const { hidden, directions } = layer;
    if (node.flag("input_forget")) node.refuse("input_forget is not supported");
    const peepholes = node.optional(7);
    if (peepholes) checkShape(node, peepholes, [directions.length, 3 * hidden]);
    const seen = new Map<Direction, Value>();
    return unrolled(layer, [5, 6], [], (direction, [h, c], step) => {
      const [f, g, out] = direction.activations;
      if (!h || !c || !f || !g || !out) internal("a step without a state");
      if (peepholes && !seen.has(direction)) seen.set(direction, part(node, peepholes, seen.size));
      const p = seen.get(direction);
      const beside = (at: number): string => (p ? ` + p[${unit(hidden, at)}] * c[n,j]` : "");
      const gate = (at: number, more: string): string => `${fromInputs(hidden, at)} + ${fromState(hidden, at)}${more}`;
      const shared = { x: direction.inputs, step, rest: timesTurned(node, h, direction.weights), ...(p && { p }) };
      const input = f(gate(0, beside(0)));
      const forget = f(gate(2, beside(2)));
      const cell = unitwise(direction, `(${forget}) * c[n,j] + (${input}) * ${g(gate(3, ""))}`, { ...shared, c });
      const output = f(gate(1, beside(1)));
      const reads = { ...shared, c: cell };
      return [unitwise(direction, `(${output}) * ${out("c[n,j]")}`, reads), cell];
    });
  },
  RNN(node: Lowering) {
    const layer = layerOf(node, 1, ["Tanh"]);
    const { hidden } = layer;
    return unrolled(layer, [5], [], (direction, [h], step) => {
      const [f = ACTIVATIONS.tanh] = direction.activations;
      if (!h || !f) internal("a step without a state");
      const rest = timesTurned(node, h, direction.weights);
      const value = f(`${fromInputs(hidden, 0)} + ${fromState(hidden, 0)}`);
      return [unitwise(direction, value, { x: direction.inputs, step, rest })];
    });
  },
};
