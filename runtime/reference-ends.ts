/**
 * @file Generates the program that computes the interval of every result of an epilogue from those of the sums.
 *
 *     ./ends 2 sums.f64 bias.f64 answer.f64      pairs of a low and a high end; NaN where nothing is stored
 */

import { mapValues } from "../abstraction/collections.ts";
import { type Computation, elementCount, inputsOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { apart, code, type SourceText } from "../abstraction/source-text.ts";
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
  const held = inputs.map((t, i) =>
    t.name === sum.name
      ? code`const Ends* const sums = given<Ends>(files[${i + 2}], ${elementCount(sum)});`
      : code`result.${dataName(t.name)}.data = given<double>(files[${i + 2}], ${elementCount(t)});`,
  );
  const text = code`${apart(harnessText("arithmetic.h"))}
${apart(harnessText("drawn.h"))}
static constexpr double LIBRARY_UNITS = ${LIBRARY_UNITS};
${apart(harnessText("intervals.h"))}
${resultStruct(laid, sum, ({ storage }) => ({ type: code`Plain<double>`, storage }))}
static Result result;
int main(int, char** files) {
  ${held}
  Ends* const answer = mapped<Ends>(files[${inputs.length + 2}], ${elementCount(output)});
  for (Int i = 0; i < ${elementCount(output)}; i++) answer[i] = {not_a_number, not_a_number};
  in_parts(atoi(files[1]), ${pointsOf(axes)}, [=](Int first, Int last) {
    Result own = result;
    for (Int point = first; point < last; point++) {
      ${counters(axes)}
      const Int place = own.place(${argumentsOf(axes)});
      if (place < 0) continue;
      own.sums = sums[point];
      answer[place] = own.at(${argumentsOf(axes)});
    }
  });
}
`;
  return spell(text, "c++");
}
