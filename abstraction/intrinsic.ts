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

import { boundsOf, type Extents, evaluateIndex, offendingPart, pointsOf } from "./affine.ts";
import { type Computation, defineComputation, extentsOf, tensorOf } from "./computation.ts";
import type { DType } from "./dtype.ts";
import { UsageError } from "./error.ts";
import { axesIn, type Expr, printExpr } from "./expression.ts";
import { type Dimension, rowMajor } from "./layout.ts";
import { memoisedPair } from "./memoised.ts";
import { parseExpr, spanOf } from "./parse.ts";
import { BRACES, type Code, filled, type Name, trustedCode } from "./source-text.ts";

/** The language the instruction is reached from; `none` for accelerators that exist on paper. */
export type Language = "c++" | "cuda" | "cm" | "opencl" | "sycl" | "none";

/** Who executes one issue of the instruction together. */
export type ExecutionScope = "thread" | "subgroup" | "warp" | "warpgroup";

/** An operand of an instruction as it is declared. */
export interface OperandSpec {
  /** Type of its elements. */
  readonly dtype: DType;
  /** Register file and element, `zmm[4*n + k]`. Without brackets the layout is the vendor's secret. */
  readonly storage: string;
  /** Another storage that the instruction reads as well: of an operand in shared memory, with neighbours along its other axis. */
  readonly turned?: string;
  /** How a memory tile lies where the registers' layout is secret: row after row, unless said otherwise. */
  readonly layout?: "row" | "column";
  /** Names of the dimensions, where no axis indexes one alone. */
  readonly dims?: readonly string[];
  /** Sizes of the dimensions, when the equation reaches beyond them on purpose. */
  readonly shape?: readonly number[];
  /** Code that fills register `{reg}` from memory at `{ptr}`, rows `{stride}` bytes apart. */
  readonly load?: string;
  /** Code that writes register `{reg}` to memory at `{ptr}`. */
  readonly store?: string;
  /** Code that fills register `{reg}` with what the combine starts from; only where no assignment of zeros does that. */
  readonly clear?: string;
}

/** Cycles of an instruction, and where they come from. */
export interface Cost {
  /** Cycles between two independent issues on one core or multiprocessor. */
  readonly issueCycles: number;
  /** Cycles until a dependent instruction may start. */
  readonly latencyCycles: number;
  readonly source: string;
}

/** Code around an instruction that is sent off and awaited, each said by all threads that issue it. */
export interface AsynchronousSpec {
  /** Behind plain writes of operands in shared memory, by whoever wrote them, ahead of a barrier: the instruction reads by itself. */
  readonly publish: string;
  /** Before the first issue of a group: registers are as this thread left them. */
  readonly fence: string;
  /** What was issued since the last commit is one group. */
  readonly commit: string;
  /** Until all but the newest `{pending}` groups have ended. */
  readonly wait: string;
  /** Behind a wait for all of them: the compiler reads the sums in `{reg}` no earlier. */
  readonly arrived: string;
}

export type Asynchronous = Readonly<Record<keyof AsynchronousSpec, RowText>>;

/** An instruction as it is declared: data that a reader can check against the manual it names. */
export interface IntrinsicSpec<E extends string = string> {
  /** How users and records name it: `avx512.vpdpbusd`. */
  readonly name: string;
  /** What users ask for together: `amx`, `vnni`, `wmma`. */
  readonly family: string;
  /** Feature a device must report: a name of targets/. */
  readonly isa: string;
  /** Features it needs besides. */
  readonly features?: readonly string[];
  /** What its code is written in; `none` for one that exists on paper. */
  readonly language: Language;
  /** Who issues it together; `thread` by default. */
  readonly scope?: ExecutionScope;
  /** One sentence. */
  readonly summary: string;
  /** What it computes, over its own axes: `c[m,n] += s32(a[m,k]) * s32(b[k,n])`. */
  readonly compute: E;
  /** Extent of each axis. */
  readonly extents: Extents;
  /** By the name that the equation gives it. */
  readonly operands: Readonly<Record<OperandName<E>, OperandSpec>>;
  /** Code of one issue, operands in braces: `{c} = dot_bytes({c}, {a}, {b});`. */
  readonly emit: string;
  /** An issue is sent off and its sums are there when it has been awaited. */
  readonly asynchronous?: AsynchronousSpec;
  /** Definitions the code needs once before it. */
  readonly prelude?: string;
  /** Statement each thread runs before its first load: `amx_begin();`. */
  readonly setup?: string;
  /** What the instruction makes of subnormal inputs and results; kept unless said otherwise. */
  readonly subnormals?: "flushed";
  /** What the model assumes where nothing was measured: one issue a cycle when left out. */
  readonly cost?: Cost;
  /** As disassemblers print it: a compiled kernel must hold it. Nothing is looked for when left out. */
  readonly mnemonic?: string;
  /** Manual and entry. */
  readonly source: string;
}

