/**
 * @file Generates programs that compute expected results with all threads: on inputs that they draw themselves, written
 * to files in the tensors' types and storage order; or on given inputs.
 *
 *     ./drawn 2  0 1 3 0 exact.input0 exact.expected  1 1 1 1e-6 random.input0 random.expected      threads; of each set kind, seed, largest, files
 *
 * For each set it prints the smallest and the largest result, and 1 when all are finite.
 */

import { pointsIn, rowMajor } from "../../abstraction/affine.ts";
import { mapValues, namesOf, present } from "../../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  keptIn,
  liesRowMajor,
  memoryElements,
  outputOf,
  pointCount,
  type Tensor,
  targetOf,
} from "../../abstraction/computation.ts";
import { type DType, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import { isElementwise, partsOf } from "../../abstraction/epilogue.ts";
import { identityOf } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import { isShort } from "../../abstraction/short-floats.ts";
import {
  apart,
  block,
  type Code,
  code,
  list,
  Name,
  NOTHING,
  replacedIn,
  type SourceText,
  spell,
} from "../../abstraction/source-text.ts";
import type { Time } from "../../abstraction/time.ts";
import { callsLibrary } from "../size.ts";
import { literal, printIndex } from "./reference-expressions.ts";
import { sharedOnce } from "./reference-once.ts";
import { padded } from "./reference-padding.ts";
import {
  dataName,
  elementType,
  type Holding,
  harnessText,
  heldAsNumbers,
  isApart,
  type NumberType,
  placeName,
  pointStruct,
  referenceStruct,
  sharedAxis,
  stepsOfParts,
} from "./reference-source.ts";
import { bordered, borderFunction, reachOf } from "./reference-time.ts";
import { neverTurns, tensorsBeside } from "./value-facts.ts";

/**
 * Outputs summed together. In their own type: whole cache lines, in rows long enough for the hardware prefetcher. As doubles: enough to hide the
 * latency of an addition with the widest vectors.
 */
const LANES = { own: 256, doubles: 32 } as const;
/** Arguments of a set before its files: kind, seed, largest value, the most that a sum may be off, the same for kernels of another form. */
const WORDS = 5;

/**
 * @param computation of numbers whose points threads can share; in time its tensors are row-major; an epilogue is one
 * that this program can finish
 * @param fixed inputs whose files already exist
 */
export function drawnSource(computation: Computation, fixed: ReadonlySet<string>): ReferenceProgram {
  return programOf(computation, OWN, LANES.own, fixed, WORDS);
}

/**
 * The program for a computation without epilogue on inputs that exist. All its files hold doubles, row-major; its arguments are the number of threads,
 * a file for every input, and the output file.
 */
export function valuesSource(computation: Computation): ReferenceProgram {
  const all = new Set(namesOf(inputsOf(computation)));
  return programOf(computation, computation.time ? PLANES : DOUBLES, LANES.doubles, all, 0);
}

/** A program of references. */
export interface ReferenceProgram {
  readonly source: SourceText;
  /** Its first arguments: the sizes of the computation, so that computations of one form share what is compiled. */
  readonly sizes: readonly number[];
}

/** Numbers from here on are sizes. Smaller ones are windows and strides, with which the compiler unrolls and vectorises loops. */
const LEAST_SIZE = 6;
/**
 * Programs of more points have their sizes as constants. Those of 115 M points take 0.01 to 0.02 s longer for a set without them, and 0.7 s to compile
 * (Zen 5, 2026-11-30).
 */
const MOST_SHARED_POINTS = 2 ** 30;
/** Whole numbers that are neither the size of an array nor a part of a fraction, a word or a string. */
const NUMBERS = /(?<![\w.[-])(\d+)(?![\w.\]"])/;

/**
 * The program of a computation.
 * @param headers besides those of every program
 * @param structs what it defines
 * @param main the statements of its main function, to which `files[1]` is the first argument after the sizes
 */
export function programFor(
  computation: Computation,
  headers: Code,
  structs: readonly Code[],
  main: Code,
): ReferenceProgram {
  const sizes: number[] = [];
  const apartFrom = (text: Code): Code =>
    pointCount(computation) > MOST_SHARED_POINTS
      ? text
      : replacedIn(text, NUMBERS, (digits) =>
          Number(digits) < LEAST_SIZE ? code`${Number(digits)}` : code`sizes[${sizes.push(Number(digits)) - 1}]`,
        );
  const own = apartFrom(code`${structs}
int main(int, char** files) {
  `);
  const rest = apartFrom(main);
  const read = sizes.length === 0 ? NOTHING : code`for (Int& size : sizes) size = atoll(*++files);\n  `;
  const declared = sizes.length === 0 ? NOTHING : code`static Int sizes[${sizes.length}];\n`;
  const text = code`${apart(harnessText("arithmetic.h"))}
${apart(harnessText("drawn.h"))}
${headers}${declared}${own}${read}${rest}
}
`;
  return { source: spell(text, "c++"), sizes };
}

function programOf(
  computation: Computation,
  form: Form,
  most: number,
  fixed: ReadonlySet<string>,
  words: number,
): ReferenceProgram {
  const { time } = computation;
  const { sum, epilogue } = partsOf(computation);
  const { computation: wide, low: borders } = time
    ? { computation: bordered(time), low: lowInTime(time) }
    : padded(sum);
  const lanes = isApart(time?.step ?? wide) ? most : 1;
  // Otherwise these are the plain loops themselves, or steps of a plane.
  const isChecked = lanes > 1 && !time;
  const { computation: laid, made } = isChecked ? sharedOnce(wide) : { computation: wide, made: [] };
  const target = targetOf(computation);
  const output = form.inFile(outputOf(computation));
  const turned = [...inputsOf(sum), target]
    .filter((t) => isTurned(t, form))
    .map((t) => [t.name, withoutBorder(t)] as const);
  const low = new Map([...turned, ...borders]);
  // With an epilogue, sums are not stored.
  const isHeld = (t: Tensor): boolean => low.has(t.name) || (epilogue !== undefined && t.name === target.name);
  const inputs = inputsOf(computation).map((tensor, i) => ({ tensor: form.inFile(tensor), i }));
  const read = new Set(namesOf(inputsOf(sum)));
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
          code`const double large = atof(files[2]), within = atof(files[3]), looser = atof(files[4]);`,
        ]),
    ...inputs.map(({ tensor, i }) => mappedInput(tensor, i, i + words, fixed.has(tensor.name))),
    code`auto* answer = mapped<${C_TYPES[output.dtype]}>(files[${inputs.length + words}], ${memoryElements(output)});`,
    ...inputs
      .filter(({ tensor }) => read.has(tensor.name))
      .flatMap(({ tensor, i }) =>
        present([!fixed.has(tensor.name) && drawn(tensor, i), ...placedInput("it", tensor, i, low.get(tensor.name))]),
      ),
    ...(time || isHeld(target) ? [] : [code`it.${dataName(target.name)}.data = answer;`]),
    ...made.flatMap((one, i) => madeOnce(one, i, form)),
    ...(time
      ? [...stepped(time, compute), ...copied("it", output, time.first, low.get(time.first) ?? [])]
      : present([(isHeld(target) || !isZero) && filled(target, identity), compute])),
    ...(isChecked ? checkedByPoints(sum, inputs) : []),
    ...(epilogue
      ? finished(
          computation,
          epilogue,
          inputs.filter(({ tensor }) => !read.has(tensor.name)),
          fixed,
        )
      : present([
          ...(time || !isHeld(target) ? [] : copied("it", output, output.name, low.get(output.name) ?? [])),
          words !== 0 && code`report(answer, ${memoryElements(output)}, within, looser);`,
        ])),
    ...inputs.map(({ tensor, i }) => code`munmap(drawn_${i}, ${memoryElements(tensor)} * sizeof *drawn_${i});`),
  ];
  const structs = present([
    referenceStruct(code`Reference`, laid, (t) => heldPlain(t, form), lanes),
    code`static Reference it;`,
    ...made.map((one, i) => onceStruct(one, i, form, lanes)),
    isChecked && plainStruct(sum, form),
    epilogue && finishStruct(epilogue, target, lanes),
    ...(time ? borderFunction(laid, time) : []),
  ]);
  const main = code`const int threads = atoi(files[1]);
  ${prepared}
  for (files += 2; *files; files += ${inputs.length + words + 1}) {
    ${set}
    munmap(answer, ${memoryElements(output)} * sizeof *answer);
  }`;
  return programFor(computation, NOTHING, structs, main);
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
  const draw = isShort(tensor.dtype) || tensor.dtype === "tf32" ? code`draw_rounded(${tensor.dtype}{}, ` : code`draw(`;
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

/** The struct that computes a tensor once, and its instance. */
const onceStruct = (one: Computation, i: number, form: Form, lanes: number): Code =>
  code`${referenceStruct(code`Once${i}`, one, (t) => heldPlain(t, form), lanes)}
static Once${i} once_${i};`;

/** Computes a tensor before what reads it, into memory that is kept from set to set. */
function madeOnce(one: Computation, i: number, form: Form): Code[] {
  const target = targetOf(one);
  const held = dataName(target.name);
  const extent = stepsOfParts(one);
  return [
    code`if (!it.${held}.data) it.${held}.data = zeros<${form.element(target)}>(${elementCount(target)});`,
    ...Object.keys(one.tensors).map((name) => code`once_${i}.${dataName(name)}.data = it.${dataName(name)}.data;`),
    code`in_parts(threads, ${extent}, [](Int first, Int last) { once_${i}.compute_part(first, last); });`,
  ];
}

// ---- the check by plain loops -------------------------------------------------------------------------------------------------

/** Terms that are summed again in each set: a hundredth of a second. */
const CHECKED_TERMS = 2 ** 22;
const CHECKED_OUTPUTS = [32, 4096] as const;

/** The struct that computes single sums from the files themselves, without borders, copies and tensors made before. */
function plainStruct(sum: Computation, form: Form): Code {
  const hold = (tensor: Tensor): Holding => {
    if (tensor.name === targetOf(sum).name)
      return { ...heldAsNumbers(tensor), type: code`Single<${form.element(tensor)}>` };
    const { dtype, storage } = form.inFile(tensor);
    const type = C_TYPES[dtype];
    return { type: isShort(dtype) ? code`Coded<${dtype}, ${type}>` : code`Plain<${type}>`, storage };
  };
  return code`${pointStruct(code`Point`, sum, hold)}
static Point point;`;
}

/** Compares sums at the ends of the loops and at random places with those of plain loops. */
function checkedByPoints(sum: Computation, inputs: readonly { readonly tensor: Tensor; readonly i: number }[]): Code[] {
  const target = targetOf(sum);
  const spatial = keptIn(sum.axes);
  const terms = pointCount(sum) / pointsIn(spatial);
  const count = Math.min(CHECKED_OUTPUTS[1], Math.max(CHECKED_OUTPUTS[0], Math.ceil(CHECKED_TERMS / terms)));
  const held = dataName(target.name);
  const identity = literal(identityOf(sum.equation.op, target.dtype), target.dtype);
  return [
    ...inputs
      .filter(({ tensor }) => Object.hasOwn(sum.tensors, tensor.name))
      .map(({ tensor, i }) => code`point.${dataName(tensor.name)}.data = drawn_${i};`),
    code`in_parts(threads, ${count}, [](Int first, Int last) {
      Point own = point;
      for (Int i = first; i < last; i++) {
        own.${held} = {${identity}};
        own.compute_at(${list(spatial.map(({ extent }, d) => code`sampled(i, ${d}, ${extent})`))});
        own.${held}.compare(it.${held}.data);
      }
    });`,
  ];
}

// ---- what is made of sums -----------------------------------------------------------------------------------------------------

/*
 * The part of a drawn reference that makes outputs of sums: draws what an epilogue reads beside them, computes what
 * it stores, and measures how far off an output may be for sums that may be off.
 *
 *     res[k,p] = max(out[k,p] + bias[k], 0)      out may be off by 1e-6      res is computed for out, out - 1e-6 and out + 1e-6
 */

/**
 * Whether the program can apply the epilogue of a computation: it stores each element at its own place, calls no library,
 * reads nothing that the sums read too, and, where sums are not exact, never turns while a sum rises.
 */
export function isFinishedByProgram(computation: Computation, isExact: boolean): boolean {
  const { sum, epilogue, beside } = partsOf(computation);
  if (!epilogue) return true;
  const { value } = epilogue.equation;
  if (beside.length > 0 || !isElementwise(epilogue.equation) || !sharedAxis(epilogue) || callsLibrary(value))
    return false;
  const read = new Set(namesOf(inputsOf(sum)));
  if (inputsOf(epilogue).some(({ name }) => read.has(name))) return false;
  const types = mapValues(epilogue.tensors, ({ dtype }) => dtype);
  return isExact || neverTurns(value, targetOf(sum).name, types);
}

/** The struct that applies an epilogue to sums of a type, and its instance. */
function finishStruct(epilogue: Computation, sums: Tensor, lanes: number): Code {
  const hold = (t: Tensor): Holding => ({
    ...heldPlain(t),
    ...(t.name === sums.name && { type: code`Moved<${heldType(sums)}>` }),
  });
  return code`${referenceStruct(code`Finish`, epilogue, hold, lanes)}
static Finish finish;`;
}

/**
 * The statements that make a set's outputs of its sums.
 * @param inputs those that the epilogue reads beside the sums, with their numbers
 * @param fixed inputs whose files already exist
 */
export function finished(
  computation: Computation,
  epilogue: Computation,
  inputs: readonly { readonly tensor: Tensor; readonly i: number }[],
  fixed: ReadonlySet<string>,
): Code[] {
  const sums = targetOf(computation);
  const output = outputOf(computation);
  const count = elementCount(output);
  const type = heldType(output);
  const held = dataName(sums.name);
  const stored = dataName(output.name);
  const extent = sharedAxis(epilogue)?.extent ?? 1;
  const compute = code`in_parts(threads, ${extent}, [](Int first, Int last) { finish.compute_part(first, last); });`;
  const isCopied = isTurned(output);
  return [
    code`const double spread = spread_of(it.${held}.data, ${elementCount(sums)});`,
    ...inputs.flatMap(({ tensor, i }) =>
      present([
        !fixed.has(tensor.name) && drawnBeside(tensor, i, epilogue),
        ...kept(tensor),
        ...placedInput("finish", tensor, i, isTurned(tensor) ? withoutBorder(tensor) : undefined),
      ]),
    ),
    isCopied ? code`static auto* const results = zeros<${type}>(${count});` : code`auto* const results = answer;`,
    code`finish.${held} = {it.${held}.data, 0};`,
    code`finish.${stored}.data = results;`,
    compute,
    ...(isCopied ? copied("finish", output, output.name, withoutBorder(output)) : []),
    code`double reach[] = {0, 0};
    for (int form = 0; form < 2; form++) {
      const double off = form == 0 ? within : looser;
      if (!(off > 0)) continue;
      static auto* const ends = zeros<${type}>(${count});
      finish.${stored}.data = ends;
      for (int side = -1; side <= 1; side += 2) {
        finish.${held}.by = side * off;
        ${compute}
        const double apart = furthest(results, ends, ${count});
        reach[form] = apart > reach[form] || is_nan(apart) ? apart : reach[form];
      }
    }
    report(results, ${count}, reach[0], reach[1]);`,
  ];
}

/** Memory for the copy of an input, kept from set to set. */
function kept(tensor: Tensor): Code[] {
  if (!isTurned(tensor)) return [];
  const data = code`finish.${dataName(tensor.name)}.data`;
  return [code`if (!${data}) ${data} = zeros<${heldType(tensor)}>(${elementCount(tensor)});`];
}

/** Draws an input of an epilogue into its file, in a size for which the outputs cover the range of their type. */
function drawnBeside(tensor: Tensor, i: number, epilogue: Computation): Code {
  const role = tensorsBeside("/", epilogue).has(tensor.name)
    ? "DIVISOR"
    : tensorsBeside("*", epilogue).has(tensor.name)
      ? "FACTOR"
      : "TERM";
  const { dtype } = targetOf(epilogue);
  const [least, most] = rangeOf(dtype);
  const aim = isInteger(dtype) ? code`${(most - least) / 2}` : code`spread`;
  const ratio = isInteger(dtype) ? code`${aim} / spread` : code`1`;
  return code`in_parts(threads, ${memoryElements(tensor)}, [=](Int first, Int last) { draw_beside(${tensor.dtype}{}, drawn_${i}, first, last, set, mixed(seed + ${i}), ${role}, ${aim}, ${ratio}); });`;
}

// ---- elements in files and in arrays ------------------------------------------------------------------------------------------

/*
 * Code that moves elements between files, in which they lie as tensors are stored, and the row-major arrays that a
 * program computes on.
 *
 *     it.data_in.data[it.place_in(e0 + 1, e1 + 1)] = drawn_0[56*e0 + e1];      an input with a border of one element
 */

/** A variable of the program whose tensors are meant: the sums, or what finishes them. */
type Struct = "it" | "finish";

/** How files hold tensors, and on which numbers a program computes. */
export interface Form {
  readonly inFile: (tensor: Tensor) => Tensor;
  readonly element: (tensor: Tensor) => (typeof C_TYPES)[DType] | NumberType;
}

/** Elements in their own type and order. */
export const OWN: Form = { inFile: (tensor) => tensor, element: heldType };
/** Doubles, row-major: the numbers of the interpreter, whatever the type. */
export const DOUBLES: Form = { inFile: asDoubles, element: elementType };
/** The same for planes in time: those of f32 are held as f32, in half the memory. */
export const PLANES: Form = { ...DOUBLES, element: (t) => (t.dtype === "f32" ? "float" : elementType(t)) };

function asDoubles(tensor: Tensor): Tensor {
  return { ...tensor, dtype: "f64", storage: rowMajor(tensor.dims) };
}

/** Row-major elements; their values are those of the interpreter. */
function heldPlain(tensor: Tensor, { element }: Form = OWN): Holding {
  return { ...heldAsNumbers(tensor), type: code`Plain<${element(tensor)}>` };
}

/** Floats of 8 and 16 bits are converted when they are copied. */
function heldType(tensor: Tensor): (typeof C_TYPES)[DType] {
  return isShort(tensor.dtype) ? "float" : C_TYPES[tensor.dtype];
}

/**
 * Whether a tensor is computed on a row-major copy, along whose rows the compiler vectorises: its file has another order, such as NHWC, or another
 * type, such as floats of 8 and 16 bits.
 */
export function isTurned(tensor: Tensor, { inFile, element }: Form = OWN): boolean {
  const stored = inFile(tensor);
  return element(tensor) !== C_TYPES[stored.dtype] || !liesRowMajor(stored);
}

/** The offset of a copy without a border: 0 along each dimension. */
const withoutBorder = ({ dims }: Tensor): readonly number[] => dims.map(() => 0);

/** The file of an input, mapped: a new one, or one that exists. */
function mappedInput(tensor: Tensor, i: number, file: number, isFixed: boolean): Code {
  const type = C_TYPES[tensor.dtype];
  return code`auto* drawn_${i} = ${isFixed ? code`given` : code`mapped`}<${type}>(files[${file}], ${memoryElements(tensor)});`;
}

/** An input made known to what reads it: a copy if it has a border or another order, else the file itself. */
export function placedInput(to: Struct, tensor: Tensor, i: number, low: readonly number[] | undefined): Code[] {
  if (!low) return [code`${to}.${dataName(tensor.name)}.data = drawn_${i};`];
  const value = (stored: Code): Code =>
    isShort(tensor.dtype) ? code`decoded(${tensor.dtype}{}, drawn_${i}[${stored}])` : code`drawn_${i}[${stored}]`;
  return overElements(
    to,
    tensor,
    low,
    (inside, stored) => code`${to}.${dataName(tensor.name)}.data[${inside}] = ${value(stored)};`,
  );
}

/**
 * Visits all elements of a tensor with all threads.
 * @param to what holds the copy
 * @param low the offset of the border, 0 or negative
 * @param each is given the place in the copy, and the place as the tensor is stored
 */
function overElements(
  to: Struct,
  tensor: Tensor,
  low: readonly number[],
  each: (inside: Code, stored: Code) => Code,
): Code[] {
  const { dims } = tensor;
  const names = dims.map((_, d) => new Name("axis", `e${d}`, `element ${d} of ${tensor.name}`));
  const inside = code`${to}.${placeName(tensor.name)}(${list(names.map((name, d) => code`${name} + ${-(low[d] ?? 0)}`))})`;
  const stored = printIndex(tensor.storage, (axis) => names[dims.findIndex(({ name }) => name === axis)] ?? NOTHING);
  const shared = Math.max(
    0,
    dims.findIndex(({ extent }) => extent > 1),
  );
  return [
    code`in_parts(threads, ${dims[shared]?.extent ?? 1}, [=](Int first, Int last) {`,
    ...dims.map(({ extent }, d) => {
      const name = names[d] ?? NOTHING;
      const [from, to] = d === shared ? (["first", "last"] as const) : ([0, extent] as const);
      return code`  for (Int ${name} = ${from}; ${name} < ${to}; ${name}++)`;
    }),
    code`    ${each(inside, stored)}`,
    code`});`,
  ];
}

/** The results in the order in which they are stored: a plane after its last step without its border, or a copy. */
export function copied(to: Struct, output: Tensor, name: string, low: readonly number[]): Code[] {
  return overElements(
    to,
    { ...output, name },
    low,
    (inside, stored) =>
      code`answer[${stored}] = ${isShort(output.dtype) ? code`encoded(${output.dtype}{}, ${to}.${dataName(name)}[${inside}])` : code`${to}.${dataName(name)}[${inside}]`};`,
  );
}
