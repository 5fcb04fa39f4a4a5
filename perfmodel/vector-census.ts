/**
 * @file Counts the instructions of a nest on the vectors of a CPU, for each straight run of statements, after the simplifications of a compiler.
 *
 *     for p in 0..256                                     256 runs of
 *       for unrolled t in 0..3                              3 loads, each of two lines      3 broadcasts
 *         for lanes lane in 0..16                           3 multiply-adds, in a chain of 3
 *           IN[0,lane] = in[p+t, lane+1] ...                1 store
 *
 * Statements become a graph of values, in which equal values are one and those that nothing uses do not count. So loads
 * that several statements share count once, and products whose condition never holds not at all. Counts are of
 * instructions, whatever they cost.
 */

import { type AffineForm, addressOf, affineForm, type Dimension, type Extents } from "../abstraction/affine.ts";
import { memoised, sumOf } from "../abstraction/collections.ts";
import type { Tensor } from "../abstraction/computation.ts";
import { settled } from "../abstraction/condition.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import {
  type Access,
  type CompareOp,
  childrenOf,
  type Equation,
  type Expr,
  integerOp,
  number,
  printExpr,
} from "../abstraction/expression.ts";
import { dimsOf, type Loop, type LoopNest, type Statement, storageOf } from "../abstraction/loop-nest.ts";

/** Nothing of what is counted. Elements are counted where lanes do not lie side by side in memory. */
const NONE = {
  multiplyAdds: 0,
  /** Additions, products and other arithmetic that no multiply-add takes in. */
  arithmetic: 0,
  /** Values moved to other lanes. */
  shifts: 0,
  /** Values taken from one of two vectors, by lanes. */
  blends: 0,
  /** Lanes of masks that depend on the loops around, and are made lane by lane. */
  maskedLanes: 0,
  /** Loads of lanes that lie side by side, and of every second element (two loads and a shuffle each). */
  loads: 0,
  pairedLoads: 0,
  /** Loads of one element for all lanes. */
  broadcasts: 0,
  /** Elements of vectors whose lanes lie apart. */
  gatheredLanes: 0,
  /** Conversions of narrow elements: of vectors that are loaded, of elements for all lanes, of vectors that are stored. */
  widened: 0,
  widenedElements: 0,
  narrowed: 0,
  stores: 0,
  /** Elements that are stored one by one. */
  scatteredLanes: 0,
  /** Sums across lanes. */
  reductions: 0,
  /** Results added to what is in memory. */
  added: 0,
  prefetches: 0,
  /** These are counted where lanes are threads. Reads of constant memory at places that differ between warps. */
  constants: 0,
  /** Loads under a test, and tests. */
  guardedLoads: 0,
  tests: 0,
  /** Lines of the cache that accesses touch, and bytes of their parts that stores send on. */
  lines: 0,
  sentBytes: 0,
};

/** Instructions of one run, by what they are. */
export type VectorCounts = Record<keyof typeof NONE, number>;

/** Lanes that are threads of a warp. Each tests its own conditions, and a load under a test is not merged with others. */
export interface ThreadLanes {
  /** Bytes of a line of the cache, and of the parts in which stores leave it. */
  readonly lineBytes: number;
  readonly sectorBytes: number;
  /** Tensors in constant memory. */
  readonly constants: ReadonlySet<string>;
  /** Arrays of lanes that run side by side in a warp. They are neighbouring steps of the innermost parallel loop. */
  readonly arrays: number;
}

/** A straight run of statements. */
export interface VectorRun extends Readonly<VectorCounts> {
  /** How often it runs in a call, on all threads together. */
  readonly times: number;
  /** Of these, steps of parallel loops. */
  readonly parallel: number;
  /** Operations from the first to the last of its longest chain: arithmetic, and moves across lanes. */
  readonly chain: Chain;
  /** The same from a value that the run before left to the one that it leaves. */
  readonly carried: Chain;
  /** Vectors that live at once at most, if none is loaded twice. */
  readonly registers: number;
}

/** A path of dependent operations. */
export interface Chain {
  readonly operations: number;
  readonly shifts: number;
}

export type Stored = Pick<Tensor, "dims" | "dtype" | "storage">;
export type Tensors = Readonly<Record<string, Stored>>;

