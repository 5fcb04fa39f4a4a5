/**
 * @file A systolic array as its author specifies it: recurrences (what is computed when), then where it runs.
 *
 *     recurrence conv1d
 *     loops c 40, q 5
 *     X[c,q] = select(q == 0 or c == 39, x[c+q], X[c+1,q-1])
 *     Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * w[q]
 *     out[c] = Z[c,q] where q == 4
 *     merge_ures(X, Z, out)
 *     tile(c, c_tile, c_in, 12)
 *     reorder(c_tile, c_in, q)
 *     gpu_blocks(c_tile)
 *     store_in(x, shared)
 *     space_time_transform([c_in, q], [k, t], [[1,1],[0,1]], [q = t, c_in = k-q], check_time)
 *
 * Each primitive of the published language (Systolic Computing on GPUs for Productive Performance, Table 1) has its counterpart of the same
 * name; `set_bounds` is the `loops` line, and loops are listed outermost first.
 */

import { offendingPart } from "./affine.ts";
import { namesOf } from "./collections.ts";
import { suggestion, UsageError } from "./error.ts";
import type { Expr } from "./expression.ts";
import { parseExpr } from "./parse.ts";
import { lineError, linesOf, parseRecurrence, type Recurrence, type SpaceTime } from "./recurrence.ts";

/** `loop = value`, in the destination loops and the loops defined before. */
interface ReverseLine {
  readonly loop: string;
  readonly value: Expr;
}

export interface SpaceTimeTransform {
  readonly kind: "space_time_transform";
  /** Columns of the matrix. */
  readonly source: readonly string[];
  /** Rows of the matrix: dimensions of the array, then of time. Those of time begin with `t`. */
  readonly destination: readonly string[];
  readonly matrix: readonly (readonly number[])[];
  /** The inverse; computed when left out. */
  readonly reverse?: readonly ReverseLine[];
  /** Whether a PE tests at every step whether it holds a point. */
  readonly checkTime: boolean;
}

/** Where values are kept: in vectors of lanes, or once for a whole block. */
export const STORES = ["registers", "shared"] as const;
type Store = (typeof STORES)[number];

/** One step of a spatial mapping, in the order written. */
type SpatialStep =
  | { readonly kind: "merge_ures"; readonly names: readonly string[] }
  | {
      readonly kind: "tile";
      readonly loop: string;
      readonly outer: string;
      readonly inner: string;
      readonly size: number;
    }
  | { readonly kind: "reorder" | "gpu_blocks" | "gpu_threads"; readonly loops: readonly string[] }
  | { readonly kind: "store_in"; readonly name: string; readonly store: Store }
  | SpaceTimeTransform;

const PRIMITIVES = [
  "merge_ures",
  "tile",
  "reorder",
  "gpu_blocks",
  "gpu_threads",
  "store_in",
  "space_time_transform",
] as const satisfies readonly string[];

/** What is computed and how it is laid out in space and time. */
export interface Specification {
  readonly recurrence: Recurrence;
  readonly steps: readonly SpatialStep[];
}

/** Reads recurrences followed by their spatial mapping. @throws UsageError with the place marked */
export function parseSpecification(source: string): Specification {
  const spatial: { readonly step: SpatialStep; readonly fail: Fail }[] = [];
  let temporal = "";
  let end = 0;
  for (const line of linesOf(source)) {
    // Blank out the spatial lines, so that recurrences keep their places in the text.
    temporal += source.slice(end, line.start).replace(/[^\n]/g, " ");
    end = line.start + line.text.length;
    const [, word = "", inside] = /^\s*([A-Za-z_]\w*)\s*\((.*)\)\s*$/.exec(line.text) ?? [];
    const equation = /[^=<>!]=[^=]/.test(line.text.replace(/\(.*\)/, ""));
    if (inside === undefined || equation) {
      temporal += line.text;
      continue;
    }
    temporal += " ".repeat(line.text.length);
    const fail: Fail = (message, hint) => {
      throw lineError(source, line, message, { hint });
    };
    spatial.push({ step: parseStep(word, inside, fail), fail });
  }
  const recurrence = parseRecurrence(temporal);
  check(recurrence, spatial);
  return { recurrence, steps: spatial.map((s) => s.step) };
}

/** The transform's rows, divided into those of the array and those of time. */
export function spaceTimeOf({ destination, matrix }: SpaceTimeTransform): SpaceTime {
  const rows = (time: boolean): (readonly number[])[] => matrix.filter((_, r) => isTime(destination[r] ?? "") === time);
  return { allocation: rows(false), schedule: rows(true) };
}

function isTime(destination: string): boolean {
  return destination.startsWith("t");
}

/** Refuses the line of a step. */
type Fail = (message: string, hint?: string) => never;

