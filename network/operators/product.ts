/**
 * @file Products of matrices.
 *
 *     MatMul    out[m,n] += a[m,k] * b[k,n]                        leading dimensions of `a` are rows where `b` is one matrix
 *     Gemm      out[m,n] += a[m,k] * b[n,k],   y[m,n] = out[m,n] + c[n]
 */

import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import type { Lowering } from "../lowering.ts";
import type { ElementType, Value } from "../value.ts";
import { broadcastShape, numberText } from "./broadcast.ts";
import { elementwise } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

/** How an element of each side is multiplied, and the type of the sum. */
interface Product {
  readonly factor: (a: string, b: string) => string;
  readonly type: ElementType;
}

function floats(node: Lowering, a: Value, b: Value): Product {
  if (a.type !== b.type || (a.type !== "f32" && a.type !== "f64"))
    node.refuse(`factors of ${a.type} and ${b.type} are not supported; f32 and f64 are`);
  return { factor: (x, y) => `${x} * ${y}`, type: a.type };
}

/** NumPy's matmul: vectors become matrices for the product, leading dimensions are spread. */
export function matmul(node: Lowering, a: Value, b: Value, { factor, type }: Product): Value {
  if (a.shape.length === 0 || b.shape.length === 0) node.refuse("a factor is a number, not a matrix");
  const left = a.shape.length === 1 ? node.reshaped(a, [1, ...a.shape]) : a;
  const right = b.shape.length === 1 ? node.reshaped(b, [...b.shape, 1]) : b;
  const [m = 1, k = 1] = left.shape.slice(-2);
  const [rows = 1, n = 1] = right.shape.slice(-2);
  if (k !== rows) node.refuse(`rows of ${k} and columns of ${rows} cannot be multiplied`);
  const [outer, inner] = [left.shape.slice(0, -2), right.shape.slice(0, -2)];
  const batch = broadcastShape(node, [outer, inner]);
  const shape = [...batch, ...(a.shape.length === 1 ? [] : [m]), ...(b.shape.length === 1 ? [] : [n])];
  const one = (list: readonly number[]): number => list.reduce((x, y) => x * y, 1);

  // 1. One matrix on the right: everything before it is rows.
  if (one(inner) === 1) {
    const all = one(outer) * m;
    const reads = { a: node.reshaped(left, [all, k]), b: node.reshaped(right, [k, n]) };
    return node.reshaped(plainProduct(node, reads, { m: all, n, k }, { factor, type }), shape);
  }

  // 2. A pair of matrices for each element of the batch; a side that is spread lacks the axis.
  const axes = batch.map((_, d) => `b${d}`);
  const indexOf = (side: readonly number[]): { kept: number[]; names: string[] } => {
    const places = side.flatMap((size, d) => (size === 1 ? [] : [d]));
    return {
      kept: places.map((d) => side[d] ?? 1),
      names: places.map((d) => axes[d + batch.length - side.length] ?? ""),
    };
  };
  const [x, y] = [indexOf(outer), indexOf(inner)];
  const product = factor(`a[${[...x.names, "m", "k"].join(",")}]`, `b[${[...y.names, "k", "n"].join(",")}]`);
  const out = node.equation(`out[${[...axes, "m", "n"].join(",")}] += ${product}`, {
    reads: { a: node.reshaped(left, [...x.kept, m, k]), b: node.reshaped(right, [...y.kept, k, n]) },
    shape: [...batch, m, n],
    type,
    extents: { k },
  });
  return node.reshaped(out, shape);
}

function plainProduct(
  node: Lowering,
  reads: { readonly a: Value; readonly b: Value },
  parameters: Record<"m" | "n" | "k", number>,
  { factor, type }: Product,
): Value {
  const { m, n, k } = parameters;
  if (type === "f32" && !reads.b.constant)
    return node.computed(instantiate(operatorNamed("matmul"), { parameters }), reads, type, {
      name: "matmul",
      parameters,
    });
  return node.equation(`out[m,n] += ${factor("a[m,k]", "b[k,n]")}`, { reads, shape: [m, n], type, extents: { k } });
}

function gemm(node: Lowering): Value[] {
  const [a, b, c] = [node.input(0), node.input(1), node.optional(2)];
  const { type } = floats(node, a, b);
  if (a.shape.length !== 2 || b.shape.length !== 2) node.refuse("its factors must be matrices");
  const [isTurnedA, isTurnedB] = [node.int("transA", 0) !== 0, node.int("transB", 0) !== 0];
  const sides = (shape: readonly number[], isTurned: boolean): [number, number] => {
    const [first = 1, second = 1] = shape;
    return isTurned ? [second, first] : [first, second];
  };
  const [m, k] = sides(a.shape, isTurnedA);
  const [rows, n] = sides(b.shape, isTurnedB);
  if (k !== rows) node.refuse(`rows of ${k} and columns of ${rows} cannot be multiplied`);
  const sum = node.equation(`out[m,n] += ${isTurnedA ? "a[k,m]" : "a[m,k]"} * ${isTurnedB ? "b[n,k]" : "b[k,n]"}`, {
    reads: { a, b },
    shape: [m, n],
    type,
    extents: { k },
  });
  const [alpha, beta] = [node.float("alpha", 1), node.float("beta", 1)];
  const times = (by: number, x: string): string => (by === 1 ? x : `(${numberText(by)}) * ${x}`);
  if (!c || beta === 0) return [alpha === 1 ? sum : elementwise(node, [sum], ([x = ""]) => times(alpha, x))];
  if (broadcastShape(node, [sum.shape, c.shape]).some((size, d) => size !== sum.shape[d]) || c.shape.length > 2)
    node.refuse(`C of [${c.shape.join(",")}] cannot be spread over [${sum.shape.join(",")}]`);
  return [elementwise(node, [sum, c], ([x = "", y = ""]) => `${times(alpha, x)} + ${times(beta, y)}`)];
}

export const PRODUCTS: OperatorTable = {
  MatMul: {
    lower: (node) => [matmul(node, node.input(0), node.input(1), floats(node, node.input(0), node.input(1)))],
  },
  Gemm: { lower: gemm },
};