/** Statements of a nest that no jump divides, and the loops around them. */
interface StraightRun {
  readonly statements: readonly Statement[];
  /** How often they run in a call, on all threads together. */
  readonly times: number;
  readonly around: Around;
}

/** The loops around a run. */
export interface Around {
  readonly extents: Extents;
  /** All of them with the steps that run, outermost first. */
  readonly loops: readonly { readonly axis: string; readonly steps: number }[];
  /** The parallel ones, and their steps. */
  readonly shared: readonly string[];
  readonly parallel: number;
}

/** The straight runs of a nest's body. */
export function straightRuns({ body }: LoopNest): readonly StraightRun[] {
  const runs: StraightRun[] = [];
  const visit = (body: readonly Statement[], times: number, around: Around): void => {
    const { extents, loops, shared, parallel } = around;
    let statements: Statement[] = [];
    const end = (): void => {
      if (statements.length > 0) runs.push({ statements, times, around });
      statements = [];
    };
    for (const s of body) {
      if (isStraight(s)) {
        statements.push(s);
        continue;
      }
      end();
      if (s.kind === "loop") {
        const steps = stepsOf(s, extents);
        const dealt = s.mode === "parallel" ? { shared: [...shared, s.axis], parallel: parallel * steps } : {};
        const inner = {
          ...around,
          extents: { ...extents, [s.axis]: s.extent },
          loops: [...loops, { axis: s.axis, steps }],
          ...dealt,
        };
        if (steps > 0) visit(s.body, times * steps, inner);
      } else if (s.kind === "when") {
        const share = shareOf(s.condition, formOf, extents);
        if (share > 0) visit(s.body, times * share, around);
        if (share < 1) visit(s.otherwise, times * (1 - share), around);
      }
    }
    end();
  };
  visit(body, 1, { extents: {}, loops: [], shared: [], parallel: 1 });
  return runs;
}

/** The tensors and buffers of a nest. */
export function tensorsIn({ scratch }: LoopNest, tensors: Tensors): Tensors {
  const buffers = scratch.map((s) => [s.name, { dtype: s.dtype, dims: dimsOf(s), storage: storageOf(s) }]);
  return { ...tensors, ...Object.fromEntries(buffers) };
}

/**
 * What the straight runs of a nest issue.
 * @param threads whether lanes are threads, and not vectors
 */
export function vectorRuns(nest: LoopNest, tensors: Tensors, threads?: ThreadLanes): readonly VectorRun[] {
  const known = tensorsIn(nest, tensors);
  const files = new Map((nest.vectors ?? []).map((v) => [v.name, v.count]));
  return straightRuns(nest).map(({ statements, times, around }) =>
    new Run(files, known, around, threads).of(statements, times),
  );
}

/** Whether a statement is written out without a jump. */
function isStraight(s: Statement): boolean {
  if (s.kind === "scalar") return true;
  return s.kind === "loop" && (s.mode === "unrolled" || s.mode === "lanes") && s.body.every(isStraight);
}

/** Steps of a loop, on average over the loops around it. */
function stepsOf({ extent, range }: Loop, extents: Extents): number {
  if (range === undefined) return extent;
  const middle = (e: Expr): number => valueIn(formOf(e), halves(extents)) ?? Number.NaN;
  const from = Math.max(0, ...range.from.map(middle).filter(Number.isFinite));
  const to = Math.min(extent, ...range.to.map(middle).filter(Number.isFinite));
  return Math.max(0, to - from);
}

const halves = (extents: Extents): Extents =>
  Object.fromEntries(Object.entries(extents).map(([name, extent]) => [name, (extent - 1) / 2]));