/** Text of a row of the table, which {@link defineIntrinsic} alone makes: it is printed as it stands. */
export type RowText = string & { readonly [ofRow]: true };
declare const ofRow: unique symbol;

/** An operand of an instruction, its storage read. */
export interface Operand {
  readonly name: string;
  readonly dtype: DType;
  /** Register file (`zmm`, `tile`, `wmma::matrix_a`). */
  readonly file: string;
  /** Register element of each logical element; undefined when the vendor keeps it secret. */
  readonly storage: Expr | undefined;
  /** Another that the instruction reads as well. */
  readonly turned: Expr | undefined;
  /** Of a memory tile; told by `storage` where there is one. */
  readonly layout: "row" | "column";
  readonly dims: readonly Dimension[];
  /** Axes of the instruction along which one logical element is held several times. */
  readonly broadcast: readonly string[];
  readonly load: RowText | undefined;
  readonly store: RowText | undefined;
  readonly clear: RowText | undefined;
}

/** A declaration that holds together, with its equation and its storage read. `defineIntrinsic` makes it. */
export interface Intrinsic {
  /** How users and records name it. */
  readonly name: string;
  /** What users ask for together. */
  readonly family: string;
  /** Feature a device must report. */
  readonly isa: string;
  /** All it needs, `isa` first. */
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
  /** Code of one issue, operands in braces. */
  readonly emit: RowText;
  /** Code around an issue that is sent off and awaited; undefined for one that is done when it returns. */
  readonly asynchronous: Asynchronous | undefined;
  /** Definitions that its code needs. */
  readonly prelude: RowText | undefined;
  /** Statement each thread runs before its first load. */
  readonly setup: RowText | undefined;
  /** What it makes of subnormal inputs and results. */
  readonly subnormals: "kept" | "flushed";
  /** As declared. */
  readonly cost: Cost | undefined;
  /** What a compiled kernel must hold. */
  readonly mnemonic: string | undefined;
  /** Manual and entry. */
  readonly source: string;
  /** The declaration as written: what a record's hash covers. */
  readonly declaration: IntrinsicSpec;
}

/** The operand names in an equation's text: `"c[i] += a[i]"` gives `"c" | "a"`, so that a misspelt operand does not compile. */
export type OperandName<E extends string> = string extends E ? string : BeforeBracket<E>;
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
 * OpenCL C: `space` is `global`, `local` or `__private`; `by` is `block` where a block read can take the rows, else the space. SYCL: `space`
 * is `global` or `local`, `lane` the number of the work-item in its sub-group. CM: `by` says how functions of tiles are called that reach the
 * memory, `rows` how many rows of how many dwords.
 */
const MEMORY_WORDS: readonly string[] = ["reg", "ptr", "stride", "space", "by", "lane", "rows"];

/**
 * Completes a declaration and refuses an inconsistent one: an axis without extent, types that disagree, a storage formula that
 * puts two elements in one place, a template that names no operand.
 * @throws UsageError naming the row and the rule
 */
