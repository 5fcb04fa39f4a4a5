/**
 * @file The decisions of a program whose equations share their rows, on the cores of a processor.
 *
 *     columns 64   threads 1      64 columns of a row at a time: what one equation makes of them, the next reads in registers or the nearest cache
 */

import type { ChainSchedule } from "../../abstraction/candidate.ts";
import { unique } from "../../abstraction/collections.ts";
import { targetOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import type { RowChain } from "../../abstraction/row-chain.ts";
import { PARTIAL_BYTES } from "../lower/partial-sums.ts";
import { natural, threads } from "./lane-decisions.ts";
import type { ScheduleKind } from "./schedules.ts";

export interface ChainContext {
  readonly chain: RowChain;
  readonly threads: number;
}

/** Other numbers of columns, relative to the usual. */
const OTHERS = [1 / 2, 2, 4, 1 / 4, 8, 16];

/** The columns that are computed together where no search says how many. */
export function usualColumns({ parts, columns }: RowChain): number {
  const widest = Math.max(...parts.map(({ computation }) => bytesOf(targetOf(computation).dtype)));
  return Math.min(columns, PARTIAL_BYTES / widest);
}

export const CHAIN: ScheduleKind<ChainSchedule, ChainContext> = {
  decisions: {
    columns: {
      summary:
        "Columns of a row that all equations of a pass compute before the next columns, and partial sums of a row. More of them hide the latency of additions, fewer stay in registers.",
      example: "64",
      schema: natural,
      values: ({ chain }) => {
        const usual = usualColumns(chain);
        return unique([1, ...OTHERS].map((share) => Math.min(chain.columns, Math.ceil(usual * share))));
      },
      problem: ({ chain }, schedule) =>
        schedule.columns >= 1 && schedule.columns <= chain.columns
          ? undefined
          : `columns: ${schedule.columns} of a row of ${chain.columns}`,
    },
    threads,
  },
  tries: 50,
};
