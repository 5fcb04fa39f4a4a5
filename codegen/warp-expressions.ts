/**
 * @file Expressions of one thread of a warp. Its registers are variables; those of other lanes are read by shuffles.
 *
 *     Z[0,lane]             Z0
 *     Z[0,lane-1]           __shfl_up_sync(0xffffffffu, Z0, 1)
 *     sum[0,lane^16]        __shfl_xor_sync(0xffffffffu, sum0, 16)
 */

import { affineForm, type Extents, evaluateIndex } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import { type DType, isInteger } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import {
  type Access,
  axesIn,
  type Expr,
  isSame,
  number,
  printAccess,
  testsElements,
} from "../abstraction/expression.ts";
import { WARP } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { type Code, code, keyOf, list, type Name, tensorName } from "../abstraction/source-text.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { CExpressions, type Shuffle, type Words } from "./c-expressions.ts";
import { type LaneAccess, registerIn, registerName, tested } from "./lane-printer.ts";

/** The purpose of an address: a write, a read, or the matrix row that a lane supplies to `ldmatrix`. */
export type Role = "at" | "to" | "from" | "row";

interface PlaceText {
  readonly at: Code;
  readonly guards: readonly Code[];
}

/** A register that an access names, and its variable. */
export interface LaneRegister extends LaneAccess {
  readonly name: Name;
}

/** The context of a statement on lanes. */
interface Printed {
  /** The lane axis. */
  readonly lane: string;
  /** The one lane that executes it; by default every lane. */
  readonly by?: Expr;
  /**
   * If not all lanes execute the statement, shuffles are named here first, because all lanes must take part in them.
   */
  readonly before?: Code[];
}

/** Operator precedence in C. A weaker operator inside a stronger one is parenthesised. */
export const STRENGTH = {
  "^": 0,
  "+": 1,
  "-": 1,
  sum: 1,
  "*": 2,
  "/": 2,
  "%": 2,
  factor: 2,
  negate: 3,
  atom: 4,
} as const;

function strengthOf(e: Expr): number {
  if (e.kind === "binary") return STRENGTH[e.op];
  return e.kind === "negate" || (e.kind === "number" && e.value < 0) ? STRENGTH.negate : STRENGTH.atom;
}

export class WarpExpressions extends CExpressions {
  private statement: Printed | undefined;
  /** Threads among which values are exchanged, one for each lane: a warp, an equal part of it, or a sub-group. */
  readonly group: number;
  /** Names of tensors in constant memory. */
  readonly constants: ReadonlySet<string> = new Set();
  /** Names of shuffles, by the text of the call. */
  private readonly shuffles = new Map<string, Name>();

  constructor(computation: Computation, nest: LoopNest, group: number = WARP, words?: Words, others?: DTypes) {
    super(computation, nest, words, others);
    this.group = group;
  }

  /** Sets the current statement on lanes; undefined outside of one. */
  begin(statement: Printed | undefined): void {
    this.statement = statement;
    this.shuffles.clear();
  }

  private get lane(): string | undefined {
    return this.statement?.lane;
  }

  /** An address, and its conditions. @param where conditions of the statement */
  placeWhere(target: Access, where: readonly Expr[], extents: Extents, _role?: Role): PlaceText {
    const { at, guards } = this.placeOf(target, extents);
    return { at: this.index(at, extents), guards: this.tests([...where, ...guards], extents) };
  }

  /** The conditions that need a test. */
  tests(conditions: readonly Expr[], extents: Extents): Code[] {
    return tested(conditions, this.lane ?? "", extents).map((e) => this.condition(e, extents));
  }

  registerOf(access: Access): LaneRegister | undefined {
    if (!this.nest.vectors?.some((v) => v.name === access.tensor)) return undefined;
    // A vector access counts registers from a first one.
    const [register, ...lane] = access.index;
    const known = register && register.kind !== "number" ? number(evaluateIndex(register, {})) : register;
    const found = registerIn(this.nest, known ? { ...access, index: [known, ...lane] } : access);
    return found && { ...found, name: registerName(found.file.name, found.register) };
  }

  /** The register of its own that a lane writes; undefined for memory. */
  ownRegister(target: Access): Name | undefined {
    const found = this.registerOf(target);
    if (found && this.shiftOf(found.lane) !== 0)
      internal(`lanes write ${printAccess(target)}; they write their own lane of a register`);
    return found?.name;
  }

  /** `lane - 1` is -1; undefined if the index is not a shift. */
  private shiftOf(lane: Expr): number | undefined {
    const form = affineForm(lane);
    if (this.lane === undefined || form?.terms.size !== 1 || form.terms.get(this.lane) !== 1) return undefined;
    return form.constant;
  }