/** Fraction of the steps of the loops around at which a condition holds, as if parts of it held independently; 1 of one on lanes. */
function shareOf(e: Expr, form: (e: Expr) => AffineForm | "other", extents: Extents): number {
  if (e.kind === "logic") {
    const left = shareOf(e.left, form, extents);
    const right = shareOf(e.right, form, extents);
    return e.op === "and" ? left * right : Math.min(1, left + right);
  }
  if (e.kind !== "compare") return 1;
  const left = form(e.left);
  const right = form(e.right);
  if (left === "other" || right === "other") return e.op === "==" ? 1 / 2 : 1;
  const difference = differenceOf(left, right);
  // Values of the difference, so far apart; of several loops, all between the least and the most.
  const [[, apart = 1] = [], ...others] = difference.terms;
  const step = others.length > 0 ? 1 : Math.abs(apart);
  let least = difference.constant;
  let most = least;
  for (const [name, by] of difference.terms) {
    const extent = extents[name];
    if (extent === undefined) return 1;
    if (by < 0) least += by * (extent - 1);
    else most += by * (extent - 1);
  }
  const count = (most - least) / step + 1;
  const from = (value: number): number =>
    Math.min(count, Math.max(0, count - Math.ceil((value - least) / step))) / count;
  const { op } = e;
  switch (op) {
    case ">=":
      return from(0);
    case ">":
      return from(1);
    case "<":
      return 1 - from(0);
    case "<=":
      return 1 - from(1);
    case "==":
      return least <= 0 && most >= 0 ? 1 / count : 0;
    case "!=":
      return least <= 0 && most >= 0 ? 1 - 1 / count : 1;
    default:
      return op satisfies never;
  }
}

export const formOf = memoised((e: Expr): AffineForm | "other" => affineForm(e) ?? "other");

/** The value at a point that gives every axis; undefined where it does not. */
function valueIn(form: AffineForm | "other", point: Extents): number | undefined {
  if (form === "other") return undefined;
  let value = form.constant;
  for (const [name, by] of form.terms) {
    const at = point[name];
    if (at === undefined) return undefined;
    value += by * at;
  }
  return value;
}

/** A value that a run computes, or an effect of it. */
interface Node {
  readonly counts: Partial<VectorCounts>;
  readonly args: readonly Node[];
  /** What the value waits for, besides its arguments. */
  readonly step: "operation" | "shift" | "none";
  /** A register as the run before left it. */
  readonly entry?: string;
  /** Whether it is a product, which an addition takes in. */
  readonly isProduct?: boolean;
  /** Whether it is of vectors: a number and an element's address are not. */
  readonly isVector: boolean;
  isCounted?: boolean;
  /** Longest chains: to here from anywhere, and from a register of the run before. */
  longest?: Chain;
  carried?: Chain | "none";
}

/** What waits for nothing besides its arguments. */
const plain = (counts: Partial<VectorCounts>, args: readonly Node[] = [], isVector = false): Node => ({
  counts,
  args,
  step: "none",
  isVector,
});

const NUMBER = plain({});
/** What sums begin with: adding it is no instruction. */
const ZERO = plain({});
const EMPTY: Chain = { operations: 0, shifts: 0 };
const lengthOf = ({ operations, shifts }: Chain): number => operations + shifts;

interface Lanes {
  readonly axis: string;
  readonly extent: number;
}

type Truth = "always" | "never" | "lanes" | "loops";

class Run {
  private readonly files: ReadonlyMap<string, number>;
  private readonly tensors: Tensors;
  private readonly loops: Around;
  private readonly around: Extents;
  private readonly registers = new Map<string, Node>();
  private readonly values = new Map<string, Node>();
  private readonly numbers = new Map<Node, number>();
  private readonly effects: Node[] = [];
  private readonly at: Record<string, number> = {};
  private lanes: Lanes | undefined;
  private readonly threads: ThreadLanes | undefined;
  /** Statements so far. */
  private statements = 0;

  constructor(files: ReadonlyMap<string, number>, tensors: Tensors, around: Around, threads: ThreadLanes | undefined) {
    this.files = files;
    this.tensors = tensors;
    this.loops = around;
    this.around = around.extents;
    this.threads = threads;
  }

  of(statements: readonly Statement[], times: number): VectorRun {
    for (const s of statements) this.run(s);
    const counts: VectorCounts = { ...NONE };
    // Registers that no run reads before it writes them end with this run.
    const left = [...this.registers].filter(([name]) => this.values.has(`entry ${name}`)).map(([, node]) => node);
    const roots = [...this.effects, ...(this.effects.length === 0 ? this.registers.values() : left)];
    for (const root of roots) count(root, counts);
    const longest = (chains: readonly Chain[]): Chain =>
      chains.reduce((a, b) => (lengthOf(b) > lengthOf(a) ? b : a), EMPTY);
    return {
      ...counts,
      times,
      parallel: this.loops.parallel,
      chain: longest(roots.map(longestTo)),
      carried: longest(left.map((node) => carriedTo(node)).filter((c) => c !== "none")),
      registers: sumOf(this.files.values()),
    };
  }

