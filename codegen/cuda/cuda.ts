/**
 * @file A nest of blocks and warps as CUDA: one self-contained source with the interface of abstraction/kernel.ts.
 *
 *     const int m_tile = blockIdx.x / 16;                                       for at block m_tile in 0..32, n_tile in 0..16
 *     const int warp_m = threadIdx.x / 128;                                       for at warp warp_m in 0..2, warp_n in 0..4
 *     for (auto& word : c[0]) word = 0;                                             c{0} <- identity
 *     copy_async<16>(&a_ring[a_ring_to], &x[x_from]);                               copy 128 x 64 by 8, async, by block
 *     commit_copies();                                                              commit
 *     for (int k_tile = 0; k_tile < 64; k_tile++) {                                 for k_tile in 0..64
 *       wait_for_copies<1>();                                                         wait 1
 *       __syncthreads();                                                              barrier block
 *
 * Each loop over blocks becomes a kernel. Register files are arrays indexed only by constants, so that the compiler
 * keeps them in registers. Loop-invariant parts of indices are named above the loops.
 *
 * The levels of a CUDA kernel: which loops of a nest count its blocks and the warps of a block, and whether one
 * thread has a separate role; and the kernel around what stands inside them.
 *
 *     for at block m_tile in 0..32                 32 blocks
 *       for at warpgroup m_warpgroup in 0..2         threads 0 to 255
 *         ...
 *       for at thread load in 0..1                   thread 256, in an additional warp
 *         ...
 *
 *     for parallel p in 0..100                     steps dealt to the warps of all blocks: 25 blocks of 4
 */

import { boundsOf, type Extents } from "../../abstraction/affine.ts";
import { namesOf, present, withName } from "../../abstraction/collections.ts";
import { type Computation, memoryElements, type Tensor } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { accessesIn, axesIn, type Expr, plus, remainder } from "../../abstraction/expression.ts";
import { type Asynchronous, fillTemplate, type Intrinsic, operandOf, WARP } from "../../abstraction/intrinsic.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import {
  type ArrivalAt,
  type Copy,
  dealOf,
  type Group,
  isGridMode,
  isRoleMode,
  isTeamMode,
  type LoopMode,
  type LoopNest,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import { printHead, printStatement } from "../../abstraction/print-nest.ts";
import { block, type Code, code, commentText, list, Name, NOTHING, namesIn } from "../../abstraction/source-text.ts";
import { CONSTANT_BYTES, MOST_THREADS, QUARTERS } from "../../targets/nvidia-gpu.ts";
import { ALL_LANES, allOf } from "../c-expressions.ts";
import { argumentsOf, intrinsicLine, ownPrelude, type SourceNotes } from "../cpp/cpp-frame.ts";
import { dealtIndices, dealtLoops, equationsIn, guarded, joinScalars, laneLoops } from "../lane-printer.ts";
import { shortIndex } from "../short-index.ts";
import {
  extentsIn,
  type LanguagePrinter,
  type Loop,
  type Named,
  namedIn,
  type Of,
  printStatements,
  roundsOf,
  stepsOf,
} from "../walk.ts";
import { ThreadExpressions, type WarpExpressions } from "../warp-expressions.ts";
import { type FoldSyntax, foldFunctions } from "../warp-lanes.ts";
import { type Box, printBoxes } from "./cuda-boxes.ts";
import { type Aligned, type CopyContext, printCopy } from "./cuda-copies.ts";
import { CudaExpressions, Hoisted, ownAxis } from "./cuda-expressions.ts";
import {
  alignments,
  arrivalsName,
  type CudaKernel,
  type CudaProgram,
  cudaProgram,
  type LaunchShape,
  pointersOf,
  sharedMemory,
  type Teams,
} from "./cuda-program.ts";
import { CudaTiles } from "./cuda-tiles.ts";
import { LANE } from "./fragment.ts";
import { CudaLanes, HalfLanes, ThreadLanes } from "./lanes-cuda.ts";

