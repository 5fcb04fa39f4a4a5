/**
 * @file `automap operator list|show`: the operators, their equations and parameters.
 */

import type { Command } from "commander";
import { z } from "zod";
import { shapeOf } from "../abstraction/affine.ts";
import { namesOf } from "../abstraction/collections.ts";
import { elementCount, equationText } from "../abstraction/computation.ts";
import { usefulPoints } from "../abstraction/condition.ts";
import { printExpr } from "../abstraction/expression.ts";
import { OPERATORS, operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { indent } from "../report/text.ts";
import type { Cli } from "./command.ts";
import { flag, optionalText, readParameters } from "./options.ts";
import { documentOf, EXIT, type ExitCode, integer, number, print, printJson, style, text, texts } from "./output.ts";
import { readComputation } from "./subject.ts";
import { fitted, worded } from "./terminal.ts";

const listOptions = z.object({ json: flag });
const showOptions = z.object({
  json: flag,
  dtype: optionalText,
  sum: optionalText,
  layout: optionalText,
});

const named = { aliases: texts, summary: text, equation: text };
const listSchema = documentOf({ operators: z.array(z.strictObject({ name: text, ...named })) });
const showSchema = documentOf({
  operator: text,
  ...named,
  parameters: z.record(text, z.strictObject({ default: integer, min: integer, describe: text })),
  axes: z.array(z.strictObject({ axis: text, extent: integer, kind: z.enum(["spatial", "reduce"]) })),
  tensors: z
    .array(
      z.strictObject({
        tensor: text,
        dtype: text,
        shape: z.array(integer),
        dims: texts,
        storage: text.describe("which place an element has, in elements"),
        elements: integer,
        constant: z.boolean().describe("whether it is the same in every call, as weights are"),
      }),
    )
    .describe("the output first"),
  points: number.describe("multiply-adds"),
});

export function register(operator: Cli): void {
  operator.examples(["automap operator list", "automap operator show conv2d --c 64 --layout NHWC"]);
  operator
    .command("list")
    .json(listSchema)
    .summary("every operator: name, alias, what it computes")
    .examples(["automap operator list"])
    .runs(listOptions, list);
  operator
    .command("show")
    .json(showSchema)
    .summary("one operator: parameters, equation, tensors")
    .argument("<operator>", "name or alias")
    .option("--<parameter> <n>", "value of a parameter, for example --c 64")
    .option("--dtype <types>", "element types: f16, u8s8 ...")
    .option("--sum <type>", "type sums are formed in")
    .option("--layout <layout>", "NHWC ..., or by tensor: in=NHWC,w=KCRS")
    .allowUnknownOption()
    .allowExcessArguments()
    .examples(["automap operator show conv2d --c 64 --h 56 --w 56 --layout NHWC"])
    .runs(showOptions, show);
}

function list({ json }: z.infer<typeof listOptions>): ExitCode {
  if (json) {
    printJson(listSchema, {
      operators: OPERATORS.map((o) => ({
        name: o.name,
        aliases: o.aliases,
        summary: o.summary,
        equation: equationText(instantiate(o)),
      })),
    });
    return EXIT.ok;
  }
  const rows = OPERATORS.map((o) => [o.name, o.aliases.join(" "), o.summary]);
  print(worded([["operator", "alias", "what"], ...rows]));
  print(style("dim", "\nequation, parameters and tensors of one: automap operator show conv2d"));
  return EXIT.ok;
}

function show(given: z.infer<typeof showOptions>, command: Command, name: string): ExitCode {
  const operator = operatorNamed(name);
  const computation = readComputation(operator.name, readParameters(command), given);
  const axes = computation.axes.map(({ name: axis, extent, kind }) => ({ axis, extent, kind }));
  const tensors = Object.values(computation.tensors).map((t) => ({
    tensor: t.name,
    dtype: t.dtype,
    shape: shapeOf(t),
    dims: namesOf(t.dims),
    storage: printExpr(t.storage, "formula"),
    elements: elementCount(t),
    constant: t.constant,
  }));
  if (given.json) {
    printJson(showSchema, {
      operator: operator.name,
      aliases: operator.aliases,
      summary: operator.summary,
      parameters: operator.parameters,
      equation: equationText(computation),
      axes,
      tensors,
      points: usefulPoints(computation),
    });
    return EXIT.ok;
  }
  const parameters = Object.entries(operator.parameters).map(([p, { default: value, describe }]) => [
    `--${p}`,
    String(value),
    describe,
  ]);
  print(
    [
      `${style("bold", operator.name)}${operator.aliases.length > 0 ? ` (${operator.aliases.join(", ")})` : ""}: ${operator.summary}`,
      "",
      indent(equationText(computation)),
      "",
      "parameters",
      indent(worded([["", "default", ""], ...parameters], 2)),
      "",
      "axes",
      indent(
        fitted(
          axes.map((a) => [a.axis, String(a.extent), a.kind === "spatial" ? "kept" : "summed"]),
          2,
        ),
      ),
      "",
      "tensors",
      indent(
        fitted(
          tensors.map((t) => [
            t.tensor,
            t.dtype,
            `[${t.dims.map((d, i) => `${d} ${t.shape[i]}`).join(", ")}]`,
            `element at ${t.storage}`,
            t.constant ? "constant" : "",
          ]),
          2,
        ),
      ),
      "",
      `${usefulPoints(computation)} multiply-adds`,
    ].join("\n"),
  );
  return EXIT.ok;
}
