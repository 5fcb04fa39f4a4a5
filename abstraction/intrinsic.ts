/**
 * @file A hardware instruction, written in the notation operators are written in.
 *
 *     defineIntrinsic({
 *       name: "toy.2x2x2", family: "toy", isa: "virtual", language: "none",
 *       compute: "c[m,n] += a[m,k] * b[k,n]",
 *       extents: { m: 2, n: 2, k: 2 },
 *       operands: { a: { dtype: "s32", storage: "tile[2*m + k]" }, ... },
 *       ...
 *     })
 *
 * A declaration is data a reader can check against the manual it names. `storage` is the memory abstraction: which register
 * element holds which logical element; an axis in it that the operand lacks is a broadcast.
 */

import {
  boundsOf,
  type Dimension,
  type Extents,
  extentOf,
  extentsBy,
  offendingPart,
  pointsOver,
  rowMajor,
} from "./affine.ts";
import { defined, mapValues, memoisedPair, namesOf, withName } from "./collections.ts";
import { type Computation, defineComputation, extentsOf, tensorOf } from "./computation.ts";
import type { DType } from "./dtype.ts";
import { internal, UsageError } from "./error.ts";
import { valuesOver } from "./evaluate.ts";
import { axesIn, type Expr, printExpr } from "./expression.ts";
import { parseExpr, spanOf } from "./parse.ts";
import { BRACES, type Code, filled, type Name, trustedCode } from "./source-text.ts";

/** The programming language that reaches the instruction; `none` for accelerators that exist only on paper. */
export type Language = "c++" | "cuda" | "cm" | "opencl" | "sycl" | "none";

/** Who executes one issue of the instruction together. */
export type ExecutionScope = "thread" | "subgroup" | "warp" | "warpgroup";

/** An operand of an instruction as it is declared. */
export interface OperandSpec {
  /** Type of its elements. */
  readonly dtype: DType;
  /**
   * Register file and element, `zmm[4*n + k]`. Without brackets only the load and the store know the layout: the vendor does not publish it, or an
   * element is the sum of several lanes.
   */
  readonly storage: string;
  /** For an operand in shared memory, a second storage that the instruction can read, with neighbours along the other axis. */
  readonly turned?: string;
  /** How a memory tile lies when the register layout is not published: row-major by default. */
  readonly layout?: "row" | "column";
  /** Names of the dimensions, where no axis indexes one alone. */
  readonly dims?: readonly string[];
  /** Sizes of the dimensions, when the equation intentionally reaches beyond them. */
  readonly shape?: readonly number[];
  /** Code that fills register `{reg}` from memory at `{ptr}`, rows `{stride}` bytes apart. */
  readonly load?: string;
  /** Code that writes register `{reg}` to memory at `{ptr}`. */
  readonly store?: string;
  /** Code that fills register `{reg}` with the identity of the combine; needed only when assigning zeros does not. */
  readonly clear?: string;
}

/** Cycles of an instruction, and where they come from. */
export interface Cost {
  /** Cycles between two independent issues on one core or multiprocessor. */
  readonly issueCycles: number;
  /** Cycles until a dependent instruction may start. */
  readonly latencyCycles: number;
  /** Cycles to store a result; those of its bytes when left out. */
  readonly storeCycles?: number;
  /** Cycles of what all issues with the same tile of an operand share, by operand; none when left out. */
  readonly shared?: Readonly<Record<string, number>>;
  readonly source: string;
}

/** Code around an asynchronous instruction. Every thread that issues it executes each part. */
export interface AsynchronousSpec {
  /**
   * After plain writes of operands to shared memory, by the writing threads before a barrier: makes the writes visible to the asynchronous
   * instruction.
   */
  readonly publish: string;
  /** Before the first issue of a group: orders this thread's register accesses before the issues. */
  readonly fence: string;
  /** Makes all issues since the last commit one group. */
  readonly commit: string;
  /** Waits until all but the newest `{pending}` groups have ended. */
  readonly wait: string;
  /** After a wait for all groups: keeps the compiler from reading the sums in `{reg}` earlier. */
  readonly arrived: string;
}