  private run(s: Statement): void {
    if (s.kind === "loop") {
      if (s.mode === "lanes") {
        this.lanes = { axis: s.axis, extent: s.extent };
        for (const inner of s.body) this.run(inner);
        this.lanes = undefined;
        return;
      }
      for (let i = 0; i < s.extent; i++) {
        this.at[s.axis] = i;
        for (const inner of s.body) this.run(inner);
      }
      delete this.at[s.axis];
      return;
    }
    if (s.kind !== "scalar") return;
    this.statements++;
    if (s.prefetch) this.effects.push(plain({ prefetches: 1 }));
    if (s.together) this.assignTogether(s.equation, s.together);
    else this.assign(s.equation);
  }

  /** One access of a lane to several elements, each of which has its own register. */
  private assignTogether({ target, op, value, where }: Equation, { name, extent }: Dimension): void {
    const isLoad = this.files.has(target.tensor);
    this.at[name] = 0;
    const counts = isLoad ? {} : this.storeOf(target, op !== "=", where, "always", false);
    const loaded = isLoad ? [this.valueOf(value)] : [];
    const stored: Node[] = [];
    for (let i = 0; i < extent; i++) {
      this.at[name] = i;
      if (!isLoad) stored.push(this.valueOf(value));
      else this.registers.set(this.registerOf(target), plain({}, loaded, true));
    }
    if (!isLoad) this.effects.push(plain(counts, stored));
    delete this.at[name];
  }

  private assign({ target, op, value, where }: Equation): void {
    const truth = where === undefined ? "always" : this.truthOf(where);
    if (truth === "never") return;
    let node = this.valueOf(value);
    const isRegister = this.files.has(target.tensor);
    const lane = this.lanes;
    const isAcross = lane !== undefined && node.isVector && !target.index.some((e) => this.mentions(e, lane.axis));
    if (isAcross && op !== "=") node = this.make([node], { reductions: 1 }, "shift");
    if (isRegister) {
      const name = this.registerOf(target);
      const before = op === "=" && truth !== "lanes" ? undefined : this.register(name);
      if (before && op !== "=") node = this.sum(before, node);
      if (before && truth === "lanes") node = this.make([before, node], { blends: 1 }, "operation");
      this.registers.set(name, node);
      return;
    }
    const counts = this.storeOf(target, op !== "=", where, truth, isAcross);
    this.effects.push(plain(counts, [node]));
  }

  private storeOf(
    target: Access,
    isAdded: boolean,
    where: Expr | undefined,
    truth: Truth,
    isAcross: boolean,
  ): Partial<VectorCounts> {
    if (this.threads) return this.storedByThreads(target, isAdded, where, isAcross, this.threads);
    const counts = this.stored(target, isAdded, truth === "lanes", isAcross);
    if (truth === "always" || where === undefined) return counts;
    const share = this.sharedBy(where);
    return Object.fromEntries(Object.entries(counts).map(([name, n]) => [name, share * n]));
  }

  private storedByThreads(
    target: Access,
    isAdded: boolean,
    where: Expr | undefined,
    isAcross: boolean,
    { lineBytes, sectorBytes }: ThreadLanes,
  ): Partial<VectorCounts> {
    const isOne = isAcross || (where !== undefined && this.isOneLane(where));
    const share = where === undefined ? 1 : this.shareOf(where);
    const { dtype } = this.tensorOf(target);
    const lines = isOne ? 1 : this.linesOf(target, lineBytes);
    const sectors = isOne ? 1 : this.linesOf(target, sectorBytes);
    return {
      stores: share,
      tests: where === undefined ? 0 : 1,
      lines: share * lines * (isAdded ? 2 : 1),
      sentBytes: share * sectors * sectorBytes,
      ...(isAdded && { added: share }),
      ...(isNarrow(dtype) && { narrowed: share }),
    };
  }

  /** Fraction of the steps of the loops around at which a condition holds. */
  private shareOf(e: Expr): number {
    const written = (index: Expr): AffineForm | "other" => {
      const form = this.formAt(index);
      if (form === "other") return form;
      const terms = [...form.terms].filter(([name]) => this.at[name] === undefined);
      return { constant: this.offset(form), terms: new Map(terms) };
    };
    return shareOf(e, written, this.around);
  }

