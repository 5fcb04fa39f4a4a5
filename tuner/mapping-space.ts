/**
 * @file The search space of one workload on one kind of machine: every instruction of the target, every mapping worth scheduling, every
 * schedule.
 *
 *     conv2d u8s8 on a CPU with VNNI
 *       avx512.vpdpbusd     n <- k   k <- c         expected 221 us    kept
 *       avx512.vpdpbusd     n <- k   k <- c,r,s     expected 640 us    kept
 *       avxvnni.vpdpbusd    n <- q   k <- r         expected 4.1 ms    left out: beyond 3 times the least
 */

import {
  candidateKey,
  canonicalJson,
  type GridCandidate,
  type MappedCandidate,
  type ThreadCandidate,
} from "../abstraction/candidate.ts";
import { memoised, memoisedPair, sortedBy, volumeOf } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { internal } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { type Mapping, printMatching, type Refusal } from "../abstraction/mapping.ts";
import { pickWeighted, type Random } from "../abstraction/random.ts";
import type { Step, Steps } from "../abstraction/steps.ts";
import { mappingsInSteps, validMappings } from "../mapper/match/enumerate.ts";
import { formsAmong } from "../mapper/match/phases.ts";
import {
  carriedSchedule,
  crossSchedules,
  mutateSchedule,
  type ScheduleKind,
  scheduleDistance,
} from "../mapper/schedule/schedules.ts";
import type { SearchSpace } from "./space.ts";

/** Mappings predicted to take more than this many times the shortest are left out. */
const SPREAD = 3;

/** Mappings of an instruction examined in one step of enumeration. Each is also fused in other orders, which takes a millisecond or two. */
const MAPPINGS_A_STEP = 32;

/** Probability that a mutation moves to another mapping. */
const MAPPING_MUTATION = 0.12;

/** Distance between candidates of different mappings, in decisions. */
const MAPPING_APART = 4;

/** A mapping onto an instruction and its schedule. */
export type ScheduledCandidate = MappedCandidate | GridCandidate | ThreadCandidate;
type ScheduleOf<K extends ScheduledCandidate> = K["schedule"];

/** How mappings are scheduled on one kind of machine. */
export interface Scheduling<K extends ScheduledCandidate, C> {
  readonly kind: K["kind"];
  readonly schedules: ScheduleKind<ScheduleOf<K>, C>;
  /** A legal schedule. */
  random(context: C, random: Random): ScheduleOf<K>;
  /** The schedules that an exhaustive search visits. */
  all(context: C): Iterable<ScheduleOf<K>>;
  /** Issues written in a kernel; left out where the length of a kernel does not depend on its schedule. */
  codeSize?(context: C, schedule: ScheduleOf<K>): number;
}

/** A mapping in the form its schedules use, with the best prediction of a few of them. */
export interface Ranked<C> {
  readonly context: C;
  readonly expectedSeconds: number;
}

/**
 * The mappings worth searching, shortest predicted time first; or, when nothing maps, the refusals, those closest to a mapping first. When told
 * to stop, it ranks the mappings validated by then, and the most promising of each instruction.
 * @param variants the variants of an enumerated mapping, including the mapping itself
 * @param contextOf the context of a mapping that schedules need, or why there is none
 * @param expected shortest predicted seconds of the schedules drawn to judge a mapping, at first and on a closer look; undefined when the model
 * cannot tell
 * @param most mappings kept: with more, too few trials would remain for schedules
 * @param fitting the contexts worth asking the model about; all when left out
 * @param closer given the number of mappings, how many get a closer look, shortest predicted time first; none when left out
 */
