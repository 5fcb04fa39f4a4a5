/**
 * @file Predicts the time of a space-time design from the instructions of a step and from the latency between dependent steps.
 *
 *     FBS of a 16-result tile, filter 5, avx512      a step issues 0.5 multiply-adds, 1.0 shifts, 1.0 loads: 1 cycle, shifts bind
 *
 *     a pass among many in flight     max over kinds of (steps * cycles a step + cycles once): others hide what one waits for
 *     one pass alone                  load + steps * max(kinds, longest chain from a step to the next) + multiply-add + once
 *
 * Registers are coalesced, all operands lie in the nearest cache, and every kind of instruction has a unit of its own. The sum of all kinds, in
 * place of the largest, is the other extreme: nothing overlaps.
 */

import type { Target } from "../abstraction/machine.ts";
import type { Design, OperandFlow } from "../mapper/space-time/design.ts";
import { type ArrayProblem, extentsOfLoops } from "../mapper/space-time/problem.ts";
import { extentOfRow } from "../mapper/space-time/vector.ts";
import { type LaneCosts, laneCosts } from "../targets/lanes.ts";

/** Cycles that a level spends on each kind of instruction. */
interface IssueCycles {
  readonly multiplyAdds: number;
  readonly shifts: number;
  readonly loads: number;
  readonly stores: number;
}

export interface DesignPrediction {
  readonly machine: string;
  /** Vectors that hold one value for every PE; fractional where a machine runs part of a vector in less time. */
  readonly vectors: number;
  readonly step: IssueCycles;
  /** The longest dependence from one step to the next: the latency that a value waits for. */
  readonly chain: { readonly cycles: number; readonly operand: string };
  /** Cycles spent once: loads of stationary operands, and all stores of results. */
  readonly once: IssueCycles;
  /** A pass among many in flight. */
  readonly cycles: number;
  /** One pass by itself. */
  readonly latencyCycles: number;
  /** A pass among many when nothing overlaps. */
  readonly sumCycles: number;
}

const LETTERS = { broadcast: "B", stay: "S", none: "N", aggregate: "A" } as const;

/** @param bytes of an element of the result */
export function predictDesign(design: Design, problem: ArrayProblem, target: Target, bytes = 4): DesignPrediction {
  const machine = laneCosts(target);
  const lanesOf = (f32: number): number => (machine.lanesByBytes ? Math.max(1, Math.floor((f32 * 4) / bytes)) : f32);
  const lanes = lanesOf(machine.lanes);
  const granule = lanesOf(machine.granule ?? machine.lanes);
  const vectors = (Math.ceil(design.pes / granule) * granule) / lanes;
  const { steps } = design;
  let multiplyAdds = vectors;
  let shifts = 0;
  let loads = 0;
  let loadsOnce = 0;
  let storesOnce = 0;
  let chain = { cycles: 0, operand: "" };
  for (const flow of design.flows) {
    const dependences = flow.variables.flatMap((v) => v.dependences).filter((d) => d.steps > 0);
    const isMoved = (d: (typeof dependences)[number]): boolean => d.hop.some((x) => x !== 0);
    // Each loaded neighbour is a shift; of a sum that goes on from loop to loop one is taken at a time.
    for (const variable of flow.variables) {
      const moved = variable.dependences.filter((d) => d.steps > 0 && isMoved(d)).length;
      shifts += vectors * (flow.role === "output" ? Math.min(1, moved) : moved);
    }
    for (const d of dependences) {
      const arithmetic = flow.role === "output" ? machine.multiplyAdd.latencyCycles : 0;
      const cycles = (arithmetic + (isMoved(d) ? machine.shift.latencyCycles : 0)) / d.steps;
      if (cycles > chain.cycles) chain = { cycles, operand: flow.name };
    }
    if (flow.role === "input") {
      // What stays is loaded once, and anew for each phase of a loop that is split.
      if (flow.code === LETTERS.stay) loadsOnce += vectors * (design.split?.factor ?? 1);
      else if (dependences.length > 0) loads += Math.min(vectors, flow.boundary / steps);
      else loads += flow.code === LETTERS.broadcast && design.shape.length === 1 ? 1 : vectors;
    } else {
      multiplyAdds += vectors * (flow.variables.length - 1);
      const sums = stepsOfSum(flow, Math.min(design.pes, lanes));
      shifts += vectors * sums;
      multiplyAdds += vectors * sums;
      storesOnce += Math.min(flow.boundary, vectors * leavingSteps(design, problem, flow.name));
    }
  }
  const issue = (count: number, { issueCycles }: LaneCosts["load"]): number => count * issueCycles;
  const step: IssueCycles = {
    multiplyAdds: issue(multiplyAdds, machine.multiplyAdd),
    shifts: issue(shifts, machine.shift),
    loads: issue(loads, machine.load),
    stores: 0,
  };
  const once: IssueCycles = {
    multiplyAdds: 0,
    shifts: 0,
    loads: issue(loadsOnce, machine.load),
    stores: issue(storesOnce, machine.store),
  };
  const total: IssueCycles = {
    multiplyAdds: steps * step.multiplyAdds,
    shifts: steps * step.shifts,
    loads: steps * step.loads + once.loads,
    stores: steps * step.stores + once.stores,
  };
  return {
    machine: machine.name,
    vectors,
    step,
    chain,
    once,
    cycles: largest(total),
    latencyCycles:
      machine.load.latencyCycles +
      steps * Math.max(largest(step), chain.cycles) +
      machine.multiplyAdd.latencyCycles +
      once.loads +
      once.stores,
    sumCycles: sum(total),
  };
}