export type Asynchronous = Readonly<Record<keyof AsynchronousSpec, RowText>>;

/** An instruction as it is declared: data that a reader can check against the manual it names. */
export interface IntrinsicSpec<E extends string = string> {
  /** How users and records name it: `avx512.vpdpbusd`. */
  readonly name: string;
  /** Groups instructions that users ask for together: `amx`, `vnni`, `wmma`. */
  readonly family: string;
  /** Feature that a device must report, as targets/ names it. */
  readonly isa: string;
  /** Further features it needs. */
  readonly features?: readonly string[];
  /** Language of its code; `none` for an instruction that exists only on paper. */
  readonly language: Language;
  /** The threads that issue it together; `thread` by default. */
  readonly scope?: ExecutionScope;
  /** A description in one sentence. */
  readonly summary: string;
  /** What it computes, over its own axes: `c[m,n] += s32(a[m,k]) * s32(b[k,n])`. */
  readonly compute: E;
  /** Extent of each axis. */
  readonly extents: Extents;
  /** The operands by their names in the equation. */
  readonly operands: Readonly<Record<OperandName<E>, OperandSpec>>;
  /** Code of one issue, with operands in braces: `{c} = dot_bytes({c}, {a}, {b});`. */
  readonly emit: string;
  /** Code of an issue that replaces its sums in place of adding to them. Rows that have it can sum in groups, which a kernel scales. */
  readonly begin?: string;
  /** Present when an issue is asynchronous: its sums are valid once it has been awaited. */
  readonly asynchronous?: AsynchronousSpec;
  /** Definitions that must precede the code once. */
  readonly prelude?: string;
  /** Statement that each thread runs before its first load: `amx_begin();`. */
  readonly setup?: string;
  /** How the instruction treats subnormal inputs and results; kept when left out. */
  readonly subnormals?: "flushed";
  /** Fraction bits with which it adds, where these are fewer than those of the sums' type. */
  readonly sumBits?: number;
  /** Cost that the model assumes where nothing was measured; one issue per cycle when left out. */
  readonly cost?: Cost;
  /** Name that disassemblers print. A compiled kernel must contain it; not checked when left out. */
  readonly mnemonic?: string;
  /** The manual and the entry in it. */
  readonly source: string;
}

/** Text of a row of the table, which is printed unescaped. Only {@link defineIntrinsic} and {@link tableRow} make it. */
export type RowText = string & { readonly [ofRow]: true };
declare const ofRow: unique symbol;

/** An operand of an instruction, with its storage formula parsed. */
export interface Operand {
  readonly name: string;
  readonly dtype: DType;
  /** Register file (`zmm`, `tile`, `wmma::matrix_a`). */
  readonly file: string;
  /** Register element of each logical element; undefined when the vendor does not publish the layout. */
  readonly storage: Expr | undefined;
  /** A second storage that the instruction can read. */
  readonly turned: Expr | undefined;
  /** Layout of a memory tile; follows from `storage` where there is one. */
  readonly layout: "row" | "column";
  readonly dims: readonly Dimension[];
  /** Axes of the instruction along which one logical element is held several times. */
  readonly broadcast: readonly string[];
  readonly load: RowText | undefined;
  readonly store: RowText | undefined;
  readonly clear: RowText | undefined;
}

