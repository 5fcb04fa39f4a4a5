/**
 * @file The decisions of products with a matrix for each dimension, on the cores of a processor.
 *
 *     row 64   threads 1      64 windows side by side: those and what comes between two matrices stay in the nearest cache
 */

import type { ModeSchedule } from "../../abstraction/candidate.ts";
import { unique } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { type ModeProducts, rowLoopOf, usualRow } from "../lower/mode-products.ts";
import { natural, threads } from "./lane-decisions.ts";
import type { ScheduleKind } from "./schedules.ts";

export interface ModeContext {
  readonly computation: Computation;
  readonly products: ModeProducts;
  readonly threads: number;
}

/** Other rows, relative to the usual. */
const OTHERS = [1 / 2, 2, 1 / 4, 4];

const extentOfRow = ({ computation, products }: ModeContext): number => rowLoopOf(computation, products)?.extent ?? 1;

export const MODE_PRODUCTS: ScheduleKind<ModeSchedule, ModeContext> = {
  decisions: {
    row: {
      summary:
        "Windows side by side that all matrices are multiplied with before the next ones. More of them share the work around a loop, fewer stay in the nearest cache.",
      example: "64",
      schema: natural,
      values: (context) => {
        const extent = extentOfRow(context);
        const usual = usualRow(extent);
        return unique([1, ...OTHERS].map((share) => Math.min(extent, Math.ceil(usual * share))));
      },
      problem: (context, { row }) => {
        const extent = extentOfRow(context);
        return row >= 1 && row <= extent ? undefined : `row: ${row} of ${extent} windows side by side`;
      },
    },
    threads,
  },
  tries: 50,
};
