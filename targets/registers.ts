/**
 * @file The registers that operands name, over all families.
 *
 *     registerClass("zmm").count             32
 *     registerClass("tile").named            "number": _tile_dpbusd(0, 6, 7)
 */

import type { RegisterClass } from "../abstraction/machine.ts";
import { FAMILIES } from "./features.ts";

const CLASSES: ReadonlyMap<string, RegisterClass> = new Map(
  FAMILIES.flatMap((family) => family.registers.map((r) => [r.name, r] as const)),
);

/** Undefined for a file of no machine: an accelerator on paper names its own. */
export function registerClass(file: string): RegisterClass | undefined {
  return CLASSES.get(file);
}

/** Whether registers of a file are numbers, and not variables. */
export function isNumbered(file: string): boolean {
  return CLASSES.get(file)?.named === "number";
}

/** The widest vector register of a machine: of its CPU, else what plain C++ has everywhere. */
export function widestVector({ isa }: { readonly isa: readonly string[] }): RegisterClass {
  const own = [...CLASSES.values()].filter((r) => r.constraint && r.feature && isa.includes(r.feature));
  const widest = own.sort((a, b) => (b.bytes ?? 0) - (a.bytes ?? 0))[0] ?? CLASSES.get("vec");
  if (!widest) throw new Error("internal: plain C++ has no registers");
  return widest;
}