/** A checked declaration with its equation and storage formulas parsed. Made by `defineIntrinsic` and `tableRow`. */
export interface Intrinsic {
  /** How users and records name it. */
  readonly name: string;
  /** What users ask for together. */
  readonly family: string;
  /** Feature a device must report. */
  readonly isa: string;
  /** All features it needs, `isa` first. */
  readonly features: readonly string[];
  /** What its code is written in. */
  readonly language: Language;
  /** Who issues it together. */
  readonly scope: ExecutionScope;
  /** One sentence. */
  readonly summary: string;
  /** The equation over the instruction's own axes, with its operands as tensors. */
  readonly computation: Computation;
  /** Target first, then inputs as the equation reads them. */
  readonly operands: readonly Operand[];
  /** Code of one issue, with operands in braces. */
  readonly emit: RowText;
  /** Code of an issue that replaces its sums; undefined where there is none. */
  readonly begin: RowText | undefined;
  /** Code around an asynchronous issue; undefined for a synchronous instruction. */
  readonly asynchronous: Asynchronous | undefined;
  /** Definitions that its code needs. */
  readonly prelude: RowText | undefined;
  /** Statement each thread runs before its first load. */
  readonly setup: RowText | undefined;
  /** What it makes of subnormal inputs and results. */
  readonly subnormals: "kept" | "flushed";
  /** Fraction bits with which it adds; undefined for those of the sums' type. */
  readonly sumBits: number | undefined;
  /** As declared. */
  readonly cost: Cost | undefined;
  /** Name that the disassembly of a compiled kernel must contain. */
  readonly mnemonic: string | undefined;
  /** Manual and entry. */
  readonly source: string;
  /** The declaration as written, which a record's hash covers. */
  readonly declaration: IntrinsicSpec;
}

/** The operand names in an equation's text: `"c[i] += a[i]"` gives `"c" | "a"`, so that a misspelt operand does not compile. */
type OperandName<E extends string> = string extends E ? string : BeforeBracket<E>;
type BeforeBracket<E extends string> = E extends `${infer Head}[${infer Tail}`
  ? LastWord<Head> | BeforeBracket<Tail>
  : never;
type LastWord<S extends string, Word extends string = ""> = S extends `${infer C}${infer Rest}`
  ? C extends Separator
    ? LastWord<Rest>
    : LastWord<Rest, `${Word}${C}`>
  : Word;
type Separator = " " | "(" | ")" | "]" | "," | "=" | "+" | "-" | "*" | "/" | "%" | "<" | ">";

/**
 * Words that templates of loads and stores may use beside the operands. OpenCL C: `space` is `global`, `local` or `__private`; `by` is `block` where
 * a block read can take the rows, else the space. SYCL: `space` is `global` or `local`, and `lane` is the number of the work-item in its sub-group.
 * CM: `by` names the variant of the tile functions that reaches the memory, and `rows` says how many rows of how many dwords.
 */
const MEMORY_WORDS: readonly string[] = ["reg", "ptr", "stride", "space", "by", "lane", "rows"];

/**
 * Completes a declaration and refuses an inconsistent one: an axis without extent, types that disagree, a storage formula that
 * puts two elements in one place, a template that names no operand.
 * @throws UsageError naming the row and the rule
 */
export function defineIntrinsic<const E extends string>(spec: IntrinsicSpec<E>): Intrinsic {
  return { ...factsOf(spec), ...formulasOf(spec) };
}

/**
 * A row of the table of instructions: as {@link defineIntrinsic}, but its equation and formulas are read and checked when one of them is first asked
 * for. A command loads the whole table and uses a few of its rows. The tests read every row.
 */
export function tableRow<const E extends string>(spec: IntrinsicSpec<E>): Intrinsic {
  let formulas: Formulas | undefined;
  const read = (): Formulas => {
    formulas ??= formulasOf(spec);
    return formulas;
  };
  return {
    ...factsOf(spec),
    get computation() {
      return read().computation;
    },
    get operands() {
      return read().operands;
    },
  };
}

/** What a declaration says in its notation. */
type Formulas = Pick<Intrinsic, "computation" | "operands">;

/** What a declaration says in plain words and code. */
const factsOf = (spec: IntrinsicSpec): Omit<Intrinsic, keyof Formulas> => ({
  name: spec.name,
  family: spec.family,
  isa: spec.isa,
  features: [spec.isa, ...(spec.features ?? [])],
  language: spec.language,
  scope: spec.scope ?? "thread",
  summary: spec.summary,
  emit: rowText(spec.emit),
  begin: rowText(spec.begin),
  asynchronous: spec.asynchronous && asynchronousText(spec.asynchronous),
  prelude: rowText(spec.prelude),
  setup: rowText(spec.setup),
  subnormals: spec.subnormals ?? "kept",
  sumBits: spec.sumBits,
  cost: spec.cost,
  mnemonic: spec.mnemonic,
  source: spec.source,
  declaration: spec,
});