export function* rankMappings<C extends { readonly mapping: Mapping }>(
  computation: Computation,
  intrinsics: readonly Intrinsic[],
  variants: (mapping: Mapping) => readonly Mapping[],
  contextOf: (mapping: Mapping) => C | Refusal,
  expected: (context: C, isCloser: boolean) => number | undefined,
  most: number,
  fitting: (contexts: readonly C[]) => readonly C[] = (all) => all,
  closer: (count: number) => number = () => 0,
): Steps<readonly Ranked<C>[] | readonly Refusal[]> {
  const looks: { readonly intrinsic: Intrinsic; readonly contexts: C[]; readonly refused: Refusal[] }[] =
    intrinsics.map((intrinsic) => ({ intrinsic, contexts: [], refused: [] }));
  const isFound = (): boolean => looks.some(({ contexts }) => contexts.length > 0);
  const formsOf = formsAmong(computation, intrinsics);
  // Where the time ends this, instructions that do little are left out rather than those that do much.
  const sizeOf = ({ computation: { axes } }: Intrinsic): number => volumeOf(axes);
  const largestFirst = sortedBy(looks, (a) => -sizeOf(a.intrinsic));
  for (const [at, { intrinsic, contexts, refused }] of largestFirst.entries()) {
    const valid: Mapping[] = [];
    const forms = formsOf(intrinsic);
    for (const form of forms) valid.push(...(yield* validMappings(form, intrinsic)));
    if (valid.length === 0 && forms.length > 0)
      refused.push(...(yield* mappingsInSteps(computation, intrinsic)).refused.slice(0, 3));
    const step = { what: "instructions", done: at + 1, of: intrinsics.length };
    let isEnough = false;
    for (const [n, mapping] of valid.entries()) {
      for (const variant of variants(mapping)) {
        const context = contextOf(variant);
        if (isRefusal(context)) refused.push(context);
        else contexts.push(context);
      }
      if (n % MAPPINGS_A_STEP < MAPPINGS_A_STEP - 1) continue;
      isEnough = yield { ...step, done: at };
      if (isEnough && isFound()) break;
    }
    isEnough = yield step;
    if (isEnough && isFound()) break;
  }
  const contexts = looks.flatMap((look) => look.contexts);
  const refused = looks.flatMap((look) => look.refused);
  const least = new Map<C, number>();
  const judge = (context: C, isCloser: boolean): void => {
    const seconds = expected(context, isCloser);
    if (seconds !== undefined && seconds < (least.get(context) ?? Number.POSITIVE_INFINITY))
      least.set(context, seconds);
  };
  const inOrder = (): Ranked<C>[] =>
    sortedBy(
      [...least].map(([context, expectedSeconds]) => ({ context, expectedSeconds })),
      (a) => a.expectedSeconds,
    );
  const worth = fitting(contexts);
  const again = Math.min(worth.length, closer(worth.length));
  const step = (done: number): Step => ({ what: "mappings", done, of: worth.length + again });
  let isEnough = false;
  const judged = new Set<Intrinsic>();
  for (const [at, context] of worth.entries()) {
    const { intrinsic } = context.mapping;
    if (isEnough && judged.has(intrinsic)) continue;
    judge(context, false);
    if (least.has(context)) judged.add(intrinsic);
    isEnough = yield step(at + 1);
  }
  for (const [at, { context }] of inOrder().slice(0, again).entries()) {
    if (isEnough) break;
    judge(context, true);
    isEnough = yield step(worth.length + at + 1);
  }
  const found = inOrder();
  if (found.length === 0)
    return refused.filter((r, i) => refused.findIndex((other) => other.because === r.because) === i);
  const shortest = found[0]?.expectedSeconds ?? 0;
  return found.filter((m) => m.expectedSeconds <= SPREAD * shortest).slice(0, most);
}

export function isRanked<C>(found: readonly Ranked<C>[] | readonly Refusal[]): found is readonly Ranked<C>[] {
  return found.length > 0 && found.every((f) => "expectedSeconds" in f);
}

const isRefusal = (found: unknown): found is Refusal =>
  typeof found === "object" && found !== null && "because" in found;

