/**
 * @file Computes a network of f16 in f32, for machines whose kernels have no f16: constants and what nodes make are f32.
 *
 *     conv(x f16, w f16) -> y f16                 cast(conv(cast(x) f32, w f32)) -> y f16
 *
 * Inputs and outputs keep their type. Constants keep their values, which f32 holds exactly. What the network rounds to f16 in between is not rounded.
 */

import { mapValues, namesOf } from "../abstraction/collections.ts";
import { type Attribute, type Body, type Constant, type Graph, isBody, isConstant, type Node } from "./graph.ts";
import { numberOfType, numbersFor } from "./numbers.ts";

/** The f16 of a network that is computed in f32. */
export interface Widened {
  /** Number of constants. */
  readonly constants: number;
  /** Names of the inputs and outputs, which are converted. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
}

const HALF = numberOfType("f16");
const FLOAT = numberOfType("f32");
/** Attributes that name a type by its number. */
const TYPED = ["to", "dtype", "output_dtype"];

/** The graph without f16 between its inputs and outputs, and what was f16; undefined when nothing was. */
export function widened(graph: Graph): { readonly graph: Graph; readonly was: Widened } | undefined {
  const inputs = graph.inputs.flatMap(({ name, type }) => (type === "f16" ? [name] : []));
  const given = new Set(namesOf(graph.inputs));
  // An output that is an input is of its type already.
  const outputs = graph.outputs.filter((name) => graph.outputTypes?.get(name) === "f16" && !given.has(name));
  const taken = new Set([...given, ...graph.constants.keys(), ...graph.nodes.flatMap((node) => node.outputs)]);
  const wide = new Map([...inputs, ...outputs].map((name) => [name, freshFrom(`${name}.f32`, taken)]));
  const widening = new Widening(wide);
  const { constants, nodes } = widening.body({ ...graph, inputs: [] });
  if (widening.constants + widening.casts + inputs.length + outputs.length === 0) return undefined;
  const borders = [
    ...inputs.map((name) => castNode(name, wide.get(name) ?? name, FLOAT)),
    ...outputs.map((name) => castNode(wide.get(name) ?? name, name, HALF)),
  ];
  const was = { constants: widening.constants, inputs, outputs };
  return { graph: { ...graph, constants, nodes: [...nodes, ...borders], halves: true }, was };
}

function freshFrom(wish: string, taken: Set<string>): string {
  let name = wish;
  while (taken.has(name)) name += "_";
  taken.add(name);
  return name;
}

const castNode = (from: string, to: string, type: number): Node => ({
  name: `Cast ${from}`,
  op: "Cast",
  inputs: [from],
  outputs: [to],
  attributes: { to: type },
});

class Widening {
  constants = 0;
  casts = 0;
  private readonly names: ReadonlyMap<string, string>;

  /** @param names the values that have other names within the network */
  constructor(names: ReadonlyMap<string, string>) {
    this.names = names;
  }

  body(body: Body): Body {
    const { names } = this;
    const named = (name: string): string => names.get(name) ?? name;
    return {
      inputs: body.inputs,
      outputs: body.outputs.map(named),
      constants: new Map([...body.constants].map(([name, constant]) => [named(name), this.constant(constant)])),
      nodes: body.nodes.map((node) => ({
        ...node,
        inputs: node.inputs.map(named),
        outputs: node.outputs.map(named),
        attributes: Object.assign(
          Object.create(null),
          mapValues(node.attributes, (value, name) => this.attribute(name, value)),
        ),
      })),
    };
  }

  private constant(constant: Constant): Constant {
    if (constant.type !== "f16") return constant;
    this.constants++;
    const values = numbersFor("f32", constant.values.length, "a constant of f16");
    values.set(constant.values);
    return { ...constant, type: "f32", values };
  }

  private attribute(name: string, value: Attribute): Attribute {
    if (isConstant(value)) return this.constant(value);
    if (isBody(value)) return this.inner(value);
    if (value !== HALF || !TYPED.includes(name)) return value;
    this.casts++;
    return FLOAT;
  }

  /** A graph inside a node; names of its own hide those around it. */
  private inner(body: Body): Body {
    const own = new Set([...body.inputs, ...body.constants.keys(), ...body.nodes.flatMap((node) => node.outputs)]);
    const inside = new Widening(new Map([...this.names].filter(([name]) => !own.has(name))));
    const made = inside.body(body);
    this.constants += inside.constants;
    this.casts += inside.casts;
    return made;
  }
}
