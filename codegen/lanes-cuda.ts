/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, a parallel loop is dealt to warps.
 *
 *     Z0 = __shfl_up_sync(0xffffffffu, Z0, 1) + x[28 * b + lane] * w[q];
 *
 * Constants that all lanes read alike lie in constant memory; nvcc makes one instruction of a*b + c. Emulation: runtime/emulation/cuda.h.
 */

import { affineForm, type Extents } from "../abstraction/affine.ts";
import { type Computation, memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger } from "../abstraction/dtype.ts";
import { type Equation, identityOf } from "../abstraction/equation.ts";
import { UsageError } from "../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axesIn,
  type Expr,
  printAccess,
  substitute,
  walk,
} from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { LoopNest, Statement, VectorFile } from "../abstraction/loop-nest.ts";
import { WARP } from "../abstraction/register.ts";
import { typeOf } from "../abstraction/typing.ts";
import { CExpressions } from "./c-expressions.ts";
import { headOf, type SourceNotes, workspaceOf } from "./cpp-frame.ts";
import { helpersFor } from "./cpp-helpers.ts";
import {
  conjunction,
  dealtLoops,
  equationsIn,
  guarded,
  joinedValue,
  joinScalars,
  laneLoops,
  pinnedLane,
  tested,
} from "./lane-statement.ts";
import { type LanguagePrinter, type Loop, phasesOf, printStatements, type Scalar } from "./walk.ts";

export interface CudaOptions {
  /** Warps of a block; 4 when left out. */
  readonly warps?: number;
}

const ALL_LANES = "0xffffffffu";
/** Constant memory a kernel may take: 64 KiB of it exist. */
const CONSTANT_BYTES = 48 * 1024;
/** Shared memory of a block without asking for more. */
const SHARED_BYTES = 48 * 1024;

