/**
 * @file Parses the subject of `automap systolic`: one pass of an operator, an equation, or a file of recurrences.
 *
 *     conv1d                                       single channel, a tile of 16 outputs, filter 5: the case of the published table
 *     "z[c] += x[c+q]*w[q]" --c 16 --q 5
 *     design.ure
 */

import { readFileSync } from "node:fs";
import type { Extents } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import { reasonOf, UsageError, unreadable } from "../abstraction/error.ts";
import { parseSpecification, type Specification } from "../abstraction/specification.ts";
import { OPERATORS } from "../operators/index.ts";
import {
  type ArraySubject,
  arrayOfComputation,
  arrayOfSpecification,
  inWrittenOrder,
} from "../session/kinds/array-subject.ts";
import { readComputation } from "./subject.ts";

/** Defaults that differ from the operator's own: the filter sizes of the published table. */
const ARRAY_DEFAULTS: Readonly<Record<string, Extents>> = {
  conv1d: { r: 5 },
  "conv1d-single": { r: 5 },
};

export interface ArraySubjectOptions {
  readonly lanes: number;
  readonly loops?: string | undefined;
  readonly dtype?: string | undefined;
  readonly sum?: string | undefined;
  readonly keepOrder?: boolean | undefined;
}

/** @throws UsageError for words that name nothing, and for computations without a uniform recurrence */
export function readArraySubject(subject: string, parameters: Extents, options: ArraySubjectOptions): ArraySubject {
  const loops = options.loops?.split(",").map((name) => name.trim());
  const found = isFile(subject)
    ? arrayOfSpecification(specificationIn(subject, parameters), loops)
    : arrayOfComputation(computationFor(subject, parameters, options), { loops, lanes: options.lanes });
  return options.keepOrder ? inWrittenOrder(found) : found;
}

/** Operator names contain no dot and no slash; equations contain brackets. */
function isFile(subject: string): boolean {
  return !subject.includes("[") && /[./]/.test(subject);
}

function computationFor(subject: string, parameters: Extents, { dtype, sum }: ArraySubjectOptions): Computation {
  const operator = OPERATORS.find((o) => o.name === subject.toLowerCase() || o.aliases.includes(subject.toLowerCase()));
  const defaults = operator ? ARRAY_DEFAULTS[operator.name] : undefined;
  return readComputation(subject, { ...defaults, ...parameters }, { dtype, sum });
}

function specificationIn(file: string, parameters: Extents): Specification {
  const [given] = Object.keys(parameters);
  if (given !== undefined)
    throw new UsageError(
      `${file} says how long its loops are; --${given} has no place there`,
      "change the line that begins with loops",
    );
  return parseSpecification(readText(file));
}

function readText(file: string): string {
  try {
    return readFileSync(file, "utf8");
  } catch (error) {
    throw unreadable(
      `cannot read ${file}: ${reasonOf(error)}`,
      error,
      "an operator's name, an equation in quotes, or a file of recurrences is wanted",
    );
  }
}
