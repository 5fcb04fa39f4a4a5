/**
 * @file The registers that operands name, over all families, and how the language of an instruction declares and clears them.
 *
 *     registerClass("zmm").count                               32
 *     registerClass("tile").numbered                           true: _tile_dpbusd(0, 6, 7)
 *     declareRegister(vpdpbusd, operandOf(vpdpbusd, "c"), code`c`)        __m512i c;
 *     clearRegister(tdpbusd, operandOf(tdpbusd, "c"), code`0`)            _tile_zero(0);
 */

import { evaluateIndex, extentOf } from "../abstraction/affine.ts";
import { upTo } from "../abstraction/collections.ts";
import { extentsOf } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import { type Expr, identityOf, number, plus, substitute, times } from "../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, lanesOf, type Operand, registerElements } from "../abstraction/intrinsic.ts";
import type { HalfBytes, LaneArithmetic, RegisterClass } from "../abstraction/machine.ts";
import { tileElements } from "../abstraction/memory-tile.ts";
import { parseExpr } from "../abstraction/parse.ts";
import { apart, type Code, code, filled, list, type Name, NOTHING, trustedCode } from "../abstraction/source-text.ts";
import { FAMILIES, familyOf } from "./features.ts";

const CLASSES: ReadonlyMap<string, RegisterClass> = new Map(
  FAMILIES.flatMap((family) => family.registers.map((r) => [r.name, r] as const)),
);

/** Undefined for a file that no machine has: an accelerator on paper names its own. */
export function registerClass(file: string): RegisterClass | undefined {
  return CLASSES.get(file);
}

/** Machine registers that one register of a file takes. */
export function registersTaken(file: string): number {
  return CLASSES.get(file)?.takes ?? 1;
}

/** The text that declares an instruction of C++: its own prelude, else the header of its family. */
export function preludeOf(intrinsic: Intrinsic): Code {
  const { prelude } = intrinsic;
  if (prelude !== undefined) return apart(fillTemplate(prelude));
  return trustedCode((familyOf(intrinsic).header ?? "").trimEnd());
}

/** Whether registers of a file are numbers rather than variables. */
export function isNumbered(file: string): boolean {
  return CLASSES.get(file)?.numbered === true;
}

/** The widest vector register of a machine's CPU, else that of plain C++. */
export function widestVector({ isa }: { readonly isa: readonly string[] }): RegisterClass {
  const own = [...CLASSES.values()].filter(
    (r) => r.constraint && !r.sizeless && !r.takes && r.feature && isa.includes(r.feature),
  );
  return (
    own.sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))[0] ??
    CLASSES.get("vec") ??
    internal("plain C++ has no registers")
  );
}

/** A statement that declares a register; empty when registers are numbers. @throws Error for a type that the file does not hold */
export function declareRegister(intrinsic: Intrinsic, operand: Operand, variable: Code | Name): Code {
  const { name, dtype, file } = operand;
  const registers = classOf(operand);
  if (registers.numbered) return NOTHING;
  const type = registers.types?.[dtype] ?? registers.otherwise;
  if (type === undefined)
    throw new Error(`${intrinsic.name}: no register type is known for ${dtype} in "${file}" (operand ${name})`);
  const elements = registerElements(intrinsic, operand);
  const extents = extentsOf(intrinsic.computation);
  return filled(trustedCode(registers.declared ?? "{type} {reg};"), {
    reg: variable,
    type: trustedCode(type),
    elements: code`${elements}`,
    width: elements === 1 ? NOTHING : code`${elements}`,
    sizes: list(operand.dims.map((d) => code`${d.extent}`)),
    words: code`${(elements / lanesOf(intrinsic)) * (bytesOf(dtype) / 4)}`,
    shape: list(["m", "n", "k"].flatMap((axis) => (axis in extents ? [code`${extentOf(axis, extents)}`] : []))),
  });
}

/** A statement that sets a register to the identity of its combine: by the operand's own code, else to zeros. */
export function clearRegister(intrinsic: Intrinsic, operand: Operand, register: Code): Code {
  if (operand.clear !== undefined) return fillTemplate(operand.clear, { reg: register });
  if (identityOf(intrinsic.computation.equation.op, operand.dtype) !== 0)
    internal(`${intrinsic.name} does not start from zero`);
  return filled(trustedCode(classOf(operand).cleared ?? "{reg} = 0;"), { reg: register });
}

/**
 * The vector of an operand from elements of a narrower type that lie side by side at `{ptr}`; undefined where there is none. An operand whose
 * elements are copied to several lanes has none: its conversions would be as many as the instructions that use them.
 */
export function widenedLoad(operand: Operand, stored: DType): Code | undefined {
  const code = isVector(operand) ? registerClass(operand.file)?.widened?.[operand.dtype]?.[stored] : undefined;
  return code === undefined ? undefined : trustedCode(code);
}

/** Texts of a table as code. */
type InCode<T> = { readonly [K in keyof T]: T[K] extends string | undefined ? Code : T[K] };

function inCode<T extends object>(texts: T | undefined): InCode<T> | undefined {
  if (texts === undefined) return undefined;
  const entries = Object.entries(texts).map(([name, text]) => [
    name,
    typeof text === "string" ? trustedCode(text) : text,
  ]);
  return Object.fromEntries(entries) as InCode<T>; // the same entries
}

/** How numbers of half a byte fill the register of an operand; undefined where there is no way. */
export const halfBytesOf = (operand: Operand): InCode<HalfBytes> | undefined =>
  isVector(operand) ? inCode(registerClass(operand.file)?.halfBytes?.[operand.dtype]) : undefined;

/** The byte that holds the number of a lane in half bytes, and its half: 0 is the low one. */
export function halfPlaces(operand: Operand, lane: Expr): { readonly byte: Expr; readonly half: Expr } {
  const { place } = halfBytesOf(operand) ?? internal(`${operand.name} is not read from half bytes`);
  return { byte: ofLane(place.byte, lane), half: ofLane(place.half, lane) };
}

/** The number that each lane takes of a tile of half bytes. */
export const numbersTaken = (operand: Operand): readonly number[] =>
  upTo(tileElements(operand)).map((lane) => {
    const { byte, half } = halfPlaces(operand, number(lane));
    return evaluateIndex(plus(times(2, byte), half), {});
  });

/** The element that a lane takes of those at an address which its arithmetic loads. */
export function takenBy(operand: Operand, lane: Expr): Expr {
  const place = laneArithmetic(operand)?.place;
  return place === undefined ? lane : ofLane(place.element, lane);
}

const ofLane = (formula: string, lane: Expr): Expr =>
  substitute(parseExpr(formula), new Map([["lane", lane]]), "index");

/** How lanes of the register of an operand compute; undefined where no code is known. */
export const laneArithmetic = (operand: Operand): InCode<LaneArithmetic> | undefined =>
  isVector(operand) ? inCode(registerClass(operand.file)?.arithmetic?.[operand.dtype]) : undefined;

/** Whether each element of an operand has a lane of its own. */
function isVector(operand: Operand): boolean {
  const isWhole = tileElements(operand) * bytesOf(operand.dtype) === registerClass(operand.file)?.bytes;
  return isWhole && operand.broadcast.length === 0;
}

function classOf({ name, file }: Operand): RegisterClass {
  const found = registerClass(file);
  if (!found) throw new Error(`no machine has registers "${file}" (operand ${name})`);
  return found;
}