/** @throws UsageError when a vector has more lanes than a warp, or a block's scratch does not fit into shared memory */
export function cudaSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
  { warps = 4 }: CudaOptions,
): string {
  const wide = lanesIn(nest).find(({ lanes }) => lanes > WARP);
  if (wide)
    throw new UsageError(`${wide.name} has ${wide.lanes} lanes: a warp of CUDA has ${WARP}`, {
      hint: `give the design at most ${WARP} lanes, for example --lanes ${WARP}`,
    });
  const shared = nest.scratch.filter((s) => s.scope === "local");
  const bytes = warps * shared.reduce((sum, s) => sum + s.elements * bytesOf(s.dtype), 0);
  if (bytes > SHARED_BYTES)
    throw new UsageError(`${warps} warps want ${bytes} bytes of shared memory, a block has ${SHARED_BYTES}`, {
      hint: "take fewer warps a block, or smaller tiles",
    });

  // 1. Where tensors lie.
  const tensors = Object.values(computation.tensors);
  const output = outputOf(computation).name;
  let left = CONSTANT_BYTES;
  const inConstant = new Set<string>();
  for (const t of tensors) {
    const size = memoryElements(t) * bytesOf(t.dtype);
    if (!t.constant || size > left || readByLane(nest, t.name)) continue;
    inConstant.add(t.name);
    left -= size;
  }
  const workspace = workspaceOf(nest);

  // 2. One kernel a phase.
  const writer = new CudaLanes(computation, nest);
  const kernels: string[] = [];
  const launches: string[] = [];
  const kernel = (name: string, body: readonly Statement[], prepares: boolean): void => {
    const { dealt, inner, extents } = dealtLoops(body);
    const lines = printStatements(inner, writer, extents);
    const text = lines.join("\n");
    const used = (word: string): boolean => new RegExp(`\\b${word}\\b`).test(text);
    const passed = tensors.filter((t) => (prepares || !inConstant.has(t.name)) && used(t.name));
    const buffers = workspace.buffers.filter((b) => used(b.name));
    const parameters = [
      ...passed.map((t) =>
        t.name === output
          ? `${C_TYPES[t.dtype]}* __restrict__ ${t.name}`
          : `const ${C_TYPES[t.dtype]}* __restrict__ ${t.name}`,
      ),
      ...buffers.map((b) => `${b.type}* ${b.name}`),
    ];
    const total = dealt.reduce((product, d) => product * d.extent, 1);
    const indices = dealt.map((d, i) => {
      const below = dealt.slice(i + 1).reduce((product, x) => product * x.extent, 1);
      const whole = below === 1 ? "warp_index" : `warp_index / ${below}`;
      return `const int ${d.axis} = ${i === 0 ? whole : `${whole} % ${d.extent}`};`;
    });
    kernels.push(
      `__global__ void __launch_bounds__(${warps * WARP}) ${name}(${parameters.join(", ")}) {`,
      ...[
        `const int warp_index = blockIdx.x * ${warps} + threadIdx.x / ${WARP};`,
        `if (warp_index >= ${total}) return;`,
        ...indices,
        ...[...new Set(laneLoops(body).map((l) => l.axis))].map((lane) => `const int ${lane} = threadIdx.x % ${WARP};`),
        ...shared
          .filter((s) => used(s.name))
          .flatMap((s) => [
            `__shared__ ${C_TYPES[s.dtype]} ${s.name}_of_warp[${warps}][${s.elements}];`,
            `${C_TYPES[s.dtype]}* const ${s.name} = ${s.name}_of_warp[threadIdx.x / ${WARP}];`,
          ]),
        ...writer.declarations(lines),
        ...lines,
      ].map((l) => `  ${l}`),
      "}",
      "",
    );
    const pointers = [
      ...passed.map((t) => {
        const i = tensors.indexOf(t);
        const type = t.name === output ? `${C_TYPES[t.dtype]}*` : `const ${C_TYPES[t.dtype]}*`;
        return `${type} ${t.name} = (${type})tensors[${i}];`;
      }),
      ...buffers.map((b) => `${b.type}* ${b.name} = (${b.type}*)((char*)workspace + ${b.offset});`),
    ];
    const names = [...passed, ...buffers].map(({ name: n }) => `(void*)&${n}`);
    launches.push(
      ...guarded(
        [],
        [
          ...pointers,
          `void* arguments[] = {${names.length === 0 ? "nullptr" : names.join(", ")}};`,
          `error = cudaLaunchKernel(${name}, dim3(${Math.ceil(total / warps)}), dim3(${warps * WARP}), arguments, 0, stream);`,
          "if (error != cudaSuccess) return error;",
        ],
        true,
      ),
    );
  };
  if (nest.prepare.length > 0) kernel("prepare_kernel", nest.prepare, true);
  const prepareLaunch = launches.splice(0);
  phasesOf(nest.body).forEach((phase, i) => {
    kernel(`phase_${i}`, phase, false);
  });

  const symbols = tensors.filter((t) => inConstant.has(t.name));
  const copies = symbols.map((t) => {
    const size = memoryElements(t) * bytesOf(t.dtype);
    return [
      `error = cudaMemcpyToSymbolAsync(${t.name}, tensors[${tensors.indexOf(t)}], ${size}, 0, cudaMemcpyDefault, stream);`,
      "if (error != cudaSuccess) return error;",
    ];
  });
  const device = (text: string): string => text.replaceAll("static inline", "static __device__ inline");
  const body = kernels.join("\n");
  return [
    ...headOf(computation, [...comments, ...notes.lines]),
    "#include <stdint.h>",
    "#include <string.h>",
    ...helpersFor(body).map(device),
    ...FOLDS.filter(({ name }) => body.includes(`${name}<`)).map((f) => f.text),
    "",
    ...symbols.map((t) => `static __constant__ ${C_TYPES[t.dtype]} ${t.name}[${memoryElements(t)}];`),
    ...(symbols.length > 0 ? [""] : []),
    ...kernels,
    `extern "C" unsigned long automap_workspace_bytes(void) { return ${workspace.bytes}; }`,
    "",
    'extern "C" int automap_prepare(void* workspace, const void* const* tensors, cudaStream_t stream) {',
    "  cudaError_t error = cudaMemsetAsync(workspace, 0, automap_workspace_bytes(), stream);",
    "  if (error != cudaSuccess) return error;",
    ...[...copies.flat(), ...prepareLaunch].map((l) => `  ${l}`),
    "  return cudaSuccess;",
    "}",
    "",
    'extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {',
    "  cudaError_t error = cudaSuccess;",
    ...(workspace.buffers.length === 0 ? ["  (void)workspace;"] : []),
    ...launches.map((l) => `  ${l}`),
    "  return cudaSuccess;",
    "}",
    "",
  ].join("\n");
}

const FOLDS: readonly { readonly name: string; readonly text: string }[] = [
  { name: "sum_of_lanes", text: fold("sum_of_lanes", "v += other;") },
  { name: "most_of_lanes", text: fold("most_of_lanes", "v = other > v || other != other ? other : v;") },
  { name: "least_of_lanes", text: fold("least_of_lanes", "v = other < v || other != other ? other : v;") },
];