/**
 * The kernel of a nest of blocks and warps.
 * @param chained whether it is one of several kernels in a stream, each of which starts while the preceding one runs
 * and then waits for its end (sm_90)
 * @throws UsageError if a block has too many threads
 */
export function generateCuda(
  computation: Computation,
  intrinsic: Intrinsic,
  nest: LoopNest,
  { lines, chained = false }: SourceNotes & { readonly chained?: boolean },
): Kernel {
  const { aligned, raise } = alignments();
  const prepare = nest.prepare.map((s, i) =>
    new KernelPrinter(computation, nest, s, raise).kernel(new Name("local", `prepare_${i}`)),
  );
  const run = runKernels(computation, nest, raise, chained);
  const program = cudaProgram(computation, nest, {
    comments: [intrinsicLine(intrinsic), ...lines],
    // A nest without registers prints the equation of one thread.
    prelude: nest.registers.length === 0 ? [] : ownPrelude(intrinsic),
    prepare,
    run,
    aligned,
  });
  return {
    ...program,
    language: "cuda",
    features: [...new Set([...intrinsic.features, ...program.features])],
    promises: intrinsic.mnemonic,
    arguments: argumentsOf(computation),
  };
}

/**
 * A kernel for each loop over blocks. Kernels on either side of an early barrier overlap until the second waits for the
 * first.
 */
function runKernels(computation: Computation, nest: LoopNest, aligned: Aligned, chained: boolean): CudaKernel[] {
  const meets = (s: Statement | undefined): boolean => chained || (s?.kind === "barrier" && s.early === true);
  return nest.body
    .flatMap((s, i) =>
      s.kind === "barrier" ? [] : [{ s, early: meets(nest.body[i - 1]), next: meets(nest.body[i + 1]) }],
    )
    .map(({ s, ...follows }, i) =>
      new KernelPrinter(computation, nest, s, aligned).kernel(new Name("local", `phase_${i}`), follows),
    );
}

// ---- lanes ------------------------------------------------------------------------------------------------------------------------

/** @throws UsageError if a vector has more lanes than a warp, or a block's scratch does not fit into shared memory */
export function cudaSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
): CudaProgram {
  const { lanes } = dealOf(nest);
  checkLanes(nest, lanes);
  const constants = constantTensors(nest, Object.values(computation.tensors));
  const { aligned, raise } = alignments();
  const kernel = (name: string, phase: readonly Statement[], held: readonly Tensor[]): CudaKernel => {
    // The printer sees only this kernel's statements, since other kernels of the call run at other times.
    const own = { ...nest, prepare: [], body: phase };
    const names = new Set(namesOf(held));
    const printer = nest.vectors?.some((v) => v.dtype === "f16")
      ? new HalfLanes(computation, own, names, raise)
      : new CudaLanes(new ThreadExpressions(computation, own, lanes, names), raise);
    return kernelOf(new Name("local", name), dealtGrid(phase, nest), printer);
  };
  // The preparation kernel takes constants as pointers.
  const prepare = nest.prepare.length > 0 ? [kernel("prepare_kernel", nest.prepare, [])] : [];
  // Equal phases share one kernel.
  const known = new Map<string, CudaKernel>();
  const rounds = roundsOf(nest.body).map(({ phases, times }) => ({
    times,
    kernels: phases.map((phase) => {
      const text = JSON.stringify(phase);
      const found = known.get(text) ?? kernel(`phase_${known.size}`, phase, constants);
      known.set(text, found);
      return found;
    }),
  }));
  return cudaProgram(computation, nest, {
    comments: [...comments, ...notes.lines],
    folds: foldFunctions(lanes, FOLDS),
    aligned,
    constants,
    prepare,
    run: [...known.values()],
    rounds,
  });
}

