/**
 * @file Nests as programs and what is made of them: test/golden/nests. The first line of a paragraph says what is asked of the nest beneath it,
 * for which computation:
 *
 *     judge y[i] = x[63-i] --i 64                  the fault that the interpreter finds; right where it computes that in every order of threads
 *     name, warps reversed y[i] = ...              its first line alone; here in one order
 *     cuda mma.m16n8k16.f32.f16 out[i,j] += ...    the lines of its kernel, without comments, memory and the words for where a thread stands
 *
 * A line `? barrier block; commit` asks it of the nest with these statements in place of `...`, and with declarations in place of those of the
 * same name. Lines that begin with # are remarks.
 */

import { describe } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { UsageError } from "../../abstraction/error.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { readNest } from "../support/nest-text.ts";
import { rowNamed, smallIntegers, stated } from "../support/subjects.ts";
import { type Play, playTranscripts } from "../support/transcript.ts";

/** The fault of the first order of threads that has one, or what all of them make of the nest. */
function faultOf(equation: string, nest: string, orders: readonly NestOrder[]): string[] {
  const computation = stated(equation);
  const inputs = smallIntegers(computation);
  const right = interpret(computation, inputs);
  try {
    const isRight = orders.every((order) => {
      const made = interpretNest(readNest(nest), computation, inputs, 1, order);
      return made.every((value, i) => value === right[i]);
    });
    return [isRight ? "right" : "no fault"];
  } catch (error) {
    if (error instanceof NestFault) return error.message.split("\n");
    throw error;
  }
}

/** What stands in its kernels that no statement of the nest asked for. */
const IDLE =
  /^ *(?:\/\/|__shared__|const int (?:tile|warp|thread|lane) =|(?:float|unsigned|int|wmma::fragment<.*>) [abc]\w*\[|.*dynamic_shared)/;

function cudaLines(instruction: string, equation: string, nest: string): string[] {
  try {
    const { source } = generateCuda(stated(equation), rowNamed(instruction), readNest(nest), { lines: [] });
    const [, kernel = ""] = /__global__ .*?\{\n(.*?)\n\}\n/s.exec(source) ?? [];
    const lines = kernel.split("\n").filter((line) => !IDLE.test(line));
    return lines.map((line) => line.slice(2));
  } catch (error) {
    if (error instanceof UsageError) return error.explain().split("\n");
    return [(error as Error).message]; // an internal one
  }
}

function answer(asked: string, nest: string): string[] {
  const [, instruction = "", product = ""] = /^cuda (\S+) (.*)$/.exec(asked) ?? [];
  if (product !== "") return cudaLines(instruction, product, nest);
  const [, verb, order, equation = ""] = /^(judge|name)(, warps reversed)? (.*)$/.exec(asked) ?? [];
  const fault = faultOf(equation, nest, order === undefined ? [{}, ...ADVERSE_ORDERS] : [{ warps: "reversed" }]);
  return verb === "name" ? fault.slice(0, 1) : fault;
}

/** The nest with the parts of an alternative in their places. */
function withParts(nest: readonly string[], alternative: string): string {
  const parts = alternative.split("; ");
  const nameOf = (line: string): string | undefined =>
    /^(?:registers|shared|cluster|workspace|local) (\w+): /.exec(line)?.[1];
  const declared = parts.filter((part) => nameOf(part) !== undefined);
  const kept = nest.filter((line) => !declared.some((part) => nameOf(part) === nameOf(line)));
  const statements = parts.filter((part) => !declared.includes(part));
  const filled = kept.flatMap((line) =>
    line.trim() === "..." ? statements.map((text) => line.replace("...", text)) : [line],
  );
  return [...declared, ...filled].join("\n");
}

describe("a nest", () => {
  playTranscripts("nests", (): Play => {
    let asked = "";
    let nest: string[] = [];
    return (line, next) => {
      if (line.startsWith("#")) return [];
      if (line.startsWith("? ")) return answer(asked, withParts(nest, line.slice(2)));
      if (line === "") {
        asked = "";
        nest = [];
      } else if (asked === "") asked = line;
      else nest.push(line);
      return line !== "" && next === "" && !nest.some((text) => text.trim() === "...")
        ? answer(asked, nest.join("\n"))
        : [];
    };
  });
});