function fold(name: string, step: string): string {
  return `template <class T> static __device__ inline T ${name}(T v) {
  for (int distance = ${WARP / 2}; distance > 0; distance /= 2) {
    const T other = __shfl_xor_sync(${ALL_LANES}, v, distance);
    ${step}
  }
  return v;
}`;
}

function lanesIn(nest: LoopNest): { readonly name: string; readonly lanes: number }[] {
  const all = laneLoops([...nest.prepare, ...nest.body]);
  return [...(nest.vectors ?? []), ...all.map((l) => ({ name: `the loop ${l.axis}`, lanes: l.extent }))];
}

/** Whether lanes read different elements of a tensor at once, which constant memory serves one after another. */
function readByLane(nest: LoopNest, tensor: string): boolean {
  return laneLoops(nest.body).some((l) =>
    equationsIn(l.body).some(({ value }) =>
      accessesIn(value).some((a) => a.tensor === tensor && a.index.some((e) => axesIn(e).includes(l.axis))),
    ),
  );
}

/** Scalar expressions of one thread; registers of other lanes come by shuffles. */
class ThreadExpressions extends CExpressions {
  private readonly files: ReadonlyMap<string, VectorFile>;
  /** The lane axis while a loop of lanes is printed. */
  lane: string | undefined;
  /** Shuffles by the text of their call: all lanes must take part, so a statement under a condition names them beforehand. */
  readonly shuffles = new Map<string, string>();
  named = false;

  constructor(computation: Computation, nest: LoopNest) {
    super(computation, nest);
    this.files = new Map((nest.vectors ?? []).map((v) => [v.name, v]));
  }

  registerOf({ tensor, index }: Access): { file: VectorFile; name: string; lane: Expr } | undefined {
    const file = this.files.get(tensor);
    if (!file) return undefined;
    const [register, lane] = index;
    if (register?.kind !== "number" || lane === undefined || register.value < 0 || register.value >= file.count)
      throw new Error(`internal: register of ${printAccess({ kind: "access", tensor, index })} is not known`);
    return { file, name: `${file.name}${register.value}`, lane };
  }

  /** `lane - 1` is -1; undefined for what is no shift. */
  shiftOf(lane: Expr): number | undefined {
    const form = affineForm(lane);
    if (this.lane === undefined || form?.terms.size !== 1 || form.terms.get(this.lane) !== 1) return undefined;
    return form.constant;
  }

  protected override element(e: Access, dtype: DType, extents: Extents): string {
    const register = this.registerOf(e);
    if (!register) return super.element(e, dtype, extents);
    const { file, name, lane } = register;
    const by = this.shiftOf(lane);
    if (by === 0) return name;
    const call =
      by === undefined
        ? `__shfl_sync(${ALL_LANES}, ${name}, ${this.index(lane, extents)})`
        : `__shfl_${by < 0 ? "up" : "down"}_sync(${ALL_LANES}, ${name}, ${Math.abs(by)})`;
    if (!this.named) return call;
    const known = this.shuffles.get(call);
    if (known !== undefined) return known;
    const plain =
      by === undefined ? `${name}_from_${this.shuffles.size}` : `${name}_${by < 0 ? "up" : "down"}${Math.abs(by)}`;
    this.shuffles.set(call, plain);
    this.declared.push(`const ${C_TYPES[file.dtype]} ${plain} = ${call};`);
    return plain;
  }

  /** Declarations of the shuffles named so far. */
  readonly declared: string[] = [];

  /** Floats and 32-bit integers as a reader writes them: no casts to what C computes anyway. */
  override value(e: Expr, dtype: DType, extents: Extents): string {
    const own = typeOf(e, this.dtypes) ?? dtype;
    if (own !== "f32" && own !== "f64" && own !== "s32") return super.value(e, dtype, extents);
    const part = (inner: Expr, floor: number): string => {
      const text = this.value(inner, own, extents);
      return strengthOf(inner) < floor ? `(${text})` : text;
    };
    switch (e.kind) {
      case "binary": {
        if (isInteger(own) && (e.op === "/" || e.op === "%")) return super.value(e, dtype, extents);
        if (e.op === "%") return super.value(e, dtype, extents);
        const strength = e.op === "+" || e.op === "-" ? 1 : 2;
        return `${part(e.left, strength)} ${e.op} ${part(e.right, strength + 1)}`;
      }
      case "negate":
        return `-${part(e.value, 3)}`;
      default:
        return super.value(e, dtype, extents);
    }
  }
}

