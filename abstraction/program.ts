/**
 * @file Programs: computations that one kernel computes, in order. A single computation is a program of one.
 *
 *     y0[i] max= x0[i,j]                      x0 is an input, y3 is stored, y0 to y2 are inner
 *     y1[i,j] = exp(x0[i,j] - y0[i])
 *     y2[i] += y1[i,j]
 *     y3[i,j] = y1[i,j] / y2[i]
 */

import { rowMajor } from "./affine.ts";
import { type Computation, equationsOf, outputOf, type Tensor } from "./computation.ts";
import { internal } from "./error.ts";

/** A computation as part of a program. */
export interface Part {
  readonly computation: Computation;
  /** The program's name for each of its tensors. */
  readonly names: Readonly<Record<string, string>>;
}

export interface Program {
  /** In the order in which they are computed. */
  readonly parts: readonly Part[];
  /** Values written to memory, always with the last one. The others are stored only in a call with the flag KEEP. */
  readonly stored: readonly string[];
}

/** A tensor of one s32: whether a call keeps every value of the program. */
export const KEPT = "kept";

/** The program's name of what a part makes. */
export function madeBy({ computation, names }: Part): string {
  const { name } = outputOf(computation);
  return names[name] ?? internal(`no name for ${name}`);
}

/**
 * Several computations as one.
 * @returns with the tensors in the order of the kernel's arguments: the last value, others that are stored, inputs as the parts read them, inner
 * values, and {@link KEPT}
 */
export function joined({ parts, stored }: Program): Computation {
  const made = new Map<string, Tensor>();
  const read = new Map<string, Tensor>();
  for (const part of parts) made.set(madeBy(part), outputOf(part.computation));
  for (const { computation, names } of parts)
    for (const tensor of Object.values(computation.tensors)) {
      const name = names[tensor.name] ?? tensor.name;
      if (!made.has(name) && !read.has(name)) read.set(name, tensor);
    }
  const [last] = parts.slice(-1);
  if (!last) internal("a program without computations");
  const dims = [{ name: "d0", extent: 1 }];
  const flag: Tensor = { name: KEPT, dtype: "s32", dims, storage: rowMajor(dims), constant: true };
  const order = [...new Set([madeBy(last), ...stored, ...read.keys(), ...made.keys()])];
  const tensors = order.flatMap((name): [string, Tensor][] => {
    const tensor = made.get(name) ?? read.get(name);
    return tensor ? [[name, { ...tensor, name }]] : [];
  });
  const whole = { ...last.computation, program: { parts, stored } };
  const [equation = whole.equation] = equationsOf(whole).slice(-1);
  const { name } = last.computation;
  return { name, equation, axes: [], tensors: Object.fromEntries([...tensors, [KEPT, flag]]), program: whole.program };
}