  /** The same of what a condition says of the loops alone. */
  private sharedBy(e: Expr): number {
    if (e.kind === "logic" && e.op === "and") return this.sharedBy(e.left) * this.sharedBy(e.right);
    return this.lanes && this.mentions(e, this.lanes.axis) ? 1 : this.shareOf(e);
  }

  /** Lines of a size that the lanes of an access touch. Arrays of a warp may read the same ones. */
  private linesOf(access: Access, bytes: number): number {
    const innermost = this.loops.shared.at(-1);
    const differs = innermost !== undefined && access.index.some((e) => this.mentions(e, innermost));
    const alike = differs ? 1 : (this.threads?.arrays ?? 1);
    const each = bytesOf(this.tensorOf(access).dtype);
    const halves = Math.max(1, each / WORD_BYTES);
    if (this.lanes === undefined) return halves / alike;
    const { extent } = this.lanes;
    const stride = this.strideOf(access, this.lanes);
    if (stride === undefined) return extent / alike;
    return Math.min(extent, Math.max(halves, Math.ceil((Math.abs(stride) * extent * each) / bytes))) / alike;
  }

  private stored(target: Access, isAdded: boolean, isMasked: boolean, isAcross: boolean): Partial<VectorCounts> {
    const lane = this.lanes;
    const stride = isAcross || lane === undefined ? 0 : this.strideOf(target, lane);
    return {
      ...(stride === 0 || stride === 1 ? { stores: 1 } : { scatteredLanes: lane?.extent ?? 1 }),
      ...(isAdded && { added: 1 }),
      ...(isNarrow(this.tensorOf(target).dtype) && { narrowed: 1 }),
      ...(isMasked && { blends: 1 }),
    };
  }

  private sum(left: Node, right: Node): Node {
    if (left === ZERO) return right;
    if (right === ZERO) return left;
    for (const [product, other] of [
      [right, left],
      [left, right],
    ] as const)
      if (product.isProduct) return this.make([...product.args, other], { multiplyAdds: 1 }, "operation");
    return this.make([left, right], { arithmetic: 1 }, "operation");
  }

  private valueOf(e: Expr): Node {
    switch (e.kind) {
      case "number":
        return e.value === 0 ? ZERO : NUMBER;
      case "access":
        return this.read(e);
      case "cast":
      case "negate":
        return this.valueOf(e.value);
      case "binary": {
        const left = this.valueOf(e.left);
        const right = this.valueOf(e.right);
        if (!left.isVector && !right.isVector) return left === ZERO && right === ZERO ? ZERO : NUMBER;
        if (e.op === "+" || e.op === "-") return this.sum(left, right);
        if (e.op !== "*") return this.make([left, right], { arithmetic: 1 }, "operation", e.op);
        return this.make([left, right], { arithmetic: 1 }, "operation", "*");
      }
      case "call":
        return this.make(
          e.args.map((a) => this.valueOf(a)),
          { arithmetic: 1 },
          "operation",
          e.fn,
        );
      case "select": {
        const truth = this.truthOf(e.condition);
        if (truth === "always") return this.valueOf(e.whenTrue);
        if (truth === "never") return this.valueOf(e.whenFalse);
        if (truth === "loops") return this.valueOf(this.shareOf(e.condition) > 1 / 2 ? e.whenTrue : e.whenFalse);
        const isOne = this.isOneLane(e.condition);
        const chosen = isOne ? this.element(e.whenTrue) : this.valueOf(e.whenTrue);
        const other = this.valueOf(e.whenFalse);
        const mask = this.maskOf(e.condition);
        return this.make([chosen, other, mask], { blends: 1 }, "operation");
      }
      default:
        return NUMBER;
    }
  }

  /** A value that one lane takes: an element where it is read from memory. */
  private element(e: Expr): Node {
    if (e.kind !== "access" || this.files.has(e.tensor)) return this.valueOf(e);
    const narrow = isNarrow(this.tensorOf(e).dtype);
    const counts = this.threads
      ? { loads: 1, lines: 1, guardedLoads: 1, ...(narrow && { widened: 1 }) }
      : { broadcasts: 1, ...(narrow && { widenedElements: 1 }) };
    return this.known(`element ${this.addressOf(e)}`, () => plain(counts, [], true));
  }