function strengthOf(e: Expr): number {
  if (e.kind === "binary") return e.op === "+" || e.op === "-" ? 1 : 2;
  return e.kind === "negate" || (e.kind === "number" && e.value < 0) ? 2 : 3;
}

class CudaLanes implements LanguagePrinter {
  private readonly c: ThreadExpressions;
  private readonly nest: LoopNest;
  /** Memory that is both written and read: lanes wait for one another around a write. */
  private readonly exchanged: ReadonlySet<string>;

  constructor(computation: Computation, nest: LoopNest) {
    this.nest = nest;
    this.c = new ThreadExpressions(computation, nest);
    const all = equationsIn([...nest.prepare, ...nest.body]);
    const read = new Set(all.flatMap(({ value }) => accessesIn(value).map((a) => a.tensor)));
    const vectors = new Set((nest.vectors ?? []).map((v) => v.name));
    this.exchanged = new Set(
      all.map(({ target }) => target.tensor).filter((name) => read.has(name) && !vectors.has(name)),
    );
  }

  declarations(body: readonly string[]): string[] {
    const words = new Set(body.join("\n").match(/\w+/g));
    return (this.nest.vectors ?? []).flatMap((file) =>
      Array.from({ length: file.count }, (_, i) => `${file.name}${i}`)
        .filter((name) => words.has(name))
        .map((name) => `${C_TYPES[file.dtype]} ${name} = 0;`),
    );
  }

  openLoop({ axis, extent }: Loop): string {
    return `for (int ${axis} = 0; ${axis} < ${extent}; ${axis}++) {`;
  }

  closeLoop(): string {
    return "}";
  }

  move(): string[] {
    throw new Error("internal: tiles move in a nest of lanes");
  }

  issue(): string[] {
    throw new Error("internal: an instruction is issued in a nest of lanes");
  }

  clear(): string[] {
    throw new Error("internal: a tile is cleared in a nest of lanes");
  }

  /** Outside a loop of lanes one thread of the warp writes. */
  scalar({ equation }: Scalar, extents: Extents): string[] {
    return this.alone(equation, `threadIdx.x % ${WARP}`, extents, []);
  }

  lanes(loop: Loop, extents: Extents): string[] {
    return loop.body.flatMap((s): string[] => {
      if (s.kind !== "scalar") throw new Error(`internal: lanes of ${loop.axis} run a ${s.kind}`);
      this.c.lane = loop.axis;
      try {
        return this.statement(s.equation, loop, { ...extents, [loop.axis]: loop.extent });
      } finally {
        this.c.lane = undefined;
      }
    });
  }

  private statement(equation: Equation, { axis: lane, extent }: Loop, extents: Extents): string[] {
    const { target, value, where } = equation;
    if (!target.index.some((e) => axesIn(e).includes(lane))) return this.fold(equation, lane, extent, extents);

    const dtype = this.typeOf(target.tensor);
    const register = this.c.registerOf(target);
    if (register && this.c.shiftOf(register.lane) !== 0)
      throw new Error(`internal: lanes write ${printAccess(target)}; they write their own lane of a register`);
    const place = register ? undefined : this.c.placeOf(target, extents);
    const to = place ? `${target.tensor}[${this.c.index(place.at, extents)}]` : (register?.name ?? "");
    const guards = [
      ...this.inUse(equation, lane, extent),
      ...this.tests([...conjunction(where), ...(place?.guards ?? [])], lane, extents),
    ];
    const conditional = guards.length > 0 || [...walk(value)].some((n) => n.kind === "select");
    return this.withShuffles(conditional, () => {
      const text = this.c.value(joinedValue(equation), dtype, extents);
      return this.synchronised(target.tensor, guarded(guards, [`${to} = ${text};`]));
    });
  }

  private tests(conditions: readonly Expr[], lane: string, extents: Extents): string[] {
    return tested(conditions, lane, extents).map((e) => this.c.condition(e, extents));
  }

  /** Threads beyond the last lane may compute what nobody uses, but touch no memory. */
  private inUse({ target, value }: Equation, lane: string, extent: number): string[] {
    const touches = [target, ...accessesIn(value)].some(
      (a) => this.c.registerOf(a) === undefined && a.index.some((e) => axesIn(e).includes(lane)),
    );
    return extent < WARP && touches ? [`${lane} < ${extent}`] : [];
  }