/** @throws UsageError if a step has more lanes than run it */
function checkLanes(nest: LoopNest, lanes: number): void {
  if (lanes < 1 || WARP % lanes !== 0)
    throw new UsageError(`a warp of ${WARP} lanes is not divided into groups of ${lanes}`);
  const wide = lanesIn(nest).find((of) => of.lanes > lanes);
  if (wide)
    throw new UsageError(
      `${wide.name} has ${wide.lanes} lanes: a warp of CUDA has ${WARP}`,
      `give the design at most ${WARP} lanes, for example --lanes ${WARP}`,
    );
}

/** Constants that fit into constant memory and that all lanes read at the same address. */
function constantTensors(nest: LoopNest, tensors: readonly Tensor[]): readonly Tensor[] {
  let left = CONSTANT_BYTES;
  return tensors.filter((t) => {
    const size = memoryElements(t) * bytesOf(t.dtype);
    if (!t.constant || size > left || readByLane(nest, t.name)) return false;
    left -= size;
    return true;
  });
}

const FOLDS: FoldSyntax = {
  types: [{ suffix: "", type: code`T` }],
  head: (name) => code`template <class T> static __device__ inline T ${name}(T v)`,
  exchange: code`__shfl_xor_sync(${ALL_LANES}, v, distance)`,
};

function lanesIn(nest: LoopNest): { readonly name: string; readonly lanes: number }[] {
  const all = laneLoops([...nest.prepare, ...nest.body]);
  return [...(nest.vectors ?? []), ...all.map((l) => ({ name: `the loop ${l.axis}`, lanes: l.extent }))];
}

/** Whether lanes read different elements of a tensor at once, which constant memory serialises. */
function readByLane(nest: LoopNest, tensor: string): boolean {
  return laneLoops(nest.body).some((l) =>
    equationsIn(l.body).some(({ value }) =>
      accessesIn(value).some((a) => a.tensor === tensor && a.index.some((e) => axesIn(e).includes(l.axis))),
    ),
  );
}

// ---- blocks and warps --------------------------------------------------------------------------------------------------------------

/** Prints one kernel: loops over blocks, loops over warps, and the body of each warp. */
class KernelPrinter extends CudaTiles implements KernelWriter {
  readonly c: CudaExpressions;
  protected override readonly context: CopyContext;
  private readonly threadLanes: ThreadLanes;
  private readonly levels: Levels;
  /** The boxes that the host describes to the engine, by name. */
  private readonly boxes = new Map<string, Box>();
  /** Whether a single thread runs the code being printed. */
  private alone = false;

  constructor(computation: Computation, nest: LoopNest, statement: Statement, aligned: Aligned) {
    super(nest);
    const levels = gridOf(statement);
    this.levels = levels;
    this.c = new CudaExpressions(computation, nest, elementTypes(nest));
    this.c.hoisted = new Hoisted(this.c, fixedIn(levels));
    this.context = {
      c: this.c,
      threadsOf: (group: Group) =>
        group === "block" ? { axis: THREAD, count: levels.threads } : { axis: LANE, count: levels.team },
      aligned,
    };
    this.threadLanes = new ThreadLanes(this.c, aligned);
    for (const axis of countedIn(statement)) this.c.counters.ofBodies.add(axis);
  }

  kernel(name: Name, overlap: Overlap = {}): CudaKernel {
    const made = kernelOf(name, this.levels, this, overlap, () => this.c.hoisted?.declarations ?? []);
    return { ...made, boxes: [...this.boxes.values()] };
  }

