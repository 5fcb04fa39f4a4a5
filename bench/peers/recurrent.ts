/**
 * @file Peers for recurrences: plain compiled loops, written as a careful programmer would.
 *
 *     await recurrentLoops("alignment", computation, options)   for i, for j: max(0, ...), with values in registers
 */

import { type Computation, outputOf } from "../../abstraction/computation.ts";
import type { CompileOptions } from "../../runtime/compiler.ts";
import { LOOP_FLAGS, opened, type Peer } from "./loops.ts";

/** A table whose border row is zeros. `t` holds the output, then the inputs in the equation's order. */
const TABLE = (cell: string): string => `
  int* const h = (int*)t[0];
  const unsigned char *const a = (const unsigned char*)t[1], *const b = (const unsigned char*)t[2];
  static const int none[M] = {};
  for (long i = 0; i < N; i++) {
    const int* const above = i == 0 ? none : h + (i - 1) * M;
    int left = 0, diagonal = 0;
    for (long j = 0; j < M; j++) {
      const int up = above[j];
      ${cell}
      diagonal = up;
      h[i * M + j] = left;
    }
  }`;

const LOOPS: Readonly<Record<string, string>> = {
  alignment: TABLE(`const int best = std::max(0, diagonal + (a[i] == b[j] ? 2 : -1));
      left = std::max(best, std::max(up, left) - 1);`),
  common: TABLE("left = a[i] == b[j] ? diagonal + 1 : std::max(up, left);"),
  // The outer loop is over previous states, the inner over next ones, so that the compiler vectorises the inner loop.
  chain: `
  float* const v = (float*)t[0];
  const float *const p = (const float*)t[1], *const a = (const float*)t[2], *const b = (const float*)t[3];
  for (long j = 0; j < M; j++) v[j] = p[j] + b[j];
  for (long s = 1; s < N; s++) {
    float* __restrict__ const now = v + s * M;
    const float* __restrict__ const before = v + (s - 1) * M;
    for (long j = 0; j < M; j++) now[j] = -__builtin_inff();
    for (long i = 0; i < M; i++)
      for (long j = 0; j < M; j++) {
        const float sum = before[i] + a[i * M + j];
        now[j] = now[j] < sum ? sum : now[j];
      }
    for (long j = 0; j < M; j++) now[j] += b[s * M + j];
  }`,
  sums: `
  float* const y = (float*)t[0];
  const float* const x = (const float*)t[1];
  float sum = 0;
  for (long i = 0; i < N; i++) y[i] = sum += x[i];`,
};

/** The loops of a case of bench/lanes/recurrences.ts. */
export function recurrentLoops(
  name: string,
  computation: Computation,
  options: Omit<CompileOptions, "flags">,
): Promise<Peer> {
  const [rows = 1, columns = 1] = outputOf(computation).dims.map((d) => d.extent);
  const source = `#include <algorithm>
enum : long { N = ${rows}, M = ${columns} };
extern "C" void peer_run(void* const* t, int, int) {${LOOPS[name] ?? ""}
}
`;
  return opened(computation, source, LOOP_FLAGS, options);
}
