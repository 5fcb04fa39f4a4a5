/**
 * @file The one lowered program: what a mapping becomes, what the interpreter runs and every generator prints.
 *
 *     buffer a_tiles: u8[1024]
 *     for m_outer in 0..4
 *       for k_outer in 0..2
 *         c_tiles[256*m_outer ..] <- tdpbusd(a_tiles[1024*m_outer + 512*k_outer ..], b_tiles[512*k_outer ..])
 *
 * A scalar statement is an equation at the point its loops stand at, so the same notation serves from the operator down to the copy.
 * User tensors are read and written by logical index, outside reads giving the identity; scratch buffers are flat.
 */

import type { DType } from "./dtype.ts";
import { type Equation, printEquation } from "./equation.ts";
import { type Access, type Expr, printAccess, printExpr, substitute } from "./expression.ts";
import type { Intrinsic } from "./intrinsic.ts";

/** Memory of a nest besides the user's tensors, flat, starting at zero. */
export interface Scratch {
  readonly name: string;
  readonly dtype: DType;
  readonly elements: number;
  /** `workspace` lasts from call to call and is shared by threads; `local` belongs to one thread. */
  readonly scope: "workspace" | "local";
}

/** Registers of one operand of an instruction, each holding one tile. */
export interface RegisterFile {
  readonly name: string;
  readonly intrinsic: Intrinsic;
  readonly operand: string;
  readonly count: number;
}

/**
 * Vectors of lanes: `count` registers of `lanes` elements, element l of a register in lane l. They are indexed `[register, lane]`, the
 * register by a number known while printing. `Z[0,lane-1]` is the neighbour's value: a shift. What a lane reads beyond the ends of a
 * register is unknown (the interpreter gives NaN): whoever reads it must not use it.
 */
export interface VectorFile {
  readonly name: string;
  readonly dtype: DType;
  readonly lanes: number;
  readonly count: number;
}

/**
 * How the steps of a loop run: in order, all written out, dealt to threads in equal ranges, or all at once on the lanes of a vector.
 * A `lanes` loop holds scalar statements only. Each runs on every lane before the next begins, and every lane reads before any writes:
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b + lane] * w[q]          shift, contiguous load, broadcast, multiply-add
 *       s[0,0] += X[0,lane]                                      an access that lacks the lane axis on the left: a reduction
 */
export type LoopMode = "serial" | "unrolled" | "parallel" | "lanes";

export type Statement =
  | {
      readonly kind: "loop";
      readonly axis: string;
      readonly extent: number;
      readonly mode: LoopMode;
      readonly body: readonly Statement[];
    }
  /** One scalar statement; its axes are bound by the loops around it. Tensors are indexed logically, scratch by element. */
  | {
      readonly kind: "scalar";
      readonly equation: Equation;
      /** An element to bring into the cache for later: it changes no value and may lie outside its tensor. */
      readonly prefetch?: Access;
    }
  /** One issue of an instruction on memory tiles that begin at the given elements. */
  | { readonly kind: "issue"; readonly intrinsic: Intrinsic; readonly tiles: Readonly<Record<string, TileAt>> }
  /** Moves a tile between memory and a register; `clear` sets a register to the identity of the instruction's combine. */
  | {
      readonly kind: "load" | "store";
      readonly register: RegisterAt;
      readonly memory: MemoryTile;
    }
  | { readonly kind: "clear"; readonly register: RegisterAt }
  /** One issue on registers. */
  | {
      readonly kind: "register-issue";
      readonly intrinsic: Intrinsic;
      readonly registers: Readonly<Record<string, RegisterAt>>;
    }
  /** All threads have finished what is above before any begins what is below; at the top of a nest only. */
  | { readonly kind: "barrier" };

/** A tile in a scratch buffer: the element it begins at. */
export interface TileAt {
  readonly buffer: string;
  readonly base: Expr;
}

export interface RegisterAt {
  readonly file: string;
  /** Number within the file. */
  readonly index: Expr;
}

/** A tile in flat memory: a scratch buffer, or a user's tensor in its storage order. */
export interface MemoryTile {
  readonly buffer: string;
  /** Element of the tile's first place. */
  readonly base: Expr;
  /** Elements from one row of the tile to the next. */
  readonly stride: number;
}

export interface LoopNest {
  readonly scratch: readonly Scratch[];
  readonly registers: readonly RegisterFile[];
  /** Vectors that lanes compute on; none when left out. */
  readonly vectors?: readonly VectorFile[];
  /** Run once, ahead of the calls: constants are packed. */
  readonly prepare: readonly Statement[];
  /** Run at every call. */
  readonly body: readonly Statement[];
}

