/**
 * @file Explains why a lane design wins: what the best schedule of each dataflow would cost by the model, and its measured time where there is
 * one.
 *
 *     design   predicted     measured   bound by        schedule
 *     FBS        74.9 us      57.2 us             36.0   multiply-adds   beside p 4, q 4, inputs loaded
 *     SBM        78.5 us      60.4 us             47.6   shifts          beside p 4, inputs passed
 */

import {
  type ArrayPlan,
  type Candidate,
  callingThreads,
  type DesignCandidate,
  type WarpDesignCandidate,
} from "../../abstraction/candidate.ts";
import { present } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import type { Target } from "../../abstraction/machine.ts";
import { finished } from "../../abstraction/steps.ts";
import { computationOf, type Database, queryTrials, type TrialRecord } from "../../db/index.ts";
import { printPairs } from "../../mapper/schedule/decision.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import type { LaneRefusal } from "../../mapper/space-time/taps.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import type { CostTerm } from "../../perfmodel/correct.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { printTime, table } from "../../report/text.ts";
import { type ArraySpaceOfDesigns, arraySpaceOf } from "../../tuner/array-candidates.ts";
import { warpArraySpace } from "../../tuner/warp-array-candidates.ts";
import { sessionKindOf } from "../kinds/kinds.ts";
import { registersOf } from "../kinds/window-kinds.ts";
import { declaredAs } from "../package/declared.ts";

/** The cost of the best schedule of a dataflow. */
export interface DesignCost {
  /** The dataflow's letters, one an operand: `SBM`. */
  readonly dataflow: string;
  /** Seconds the model predicts, without correction. */
  readonly predicted: number;
  /** The smallest median of any schedule of this dataflow under the record's conditions, in seconds; undefined when none was measured. */
  readonly measured: number | undefined;
  /** Seconds of each part of a call, as if it ran alone: multiply-adds, shifts, conversions, loads, stores, chains of sums, memory. */
  readonly parts: readonly CostTerm[];
  readonly schedule: ArrayPlan;
}

export interface DesignsExplained {
  readonly status: "designs";
  /** The dataflow of the record. */
  readonly dataflow: string;
  /** Seconds the model predicts for the record's own schedule; undefined for a window, which has another model. */
  readonly predicted: number | undefined;
  /** The designs, the lowest predicted cost first. */
  readonly designs: readonly DesignCost[];
  /** Transforms that do not fit the lanes: their number, and the reason for the first. */
  readonly refused: { readonly count: number; readonly first: string | undefined };
}

/** The cost of each dataflow, or why there is nothing to compare. */
export function explainDesigns(
  db: Database,
  { workload, candidate, environment, conditions, provenance }: TrialRecord,
  machine: Target,
  calibration: Calibration | undefined,
): DesignsExplained | { readonly status: "unknown"; readonly because: string } {
  const computation = computationOf(workload);
  if (isRecurrent(computation.equation))
    return { status: "unknown", because: "a result that refers to itself is no sum, and has no dataflows to compare" };
  const threads = callingThreads(candidate);
  const multiplyAdd = declaredAs(candidate.intrinsic);
  const vectors = registersOf(multiplyAdd);
  const space: ArraySpaceOfDesigns<ArrayPlan> | LaneRefusal =
    multiplyAdd.language === "cuda"
      ? finished(warpArraySpace(computation, machine))
      : finished(arraySpaceOf(computation, { threads, vectors, target: modelTarget(machine, calibration) }));
  if ("rule" in space) return { status: "unknown", because: space.because };
  const least = new Map<string, number>();
  for (const trial of queryTrials(db, { computation, status: "ok", threads: conditions.threads })) {
    // Times from another cache state, from another machine or from an import are not comparable with the record's.
    const isAlike =
      trial.environment.id === environment.id &&
      trial.conditions.cache === conditions.cache &&
      trial.provenance === provenance;
    if (!isAlike || trial.measurement.status !== "ok") continue;
    const own = dataflowOf(computation, trial.candidate);
    if (own !== undefined)
      least.set(own, Math.min(least.get(own) ?? Number.POSITIVE_INFINITY, trial.measurement.median));
  }
  const designs = space.bestOfEach().flatMap(({ design, schedule, seconds }): DesignCost[] => {
    const parts = space.written(schedule)?.parts;
    const { dataflow } = design;
    return parts ? [{ dataflow, predicted: seconds, measured: least.get(dataflow), parts, schedule }] : [];
  });
  const [first] = space.designs.refused;
  return {
    status: "designs",
    dataflow: dataflowOf(computation, candidate) ?? "a design",
    predicted: isComparable(candidate)
      ? sessionKindOf(candidate).predict(computation, candidate, { machine, calibration })?.seconds
      : undefined,
    designs,
    refused: { count: space.designs.refused.length, first: first && `${first.name}: ${first.because}` },
  };
}

/** Whether its dataflow can be compared with those of other designs. */
const isComparable = (candidate: Candidate): candidate is DesignCandidate | WarpDesignCandidate =>
  candidate.kind === "design" || candidate.kind === "warp-design";

/** The letters of a lane design; for a window, those in its name. */
function dataflowOf(computation: Computation, candidate: Candidate): string | undefined {
  if (candidate.kind === "window" || candidate.kind === "warp-window") return candidate.schedule.dataflow.split("-")[0];
  if (!isComparable(candidate)) return undefined;
  const placed = placeArray(computation, candidate.schedule);
  return placed.ok ? placed.array.design.dataflow : undefined;
}

/** The comparison as a table, and the cost that separates the winner from the next design. */
export function describeDesigns({ dataflow, predicted, designs, refused }: DesignsExplained): string {
  const rows = designs.map(({ dataflow: name, predicted: seconds, measured, parts, schedule }) => [
    name,
    printTime(seconds),
    measured === undefined ? "-" : printTime(measured),
    boundOf(parts),
    `beside ${printPairs(schedule.beside)}, inputs ${schedule.inputs}`,
  ]);
  const own = designs.find((d) => d.dataflow === dataflow);
  const next = designs.find((d) => d.dataflow !== dataflow);
  return present([
    `what the best schedule of each dataflow would have cost${predicted === undefined ? "" : `; this one is expected to take ${printTime(predicted)}`}`,
    table([["design", "predicted", "measured", "bound by", "schedule"], ...rows]),
    own && next && reason(own, next),
    refused.count > 0 && `${refused.count} transforms do not fit the lanes; ${refused.first}`,
  ]).join("\n");
}

/** The parts in which two designs differ most. */
function reason(own: DesignCost, next: DesignCost): string {
  const ratio = (next.predicted / own.predicted).toFixed(2);
  const said = ({ parts }: DesignCost): string =>
    parts
      .filter(({ seconds }) => seconds > 0)
      .map(({ name, seconds }) => `${printTime(seconds)} of ${name}`)
      .join(", ");
  return `${own.dataflow} is bound by ${boundOf(own.parts)}; ${next.dataflow} would take ${ratio} times its time, bound by ${boundOf(next.parts)}. Alone, the parts of ${own.dataflow} would take ${said(own)}; those of ${next.dataflow} ${said(next)}`;
}

/** The part that would take longest alone. */
const boundOf = (parts: readonly CostTerm[]): string =>
  parts.reduce((a, b) => (b.seconds > a.seconds ? b : a), { name: "nothing", seconds: 0 }).name;
