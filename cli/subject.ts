/**
 * @file Turns command-line words into a computation and the instructions to map it onto.
 *
 *     conv2d --c 64 --k 128 --dtype u8s8 --layout NHWC --intrinsic vnni
 *     "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 64 --j 64 --k 64 --dtype f16
 */

import { z } from "zod";
import type { Extents } from "../abstraction/affine.ts";
import { defined, unique } from "../abstraction/collections.ts";
import { type Computation, defineComputation, type TensorSpec, withConstants } from "../abstraction/computation.ts";
import { type DType, isDType } from "../abstraction/dtype.ts";
import { attempt, automapCommand, suggestion, UsageError } from "../abstraction/error.ts";
import { accessesOf, axesOf, type Equation, tensorsOf } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { constantsOf } from "../abstraction/time.ts";
import { typeOf } from "../abstraction/typing.ts";
import { intrinsicsNamed, knownIntrinsics } from "../intrinsics/index.ts";
import { MODELS } from "../network/models/index.ts";
import { type OperandTypes, parseDataTypes, printDataTypes, typeSuggestion } from "../operators/data-types.ts";
import { EPILOGUE_NAMES, epilogueFor } from "../operators/epilogue.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate, type Operator, typeProblem } from "../operators/operator.ts";
import type { Cli } from "./command.ts";
import { collect, optionalText, optionWords } from "./options.ts";
import { texts } from "./output.ts";

/** Options of every command that takes an operator. */
export const subjectOptions = z.object({
  dtype: optionalText,
  sum: optionalText,
  layout: optionalText,
  shape: optionalText,
  epilogue: optionalText,
  constant: texts.optional(),
  intrinsic: optionalText,
  declare: texts.optional(),
});
export type SubjectOptions = z.infer<typeof subjectOptions>;

export function addSubjectOptions(command: Cli, argument = "<operator or equation>"): Cli {
  return command
    .argument(argument, "an operator's name (`automap operator list`), or an equation in quotes")
    .option(
      "--<axis or parameter> <n>",
      "extent of an axis, value of a parameter or constant, steps in time: --c 64 --stride 2 --a 0.25 --t 100",
    )
    .option(
      "--dtype <types>",
      "element types: f16, bf16, u8s8 ..., or by tensor: a=u8,b=s8 (default: those of the instruction that is named or mapped onto, else f32)",
    )
    .option("--sum <type>", "type of the accumulator (default: s32 for integers, f32 for f16, bf16, tf32)")
    .option("--layout <layout>", "NHWC, NCHW4c ..., or by tensor: in=NHWC,w=KCRS (default: row-major)")
    .option(
      "--shape <shape>",
      "of tensors of an equation that its axes do not say, such as tables read by an index: table=1000x16",
    )
    .option(
      "--epilogue <name or equation>",
      `applied to each element before it is stored: ${EPILOGUE_NAMES.join(", ")}, or an equation in quotes`,
    )
    .option(
      "--constant <tensor>",
      "an input that never changes, as weights: packed once ahead of time; may be given again",
      collect,
    )
    .option(
      "--intrinsic <name>",
      "an instruction or a family of instructions (`automap intrinsic list`); all by default",
    )
    .allowUnknownOption()
    .allowExcessArguments();
}

/** The options of a subject as they were given, for a command to paste; those of its instruction and of declarations are apart. */
export function givenOptions({ dtype, sum, layout, epilogue, constant = [] }: SubjectOptions): string[] {
  return [...optionWords({ dtype, sum, layout, epilogue }), ...constant.flatMap((tensor) => ["--constant", tensor])];
}

/** The instructions that a name or family stands for; all of them when none is given. */
export function readIntrinsics(name: string | undefined): readonly Intrinsic[] {
  return name === undefined || name === "all" ? knownIntrinsics() : intrinsicsNamed(name);
}

/** The names of these instructions; undefined when none is given. */
export const namesOf = (name: string | undefined): string[] | undefined =>
  name === undefined ? undefined : intrinsicsNamed(name).map((intrinsic) => intrinsic.name);

/** The types an instruction takes: its inputs in order, and its accumulator. */
export function typesTakenBy(intrinsic: Intrinsic): OperandTypes {
  const [target, first, second] = intrinsic.operands;
  const sum = target?.dtype ?? "f32";
  const a = first?.dtype ?? sum;
  return { inputs: [a, second?.dtype ?? a], sum };
}

/** The instruction whose types apply where `--dtype` is absent: the named one, unless it or another of its family takes f32. Otherwise it is f32. */
function typingOf(name: string | undefined): Intrinsic | undefined {
  if (name === undefined || name === "all") return undefined;
  const named = intrinsicsNamed(name);
  return named.some((intrinsic) => printDataTypes(typesTakenBy(intrinsic)) === "f32") ? undefined : named[0];
}

