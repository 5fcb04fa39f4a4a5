/**
 * @file Ranks kernels for an Intel GPU by the model with the instructions that the vendor's offline compiler made of them.
 *
 *     const { ranking, dropped } = await rankCounted(conv2d, candidates, DG2, { ocloc });
 *     ranking[0]?.compiled?.code?.loops          { executions 1792, instructions 117, sends 26, products 3 } ...
 *
 * Nothing can be measured, so compiled code takes the place of measurements: candidates are compiled some at a time, the model's correction is
 * fitted to what their counted instructions predict, and chooses the next ones. What spills or lacks its products is dropped. An estimate is too low as a
 * rule, so what could not be counted stands behind what was.
 */

import { availableParallelism } from "node:os";
import pLimit from "p-limit";
import { sortedBy } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import { apply, fit as fitCorrection, type Observation } from "../../perfmodel/correct.ts";
import type { CountedCode } from "../../perfmodel/counted-code.ts";
import { compileForIntel, findOcloc, type IntelBuild } from "../../runtime/ocloc.ts";
import { isPredictedOnly, oclocDevice } from "../../targets/index.ts";
import { predictorFor } from "../tune/predict.ts";
import type { Expected, Ranking } from "../tune/rank.ts";
import { countedCode, type Uncounted } from "./counted-code.ts";
import { problemOf, writtenKernel } from "./offline.ts";

/** A candidate, whose prediction is by counted instructions if `compiled` says so. */
export interface Ranked extends Expected {
  readonly compiled?: {
    readonly kernel: Kernel;
    readonly code: CountedCode | Uncounted;
    /** Without counted instructions. */
    readonly estimated: Prediction;
  };
}

interface CountedRanking {
  /** Counted kernels, shortest predicted time first; behind them those that could not be counted, then candidates that were not compiled. */
  readonly ranking: readonly Ranked[];
  readonly dropped: readonly { readonly expected: Expected; readonly why: string }[];
}

/** Compiles a kernel, as {@link compileForIntel} does. */
type CompileOffline = (kernel: Kernel, signal?: AbortSignal) => Promise<IntelBuild>;

interface CountedRankingOptions {
  readonly compile: CompileOffline;
  /** Kernels to compile at most; 12 by default. */
  readonly most?: number;
  /** Ends the compilations. What is compiled by then is ranked. */
  readonly signal?: AbortSignal | undefined;
}

/** Candidates to choose from. */
export const COUNTED_POOL = 200;
const MOST_COMPILED = 12;
/** Kernels between two fits of the correction. */
const TOGETHER = 4;

/** The compiler that counts instructions of kernels in OpenCL C for a machine; undefined if there is none here. */
export function offlineCompiler(machine: Target, language: string | undefined): CompileOffline | undefined {
  const device = isPredictedOnly(machine) && language === "opencl" ? oclocDevice(machine) : undefined;
  const ocloc = device === undefined ? undefined : findOcloc();
  if (device === undefined || ocloc === undefined) return undefined;
  return (kernel, signal) => compileForIntel(kernel, device, ocloc, signal);
}

/** Ranks candidates by the instructions of their compiled kernels. */
export async function rankCounted(
  computation: Computation,
  candidates: Exclude<Ranking, { refused: unknown }>,
  machine: Target,
  { compile, most = MOST_COMPILED, signal }: CountedRankingOptions,
): Promise<CountedRanking> {
  const predictor = predictorFor(undefined, machine);
  const waiting = candidates.map((expected) => {
    const { candidate, mapping } = expected;
    // A design on lanes has no parts.
    const costs = mapping && candidate.kind === "mapping" ? predictor.costs(mapping, candidate.schedule) : undefined;
    return { expected, costs };
  });
  const compiled: Ranked[] = [];
  const dropped: { expected: Expected; why: string }[] = [];
  const observations: Observation[] = [];
  const limit = pLimit(availableParallelism());
  const one = async (expected: Expected): Promise<Ranked | string | undefined> => {
    const { candidate, mapping, prediction } = expected;
    const kernel = writtenKernel(computation, expected, machine);
    if (typeof kernel === "string") return kernel;
    const built = await compile(kernel, signal).catch((error: unknown) => {
      if (signal?.aborted) return undefined;
      throw error;
    });
    if (!built) return undefined;
    // The compiler itself may fail, as one that does not know the machine does.
    if (built.status === "compile-failed")
      return { ...expected, compiled: { kernel, code: { uncounted: built.log }, estimated: prediction } };
    const why = problemOf(kernel, built);
    if (built.status !== "compiled" || why !== undefined) return why ?? built.status;
    const code = countedCode(kernel, built.functions);
    const counted =
      mapping && candidate.kind === "mapping" && !("uncounted" in code)
        ? predictor.predict(mapping, candidate.schedule, { code })
        : undefined;
    return { ...expected, prediction: counted ?? prediction, compiled: { kernel, code, estimated: prediction } };
  };
  for (let left = most; left > 0 && waiting.length > 0 && !signal?.aborted; left -= TOGETHER) {
    const correction = fitCorrection(observations);
    const seconds = ({ expected, costs }: (typeof waiting)[number]): number =>
      costs ? apply(correction, costs) : expected.prediction.seconds;
    waiting.sort((a, b) => seconds(a) - seconds(b));
    const next = waiting.splice(0, Math.min(left, TOGETHER));
    const found = await Promise.all(next.map(({ expected }) => limit(() => one(expected))));
    for (const [i, ranked] of found.entries()) {
      const tried = next[i];
      if (!tried) continue;
      if (ranked === undefined) waiting.push(tried);
      else if (typeof ranked === "string") dropped.push({ expected: tried.expected, why: ranked });
      else {
        compiled.push(ranked);
        if (tried.costs && isCounted(ranked))
          observations.push({ costs: tried.costs, measuredSeconds: ranked.prediction.seconds });
      }
    }
  }
  compiled.sort((a, b) => Number(isCounted(b)) - Number(isCounted(a)) || a.prediction.seconds - b.prediction.seconds);
  const others = sortedBy(
    waiting.map(({ expected }) => expected),
    (a) => a.prediction.seconds,
  );
  return { ranking: [...compiled, ...others], dropped };
}

function isCounted({ compiled }: Ranked): boolean {
  return compiled !== undefined && !("uncounted" in compiled.code);
}