export const loop = (
  axis: string,
  extent: number,
  body: readonly Statement[],
  mode: LoopMode = "serial",
): Statement => ({ kind: "loop", axis, extent, mode, body });

/** Loops around a body, outermost first; loops of one step are kept, so that every axis stays bound. */
export function loops(
  axes: readonly { readonly name: string; readonly extent: number }[],
  body: readonly Statement[],
): readonly Statement[] {
  return axes.reduceRight<readonly Statement[]>((inner, { name, extent }) => [loop(name, extent, inner)], body);
}

/** A statement with an axis of the loops around it replaced. */
export function substituteAxis(s: Statement, name: string, value: Expr): Statement {
  const change = (e: Expr): Expr => substitute(e, new Map([[name, value]]), "index");
  const register = (r: RegisterAt): RegisterAt => ({ ...r, index: change(r.index) });
  switch (s.kind) {
    case "loop":
      return { ...s, body: s.body.map((inner) => substituteAxis(inner, name, value)) };
    case "scalar": {
      const { target, op, value: what, where } = s.equation;
      const equation = {
        target: { ...target, index: target.index.map(change) },
        op,
        value: substitute(what, new Map([[name, value]])),
      };
      const { prefetch } = s;
      return {
        ...s,
        equation: where === undefined ? equation : { ...equation, where: change(where) },
        ...(prefetch && { prefetch: { ...prefetch, index: prefetch.index.map(change) } }),
      };
    }
    case "load":
    case "store":
      return { ...s, register: register(s.register), memory: { ...s.memory, base: change(s.memory.base) } };
    case "clear":
      return { ...s, register: register(s.register) };
    case "register-issue": {
      const registers = Object.fromEntries(Object.entries(s.registers).map(([o, r]) => [o, register(r)]));
      return { ...s, registers };
    }
    case "issue":
    case "barrier":
      return s;
    default:
      return s satisfies never;
  }
}

/** The nest as text, for `explain` and for tests. */
export function printNest(nest: LoopNest): string {
  const lines = nest.scratch.map((s) => `${s.scope} ${s.name}: ${s.dtype}[${s.elements}]`);
  for (const r of nest.registers) lines.push(`registers ${r.name}: ${r.count} x ${r.intrinsic.name}.${r.operand}`);
  for (const v of nest.vectors ?? []) lines.push(`vectors ${v.name}: ${v.count} x ${v.dtype}[${v.lanes}]`);
  if (nest.prepare.length > 0) lines.push("prepare", ...printStatements(nest.prepare, "  "), "run");
  lines.push(...printStatements(nest.body, nest.prepare.length > 0 ? "  " : ""));
  return lines.join("\n");
}

function printStatements(statements: readonly Statement[], indent: string): string[] {
  return statements.flatMap((s): string[] => {
    switch (s.kind) {
      case "loop": {
        const mode = s.mode === "serial" ? "" : ` ${s.mode}`;
        return [`${indent}for${mode} ${s.axis} in 0..${s.extent}`, ...printStatements(s.body, `${indent}  `)];
      }
      case "scalar":
        return [indent + printEquation(s.equation) + (s.prefetch ? `   (prefetch ${printAccess(s.prefetch)})` : "")];
      case "issue": {
        const [target, ...inputs] = s.intrinsic.operands.map((o) => {
          const tile = s.tiles[o.name];
          return tile ? `${tile.buffer}[${printExpr(tile.base, "formula")} ..]` : "?";
        });
        return [`${indent}${target} <- ${s.intrinsic.name}(${inputs.join(", ")})`];
      }
      case "load":
        return [`${indent}${printRegister(s.register)} <- ${printTile(s.memory)}`];
      case "store":
        return [`${indent}${printTile(s.memory)} <- ${printRegister(s.register)}`];
      case "clear":
        return [`${indent}${printRegister(s.register)} <- identity`];
      case "register-issue": {
        const [target, ...inputs] = s.intrinsic.operands.map((o) => {
          const register = s.registers[o.name];
          return register ? printRegister(register) : "?";
        });
        return [`${indent}${target} <- ${s.intrinsic.name}(${inputs.join(", ")})`];
      }
      case "barrier":
        return [`${indent}barrier`];
      default:
        return s satisfies never;
    }
  });
}

function printRegister({ file, index }: RegisterAt): string {
  return `${file}{${printExpr(index, "formula")}}`;
}

function printTile({ buffer, base, stride }: MemoryTile): string {
  return `${buffer}[${printExpr(base, "formula")} .. by ${stride}]`;
}
