/**
 * @file What a right CUDA kernel must answer, computed on the device: the equation as a plain kernel, a thread an element of the output.
 *
 *     cudaReferenceSource(conv2d)      extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t)
 *
 * `low` and `high` are the least and the greatest value of each element of the output's memory that pass; where memory holds no
 * element they are left alone. The tolerance is that of verify.ts, the arithmetic that of the interpreter (`harness/arithmetic.h`). A
 * test holds them equal to the interpreter's.
 */

import {
  type Axis,
  type Computation,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { identityOf } from "../abstraction/equation.ts";
import { UsageError } from "../abstraction/error.ts";
import { accessesIn, type Expr } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import {
  axisName,
  dataName,
  declareTensor,
  fold,
  harnessText,
  join_,
  literal,
  printIndex,
  printValue,
} from "./reference-program.ts";
import { type BoundRule, boundRule } from "./verify.ts";

/** Threads of a block of the reference. */
const THREADS = 256;

/**
 * The reference of a computation.
 * @throws UsageError when an epilogue is not monotone in the sum: then the ends of an interval say nothing of what lies between
 */
export function cudaReferenceSource(computation: Computation): string {
  const { sum, epilogue } = partsOf(computation);
  const target = targetOf(sum);
  const output = outputOf(computation);
  if (accessesIn(sum.equation.value).some((a) => a.tensor === target.name))
    throw new UsageError(`${computation.name}: a recurrence has no reference on a device yet`);
  if (epilogue && !isMonotone(epilogue.equation.value, target.name))
    throw new UsageError(
      `${computation.name}: its epilogue is not monotone in ${target.name}, so it has no reference on a device yet`,
    );
  const rule = boundRule(sum);
  const tensors = Object.values(computation.tensors);
  const kept = sum.axes.filter((a) => a.kind === "spatial");
  const points = kept.reduce((product, a) => product * a.extent, 1);
  const target_ = sum.equation.target.index.map((e) => printIndex(e)).join(", ");
  return [
    "#define AUTOMAP_FUNCTION __host__ __device__",
    harnessText("arithmetic.h"),
    ...ELEMENTS,
    foldStruct("Sum", sum, sum.equation.value, isInteger(target.dtype) ? "Int" : "double", target.dtype, false),
    ...(rule ? [foldStruct("Size", sum, rule.magnitude.equation.value, "double", "f64", true)] : []),
    placeStruct(output),
    ...(epilogue ? [epilogueStruct(epilogue, target)] : []),
    `__global__ void bounds(${["Sum sum_of", ...(rule ? ["Size size_of"] : []), ...(epilogue ? ["Result result_of"] : []), "double* low, double* high, int exact"].join(", ")}) {`,
    `  const Int point = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    `  if (point >= Int(${points})) return;`,
    ...kept.map((a, i) => `  const Int ${axisName(a.name)} = ${digitOf(kept, i)};`),
    `  const ${isInteger(target.dtype) ? "Int" : "double"} sum = sum_of.at(${argumentsOf(kept)});`,
    "  double least = double(sum), greatest = double(sum);",
    ...(rule ? toleranceLines(rule, kept) : []),
    ...(epilogue ? epilogueLines(target, target_) : []),
    `  const Int place = ${epilogue ? `result_of.place(${target_})` : `Place().place_${output.name}(${target_})`};`,
    "  if (place < 0) return;",
    "  low[place] = least;",
    "  high[place] = greatest;",
    "}",
    "",
    'extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream) {',
    "  Sum sum_of;",
    ...bind("sum_of", inputsOf(sum), tensors),
    ...(rule ? ["  Size size_of;", ...bind("size_of", inputsOf(sum), tensors)] : []),
    ...(epilogue
      ? [
          "  Result result_of = {};",
          ...bind(
            "result_of",
            inputsOf(epilogue).filter((t) => t.name !== target.name),
            tensors,
          ),
        ]
      : []),
    `  void* arguments[] = {${["sum_of", ...(rule ? ["size_of"] : []), ...(epilogue ? ["result_of"] : []), "low", "high", "exact"].map((name) => `(void*)&${name}`).join(", ")}};`,
    `  return (int)cudaLaunchKernel(bounds, dim3(${Math.ceil(points / THREADS)}), dim3(${THREADS}), arguments, 0, stream);`,
    "}",
    `/* ${memoryElements(output)} elements of ${output.dtype} */`,
    "",
  ].join("\n");
}

/** Elements as they lie in memory, read as the numbers the interpreter sees; with `magnitude`, without their sign. */
const ELEMENTS: readonly string[] = [
  `template <class T, class Number, bool magnitude> struct Stored {
  const T* data;
  AUTOMAP_FUNCTION Number operator[](Int at) const {
    const Number value = Number(data[at]);
    return magnitude && value < 0 ? -value : value;
  }
};
struct Half { uint16_t bits; AUTOMAP_FUNCTION explicit operator double() const {
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  const double size = exponent == 31 ? (fraction ? not_a_number : infinity)
      : exponent == 0 ? __builtin_ldexp(double(fraction), -24) : __builtin_ldexp(double(fraction + 1024), exponent - 25);
  return bits & 0x8000 ? -size : size;
} };
struct Brain { uint16_t bits; AUTOMAP_FUNCTION explicit operator double() const {
  union { uint32_t word; float value; } both = {(uint32_t)bits << 16};
  return double(both.value);
} };`,
];

function storedType(dtype: DType): string {
  return dtype === "f16" ? "Half" : dtype === "bf16" ? "Brain" : C_TYPES[dtype];
}

function held(tensor: Tensor, magnitude: boolean): { type: string; storage: Expr } {
  const number = isInteger(tensor.dtype) && !magnitude ? "Int" : "double";
  return { type: `Stored<${storedType(tensor.dtype)}, ${number}, ${magnitude}>`, storage: tensor.storage };
}

const argumentsOf = (axes: readonly Axis[]): string => axes.map((a) => axisName(a.name)).join(", ");

/** The counter of an axis in a point's number, the last axis fastest. */
function digitOf(axes: readonly Axis[], i: number): string {
  const below = axes.slice(i + 1).reduce((product, a) => product * a.extent, 1);
  return `point / Int(${below})${i === 0 ? "" : ` % Int(${axes[i]?.extent ?? 1})`}`;
}

/** A struct whose `at(i, j)` folds the terms of one element. */
function foldStruct(
  name: string,
  sum: Computation,
  value: Expr,
  type: "Int" | "double",
  dtype: DType,
  magnitude: boolean,
): string {
  const { equation, axes } = sum;
  // Sizes of the terms of a maximum are added up too.
  const op = magnitude ? "+=" : equation.op;
  const identity = magnitude ? 0 : identityOf(op, dtype);
  const dtypes = Object.fromEntries(
    Object.values(sum.tensors).map((t) => [t.name, magnitude ? ("f64" as const) : t.dtype]),
  );
  const kept = axes.filter((a) => a.kind === "spatial");
  const reduced = axes.filter((a) => a.kind === "reduce");
  const tensor = (t: Tensor): string =>
    declareTensor(magnitude ? { ...t, dtype: "f64" } : t, identity, held(t, magnitude));
  return [
    `struct ${name} {`,
    ...inputsOf(sum).map(tensor),
    `  AUTOMAP_FUNCTION ${type} at(${kept.map((a) => `Int ${axisName(a.name)}`).join(", ")}) const {`,
    `    ${type} sum = 0;`,
    "    bool any = false;",
    ...reduced.map(
      (a) => `    for (Int ${axisName(a.name)} = 0; ${axisName(a.name)} < ${a.extent}; ${axisName(a.name)}++)`,
    ),
    "    for (int term = 0; term < 1; term++) {",
    ...(equation.where === undefined ? [] : [`      if (!${printIndex(equation.where)}) continue;`]),
    `      const ${type} v = ${printValue(value, dtypes, dtype)};`,
    `      sum = any ? ${fold(op, dtype)} : v;`,
    "      any = true;",
    "    }",
    `    const ${type} old = ${literal(identity, dtype)};`,
    `    return any ? ${join_(op, dtype)} : old;`,
    "  }",
    "};",
  ].join("\n");
}

function toleranceLines(rule: BoundRule, kept: readonly Axis[]): string[] {
  if (typeof rule.chain !== "number")
    throw new UsageError("several points meet in one element of the output: it has no reference on a device yet");
  const bound = `${rule.chain + rule.operations + 1} * (${rule.epsilon} * size + ${rule.smallest})`;
  return [
    `  const double size = size_of.at(${argumentsOf(kept)});`,
    `  const bool whole = exact && ${rule.integral} && size <= ${rule.exactBelow} && sum == __builtin_nearbyint(sum);`,
    `  const double tolerance = whole ? 0 : ${bound};`,
    "  least -= tolerance, greatest += tolerance;",
  ];
}

/** A struct whose `at(sum, i, j)` is what an epilogue makes of a sum. */
function epilogueStruct(epilogue: Computation, sum: Tensor): string {
  const { target, value } = epilogue.equation;
  const output = targetOf(epilogue);
  const dtypes = Object.fromEntries(Object.values(epilogue.tensors).map((t) => [t.name, t.dtype]));
  const axes = epilogue.axes.map((a) => `Int ${axisName(a.name)}`).join(", ");
  const others = inputsOf(epilogue).filter((t) => t.name !== sum.name);
  const parameters = sum.dims.map((_, d) => `Int i${d}`);
  const type = isInteger(sum.dtype) ? "Int" : "double";
  return [
    "struct Result {",
    ...others.map((t) => declareTensor(t, 0, held(t, false))),
    `  ${type} ${dataName(sum.name)};`,
    `  AUTOMAP_FUNCTION ${type} read_${sum.name}(${parameters.join(", ")}) const { return ${dataName(sum.name)}; }`,
    `  AUTOMAP_FUNCTION double at(${axes}) const {`,
    `    return double(${output.dtype}::wrap(${printValue(value, dtypes, output.dtype)}));`,
    "  }",
    `  AUTOMAP_FUNCTION Int place(${axes}) const {`,
    `    return Place().place_${output.name}(${target.index.map((e) => printIndex(e)).join(", ")});`,
    "  }",
    "};",
  ].join("\n");
}

/** Both ends of the interval through the epilogue, at the element of the sum. */
function epilogueLines(sum: Tensor, element: string): string[] {
  const type = isInteger(sum.dtype) ? "Int" : "double";
  const through = (name: string, value: string): string[] => [
    `  result_of.${dataName(sum.name)} = ${type}(${sum.dtype}::wrap(${value}));`,
    `  const double ${name} = result_of.at(${element});`,
  ];
  return [
    ...through("first", "least"),
    ...through("second", "greatest"),
    "  least = first < second ? first : second;",
    "  greatest = first < second ? second : first;",
  ];
}

function placeStruct(output: Tensor): string {
  const parameters = output.dims.map((_, d) => `Int i${d}`).join(", ");
  const outside = output.dims.map(({ extent }, d) => `uint64_t(i${d}) >= ${extent}`).join(" || ");
  const flat = printIndex(output.storage, (axis) => `i${output.dims.findIndex((d) => d.name === axis)}`);
  return `struct Place { AUTOMAP_FUNCTION Int place_${output.name}(${parameters}) const { ${outside === "" ? "" : `if (${outside}) return -1; `}return ${flat}; } };`;
}

function bind(struct: string, wanted: readonly Tensor[], all: readonly Tensor[]): string[] {
  return wanted.map((t) => {
    const at = all.findIndex((other) => other.name === t.name);
    return `  ${struct}.${dataName(t.name)}.data = (const ${storedType(t.dtype)}*)tensors[${at}];`;
  });
}

/** Whether a value grows or falls with one tensor's element, which it reads once: then the ends of an interval become its ends. */
function isMonotone(value: Expr, tensor: string): boolean {
  const reads = (e: Expr): boolean => accessesIn(e).some((a) => a.tensor === tensor);
  const along = (e: Expr): boolean => {
    switch (e.kind) {
      case "access":
      case "number":
      case "axis":
        return true;
      case "cast":
        // An integer that wraps is not monotone; a clamp and a rounding are.
        return (e.saturate || !isInteger(e.dtype)) && along(e.value);
      case "negate":
        return along(e.value);
      case "binary":
        if (e.op === "%" || (e.op === "/" && reads(e.right))) return false;
        return !(reads(e.left) && reads(e.right)) && along(reads(e.left) ? e.left : e.right);
      case "call":
        if (e.fn === "abs" || e.fn === "square") return false;
        return e.args.filter(reads).length <= 1 && e.args.every(along);
      default:
        return false;
    }
  };
  return !reads(value) || along(value);
}
