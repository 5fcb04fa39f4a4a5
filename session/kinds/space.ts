/**
 * @file The search space of a computation on a machine, with the model's predictions: candidates of every kind that is worth looking for. A search
 * and its replay build the same space.
 *
 *     const space = finished(sessionSpace(conv2d, { intrinsics, calibration, threads: 1, seed: 1 }));
 *     space.predict(candidate)?.seconds
 *     space.kernelOf(candidate).source
 */

import { type Candidate, type CandidateKinds, SORTS_OF } from "../../abstraction/candidate.ts";
import { addTo, sortedBy, unique, withName } from "../../abstraction/collections.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { isRecurrent } from "../../abstraction/dependence.ts";
import { bytesOf, isInteger } from "../../abstraction/dtype.ts";
import { partsOf } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import { accessesIn, axesIn, type Expr } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Steps } from "../../abstraction/steps.ts";
import { isLoops } from "../../intrinsics/loops.ts";
import { nativeTarget, PORTABLE_ISA } from "../../targets/index.ts";
import { joinedSpace } from "../../tuner/joined-space.ts";
import { kindsFor, SESSION_KINDS } from "./kinds.ts";
import {
  isRefusals,
  type KindSpace,
  type Reason,
  type Search,
  type SessionKind,
  type SessionSpace,
  type SessionSpaceOptions,
} from "./session-space.ts";
import { NO_MULTIPLY_ADD } from "./window-kinds.ts";

type Family = SessionKind["family"];

/** Kinds of mappings predicted to take more than this many times the shortest are left out, as mappings are in each space. */
const SPREAD = 3;

/** The space, or why nothing maps. */
export function* sessionSpace(
  computation: Computation,
  { machine = nativeTarget(), kinds = "all", ...options }: SessionSpaceOptions,
): Steps<SessionSpace | readonly Reason[]> {
  const search: Search = {
    ...options,
    computation,
    machine,
    kinds,
    intrinsics: options.intrinsics.filter((i) => !isLoops(i)),
    loops: options.intrinsics.filter(isLoops),
  };
  const found: KindSpace[] = [];
  const refused = new Map<Family, Reason[]>();
  for (const kind of kindsFor(computation, machine)) {
    const { family } = kind;
    if (!kind.ofPrograms && !isWanted(family, search, found)) continue;
    const space = yield* kind.spaceOf(search, found);
    if (isRefusals(space)) addTo(refused, family, ...space);
    else found.push(space);
  }
  const least = Math.min(...ofFamily(found, "mapping").flatMap(({ best }) => best?.seconds ?? []));
  const kept = found.filter(
    (space) => familyOf(space) !== "mapping" || (space.best?.seconds ?? least) <= SPREAD * least,
  );
  return kept.length > 0 ? joined(kept) : reasons(search, refused);
}

const familyOf = ({ kind }: Pick<Candidate, "kind">): Family => SESSION_KINDS[kind].family;

const ofFamily = (spaces: readonly KindSpace[], family: Family): readonly KindSpace[] =>
  spaces.filter((space) => familyOf(space) === family);

const holds = (kinds: CandidateKinds, sort: (typeof SORTS_OF)["all"][number]): boolean =>
  SORTS_OF[kinds].some((one) => one === sort);

/** Whether candidates of a family are worth looking for beside those found. */
function isWanted(family: Family, search: Search, found: readonly KindSpace[]): boolean {
  const { kinds, computation, intrinsics, loops } = search;
  const isMapped = ofFamily(found, "mapping").length > 0;
  switch (family) {
    case "mapping":
      return holds(kinds, "mappings");
    case "form":
      return holds(kinds, "forms") && isMapped;
    case "window":
      // Lanes pass values they have read to their neighbours. Without a sliding window nothing can be passed, and an instruction is faster.
      return kinds === "lanes" || (holds(kinds, "lanes") && (!isMapped || slides(computation)));
    case "design": {
      // Where a window runs, the named designs are the best of the lane designs. The others are searched only when lanes are requested.
      const isPromising = isWide(computation) || isRecurrent(computation.equation);
      const isAlone = isWanted("window", search, found) && ofFamily(found, "window").length === 0;
      return kinds === "lanes" || (isAlone && isPromising);
    }
    case "loops": {
      const onLanesAlone = !isMapped && found.length > 0;
      return loops.length > 0 && kinds !== "lanes" && (onLanesAlone || intrinsics.every(addsOrCopies));
    }
    default:
      return family satisfies never;
  }
}

