/**
 * @file Programs whose equations share their rows, on a processor's cores: a softmax row by row, in the columns that usually are computed together,
 * and in other numbers of them.
 *
 *     CHAIN_KIND.kernelOf(softmax, { kind: "chain", intrinsic: "loops.avx2", schedule: { columns: 64, threads: 1 } }, machine, {}).source
 */

import type { ChainCandidate } from "../../abstraction/candidate.ts";
import { rowChainOf } from "../../abstraction/row-chain.ts";
import { lowerRowChain } from "../../mapper/lower/row-chain.ts";
import { CHAIN, type ChainContext } from "../../mapper/schedule/chain-decisions.ts";
import { rowSeconds } from "../../perfmodel/row-chains.ts";
import { unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { kindInLoops } from "./in-loops.ts";

export const CHAIN_KIND = kindInLoops<ChainCandidate, ChainContext>({
  kind: "chain",
  ofPrograms: true,
  about: (schedule) => ["plain loops, row by row", ...(schedule === undefined ? [] : [`schedule  ${schedule}`])],
  what: "rows",
  rule: "rows",
  isFor: () => true,
  contextOf: (computation, threads) => {
    const chain = rowChainOf(computation);
    return "because" in chain ? chain.because : { chain, threads };
  },
  schedules: CHAIN,
  unverified: unboundedIn,
  lower: ({ chain }, schedule) => lowerRowChain(chain, schedule?.columns),
  secondsOf: ({ chain }, row, schedule, target) => rowSeconds(chain, row, schedule, target),
});