/** The types of an operator where `--dtype` is absent, in every command: `f32`, or those of the named instruction. */
export function defaultTypes(name: string | undefined): string {
  const like = typingOf(name);
  return like ? printDataTypes(typesTakenBy(like)) : "f32";
}

/**
 * The computation that the words describe.
 * @param like the instruction whose types apply when none are given, of several that the computation is mapped onto in turn
 */
export function readComputation(
  subject: string,
  parameters: Extents,
  options: SubjectOptions,
  like = typingOf(options.intrinsic),
): Computation {
  if (subject.includes("[") || subject.includes("=")) {
    if (options.dtype !== undefined || like === undefined) return readEquation(subject, parameters, options);
    // The instruction's types may not fit the equation's casts. The equation is then taken in f32, and refused with a reason.
    return (
      attempt(() => readEquation(subject, parameters, options, like)) ?? readEquation(subject, parameters, options)
    );
  }
  if (subject.endsWith(".onnx") || Object.hasOwn(MODELS, subject))
    throw new UsageError(`${subject} is a network, not an operator`, automapCommand("tune-network", subject));
  const operator = operatorNamed(subject);
  if (options.shape !== undefined)
    throw new UsageError(
      `--shape is for an equation; those of ${operator.name} follow from its parameters`,
      automapCommand("operator", "show", operator.name),
    );
  const taken = like && typesTakenBy(like);
  // An operator that refuses the instruction's types is taken in f32, and the mapping is refused with a reason.
  const fitting = taken && typeProblem(operator, taken) === undefined ? taken : undefined;
  const types = options.dtype === undefined ? fitting : readTypes(operator, options.dtype, options.sum);
  const layouts =
    options.layout === undefined
      ? undefined
      : options.layout.includes("=")
        ? readPairs(options.layout, "--layout")
        : options.layout;
  return instantiate(operator, {
    parameters,
    ...(types === undefined
      ? {}
      : { types: options.sum === undefined ? types : parseDataTypes(types.inputs.join(""), options.sum) }),
    ...defined({ layouts, epilogue: options.epilogue }),
    constants: options.constant ?? [],
  });
}

/** Parses `u8s8`, or types by tensor as in `in=u8,w=s8`. An operator has one type for each factor and one for the sum. */
function readTypes(operator: Operator, text: string, sum: string | undefined): OperandTypes {
  if (!text.includes("=")) return parseDataTypes(text, sum);
  const given: Record<string, { tensor: string; dtype: string }> = {};
  for (const [tensor, dtype] of Object.entries(readPairs(text, "--dtype"))) {
    const place = operator.tensors[tensor]?.type;
    const known = Object.keys(operator.tensors);
    if (place === undefined)
      throw new UsageError(`--dtype: ${operator.name} has no tensor "${tensor}"`, suggestion(tensor, known));
    if (typeNamed(dtype, tensor) !== place && isDType(place))
      throw new UsageError(`--dtype: ${tensor} of ${operator.name} is always ${place}`);
    const other = given[place];
    if (other && other.dtype !== dtype)
      throw new UsageError(`--dtype: ${operator.name} gives ${other.tensor} and ${tensor} one type`);
    given[place] = { tensor, dtype };
  }
  const first = given["first"]?.dtype ?? given["second"]?.dtype ?? "f32";
  return parseDataTypes(`${first}${given["second"]?.dtype ?? first}`, given["sum"]?.dtype ?? sum);
}

function typeNamed(word: string, tensor: string): DType {
  if (isDType(word)) return word;
  throw new UsageError(`unknown data type "${word}" of ${tensor}`, typeSuggestion(word));
}

