/**
 * @file The equation as plain C++ that any machine runs: chosen where the CPU lacks what the tuned kernel wants.
 *
 *     extern "C" void conv2d_portable_run(void* workspace, void* const* tensors, int phase, int part, int parts)
 *
 * The same interface as a tuned kernel (abstraction/kernel.ts). Sums in the order the equation is written; every operation is
 * rounded as the notation says. It is there to be right: expect a hundredth of the tuned kernel's speed.
 */

import { readFileSync } from "node:fs";
import { elementCount, type Tensor, targetOf } from "../abstraction/computation.ts";
import { isInteger } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { printEquation } from "../abstraction/equation.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { type Holding, harnessText, referenceStruct } from "../runtime/reference-program.ts";
import { comment, describeTensor, type EmitSubject, parametersOf } from "./subject.ts";

/** A file that lies beside this one. */
export function assetText(name: string): string {
  return readFileSync(new URL(`./files/${name}`, import.meta.url), "utf8");
}

export function portableSource({ name, computation }: EmitSubject): string {
  const { sum, epilogue } = partsOf(computation);
  const held = epilogue ? targetOf(sum) : undefined;
  const hold = (tensor: Tensor): Holding =>
    tensor.name === held?.name
      ? { type: isInteger(tensor.dtype) ? "Plain<Int, Int>" : "Plain<double, double>", storage: rowMajor(tensor.dims) }
      : { type: `Memory<${tensor.dtype}>`, storage: tensor.storage };
  const parameters = parametersOf(computation);
  const connect = (variable: string, tensors: readonly Tensor[]): string[] =>
    tensors.map((tensor) => {
      if (tensor.name === held?.name) return `  ${variable}.data_${tensor.name}.data = (${sumType(tensor)}*)workspace;`;
      const place = parameters.find((p) => p.tensor.name === tensor.name)?.place ?? 0;
      return `  ${variable}.data_${tensor.name}.data = (${C_TYPES[tensor.dtype]}*)tensors[${place}];`;
    });
  const touched = (part: typeof sum): Tensor[] => Object.values(part.tensors);
  const prefix = `extern "C" HIDDEN`;
  return [
    comment([
      `${name}: the equation in plain C++, for CPUs without the instructions of the tuned kernel.`,
      "",
      ...[sum.equation, ...(epilogue ? [epilogue.equation] : [])].map(printEquation),
      ...parameters.map((p) => `${p.tensor.name}: ${describeTensor(p.tensor)}`),
    ]),
    "#include <stdint.h>",
    "",
    "namespace { // what is included above is included once: two packages may be linked into one program",
    harnessText("arithmetic.h"),
    assetText("memory.h"),
    referenceStruct("Sum", sum, hold),
    ...(epilogue ? [referenceStruct("Finish", epilogue, hold)] : []),
    "} // namespace",
    "",
    '#define HIDDEN __attribute__((visibility("hidden")))',
    `${prefix} unsigned long ${name}_portable_workspace_bytes(void) { return ${held ? Math.max(64, 8 * elementCount(held)) : 64}; }`,
    `${prefix} int ${name}_portable_phases(void) { return 1; }`,
    `${prefix} void ${name}_portable_prepare(void*, const void* const*) {}`,
    `${prefix} void ${name}_portable_run(void* workspace, void* const* tensors, int, int part, int) {`,
    "  (void)workspace;",
    "  if (part != 0) return;",
    "  Sum sum;",
    ...connect("sum", touched(sum)),
    "  sum.compute();",
    ...(epilogue ? ["  Finish finish;", ...connect("finish", touched(epilogue)), "  finish.compute();"] : []),
    "}",
    "",
  ].join("\n");

  function sumType(tensor: Tensor): string {
    return isInteger(tensor.dtype) ? "Int" : "double";
  }
}
