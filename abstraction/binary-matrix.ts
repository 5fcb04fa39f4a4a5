/**
 * @file Binary matrices with named rows and columns, and their Boolean algebra (on ml-matrix).
 *
 *             n k p q c r s
 *     image   1 0 1 1 1 1 1
 *     weight  0 1 0 0 1 1 1
 *     out     1 1 1 1 0 0 0
 */

import { Matrix } from "ml-matrix";
import { memoised } from "./collections.ts";
import { internal } from "./error.ts";

export interface BinaryMatrix {
  readonly rows: readonly string[];
  readonly columns: readonly string[];
  readonly bits: readonly (readonly number[])[];
}

export function binaryMatrix(
  rows: readonly string[],
  columns: readonly string[],
  bit: (row: string, column: string) => boolean,
): BinaryMatrix {
  return { rows, columns, bits: rows.map((row) => columns.map((column) => (bit(row, column) ? 1 : 0))) };
}

/** Boolean product: an entry is 1 when any term of the sum is. */
export function booleanProduct(a: BinaryMatrix, b: BinaryMatrix): BinaryMatrix {
  if (a.columns.length !== b.rows.length)
    internal(`${a.rows.length}x${a.columns.length} times ${b.rows.length}x${b.columns.length}`);
  const product = toMatrix(a).mmul(toMatrix(b));
  return { rows: a.rows, columns: b.columns, bits: product.to2DArray().map((row) => row.map((x) => (x > 0 ? 1 : 0))) };
}

export function transpose(a: BinaryMatrix): BinaryMatrix {
  return { rows: a.columns, columns: a.rows, bits: toMatrix(a).transpose().to2DArray() };
}

/** Places where two matrices of the same shape differ, row by row. Only the named columns are compared. */
export function differences(
  a: BinaryMatrix,
  b: BinaryMatrix,
  columns: readonly string[],
): { row: string; column: string }[] {
  const found: { row: string; column: string }[] = [];
  a.rows.forEach((row, i) => {
    a.columns.forEach((column, j) => {
      if (columns.includes(column) && a.bits[i]?.[j] !== b.bits[i]?.[j]) found.push({ row, column });
    });
  });
  return found;
}

/** The entry in a named row and column. */
export function bitAt(a: BinaryMatrix, row: string, column: string): number {
  return a.bits[a.rows.indexOf(row)]?.[a.columns.indexOf(column)] ?? internal(`no entry ${row}, ${column}`);
}

/** Text with row and column names, as in the head of this file. */
export function printMatrix(a: BinaryMatrix): string {
  const left = Math.max(0, ...a.rows.map((r) => r.length));
  const head = `${" ".repeat(left)}  ${a.columns.join(" ")}`;
  const body = a.rows.map(
    (row, i) =>
      `${row.padEnd(left)}  ${a.columns.map((column, j) => String(a.bits[i]?.[j] ?? 0).padStart(column.length)).join(" ")}`,
  );
  return [head, ...body].join("\n");
}

/** Converted once per matrix, because an enumeration multiplies the same X and Z with every Y. */
const toMatrix = memoised((a: BinaryMatrix): Matrix => {
  const empty = a.rows.length === 0 || a.columns.length === 0;
  return empty ? new Matrix(a.rows.length, a.columns.length) : new Matrix(a.bits.map((row) => [...row]));
});
