/**
 * @file Counts how often each instruction is issued, while a nest is printed, loop by loop.
 *
 *     for (int step = part; step < 448; step += parts)         448 trips
 *       for (int k = 0; k < 4 * once; k++)                        4 trips
 *         c0 = ...mad...; c1 = ...mad...;                            2 issues
 */

import type { PrintedIssues, PrintedLoop } from "../abstraction/kernel.ts";

interface Counting {
  issues: number;
  readonly loops: PrintedLoop[];
}

export class IssueCount {
  private current: Counting = { issues: 0, loops: [] };

  add(): void {
    this.current.issues += 1;
  }

  /** Prints the inside of a loop. A loop without issues is not kept. */
  inside<T>(trips: number, print: () => T): T {
    const around = this.current;
    const own: Counting = { issues: 0, loops: [] };
    this.current = own;
    const text = print();
    this.current = around;
    if (own.issues > 0 || own.loops.length > 0) around.loops.push({ trips, ...own });
    return text;
  }

  /** What has been printed so far. */
  printed(): PrintedIssues {
    return this.current;
  }
}
