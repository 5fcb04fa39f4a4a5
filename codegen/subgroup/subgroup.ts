/**
 * @file Prints the nest of a mapping for work-groups of one sub-group, each of which is one thread of the nest. Its
 * lanes hold tiles together, share the steps of innermost scalar loops, and see each other's writes to memory after a
 * sub-group barrier. Where instructions belong to a single work-item, the group has only one. OpenCL C and SYCL supply
 * the syntax of functions, memories and barriers. In SYCL a work-group has several sub-groups where a thread first copies
 * inputs into local memory (subgroup-teams.ts).
 *
 *     for (int step = part; step < 448; step += parts) {                    for parallel p in 0..56, q_outer in 0..8
 *       const int p = step / 8, q_outer = step % 8;
 *       for (int n = lane; n < 64; n += 8) out[...] = ...                     for n in 0..64
 *
 * While a nest is printed, the issues of each instruction are counted, loop by loop.
 *
 *     for (int step = part; step < 448; step += parts)         448 trips
 *       for (int k = 0; k < 4 * once; k++)                        4 trips
 *         c0 = ...mad...; c1 = ...mad...;                            2 issues
 */

import type { Extents } from "../../abstraction/affine.ts";
import { sumOf } from "../../abstraction/collections.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { PrintedIssues, PrintedLoop } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { axisName, block, type Code, code, Name, type SourceText } from "../../abstraction/source-text.ts";
import { localBytesOf } from "../../targets/features.ts";
import type { CExpressions } from "../c-expressions.ts";
import { dealtIndices } from "../lane-printer.ts";
import { ScheduledNest } from "../scheduled-nest.ts";
import { extentsIn, type LanguagePrinter, type Loop, type Of, printStatements, stepsOf } from "../walk.ts";
import { contains, isScalars, laneAxis, type Tasks, tasksOf, touchedIn } from "./subgroup-tasks.ts";
import { type Teams, teamsIn } from "./subgroup-teams.ts";

export const LANE = new Name("local", "lane");
export const STEP = new Name("local", "step");
/** A work-item among those of its work-group. */
export const MEMBER = new Name("local", "member");
/** A sub-group among those of its work-group. */
export const TEAM = new Name("local", "team");

/**
 * Checks the local memory of a nest, on the machines with one of the given features.
 * @throws UsageError if it exceeds that of a work-group
 */
export function checkLocalMemory({ scratch }: LoopNest, features: readonly string[]): void {
  const most = localBytesOf(features);
  const bytes = sumOf(
    scratch.filter((s) => s.scope === "local"),
    (s) => s.elements * bytesOf(s.dtype),
  );
  if (most !== undefined && bytes > most)
    throw new UsageError(
      `a sub-group keeps ${bytes} bytes of its own, and a work-group has ${most} of local memory`,
      "choose a schedule with smaller blocks",
    );
}

/**
 * The text of a kernel for a GPU. DG2 and Mali-G76 have no doubles, although their emulation does. @throws UsageError if
 * the text uses doubles
 */
