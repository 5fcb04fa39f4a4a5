/**
 * @file The entry automap/systolic: recurrences, designs of systolic arrays, and their programs.
 *
 *     import { enumerateDesigns, lowerDesign, recurrenceOf } from "automap/systolic";
 *
 * @module automap/systolic
 */

export type { Recurrence, SpaceTime } from "../abstraction/recurrence.ts";
export { type ArrayPass, arrayPass, derive, recurrenceOf } from "../mapper/space-time/derive.ts";
export { type Design, designOf, type OperandFlow } from "../mapper/space-time/design.ts";
export {
  type DesignOptions,
  type DesignSet,
  enumerateDesigns,
  type ListedDesign,
} from "../mapper/space-time/enumerate.ts";
export { type LowerOptions, lowerDesign } from "../mapper/space-time/lower.ts";
export { paretoSet } from "../mapper/space-time/pareto.ts";
export type { ArrayLoopOptions, ArrayProblem } from "../mapper/space-time/problem.ts";
export type { ReverseDefinition } from "../mapper/space-time/reverse.ts";
export { refusalOf, type SpaceTimeRefusal } from "../mapper/space-time/validity.ts";
export type { Vector } from "../mapper/space-time/vector.ts";
export { designInLanguage } from "../session/kinds/languages.ts";
