/**
 * @file Plain loops of a computation, on a processor's cores: what a search falls back on where no instruction maps, and the steps of a network other
 * than its products. Products of small windows with matrices, as in Winograd's transforms, are computed one dimension after another.
 *
 *     LOOP_KIND.kernelOf(computation, { kind: "loops", intrinsic: "loops.avx2", schedule: { threads: 1 } }, machine, {}).source
 */

import type { LoopCandidate, ModeCandidate } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { loopsRefused, lowerLoops } from "../../mapper/lower/loops.ts";
import { lowerModeProducts, modeProductsOf } from "../../mapper/lower/mode-products.ts";
import { threads } from "../../mapper/schedule/lane-decisions.ts";
import { MODE_PRODUCTS, type ModeContext } from "../../mapper/schedule/mode-decisions.ts";
import { loopSeconds, modeSeconds } from "../../perfmodel/loops.ts";
import { kindInLoops } from "./in-loops.ts";

const inPlainLoops = (schedule?: string): readonly string[] => [
  schedule === undefined ? "plain loops" : `schedule  plain loops, ${schedule}`,
];

/** The equation in plain loops. */
export const LOOP_KIND = kindInLoops<LoopCandidate, { readonly computation: Computation; readonly threads: number }>({
  kind: "loops",
  about: inPlainLoops,
  what: "plain loops",
  rule: "loops",
  isFor: (computation) => modeProductsOf(computation) === undefined,
  contextOf: (computation, threads) => loopsRefused(computation) ?? { computation, threads },
  schedules: { decisions: { threads }, tries: 1 },
  lower: ({ computation }) => lowerLoops(computation),
  secondsOf: ({ computation }, row, { threads }, target) => loopSeconds(computation, row, threads, target),
});

/** Products of a tensor with a matrix for each dimension. */
export const MODE_KIND = kindInLoops<ModeCandidate, ModeContext>({
  kind: "mode-products",
  about: inPlainLoops,
  what: "products with matrices",
  rule: "loops",
  isFor: (computation) => modeProductsOf(computation) !== undefined,
  contextOf: (computation, threads) => {
    const products = modeProductsOf(computation);
    return products ? { computation, products, threads } : "it is no sum of products with a matrix for each dimension";
  },
  schedules: MODE_PRODUCTS,
  lower: ({ computation, products }, schedule) => lowerModeProducts(computation, products, schedule?.row),
  secondsOf: ({ computation, products }, row, schedule, target) =>
    modeSeconds(computation, products, row, schedule, target),
});
