/**
 * @file Computes the expected output of a CUDA kernel on the device, by a plain kernel of the equation with one thread
 * for each element.
 *
 *     cudaReferenceSource(conv2d)      extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t)
 *
 * `low` and `high` are the smallest and largest accepted value for each element of the output's memory. Memory that
 * holds no element is left untouched, and so are elements whose sum is NaN, or infinite after rounding. The tolerance is
 * that of verify.ts, and the arithmetic that of the interpreter (`harness/arithmetic.h`). A test checks that both agree
 * with the interpreter. Time steps are launched one after another (`harness/cuda-steps.h`).
 */

import { type Computation, inputsOf, memoryElements, outputOf, targetOf } from "../../abstraction/computation.ts";
import { isInteger } from "../../abstraction/dtype.ts";
import { writesApart } from "../../abstraction/elements.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { UsageError } from "../../abstraction/error.ts";
import { accessesIn } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { apart, type Code, code, lines, type SourceText, spell } from "../../abstraction/source-text.ts";
import type { Time } from "../../abstraction/time.ts";
import { LIBRARY_UNITS } from "../size.ts";
import { boundRule } from "./error-bound.ts";
import { argumentsOf, bind, boundText, counters, type Part, partStruct, sumStruct } from "./reference-bounds.ts";
import { dataName, harnessText, placeFunction, placeOf } from "./reference-source.ts";

/** Sets of inputs as `draw` of harness/cuda-elements.h makes them. */
export const INEXACT_SETS = ["random", "extreme"] as const;

/** The sets that a computation is checked on. If float sums are exact in any order, a missing term shows. */
export function setsOf(computation: Computation): readonly ("exact" | (typeof INEXACT_SETS)[number])[] {
  return isInteger(targetOf(computation).dtype) ? INEXACT_SETS : ["exact", ...INEXACT_SETS];
}

/** The reference of a computation. @throws UsageError for a recurrence, and if several points meet in one element */
export function cudaReferenceSource(computation: Computation): SourceText {
  const { time } = computation;
  const text = code`#define AUTOMAP_FUNCTION __host__ __device__
${apart(harnessText("arithmetic.h"))}
${apart(harnessText("bounds.h"))}
${apart(harnessText("cuda-reference.h"))}
${time ? stepsText(computation, time) : partsText(computation)}
`;
  return spell(text, "cuda");
}

const CALL = code`extern "C" int automap_reference(void* const* tensors, double* low, double* high, int exact, cudaStream_t stream) {`;

function partsText(computation: Computation): Code {
  const { sum, epilogue, beside } = partsOf(computation);
  const target = targetOf(sum);
  if (accessesIn(sum.equation.value).some((a) => a.tensor === target.name))
    throw new UsageError(`${computation.name}: a recurrence has no reference on a device yet`);
  if (!writesApart(sum))
    throw new UsageError(
      `${computation.name}: several points meet in one element of the output: it has no reference on a device yet`,
    );
  const parts: readonly Part[] = [
    { sum, rule: boundRule(sum), epilogue, isBeside: false },
    ...beside.map((other) => ({ sum: other, rule: undefined, epilogue: undefined, isBeside: true })),
  ];
  const output = outputOf(computation);
  const intervals = epilogue
    ? [code`static constexpr double LIBRARY_UNITS = ${LIBRARY_UNITS};`, apart(harnessText("intervals.h"))]
    : [];
  return lines([
    ...intervals,
    code`${parts.map((part, i) => partStruct(code`Part_${i}`, part))}
${CALL}
  int error = 0;
${parts.flatMap((part, i) => launched(part, computation, i))}
  return error;
}
/* ${memoryElements(output)} elements of ${output.dtype} */`,
  ]);
}

function launched({ sum, rule, epilogue }: Part, computation: Computation, i: number): Code[] {
  const tensors = Object.values(computation.tensors);
  const target = targetOf(sum);
  const others = epilogue ? inputsOf(epilogue).filter((t) => t.name !== target.name) : [];
  return [
    code`  Part_${i} part_${i};`,
    ...bind(code`part_${i}.sum_of`, inputsOf(sum), tensors),
    ...(rule ? bind(code`part_${i}.size_of`, inputsOf(sum), tensors) : []),
    ...bind(code`part_${i}.result_of`, others, tensors),
    code`  if (!error) error = launch(bounds<Part_${i}>, Part_${i}::points, stream, part_${i}, low, high, exact);`,
  ];
}

// ------------------------------------------------------------------------------------------------- time steps

/** The largest error accepted, relative to the largest element of the first plane. Beyond it, wrong results would pass. */
const MOST_OFF = 1 / 8;

/**
 * @throws UsageError if the device cannot check by a rounding bound: coefficients are read from memory, differences
 * multiply one another, or results may be off by as much as they are large
 */
function stepsText(computation: Computation, { step, first, steps }: Time): Code {
  const other = inputsOf(step).find((t) => t.name !== first);
  if (other)
    throw new UsageError(
      `${computation.name}: it reads ${other.name} beside the plane, and such steps have no reference on a device yet: write coefficients as numbers`,
    );
  const output = outputOf(computation);
  const { equation, axes } = step;
  return code`${apart(harnessText("cuda-steps.h"))}
struct Step {
  using Element = ${C_TYPES[targetOf(step).dtype]};
  static constexpr Int points = ${memoryElements(output)};
${sumStruct(step)}
${placeFunction(output)}
  Sum sum_of;
  const Element*& plane() { return sum_of.${dataName(first)}.data; }
  AUTOMAP_FUNCTION void move(Int point, Element* to) const {
    ${counters(axes)}
    const Int place = ${placeOf(output, equation.target)};
    if (place >= 0) to[place] = Element(sum_of.at(${argumentsOf(axes)}));
  }
  AUTOMAP_FUNCTION static double tolerance(double largest, double value, int exact) {
    ${toleranceOfSteps(computation, steps)}
  }
};
${CALL}
  Step step;
${bind(code`step.sum_of`, inputsOf(step), Object.values(computation.tensors))}
  return bounds_after(step, ${steps}, low, high, exact, stream);
}`;
}

/** @throws UsageError if there is no bound, or it is too large */
function toleranceOfSteps(computation: Computation, steps: number): Code[] {
  const rule = boundRule(computation);
  if (!rule) return [code`return 0;`];
  const { growth, chain, operations, epsilon } = rule;
  if (!growth || typeof chain !== "number")
    throw new UsageError(
      `${computation.name}: differences of planes multiply one another, so nothing bounds its rounding on a device`,
    );
  const { whole, drawn } = growth;
  const off = (chain + operations + 1) * epsilon * (drawn.factor + drawn.offset);
  if (off > MOST_OFF)
    throw new UsageError(
      `${computation.name}: after ${steps} steps rounding may be ${off.toPrecision(2)} times the first plane, and wrong results would pass: take fewer steps`,
    );
  return [
    code`const double size = exact ? ${whole.factor} * largest + ${whole.offset} : ${drawn.factor} * largest + ${drawn.offset};`,
    code`return ${boundText(rule)}.tolerance(${chain}, size, value, exact);`,
  ];
}
