/**
 * @file The configurations of bench/suites as computations of f16, sums in f32, with their channels first or last.
 *
 *     suiteComputation({ op: "c2d", params: { n: 16, ... }, layout: "last" })       in NHWC, w KRSC, result NPQK
 */

import type { Computation } from "../abstraction/computation.ts";
import { targetOf } from "../abstraction/computation.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";

export interface Configuration {
  readonly op: string;
  readonly params: Readonly<Record<string, number>>;
  /** Where the channels of images and filters lie. */
  readonly layout: "first" | "last";
}

/** Layouts with the channels that are summed innermost in inputs and filters, those of the output innermost in it: what PyTorch calls channels last. */
export const CHANNELS_LAST: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  c1d: { in: "NLC", w: "KRC", result: "NPK" },
  c2d: { in: "NHWC", w: "KRSC", result: "NPQK" },
  c3d: { in: "NDHWC", w: "KTRSC", result: "NOPQK" },
  t2d: { in: "NHWC", w: "KRSC", result: "NPQK" },
  grp: { in: "NHWC", w: "KRSC", result: "NPQK" },
  dil: { in: "NHWC", w: "KRSC", result: "NPQK" },
  dep: { in: "NHWC", w: "RSK", result: "NPQK" },
  cap: { in: "NHWC", w: "KURSC", result: "NPQKU" },
  bcv: { in: "NHWC", w: "NKRSC", result: "NPQK" },
  men: { in: "LC" },
  var: { in: "LC" },
};

export function suiteComputation({ op, params, layout }: Configuration): Computation {
  const types = parseDataTypes("f16");
  const layouts = layout === "last" ? CHANNELS_LAST[op] : undefined;
  const operator = operatorNamed(op);
  const sum = targetOf(instantiate(operator, { parameters: params, types }));
  const dims = sum.dims.map((d) => d.name).join(",");
  const epilogue = `result[${dims}] = f16(${sum.name}[${dims}])`;
  return instantiate(operator, { parameters: params, types, epilogue, ...(layouts && { layouts }) });
}
