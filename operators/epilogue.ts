/**
 * @file Epilogues, by name or as an equation: element-wise equations applied to the output of an operator before it is stored.
 *
 *     requantize      res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k] + bias[k], 0)))
 *
 * Names apply to every operator; those with per-channel values apply to operators whose output has channels.
 */

import { entryOf, isDefined } from "../abstraction/collections.ts";
import type { TensorSpec } from "../abstraction/computation.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import { attempt, nearest, suggestion, UsageError } from "../abstraction/error.ts";
import { accessesIn, childrenOf, type Equation, type Expr, tensorsOf, walk } from "../abstraction/expression.ts";
import { parseEpilogue } from "../abstraction/parse.ts";
import { typeOf } from "../abstraction/typing.ts";

const gelu = (x: string): string => `res[*] = 0.5 * (${x}) * (1 + erf((${x}) * 0.7071067811865476))`;

/**
 * `out` is the operator's output, `[*]` the index of its element, `[channel]` the channel of that element. `real` is the output where it is no
 * integer, and f32 of it otherwise.
 */
const EPILOGUES: Readonly<Record<string, string>> = {
  relu: "res[*] = max(out[*], 0)",
  bias: "res[*] = out[*] + bias[channel]",
  "bias-relu": "res[*] = max(out[*] + bias[channel], 0)",
  gelu: gelu("real[*]"),
  "bias-gelu": gelu("real[*] + bias[channel]"),
  silu: "res[*] = real[*] / (1 + exp(-real[*]))",
  hardswish: "res[*] = real[*] * min(max(real[*] / 6 + 0.5, 0), 1)",
  requantize: "res[*] = sat_u8(round(max(f32(out[*]) * scale[channel] + bias[channel], 0)))",
  ...Object.fromEntries(["f16", "bf16", "f32"].map((dtype) => [dtype, `res[*] = ${dtype}(out[*])`])),
};

export const EPILOGUE_NAMES: readonly string[] = Object.keys(EPILOGUES);

/** The output to which an epilogue is applied. */
export interface EpilogueSubject {
  /** Name of the operator or equation, for messages. */
  readonly name: string;
  /** The tensor that the equation assigns, its type, and the names of its dimensions. */
  readonly target: string;
  readonly dtype: DType;
  readonly axes: readonly string[];
  /** The dimension that counts channels. */
  readonly channel?: string | undefined;
}

/**
 * The epilogue's equation and its tensors. A further tensor has the type in which it is used (f32 by default). It counts as constant unless it has an
 * element for each element of the output.
 * @param text a name of the table, or an equation
 * @throws UsageError when there is no such name, or the subject has no channels
 */
export function epilogueFor(
  text: string,
  subject: EpilogueSubject,
): { readonly equation: Equation; readonly tensors: Readonly<Record<string, TensorSpec>> } {
  const equation = parseEpilogue(text.includes("=") ? text : presetText(text, subject));
  const known: Record<string, DType> = { [subject.target]: subject.dtype };
  learnTypes(equation.value, known);
  const output = equation.target.tensor;
  const inputs = tensorsOf(equation).filter((t) => t !== output && t !== subject.target);
  const reads = [equation, ...(equation.beside ?? [])].flatMap((e) => accessesIn(e.value));
  return {
    equation,
    tensors: Object.fromEntries(
      inputs.map((name) => {
        const rank = reads.find((a) => a.tensor === name)?.index.length ?? 0;
        return [name, { dtype: known[name] ?? "f32", constant: rank < subject.axes.length }];
      }),
    ),
  };
}

function presetText(name: string, { name: subject, target, dtype, axes, channel }: EpilogueSubject): string {
  const preset = entryOf(EPILOGUES, name);
  if (preset === undefined)
    throw new UsageError(
      name === "" ? "the epilogue is empty" : `unknown epilogue "${name}"`,
      [
        ...(nearest(name, EPILOGUE_NAMES) === undefined ? [] : [suggestion(name, EPILOGUE_NAMES)]),
        `known: ${EPILOGUE_NAMES.join(", ")}`,
        `or an equation, for example "res[${axes.join(",")}] = max(${target}[${axes.join(",")}], 0)"`,
      ].join("\n  "),
    );
  const textFor = (counted: string): string =>
    preset
      .replaceAll("real[*]", isInteger(dtype) ? "f32(out[*])" : "out[*]")
      .replaceAll("out[*]", `${target}[${axes.join(",")}]`)
      .replaceAll("[*]", `[${axes.join(",")}]`)
      .replaceAll("[channel]", `[${counted}]`);
  if (preset.includes("[channel]") && channel === undefined)
    throw new UsageError(
      `${subject}: epilogue ${name} has a value for each channel, and ${target} has no channels`,
      `write the equation, for example --epilogue "${textFor(axes.at(-1) ?? "0")}"`,
    );
  return textFor(channel ?? "");
}

/** Gives a tensor the type of the value it is combined with: `bias` in `out[i,j] + bias[j]`. */
function learnTypes(value: Expr, known: Record<string, DType>): void {
  // Inner nodes before outer ones.
  for (const node of [...walk(value)].reverse()) {
    if (node.kind !== "binary" && node.kind !== "call") continue;
    const parts = childrenOf(node);
    // Types that disagree are reported by `defineComputation`.
    const found = parts.map((part) => attempt(() => typeOf(part, known))).find(isDefined);
    if (found === undefined) continue;
    for (const part of parts) if (part.kind === "access") known[part.tensor] ??= found;
  }
}