  override declarations(named: Named): Code[] {
    const counters = [...this.c.counters.ofBodies].map((axis) => code`${this.c.indexType} ${this.c.axis(axis)} = 0;`);
    return [...super.declarations(named), ...this.threadLanes.declarations(named), ...counters];
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  /** Loops marked as unrolled are unrolled, and others are not: the compiler gets both as pragmas. */
  row(loop: Loop, extents: Extents): readonly Code[] {
    if (isRoleMode(loop.mode)) return this.role(loop, extents);
    const { axis, extent, mode } = loop;
    if (mode !== "serial") internal(`the loop ${axis} at ${mode} stands within what warps run`);
    const name = this.c.axis(axis);
    const print = (e: Expr): Code => this.c.index(shortIndex(e, extents), extents);
    const { begun, lines } = this.c.counters.along(axis, () => printStatements(loop.body, this, extents), print);
    const first = list([code`${name} = 0`, ...begun]);
    const head = code`for (${this.c.indexType} ${first}; ${name} < ${extent}; ${name}++) {`;
    return [code`#pragma unroll 1`, ...block(head, lines)];
  }

  /** The body of one role. Branches on warp numbers keep ptxas from serialising wgmma. */
  private role(loop: Loop, extents: Extents): readonly Code[] {
    if (loop.mode !== "thread") {
      const lines = printStatements(teamsOf(loop).body, this, extents);
      return [headOf(loop), ...guarded([code`threadIdx.x < ${this.levels.inTeams}`], lines, true)];
    }
    this.alone = true;
    const lines = guarded([code`threadIdx.x % ${WARP} == 0`], printStatements(loop.body, this, extents), true);
    this.alone = false;
    return [
      headOf(loop),
      ...guarded([code`threadIdx.x >= ${this.levels.inTeams}`], [...lines, code`__syncwarp();`], true),
    ];
  }

  openWhen({ condition }: Of<"when">, extents: Extents): Code {
    const tests = this.c.tests(conjunctsOf(condition), extents);
    return tests.length === 0 ? code`{` : code`if (${allOf(tests)}) {`;
  }

  count(axis: string): Code {
    return code`${this.c.axis(axis)}++;`;
  }

  openLoop({ axis }: Loop): Code {
    internal(`the loop ${axis} has bounds of its own`);
  }

  above(loop: Loop): Code[] {
    return noted(loop);
  }

  /** Executed by one lane of every warp. */
  scalar({ equation }: Of<"scalar">, extents: Extents): Code[] {
    const { c } = this;
    const { target, op, value, where } = equation;
    const dtype = c.dtypes[target.tensor] ?? "f32";
    const to = c.placeWhere(target, conjunctsOf(where), extents);
    const held = op === "=" ? NOTHING : c.value(target, dtype, extents);
    const joined = joinScalars(c, op, held, c.value(value, dtype, extents), dtype);
    const first = code`${c.axis(LANE)} == 0`;
    return guarded([first, ...to.guards], [code`${c.tensor(target.tensor)}[${to.at}] = ${joined};`]);
  }

  lanes(loop: Loop, extents: Extents): Code[] {
    return this.threadLanes.lanes(loop, extents);
  }

  copy(statement: Copy, extents: Extents): Code[] {
    const copied =
      statement.transfer === "engine" ? this.stores(statement, extents) : printCopy(statement, this.context, extents);
    return [...noted(statement), ...copied];
  }

  /** Executed by the first thread of a team. */
  private stores(statement: Copy, extents: Extents): Code[] {
    const { c, nest } = this;
    const { cluster } = this.levels;
    const { box, lines } = printBoxes(statement, undefined, { c, nest, counts: false, cluster }, extents);
    this.boxes.set(box.name.id, box);
    this.context.aligned(box.tensor, BOX_ALIGNMENT);
    return guarded([code`${c.axis(LANE)} == 0`], [...lines, code`@commit_stores();`], true);
  }

  settle({ pending }: Of<"settle">): Code[] {
    return [code`@wait_for_stores<${pending}>();`];
  }

  commit({ of }: Of<"commit">): Code[] {
    return [of ? around(of, "commit") : code`@commit_copies();`];
  }

  wait({ pending, of }: Of<"wait">): Code[] {
    if (!of) return [code`@wait_for_copies<${pending}>();`];
    return [around(of, "wait", pending), ...(pending === 0 ? this.arrived(of) : [])];
  }

  /** Executed by the block's first thread, or by the thread with a separate role. */
  send(statement: Of<"send">, extents: Extents): Code[] {
    const { c, nest } = this;
    const { arrival, copies, when } = statement;
    const { cluster } = this.levels;
    const at = this.arrivalAt(arrival, extents);
    const sent = copies.map((copy) => printBoxes(copy, at, { c, nest, counts: this.alone, cluster }, extents));
    for (const { box } of sent) {
      this.boxes.set(box.name.id, box);
      this.context.aligned(box.tensor, BOX_ALIGNMENT);
    }
    const bytes = sent.reduce((sum, s) => sum + s.bytes, 0);
    const conditions = present([!this.alone && code`threadIdx.x == 0`, when && c.condition(when, extents)]);
    const lines = [code`@expect_bytes(${at}, ${bytes});`, ...sent.flatMap((s) => s.lines)];
    return [...noted(statement), ...guarded(conditions, lines, true)];
  }

  await({ arrival, use, when }: Of<"await">, extents: Extents): Code[] {
    const { c } = this;
    // The use before the first one has the opposite parity.
    const before = boundsOf(use, extents)[0] < 0 ? 1 : 0;
    const counted = remainder(plus(use, before), 2);
    const parity = code`${c.index(shortIndex(counted, extents), extents)}${before === 1 ? " ^ 1" : ""}`;
    const line = code`@await_arrival(${this.arrivalAt(arrival, extents)}, ${parity});`;
    return guarded(when ? [c.condition(when, extents)] : [], [line]);
  }

  arrive({ arrival, group, when }: Of<"arrive">, extents: Extents): Code[] {
    const at = this.arrivalAt(arrival, extents);
    const line = group ? code`@arrive_in_blocks<${this.levels.cluster}>(${at});` : code`@arrive_at(${at});`;
    return guarded(when ? [this.c.condition(when, extents)] : [], [line]);
  }

  private arrivalAt({ name, stage }: ArrivalAt, extents: Extents): Code {
    return code`&${arrivalsName(name)}[${this.c.index(shortIndex(stage, extents), extents)}]`;
  }

  fence({ on, of }: Of<"fence">): Code[] {
    return [around(of, on === "memory" ? "publish" : "fence")];
  }

  barrier({ group, of }: Of<"barrier">): Code[] {
    const cluster = of ? code`@cluster_has_begun();` : code`@barrier_of_cluster();`;
    const barriers = {
      cluster,
      warp: code`__syncwarp();`,
      warpgroup: code`@barrier_of_group();`,
      block: code`__syncthreads();`,
    };
    return [barriers[group ?? "block"]];
  }
}

/** Alignment of tensors that an engine copies boxes of. Source: CUDA driver API, cuTensorMapEncodeTiled. */
const BOX_ALIGNMENT = 16;

/** Text around an asynchronous instruction: fences, commits, waits. */
function around({ name, asynchronous }: Intrinsic, what: keyof Asynchronous, pending = 0): Code {
  if (!asynchronous) internal(`${name} is not asynchronous`);
  return fillTemplate(asynchronous[what], { pending: code`${pending}` });
}

/** A statement as the notation writes it, in comments. */
const noted = (s: Statement): Code[] => printStatement(s).map((line) => code`// ${commentText(line)}`);

const headOf = (loop: Loop): Code => code`// ${commentText(printHead(loop))}`;

/** The axes that count bodies. */
function countedIn(s: Statement): string[] {
  if (s.kind === "loop") return s.body.flatMap(countedIn);
  return s.kind === "when" ? [...present([s.counted?.name]), ...[...s.body, ...s.otherwise].flatMap(countedIn)] : [];
}

/** The types of register elements, by their names in drains. */
function elementTypes(nest: LoopNest): Record<string, DType> {
  const types: Record<string, DType> = {};
  const visit = (s: Statement): void => {
    if (s.kind === "loop") for (const inner of s.body) visit(inner);
    if (s.kind !== "drain") return;
    const file = withName(nest.registers, s.register.file);
    if (file) types[s.element] = operandOf(file.intrinsic, file.operand).dtype;
  };
  for (const s of [...nest.prepare, ...nest.body]) visit(s);
  return types;
}

// ---- levels ------------------------------------------------------------------------------------------------------------------------------

/** The number of a thread in its block. */
const THREAD = ownAxis("thread");
const INDEX = new Name("local", "warp_index");

interface Levels extends LaunchShape, Teams {
  /** Loops whose counters follow from the number of the block or the thread. */
  readonly counted: readonly { readonly loops: readonly Loop[]; readonly from: Code }[];
  /** Axes of lanes and threads, and their values. */
  readonly numbered: readonly (readonly [axis: string, value: Code])[];
  /** The first lines of the kernel. */
  readonly begun: readonly Code[];
  /** What each team runs. */
  readonly inner: readonly Statement[];
}

/** The levels of a statement whose outermost loops are at block and at warp. */
function gridOf(statement: Statement): Levels {
  const { loops: blocks, body } = chainOf([statement], isGridMode);
  const { warps, alone, inner } = rolesOf(body);
  const team = warps[0]?.mode === "warpgroup" ? 4 * WARP : WARP;
  const inTeams = team * stepsOf(warps);
  const threads = inTeams + WARP * alone;
  // The remainder tells the compiler that the number is not negative.
  const thread = code`threadIdx.x % ${2 ** Math.ceil(Math.log2(threads))}`;
  return {
    blocks: stepsOf(blocks),
    cluster: stepsOf(blocks.filter((l) => l.mode === "cluster")),
    team,
    inTeams,
    threads,
    counted: [
      { loops: blocks, from: code`blockIdx.x` },
      { loops: warps, from: code`threadIdx.x / ${team}` },
    ],
    numbered: [
      [THREAD, thread],
      [LANE, code`threadIdx.x % ${team}`],
    ],
    begun: [],
    inner,
  };
}

/** The levels of a phase whose outermost parallel loops are dealt to the warps of all blocks, or to equal parts of them. */
function dealtGrid(phase: readonly Statement[], nest: LoopNest): Levels {
  const { warps, lanes: team, resident } = dealOf(nest);
  const { dealt, inner } = dealtLoops(phase);
  const threads = warps * WARP;
  const teams = threads / team;
  const steps = stepsOf(dealt);
  const axes = [...new Set(laneLoops(phase).map((l) => l.axis))];
  return {
    blocks: Math.ceil(steps / teams),
    cluster: 1,
    beside: resident === undefined ? undefined : Math.max(1, Math.floor((resident * QUARTERS) / warps)),
    team,
    inTeams: threads,
    threads,
    counted: [{ loops: dealt, from: code`${INDEX}` }],
    numbered: axes.map((axis) => [axis, code`threadIdx.x % ${team}`] as const),
    begun: [
      code`const int ${INDEX} = blockIdx.x * ${teams} + threadIdx.x / ${team};`,
      code`if (${INDEX} >= ${steps}) return;`,
    ],
    inner,
  };
}

/** Loops over the warps of a block and the body of each, or the roles of warps and of a single thread. */
function rolesOf(body: readonly Statement[]): {
  readonly warps: readonly Loop[];
  /** Threads with a separate role. */
  readonly alone: number;
  readonly inner: readonly Statement[];
} {
  const threads = body.filter((s): s is Loop => s.kind === "loop" && s.mode === "thread");
  if (threads.length === 0) {
    const { loops: warps, body: inner } = chainOf(body, isTeamMode);
    return { warps, alone: 0, inner };
  }
  const teams = body.find((s): s is Loop => s.kind === "loop" && isTeamMode(s.mode));
  if (!teams || stepsOf(threads) > 1) internal("one thread has a role of its own, beside warps");
  return { warps: teamsOf(teams).loops, alone: 1, inner: body };
}

/** Perfectly nested loops of some modes, and the body of the innermost. */
function chainOf(
  body: readonly Statement[],
  isOne: (mode: LoopMode) => boolean,
): { readonly loops: readonly Loop[]; readonly body: readonly Statement[] } {
  const [only] = body;
  if (body.length !== 1 || only?.kind !== "loop" || !isOne(only.mode)) return { loops: [], body };
  const inner = chainOf(only.body, isOne);
  return { ...inner, loops: [only, ...inner.loops] };
}

/** Perfectly nested loops over the warps of a block, and the body of each warp. */
const teamsOf = (loop: Loop): ReturnType<typeof chainOf> => chainOf([loop], isTeamMode);

// ---- kernels ----------------------------------------------------------------------------------------------------------------------

/** A declaration, and the name that it declares. */
interface Declared {
  readonly name: Name;
  readonly line: Code;
}

/** What prints the statements inside the levels of a kernel. */
interface KernelWriter extends LanguagePrinter {
  readonly c: WarpExpressions;
  declarations(named: Named): Code[];
}

/** Whether a kernel is launched while the preceding one runs, and whether the next one is launched while it runs. */
interface Overlap {
  readonly early?: boolean;
  readonly next?: boolean;
}

/** The extents of axes that are the same throughout a kernel. */
const fixedIn = ({ counted, team, threads }: Levels): Extents => ({
  ...extentsIn(counted.flatMap((c) => c.loops)),
  [LANE]: team,
  [THREAD]: threads,
});

/**
 * The kernel around what its teams run.
 * @param hoisted constants above the loops, known once the statements are printed
 * @throws UsageError if a block has too many threads, or too little shared memory
 */
function kernelOf(
  name: Name,
  levels: Levels,
  writer: KernelWriter,
  { early = false, next = false }: Overlap = {},
  hoisted: () => readonly Declared[] = () => [],
): CudaKernel {
  const { blocks, cluster, threads, beside, begun, inner } = levels;
  const { computation, constants, nest } = writer.c;
  if (threads > MOST_THREADS)
    throw new UsageError(`a block of ${threads} threads: CUDA has at most ${MOST_THREADS}`, "take fewer warps a block");
  const lines = printStatements(inner, writer, fixedIn(levels));
  const names = namesIn(lines);
  const held = mentionedIn(names, hoisted());
  const named = namedIn(inner, nest);
  const shared = sharedMemory(nest, named, levels);
  const indices = mentionedIn(new Set([...names, ...namesIn(held)]), indicesOf(levels, writer.c));
  const memory = new Set([...named.memory].filter((tensor) => !constants.has(tensor)));
  return {
    name,
    pointers: pointersOf(computation, nest, { memory }, early),
    blocks,
    cluster,
    threads,
    beside,
    early,
    sharedBytes: shared.bytes,
    body: present([
      next && code`@begin_next_kernel();`,
      ...begun,
      ...shared.lines,
      ...indices,
      ...writer.declarations(named),
      ...held,
      early && code`@await_kernel_ahead();`,
      ...lines,
    ]),
  };
}

/** Constants that give a thread's position. */
function indicesOf({ counted, numbered }: Levels, c: WarpExpressions): Declared[] {
  const nameOf = (axis: string): Name => c.axis(axis);
  return [
    ...counted.flatMap(({ loops, from }) => dealtIndices(loops, from, c.indexType, nameOf)),
    ...numbered.map(([axis, value]) => ({
      name: nameOf(axis),
      line: code`const ${c.indexType} ${nameOf(axis)} = ${value};`,
    })),
  ];
}

/** The declarations of names that are used, by id. */
function mentionedIn(names: ReadonlySet<string>, all: readonly Declared[]): Code[] {
  return all.filter(({ name }) => names.has(name.id)).map(({ line }) => line);
}
