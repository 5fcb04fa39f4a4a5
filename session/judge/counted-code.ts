/**
 * @file Matches the compiled loops of a kernel with the loops of its source: how often a call executes each, and the instructions in it.
 *
 *     text                                     code                                              executions
 *     for step in 0..448, dealt                300 instructions, 24 sends                         448
 *       for k in 0..4: 3 issues                  117 instructions, 26 sends, 3 products          1792
 *
 * They are matched by their products. What the compiler changed further is not counted, and the reason is given.
 */

import { sortedBy, sumOf, withName } from "../../abstraction/collections.ts";
import type { Kernel, PrintedIssues } from "../../abstraction/kernel.ts";
import type { CountedCode, CountedLoop } from "../../perfmodel/counted-code.ts";
import type { IsaLoop } from "../../runtime/isa-loops.ts";
import type { IsaFunction } from "../../runtime/ocloc.ts";

/** Why a kernel's instructions do not enter its prediction. */
export interface Uncounted {
  readonly uncounted: string;
}

export function countedCode(
  { opencl }: Pick<Kernel, "opencl">,
  functions: readonly IsaFunction[],
): CountedCode | Uncounted {
  const loops: CountedLoop[] = [];
  let registers = 0;
  for (const [phase, printed] of (opencl?.issues ?? []).entries()) {
    if (!issuesAny(printed)) continue;
    const name = `automap_phase_${phase}`;
    const compiled = withName(functions, name);
    if (!compiled) return { uncounted: `no code of ${name}` };
    const found = matched(printed, compiled.code, 1);
    if (!found) return { uncounted: `the compiler changed the loops of ${name}` };
    registers = Math.max(registers, compiled.registers);
    loops.push(...found);
  }
  const hasProducts = loops.some(({ products }) => products > 0);
  return hasProducts ? { registers, loops } : { uncounted: "its instruction is no matrix product" };
}

const issuesAny = ({ issues, loops }: PrintedIssues): boolean => issues > 0 || loops.length > 0;
const hasProducts = ({ products, loops }: IsaLoop): boolean => products > 0 || loops.some(hasProducts);

/** The loops of both, outermost first; undefined where their products differ. */
function matched(printed: PrintedIssues, code: IsaLoop, executions: number): CountedLoop[] | undefined {
  const inside = code.loops.filter(hasProducts);
  const others = code.loops.filter((l) => !hasProducts(l));
  if (code.products !== printed.issues || inside.length !== printed.loops.length) return undefined;
  const own = [code, ...others.flatMap(allIn)];
  const total = (of: (loop: IsaLoop) => number): number => sumOf(own, of);
  const found: CountedLoop[] = [
    {
      executions,
      instructions: total((l) => l.instructions),
      sends: total((l) => l.sends),
      products: code.products,
      hasOthers: others.length > 0,
    },
  ];
  for (const [i, loop] of printed.loops.entries()) {
    const compiled = inside[i];
    const below = compiled && matched(loop, compiled, executions * loop.trips);
    if (!below) return undefined;
    found.push(...below);
  }
  return found;
}

const allIn = (loop: IsaLoop): IsaLoop[] => [loop, ...loop.loops.flatMap(allIn)];

/** The loop that issues most of a kernel's products: what a reader is shown of its code. */
export function mainLoop({ loops }: CountedCode): CountedLoop | undefined {
  const products = (l: CountedLoop): number => l.executions * l.products;
  return sortedBy(loops, (a) => -products(a))[0];
}
