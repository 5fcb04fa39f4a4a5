/**
 * @file Prints the operations on instruction registers that all languages share: clear, load and store with the
 * operand's own text, and issue. A language supplies the syntax of a register: a variable, an array element, or a tile
 * number.
 *
 *     c{3} <- identity                     c3 = __m512i{};
 *     c{3} <- tdpbusd(a{0}, b{1})          _tile_dpbusd(3, 4, 6);
 */

import { bytesOf } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import { fillTemplate, type Intrinsic, type Operand, operandOf } from "../abstraction/intrinsic.ts";
import type { LoopNest, RegisterAt, RegisterFile } from "../abstraction/loop-nest.ts";
import { type Code, code } from "../abstraction/source-text.ts";
import { clearRegister } from "../targets/registers.ts";
import type { Of } from "./walk.ts";

export abstract class TileRegisters {
  protected readonly nest: LoopNest;

  constructor(nest: LoopNest) {
    this.nest = nest;
  }

  /** A register whose number is known at print time. */
  protected abstract register(at: RegisterAt): Code;

  protected fileOf({ file }: RegisterAt): RegisterFile {
    return this.nest.registers.find((r) => r.name === file) ?? internal(`no registers "${file}"`);
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
    { intrinsic, registers }: Of<"register-issue">,
    others: Readonly<Record<string, Code>> = {},
  ): Code[] {
    const names = Object.entries(registers).map(([o, r]) => [o, this.register(r)] as const);
    return [fillTemplate(intrinsic.emit, { ...Object.fromEntries(names), ...others })];
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
