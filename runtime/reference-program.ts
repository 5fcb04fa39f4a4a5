/**
 * @file The equation as a plain C++ program: what `interpret` computes, number for number, a hundred times faster.
 *
 *     c[i,j] += f32(a[i,k]) * f32(b[k,j])      ->      for (Int i_ = 0; i_ < 64; i_++) for (Int j_ ...) {
 *                                                        ... v = multiply<f32>(f32::wrap(read_a(i_, k_)), f32::wrap(read_b(k_, j_)));
 *
 * Logical indices, one point after another, nothing mapped and nothing reordered: only generated kernels are clever.
 * The arithmetic is `harness/arithmetic.h`. The interpreter stays the oracle; a test holds the two equal.
 */

import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  type Axis,
  type Computation,
  elementCount,
  inputsOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { type DType, isInteger, wrap } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { type CombineOp, identityOf } from "../abstraction/equation.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { type Access, accessesIn, type Expr } from "../abstraction/expression.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { explainRun, runChild } from "./child.ts";
import { type CompileOptions, compileSource } from "./compiler.ts";
import { onThisMachine, toolProblem } from "./environment.ts";

/** No contraction of a*b + c, no reordering: every operation rounds as written. */
const FLAGS = ["-O2", "-std=c++17", "-ffp-contract=off", "-fwrapv", "-pthread"];

export interface ProgramOptions extends Omit<CompileOptions, "flags"> {
  /** Of the run, not of the compilation. */
  readonly runLimitMs?: number;
}

const RUN_LIMIT_MS = 600_000;

/**
 * The output of a computation, row-major, as {@link interpret} gives it.
 * @throws EnvironmentError when the machine lacks room or memory; Error when the program runs longer than the limit
 */
export function interpretCompiled(computation: Computation, inputs: Inputs, options: ProgramOptions): Promise<Values> {
  return onThisMachine("computing what kernels must answer", () => compileAndInterpret(computation, inputs, options));
}

