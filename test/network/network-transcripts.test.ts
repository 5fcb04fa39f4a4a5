/**
 * @file Networks in text, what they are lowered and fused to, and what they compute: test/golden/networks. In a paragraph, lines are
 *
 *     opset 9                                  20 otherwise
 *     body twice(x): r = Add(x, x); return r   a graph that attributes name
 *     bind sr s64[]{16000}                     an input that is known
 *     dim batch 4                              a size that is known
 *     says y 3,2                               a shape that the model says
 *     as half                                  for a GPU; `as bf16` for a CPU
 *     y = Relu(x[2,3])                         all else: the network, in the notation of test/support/networks.ts
 *     given x 1 2 nan; y 0..5                  runs it; inputs that are not given are drawn
 *
 * Beneath the network are its steps, or why it is refused; beneath what is given, the outputs, which fusion does not change, and those in the
 * narrower types of a form.
 */

import { describe } from "vitest";
import { equationText, outputOf } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import type { Body, Constant, Graph } from "../../network/graph.ts";
import { beginOf, type Network, rootOf, type Step } from "../../network/network.ts";
import { runNetwork } from "../../network/run.ts";
import { describeValue, type Value } from "../../network/value.ts";
import { inBrainFloatsOnCpu, inHalfOnGpu, type OpenNetwork, openGraph } from "../../session/network/network.ts";
import { bodyOf, onnx } from "../support/networks.ts";
import { type Play, playTranscripts } from "../support/transcript.ts";

/** Steps, elements, and elements of a constant that are shown one by one. */
const SHOWN = { steps: 24, elements: 40, constant: 6 };

const FORMS: Readonly<Record<string, (opened: OpenNetwork) => OpenNetwork>> = {
  half: inHalfOnGpu,
  bf16: inBrainFloatsOnCpu,
};

function numberText(x: number): string {
  if (Object.is(x, -0)) return "-0";
  return `${Number.isInteger(x) ? x : Number(x.toPrecision(6))}`;
}

function elementsText(elements: ArrayLike<number>, most = SHOWN.elements): string {
  const all = Array.from(elements, Number);
  const shown = all.slice(0, all.length > most ? most / 2 : most).map(numberText);
  if (all.length === shown.length) return shown.join(" ");
  const weighed = all.reduce((sum, x, i) => sum + x * (1 + (i % 7)), 0);
  return `${shown.join(" ")} and ${all.length - shown.length} more, weighed ${weighed.toPrecision(4)}`;
}

function readText(tensor: string, value: Value): string {
  const begin = beginOf(value);
  const { constant } = value;
  if (constant) return `${tensor} ${describeValue(value)}{${elementsText(constant, SHOWN.constant)}}`;
  return `${tensor} ${rootOf(value).name}${begin > 0 ? `+${begin}` : ""}`;
}

function stepText({ ops, computation, reads, output }: Step): string {
  const { dtype, dims } = outputOf(computation);
  const read = Object.entries(reads).map(([tensor, value]) => readText(tensor, value));
  const type = `${dtype}[${dims.map(({ extent }) => extent)}]`;
  return `${ops.join(" ")}: ${equationText(computation)}   (${read.join(", ")}) -> ${output.name} ${type}`;
}

function networkText({ inputs, outputs, steps }: Network): string[] {
  const shown = steps.slice(0, SHOWN.steps).map(stepText);
  const more = steps.length - shown.length;
  const returned = outputs.map(({ name, value }) => `${name} ${describeValue(value)}`);
  const read = inputs.map((value) => `${value.name} ${describeValue(value)}`);
  return [...shown, ...(more > 0 ? [`and ${more} more steps`] : []), `${read.join(", ")} -> ${returned.join(", ")}`];
}

/** Elements by what is written: numbers, and whole numbers from one to another. */
function elementsOf(words: readonly string[]): number[] {
  return words.flatMap((word) => {
    const [, from, to] = /^(\d+)\.\.(\d+)$/.exec(word) ?? [];
    if (from === undefined) return [Number(word.replace(/inf$/, "Infinity"))];
    return Array.from({ length: Number(to) - Number(from) + 1 }, (_, i) => Number(from) + i);
  });
}