/** One space of those of several kinds. */
function joined(spaces: readonly KindSpace[]): SessionSpace {
  const { representatives = [], ...space } = joinedSpace(spaces);
  const of = (c: Candidate): KindSpace => {
    const own =
      spaces.find(({ kind }) => kind === c.kind) ??
      internal(`a candidate of the kind ${c.kind}, which this space has not`);
    return own;
  };
  return {
    ...space,
    representatives: [...rivals(spaces), ...representatives],
    intrinsics: unique(spaces.flatMap(({ intrinsics }) => intrinsics)),
    intrinsicOf: (c) => {
      const { mappingOf, intrinsics } = of(c);
      // A mapping that was taken in later may be of another instruction.
      const used =
        mappingOf?.(c).intrinsic ??
        withName(intrinsics, c.intrinsic) ??
        internal(`${c.intrinsic} is not of this space`);
      return used;
    },
    mappingOf: (c) => of(c).mappingOf?.(c),
    kernelOf: (c) => of(c).kernelOf(c),
    carried: (c, from) => spaces.find(({ kind }) => kind === c.kind)?.carried?.(c, from),
    predict: (c) => of(c).model.predict(c),
    startFrom: (prior) => {
      for (const { model } of spaces) model.startFrom(prior);
    },
    learn: (trials) => {
      for (const { kind, model } of spaces) model.learn(trials.filter(({ candidate }) => candidate.kind === kind));
    },
  };
}

/**
 * The models of mappings and of windows err by a common factor each, so where their expectations lie within this many times of each other the
 * best of both are measured before all others. For filters of 9 to 20 in f16 on an H100, mappings took 0.35 to 0.75 of what was expected and
 * windows 1.5 to 1.6 times (bench/results/cuda-bands-h100.md).
 */
const RIVALS = 4;

/** On a GPU, the best window, where other designs or a mapping may be faster; and that mapping. */
function rivals(spaces: readonly KindSpace[]): readonly Candidate[] {
  const bestOf = (family: Family): KindSpace["best"] =>
    sortedBy(
      ofFamily(spaces, family).flatMap(({ best }) => best ?? []),
      (a) => a.seconds,
    )[0];
  const window = bestOf("window");
  if (!window) return [];
  const mapping = bestOf("mapping");
  const isRival = mapping && mapping.seconds < RIVALS * window.seconds && window.seconds < RIVALS * mapping.seconds;
  if (isRival) return [window.candidate, mapping.candidate];
  return ofFamily(spaces, "design").length > 0 ? [window.candidate] : [];
}

/** Why there is no candidate at all. */
function reasons({ computation, intrinsics }: Search, refused: ReadonlyMap<Family, readonly Reason[]>): Reason[] {
  const mapped = refused.get("mapping") ?? [];
  const looped = refused.get("loops") ?? [];
  const [window] = refused.get("window") ?? [];
  const [design] = refused.get("design") ?? [];
  if ((!window && !design) || intrinsics.length === 0) return [...mapped, ...looped];
  const because = (computation.time ? window : design)?.because ?? window?.because ?? NO_MULTIPLY_ADD;
  // Mappings cannot express time steps, and the refusal "it is a recurrence" would not help.
  return [...(computation.time ? [] : mapped), { rule: "lanes", because }, ...looped];
}

/** Whether a row forms no products: a mapping onto it computes every term while it packs, as plain loops do where they stand. */
const addsOrCopies = (row: Intrinsic): boolean => row.isa === PORTABLE_ISA && row.operands.length <= 2;

/**
 * Whether some input is read through a sliding window: by an index that adds a summed axis to a kept one, or, for time steps, through
 * neighbouring planes.
 */
function slides({ equation, axes, time }: Computation): boolean {
  if (time) return true;
  const moving = axes.filter((a) => a.extent > 1);
  const adds = (index: Expr): boolean => {
    const used = new Set(axesIn(index));
    return ["spatial", "reduce"].every((kind) => moving.some((a) => a.kind === kind && used.has(a.name)));
  };
  return accessesIn(equation.value).some((a) => a.index.some(adds));
}

/** Whether sums are of floats of 32 bits or more. Other types have instructions that beat lanes, or plain C++ that was not compared with lanes. */
function isWide(computation: Computation): boolean {
  const { dtype } = outputOf(partsOf(computation).sum);
  return !isInteger(dtype) && Object.values(computation.tensors).every((t) => bytesOf(t.dtype) >= bytesOf("f32"));
}
