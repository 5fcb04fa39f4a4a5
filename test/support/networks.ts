/**
 * @file Networks of tests as text, after ONNX's own: https://onnx.ai/onnx/repo-docs/Syntax.html
 *
 *     onnx(`
 *       turned = Transpose<perm=[1,0]>(x[3,4])               x is an input of f32[3,4]
 *       first, rest = Split<axis=0, num_outputs=2>(turned)
 *       return rest, Clip(first, 0, , )                      without `return` the values of the last line are given
 *     `)
 *
 * An argument is a value, another call, an input where it is read first (`x[3,4]`, `ids:s64[n]`), a number of f32, or a constant:
 * `{1,2}` of f32, `s64{1,2}`, `u8[]{3}`, `[2,3]{1}` with one value for all elements, `[2,3]{drawn}` with eighths from -9/8 to 9/8.
 * Constants are called c0, c1 and so on, or as a line says: `w = [2,3]{1}`.
 */

import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { fuse } from "../../network/fuse.ts";
import type { Attribute, Body, Constant, Dimension, Graph, Input, Node } from "../../network/graph.ts";
import { channelsLast } from "../../network/layout.ts";
import { lowerGraph } from "../../network/lower.ts";
import { ELEMENT_TYPES, type ElementType, numberOfType, numbersFor } from "../../network/numbers.ts";
import { runNetwork } from "../../network/run.ts";

const isType = (word: string): word is ElementType => ELEMENT_TYPES.some((type) => type === word);
const NUMBER = /^-?(\d|inf$)|^nan$/;
const WORDS = /"[^"]*"|-?\d+(?:\.\d+)?(?:e[-+]?\d+)?|-?[A-Za-z_][\w.]*|[<>(){}[\]=,:]/g;

const numberOf = (word: string): number =>
  ({ inf: Number.POSITIVE_INFINITY, "-inf": Number.NEGATIVE_INFINITY, nan: Number.NaN })[word] ?? Number(word);

class Reader {
  readonly inputs: Input[] = [];
  readonly constants = new Map<string, Constant>();
  readonly nodes: Node[] = [];
  private readonly bodies: Readonly<Record<string, Body>>;
  private words: readonly string[] = [];
  private at = 0;

  constructor(bodies: Readonly<Record<string, Body>>) {
    this.bodies = bodies;
  }

  /** @returns the values of a line */
  line(text: string): readonly string[] {
    this.words = text.match(WORDS) ?? [];
    this.at = 0;
    const end = this.assigned();
    if (this.given("return") || end < 0) return this.arguments(undefined);
    const names = this.words.slice(0, end).filter((word) => word !== ",");
    this.at = end + 1;
    const [name = ""] = names;
    const type = this.take();
    if (isType(type)) this.constants.set(name, this.constant(type));
    else {
      this.at--;
      if (type === "[" || type === "{") this.constants.set(name, this.constant("f32"));
      else this.call(names);
    }
    return names;
  }

