/**
 * @file Generates the program that draws the inputs of a large computation and computes the results. All threads write
 * them to files in the tensors' types and storage order.
 *
 *     ./drawn 2  0 1 3 exact.input0 exact.expected  1 1 1 random.input0 random.expected        threads; of each set kind, seed, largest, files
 *
 * For each set it prints the smallest and the largest result, and 1 when all are finite.
 */

import { type Computation, elementCount, inputsOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { apart, type Code, code, lines, list, Name, NOTHING, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import type { Time } from "../abstraction/time.ts";
import { printIndex } from "./reference-expressions.ts";
import { padded } from "./reference-padding.ts";
import {
  dataName,
  type Holding,
  harnessText,
  heldAsNumbers,
  placeName,
  referenceStruct,
  sharedAxis,
} from "./reference-source.ts";
import { bordered, borderFunction, reachOf } from "./reference-time.ts";
import { liesRowMajor } from "./verify.ts";

/** Outputs summed together: whole cache lines, in rows long enough for the hardware prefetcher. */
const LANES = 256;
/** Arguments of a set before its files: kind, seed, largest value. */
const WORDS = 3;

/**
 * @param computation without epilogue, of integers or of floats, whose points threads can share; its tensors have
 * no holes, and in time they are row-major
 * @param fixed inputs whose files already exist
 */
export function drawnSource(computation: Computation, fixed: ReadonlySet<string>): SourceText {
  const { time } = computation;
  const { computation: laid, low: borders } = time
    ? { computation: bordered(time), low: lowInTime(time) }
    : padded(computation);
  const low = new Map([...turned(computation), ...borders]);
  const shared = sharedAxis(laid);
  if (!shared) throw new Error(`internal: the points of ${computation.name} cannot be shared`);
  const inputs = inputsOf(computation);
  const output = targetOf(computation);
  const compute = code`in_parts(threads, ${shared.extent}, [](Int first, Int last) { it.compute_part(first, last); });`;
  const sets = inputs.length + WORDS + 1;
  const text = lines([
    apart(harnessText("arithmetic.h")),
    apart(harnessText("drawn.h")),
    referenceStruct(code`Reference`, laid, heldPlain, LANES),
    code`static Reference it;`,
    ...(time ? borderFunction(laid, time) : []),
    code`int main(int, char** files) {`,
    code`  const int threads = atoi(files[1]);`,
    ...Object.values(laid.tensors)
      .filter((t) => low.has(t.name))
      .map((t) => code`  it.${dataName(t.name)}.data = zeros<${heldType(t)}>(${elementCount(t)});`),
    code`  for (files += 2; *files; files += ${sets}) {`,
    code`    const Set set = Set(atoi(files[0]));`,
    code`    const uint32_t seed = uint32_t(atoi(files[1])) * 64;`,
    code`    const double large = atof(files[2]);`,
    ...inputs.flatMap((t, i) => drawn(t, i, low.get(t.name), fixed.has(t.name))),
    code`    auto* answer = mapped<${C_TYPES[output.dtype]}>(files[${inputs.length + WORDS}], ${elementCount(output)});`,
    ...(time
      ? [...stepped(time, compute), ...copied(output, time.first, low.get(time.first) ?? [])]
      : low.has(output.name)
        ? [cleared(output), code`    ${compute}`, ...copied(output, output.name, low.get(output.name) ?? [])]
        : [code`    it.${dataName(output.name)}.data = answer;`, code`    ${compute}`]),
    code`    report(answer, ${elementCount(output)});`,
    ...inputs.map((t, i) => code`    munmap(drawn_${i}, ${elementCount(t)} * sizeof *drawn_${i});`),
    code`    munmap(answer, ${elementCount(output)} * sizeof *answer);`,
    code`  }`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "c++");
}

/** Elements in their own type, row-major; their values are those of the interpreter. */
function heldPlain(tensor: Tensor): Holding {
  return { ...heldAsNumbers(tensor), type: code`Plain<${heldType(tensor)}>` };
}

const isShort = ({ dtype }: Tensor): boolean => dtype === "bf16" || dtype === "f16";
/** Floats of 16 bits are converted when they are copied. */
const heldType = (tensor: Tensor) => (isShort(tensor) ? "float" : C_TYPES[tensor.dtype]);

/**
 * The offset of planes within their borders, in the form of `padded`: for the plane that is read and the plane that is
 * written.
 */
function lowInTime(time: Time): ReadonlyMap<string, readonly number[]> {
  const target = targetOf(time.step);
  const low = target.dims.map((_, d) => -reachOf(time, d));
  return new Map([time.first, target.name].map((name) => [name, low]));
}

/**
 * Tensors that are stored in another order than row-major, such as NHWC, or as floats of 16 bits. They are computed on
 * row-major copies, along whose rows the compiler vectorises. A copy has no border: its offsets are 0.
 */
function turned(computation: Computation): ReadonlyMap<string, readonly number[]> {
  const all = [...inputsOf(computation), targetOf(computation)].filter((t) => isShort(t) || !liesRowMajor(t));
  return new Map(all.map(({ name, dims }) => [name, dims.map(() => 0)]));
}

/** An input drawn into its file, and copied if it has a border or another order. */
function drawn(tensor: Tensor, i: number, low: readonly number[] | undefined, isFixed: boolean): Code[] {
  const count = elementCount(tensor);
  const type = C_TYPES[tensor.dtype];
  const draw = [
    code`    auto* drawn_${i} = mapped<${type}>(files[${i + WORDS}], ${count});`,
    code`    in_parts(threads, ${count}, [=](Int first, Int last) { ${isShort(tensor) ? code`draw_short(${tensor.dtype}{}, ` : code`draw(`}drawn_${i}, first, last, set, mixed(seed + ${i}), large); });`,
  ];
  return [
    ...(isFixed ? [code`    auto* drawn_${i} = given<${type}>(files[${i + WORDS}], ${count});`] : draw),
    ...(low
      ? overElements(
          tensor,
          low,
          (inside, stored) =>
            code`it.${dataName(tensor.name)}.data[${inside}] = ${isShort(tensor) ? code`decoded(${tensor.dtype}{}, drawn_${i}[${stored}])` : code`drawn_${i}[${stored}]`};`,
        )
      : [code`    it.${dataName(tensor.name)}.data = drawn_${i};`]),
  ];
}

/**
 * Visits all elements of a tensor with all threads.
 * @param low the offset of the border, 0 or negative
 * @param each is given the place in the copy, and the place as the tensor is stored
 */
function overElements(tensor: Tensor, low: readonly number[], each: (inside: Code, stored: Code) => Code): Code[] {
  const { dims } = tensor;
  const names = dims.map((_, d) => new Name("axis", `e${d}`, `element ${d} of ${tensor.name}`));
  const inside = code`it.${placeName(tensor.name)}(${list(names.map((name, d) => code`${name} + ${-(low[d] ?? 0)}`))})`;
  const stored = printIndex(tensor.storage, (axis) => names[dims.findIndex(({ name }) => name === axis)] ?? NOTHING);
  const shared = Math.max(
    0,
    dims.findIndex(({ extent }) => extent > 1),
  );
  return [
    code`    in_parts(threads, ${dims[shared]?.extent ?? 1}, [=](Int first, Int last) {`,
    ...dims.map(({ extent }, d) => {
      const name = names[d] ?? NOTHING;
      return d === shared
        ? code`      for (Int ${name} = first; ${name} < last; ${name}++)`
        : code`      for (Int ${name} = 0; ${name} < ${extent}; ${name}++)`;
    }),
    code`        ${each(inside, stored)}`,
    code`    });`,
  ];
}

function stepped(time: Time, compute: Code): Code[] {
  const [now, next] = [dataName(time.first), dataName(targetOf(time.step).name)];
  return [
    code`    for (Int step = 0; step < ${time.steps}; step++) {`,
    code`      border();`,
    code`      ${compute}`,
    code`      auto made = it.${next};`,
    code`      it.${next} = it.${now}, it.${now} = made;`,
    code`    }`,
  ];
}

/** A copy is used by every set, and sums are added to what it holds. */
const cleared = (output: Tensor): Code =>
  code`    in_parts(threads, ${elementCount(output)}, [](Int first, Int last) { for (Int i = first; i < last; i++) it.${dataName(output.name)}.set(i, 0); });`;

/** The results in the order in which they are stored: a plane after its last step without its border, or a copy. */
function copied(output: Tensor, name: string, low: readonly number[]): Code[] {
  return overElements(
    { ...output, name },
    low,
    (inside, stored) =>
      code`answer[${stored}] = ${isShort(output) ? code`encoded(${output.dtype}{}, it.${dataName(name)}[${inside}])` : code`it.${dataName(name)}[${inside}]`};`,
  );
}