/** Reads and checks the equation and the operands. @throws UsageError naming the row and the rule */
function formulasOf(spec: IntrinsicSpec): Formulas {
  const given: Readonly<Record<string, OperandSpec>> = spec.operands;
  const computation = defineComputation({
    name: spec.name,
    equation: spec.compute,
    extents: spec.extents,
    tensors: mapValues(given, ({ dtype, dims, shape }) => defined({ dtype, dims, shape })),
  });
  const operands = Object.values(computation.tensors).map(({ name, dtype, dims }): Operand => {
    const operand = given[name];
    if (!operand) throw new UsageError(`${spec.name}: operand ${name} is not declared`);
    const { file, storage } = parseStorage(operand.storage, `${spec.name}: storage of ${name}`);
    const own = namesOf(dims);
    const axes = namesOf(computation.axes);
    const mentioned = storage === undefined ? [] : axesIn(storage);
    for (const axis of mentioned)
      if (!own.includes(axis) && !axes.includes(axis))
        throw new UsageError(`${spec.name}: storage of ${name} names "${axis}", which is no axis`);
    const broadcast = mentioned.filter((axis) => !own.includes(axis));
    return {
      name,
      dtype,
      file,
      storage,
      turned:
        operand.turned === undefined ? undefined : parseTurned(operand.turned, file, `${spec.name}: ${name} turned`),
      layout: operand.layout ?? "row",
      dims,
      broadcast,
      load: rowText(operand.load),
      store: rowText(operand.store),
      clear: rowText(operand.clear),
    };
  });
  checkTemplates(spec.name, operands, spec);
  for (const operand of operands) {
    checkStorage(spec.name, computation, operand);
    if (operand.turned) checkStorage(spec.name, computation, { ...operand, storage: operand.turned });
  }
  return { computation, operands };
}

/** A declaration is code of this program, or of a program that registers its own instruction. */
function rowText(text: string): RowText;
function rowText(text: string | undefined): RowText | undefined;
function rowText(text: string | undefined): RowText | undefined {
  return text as RowText | undefined;
}

const asynchronousText = (given: AsynchronousSpec): Asynchronous => ({
  publish: rowText(given.publish),
  fence: rowText(given.fence),
  commit: rowText(given.commit),
  wait: rowText(given.wait),
  arrived: rowText(given.arrived),
});

/** Register file of operands that an instruction reads directly from a block's shared memory. */
const SHARED = "shared";

/** Whether an instruction reads an operand from shared memory rather than from registers. */
export const readsShared = ({ file }: Operand): boolean => file === SHARED;

/** Lanes of a warp. */
export const WARP = 32;

/** Threads that issue an instruction together. */
export function lanesOf({ scope }: Pick<Intrinsic, "scope">): number {
  return scope === "warpgroup" ? 4 * WARP : scope === "warp" ? WARP : 1;
}

export function operandOf(intrinsic: Intrinsic, name: string): Operand {
  return withName(intrinsic.operands, name) ?? internal(`${intrinsic.name} has no operand "${name}"`);
}

/** Elements that the register holds, including copies of a broadcast. */
export const registerElements = memoisedPair((intrinsic: Intrinsic, operand: Operand): number => {
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  return boundsOf(operand.storage ?? rowMajor(operand.dims), extents)[1] + 1;
});

/** The code of a row's template, with values for the words in braces. */
export function fillTemplate(template: RowText, values: Readonly<Record<string, Code | Name>> = {}): Code {
  return filled(trustedCode(template), values);
}

/** `zmm[4*n + k]`, as declared. */
export function printStorage(operand: Operand): string {
  return operand.storage === undefined ? operand.file : `${operand.file}[${printExpr(operand.storage, "formula")}]`;
}

export function sizesOf(operand: Operand): Extents {
  return extentsBy(operand.dims);
}