  /** The place of the `=` behind the names of a line, or -1. */
  private assigned(): number {
    const first = this.words.findIndex((word) => /^[=(<[{]$/.test(word));
    return this.words[first] === "=" ? first : -1;
  }

  private given(word: string): boolean {
    if (this.words[this.at] !== word) return false;
    this.at++;
    return true;
  }

  private take(): string {
    return this.words[this.at++] ?? "";
  }

  private call(names: readonly string[]): readonly string[] {
    const op = this.take();
    const attributes: Record<string, Attribute> = {};
    if (this.given("<"))
      while (!this.given(">")) {
        const name = this.take();
        this.take();
        attributes[name] = this.attribute();
        this.given(",");
      }
    this.take();
    const inputs = this.arguments(")");
    const outputs = names.length > 0 ? names : [`${op.toLowerCase()}${this.nodes.length}`];
    const [name = ""] = outputs;
    this.nodes.push({ name, op, inputs, outputs, attributes });
    return outputs;
  }

  private attribute(): Attribute {
    const word = this.take();
    const body = this.bodies[word];
    if (body) return body;
    if (word === "[") return this.list("]").map(numberOf);
    if (isType(word)) return /[[{]/.test(this.words[this.at] ?? "") ? this.constant(word) : numberOfType(word);
    return NUMBER.test(word) ? numberOf(word) : word.replaceAll('"', "");
  }

  /** Words with commas between them. */
  private list(closing: string): string[] {
    const words: string[] = [];
    while (!this.given(closing)) {
      words.push(this.take());
      this.given(",");
    }
    return words;
  }

  private arguments(closing: string | undefined): string[] {
    const names: string[] = [];
    while (this.at < this.words.length && !(closing !== undefined && this.given(closing))) {
      if (this.given(",")) {
        names.push("");
        continue;
      }
      names.push(this.argument());
      this.given(",");
    }
    return names;
  }

  private argument(): string {
    const word = this.take();
    const next = this.words[this.at];
    if (NUMBER.test(word)) return this.kept({ type: "f32", shape: [], values: Float32Array.of(numberOf(word)) });
    if (word === "{" || word === "[") {
      this.at--;
      return this.kept(this.constant("f32"));
    }
    if (isType(word)) return this.kept(this.constant(word));
    if (next === "(" || next === "<") {
      this.at--;
      return this.call([])[0] ?? "";
    }
    const type = this.given(":") ? this.take() : "f32";
    if (this.given("["))
      this.inputs.push({ name: word, type: isType(type) ? type : "f32", shape: this.list("]").map(sizeOf) });
    return word;
  }

  private kept(constant: Constant): string {
    const name = `c${this.constants.size}`;
    this.constants.set(name, constant);
    return name;
  }

  private constant(type: ElementType): Constant {
    const sizes = this.given("[") ? this.list("]").map(Number) : undefined;
    this.take();
    const words = this.list("}");
    const shape = sizes ?? [words.length];
    const count = shape.reduce((product, size) => product * size, 1);
    const [only] = words;
    if (words.length > 1 && words.length !== count) throw new Error(`${words.length} elements for ${type}[${shape}]`);
    const random = seededRandom(count + this.constants.size);
    const values = numbersFor(type, count, "a constant");
    for (let i = 0; i < count; i++)
      values[i] =
        only === "drawn" ? randomInteger(random, -9, 9) / 8 : numberOf((words.length === 1 ? only : words[i]) ?? "0");
    return { type, shape, values };
  }
}

const sizeOf = (word: string): Dimension => (NUMBER.test(word) ? Number(word) : word);

function read(text: string, bodies: Readonly<Record<string, Body>>) {
  const reader = new Reader(bodies);
  const lines = text.split(/[\n;]/).filter((line) => line.trim() !== "");
  const values = lines.map((line) => reader.line(line));
  const { inputs, constants, nodes } = reader;
  return { inputs, outputs: values.at(-1) ?? [], constants, nodes };
}

/**
 * @param opset by default the first with Gelu, as of built graphs
 * @param bodies graphs that attributes name: `If<then_branch=twice, else_branch=less>(c)`
 */
export const onnx = (text: string, opset = 20, bodies: Readonly<Record<string, Body>> = {}): Graph => ({
  name: "text",
  opset,
  ...read(text, bodies),
});

/** A graph inside a node. @param inputs names of what the node hands in */
export const bodyOf = (
  text: string,
  inputs: readonly string[] = [],
  bodies: Readonly<Record<string, Body>> = {},
): Body => ({
  ...read(text, bodies),
  inputs,
});

/** The elements of an output, by default the first. @param inputs of all, or of the only one */
export async function made(
  graph: Graph,
  inputs: readonly number[] | Readonly<Record<string, readonly number[]>>,
  output = graph.outputs[0] ?? "",
): Promise<number[]> {
  const given = Array.isArray(inputs) ? { [graph.inputs[0]?.name ?? ""]: inputs } : inputs;
  const values = await runNetwork(lowerGraph(graph), given as Readonly<Record<string, readonly number[]>>);
  return Array.from(values.get(output) ?? [], Number);
}

/** Nodes that move: outputs that are inputs, shapes of others, and values read twice. */
export const MOVES: Graph = {
  ...onnx(`
    t = Transpose<perm=[2,0,1]>(x[2,3,4])
    c = Concat<axis=1>(t, Exp(t))
    return ReduceMean<keepdims=0>(c, s64{1}), Reshape(c, s64{8,6}), Identity(x)
  `),
  name: "moves",
};

/** What a network gives before and after its steps are fused, on whole numbers, of which sums are exact. */
export async function plainAndFused(graph: Graph, seed = 1) {
  const program = lowerGraph(graph);
  const fused = channelsLast(fuse(program));
  const random = seededRandom(seed);
  const inputs = Object.fromEntries(
    program.inputs.map(({ name, shape }) => {
      const length = shape.reduce((product, size) => product * size, 1);
      return [name, Float32Array.from({ length }, () => randomInteger(random, -9, 9))];
    }),
  );
  const [plain, joined] = await Promise.all(
    [program, fused].map(async (one) => [...(await runNetwork(one, inputs)).values()].map((x) => Array.from(x))),
  );
  return { plain, fused: joined, steps: fused.steps.length, nodes: program.steps.length };
}