  private read(e: Access): Node {
    if (this.files.has(e.tensor)) {
      const node = this.register(this.registerOf(e));
      const lane = e.index[1];
      const form = lane && this.formAt(lane);
      const stays =
        lane === undefined ||
        (this.lanes &&
          form !== "other" &&
          form !== undefined &&
          form.terms.get(this.lanes.axis) === 1 &&
          this.offset(form) === 0);
      return stays
        ? node
        : this.make([node], { shifts: 1 }, "shift", `by ${lane === undefined ? "" : this.textOf(lane)}`);
    }
    const guard = this.threads && this.guardOf(e);
    const apart = guard ? ` ${this.statements}` : "";
    return this.known(`${this.addressOf(e)}${apart}`, () => plain(this.loadOf(e), guard ? [guard] : [], true));
  }

  private tensorOf({ tensor }: Access): Stored {
    return this.tensors[tensor] ?? { dims: [], dtype: "f32", storage: number(0) };
  }

  /** Whether all warps access the same element. */
  private isFixed({ index }: Access): boolean {
    return !index.some((e) => this.loops.shared.some((name) => this.mentions(e, name)));
  }

  /** The tests that keep an access inside its tensor; undefined where lanes do not leave it. */
  private guardOf({ tensor, index }: Access): Node | undefined {
    const dims = this.tensors[tensor]?.dims ?? [];
    let text = "";
    index.forEach((e, d) => {
      const form = this.formAt(e);
      const extent = dims[d]?.extent ?? 1;
      const [least, most] = form === "other" ? [-1, extent] : this.rangeOf(form);
      if (least < 0) text += `${this.textOf(e)}>=0 `;
      if (most >= extent) text += `${this.textOf(e)}<${extent} `;
    });
    if (text === "") return undefined;
    return this.known(`test ${text}`, () => plain({ tests: 1 }));
  }

  private loadOf(e: Access): Partial<VectorCounts> {
    const narrow = isNarrow(this.tensorOf(e).dtype);
    const stride = this.lanes ? this.strideOf(e, this.lanes) : 0;
    if (this.threads) {
      const widened = narrow ? { widened: 1 } : {};
      if (stride === 0 && this.threads.constants.has(e.tensor))
        return { constants: this.isFixed(e) ? 0 : 1, ...widened };
      const lines = this.linesOf(e, this.threads.lineBytes);
      return { loads: 1, lines, ...(this.guardOf(e) !== undefined && { guardedLoads: 1 }), ...widened };
    }
    if (stride === 0) return { broadcasts: 1, ...(narrow && { widenedElements: 1 }) };
    if (stride === 1) return { loads: 1, ...(narrow && { widened: 1 }) };
    const leaves = this.guardOf(e) !== undefined;
    if (stride === 2 && !narrow && !leaves) return { pairedLoads: 1 };
    const extent = this.lanes?.extent ?? 1;
    return {
      gatheredLanes: extent,
      ...(leaves && { maskedLanes: extent }),
      ...(narrow && { widenedElements: extent }),
    };
  }

  /** The least and the greatest value of an index at the unrolled steps that the run has come to. */
  private rangeOf(form: AffineForm): readonly [number, number] {
    let least = this.offset(form);
    let most = least;
    for (const [name, by] of form.terms) {
      if (this.at[name] !== undefined) continue;
      const extent = name === this.lanes?.axis ? this.lanes.extent : (this.around[name] ?? 1);
      if (by < 0) least += by * (extent - 1);
      else most += by * (extent - 1);
    }
    return [least, most];
  }

  private make(args: readonly Node[], counts: Partial<VectorCounts>, step: Node["step"], said = ""): Node {
    const key = `${Object.keys(counts).join()} ${said} ${args.map((a) => this.numberOf(a)).join()}`;
    return this.known(key, () => ({
      counts,
      args,
      step,
      isVector: args.some((a) => a.isVector),
      ...(said === "*" && { isProduct: true }),
    }));
  }

  private known(key: string, make: () => Node): Node {
    const found = this.values.get(key);
    if (found) return found;
    const node = make();
    this.values.set(key, node);
    return node;
  }

  private numberOf(node: Node): number {
    const found = this.numbers.get(node);
    if (found !== undefined) return found;
    this.numbers.set(node, this.numbers.size);
    return this.numbers.size - 1;
  }