/** Checks the steps against the recurrence: names exist, each loop is placed once, and the matrix has the right shape. */
function check(
  { loops, definitions, results, tensors, variables }: Recurrence,
  steps: readonly { readonly step: SpatialStep; readonly fail: Fail }[],
): void {
  let names = namesOf(loops);
  const transformed = new Set<string>();
  for (const { step, fail } of steps) {
    const loopNamed = (name: string): void => {
      if (!names.includes(name)) fail(`${step.kind}: no loop "${name}"`, suggestion(name, names));
    };
    switch (step.kind) {
      case "merge_ures": {
        const known = [...definitions, ...results].map((e) => e.target.tensor);
        for (const name of step.names)
          if (!known.includes(name)) fail(`merge_ures: no equation defines "${name}"`, suggestion(name, known));
        const left = known.find((name) => !step.names.includes(name));
        if (left !== undefined) fail(`merge_ures: ${left} is defined but not merged`);
        break;
      }
      case "tile":
        loopNamed(step.loop);
        if (!Number.isSafeInteger(step.size) || step.size < 1)
          fail(`tile: the size of a tile of ${step.loop} must be a positive integer, got ${step.size}`);
        names = names.flatMap((name) => (name === step.loop ? [step.outer, step.inner] : [name]));
        if (new Set(names).size < names.length) fail(`tile: ${step.outer} and ${step.inner} must be new names`);
        break;
      case "reorder":
      case "gpu_blocks":
      case "gpu_threads":
        for (const name of step.loops) loopNamed(name);
        if (step.kind !== "reorder")
          for (const name of step.loops)
            if (transformed.has(name)) fail(`${step.kind}: loop ${name} is in the array already`);
        break;
      case "store_in":
        if (!Object.hasOwn(tensors, step.name) && !Object.hasOwn(variables, step.name))
          fail(
            `store_in: no tensor or variable "${step.name}"`,
            suggestion(step.name, [...Object.keys(tensors), ...Object.keys(variables)]),
          );
        if (step.store === "shared" && !Object.hasOwn(tensors, step.name))
          fail(`store_in: variable ${step.name} lives in registers; only tensors that are read can be shared`);
        break;
      case "space_time_transform": {
        if (transformed.size > 0)
          fail("space_time_transform: there can be one; join several projections in one matrix");
        for (const name of step.source) {
          loopNamed(name);
          transformed.add(name);
        }
        const { destination, matrix, source } = step;
        if (matrix.length !== destination.length)
          fail(
            `space_time_transform: ${matrix.length} rows for ${destination.length} destination loops (${destination.join(", ")})`,
          );
        const row = matrix.find((r) => r.length !== source.length);
        if (row)
          fail(
            `space_time_transform: row (${row.join(",")}) has ${row.length} entries for ${source.length} source loops (${source.join(", ")})`,
          );
        if (!destination.some(isTime))
          fail("space_time_transform: no destination loop is time; its name begins with t");
        if (destination.every(isTime))
          fail("space_time_transform: no destination loop is space; names of time begin with t");
        break;
      }
      default:
        step satisfies never;
    }
  }
}

function parseStep(word: string, inside: string, fail: Fail): SpatialStep {
  const parts = splitTop(inside);
  const names = (list: readonly string[]): string[] => {
    for (const name of list) if (!/^[A-Za-z_]\w*$/.test(name)) fail(`${word}: expected a name, got "${name}"`);
    return [...list];
  };
  const [first = "", second = "", third = "", fourth = ""] = parts;
  switch (word) {
    case "merge_ures":
      return { kind: "merge_ures", names: names(parts) };
    case "reorder":
    case "gpu_blocks":
    case "gpu_threads":
      return { kind: word, loops: names(parts) };
    case "tile": {
      if (parts.length !== 4 || !/^\d+$/.test(fourth))
        fail("tile takes a loop, two new names and a size", "for example: tile(c, c_tile, c_in, 16)");
      const [loop = "", outer = "", inner = ""] = names([first, second, third]);
      return { kind: "tile", loop, outer, inner, size: Number(fourth) };
    }
    case "store_in": {
      const store = STORES.find((s) => s === second);
      if (store === undefined || parts.length !== 2)
        return fail(`store_in takes a name and one of ${STORES.join(", ")}`, "for example: store_in(x, shared)");
      return { kind: "store_in", name: names([first])[0] ?? "", store };
    }
    case "space_time_transform": {
      const list = (text: string, what: string): string[] => {
        const [, within] = /^\[(.*)\]$/.exec(text) ?? [];
        if (within === undefined) return fail(`space_time_transform: expected ${what} in brackets, got "${text}"`);
        return within.trim() === "" ? [] : splitTop(within);
      };
      const options = parts.slice(3);
      const checkTime = options.includes("check_time");
      const rest = options.filter((o) => o !== "check_time" && o !== "no_check_time");
      const integer = (text: string): number =>
        /^-?\d+$/.test(text) ? Number(text) : fail(`space_time_transform: the matrix holds integers, got "${text}"`);
      const base = {
        kind: "space_time_transform",
        source: names(list(first, "source loops")),
        destination: names(list(second, "destination loops")),
        matrix: list(third, "rows of a matrix").map((row) => list(row, "a row").map(integer)),
        checkTime,
      } as const;
      const [reverse, ...more] = rest;
      if (more.length > 0) fail(`space_time_transform: unexpected "${more[0]}"`);
      if (reverse === undefined) return base;
      return { ...base, reverse: list(reverse, "a reverse transform").map((text) => reverseLine(text)) };
    }
    default:
      return fail(`no primitive "${word}"`, suggestion(word, PRIMITIVES));
  }
}

/** `q = t/5` */
function reverseLine(text: string): ReverseLine {
  const [, loop = "", value = ""] = /^\s*([A-Za-z_]\w*)\s*=\s*(.+)$/.exec(text) ?? [];
  if (loop === "") throw new UsageError(`reverse transform: expected "loop = value", got "${text.trim()}"`);
  const e = parseExpr(value, `reverse transform of ${loop}`);
  const offending = offendingPart(e);
  if (offending) throw new UsageError(`reverse transform of ${loop}: ${offending.because}`);
  return { loop, value: e };
}

/** Splits at commas outside brackets. */
function splitTop(text: string): string[] {
  const parts: string[] = [];
  let depth = 0;
  let part = "";
  for (const c of text) {
    if (c === "[" || c === "(") depth++;
    if (c === "]" || c === ")") depth--;
    if (c === "," && depth === 0) {
      parts.push(part.trim());
      part = "";
    } else part += c;
  }
  parts.push(part.trim());
  return parts;
}
