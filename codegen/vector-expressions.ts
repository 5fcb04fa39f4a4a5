/**
 * @file Values on lanes as operations on whole vectors: the part shared by AVX-512, AVX2 and CM.
 *
 *     Z[0,lane-1] + x[16*b+lane] * w[q]      ->    fma(load(x + 16 * b), splat(w[q]), shift(Z0, -1))
 *
 * More lanes than a register holds take several registers, `Z0_0`, `Z0_1`. A language supplies shifts, loads and masks.
 */

import { affineForm, strideIn } from "../abstraction/affine.ts";
import { conjunctsOf } from "../abstraction/condition.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import {
  type Access,
  axesIn,
  type Expr,
  isFloatFunction,
  number,
  printAccess,
  printExpr,
  substitute,
  testsElements,
  walk,
} from "../abstraction/expression.ts";
import type { VectorFile } from "../abstraction/loop-nest.ts";
import { bare, type Code, code, type Name, NOTHING, skeleton } from "../abstraction/source-text.ts";
import { typeOf } from "../abstraction/typing.ts";
import { allOf } from "./c-expressions.ts";
import {
  always,
  factorsIn,
  joinedValue,
  type LaneAccess,
  type LaneContext,
  LanePrinter,
  never,
  type Part,
  pinnedLane,
  registerIn,
  registerName,
  split,
} from "./lane-printer.ts";
import type { Named } from "./walk.ts";

/** Elements of memory that lanes access. `stride` is undefined if `at` is not affine in the lane. */
export interface LanePlace {
  readonly tensor: string;
  /** The element of lane 0. */
  readonly first: Expr;
  /** Elements between neighbouring lanes. */
  readonly stride: number | undefined;
  readonly at: Expr;
  /** Conditions that are the same on all lanes. */
  readonly uniform: readonly Expr[];
  /** Conditions that vary across lanes. */
  readonly varying: readonly Expr[];
}

type Select = Extract<Expr, { kind: "select" }>;

export abstract class VectorExpressions extends LanePrinter {
  // ---- what a language says -----------------------------------------------------------------------------------------------------

  protected abstract splat(text: Code, dtype: DType): Code;
  /** The value of an integer expression on each lane. */
  protected abstract numbers(e: Expr, context: LaneContext): Code;
  /** The register shifted by `by`: lane l gets lane l + by. Lanes shifted in from beyond the ends are undefined. */
  protected abstract shifted(at: LaneAccess, by: number, context: LaneContext): Code;
  /** Broadcasts one lane. */
  protected abstract broadcast(at: LaneAccess, context: LaneContext): Code;
  /** Permutes lanes by an index that is not a shift. */
  protected abstract permuted(at: LaneAccess, context: LaneContext): Code;
  protected abstract load(place: LanePlace, context: LaneContext): Code;
  protected abstract store(place: LanePlace, mask: readonly Expr[], value: Code, context: LaneContext): Code;
  protected abstract blend(mask: readonly Expr[], whenTrue: Code, whenFalse: Code, context: LaneContext): Code;
  protected abstract operation(op: LaneOperation, args: readonly Code[], dtype: DType, context: LaneContext): Code;
  protected abstract convert(text: Code, from: DType, to: DType, context: LaneContext): Code;

  /** Selects one of two vectors by a condition that is the same on all lanes. */
  protected chosen(tests: Code, whenTrue: Code, whenFalse: Code, _: LaneContext): Code {
    return code`(${tests} ? ${whenTrue} : ${whenFalse})`;
  }

  /** Whether masked-off lanes of a load access no memory. */
  protected readonly masksLoads: boolean = false;

  /** Whether `a*b + c` may be rounded once. */
  protected fuses(): boolean {
    return true;
  }

  // ---- statements --------------------------------------------------------------------------------------------------------------

  protected stored({ equation, context }: Part): Code {
    return this.vector(joinedValue(equation), context);
  }

  protected write({ equation: { target }, mask, context }: Part, value: Code): Code[] {
    const register = this.registerOf(target);
    if (register === undefined) return [this.store(this.placeOf(target, context), mask, value, context)];
    const by = this.shiftOf(register.lane, context);
    const place = by === undefined ? undefined : this.partAt(register, by);
    if (place === undefined || place.shift !== 0)
      internal(`lanes write ${printAccess(target)}; they write their own lane of a register`);
    const merged = mask.length === 0 ? value : this.blend(mask, value, code`${place.name}`, context);
    return [code`${place.name} = ${bare(merged)};`];
  }

  // ---- expressions ------------------------------------------------------------------------------------------------------------

