/**
 * @file The innermost level of the latency model from counted instructions: what a compiler made of the loops that issue products, instead of
 * the model's estimate.
 *
 *     code.loops[1]                             { executions 448, instructions 117, sends 26, products 3, ... }
 *     arithmetic = runs * max(3 * issue, chain, 117 / instructions a cycle)
 *     load       = runs * 26 / sends a cycle     unless the bytes take longer
 *
 * The runs of one thread are its share of the products, as the schedule's counts have it.
 */

import { sumOf } from "../abstraction/collections.ts";

/** A loop of compiled code that issues products, or code around such loops. Its counts leave out those of loops inside that issue some. */
export interface CountedLoop {
  /** Times that a call runs it, by all threads together. */
  readonly executions: number;
  readonly instructions: number;
  /** Of these, accesses to memory. */
  readonly sends: number;
  /** Of these, matrix products. */
  readonly products: number;
  /** Whether it holds loops without products. Their trips are unknown, and their instructions count once. */
  readonly hasOthers: boolean;
}

/** The compiled code of a kernel's products. */
export interface CountedCode {
  /** Registers of a thread. */
  readonly registers: number;
  readonly loops: readonly CountedLoop[];
}

/** What the model knows about the schedule and the machine. */
interface CountedIn {
  /** Cycles between two products, and until the next product on the same sums. */
  readonly issueCycles: number;
  readonly latencyCycles: number;
  readonly instructionsPerCycle: number;
  readonly sendsPerCycle: number;
  /** Instructions that other threads have ready meanwhile. */
  readonly window: number;
  /** Sums of a block, and steps that a block sums over in one pass. */
  readonly accumulators: number;
  readonly summedSteps: number;
  /** Products that the thread which finishes last issues. */
  readonly issues: number;
}

/** Cycles of the thread that finishes last, in one call. */
interface CountedCycles {
  readonly chain: number;
  readonly frontEnd: number;
  /** The longest of these two and of issuing products, loop by loop. */
  readonly arithmetic: number;
  readonly sends: number;
  /** Instructions around the loops of products. */
  readonly around: number;
  /** Whether loops without products are among these. */
  readonly hasOthers: boolean;
}

export function countedCycles({ loops }: CountedCode, known: CountedIn): CountedCycles {
  const products = sumOf(loops, (l) => l.executions * l.products);
  const all = { chain: 0, frontEnd: 0, arithmetic: 0, sends: 0, around: 0, hasOthers: false };
  for (const { executions, instructions, sends, products: own, hasOthers } of loops) {
    const times = (executions * known.issues) / products;
    const frontEnd = instructions / known.instructionsPerCycle;
    all.sends += (times * sends) / known.sendsPerCycle;
    if (own === 0) {
      all.around += times * frontEnd;
      all.hasOthers ||= hasOthers;
      continue;
    }
    // Steps of the sums that one run of the loop holds: unrolled steps wait for one another.
    const steps = Math.max(1, own / known.accumulators);
    const issue = own * known.issueCycles;
    const ofBlock = (known.summedSteps / steps) * instructions;
    const chain = (steps * known.latencyCycles) / Math.max(1, known.window / ofBlock);
    all.chain += times * chain;
    all.frontEnd += times * frontEnd;
    all.arithmetic += times * Math.max(issue, chain, frontEnd);
  }
  return all;
}