  private register(name: string): Node {
    const found = this.registers.get(name);
    if (found) return found;
    const node = this.known(`entry ${name}`, () => ({ ...plain({}, [], true), entry: name }));
    this.registers.set(name, node);
    return node;
  }

  private registerOf({ tensor, index }: Access): string {
    return `${tensor} ${index[0] === undefined ? "" : this.textOf(index[0])}`;
  }

  private addressOf({ tensor, index }: Access): string {
    return `${tensor}[${index.map((e) => this.textOf(e)).join()}]`;
  }

  /** An index at the unrolled steps that the run has come to: affine, where its quotients and remainders are numbers there. */
  private formAt(e: Expr): AffineForm | "other" {
    const form = formOf(e);
    if (form !== "other" || e.kind !== "binary") return form;
    const left = this.formAt(e.left);
    const right = this.formAt(e.right);
    if (left === "other" || right === "other") return "other";
    if (this.isNumber(right)) {
      const by = this.offset(right);
      if (this.isNumber(left)) return { constant: integerOp(e.op, this.offset(left), by), terms: new Map() };
      if (e.op === "/" || e.op === "%") return this.quotientOf(left, e.op, by);
      if (e.op === "*") return timesOf(left, by);
    }
    if (e.op === "*" && this.isNumber(left)) return timesOf(right, this.offset(left));
    if (e.op === "-") return differenceOf(left, right);
    return e.op === "+" ? differenceOf(left, differenceOf(NOTHING, right)) : "other";
  }

  /** A quotient or a remainder by a number that divides what the loops around and the lanes add. */
  private quotientOf(form: AffineForm, op: "/" | "%", by: number): AffineForm | "other" {
    const terms = new Map<string, number>();
    for (const [name, factor] of form.terms) {
      if (this.at[name] !== undefined) continue;
      if (factor % by !== 0) return "other";
      terms.set(name, factor / by);
    }
    const constant = integerOp(op, this.offset(form), by);
    return { constant, terms: op === "/" ? terms : new Map() };
  }

  /** Whether an index is a number at the unrolled steps that the run has come to. */
  private isNumber({ terms }: AffineForm): boolean {
    for (const name of terms.keys()) if (this.at[name] === undefined) return false;
    return true;
  }

  /** The constant of an index at those steps. */
  private offset({ constant, terms }: AffineForm): number {
    let sum = constant;
    for (const [name, by] of terms) sum += by * (this.at[name] ?? 0);
    return sum;
  }

  private textOf(e: Expr): string {
    const form = this.formAt(e);
    if (form === "other") return `${printExpr(e)} at ${Object.values(this.at).join()}`;
    let text = "";
    for (const [name, by] of form.terms) if (this.at[name] === undefined) text += `${by}${name} `;
    return text + this.offset(form);
  }

  private mentions(e: Expr, axis: string): boolean {
    const form = this.formAt(e);
    return form === "other" ? childrenOf(e).some((child) => this.mentions(child, axis)) : form.terms.has(axis);
  }

  /** Distance in elements between neighbouring lanes; undefined where it varies. */
  private strideOf(access: Access, lane: Lanes): number | undefined {
    const { dims, storage } = this.tensorOf(access);
    const pitches = formOf(storage);
    if (pitches === "other") {
      // In blocks: the place of an element is no sum of its indices.
      const place = addressOf({ dims, storage }, access.index);
      if (!this.mentions(place, lane.axis)) return 0;
      const form = this.formAt(place);
      return form === "other" ? undefined : form.terms.get(lane.axis);
    }
    let stride = 0;
    for (const [d, e] of access.index.entries()) {
      const form = this.formAt(e);
      if (form === "other" && this.mentions(e, lane.axis)) return undefined;
      const pitch = pitches.terms.get(dims[d]?.name ?? "") ?? 0;
      if (form !== "other") stride += pitch * (form.terms.get(lane.axis) ?? 0);
    }
    return stride;
  }

  private isOneLane(e: Expr): boolean {
    const lane = this.lanes;
    if (e.kind === "logic") {
      const left = this.isOneLane(e.left);
      const right = this.isOneLane(e.right);
      return e.op === "and" ? left || right : left && right;
    }
    if (e.kind !== "compare" || e.op !== "==" || lane === undefined) return false;
    const sides = [this.formAt(e.left), this.formAt(e.right)];
    return sides.some((f) => f !== "other" && Math.abs(f.terms.get(lane.axis) ?? 0) === 1);
  }

