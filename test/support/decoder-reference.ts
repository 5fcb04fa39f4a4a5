/** @file The parts of a decoder as loops over plain numbers, to judge networks by. */

import type { Graph } from "../../network/graph.ts";

type Rows = readonly (readonly number[])[];

/** Elements in rows of a size. */
export const rowsOf = (elements: ArrayLike<number>, size: number): number[][] =>
  Array.from({ length: elements.length / size }, (_, i) =>
    Array.from({ length: size }, (__, j) => elements[i * size + j] ?? 0),
  );

export const dot = (a: readonly number[], b: readonly number[]): number =>
  a.reduce((sum, x, i) => sum + x * (b[i] ?? 0), 0);

/** A row over the root of its mean square, times gains. */
export function rootMeanSquareRow(row: readonly number[], gains: ArrayLike<number>, epsilon: number): number[] {
  const root = Math.sqrt(dot(row, row) / row.length + epsilon);
  return row.map((x, i) => (x / root) * (gains[i] ?? 0));
}

/** A head whose pairs are turned by angles; elements without an angle stay. */
export function turnedHead(head: readonly number[], angles: readonly number[], isInterleaved = false): number[] {
  const y = [...head];
  for (const [i, angle] of angles.entries()) {
    const [p, q] = isInterleaved ? [2 * i, 2 * i + 1] : [i, i + angles.length];
    const [a = 0, b = 0] = [head[p], head[q]];
    y[p] = a * Math.cos(angle) - b * Math.sin(angle);
    y[q] = a * Math.sin(angle) + b * Math.cos(angle);
  }
  return y;
}

/** The values of one head weighted by how keys agree with a query. @param seen how many of them it may attend to */
export function attendedBy(
  query: readonly number[],
  keys: Rows,
  values: Rows,
  seen = keys.length,
  bias: readonly number[] = [],
): number[] {
  const scores = keys.slice(0, seen).map((key, j) => dot(query, key) / Math.sqrt(query.length) + (bias[j] ?? 0));
  const most = Math.max(...scores);
  const weights = scores.map((score) => Math.exp(score - most));
  const sum = weights.reduce((a, b) => a + b, 0);
  return (values[0] ?? []).map((_, d) => weights.reduce((all, w, j) => all + (w / sum) * (values[j]?.[d] ?? 0), 0));
}

/** Rows times weights of 4 bits of a graph with scales of groups and zero points of 8. */
export function narrowProduct({ constants }: Graph, name: string, rows: Rows, group: number): number[][] {
  const codes = constants.get(`${name}.w`)?.values ?? [];
  const scales = constants.get(`${name}.s`)?.values ?? [];
  const k = rows[0]?.length ?? 1;
  const weights = Array.from({ length: (2 * codes.length) / k }, (_, n) =>
    Array.from({ length: k }, (__, i) => {
      const at = n * k + i;
      const code = Number(codes[at >> 1]);
      return ((at % 2 === 0 ? code % 16 : code >> 4) - 8) * Number(scales[Math.floor(at / group)]);
    }),
  );
  return rows.map((row) => weights.map((w) => dot(w, row)));
}