/** Steps at which results leave the array: those that the loops indexing a result reach. */
function leavingSteps({ schedule, steps }: Design, { loops, operands }: ArrayProblem, name: string): number {
  const { reuse = [] } = operands.find((o) => o.role === "output" && o.name === name) ?? {};
  const kept = loops.map((_, i) => (reuse.every((d) => d[i] === 0) ? 1 : 0));
  const row = schedule.map((s, i) => s * (kept[i] ?? 0));
  return Math.min(steps, extentOfRow(row, extentsOfLoops({ loops })));
}

/** Additions across lanes in each step of a reduction that halves the remaining lanes. */
function stepsOfSum({ code, variables }: OperandFlow, lanes: number): number {
  const across = code === LETTERS.aggregate || variables.some((v) => v.dependences.some((d) => d.steps === 0));
  return across ? Math.ceil(Math.log2(lanes)) : 0;
}

const largest = (i: IssueCycles): number => Math.max(i.multiplyAdds, i.shifts, i.loads, i.stores);
const sum = (i: IssueCycles): number => i.multiplyAdds + i.shifts + i.loads + i.stores;

/**
 * A prediction level by level.
 *
 *     level    trips  multiply-adds         shifts          loads         stores   bound
 *     step         5           0.50           1.00           1.00           0.00   shifts
 *     pass         1           0.00           0.00           0.00           1.00   stores
 */
export function explainDesign(design: Design, prediction: DesignPrediction, target: Target): string {
  const machine = laneCosts(target);
  const { step, once, chain, cycles, latencyCycles, sumCycles, vectors } = prediction;
  const line = (level: string, trips: string, i: readonly string[], bound: string): string =>
    `${level.padEnd(8)}${trips.padStart(6)}${i.map((x) => x.padStart(15)).join("")}   ${bound}`;
  const cells = (i: IssueCycles): string[] => [i.multiplyAdds, i.shifts, i.loads, i.stores].map((x) => x.toFixed(2));
  const kinds = ["multiply-adds", "shifts", "loads", "stores"] as const;
  const boundOf = (i: IssueCycles): string => {
    const values = [i.multiplyAdds, i.shifts, i.loads, i.stores];
    return largest(i) === 0 ? "-" : (kinds[values.indexOf(largest(i))] ?? "");
  };
  return [
    `on ${machine.name}, ${machine.summary}: ${vectors} vector${vectors === 1 ? "" : "s"} of ${machine.lanes} lanes`,
    line("level", "trips", kinds, "bound"),
    line("step", String(design.steps), cells(step), boundOf(step)),
    line("pass", "1", cells(once), boundOf(once)),
    "cycles = the largest of its kinds, steps * step + pass; each kind has a unit of its own",
    `${round(cycles)} cycles a pass with many in flight, ${round(sumCycles)} if nothing overlaps`,
    chain.cycles > 0
      ? `${round(latencyCycles)} cycles for one alone: ${chain.operand} takes ${round(chain.cycles)} from a step to the next`
      : `${round(latencyCycles)} cycles for one alone`,
    ...wrapped(`multiply-adds: ${machine.multiplyAdd.source}`),
    ...wrapped(`shifts: ${machine.shift.source}`),
    ...wrapped(`loads: ${machine.load.source}`),
    ...wrapped(`stores: ${machine.store.source}`),
  ].join("\n");
}

/** Lines of at most a hundred characters. */
function wrapped(text: string): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line.length + word.length >= 100) {
      lines.push(line);
      line = " ";
    }
    line += line === "" ? word : ` ${word}`;
  }
  return [...lines, line];
}

/** One decimal place. */
export function round(cycles: number): string {
  if (cycles > Number.MAX_SAFE_INTEGER) return cycles.toPrecision(4);
  return Number.isInteger(cycles) ? String(cycles) : cycles.toFixed(1);
}