  /** `lane ^ 16` is 16; undefined if the index is not a butterfly exchange. */
  private flipOf(lane: Expr): number | undefined {
    if (lane.kind !== "binary" || lane.op !== "^" || lane.right.kind !== "number") return undefined;
    return this.shiftOf(lane.left) === 0 ? lane.right.value : undefined;
  }

  /** Values of floats and 32-bit integers without redundant parentheses and casts: `a * b + c * -2.0f`. */
  override value(e: Expr, dtype: DType, extents: Extents): Code {
    if (e.kind === "axis") return code`(int32_t)${this.axis(e.name)}`;
    const own = typeOf(e, this.dtypes) ?? dtype;
    const isPlain = own === "f32" || own === "f64" || (own === "s32" && !this.words.overflowIsUndefined);
    if (!isPlain) return super.value(e, dtype, extents);
    const part = (inner: Expr, floor: number): Code => {
      const text = this.value(inner, own, extents);
      return strengthOf(inner) < floor ? code`(${text})` : text;
    };
    switch (e.kind) {
      case "binary": {
        if (e.op === "%" || (isInteger(own) && e.op === "/")) return super.value(e, dtype, extents);
        const strength = e.op === "+" || e.op === "-" ? STRENGTH.sum : STRENGTH.factor;
        return code`${part(e.left, strength)} ${e.op} ${part(e.right, strength + 1)}`;
      }
      case "negate":
        return code`-${part(e.value, STRENGTH.atom)}`;
      default:
        return super.value(e, dtype, extents);
    }
  }
  protected override element(e: Access, dtype: DType, extents: Extents): Code {
    const register = this.registerOf(e);
    if (!register) return super.element(e, dtype, extents);
    const { file, name, lane } = register;
    const { by: own, before } = this.statement ?? {};
    if (own && isSame(lane, own)) return code`${name}`;
    const by = this.shiftOf(lane);
    const flip = this.flipOf(lane);
    if (by === 0) return code`${name}`;
    const shuffled = (how: Shuffle, from: Code): Code => this.words.shuffled(how, name, from, this.group);
    if (flip !== undefined) return shuffled("xor", code`${flip}`);
    const call =
      by === undefined
        ? shuffled("from", this.index(lane, extents))
        : shuffled(by < 0 ? "up" : "down", code`${Math.abs(by)}`);
    if (!before) return call;
    const known = this.shuffles.get(keyOf(call));
    if (known !== undefined) return code`${known}`;
    const plain = name.with(
      by === undefined ? `_from_${this.shuffles.size}` : `_${by < 0 ? "up" : "down"}${Math.abs(by)}`,
    );
    this.shuffles.set(keyOf(call), plain);
    before.push(code`const ${C_TYPES[file.dtype]} ${plain} = ${call};`);
    return code`${plain}`;
  }
  /**
   * `a*b + c` with one rounding. nvcc runs with -fmad=false, so fusing is explicit. Undefined for other expressions.
   */
  multiplyAdd(e: Expr, dtype: DType, extents: Extents): Code | undefined {
    const own = typeOf(e, this.dtypes) ?? dtype;
    if (e.kind !== "binary" || e.op !== "+" || (own !== "f32" && own !== "f64")) return undefined;
    const [product, held] = isProduct(e.right) ? [e.right, e.left] : [e.left, e.right];
    if (!isProduct(product)) return undefined;
    const parts = [product.left, product.right, held].map((part) => this.value(part, own, extents));
    return code`${this.words.fused(own)}(${list(parts)})`;
  }
}

/**
 * Scalar expressions of one thread. A product that is added becomes one instruction, and constants may be in constant
 * memory.
 */
export class ThreadExpressions extends WarpExpressions {
  override readonly constants: ReadonlySet<string>;

  constructor(
    computation: Computation,
    nest: LoopNest,
    group?: number,
    constants: ReadonlySet<string> = new Set(),
    words?: Words,
  ) {
    super(computation, nest, group, words);
    this.constants = constants;
  }

  override tensor(name: string): Code {
    return this.constants.has(name) ? code`constants::${tensorName(name)}` : super.tensor(name);
  }

  override value(e: Expr, dtype: DType, extents: Extents): Code {
    // Steps that are written out make conditions of constants.
    if (e.kind === "select" && axesIn(e.condition).length === 0 && !testsElements(e.condition))
      return this.value(evaluateIndex(e.condition, {}) === 0 ? e.whenFalse : e.whenTrue, dtype, extents);
    return this.multiplyAdd(e, dtype, extents) ?? super.value(e, dtype, extents);
  }
}

type Product = Extract<Expr, { readonly kind: "binary" }>;

function isProduct(e: Expr): e is Product {
  return e.kind === "binary" && e.op === "*";
}
