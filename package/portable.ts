/**
 * @file The equation as plain C++ for any machine, used when the CPU lacks features that the tuned kernel needs.
 *
 *     extern "C" void conv2d_portable_run(void* workspace, void* const* tensors, int phase, int part, int parts)
 *
 * The same interface as a tuned kernel (abstraction/kernel.ts). Sums in the order the equation is written; every operation is
 * rounded as the notation says. It is there to be right: expect a hundredth of the tuned kernel's speed.
 */

import { readFileSync } from "node:fs";
import { rowMajor } from "../abstraction/affine.ts";
import { type Computation, elementCount, memoryElements, type Tensor, targetOf } from "../abstraction/computation.ts";
import { bytesOf, isInteger } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { printEquation } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  identifier,
  lines,
  type SourceText,
  spell,
  trustedCode,
} from "../abstraction/source-text.ts";
import {
  dataName,
  type Holding,
  harnessText,
  referenceStruct,
  stepsOfParts,
} from "../runtime/reference/reference-source.ts";
import { describeTensor, type EmitSubject, parametersOf } from "./subject.ts";

type Asset =
  | "binding.d.ts"
  | "binding.js"
  | "cuda-test.h"
  | "memory.h"
  | "network-binding.d.ts"
  | "network-binding.js"
  | "network-cuda.h"
  | "self-test.h"
  | "torch-check.h"
  | "torch_example.py"
  | "torch_network.py"
  | "torch_ext.py";

/** The text of a file in this folder's assets. */
export function assetText(name: Asset): Code {
  return trustedCode(readFileSync(new URL(`./files/${name}`, import.meta.url), "utf8"));
}

/** Bytes of scratch of the plain code: sums that an epilogue finishes, or the step of time before. */
export function portableScratch(computation: Computation): number {
  const { sum, epilogue } = partsOf(computation);
  const made = targetOf(sum);
  const spare = computation.time ? memoryElements(made) * bytesOf(made.dtype) : 0;
  return Math.max(spare, epilogue ? 8 * elementCount(made) : 0);
}

export function portableSource({ name: asked, computation }: EmitSubject): SourceText {
  const name = identifier(asked);
  const { sum, epilogue, beside } = partsOf(computation);
  const held = epilogue ? targetOf(sum) : undefined;
  const hold = (tensor: Tensor): Holding =>
    tensor.name === held?.name
      ? {
          type: code`${isInteger(tensor.dtype) ? "Plain<Int, Int>" : "Plain<double, double>"}`,
          storage: rowMajor(tensor.dims),
        }
      : { type: code`Memory<${tensor.dtype}>`, storage: tensor.storage };
  const parameters = parametersOf(computation);
  const connect = (variable: string, tensors: readonly Tensor[]): Code[] =>
    tensors.map((tensor) => {
      const data = code`${identifier(variable)}.${dataName(tensor.name)}.data`;
      if (tensor.name === held?.name)
        return code`  ${data} = (${isInteger(tensor.dtype) ? "Int" : "double"}*)tensors[${parameters.length}];`;
      const place = parameters.find((p) => p.tensor.name === tensor.name)?.place ?? 0;
      return code`  ${data} = (${C_TYPES[tensor.dtype]}*)tensors[${place}];`;
    });
  const touched = (part: typeof sum): Tensor[] => Object.values(part.tensors);
  const prefix = code`extern "C" HIDDEN`;
  const { time } = computation;
  const text = lines([
    comment([
      `${asked}: the equation in plain C++, for CPUs without the instructions of the tuned kernel.`,
      "",
      ...[sum, ...(epilogue ? [epilogue] : []), ...beside].map((part) => printEquation(part.equation)),
      ...parameters.map((p) => `${p.tensor.name}: ${describeTensor(p.tensor)}`),
    ]),
    code`#include <stdint.h>

namespace { // what is included above is included once: two packages may be linked into one program`,
    apart(harnessText("arithmetic.h")),
    apart(assetText("memory.h")),
    referenceStruct(code`Sum`, sum, hold),
    epilogue && referenceStruct(code`Finish`, epilogue, hold),
    ...beside.map((other, i) => referenceStruct(code`Beside${i}`, other, hold)),
    code`} // namespace

#define HIDDEN __attribute__((visibility("hidden")))
${prefix} unsigned long ${name}_portable_workspace_bytes(void) { return 0; }
${prefix} unsigned long ${name}_portable_scratch_bytes(void) { return ${portableScratch(computation)}; }
${prefix} int ${name}_portable_phases(void) { return 1; }
${prefix} void ${name}_portable_prepare(void*, const void* const*) {}
${prefix} void ${name}_portable_run(void*, void* const* tensors, int, int part, int) {
  if (part != 0) return;
  Sum sum;`,
    ...connect("sum", touched(sum)),
    time && code`  sum.spare = (decltype(sum.spare))tensors[${parameters.length}];`,
    code`  sum.compute();`,
    ...(epilogue ? [code`  Finish finish;`, ...connect("finish", touched(epilogue)), code`  finish.compute();`] : []),
    // They assign other elements of the output than the epilogue, which has cleared all of it.
    ...beside.flatMap((other, i) => [
      code`  Beside${i} beside_${i};`,
      ...connect(`beside_${i}`, touched(other)),
      code`  beside_${i}.compute_part(0, ${stepsOfParts(other)});`,
    ]),
    code`}
`,
  ]);
  return spell(text, "c++");
}
