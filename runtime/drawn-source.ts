/**
 * @file Generates the program that draws the inputs of a large float computation and computes the results. All threads
 * write them to files in the tensors' types and storage order.
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

/** Outputs summed together: whole cache lines, in rows long enough for the hardware prefetcher. */
const LANES = 256;
/** Arguments of a set before its files: kind, seed, largest value. */
const WORDS = 3;

/**
 * @param computation without epilogue, of row-major floats, whose points threads can share
 * @param fixed inputs whose files already exist
 */
export function drawnSource(computation: Computation, fixed: ReadonlySet<string>): SourceText {
  const { time } = computation;
  const { computation: laid, low } = time ? { computation: bordered(time), low: lowInTime(time) } : padded(computation);
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
      .map((t) => code`  it.${dataName(t.name)}.data = zeros<${C_TYPES[t.dtype]}>(${elementCount(t)});`),
    code`  for (files += 2; *files; files += ${sets}) {`,
    code`    const Set set = Set(atoi(files[0]));`,
    code`    const uint32_t seed = uint32_t(atoi(files[1])) * 64;`,
    code`    const double large = atof(files[2]);`,
    ...inputs.flatMap((t, i) => drawn(t, i, low.get(t.name), fixed.has(t.name))),
    code`    auto* answer = mapped<${C_TYPES[output.dtype]}>(files[${inputs.length + WORDS}], ${elementCount(output)});`,
    ...(time
      ? [...stepped(time, compute), ...copied(output, time, low.get(time.first) ?? [])]
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

/** Floats in their own type; their values are those of the interpreter. */
function heldPlain(tensor: Tensor): Holding {
  return { ...heldAsNumbers(tensor), type: code`Plain<${C_TYPES[tensor.dtype]}>` };
}

/**
 * The offset of planes within their borders, in the form of `padded`: for the plane that is read and the plane that is
 * written.
 */
function lowInTime(time: Time): ReadonlyMap<string, readonly number[]> {
  const target = targetOf(time.step);
  const low = target.dims.map((_, d) => -reachOf(time, d));
  return new Map([time.first, target.name].map((name) => [name, low]));
}

/** An input drawn into its file, and copied inside its border if it has one. */
function drawn(tensor: Tensor, i: number, low: readonly number[] | undefined, isFixed: boolean): Code[] {
  const count = elementCount(tensor);
  const type = C_TYPES[tensor.dtype];
  const draw = [
    code`    auto* drawn_${i} = mapped<${type}>(files[${i + WORDS}], ${count});`,
    code`    in_parts(threads, ${count}, [=](Int first, Int last) { draw(drawn_${i}, first, last, set, mixed(seed + ${i}), large); });`,
  ];
  return [
    ...(isFixed ? [code`    auto* drawn_${i} = given<${type}>(files[${i + WORDS}], ${count});`] : draw),
    ...(low
      ? overElements(
          tensor,
          low,
          (inside, flat) => code`it.${dataName(tensor.name)}.data[${inside}] = drawn_${i}[${flat}];`,
        )
      : [code`    it.${dataName(tensor.name)}.data = drawn_${i};`]),
  ];
}

/** Visits all elements of a tensor with all threads. @param low the offset of the border, 0 or negative */
function overElements(tensor: Tensor, low: readonly number[], each: (inside: Code, flat: Code) => Code): Code[] {
  const names = tensor.dims.map((_, d) => new Name("axis", `e${d}`, `element ${d} of ${tensor.name}`));
  const inside = code`it.${placeName(tensor.name)}(${list(names.map((name, d) => code`${name} + ${-(low[d] ?? 0)}`))})`;
  const flat = tensor.dims.reduce<Code>(
    (sum, dim, d) => (d === 0 ? code`${names[0] ?? NOTHING}` : code`(${sum}) * ${dim.extent} + ${names[d] ?? NOTHING}`),
    NOTHING,
  );
  return [
    code`    in_parts(threads, ${tensor.dims[0]?.extent ?? 1}, [=](Int first, Int last) {`,
    ...tensor.dims.map(({ extent }, d) => {
      const name = names[d] ?? NOTHING;
      return d === 0
        ? code`      for (Int ${name} = first; ${name} < last; ${name}++)`
        : code`      for (Int ${name} = 0; ${name} < ${extent}; ${name}++)`;
    }),
    code`        ${each(inside, flat)}`,
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

/** The plane after the last step, without its border. */
function copied(output: Tensor, time: Time, low: readonly number[]): Code[] {
  const plane = { ...output, name: time.first };
  return overElements(plane, low, (inside, flat) => code`answer[${flat}] = it.${dataName(time.first)}[${inside}];`);
}
