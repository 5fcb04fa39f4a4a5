/**
 * @file Decision `placement`: the memory from which each input is loaded: the caller's tensor, a padded copy, an im2col copy, or packed tiles.
 *
 *     in padded, w tiled          in: copied once a call, with a border of zeros; w: packed ahead of time in tiles, in loop order
 *     in in-place                 the caller's tensor; blocks at its border have their own code, which omits what is outside
 */

import { z } from "zod";
import { PLACEMENTS, type Placement, type Schedule } from "../../abstraction/candidate.ts";
import { defined, hasName, memoisedPair } from "../../abstraction/collections.ts";
import { identityIn } from "../../abstraction/computation.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick } from "../../abstraction/random.ts";
import { identifier, named } from "../../abstraction/schema.ts";
import { scheduledParts } from "../match/conditions.ts";
import { defineProblem } from "../match/problem.ts";
import { type Border, bordersOf } from "./borders.ts";
import { type Decision, pairsApart } from "./decision.ts";
import { dependsOn, gapsOf, inputOperands, type LoopDimension } from "./dimensions.ts";
import { dimensionsUnder } from "./gaps.ts";
import type { MappedContext } from "./mapped-context.ts";
import { reachInPlace, reachPadded, reachWindowed } from "./reach.ts";

type Placements = Schedule["placement"];

export const placement: Decision<Placements, MappedContext, Schedule> = {
  summary: "Where each input is loaded from; see below.",
  example: "a padded, b tiled",
  schema: named(identifier, z.enum(PLACEMENTS)),
  traits: placementTraits,
  goesWith: "spread",
  problem: ({ mapping }, schedule) => placementProblem(mapping, schedule),
  draw: ({ mapping }, schedule, random) =>
    Object.fromEntries(placementsOf(mapping, schedule).map((c) => [c.operand, pick(random, c.open)])),
  moves: [
    {
      weight: 0.11,
      apply: ({ mapping }, schedule, random) => {
        const choices = placementsOf(mapping, schedule).filter((c) => c.open.length > 1);
        if (choices.length === 0) return schedule;
        const { operand, open } = pick(random, choices);
        return { ...schedule, placement: { ...schedule.placement, [operand]: pick(random, open) } };
      },
    },
  ],
  carry: ({ mapping }, schedule) =>
    Object.fromEntries(
      placementsOf(mapping, schedule).flatMap(({ operand, open }) => {
        const place = open.find((one) => one === schedule.placement[operand]) ?? open[0];
        return place === undefined ? [] : [[operand, place]];
      }),
    ),
  distance: (_, a, b) => pairsApart(a.placement, b.placement),
};

/** `a padded`, one for each input. A copy made inside a loop is just `a`, whatever its kind. */
function placementTraits(schedule: Schedule): readonly string[] {
  const traits: string[] = [];
  for (const operand in schedule.placement) {
    const place = schedule.within?.[operand] === undefined ? schedule.placement[operand] : undefined;
    traits.push(place === undefined ? operand : placedTrait(operand, place));
  }
  return traits;
}

/** Cached text, since every evaluation of the model requests it. */
function placedTrait(operand: string, place: Placement): string {
  const written = knownTraits.get(operand) ?? new Map(PLACEMENTS.map((p) => [p, `${operand} ${p}`]));
  knownTraits.set(operand, written);
  return written.get(place) ?? operand;
}
const knownTraits = new Map<string, ReadonlyMap<Placement, string>>();

function placementProblem(mapping: Mapping, schedule: Schedule): string | undefined {
  for (const choice of placementsOf(mapping, schedule)) {
    const place = schedule.placement[choice.operand];
    if (place === undefined) return `operand ${choice.operand} has no placement`;
    if (!choice.open.includes(place)) return `${choice.operand} ${place}: ${choice.closed[place]}`;
  }
  const stray = Object.keys(schedule.placement).find((name) => !hasName(inputOperands(mapping), name));
  if (stray !== undefined) return `placement of ${stray}: there is no such operand`;
  const past = placementsOf(mapping, schedule).filter((c) => c.runsPast && schedule.placement[c.operand] === "padded");
  if (past.length > 1)
    return `${past.map((c) => c.operand).join(" and ")} would both read past their end; one must be tiled`;
  return undefined;
}

