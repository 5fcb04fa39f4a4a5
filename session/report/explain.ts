/**
 * @file Breaks down the time of a recorded kernel: rebuilds its mapping and asks the model for the cost of each level and each part.
 *
 *     const { prediction, costs } = explainTrial(db, showTrial(db, "3f9a1c77"));
 */

import {
  type GridCandidate,
  isMapped,
  isMappedOnGpu,
  type MappedCandidate,
  type ThreadCandidate,
} from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { attempt } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import type { Prediction } from "../../abstraction/trial.ts";
import { computationOf, type Database, type TrialRecord } from "../../db/index.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import type { Costs } from "../../perfmodel/correct.ts";
import { createModel, createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { type Contradiction, contradictionIn } from "../calibrate/contradiction.ts";
import { choiceOnGpu, costsOnGpu, predictOnGpu } from "../kinds/gpu-kinds.ts";
import { sessionKindOf } from "../kinds/kinds.ts";
import { declaredAs } from "../package/declared.ts";
import { mappingOf, recordedMachine } from "../recorded.ts";
import { type DesignsExplained, explainDesigns } from "./explain-designs.ts";

export type TrialExplanation =
  | {
      readonly status: "explained";
      readonly mapping: Mapping;
      /** Prediction of today's model, uncorrected, with the calibration stored for the record's environment. */
      readonly prediction: Prediction;
      readonly costs: Costs;
      /** When the rates were measured; undefined for the reference machine's rates. */
      readonly calibratedAt: number | undefined;
      /** The table machine whose rates were used; undefined for this machine's or the reference machine's rates. */
      readonly ratesOf: string | undefined;
      /** Set when kernels of the record's environment contradict the calibration. */
      readonly contradiction: Contradiction | undefined;
    }
  | DesignsExplained
  | { readonly status: "unknown"; readonly because: string };

export function explainTrial(db: Database, trial: TrialRecord): TrialExplanation {
  return attempt(
    () => explained(db, trial),
    ({ message }) => ({ status: "unknown" as const, because: message }),
  );
}

/** @throws UsageError when its mapping or its schedule is no longer valid */
function explained(db: Database, trial: TrialRecord): TrialExplanation {
  const { workload, candidate } = trial;
  declaredAs(candidate.intrinsic, trial.declaration);
  const { machine, calibration, calibratedAt } = recordedMachine(db, trial);
  if (sessionKindOf(candidate).family === "loops")
    return { status: "unknown", because: "plain loops have no schedule whose costs could be compared" };
  if (!isMapped(candidate)) return explainDesigns(db, trial, machine, calibration);
  const { mapping, prediction, costs } = modelled(computationOf(workload), candidate, machine, calibration);
  if (!prediction || !costs)
    return { status: "unknown", because: "its schedule can no longer be lowered by this automap" };
  const ratesOf = isMappedOnGpu(candidate) ? machine.name : undefined;
  const contradiction = contradictionIn(db, trial.environment, machine);
  return { status: "explained", mapping, prediction, costs, calibratedAt, ratesOf, contradiction };
}

function modelled(
  computation: Computation,
  candidate: MappedCandidate | GridCandidate | ThreadCandidate,
  machine: Target,
  calibration: Calibration | undefined,
): { readonly mapping: Mapping; readonly prediction: Prediction | undefined; readonly costs: Costs | undefined } {
  if (isMappedOnGpu(candidate)) {
    const choice = choiceOnGpu(computation, candidate, machine);
    const prediction = predictOnGpu(choice, choice.machine);
    const costs = costsOnGpu(choice, choice.machine);
    return { mapping: choice.context.mapping, prediction, costs };
  }
  const mapping = mappingOf(computation, candidate);
  const target = modelTarget(machine, calibration);
  return {
    mapping,
    prediction: createModel(mapping, target)(candidate.schedule),
    costs: createTerms(mapping, target)(candidate.schedule),
  };
}