  protected vector(e: Expr, context: LaneContext): Code {
    const { axis: lane, dtype, extents } = context;
    const own = typeOf(e, this.c.dtypes) ?? dtype;
    this.checkType(own, e, context);
    const lone = ![...walk(e)].some(
      (n) =>
        (n.kind === "axis" && n.name === lane) ||
        (n.kind === "access" && this.nest.vectors?.some((v) => v.name === n.tensor)),
    );
    if (lone) return this.splat(this.c.value(e, own, extents), own);
    switch (e.kind) {
      case "number":
        return internal("a number is the same on every lane");
      case "axis":
        return this.numbers(e, context);
      case "access":
        return this.read(e, { ...context, dtype: own });
      case "cast": {
        const from = typeOf(e.value, this.c.dtypes) ?? own;
        const inner = this.vector(e.value, { ...context, dtype: from });
        return from === e.dtype ? inner : this.convert(inner, from, e.dtype, context);
      }
      case "negate":
        return this.operation("negate", [this.vector(e.value, context)], own, context);
      case "binary":
        return this.arithmetic(e, { ...context, dtype: own });
      case "call": {
        if (isFloatFunction(e.fn)) internal(`lanes have no instruction for ${e.fn}`);
        const args = e.args.map((arg) => this.vector(arg, context));
        return this.operation(e.fn, args, own, context);
      }
      case "select": {
        const terms = conjunctsOf(e.condition).filter((x) => !always(x, extents));
        if (terms.some((x) => never(x, extents))) return this.vector(e.whenFalse, { ...context, dtype: own });
        const [alike, varying] = split(terms, lane);
        const pinned = varying.map((x) => pinnedLane(x, lane)).find((x) => x !== undefined);
        // If only one lane takes the value, it is computed for that lane.
        const taken = pinned === undefined ? e.whenTrue : substitute(e.whenTrue, new Map([[lane, pinned]]));
        const whenFalse = this.vector(e.whenFalse, context);
        const loaded = this.loadedWhere(varying, e, { ...context, dtype: own });
        const whenTrue = loaded ?? this.vector(taken, context);
        const isBlended = loaded === undefined && varying.length > 0;
        const blended = isBlended ? this.blend(varying, whenTrue, whenFalse, context) : whenTrue;
        if (alike.length === 0) return blended;
        return this.chosen(this.all(alike, context), blended, whenFalse, { ...context, dtype: own });
      }
      case "border":
      case "compare":
      case "logic":
        return internal(`"${e.kind}" is no value: ${printExpr(e)}`);
      default:
        return e satisfies never;
    }
  }

  /** Prints `a*b + c` as one float operation, even if the product is conditional. */
  protected arithmetic(e: Extract<Expr, { kind: "binary" }>, context: LaneContext): Code {
    const { op, left, right } = e;
    if (op === "+" && right.kind === "select" && isZero(right.whenFalse) && !this.isLoaded(right.whenTrue))
      return this.vector({ ...right, whenTrue: { ...e, right: right.whenTrue }, whenFalse: left }, context);
    return this.fused(e, context);
  }

  /** Whether the value is a plain load. */
  private isLoaded(e: Expr): e is Access {
    return e.kind === "access" && this.registerOf(e) === undefined;
  }

  /** A masked load that gives 0 on other lanes; undefined if both values must be computed and blended. */
  private loadedWhere(mask: readonly Expr[], of: Select, context: LaneContext): Code | undefined {
    if (!this.masksLoads || mask.length === 0 || mask.some(testsElements)) return undefined;
    if (!isZero(of.whenFalse) || !this.isLoaded(of.whenTrue)) return undefined;
    const place = this.placeOf(of.whenTrue, context);
    if (place.stride !== 1 || place.uniform.length > 0) return undefined;
    if (!outsideIsZero(this.c.outside(place.tensor, context.dtype))) return undefined;
    return this.load({ ...place, varying: [...place.varying, ...mask] }, context);
  }

  private fused({ op, left, right }: Extract<Expr, { kind: "binary" }>, context: LaneContext): Code {
    const { dtype } = context;
    const of = (e: Expr): Code => this.vector(e, context);
    const product = (e: Expr): readonly [Expr, Expr] | undefined =>
      isInteger(dtype) || !this.fuses() ? undefined : factorsIn(e);
    const after = product(right);
    const before = product(left);
    const factors = after ?? before;
    if (factors && (op === "+" || op === "-")) {
      const name = op === "+" ? "a*b+c" : after ? "c-a*b" : "a*b-c";
      return this.operation(name, [...factors, after ? left : right].map(of), dtype, context);
    }
    if (op === "%" || op === "^" || (op === "/" && isInteger(dtype)))
      internal(`lanes do not compute "${op}" of ${dtype}`);
    return this.operation(op, [of(left), of(right)], dtype, context);
  }

