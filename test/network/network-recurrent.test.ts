/** @file Recurrent layers, step by step: equal to the loops of their definitions, in both directions. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import { seededRandom } from "../../abstraction/random.ts";
import type { Attribute, Graph } from "../../network/graph.ts";
import { lowerGraph } from "../../network/lower.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import { runNetwork } from "../../network/run.ts";
import { tasksOf } from "../../network/tasks.ts";

const BATCH = 2;
const FEATURES = 3;
const HIDDEN = 4;

interface Layer {
  readonly op: "LSTM" | "GRU" | "RNN";
  readonly steps?: number;
  readonly directions?: number;
  readonly attributes?: Readonly<Record<string, Attribute>>;
  readonly peepholes?: boolean;
}

const GATES = { RNN: 1, GRU: 3, LSTM: 4 } as const;

function graphOf({ op, steps = 5, directions = 1, attributes = {}, peepholes = false }: Layer): Graph {
  const net = new SeededLayers("recurrent", 4);
  const rows = GATES[op] * HIDDEN;
  const x = net.input("x", [steps, BATCH, FEATURES]);
  const state = (name: string): string => net.input(name, [directions, BATCH, HIDDEN]);
  const inputs = [
    x,
    net.drawn("w", [directions, rows, FEATURES], 0.8),
    net.drawn("r", [directions, rows, HIDDEN], 0.8),
    net.drawn("b", [directions, 2 * rows], 0.5),
    "",
    state("h0"),
    ...(op === "LSTM" ? [state("c0")] : []),
    ...(peepholes ? [net.drawn("p", [directions, 3 * HIDDEN], 0.7)] : []),
  ];
  const outputs = op === "LSTM" ? ["y", "h", "c"] : ["y", "h"];
  const { graph } = net;
  return {
    ...graph,
    outputs,
    nodes: [{ name: "layer", op, inputs, outputs, attributes: { hidden_size: HIDDEN, ...attributes } }],
  };
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** The equations of ONNX's definition, one direction at a time. */
function reference(
  graph: Graph,
  given: Readonly<Record<string, Float64Array>>,
  layer: Layer,
): Record<string, number[]> {
  const { op, steps = 5, directions = 1, attributes = {} } = layer;
  const rows = GATES[op] * HIDDEN;
  const of = (name: string): ArrayLike<number> => given[name] ?? graph.constants.get(name)?.values ?? [];
  const y: number[] = [];
  const ends: Record<string, number[]> = { h: [], c: [] };
  for (let d = 0; d < directions; d++)
    for (let n = 0; n < BATCH; n++) {
      const first = (name: string): number[] =>
        Array.from({ length: HIDDEN }, (_, j) => of(name)[(d * BATCH + n) * HIDDEN + j] ?? 0);
      let h = first("h0");
      let c = first("c0");
      const backwards = attributes["direction"] === "reverse" || d === 1;
      for (let i = 0; i < steps; i++) {
        const t = backwards ? steps - 1 - i : i;
        const row = (g: number, j: number): number => d * rows + g * HIDDEN + j;
        const bias = (g: number, j: number, half: number): number =>
          of("b")[2 * d * rows + half * rows + g * HIDDEN + j] ?? 0;
        const fromX = (g: number, j: number): number => {
          let sum = bias(g, j, 0);
          for (let k = 0; k < FEATURES; k++)
            sum += (of("x")[(t * BATCH + n) * FEATURES + k] ?? 0) * (of("w")[row(g, j) * FEATURES + k] ?? 0);
          return sum;
        };
        const fromH = (state: readonly number[], g: number, j: number): number => {
          let sum = bias(g, j, 1);
          for (let k = 0; k < HIDDEN; k++) sum += (state[k] ?? 0) * (of("r")[row(g, j) * HIDDEN + k] ?? 0);
          return sum;
        };
        const all = (g: number, j: number): number => fromX(g, j) + fromH(h, g, j);
        const peep = (g: number, j: number): number => of("p")[d * 3 * HIDDEN + g * HIDDEN + j] ?? 0;
        const units = Array.from({ length: HIDDEN }, (_, j) => j);
        if (op === "RNN") h = units.map((j) => Math.tanh(all(0, j)));
        else if (op === "GRU") {
          const reset = units.map((j) => sigmoid(all(1, j)));
          const before = h.map((x, j) => x * (reset[j] ?? 0));
          const fresh = units.map((j) =>
            Math.tanh(
              attributes["linear_before_reset"] === 1
                ? fromX(2, j) + (reset[j] ?? 0) * fromH(h, 2, j)
                : fromX(2, j) + fromH(before, 2, j),
            ),
          );
          const update = units.map((j) => sigmoid(all(0, j)));
          h = h.map((x, j) => (1 - (update[j] ?? 0)) * (fresh[j] ?? 0) + (update[j] ?? 0) * x);
        } else {
          const cell = c.map(
            (x, j) =>
              sigmoid(all(2, j) + peep(2, j) * x) * x + sigmoid(all(0, j) + peep(0, j) * x) * Math.tanh(all(3, j)),
          );
          h = cell.map((x, j) => sigmoid(all(1, j) + peep(1, j) * x) * Math.tanh(x));
          c = cell;
        }
        for (const [j, value] of h.entries()) y[((t * directions + d) * BATCH + n) * HIDDEN + j] = value;
      }
      ends["h"]?.push(...h);
      ends["c"]?.push(...c);
    }
  return { y, ...ends };
}

describe("recurrent layers", () => {
  it.each([
    { op: "RNN" },
    { op: "RNN", directions: 2, attributes: { direction: "bidirectional" } },
    { op: "GRU", directions: 2, attributes: { direction: "bidirectional" } },
    { op: "GRU", attributes: { linear_before_reset: 1 } },
    { op: "LSTM", attributes: { direction: "reverse" } },
    { op: "LSTM", directions: 2, attributes: { direction: "bidirectional" }, peepholes: true },
    { op: "LSTM", steps: 1 },
    { op: "LSTM", steps: 20 },
  ] as const satisfies readonly Layer[])("are equal to their definition: %j", async (layer: Layer) => {
    const graph = graphOf(layer);
    const program = lowerGraph(graph);
    const random = seededRandom(2);
    const inputs = Object.fromEntries(
      program.inputs.map(({ name, shape }) => {
        const length = shape.reduce((product, size) => product * size, 1);
        return [name, Float64Array.from({ length }, () => Math.fround(2 * random() - 1))];
      }),
    );
    const outputs = await runNetwork(program, inputs);
    const expected = reference(graph, inputs, layer);
    for (const [name, values] of outputs) {
      const wanted = expected[name] ?? [];
      expect(values.length).toBe(wanted.length);
      for (let i = 0; i < wanted.length; i++) expect(values[i]).toBeCloseTo(wanted[i] ?? Number.NaN, 5);
    }
  });

  it("of more steps have as many different steps", () => {
    const differentIn = (steps: number): number => tasksOf(lowerGraph(graphOf({ op: "LSTM", steps }))).length;
    expect(differentIn(8)).toBe(differentIn(4));
  });

  it("are written out up to 512 steps", () => {
    expect(lowerGraph(graphOf({ op: "RNN", steps: 512 })).outputs).toHaveLength(2);
  });

  it.each([
    [
      { attributes: { activations: ["Affine", "Tanh", "Tanh"] } },
      "the activation affine is not supported; relu, sigmoid, tanh are",
    ],
  ] as const)("are refused with a reason: %j", (layer, reason) => {
    expect(() => lowerGraph(graphOf({ op: "LSTM", ...layer }))).toThrow(new UsageError(`layer (LSTM): ${reason}`));
  });
});