export function defineIntrinsic<const E extends string>(spec: IntrinsicSpec<E>): Intrinsic {
  const given: Readonly<Record<string, OperandSpec>> = spec.operands;
  const computation = defineComputation({
    name: spec.name,
    equation: spec.compute,
    extents: spec.extents,
    tensors: Object.fromEntries(
      Object.entries(given).map(([name, { dtype, dims, shape }]) => [
        name,
        { dtype, ...(dims && { dims }), ...(shape && { shape }) },
      ]),
    ),
  });
  const operands = Object.values(computation.tensors).map(({ name, dtype, dims }): Operand => {
    const operand = given[name];
    if (!operand) throw new UsageError(`${spec.name}: operand ${name} is not declared`);
    const { file, storage } = parseStorage(operand.storage, `${spec.name}: storage of ${name}`);
    const own = dims.map((d) => d.name);
    const axes = computation.axes.map((a) => a.name);
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
  const intrinsic: Intrinsic = {
    name: spec.name,
    family: spec.family,
    isa: spec.isa,
    features: [spec.isa, ...(spec.features ?? [])],
    language: spec.language,
    scope: spec.scope ?? "thread",
    summary: spec.summary,
    computation,
    operands,
    emit: rowText(spec.emit),
    asynchronous: spec.asynchronous && asynchronousText(spec.asynchronous),
    prelude: rowText(spec.prelude),
    setup: rowText(spec.setup),
    subnormals: spec.subnormals ?? "kept",
    cost: spec.cost,
    mnemonic: spec.mnemonic,
    source: spec.source,
    declaration: spec,
  };
  checkTemplates(intrinsic);
  for (const operand of operands) {
    checkStorage(intrinsic, operand);
    if (operand.turned) checkStorage(intrinsic, { ...operand, storage: operand.turned });
  }
  return intrinsic;
}

/** A declaration is code of this program, or of a program that declares its own. */
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

/** The file of operands that an instruction reads from the memory of a block, where they lie. */
const SHARED = "shared";

/** Whether an instruction reads an operand from shared memory and not from registers. */
export const readsShared = ({ file }: Operand): boolean => file === SHARED;

/** Lanes of a warp. */
export const WARP = 32;

/** Threads that issue an instruction together. */
export function lanesOf({ scope }: Pick<Intrinsic, "scope">): number {
  return scope === "warpgroup" ? 4 * WARP : scope === "warp" ? WARP : 1;
}

export function operandOf(intrinsic: Intrinsic, name: string): Operand {
  const operand = intrinsic.operands.find((o) => o.name === name);
  if (!operand) throw new Error(`internal: ${intrinsic.name} has no operand "${name}"`);
  return operand;
}

/** Elements the register holds, copies of a broadcast included. */
export const registerElements = memoisedPair((intrinsic: Intrinsic, operand: Operand): number => {
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  return boundsOf(operand.storage ?? rowMajor(operand.dims), extents)[1] + 1;
});

/** The text of a row as code, its braces filled. */
export function fillTemplate(template: RowText, values: Readonly<Record<string, Code | Name>> = {}): Code {
  return filled(trustedCode(template), values);
}

/** `zmm[4*n + k]`, as declared. */
export function printStorage(operand: Operand): string {
  return operand.storage === undefined ? operand.file : `${operand.file}[${printExpr(operand.storage, "formula")}]`;
}

export function sizesOf(operand: Operand): Extents {
  return Object.fromEntries(operand.dims.map((d) => [d.name, d.extent]));
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

function checkTemplates({ name, operands, emit }: Intrinsic): void {
  const names = operands.map((o) => o.name);
  const check = (template: string | undefined, known: readonly string[], what: string): void => {
    for (const [, word] of template?.matchAll(BRACES) ?? []) {
      if (word !== undefined && !known.includes(word))
        throw new UsageError(`${name}: ${what} names {${word}}, which is none of ${known.join(", ")}`);
    }
  };
  check(emit, names, "emit");
  for (const { name: operand, load, store, clear } of operands) {
    check(clear, ["reg"], `clear of ${operand}`);
    check(load, MEMORY_WORDS, `load of ${operand}`);
    check(store, MEMORY_WORDS, `store of ${operand}`);
  }
}

/** Formulas that were found right, with the extents of their axes: widths and types of an instruction share them. */
const rightStorages = new Set<string>();

/** No two logical elements share a place, and no copy of a broadcast lands on another element. */
function checkStorage(intrinsic: Intrinsic, operand: Operand): void {
  if (operand.storage === undefined) return;
  const logical = rowMajor(operand.dims);
  const axes = [...operand.dims.map((d) => d.name), ...operand.broadcast];
  const extents: Extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  const subject = JSON.stringify([operand.storage, axes, axes.map((name) => extents[name])]);
  if (rightStorages.has(subject)) return;
  const holder = new Map<number, number>();
  for (const point of pointsOf(axes, extents)) {
    const place = evaluateIndex(operand.storage, point);
    const element = evaluateIndex(logical, point);
    const before = holder.get(place);
    if (place < 0)
      throw new UsageError(
        `${intrinsic.name}: storage ${printStorage(operand)} of ${operand.name} puts element ${element} in place ${place}`,
      );
    if (before !== undefined && before !== element) {
      throw new UsageError(
        `${intrinsic.name}: storage ${printStorage(operand)} of ${operand.name} puts elements ${before} and ${element} in place ${place}`,
      );
    }
    holder.set(place, element);
  }
  rightStorages.add(subject);
}

/** The tensor an operand is in the intrinsic's own computation. */
export function operandTensor(intrinsic: Intrinsic, operand: Operand): Computation["tensors"][string] {
  return tensorOf(intrinsic.computation, operand.name);
}
