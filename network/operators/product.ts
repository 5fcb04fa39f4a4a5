/**
 * @file Matrix products.
 *
 *     MatMul    out[m,n] += a[m,k] * b[k,n]                 leading dimensions of `a` become rows if `b` is one matrix
 *     Gemm      out[m,n] += a[m,k] * b[n,k],   y[m,n] = out[m,n] + c[n]
 */

import { product } from "../../abstraction/collections.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed, type ElementType, isWide, type Value } from "../value.ts";
import { broadcastShape, numberText } from "./broadcast.ts";
import { elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** The product of two elements, and the type of the sum. */
interface Product {
  readonly factor: (a: string, b: string) => string;
  readonly type: ElementType;
}

function floats(node: Lowering, a: Value, b: Value): Product {
  if (a.type !== b.type || !isWide(a.type))
    node.refuse(`factors of ${a.type} and ${b.type} are not supported; f32 and f64 are`);
  return { factor: (x, y) => `${x} * ${y}`, type: a.type };
}

/** NumPy's matmul: vectors become matrices, and leading dimensions are broadcast. */
export function matmul(node: Lowering, a: Value, b: Value, { factor, type }: Product): Value {
  if (a.shape.length === 0 || b.shape.length === 0) node.refuse("a factor is a number, not a matrix");
  const left = a.shape.length === 1 ? node.reshaped(a, [1, ...a.shape]) : a;
  const right = b.shape.length === 1 ? node.reshaped(b, [...b.shape, 1]) : b;
  const [m = 1, k = 1] = left.shape.slice(-2);
  const [rows = 1, n = 1] = right.shape.slice(-2);
  if (k !== rows) node.refuse(`rows of ${k} and columns of ${rows} cannot be multiplied`);
  const outer = left.shape.slice(0, -2);
  const inner = right.shape.slice(0, -2);
  const batch = broadcastShape(node, [outer, inner]);
  const shape = [...batch, ...(a.shape.length === 1 ? [] : [m]), ...(b.shape.length === 1 ? [] : [n])];

  // 1. One matrix on the right: all leading dimensions become rows.
  if (product(inner) === 1) {
    const all = product(outer) * m;
    const reads = { a: node.reshaped(left, [all, k]), b: node.reshaped(right, [k, n]) };
    return node.reshaped(plainProduct(node, reads, { m: all, n, k }, { factor, type }), shape);
  }

  // 2. A pair of matrices for each element of the batch. A broadcast side lacks the axis.
  const axes = batch.map((_, d) => `b${d}`);
  const indexOf = (side: readonly number[]): { kept: number[]; names: string[] } => {
    const places = side.flatMap((size, d) => (size === 1 ? [] : [d]));
    return {
      kept: places.map((d) => side[d] ?? 1),
      names: places.map((d) => axes[d + batch.length - side.length] ?? ""),
    };
  };
  const x = indexOf(outer);
  const y = indexOf(inner);
  const term = factor(`a[${[...x.names, "m", "k"].join(",")}]`, `b[${[...y.names, "k", "n"].join(",")}]`);
  const reads = { a: node.reshaped(left, [...x.kept, m, k]), b: node.reshaped(right, [...y.kept, k, n]) };
  const out = node.equation(`out[${[...axes, "m", "n"].join(",")}] += ${term}`, reads, {
    shape: [...batch, m, n],
    type,
  });
  return node.reshaped(out, shape);
}

function plainProduct(
  node: Lowering,
  reads: { readonly a: Value; readonly b: Value },
  parameters: Record<"m" | "n" | "k", number>,
  { factor, type }: Product,
): Value {
  if (type === "f32" && !reads.b.constant)
    return node.computed(instantiate(operatorNamed("matmul"), { parameters }), reads, type, {
      operator: { name: "matmul", parameters },
    });
  return node.equation(`out[m,n] += ${factor("a[m,k]", "b[k,n]")}`, reads, { type });
}

/** Letters of a formula, in the order of the axes they become. */
const LETTERS = [..."ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"];

/** The letters of each operand and of the result. Dots stand for the remaining dimensions. */
function einsumTerms(
  node: Lowering,
  operands: readonly Value[],
): { readonly terms: string[][]; readonly result: string[] } {
  const given = node.attribute("equation");
  const formula = typeof given === "string" ? given.replaceAll(" ", "") : "";
  if (!/^[A-Za-z.,]+(?:->[A-Za-z.]*)?$/.test(formula) || formula.length > 200) node.refuse("its equation is none");
  const [left = "", right] = formula.split("->");
  const sides = left.split(",");
  if (sides.length !== operands.length) node.refuse(`${sides.length} terms for ${operands.length} inputs`);
  const hidden = operands.map((x, i) => (sides[i]?.includes("...") ? x.shape.length - (sides[i]?.length ?? 0) + 3 : 0));
  const most = Math.max(0, ...hidden);
  const dots = Array.from({ length: most }, (_, d) => `e${d}`);
  const lettersOf = (side: string, own: number): string[] => {
    const parts = side.split("...");
    if (parts.length > 2 || parts.some((part) => part.includes(".")) || own < 0) node.refuse(`"${side}" is no term`);
    return [...(parts[0] ?? ""), ...(parts.length === 2 ? dots.slice(most - own) : []), ...(parts[1] ?? "")];
  };
  const terms = sides.map((side, i) => lettersOf(side, hidden[i] ?? 0));
  const all = terms.flat();
  // Without a result in the formula: the letters that occur once, in alphabetical order.
  const once = LETTERS.filter((letter) => all.filter((each) => each === letter).length === 1);
  return { terms, result: right === undefined ? [...dots, ...once] : lettersOf(right, most) };
}

export const PRODUCTS: OperatorTable = {
  /** https://onnx.ai/onnx/operators/onnx__Einsum.html: our notation without the tensors' names. */
  Einsum(node: Lowering) {
    const operands = node.inputs();
    const [first] = operands;
    const type = first?.type ?? "f32";
    if (!isWide(type) || operands.some((x) => x.type !== type)) node.refuse("its inputs must all be f32 or f64");
    const { terms, result } = einsumTerms(node, operands);
    const sizes = new Map<string, number>();
    for (const [i, x] of operands.entries()) {
      const term = terms[i] ?? [];
      if (term.length !== x.shape.length) node.refuse(`${term.join("")} for ${x.shape.length} dimensions`);
      for (const [d, letter] of term.entries()) {
        const [known, size = 1] = [sizes.get(letter), x.shape[d]];
        if (known !== undefined && known !== size) node.refuse(`${letter} has ${known} elements and ${size}`);
        sizes.set(letter, size);
      }
    }
    if (new Set(result).size !== result.length || result.some((letter) => !sizes.has(letter)))
      node.refuse(`its result ${result.join("")} names what no input has, or one axis twice`);
    // Prefixed, so that no letter is mistaken for a tensor's name.
    const named = (letters: readonly string[]): string => letters.map((letter) => `i_${letter}`).join(",");
    const product = terms.map((term, i) => `x${i}[${named(term)}]`).join(" * ");
    const isMove = terms.length === 1 && [...sizes.keys()].every((letter) => result.includes(letter));
    return node.equation(
      `y[${named(result)}] ${isMove ? "=" : "+="} ${product}`,
      Object.fromEntries(operands.map((x, i) => [`x${i}`, x])),
    );
  },
  MatMul: (node) => [matmul(node, node.input(0), node.input(1), floats(node, node.input(0), node.input(1)))],
  Gemm(node: Lowering) {
    const a = node.input(0);
    const b = node.input(1);
    const c = node.optional(2);
    floats(node, a, b);
    if (a.shape.length !== 2 || b.shape.length !== 2) node.refuse("its factors must be matrices");
    const isTurnedA = node.flag("transA");
    const isTurnedB = node.flag("transB");
    const k = a.shape[isTurnedA ? 0 : 1];
    const rows = b.shape[isTurnedB ? 1 : 0];
    if (k !== rows) node.refuse(`rows of ${k} and columns of ${rows} cannot be multiplied`);
    const sum = node.equation(`out[m,n] += ${isTurnedA ? "a[k,m]" : "a[m,k]"} * ${isTurnedB ? "b[n,k]" : "b[k,n]"}`, {
      a,
      b,
    });
    const [alpha, beta] = [node.float("alpha", 1), node.float("beta", 1)];
    const times = (by: number, x: string): string => (by === 1 ? x : `(${numberText(by)}) * ${x}`);
    if (!c || beta === 0) return alpha === 1 ? sum : elementwise(node, times(alpha, "sum"), { sum });
    if (broadcastShape(node, [sum.shape, c.shape]).some((size, d) => size !== sum.shape[d]) || c.shape.length > 2)
      node.refuse(`C of ${bracketed(c.shape)} cannot be spread over ${bracketed(sum.shape)}`);
    return elementwise(node, `${times(alpha, "sum")} + ${times(beta, "c")}`, { sum, c });
  },
};