function parseStorage(text: string, subject: string): { file: string; storage: Expr | undefined } {
  const match = /^([^[\]]+)(?:\[(.*)\])?$/.exec(text);
  if (!match) throw new UsageError(`${subject} must read file[formula], as in "zmm[4*n + k]", got "${text}"`);
  const [, file = "", formula] = match;
  if (formula === undefined) return { file, storage: undefined };
  const storage = parseExpr(formula, subject);
  const offending = offendingPart(storage, "storage");
  if (offending) throw new UsageError(`${subject}: ${offending.because}`, spanOf(offending.part));
  return { file, storage };
}

function parseTurned(text: string, file: string, subject: string): Expr {
  const turned = parseStorage(text, subject);
  if (turned.file !== file || turned.storage === undefined)
    throw new UsageError(`${subject} must read ${file}[formula], got "${text}"`);
  return turned.storage;
}

function checkTemplates(name: string, operands: readonly Operand[], { emit, begin }: IntrinsicSpec): void {
  const names = namesOf(operands);
  const check = (template: string | undefined, known: readonly string[], what: string): void => {
    for (const [, word] of template?.matchAll(BRACES) ?? []) {
      if (word !== undefined && !known.includes(word))
        throw new UsageError(`${name}: ${what} names {${word}}, which is none of ${known.join(", ")}`);
    }
  };
  check(emit, names, "emit");
  check(begin, names, "begin");
  for (const { name: operand, load, store, clear } of operands) {
    check(clear, ["reg"], `clear of ${operand}`);
    check(load, MEMORY_WORDS, `load of ${operand}`);
    check(store, MEMORY_WORDS, `store of ${operand}`);
  }
}

/** Formulas already found valid, with the extents of their axes; instructions of different widths and types share them. */
const rightStorages = new Set<string>();

/** Bound on the elements, copies and places of an operand: more than any instruction has. */
const MOST_PLACES = 2 ** 24;

/** Checks that no two logical elements share a place and no copy of a broadcast overlaps another element. */
function checkStorage(name: string, computation: Computation, operand: Operand): void {
  if (operand.storage === undefined) return;
  const logical = rowMajor(operand.dims);
  const axes = [...namesOf(operand.dims), ...operand.broadcast];
  const extents: Extents = { ...extentsOf(computation), ...sizesOf(operand) };
  const subject = JSON.stringify([operand.storage, axes, axes.map((axis) => extents[axis])]);
  if (rightStorages.has(subject)) return;
  const count = pointsOver(axes, extents);
  if (count > MOST_PLACES)
    throw new UsageError(
      `${name}: ${operand.name} has ${count} elements with its copies, more than the ${MOST_PLACES} whose storage is checked`,
    );
  const box = axes.map((name) => ({ name, extent: extentOf(name, extents) }));
  const places = valuesOver(operand.storage, box);
  const elements = valuesOver(logical, box);
  const puts = `${name}: storage ${printStorage(operand)} of ${operand.name} puts`;
  const most = places.reduce((found, place) => Math.max(found, place), 0);
  if (most >= MOST_PLACES)
    throw new UsageError(`${puts} an element in place ${most}; the last place that is checked is ${MOST_PLACES - 1}`);
  // One more than the element that a place holds; 0 for a free place.
  const holder = new Int32Array(most + 1);
  for (let at = 0; at < places.length; at++) {
    const place = places[at] ?? 0;
    const element = elements[at] ?? 0;
    if (place < 0) throw new UsageError(`${puts} element ${element} in place ${place}`);
    const held = holder[place] ?? 0;
    if (held !== 0 && held !== element + 1)
      throw new UsageError(`${puts} elements ${held - 1} and ${element} in place ${place}`);
    holder[place] = element + 1;
  }
  rightStorages.add(subject);
}

/** The tensor of the intrinsic's computation that an operand stands for. */
export function operandTensor(intrinsic: Intrinsic, operand: Operand): Computation["tensors"][string] {
  return tensorOf(intrinsic.computation, operand.name);
}