export class MappingSpace<K extends ScheduledCandidate, C extends { readonly mapping: Mapping }>
  implements SearchSpace<K>
{
  readonly size = undefined;
  /** Mappings by predicted time, shortest first, and those taken in later. */
  private readonly known: Ranked<C>[];
  readonly promising: readonly K[];
  private readonly how: Scheduling<K, C>;
  private readonly byKey: Map<string, C>;

  /** @param promising the schedules that mappings were judged by */
  constructor(
    how: Scheduling<K, C>,
    ranked: readonly Ranked<C>[],
    promising: ReadonlyMap<C, ScheduleOf<K>> = new Map<C, ScheduleOf<K>>(),
  ) {
    this.how = how;
    this.known = [...ranked];
    this.promising = ranked.flatMap(({ context }) => {
      const schedule = promising.get(context);
      return schedule ? [this.candidate(context, schedule)] : [];
    });
    this.byKey = new Map(ranked.map(({ context }) => [mappingText(namesOf(context.mapping)), context]));
  }

  get ranked(): readonly Ranked<C>[] {
    return this.known;
  }

  key(candidate: K): string {
    return candidateKey(candidate);
  }

  /** @throws Error for a candidate of another space */
  contextOf(candidate: K): C {
    const context =
      this.byKey.get(mappingText(candidate)) ??
      internal(`${printMatching(candidate.matching)} is no mapping of this space`);
    return context;
  }

  /** @throws Error for a candidate of another space */
  mappingOf(candidate: K): Mapping {
    return this.contextOf(candidate).mapping;
  }

  random(random: Random): K {
    // Mappings with shorter predictions are chosen more often, in proportion to the square of the ratio.
    const least = this.ranked[0]?.expectedSeconds ?? 1;
    const { context } = pickWeighted(random, this.ranked, (m) => (least / m.expectedSeconds) ** 2);
    return this.candidate(context, this.how.random(context, random));
  }

  mutate(candidate: K, random: Random): K {
    if (this.ranked.length > 1 && random() < MAPPING_MUTATION) return this.random(random);
    const { schedules } = this.how;
    return {
      ...candidate,
      schedule: mutateSchedule<ScheduleOf<K>, C>(schedules, this.contextOf(candidate), candidate.schedule, random),
    };
  }

  crossover(a: K, b: K, random: Random): K {
    if (mappingText(a) !== mappingText(b)) return random() < 0.5 ? a : b;
    const [{ schedules }, context] = [this.how, this.contextOf(a)];
    const schedule = crossSchedules<ScheduleOf<K>, C>(schedules, context, a.schedule, b.schedule, random);
    return { ...a, schedule };
  }

  *all(): Generator<K> {
    for (const { context } of this.ranked)
      for (const schedule of this.how.all(context)) yield this.candidate(context, schedule);
  }

  /**
   * A candidate of a similar computation as one of this space: the mapping of the same loops with the same tensors, and its schedule carried over.
   * Undefined when this space has no such mapping, or the schedule is not legal for it.
   * @param from the mapping of the candidate
   */
  carried({ schedule }: K, from: Mapping): K | undefined {
    const found = this.ranked.find(({ context }) => isAlike(context.mapping, from));
    const carried = found && carriedSchedule<ScheduleOf<K>, C>(this.how.schedules, found.context, schedule);
    return found && carried && this.candidate(found.context, carried);
  }

  /**
   * A schedule carried over to a mapping, which the space takes in if enumeration left it out; undefined where it is not legal, or the model cannot
   * tell its time.
   * @param predict seconds of a schedule under the mapping
   */
  takenIn(
    context: C,
    schedule: ScheduleOf<K>,
    predict: (schedule: ScheduleOf<K>) => number | undefined,
  ): K | undefined {
    const key = mappingText(namesOf(context.mapping));
    const own = this.byKey.get(key) ?? context;
    const carried = carriedSchedule<ScheduleOf<K>, C>(this.how.schedules, own, schedule);
    const expectedSeconds = carried && predict(carried);
    if (!carried || expectedSeconds === undefined) return undefined;
    if (!this.byKey.has(key)) {
      this.byKey.set(key, context);
      this.known.push({ context, expectedSeconds });
    }
    return this.candidate(own, carried);
  }

  distance(a: K, b: K): number {
    const apart = mappingText(a) === mappingText(b) ? 0 : MAPPING_APART;
    return apart + scheduleDistance<ScheduleOf<K>, C>(this.how.schedules, this.contextOf(a), a.schedule, b.schedule);
  }

  codeSize(candidate: K): number {
    return this.how.codeSize?.(this.contextOf(candidate), candidate.schedule) ?? 0;
  }

  private candidate({ mapping }: C, schedule: ScheduleOf<K>): K {
    return { kind: this.how.kind, ...namesOf(mapping), schedule } as K; // the schedule is of the kind
  }
}

/** Whether two mappings of similar computations feed the same loops and tensors to the same instruction. */
function isAlike(a: Mapping, b: Mapping): boolean {
  if (a.intrinsic.name !== b.intrinsic.name || a.computation.rewriting?.kind !== b.computation.rewriting?.kind)
    return false;
  const same = Object.entries(a.binding).every(([operand, bound]) => {
    const other = b.binding[operand];
    if (other === undefined) return false;
    if (bound.kind === "access" && other.kind === "access") return bound.tensor === other.tensor;
    return printExpr(bound) === printExpr(other);
  });
  return same && canonicalJson(a.matching) === canonicalJson(b.matching);
}

type Names = Pick<ScheduledCandidate, "intrinsic" | "matching" | "operands" | "rewriting">;

/** Shared by all candidates of a mapping. */
const namesOf = memoised(({ intrinsic, matching, binding, computation: { rewriting } }: Mapping): Names => {
  const operands = Object.fromEntries(Object.entries(binding).map(([o, bound]) => [o, printExpr(bound)]));
  return { intrinsic: intrinsic.name, matching, operands, ...(rewriting && { rewriting: rewriting.kind }) };
});

const matchingText = memoisedPair((operands: Names["operands"], matching: Names["matching"]) =>
  canonicalJson({ matching, operands }),
);

/** A text that is the same for a candidate made here and one read from a record, whose keys may be in another order. */
function mappingText({ intrinsic, matching, operands, rewriting }: Names): string {
  return `${intrinsic} ${rewriting ?? ""} ${matchingText(operands, matching)}`;
}