  private read(e: Access, context: LaneContext): Code {
    const register = this.registerOf(e);
    if (register === undefined) {
      const place = this.placeOf(e, context);
      const loaded = this.load(place, context);
      if (place.uniform.length === 0) return loaded;
      const outside = this.splat(this.c.outside(e.tensor, context.dtype), context.dtype);
      return this.chosen(this.all(place.uniform, context), loaded, outside, context);
    }
    if (!axesIn(register.lane).includes(context.axis)) return this.broadcast(register, context);
    const by = this.shiftOf(register.lane, context);
    return by === undefined ? this.permuted(register, context) : this.shifted(register, by, context);
  }

  /** Conditions that are the same on all lanes, as one. */
  private all(conditions: readonly Expr[], { extents }: LaneContext): Code {
    return allOf(conditions.map((e) => this.c.condition(e, extents)));
  }

  /** The test before a statement that applies to all lanes. */
  protected guard(uniform: readonly Expr[], context: LaneContext): Code {
    return uniform.length === 0 ? NOTHING : code`if (${this.all(uniform, context)}) `;
  }

  // ---- analysis -----------------------------------------------------------------------------------------------------------------

  protected registerOf(access: Access): LaneAccess | undefined {
    return registerIn(this.nest, access);
  }

  /** `lane + 3` is 3; undefined if the index is not a shift. */
  protected shiftOf(lane: Expr, context: LaneContext): number | undefined {
    const form = affineForm(lane);
    if (form?.terms.size !== 1 || form.terms.get(context.axis) !== 1) return undefined;
    return form.constant;
  }

  /** The register that holds lane `by` of a file's vector, and the shift between its lane 0 and ours. */
  protected partAt({ file, register }: LaneAccess, by: number): { name: Name; next: Name; shift: number } {
    const width = this.width(file.dtype, file.lanes);
    const parts = Math.ceil(file.lanes / width);
    const part = Math.floor(by / width);
    const name = (i: number): Name => registerName(file.name, register, clampTo(i, parts), parts);
    return { name: name(part), next: name(part + 1), shift: by - part * width };
  }

  /** The registers that are used, with their files. */
  protected registersIn({ registers }: Named): { readonly name: Name; readonly file: VectorFile }[] {
    return (this.nest.vectors ?? []).flatMap((file) => {
      const parts = Math.ceil(file.lanes / this.width(file.dtype, file.lanes));
      return (registers.get(file.name) ?? []).flatMap((i) =>
        Array.from({ length: parts }, (_, part) => ({ name: registerName(file.name, i, part, parts), file })),
      );
    });
  }

  protected placeOf(access: Access, context: LaneContext): LanePlace {
    const { axis: lane, extents, known = [] } = context;
    const { at, guards } = this.c.placeOf(access, extents);
    const texts = new Set(known.map((e) => printExpr(e)));
    const [uniform, varying] = split(
      guards.filter((e) => !texts.has(printExpr(e))),
      lane,
    );
    return {
      tensor: access.tensor,
      at,
      uniform,
      varying,
      first: substitute(at, new Map([[lane, number(0)]]), "index"),
      stride: strideIn(at, lane),
    };
  }

  protected checkType(own: DType, e: Expr, { dtype }: LaneContext): void {
    if (!COMPUTED.has(own)) internal(`lanes do not compute in ${own}: ${printExpr(e)}`);
    if (bytesOf(own) !== bytesOf(dtype))
      internal(`lanes of ${bytesOf(own)} and of ${bytesOf(dtype)} bytes meet in ${printExpr(e)}`);
  }
}

/** The types in which some language computes; codegen/lanes.ts refuses those of other languages. */
const COMPUTED: ReadonlySet<DType> = new Set(["f32", "f64", "s32", "s16", "f16"]);

/** The vector operations that a language supplies. */
export type LaneOperation =
  | ("+" | "-" | "*" | "/")
  | ("a*b+c" | "c-a*b" | "a*b-c")
  | ("negate" | "min" | "max" | "square" | "abs" | "round");

export function outsideIsZero(text: Code): boolean {
  return /^(\(uint16_t\))?0(\.0f?)?$/.test(skeleton(text));
}

function isZero(e: Expr): boolean {
  return e.kind === "number" && e.value === 0;
}

function clampTo(i: number, count: number): number {
  return Math.min(Math.max(i, 0), count - 1);
}