  /** A target without the lane axis: a fold of all lanes, or with `=` the value of the one lane that meets the condition. */
  private fold(equation: Equation, lane: string, extent: number, extents: Extents): string[] {
    const { target, op, value, where } = equation;
    const tests = [...(extent < WARP ? [`${lane} < ${extent}`] : []), ...this.tests(conjunction(where), lane, extents)];
    const dtype = this.typeOf(target.tensor);
    const register = this.c.registerOf(target);
    if (op === "=") {
      const pinned = conjunction(where)
        .map((e) => pinnedLane(e, lane))
        .find((e) => e !== undefined);
      if (pinned === undefined)
        throw new Error(
          `internal: ${printAccess(target)} is assigned from several lanes; where ${lane} == n says which`,
        );
      if (!register) {
        const { at, guards } = this.c.place(target, extents);
        return this.withShuffles(true, () =>
          this.synchronised(
            target.tensor,
            guarded([...tests, ...guards], [`${target.tensor}[${at}] = ${this.c.value(value, dtype, extents)};`]),
          ),
        );
      }
      const alone = substitute(value, new Map([[lane, pinned]]));
      const others = conjunction(where).filter((e) => pinnedLane(e, lane) === undefined);
      const conditions = others.map((e) =>
        this.c.condition(substitute(e, new Map([[lane, pinned]]), "index"), extents),
      );
      return this.alone({ target, op, value: alone }, lane, extents, conditions);
    }
    const name = op === "+=" ? "sum" : op === "max=" ? "most" : "least";
    const start = this.c.literal(identityOf(op, dtype), dtype);
    return this.withShuffles(true, () => {
      const own = this.c.value(value, dtype, extents);
      const taken = tests.length === 0 ? own : `${tests.join(" && ")} ? ${own} : ${start}`;
      const result = `${target.tensor}_${name}`;
      const held = this.c.value(target, dtype, extents);
      const joined = joinScalars(op, register ? register.name : held, result, dtype);
      const lines = register
        ? [`if (${lane} == ${this.c.index(register.lane, extents)}) ${register.name} = ${joined};`]
        : this.synchronised(
            target.tensor,
            guarded(
              [`${lane} == 0`, ...this.c.place(target, extents).guards],
              [`${target.tensor}[${this.c.place(target, extents).at}] = ${joined};`],
            ),
          );
      return [`const ${C_TYPES[dtype]} ${result} = ${name}_of_lanes<${C_TYPES[dtype]}>(${taken});`, ...lines];
    });
  }

  /** A statement of one thread: the first, or the one whose lane of a register it is. */
  private alone(equation: Equation, thread: string, extents: Extents, conditions: readonly string[]): string[] {
    const { target, where } = equation;
    const dtype = this.typeOf(target.tensor);
    const register = this.c.registerOf(target);
    const place = register ? undefined : this.c.place(target, extents);
    const tests = [
      `${thread} == ${register ? this.c.index(register.lane, extents) : "0"}`,
      ...conditions,
      ...conjunction(where).map((e) => this.c.condition(e, extents)),
      ...(place?.guards ?? []),
    ];
    const to = register?.name ?? `${target.tensor}[${place?.at}]`;
    return this.withShuffles(true, () => {
      const own = register && equation.op !== "=" ? [register.name] : [];
      const value = this.c.value(equation.value, dtype, extents);
      const held = own[0] ?? (equation.op === "=" ? "" : this.c.value(target, dtype, extents));
      const lines = guarded(tests, [`${to} = ${joinScalars(equation.op, held, value, dtype)};`]);
      return this.synchronised(target.tensor, lines);
    });
  }

  /** Names the shuffles of a statement that not every lane finishes. */
  private withShuffles(named: boolean, print: () => string[]): string[] {
    this.c.named = named;
    this.c.shuffles.clear();
    this.c.declared.length = 0;
    const lines = print();
    const before = [...this.c.declared];
    const declares = before.length > 0 || lines.some((l) => l.startsWith("const "));
    return declares ? guarded([], [...before, ...lines], true) : lines;
  }

  /** Around a write to memory that other lanes read. */
  private synchronised(target: string, lines: readonly string[]): string[] {
    return this.exchanged.has(target) ? ["__syncwarp();", ...lines, "__syncwarp();"] : [...lines];
  }

  private typeOf(name: string): DType {
    const dtype = this.c.dtypes[name];
    if (dtype === undefined) throw new Error(`internal: no type of "${name}"`);
    return dtype;
  }
}