export function withoutDoubles(source: SourceText, { isa }: Intrinsic): SourceText {
  const hasNone = isa === "xe_hpg" || isa === "mali_g76" || isa.startsWith("cl_arm_");
  if (hasNone && /\bdouble\b/.test(source.replaceAll(/\/\*[\s\S]*?\*\//g, "")))
    throw new UsageError(
      "the kernel computes in double precision, which the GPU does not have",
      "choose results in f32 or s32, or a GPU with doubles such as --target pvc",
    );
  return source;
}

export abstract class SubgroupWriter extends ScheduledNest implements LanguagePrinter {
  /** Lanes of a sub-group; 1 if each work-item works alone. */
  readonly width: number;
  /** Memory that the current phase both writes and reads. */
  private shared: ReadonlySet<string> = new Set();
  /** Whether the code is inside a loop of scalars that has barriers around it. */
  private fenced = false;
  /** Local memory of a work-group. */
  protected readonly localBytes: number = Number.POSITIVE_INFINITY;
  /** How sub-groups share the current phase, if a work-group has several. */
  protected teams: Teams | undefined;
  /** Whether the code is for all sub-groups of a work-group together. */
  private together = false;
  /** Issues of the phase printed last. */
  protected issueCount = new IssueCount();

  constructor(lanes: number, c: CExpressions) {
    super(c);
    this.width = lanes;
  }

  // ---- what a language says ---------------------------------------------------------------------------------------------------

  /** What makes lanes see the writes of their sub-group to these buffers. */
  protected abstract barriersOf(buffers: readonly string[]): Code[];
  /** The same for all sub-groups of a work-group; undefined where a work-group is always one sub-group. */
  protected readonly groupBarrier: Code | undefined = undefined;
  /** The trip count of a loop around instructions. */
  protected trips({ extent }: Loop): Code {
    return code`${extent}`;
  }
  abstract move(statement: Of<"load" | "store">, extents: Extents): Code[];

  /** The work of a work-group in a phase. */
  protected bodyOf(phase: readonly Statement[]): Code[] {
    const { reads, writes } = touchedIn(phase);
    this.shared = new Set([...reads].filter((buffer) => writes.has(buffer)));
    this.teams = this.groupBarrier && this.teamsThatFit(phase);
    this.together = this.teams !== undefined;
    this.issueCount = new IssueCount();
    return printStatements(phase, this);
  }

  /** Sub-groups that share a phase, if local memory holds the sums that each of them stores. */
  private teamsThatFit(phase: readonly Statement[]): Teams | undefined {
    const teams = teamsIn(phase, this.nest, this.tasks);
    const bytes = this.nest.scratch
      .filter((s) => s.scope === "local")
      .map((s) => s.elements * bytesOf(s.dtype) * (teams?.results.has(s.name) ? teams.count : 1));
    return sumOf(bytes) <= this.localBytes ? teams : undefined;
  }

  /** What shares scalar statements: the lanes of a sub-group, or all work-items of a work-group. */
  private workers(): { readonly one: Name; readonly count: number; readonly barrier?: Code } {
    return this.together && this.teams && this.groupBarrier
      ? { one: MEMBER, count: this.width * this.teams.count, barrier: this.groupBarrier }
      : { one: LANE, count: this.width };
  }

  /** Statements of a thread. Where sub-groups share them, each step of sums is one sub-group's. */
  private shareOut(statements: readonly Statement[], extents: Extents): Code[] {
    const { teams } = this;
    if (!teams || !this.together) return printStatements(statements, this, extents);
    return teams.segmentsOf(statements).flatMap(({ kind, statements: own, first }): Code[] => {
      if (kind === "together" || kind === "around") return printStatements(own, this, extents);
      this.together = false;
      const [loop] = own;
      const text =
        kind === "dealt" && loop?.kind === "loop"
          ? this.dealtToTeams(loop, first % teams.count, extents)
          : block(code`if (${TEAM} == ${first % teams.count}) {`, printStatements(own, this, extents));
      this.together = true;
      return text;
    });
  }

  /** A loop whose first step is that of sub-group `first`, the next that of the next. */
  private dealtToTeams(loop: Loop, first: number, extents: Extents): Code[] {
    const count = this.teams?.count ?? 1;
    const name = axisName(loop.axis);
    const begin = first === 0 ? code`${TEAM}` : code`(${TEAM} + ${count - first}) % ${count}`;
    const head = code`for (${this.indexType} ${name} = ${begin}; ${name} < ${loop.extent}; ${name} += ${count}) {`;
    return block(head, printStatements(loop.body, this, { ...extents, [loop.axis]: loop.extent }));
  }

  // ---- loops ------------------------------------------------------------------------------------------------------------------

  /** Sub-groups are many, so inner loops are dealt out too, as far as their blocks are independent. */
  protected readonly tasks = (loop: Loop): Tasks[] => tasksOf(loop, this.width > 1 ? this.nest : undefined);

  row(loop: Loop, extents: Extents): readonly Code[] | undefined {
    if (loop.mode === "parallel") return this.tasks(loop).flatMap((tasks) => this.dealt(tasks, extents));
    if (this.together && !isScalars(loop)) {
      const inside = this.shareOut(loop.body, { ...extents, [loop.axis]: loop.extent });
      return block(this.openLoop(loop, extents), inside);
    }
    if (this.width > 1 && contains(loop, (s) => s.kind === "register-issue")) {
      const inside = this.issueCount.inside(loop.extent, () => printStatements(loop.body, this, extents));
      const name = axisName(loop.axis);
      const head = code`for (${this.indexType} ${name} = 0; ${name} < ${this.trips(loop)}; ${name}++) {`;
      return block(head, inside);
    }
    if (this.width === 1 || !isScalars(loop)) return undefined;
    return this.behindBarriers([loop], () => this.overLanes(loop, extents));
  }

  private dealt({ loops, body }: Tasks, extents: Extents): Code[] {
    const { indexType } = this;
    const total = stepsOf(loops);
    const within = { ...extents, ...extentsIn(loops) };
    const [only] = loops;
    const text = (): Code[] => this.issueCount.inside(total, () => this.shareOut(body, within));
    if (this.width === 1 && only && !only.inTurn) {
      const name = axisName(only.axis);
      const at = (part: Code): Code => code`(${indexType})(${only.extent}L * ${part} / parts)`;
      const head = code`for (${indexType} ${name} = ${at(code`part`)}; ${name} < ${at(code`(part + 1)`)}; ${name}++) {`;
      return block(head, text());
    }
    const indices = dealtIndices(loops, code`${STEP}`, indexType, axisName).map((d) => d.line);
    const head = code`for (${indexType} ${STEP} = part; ${STEP} < ${total}; ${STEP} += parts) {`;
    return block(head, [...indices, ...text()]);
  }

  /** A nest of scalar statements. Lanes share the steps of one loop in each chain. */
  private overLanes(loop: Loop, extents: Extents): Code[] {
    const shared = laneAxis(loop, this.workers().count);
    if (shared === undefined) {
      const within = { ...extents, [loop.axis]: loop.extent };
      return block(this.openLoop(loop, within), printStatements(loop.body, this, within));
    }
    return this.chain(loop, shared, extents);
  }

  private chain(loop: Loop, shared: string, extents: Extents): Code[] {
    const within = { ...extents, [loop.axis]: loop.extent };
    const body = (): Code[] =>
      loop.body.flatMap((s): Code[] =>
        s.kind === "loop" ? this.chain(s, shared, within) : s.kind === "scalar" ? this.assigned(s, within) : [],
      );
    return loop.axis === shared ? this.sharedLoop(loop, body) : block(this.openLoop(loop, within), body());
  }

  /** A loop whose steps the lanes share. */
  protected sharedLoop({ axis, extent }: Loop, body: () => Code[]): Code[] {
    const name = axisName(axis);
    const { one, count } = this.workers();
    const head = code`for (${this.indexType} ${name} = ${one}; ${name} < ${extent}; ${name} += ${count}) {`;
    return block(head, body());
  }

  /**
   * Adds barriers before and after statements that touch shared memory: writes must be visible to readers, and reads
   * must end before the next write.
   */
  private behindBarriers(statements: readonly Statement[], print: () => Code[]): Code[] {
    const { reads, writes } = touchedIn(statements);
    const met = [...reads, ...writes].filter((buffer) => this.shared.has(buffer));
    const within = [...reads].some((buffer) => writes.has(buffer));
    if (met.length === 0 || this.fenced) return print();
    this.fenced = !within;
    const text = print();
    this.fenced = false;
    const { barrier } = this.workers();
    const barriers = barrier ? [barrier] : this.barriersOf(met);
    return [...barriers, ...text, ...barriers];
  }

  // ---- leaves -----------------------------------------------------------------------------------------------------------------

  override issue(statement: Of<"register-issue">): Code[] {
    this.issueCount.add();
    return super.issue(statement);
  }

  /** Executed by one lane, outside of loops that lanes share. */
  scalar(statement: Of<"scalar">, extents: Extents): Code[] {
    const print = (): Code[] => this.assigned(statement, extents);
    return this.width === 1 ? print() : this.behindBarriers([statement], () => this.onOneLane(print));
  }

  protected onOneLane(print: () => Code[]): Code[] {
    return block(code`if (${this.workers().one} == 0) {`, print());
  }
}

interface Counting {
  issues: number;
  readonly loops: PrintedLoop[];
}

export class IssueCount {
  private current: Counting = { issues: 0, loops: [] };

  add(): void {
    this.current.issues += 1;
  }

  /** Prints the inside of a loop. A loop without issues is not kept. */
  inside<T>(trips: number, print: () => T): T {
    const around = this.current;
    const own: Counting = { issues: 0, loops: [] };
    this.current = own;
    const text = print();
    this.current = around;
    if (own.issues > 0 || own.loops.length > 0) around.loops.push({ trips, ...own });
    return text;
  }

  /** What has been printed so far. */
  printed(): PrintedIssues {
    return this.current;
  }
}