async function compileAndInterpret(computation: Computation, inputs: Inputs, options: ProgramOptions): Promise<Values> {
  const { sum, epilogue } = partsOf(computation);
  if (epilogue) {
    const sums = await interpretCompiled(sum, inputs, options);
    return interpretCompiled(epilogue, { ...inputs, [targetOf(sum).name]: sums }, options);
  }
  const program = await compileSource(referenceSource(computation), FLAGS, ".out", options);
  if (program.status !== "compiled")
    throw new Error(`internal: the reference of ${computation.name} does not compile\n${program.log}`);
  const folder = await mkdtemp(join(options.workdir, `reference-${process.pid}-`));
  try {
    const files = await Promise.all(
      inputsOf(computation).map(async ({ name }) => {
        const values = inputs[name];
        if (values === undefined) throw new Error(`${computation.name}: no values for tensor "${name}"`);
        const file = join(folder, name);
        await writeFile(file, bytesOf(values));
        return file;
      }),
    );
    const answer = join(folder, "answer.f64");
    const run = await onFreeCores(options.cores, (threads, cpus) =>
      runChild([program.file, ...files, answer, `${threads}`], {
        timeLimitMs: options.runLimitMs ?? RUN_LIMIT_MS,
        cpus,
      }),
    );
    if (run.status !== "ok")
      throw (
        toolProblem(run, "computing what kernels must answer") ??
        new Error(`the reference of ${computation.name}: ${explainRun(run)}\n${run.stderr}`)
      );
    const { buffer, byteOffset, byteLength } = await readFile(answer);
    return new Float64Array(buffer.slice(byteOffset, byteOffset + byteLength));
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Work that takes all the cores there are, but for those that are measured or compiled on. */
function onFreeCores<T>(
  cores: ProgramOptions["cores"],
  work: (threads: number, cpus?: readonly number[]) => Promise<T>,
): Promise<T> {
  const most = availableParallelism();
  return cores ? cores.working((cpus) => work(cpus.length, cpus), most) : work(most);
}

function bytesOf(values: ArrayLike<number>): Uint8Array {
  const { buffer, byteOffset, byteLength } = values instanceof Float64Array ? values : Float64Array.from(values);
  return new Uint8Array(buffer, byteOffset, byteLength);
}

/**
 * The text of the program, of a computation without epilogue: arguments are a file of doubles for every input, then the file it writes,
 * then how many threads it may use.
 */
export function referenceSource(computation: Computation): string {
  const target = targetOf(computation);
  const inputs = inputsOf(computation);
  const shared = sharedAxis(computation);
  return [
    harnessText("arithmetic.h"),
    harnessText("elements.h"),
    referenceStruct("Reference", computation),
    "static Reference it;",
    ...(shared ? workers(shared.extent) : []),
    "int main(int, char** files) {",
    ...inputs.map((t, i) => `  it.${dataName(t.name)}.read(files[${i + 1}], ${elementCount(t)});`),
    `  it.${dataName(target.name)}.fill(${elementCount(target)}, 0);`,
    shared ? `  share(atoi(files[${inputs.length + 2}]));` : "  it.compute();",
    `  it.${dataName(target.name)}.write(files[${inputs.length + 1}]);`,
    "}",
    "",
  ].join("\n");
}

/** The outermost loop, when its points neither write nor read what others write: threads then share it. */
function sharedAxis({ equation, axes }: Computation): Axis | undefined {
  const outermost = axes.find((a) => a.kind === "spatial");
  const { tensor, index } = equation.target;
  const apart = index.every((e) => e.kind === "axis") && !accessesIn(equation.value).some((a) => a.tensor === tensor);
  return apart && outermost !== undefined && outermost.extent > 1 ? outermost : undefined;
}

/** `share(count)`: the struct's points, computed by so many threads. */
function workers(extent: number): string[] {
  return [
    "#include <pthread.h>",
    "struct Part { Int first, last; };",
    "static void* work(void* part) {",
    "  it.compute_part(static_cast<Part*>(part)->first, static_cast<Part*>(part)->last);",
    "  return nullptr;",
    "}",
    "static void share(Int count) {",
    "  it.clear();",
    `  count = count < 1 ? 1 : count > ${extent} ? ${extent} : count;`,
    "  auto* threads = static_cast<pthread_t*>(calloc(count, sizeof(pthread_t)));",
    "  auto* parts = static_cast<Part*>(calloc(count, sizeof(Part)));",
    "  for (Int i = 0; i < count; i++) {",
    `    parts[i] = {i * ${extent} / count, (i + 1) * ${extent} / count};`,
    "    if (pthread_create(&threads[i], nullptr, work, &parts[i])) exit(1);",
    "  }",
    "  for (Int i = 0; i < count; i++) pthread_join(threads[i], nullptr);",
    "}",
  ];
}

/** How a tensor is held by a {@link referenceStruct}. */
export interface Holding {
  /** A type with `operator[]` and `set`. */
  readonly type: string;
  /** Element offset over the names of the dimensions. */
  readonly storage: Expr;
}

/** As `elements.h` holds one: numbers the interpreter would see, row-major. */
export function heldAsNumbers(tensor: Tensor): Holding {
  return { type: `Elements<${elementType(tensor)}>`, storage: rowMajor(tensor.dims) };
}

/**
 * A struct with a member `data_in` for every tensor `in`, whose `compute()` fills the target from the others. It wants
 * `arithmetic.h`.
 * @param computation without epilogue
 */
export function referenceStruct(
  name: string,
  computation: Computation,
  hold: (tensor: Tensor) => Holding = heldAsNumbers,
): string {
  const { equation, axes } = computation;
  const target = targetOf(computation);
  const inputs = inputsOf(computation);
  const identity = identityOf(equation.op, target.dtype);
  const dtypes = Object.fromEntries(Object.values(computation.tensors).map((t) => [t.name, t.dtype]));
  const outermost = axes.find((a) => a.kind === "spatial");
  const loops = (kind: "spatial" | "reduce"): string[] =>
    axes
      .filter((a) => a.kind === kind)
      .map((a) => {
        const [from, to] = a === outermost ? ["first", "last"] : ["0", a.extent];
        return `for (Int ${axisName(a.name)} = ${from}; ${axisName(a.name)} < ${to}; ${axisName(a.name)}++)`;
      });
  const type = isInteger(target.dtype) ? "Int" : "double";
  const condition = equation.where === undefined ? "" : `if (!${printIndex(equation.where)}) continue;`;
  const { dtype } = target;
  const places = target.dims.map((_, d) => `i${d}`);
  return [
    `struct ${name} {`,
    ...[target, ...inputs].map((tensor) => declareTensor(tensor, identity, hold(tensor))),
    "  void clear() {",
    ...target.dims.map(({ extent }, d) => `    for (Int i${d} = 0; i${d} < ${extent}; i${d}++)`),
    `      ${dataName(target.name)}.set(place_${target.name}(${places.join(", ")}), ${literal(identity, dtype)});`,
    "  }",
    outermost
      ? `  /* Of the points, those with ${outermost.name} from first up to last. */\n  void compute_part(Int first, Int last) {`
      : "  void compute_part(Int, Int) {",
    // A loop even without axes, so that the body may continue.
    "    for (int whole = 0; whole < 1; whole++)",
    ...loops("spatial").map((loop) => `    ${loop}`),
    "    {",
    `      Int at = place_${target.name}(${equation.target.index.map((e) => printIndex(e)).join(", ")});`,
    "      if (at < 0) continue;",
    `      ${type} sum = 0;`,
    "      bool any = false;",
    ...loops("reduce").map((loop) => `      ${loop}`),
    "      for (int term = 0; term < 1; term++) {",
    `        ${condition}`,
    `        ${type} v = ${printValue(equation.value, dtypes, dtype)};`,
    `        sum = any ? ${fold(equation.op, dtype)} : v;`,
    "        any = true;",
    "      }",
    ...(equation.op === "=" ? [] : [`      ${type} old = ${dataName(target.name)}[at];`]),
    `      if (any) ${dataName(target.name)}.set(at, ${join_(equation.op, dtype)});`,
    "    }",
    "  }",
    "  void compute() {",
    "    clear();",
    `    compute_part(0, ${outermost?.extent ?? 1});`,
    "  }",
    "};",
  ].join("\n");
}

/** A header of the reference program. */
export function harnessText(name: "arithmetic.h" | "elements.h"): string {
  return readFileSync(fileURLToPath(new URL(`./harness/${name}`, import.meta.url)), "utf8");
}

/** Names of the notation may be words of C++. */
export const axisName = (name: string): string => `${name}_`;
export const dataName = (name: string): string => `data_${name}`;
const elementType = (tensor: Tensor): string => (isInteger(tensor.dtype) ? "Int" : "double");

/** Its elements, the flat place of an index (-1 outside), and a read that gives the identity outside. */
export function declareTensor(tensor: Tensor, identity: number, { type, storage }: Holding): string {
  const { name, dims } = tensor;
  const parameters = dims.map((_, d) => `Int i${d}`).join(", ");
  const arguments_ = dims.map((_, d) => `i${d}`).join(", ");
  const outside = dims.map(({ extent }, d) => `uint64_t(i${d}) >= ${extent}`).join(" || ");
  const flat = printIndex(storage, (axis) => `i${dims.findIndex((d) => d.name === axis)}`);
  // An integer element outside may be the infinity of a float maximum.
  const result = isInteger(tensor.dtype) && Number.isInteger(identity) ? "Int" : "double";
  return [
    `  ${type} ${dataName(name)};`,
    `  AUTOMAP_FUNCTION Int place_${name}(${parameters}) const { ${outside === "" ? "" : `if (${outside}) return -1; `}return ${flat}; }`,
    `  AUTOMAP_FUNCTION ${result} read_${name}(${parameters}) const {`,
    `    Int at = place_${name}(${arguments_});`,
    `    return at < 0 ? ${result}(${literal(identity, "f64")}) : ${result}(${dataName(name)}[at]);`,
    "  }",
  ].join("\n");
}

/** An index or a condition as C++. */
export function printIndex(e: Expr, named: (axis: string) => string = axisName): string {
  const print = (part: Expr): string => printIndex(part, named);
  switch (e.kind) {
    case "number":
      return `Int(${e.value})`;
    case "axis":
      return named(e.name);
    case "negate":
      return `-(${print(e.value)})`;
    case "binary": {
      const [left, right] = [print(e.left), print(e.right)];
      if (e.op === "/") return `floor_divide(${left}, ${right})`;
      if (e.op === "%") return `floor_remainder(${left}, ${right})`;
      return `(${left} ${e.op} ${right})`;
    }
    case "compare":
      return `(${print(e.left)} ${e.op} ${print(e.right)})`;
    case "logic":
      return `(${print(e.left)} ${e.op === "and" ? "&&" : "||"} ${print(e.right)})`;
    default:
      throw new Error(`internal: "${e.kind}" cannot stand in an index`);
  }
}

const BINARY = { "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder_of" } as const;

/** A value as the interpreter computes it, in the words of `arithmetic.h`. */
export function printValue(e: Expr, dtypes: DTypes, expected: DType): string {
  const dtype = typeOf(e, dtypes) ?? expected;
  const print = (part: Expr): string => printValue(part, dtypes, dtype);
  switch (e.kind) {
    case "number":
      return literal(isInteger(dtype) && !Number.isInteger(e.value) ? e.value : wrap(dtype, e.value), dtype);
    case "axis":
      return axisName(e.name);
    case "access":
      return printRead(e);
    case "cast":
      return `${e.dtype}::${e.saturate ? "saturate" : "wrap"}(${printValue(e.value, dtypes, "f64")})`;
    case "negate":
      return `negate<${dtype}>(${print(e.value)})`;
    case "binary":
      if (e.op === "^") throw new Error(`internal: "^" stands in storage formulas only`);
      return `${BINARY[e.op]}<${dtype}>(${print(e.left)}, ${print(e.right)})`;
    case "call": {
      const args = e.args.map(print).join(", ");
      switch (e.fn) {
        case "min":
          return `least(${args})`;
        case "max":
          return `most(${args})`;
        case "abs":
          return `absolute<${dtype}>(${args})`;
        case "round":
          return `round_even(${args})`;
        case "square":
          return `square<${dtype}>(${args})`;
        default:
          return e.fn satisfies never;
      }
    }
    case "select":
      return `(${printIndex(e.condition)} ? ${print(e.whenTrue)} : ${print(e.whenFalse)})`;
    case "compare":
    case "logic":
      throw new Error("internal: a condition is not a value");
    default:
      return e satisfies never;
  }
}

function printRead({ tensor, index }: Access): string {
  return `read_${tensor}(${index.map((e) => printIndex(e)).join(", ")})`;
}

/** Joins one more value `v` to the running fold `sum`. */
export function fold(op: CombineOp, dtype: DType): string {
  switch (op) {
    case "=":
      return "v";
    case "+=":
      return isInteger(dtype) ? `${dtype}::wrap(sum + v)` : "sum + v";
    case "sat+=":
      return "sum + v";
    case "max=":
      return "most(sum, v)";
    case "min=":
      return "least(sum, v)";
    default:
      return op satisfies never;
  }
}

/** Joins the fold to what the target holds, `old`. */
export function join_(op: CombineOp, dtype: DType): string {
  switch (op) {
    case "=":
      return `${dtype}::wrap(sum)`;
    case "+=":
      return `${dtype}::wrap(old + sum)`;
    case "sat+=":
      return `${dtype}::saturate(old + sum)`;
    case "max=":
      return "most(old, sum)";
    case "min=":
      return "least(old, sum)";
    default:
      return op satisfies never;
  }
}

/** A number of the given type. */
export function literal(value: number, dtype: DType): string {
  if (value === Number.POSITIVE_INFINITY) return "double(infinity)";
  if (value === Number.NEGATIVE_INFINITY) return "double(-infinity)";
  if (Number.isNaN(value)) return "double(not_a_number)";
  if (isInteger(dtype) && Number.isInteger(value)) return `Int(${value === 0 ? 0 : value})`;
  return `double(${Object.is(value, -0) ? "-0.0" : value})`;
}
