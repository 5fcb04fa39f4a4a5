/**
 * @file The label of a workload in tables, test reports and charts.
 *
 *     conv2d c 64 k 64 h 56 w 56 r 3 s 3 pad 1, u8s8->u8, NHWC, requantize
 *     c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 64 k 64, u8s8->s32
 *
 * Different workloads have different labels. A workload is named by its operator when the label suffices to reconstruct the computation. Otherwise it
 * is named by its equation, and facts that the other words omit are listed by tensor.
 */

import { layoutStorage, rowMajor, shapeOf } from "../abstraction/affine.ts";
import { namesOf, withName } from "../abstraction/collections.ts";
import {
  type Computation,
  computationKey,
  defineComputation,
  equationText,
  extentsOf,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import type { DType } from "../abstraction/dtype.ts";
import { attempt } from "../abstraction/error.ts";
import { printEquation, printExpr, tensorsOf } from "../abstraction/expression.ts";
import { type OperandTypes, parseDataTypes } from "./data-types.ts";
import { EPILOGUE_NAMES, type EpilogueSubject, epilogueFor } from "./epilogue.ts";
import { OPERATORS } from "./index.ts";
import { type InstantiateOptions, instantiate, type Operator } from "./operator.ts";

/** The parts of a label, as the command line reads them except for the sizes; empty when there is nothing to say. */
export interface WorkloadWords {
  /** The operator's name, or the equation. */
  readonly subject: string;
  /** `c 64 h 56`: an operator's parameters, without those whose default is their minimum and that have it; for an equation all extents. */
  readonly shape: string;
  /** `u8s8->s32`: types of the inputs and of the output; `f16->f16->bf16` when the sums before an epilogue have an unusual type. */
  readonly types: string;
  /** `NHWC` as `--layout` reads it, or `in=NHWC,w=KRSC` for the tensors whose layout is not the default. */
  readonly layout: string;
  /** The name of an epilogue in the table, or its equation. */
  readonly epilogue: string;
  /** Tensors whose constancy the other words omit, or of an equation whose types, shapes or storage they omit. */
  readonly besides: string;
}

/** The computation to describe. {@link parameters} are all parameters of its operator. */
export interface Described {
  readonly computation: Computation;
  readonly parameters?: Readonly<Record<string, number>>;
}

export function describeWorkload({ computation, parameters = {} }: Described): WorkloadWords {
  const operator = withName(OPERATORS, computation.name);
  return (operator && asOperator(operator, computation, parameters)) ?? asEquation(computation);
}

/** All words in one line. @param name the user's own name for the workload */
export function workloadLabel(words: WorkloadWords, name?: string): string {
  const { subject, shape, types, layout, epilogue, besides } = words;
  const sizes = shape.replaceAll("  ", " ");
  const what = subject.includes("[") && sizes !== "" ? `${subject}, ${sizes}` : `${subject} ${sizes}`;
  const label = [what.trim(), types, layout, epilogue, besides].filter((part) => part !== "").join(", ");
  return name === undefined ? label : `${name}: ${label}`;
}

// ---- As an operator

/** Undefined when no parameters of the operator give the computation. */
function asOperator(
  operator: Operator,
  computation: Computation,
  parameters: Readonly<Record<string, number>>,
): WorkloadWords | undefined {
  if (Object.keys(operator.parameters).some((name) => parameters[name] === undefined)) return undefined;
  const types = typesIn(operator, computation);
  const make = (options: InstantiateOptions): Computation | undefined =>
    attempt(() => instantiate(operator, { parameters, types, ...options }));
  const { epilogue } = computation;
  const isAsked = epilogue !== undefined && operator.stores === undefined;
  const endings = isAsked ? [...EPILOGUE_NAMES, printEquation(epilogue.equation)] : [""];
  const ending = endings.find((text) => {
    const made = make(text === "" ? {} : { epilogue: text });
    return made !== undefined && equationText(made) === equationText(computation);
  });
  if (ending === undefined) return undefined;
  const ended = ending === "" ? {} : { epilogue: ending };
  const usual = make(ended)?.tensors ?? {};
  const constants = Object.values(computation.tensors).flatMap((t) =>
    t.constant && usual[t.name]?.constant === false ? [t.name] : [],
  );
  const options = { ...ended, constants };
  const layout = layoutsOf(computation, make(options)).find(({ layouts }) => {
    const made = make(layouts === undefined ? options : { ...options, layouts });
    return made !== undefined && computationKey(made) === computationKey(computation);
  });
  if (!layout) return undefined;
  const shape = Object.entries(operator.parameters)
    .filter(([name, { default: usual, min }]) => usual !== min || parameters[name] !== min)
    .map(([name]) => `${name} ${parameters[name]}`);
  return {
    subject: operator.name,
    shape: shape.join("  "),
    types: typesText(computation, types.inputs),
    layout: layout.word,
    epilogue: ending,
    besides: constants.map((tensor) => `${tensor} constant`).join(" "),
  };
}

function typesIn(operator: Operator, computation: Computation): OperandTypes {
  const sum = targetOf(computation).dtype;
  const of = (place: "first" | "second"): DType | undefined =>
    Object.values(computation.tensors).find((t) => operator.tensors[t.name]?.type === place)?.dtype;
  const first = of("first") ?? of("second") ?? sum;
  return { inputs: [first, of("second") ?? first], sum };
}

/** Possible names of its layouts, the shortest first; empty when a storage has no name. */
function layoutsOf(
  computation: Computation,
  usual: Computation | undefined,
): readonly { readonly word: string; readonly layouts?: InstantiateOptions["layouts"] & {} }[] {
  const storage = ({ storage: formula }: Tensor): string => printExpr(formula, "formula");
  const otherwise = Object.values(computation.tensors).filter((t) => {
    const known = usual?.tensors[t.name];
    return known === undefined || storage(known) !== storage(t);
  });
  if (otherwise.length === 0) return [{ word: "" }];
  const named = otherwise.map((t): [string, string | undefined] => [t.name, layoutName(t)]);
  const layouts = Object.fromEntries(named.flatMap(([name, layout]) => (layout === undefined ? [] : [[name, layout]])));
  if (Object.keys(layouts).length < named.length) return [];
  const word = Object.entries(layouts).map(([name, layout]) => `${name}=${layout}`);
  const one = layouts["in"];
  return [...(one === undefined ? [] : [{ word: one, layouts: one }]), { word: word.sort().join(","), layouts }];
}

/** `NHWC`; undefined when no layout name gives the storage. */
export function layoutName({ dims, storage }: Tensor): string | undefined {
  const formula = printExpr(storage, "formula");
  const parts = [...formula.matchAll(/([a-z]\w*)(?:\s*([/%])\s*(\d+))?/gi)].map(([, dim = "", operation, size]) =>
    operation === "%" ? `${size}${dim}` : dim.toUpperCase(),
  );
  // A dimension of extent 1 may be absent from the formula; its position makes no difference.
  const absent = dims.map((d) => d.name.toUpperCase()).filter((letter) => !parts.includes(letter));
  const name = [...absent, ...parts].join("");
  const made = attempt(() => layoutStorage(name, dims));
  return made !== undefined && printExpr(made, "formula") === formula ? name : undefined;
}

// ---- As an equation

function asEquation(computation: Computation): WorkloadWords {
  const { name, axes, equation, epilogue, program } = computation;
  const text = program ? equationText(computation) : printEquation(equation);
  const types = typesText(computation, inputTypes(computation));
  const ending = epilogue ? equationEnding(computation) : "";
  const others = Object.values(computation.tensors).flatMap((t): string[] => {
    if (printExpr(t.storage, "formula") === printExpr(rowMajor(t.dims), "formula")) return [];
    const layout = layoutName(t);
    return layout === undefined ? [] : [`${t.name}=${layout}`];
  });
  return {
    subject: name === "equation" ? text : `${name}: ${text}`,
    shape: axes.map((a) => `${a.name} ${a.extent}`).join("  "),
    types,
    layout: others.join(","),
    epilogue: ending,
    besides: unsaidBy(computation),
  };
}

/** The sums of an equation, to which an epilogue is applied. */
function sumsOf({ name: target, dtype, dims }: Tensor): EpilogueSubject {
  return { name: "equation", target, dtype, axes: namesOf(dims) };
}

/** The name of an epilogue without per-channel values, else its equation. */
function equationEnding({ epilogue }: Computation): string {
  if (!epilogue) return "";
  const text = printEquation(epilogue.equation);
  const preset = EPILOGUE_NAMES.find((name) => {
    const made = attempt(() => epilogueFor(name, sumsOf(epilogue.sum)));
    return made !== undefined && printEquation(made.equation) === text;
  });
  return preset ?? text;
}

/** The tensors that are other than an equation with these extents, types and layouts makes them: `b constant`. */
function unsaidBy(computation: Computation): string {
  const { equation, epilogue } = computation;
  const sum = targetOf(computation);
  const output = outputOf(computation);
  const read = tensorsOf(equation).filter((name) => name !== sum.name);
  const [first, second] = inputTypes(computation);
  const ending = epilogue && epilogueFor(printEquation(epilogue.equation), sumsOf(sum)).tensors;
  const spec = (t: Tensor): object => {
    const layout = layoutName(t);
    const place = read.indexOf(t.name);
    const dtype = t === output ? t.dtype : place < 0 ? undefined : place === 0 ? first : second;
    return { ...ending?.[t.name], ...(dtype && { dtype }), ...(layout === undefined ? {} : { layout }) };
  };
  const tensors = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, spec(t)]));
  const made = attempt(() =>
    defineComputation({
      equation,
      ...(epilogue ? { epilogue: epilogue.equation } : {}),
      extents: extentsOf(computation),
      tensors: epilogue ? { ...tensors, [sum.name]: { dtype: sum.dtype } } : tensors,
    }),
  );
  if (made !== undefined && computationKey(made) === computationKey(computation)) return "";
  const all = Object.values(computation.tensors);
  const others = all.flatMap((t): readonly string[] => {
    const usual = made?.tensors[t.name];
    if (usual === undefined || tensorText({ ...usual, constant: t.constant }) !== tensorText(t)) return [tensorText(t)];
    return usual.constant === t.constant ? [] : [`${t.name} ${t.constant ? "constant" : "not constant"}`];
  });
  return (others.length > 0 ? others : all.map(tensorText)).join(" ");
}

/** `a:u8[64,64]@m*64 + k constant`. */
function tensorText({ name, dtype, dims, storage, constant }: Tensor): string {
  const shape = shapeOf({ dims }).join(",");
  return `${name}:${dtype}[${shape}]@${printExpr(storage, "formula").replaceAll(" ", "")}${constant ? " constant" : ""}`;
}

// ---- Types

/** Types of the first two tensors that the equation reads. */
function inputTypes(computation: Computation): OperandTypes["inputs"] {
  const { name, dtype } = targetOf(computation);
  const read = tensorsOf(computation.equation).filter((tensor) => tensor !== name);
  const [first = dtype, second = first] = read.flatMap((tensor) => computation.tensors[tensor]?.dtype ?? []);
  return [first, second];
}

function typesText(computation: Computation, [first, second]: OperandTypes["inputs"]): string {
  const sum = targetOf(computation).dtype;
  const output = outputOf(computation).dtype;
  const inputs = first === second ? first : `${first}${second}`;
  const isUsual = computation.epilogue === undefined || parseDataTypes(inputs).sum === sum;
  return [inputs, ...(isUsual ? [] : [sum]), output].join("->");
}