function readEquation(subject: string, extents: Extents, options: SubjectOptions, like?: Intrinsic): Computation {
  const [text = "", behind] = subject.split(";");
  const equation = parseEquation(text);
  const target = equation.target.tensor;
  const inputs = tensorsOf(equation).filter((t) => t !== target);
  const tensors: Record<string, TensorSpec> = {};
  const byTensor = options.dtype?.includes("=") ? readPairs(options.dtype, "--dtype") : undefined;
  const types =
    byTensor || options.dtype === undefined ? like && typesTakenBy(like) : parseDataTypes(options.dtype, options.sum);
  const layouts = options.layout === undefined ? {} : readPairs(options.layout, "--layout");
  const shapes = options.shape === undefined ? {} : readShapes(options.shape);
  inputs.forEach((name, i) => {
    const dtype = typeNamed(byTensor?.[name] ?? types?.inputs[Math.min(i, 1)] ?? "f32", name);
    tensors[name] = { dtype, ...defined({ layout: layouts[name] }), ...shapes[name] };
  });
  const recurrent = accessesOf(equation)
    .slice(1)
    .some((a) => a.tensor === target);
  const sum = byTensor?.[target] ?? options.sum ?? (recurrent ? (types?.sum ?? "f32") : undefined);
  if (sum !== undefined) tensors[target] = { dtype: typeNamed(sum, target) };
  const epilogue = options.epilogue ?? behind;
  const ending = epilogue === undefined ? undefined : readEpilogue(epilogue, equation, tensors);
  const output = ending?.equation.target.tensor;
  for (const [name, spec] of Object.entries(ending?.tensors ?? {})) {
    const dtype = typeNamed(byTensor?.[name] ?? spec.dtype ?? "f32", name);
    tensors[name] ??= {
      ...spec,
      dtype,
      ...defined({ layout: layouts[name] }),
      ...shapes[name],
    };
  }
  if (output !== undefined && layouts[output] !== undefined) tensors[output] = { layout: layouts[output] };
  for (const [given, what] of [
    [byTensor ?? {}, "--dtype"],
    [layouts, "--layout"],
    [shapes, "--shape"],
  ] as const) {
    for (const name of Object.keys(given)) {
      const known = unique([target, ...inputs, ...(ending ? tensorsOf(ending.equation) : [])]);
      if (!known.includes(name))
        throw new UsageError(`${what}: the equation has no tensor "${name}"`, suggestion(name, known));
    }
  }
  const computed = [target, output].find((name) => name !== undefined && shapes[name] !== undefined);
  if (computed !== undefined)
    throw new UsageError(
      `--shape: ${computed} is computed, and its shape follows from its axes`,
      "give the shapes of inputs",
    );
  const targetLayout = layouts[target];
  if (targetLayout !== undefined) {
    const held = tensors[target]?.dtype ?? types?.sum ?? "f32";
    tensors[target] = { dtype: held, layout: targetLayout };
  }
  const names = axesOf(equation);
  const constants = constantsOf(equation);
  const lacking = constants.filter((name) => extents[name] === undefined);
  if (lacking.length > 0)
    throw new UsageError(
      `${lacking.join(", ")} of the equation ${lacking.length === 1 ? "is a constant" : "are constants"} without a value`,
      `for example ${lacking.map((name) => `--${name} 0.25`).join(" ")}`,
    );
  const missing = names.filter((a) => extents[a] === undefined);
  if (missing.length > 0) {
    throw new UsageError(
      missing.length === 1
        ? `the equation's axis ${missing[0]} needs an extent`
        : `the equation's axes ${missing.join(", ")} need extents`,
      `for example ${missing.map((a) => `--${a} 64`).join(" ")}`,
    );
  }
  const made = defineComputation(
    ending ? { equation, epilogue: ending.equation, extents, tensors } : { equation, extents, tensors },
  );
  return withConstants(made, options.constant ?? []);
}

/** The epilogue of an equation. Its channel axis cannot be guessed, so named epilogues that need channels are refused. */
function readEpilogue(
  text: string,
  { target, value }: Equation,
  tensors: Readonly<Record<string, TensorSpec>>,
): ReturnType<typeof epilogueFor> {
  const dtypes = Object.fromEntries(
    Object.entries(tensors).flatMap(([name, { dtype }]) => (dtype === undefined ? [] : [[name, dtype] as const])),
  );
  return epilogueFor(text, {
    name: "equation",
    target: target.tensor,
    dtype: dtypes[target.tensor] ?? typeOf(value, dtypes) ?? "f32",
    axes: target.index.map((e, d) => (e.kind === "axis" ? e.name : `d${d}`)),
  });
}

/** Parses `table=1000x16` into the shape of each tensor. */
function readShapes(text: string): Record<string, { readonly shape: readonly number[] }> {
  const shapes = Object.entries(readPairs(text, "--shape")).map(([name, value]) => {
    const shape = value.split("x").map((part) => (/^\d+$/.test(part) ? Number(part) : Number.NaN));
    if (!shape.every((size) => Number.isSafeInteger(size) && size > 0))
      throw new UsageError(`--shape: "${value}" of ${name} is no list of sizes`, `for example --shape ${name}=1000x16`);
    return [name, { shape }] as const;
  });
  return Object.fromEntries(shapes);
}

/** Parses `in=NHWC,w=KCRS` into a record. */
function readPairs(text: string, option: string): Record<string, string> {
  const pairs = new Map<string, string>();
  for (const part of text.split(",")) {
    const [name, value, more] = part.split("=");
    if (!name || !value || more !== undefined)
      throw new UsageError(`${option}: "${part}" is not tensor=value`, `for example ${option} in=...,w=...`);
    if (pairs.has(name.trim())) throw new UsageError(`${option}: ${name.trim()} is given twice`);
    pairs.set(name.trim(), value.trim());
  }
  return Object.fromEntries(pairs);
}
