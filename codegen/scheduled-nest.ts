/**
 * @file The leaves that C++, C for Metal, OpenCL C and SYCL print alike in the nest of a mapping under a schedule of loops.
 *
 *     for k in 0..4 from m to n        for (long k = at_least<long>(m, 0); k < at_most<long>(n, 4); k++) {
 *     c{0}, c{1}                       int32_t c0; int32_t c1;
 *     out[p] = c[p] where p < 7        if (p < 7) out[p] = c[p];
 *
 * Prints the operations on instruction registers that all languages share: clear, load and store with the
 * operand's own text, and issue. A language supplies the syntax of a register: a variable, an array element, or a tile
 * number.
 *
 *     c{3} <- identity                     c3 = __m512i{};
 *     c{3} <- tdpbusd(a{0}, b{1})          _tile_dpbusd(3, 4, 6);
 */

import type { Extents } from "../abstraction/affine.ts";
import { withName } from "../abstraction/collections.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import { type Equation, type Expr, number, printExpr } from "../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, type Operand, operandOf } from "../abstraction/intrinsic.ts";
import type { LoopNest, RegisterAt, RegisterFile } from "../abstraction/loop-nest.ts";
import { axisName, type Code, code, Name, tensorName } from "../abstraction/source-text.ts";
import { clearRegister, declareRegister, isNumbered } from "../targets/registers.ts";
import type { CExpressions } from "./c-expressions.ts";
import { guarded } from "./lane-printer.ts";
import type { Loop, Named, Of } from "./walk.ts";

export abstract class TileRegisters {
  protected readonly nest: LoopNest;

  constructor(nest: LoopNest) {
    this.nest = nest;
  }

  /** A register whose number is known at print time. */
  protected abstract register(at: RegisterAt): Code;

  protected fileOf({ file }: RegisterAt): RegisterFile {
    return withName(this.nest.registers, file) ?? internal(`no registers "${file}"`);
  }

  /** The operand that a register holds, and its instruction. */
  protected heldAt(at: RegisterAt): { readonly intrinsic: Intrinsic; readonly operand: Operand } {
    const { intrinsic, operand } = this.fileOf(at);
    return { intrinsic, operand: operandOf(intrinsic, operand) };
  }

  clear({ register }: Of<"clear">): Code[] {
    const { intrinsic, operand } = this.heldAt(register);
    return [clearRegister(intrinsic, operand, this.register(register))];
  }

  /** @param others operands that are not in registers */
  protected issued(
    { intrinsic, registers, begins }: Of<"register-issue">,
    others: Readonly<Record<string, Code>> = {},
  ): Code[] {
    const names = Object.entries(registers).map(([o, r]) => [o, this.register(r)] as const);
    const text = begins ? (intrinsic.begin ?? internal(`${intrinsic.name} always adds to its sums`)) : intrinsic.emit;
    return [fillTemplate(text, { ...Object.fromEntries(names), ...others })];
  }

  /**
   * Moves a tile with the operand's own load or store.
   * @param stride elements between rows
   * @param more further template values of a language
   * @throws Error if the operand has none
   */
  protected moved(
    kind: "load" | "store",
    register: RegisterAt,
    pointer: Code,
    stride: number,
    more: Readonly<Record<string, Code>> = {},
  ): Code {
    const { intrinsic, operand } = this.heldAt(register);
    const template = operand[kind] ?? internal(`${intrinsic.name} does not ${kind} ${operand.name} by itself`);
    const words = {
      reg: this.register(register),
      ptr: pointer,
      stride: code`${stride * bytesOf(operand.dtype)}`,
      ...more,
    };
    return fillTemplate(template, words);
  }
}

export abstract class ScheduledNest extends TileRegisters {
  protected readonly c: CExpressions;
  /** The type of loop counters. */
  readonly indexType: "int" | "long";

  constructor(c: CExpressions, indexType = c.indexType) {
    super(c.nest);
    this.c = c;
    this.indexType = indexType;
  }

  /** The larger or the smaller of two bounds of a loop. */
  protected bounded(helper: "at_least" | "at_most", bound: Code, other: Code): Code {
    return this.c.words.called(helper, ["int64_t"], [bound, other]);
  }

  openLoop({ axis, extent, range, mode, inTurn }: Loop, extents: Extents): Code {
    const name = axisName(axis);
    const type = this.indexType;
    if (mode === "parallel" && inTurn)
      return code`for (${type} ${name} = part; ${name} < ${extent}; ${name} += parts) {`;
    const bound = (helper: "at_least" | "at_most", first: number, others: readonly Expr[] = []): Code =>
      others.reduce((text, e) => this.bounded(helper, this.c.index(e, extents), text), code`${first}`);
    const from = bound("at_least", 0, range?.from);
    const to = bound("at_most", extent, range?.to);
    return code`for (${type} ${name} = ${from}; ${name} < ${to}; ${name}++) {`;
  }

  openWhen({ condition }: Of<"when">, extents: Extents): Code {
    return code`if (${this.c.condition(condition, extents)}) {`;
  }

  issue(statement: Of<"register-issue">): Code[] {
    return this.issued(statement);
  }

  protected assigned({ equation }: Of<"scalar">, extents: Extents): Code[] {
    if (equation.op !== "=") internal(`a scheduled nest assigns, it does not ${equation.op}`);
    return this.stored(equation, this.c.dtypes[equation.target.tensor] ?? "f32", extents);
  }

  /** An assignment of a value of the target's type. */
  protected stored({ target, value, where }: Equation, dtype: DType, extents: Extents): Code[] {
    const place = this.c.place(target, extents);
    const statement = code`${tensorName(target.tensor)}[${place.at}] = ${this.c.value(value, dtype, extents)};`;
    return guarded([where !== undefined && this.c.condition(where, extents), ...place.guards], [statement]);
  }

  /** `c3`: a variable for each register. */
  protected override register(at: RegisterAt): Code {
    const { name, operand } = this.fileOf(at);
    const { index } = at;
    if (index.kind !== "number") internal(`register ${printExpr(index)} is not known while printing`);
    return code`${new Name("register", `${operand}${index.value}`, `${name} ${index.value}`)}`;
  }

  /** Declarations of the registers that a phase uses. */
  protected registersOf({ registers }: Named): Code[] {
    return this.nest.registers.flatMap(({ name, intrinsic, operand: word }) => {
      const operand = operandOf(intrinsic, word);
      const numbers = isNumbered(operand.file) ? [] : (registers.get(name) ?? []);
      return numbers.map((i) => declareRegister(intrinsic, operand, this.register({ file: name, index: number(i) })));
    });
  }
}