function drawnFor({ type, shape }: Value, random: () => number): number[] {
  const [least, most] = type === "bool" ? [0, 1] : type.startsWith("u") ? [0, 9] : [-9, 9];
  return Array.from({ length: shape.reduce((all, size) => all * size, 1) }, () => randomInteger(random, least, most));
}

/** @throws Error where fusion alone, which `isForm` is not, changes what is computed */
async function outcomeOf({ plain, program }: OpenNetwork, given: string, isForm: boolean): Promise<string[]> {
  const named = given.split(";").map((part) => part.trim().split(/\s+/));
  const written = new Map(named.map(([name = "", ...words]) => [name, elementsOf(words)]));
  const random = seededRandom(1);
  const inputs = Object.fromEntries(
    plain.inputs.map((value) => [value.name, written.get(value.name) ?? drawnFor(value, random)]),
  );
  const [before, after] = await Promise.all([plain, program].map((network) => runNetwork(network, inputs)));
  return [...(before ?? [])].flatMap(([name, elements]) => {
    const texts = [elements, after?.get(name) ?? []].map((elements) => elementsText(elements));
    if (texts[0] === texts[1]) return [`${name} ${texts[0]}`];
    if (!isForm) throw new Error(`fusion makes ${name} of ${program.name} ${texts[1]}, and the nodes ${texts[0]}`);
    return [`${name} ${texts[0]}`, `  then ${texts[1]}`];
  });
}

/** The one constant of a network that consists of it. */
function constantOf(text: string): Constant {
  const [constant] = onnx(`c = ${text}`).constants.values();
  if (!constant) throw new Error(`no constant ${text}`);
  return constant;
}

class Paragraph {
  private opset = 20;
  private form = "";
  private text: string[] = [];
  private opened: OpenNetwork | undefined;
  private readonly dims: Record<string, number> = {};
  private readonly bodies: Record<string, Body> = {};
  private readonly bound = new Map<string, Constant>();
  private readonly declared = new Map<string, readonly number[]>();

  async play(line: string, next: string): Promise<readonly string[]> {
    const [word = "", name = "", ...words] = line.split(" ");
    const rest = words.join(" ");
    if (word === "#") return [];
    if (word === "given")
      return this.opened ? outcomeOf(this.opened, line.slice("given".length), this.form !== "") : [];
    if (word === "opset") this.opset = Number(name);
    else if (word === "as") this.form = name;
    else if (word === "dim") this.dims[name] = Number(rest);
    else if (word === "bind") this.bound.set(name, constantOf(rest));
    else if (word === "says") this.declared.set(name, rest.split(",").map(Number));
    else if (word === "body") this.readBody(line);
    else this.text.push(line);
    return this.text.length > 0 && /^(?:$|given\b|#)/.test(next) ? this.lowered() : [];
  }

  private readBody(line: string): void {
    const [, name = "", inputs = "", text = ""] = /^body (\w+)(?:\((.*?)\))?: (.*)$/.exec(line) ?? [];
    this.bodies[name] = bodyOf(text, inputs === "" ? [] : inputs.split(", "), this.bodies);
  }

  private lowered(): readonly string[] {
    const read = onnx(this.text.join("\n"), this.opset, this.bodies);
    const graph: Graph = this.declared.size > 0 ? { ...read, declared: this.declared } : read;
    this.text = [];
    try {
      const opened = openGraph(graph, { dims: this.dims, constants: this.bound });
      this.opened = FORMS[this.form]?.(opened) ?? opened;
      return networkText(this.opened.program);
    } catch (error) {
      if (error instanceof UsageError)
        return error
          .explain()
          .split("\n")
          .map((text, i) => (i === 0 ? `refused: ${text}` : text));
      throw error;
    }
  }
}

function begin(): Play {
  let paragraph = new Paragraph();
  return (line, next) => {
    if (line !== "") return paragraph.play(line, next);
    paragraph = new Paragraph();
    return [];
  };
}

describe("networks", () => {
  playTranscripts("networks", begin);
});