/** Placements to try: each input's simplest place first, then the others. */
export function placementsInTurn([first, ...rest]: readonly PlacementChoice[]): Placements[] {
  if (first === undefined) return [{}];
  const others = placementsInTurn(rest);
  return first.open.flatMap((place) => others.map((other) => ({ [first.operand]: place, ...other })));
}

/** The placements possible for each input of a mapping, and why the others are not. */
interface PlacementChoice {
  readonly operand: string;
  readonly open: readonly Placement[];
  readonly closed: Readonly<Partial<Record<Placement, string>>>;
  /** Whether the last step in a padded copy also reads elements of other steps. */
  readonly runsPast: boolean;
  /** The borders that it crosses if loaded in place. */
  readonly borders: readonly Border[];
}

/** The placements that each input operand may have, given the dimensions that a schedule spreads. */
export function placementsOf(mapping: Mapping, under: Pick<Schedule, "spread"> = {}): readonly PlacementChoice[] {
  return placements(mapping, dimensionsUnder(mapping, under));
}

const placements = memoisedPair(findPlacements);

function findPlacements(mapping: Mapping, dimensions: readonly LoopDimension[]): PlacementChoice[] {
  const { computation, intrinsic, binding } = mapping;
  const problem = defineProblem(computation, intrinsic, binding);
  const condition = scheduledParts(problem);
  const zeroPads = problem.padding?.kind === "number" && problem.padding.value === 0 && identityIn(computation) === 0;
  return inputOperands(mapping).map((operand): PlacementChoice => {
    const bound = binding[operand.name];
    if (bound?.kind !== "access") {
      const because = "it is computed while it is packed";
      return {
        operand: operand.name,
        open: ["tiled"],
        closed: { "in-place": because, padded: because, windowed: because },
        runsPast: false,
        borders: [],
      };
    }
    const loaded = { mapping, operand, access: bound, dimensions };
    const inPlace = reachInPlace(loaded);
    const crossed = bordersOf(computation, bound, dimensions);
    const borders = typeof crossed === "string" ? [] : crossed;
    const atBorder = !zeroPads ? NO_ZERO : condition.length > 0 ? "its border meets the condition" : undefined;
    const padded = reachPadded(loaded);
    const problemOf = (reach: object | string): string | undefined =>
      typeof reach === "string" ? reach : zeroPads ? undefined : NO_ZERO;
    // A spread dimension exists only in a padded copy.
    const isSpread = dimensions.some((d) => gapsOf(d).length > 0 && dependsOn(mapping, operand.name, d));
    const spread = isSpread ? "it is spread over a padded copy" : undefined;
    const closed: PlacementChoice["closed"] = defined({
      "in-place": (typeof inPlace === "string" ? inPlace : borders.length > 0 ? atBorder : undefined) ?? spread,
      padded: problemOf(padded),
      windowed: problemOf(reachWindowed(loaded)) ?? spread,
      tiled: spread,
    });
    const all: readonly Placement[] = ["in-place", "padded", "windowed", "tiled"];
    const runsPast = typeof padded !== "string" && padded.runsPast;
    return { operand: operand.name, open: all.filter((p) => closed[p] === undefined), closed, runsPast, borders };
  });
}

const NO_ZERO = "what lies outside a tensor is no zero here";

/** The borders crossed by inputs that a schedule loads in place. */
export function bordersUnder(mapping: Mapping, schedule: Schedule): readonly Border[] {
  return placementsOf(mapping, schedule).flatMap((c) =>
    schedule.placement[c.operand] === "in-place" ? c.borders : [],
  );
}