  /** A mask of lanes: a constant, or lanes compared one by one where it depends on the loops around. */
  private maskOf(e: Expr): Node {
    const lane = this.lanes;
    const isLane = this.leavesOf(e).every(({ left, right }) =>
      [this.formAt(left), this.formAt(right)].every(
        (f) => f !== "other" && [...f.terms.keys()].every((name) => name === lane?.axis || this.at[name] !== undefined),
      ),
    );
    if (isLane || this.isOneLane(e)) return NUMBER;
    const counts = this.threads ? { tests: 1 } : { maskedLanes: lane?.extent ?? 1 };
    return this.known(`mask ${printExpr(e)} ${Object.values(this.at).join()}`, () => plain(counts));
  }

  private leavesOf(e: Expr): readonly Extract<Expr, { kind: "compare" }>[] {
    if (e.kind === "logic") return [...this.leavesOf(e.left), ...this.leavesOf(e.right)];
    return e.kind === "compare" ? [e] : [];
  }

  private truthOf(e: Expr): Truth {
    if (e.kind === "logic") {
      const left = this.truthOf(e.left);
      const right = this.truthOf(e.right);
      const [deciding, neutral] = e.op === "and" ? (["never", "always"] as const) : (["always", "never"] as const);
      if (left === deciding || right === deciding) return deciding;
      if (left === neutral) return right;
      if (right === neutral) return left;
      return left === "lanes" || right === "lanes" ? "lanes" : "loops";
    }
    if (e.kind !== "compare") return "lanes";
    return this.truthOfCompare(e.op, this.formAt(e.left), this.formAt(e.right));
  }

  private truthOfCompare(op: CompareOp, left: AffineForm | "other", right: AffineForm | "other"): Truth {
    if (left === "other" || right === "other") return "lanes";
    const difference = differenceOf(left, right);
    const lane = this.lanes?.axis;
    const varies: Truth = lane !== undefined && difference.terms.has(lane) ? "lanes" : "loops";
    const [least, most] = this.rangeOf(difference);
    const known = settled(op, least, most);
    return known === undefined ? varies : known ? "always" : "never";
  }
}

function timesOf({ constant, terms }: AffineForm, by: number): AffineForm {
  return { constant: constant * by, terms: new Map([...terms].map(([name, factor]) => [name, factor * by])) };
}

const NOTHING: AffineForm = { constant: 0, terms: new Map() };

function differenceOf(left: AffineForm, right: AffineForm): AffineForm {
  if (right.terms.size === 0) return { constant: left.constant - right.constant, terms: left.terms };
  const terms = new Map(left.terms);
  for (const [name, by] of right.terms) {
    const sum = (terms.get(name) ?? 0) - by;
    if (sum === 0) terms.delete(name);
    else terms.set(name, sum);
  }
  return { constant: left.constant - right.constant, terms };
}

/** A 64-bit value passes a unit of threads in two halves. */
export const WORD_BYTES = 4;

const isNarrow = (dtype: DType): boolean => bytesOf(dtype) < 4;

function count(node: Node, counts: VectorCounts): void {
  if (node.isCounted) return;
  node.isCounted = true;
  for (const [name, n] of Object.entries(node.counts)) counts[name as keyof VectorCounts] += n; // its own keys
  for (const arg of node.args) count(arg, counts);
}

function further(chain: Chain, step: Node["step"]): Chain {
  if (step === "none") return chain;
  return step === "shift" ? { ...chain, shifts: chain.shifts + 1 } : { ...chain, operations: chain.operations + 1 };
}

function longestTo(node: Node): Chain {
  if (node.longest) return node.longest;
  let best = EMPTY;
  for (const arg of node.args) {
    const found = longestTo(arg);
    if (lengthOf(found) > lengthOf(best)) best = found;
  }
  node.longest = further(best, node.step);
  return node.longest;
}

function carriedTo(node: Node): Chain | "none" {
  if (node.entry !== undefined) return EMPTY;
  if (node.carried) return node.carried;
  let best: Chain | "none" = "none";
  for (const arg of node.args) {
    const found = carriedTo(arg);
    if (found !== "none" && (best === "none" || lengthOf(found) > lengthOf(best))) best = found;
  }
  node.carried = best === "none" ? "none" : further(best, node.step);
  return node.carried;
}
