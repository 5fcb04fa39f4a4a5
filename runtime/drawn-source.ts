/**
 * @file Generates programs that compute expected results with all threads: on inputs that they draw themselves, written
 * to files in the tensors' types and storage order; or on given inputs.
 *
 *     ./drawn 2  0 1 3 0 exact.input0 exact.expected  1 1 1 1e-6 random.input0 random.expected      threads; of each set kind, seed, largest, files
 *
 * For each set it prints the smallest and the largest result, and 1 when all are finite.
 */

import {
  type Computation,
  elementCount,
  inputsOf,
  memoryElements,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { identityOf } from "../abstraction/equation.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { apart, block, type Code, code, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import type { Time } from "../abstraction/time.ts";
import {
  copied,
  DOUBLES,
  type Form,
  heldPlain,
  isShort,
  isTurned,
  mappedInput,
  OWN,
  PLANES,
  placedInput,
  withoutBorder,
} from "./drawn-elements.ts";
import { finished, finishStruct } from "./drawn-epilogue.ts";
import { literal } from "./reference-expressions.ts";
import { padded } from "./reference-padding.ts";
import { dataName, harnessText, isApart, referenceStruct, sharedAxis, stepsOfParts } from "./reference-source.ts";
import { bordered, borderFunction, reachOf } from "./reference-time.ts";

/**
 * Outputs summed together. In their own type: whole cache lines, in rows long enough for the hardware prefetcher. As doubles: enough to hide the
 * latency of an addition with the widest vectors.
 */
const LANES = { own: 256, doubles: 32 } as const;
/** Arguments of a set before its files: kind, seed, largest value, the most that a sum may be off. */
const WORDS = 4;

/**
 * @param computation of numbers whose points threads can share; in time its tensors are row-major; an epilogue is one
 * that drawn-epilogue.ts can finish
 * @param fixed inputs whose files already exist
 */
export function drawnSource(computation: Computation, fixed: ReadonlySet<string>): SourceText {
  return programOf(computation, OWN, LANES.own, fixed, WORDS);
}

/**
 * The program for a computation without epilogue on inputs that exist. All its files hold doubles, row-major; its arguments are the number of threads,
 * a file for every input, and the output file.
 */
export function valuesSource(computation: Computation): SourceText {
  const all = new Set(inputsOf(computation).map(({ name }) => name));
  return programOf(computation, computation.time ? PLANES : DOUBLES, LANES.doubles, all, 0);
}

function programOf(
  computation: Computation,
  form: Form,
  most: number,
  fixed: ReadonlySet<string>,
  words: number,
): SourceText {
  const { time } = computation;
  const { sum, epilogue } = partsOf(computation);
  const { computation: laid, low: borders } = time
    ? { computation: bordered(time), low: lowInTime(time) }
    : padded(sum);
  const lanes = isApart(time?.step ?? laid) ? most : 1;
  const target = targetOf(computation);
  const output = form.inFile(outputOf(computation));
  const turned = [...inputsOf(sum), target]
    .filter((t) => isTurned(t, form))
    .map((t) => [t.name, withoutBorder(t)] as const);
  const low = new Map([...turned, ...borders]);
  // With an epilogue, sums are not stored.
  const isHeld = (t: Tensor): boolean => low.has(t.name) || (epilogue !== undefined && t.name === target.name);
  const inputs = inputsOf(computation).map((tensor, i) => ({ tensor: form.inFile(tensor), i }));
  const read = new Set(inputsOf(sum).map(({ name }) => name));
  const shared = sharedAxis(laid);
  const compute = shared
    ? code`in_parts(threads, ${shared.extent}, [](Int first, Int last) { it.compute_part(first, last); });`
    : code`it.compute_part(0, ${stepsOfParts(laid)});`;
  const identity = literal(identityOf(sum.equation.op, target.dtype), target.dtype);
  const isZero = identityOf(sum.equation.op, target.dtype) === 0;
  const all = Object.values(laid.tensors);
  const prepared = [
    ...all
      .filter(isHeld)
      .map((t) => code`it.${dataName(t.name)}.data = zeros<${form.element(t)}>(${elementCount(t)});`),
    ...all.filter((t) => !time && !isZero && borders.has(t.name)).map((t) => filled(t, identity)),
  ];
  const set = [
    ...(words === 0
      ? []
      : [
          code`const Set set = Set(atoi(files[0]));`,
          code`const uint32_t seed = uint32_t(atoi(files[1])) * 64;`,
          code`const double large = atof(files[2]), within = atof(files[3]);`,
        ]),
    ...inputs.map(({ tensor, i }) => mappedInput(tensor, i, i + words, fixed.has(tensor.name))),
    code`auto* answer = mapped<${C_TYPES[output.dtype]}>(files[${inputs.length + words}], ${memoryElements(output)});`,
    ...inputs
      .filter(({ tensor }) => read.has(tensor.name))
      .flatMap(({ tensor, i }) => [
        ...(fixed.has(tensor.name) ? [] : [drawn(tensor, i)]),
        ...placedInput("it", tensor, i, low.get(tensor.name)),
      ]),
    ...(time || isHeld(target) ? [] : [code`it.${dataName(target.name)}.data = answer;`]),
    ...(time
      ? [...stepped(time, compute), ...copied("it", output, time.first, low.get(time.first) ?? [])]
      : [...(isHeld(target) || !isZero ? [filled(target, identity)] : []), compute]),
    ...(epilogue
      ? finished(
          computation,
          epilogue,
          inputs.filter(({ tensor }) => !read.has(tensor.name)),
          fixed,
        )
      : [
          ...(time || !isHeld(target) ? [] : copied("it", output, output.name, low.get(output.name) ?? [])),
          ...(words === 0 ? [] : [code`report(answer, ${memoryElements(output)}, within);`]),
        ]),
    ...inputs.map(({ tensor, i }) => code`munmap(drawn_${i}, ${memoryElements(tensor)} * sizeof *drawn_${i});`),
  ];
  const structs = [
    referenceStruct(code`Reference`, laid, (t) => heldPlain(t, form), lanes),
    code`static Reference it;`,
    ...(epilogue ? [finishStruct(epilogue, target, lanes)] : []),
    ...(time ? borderFunction(laid, time) : []),
  ];
  const text = code`${apart(harnessText("arithmetic.h"))}
${apart(harnessText("drawn.h"))}
${structs}
int main(int, char** files) {
  const int threads = atoi(files[1]);
  ${prepared}
  for (files += 2; *files; files += ${inputs.length + words + 1}) {
    ${set}
    munmap(answer, ${memoryElements(output)} * sizeof *answer);
  }
}
`;
  return spell(text, "c++");
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

/** Draws an input of the sums into its file. */
function drawn(tensor: Tensor, i: number): Code {
  const draw = isShort(tensor) || tensor.dtype === "tf32" ? code`draw_rounded(${tensor.dtype}{}, ` : code`draw(`;
  return code`in_parts(threads, ${memoryElements(tensor)}, [=](Int first, Int last) { ${draw}drawn_${i}, first, last, set, mixed(seed + ${i}), large); });`;
}

function stepped(time: Time, compute: Code): Code[] {
  const now = dataName(time.first);
  const next = dataName(targetOf(time.step).name);
  return block(code`for (Int step = 0; step < ${time.steps}; step++) {`, [
    code`border();`,
    compute,
    code`auto made = it.${next};`,
    code`it.${next} = it.${now}, it.${now} = made;`,
  ]);
}

/** A copy is used by every set, and sums are added to what it holds. */
const filled = (tensor: Tensor, value: Code): Code =>
  code`in_parts(threads, ${elementCount(tensor)}, [](Int first, Int last) { for (Int i = first; i < last; i++) it.${dataName(tensor.name)}.set(i, ${value}); });`;
