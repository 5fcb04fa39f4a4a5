/**
 * @file A stencil in time as a careful programmer writes it: two planes with zeros around them, one sweep a step.
 *
 *     await sweepsKernel(computation, options)      for t, for i, for j: next = ...; swap      g++ -O3 -march=native
 */

import { affineForm } from "../../abstraction/affine.ts";
import { type Computation, inputsOf, outputOf } from "../../abstraction/computation.ts";
import { type Expr, printExpr } from "../../abstraction/expression.ts";
import type { CompileOptions } from "../../runtime/compiler.ts";
import { LOOP_FLAGS, opened, type Peer } from "./loops.ts";

/** @throws Error for a border other than zero, a second tensor, or anything but a sum of products with constants */
export function sweepsKernel(computation: Computation, options: Omit<CompileOptions, "flags">): Promise<Peer> {
  const { time } = computation;
  if (!time || time.borders.some((how) => how !== "zero") || inputsOf(computation).length > 1)
    throw new Error(`${computation.name}: only one plane with zeros beyond it is swept by loops`);
  const extents = outputOf(computation).dims.map((d) => d.extent);
  const reach = extents.map((_, d) => Math.max(0, ...time.dependences.map((v) => Math.abs(v[d + 1] ?? 0))));
  const wide = extents.map((extent, d) => extent + 2 * (reach[d] ?? 0));
  const at = (shifts: readonly number[]): string =>
    shifts
      .map((shift, d) => `(i${d} + ${(reach[d] ?? 0) + shift})`)
      .reduce((flat, i, d) => `(${flat}) * ${wide[d]} + ${i}`);
  const text = (e: Expr): string => {
    if (e.kind === "number") return `T(${e.value})`;
    if (e.kind === "negate") return `-(${text(e.value)})`;
    if (e.kind === "binary") return `(${text(e.left)} ${e.op} ${text(e.right)})`;
    if (e.kind === "access") return `now[${at(e.index.map((i) => affineForm(i)?.constant ?? 0))}]`;
    throw new Error(`${printExpr(e)} is not written as loops`);
  };
  // Each part computes its own rows of the first loop.
  const loops = (body: string): string =>
    extents
      .map((extent, d) => `for (long i${d} = ${d === 0 ? "begin" : 0}; i${d} < ${d === 0 ? "end" : extent}; i${d}++)`)
      .concat(body)
      .join(" ");
  const plane = extents
    .map((extent, d) => [extent, d] as const)
    .reduce((flat, [extent, d]) => (d === 0 ? "i0" : `(${flat}) * ${extent} + i${d}`), "");
  const inside = at(extents.map(() => 0));
  const size = wide.reduce((n, extent) => n * extent, 1);
  const source = `#include <atomic>
#include <mutex>
#include <stdlib.h>
#include <string.h>
using T = ${outputOf(computation).dtype === "f64" ? "double" : "float"};
static T* planes[2];
static std::atomic<long> arrived;
static void step(const T* __restrict now, T* __restrict next, long begin, long end) { ${loops(`next[${inside}] = ${text(time.step.equation.value)};`)} }
/* Parts are called at once, each by a thread of its own, and meet after every step. */
static void meet(long parts) {
  const long round = arrived++ / parts;
  while (arrived / parts == round) __builtin_ia32_pause();
}
static void clear() {
  for (T*& plane : planes) { plane = (T*)aligned_alloc(64, (${size}L * sizeof(T) + 127) / 64 * 64); memset(plane, 0, ${size}L * sizeof(T)); }
}
extern "C" void peer_run(void* const* tensors, int part, int parts) {
  static std::once_flag once;
  std::call_once(once, clear);
  const long begin = ${extents[0]}L * part / parts, end = ${extents[0]}L * (part + 1) / parts;
  T* __restrict first = planes[0]; const T* __restrict given = (const T*)tensors[1];
  ${loops(`first[${inside}] = given[${plane}];`)}
  for (int t = 0; t < ${time.steps}; t++) { meet(parts); step(planes[t % 2], planes[(t + 1) % 2], begin, end); }
  const T* __restrict last = planes[${time.steps % 2}]; T* __restrict out = (T*)tensors[0];
  ${loops(`out[${plane}] = last[${inside}];`)}
}
`;
  return opened(computation, source, LOOP_FLAGS, options);
}
