/**
 * @file Generates the program that computes the interval of every result of an epilogue from those of the sums.
 *
 *     ./ends 2 sums.f64 bias.f64 answer.f64      pairs of a low and a high end; NaN where nothing is stored
 */

import { mapValues } from "../abstraction/collections.ts";
import { type Computation, elementCount, inputsOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { apart, code, lines, NOTHING, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import { argumentsOf, counters, pointsOf, resultStruct } from "./reference-bounds.ts";
import { dataName, harnessText } from "./reference-source.ts";
import { LIBRARY_UNITS } from "./size.ts";

/** @param sum the tensor whose file holds pairs */
export function endsSource(epilogue: Computation, sum: Tensor): SourceText {
  const { axes } = epilogue;
  const output = targetOf(epilogue);
  const laid = {
    ...epilogue,
    tensors: mapValues(epilogue.tensors, (tensor) => ({ ...tensor, storage: rowMajor(tensor.dims) })),
  };
  const inputs = inputsOf(epilogue);
  const place = (name: string): number => inputs.findIndex((t) => t.name === name) + 2;
  const text = lines([
    apart(harnessText("arithmetic.h")),
    apart(harnessText("drawn.h")),
    code`static constexpr double LIBRARY_UNITS = ${LIBRARY_UNITS};`,
    apart(harnessText("intervals.h")),
    resultStruct(laid, sum, ({ storage }) => ({ type: code`Plain<double>`, storage })),
    code`static Result result;`,
    code`int main(int, char** files) {`,
    ...inputs
      .filter(({ name }) => name !== sum.name)
      .map(
        (t) => code`  result.${dataName(t.name)}.data = given<double>(files[${place(t.name)}], ${elementCount(t)});`,
      ),
    code`  const Ends* const sums = given<Ends>(files[${place(sum.name)}], ${elementCount(sum)});`,
    code`  Ends* const answer = mapped<Ends>(files[${inputs.length + 2}], ${elementCount(output)});`,
    code`  for (Int i = 0; i < ${elementCount(output)}; i++) answer[i] = {not_a_number, not_a_number};`,
    code`  in_parts(atoi(files[1]), ${pointsOf(axes)}, [=](Int first, Int last) {`,
    code`    Result own = result;`,
    code`    for (Int point = first; point < last; point++) {`,
    ...counters(axes).map((line) => code`      ${line}`),
    code`      const Int place = own.place(${argumentsOf(axes)});`,
    code`      if (place < 0) continue;`,
    code`      own.sums = sums[point];`,
    code`      answer[place] = own.at(${argumentsOf(axes)});`,
    code`    }`,
    code`  });`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "c++");
}
