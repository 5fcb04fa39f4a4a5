/**
 * @file A program that tests a package on the GPU it runs on: every element is compared with a plain kernel of the equation.
 *
 *     $ build/conv2d_test
 *     conv2d: right on exact, random and extreme data, called, in a graph and from two threads
 *
 * Inputs, bounds and comparison are those of the measuring program (runtime/harness/cuda-elements.h).
 */

import { sortedBy } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  identifier,
  join,
  lines,
  list,
  type SourceText,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";
import { decidingInputs } from "../../runtime/reference/draw-inputs.ts";
import { cudaReferenceSource, setsOf } from "../../runtime/reference/reference-cuda.ts";
import { harnessText } from "../../runtime/reference/reference-source.ts";
import { tunedSource } from "../library.ts";
import { assetText } from "../portable.ts";
import type { Parameter } from "../subject.ts";
import { alignmentOf, type CudaSubject, codeOf, constantsOf } from "./subject.ts";

/** The equation as a plain kernel, in its own file. */
export function referenceSource({ subject }: CudaSubject): SourceText {
  const source = cudaReferenceSource(subject.computation);
  return tunedSource({ ...subject, provenance: [] }, { source, language: "cuda" });
}

export function selfTestSource(cuda: CudaSubject): SourceText {
  const { subject, name, parameters, call } = cuda;
  const deciding = decidingInputs(subject.computation);
  const places = sortedBy(parameters, (a) => a.place);
  const tensor = (p: Parameter): Code => {
    const { dtype, name: said } = p.tensor;
    const tf32 = dtype === "tf32" ? "true" : "false";
    const aligned = alignmentOf(cuda, p) ?? bytesOf(dtype);
    const [least, most] = deciding.get(said) ?? [0, 0];
    return code`  {${list([stringLiteral(said), identifier((dtype === "tf32" ? "f32" : dtype).toUpperCase()), code`${tf32}`, code`${p.elements}`, code`${p.bytes}`, code`${aligned}`, code`${least}`, code`${most}`])}},`;
  };
  const wrapper = (word: "prepare" | "run", given: readonly Parameter[]): Code => {
    const pointers = given.map(
      ({ role, tensor: { dtype }, place }) =>
        code`(${role === "output" ? "" : "const "}${C_TYPES[dtype]}*)tensors[${place}]`,
    );
    return code`static int ${word}_it(void* const* tensors, void* workspace, size_t bytes, cudaStream_t stream) {
  return ${name}_${word}(${list([...pointers, code`workspace`, code`bytes`, code`stream`])});
}`;
  };
  const codes = (["UNSUPPORTED", "NULL", "WORKSPACE", "MISALIGNED"] as const).map((word) => codeOf(cuda, word));
  const text = lines([
    comment([
      `Proves ${subject.name}: every element against a plain kernel of the equation, on data drawn on the GPU, in guarded memory.`,
      "",
      `  build/${subject.name}_test [seed]      exit code 0: right, 4: wrong, 6: it could not be tried`,
      "",
      "Floats may differ from the equation by (terms + operations + 1) * (epsilon * sum of |terms| + smallest normal number): a bound",
      "for any order of summation, with or without fused multiply-adds (Higham, Accuracy and Stability, section 4.2).",
    ]),
    code`#include "${name}.h"

#include <cuda_runtime.h>
#include <cmath>`,
    apart(harnessText("cuda-elements.h")),
    apart(assetText("cuda-test.h")),
    code`extern "C" int ${name}_tuned_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream);`,
    call.prepares && wrapper("prepare", constantsOf(cuda)),
    wrapper("run", parameters),
    code`
int main(int count, char** words) {
  const Package package = {${stringLiteral(subject.name)}, {`,
    ...places.map(tensor),
    code`  }, {${join(
      setsOf(subject.computation).map((set) => identifier(set.toUpperCase())),
      code`, `,
    )}}, ${name}_workspace_bytes(), ${name}_supported, ${call.prepares ? "prepare_it" : "nullptr"}, run_it, ${name}_message, ${name}_tuned_reference,
    ${list(codes)}};
  return prove(package, count > 1 ? strtoull(words[1], nullptr, 0) : 1);
}
`,
  ]);
  return spell(text, "cuda");
}
