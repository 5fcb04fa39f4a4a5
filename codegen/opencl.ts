/**
 * @file A loop nest as OpenCL C: one self-contained source with the functions of abstraction/kernel.ts.
 *
 *     for (int step = part; step < 448; step += parts) {                    for parallel p in 0..56, q_outer in 0..8
 *       const int p = step / 8, q_outer = step % 8;
 *       c0 = 0;                                                               c{0} <- identity
 *       b0 = block_int8((w_tiled + 128 * r), 32);                             b{0} <- w_tiled[128*r]
 *       c0 = intel_sub_group_f16_f16_matrix_mad_k16(a0, b0, c0);              c{0} <- opencl.dpas(a{0}, b{0})
 *       for (int n = lane; n < 64; n += 8) out[...] = ...                     for n in 0..64
 *
 * A work-group is one sub-group and stands for one thread of the nest. Its lanes hold tiles together, share the steps of innermost loops of
 * scalars, and see what others wrote to memory behind a barrier of the sub-group. Where instructions are of one work-item, it is alone.
 */

import type { Extents } from "../abstraction/affine.ts";
import { type Computation, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Expr, number, printExpr } from "../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, operandOf, printStorage } from "../abstraction/intrinsic.ts";
import { C_TYPES, type Kernel } from "../abstraction/kernel.ts";
import type { LoopNest, RegisterAt, Scratch, Statement } from "../abstraction/loop-nest.ts";
import {
  apart,
  axisName,
  type Code,
  code,
  identifier,
  indented,
  lines,
  list,
  Name,
  NOTHING,
  namesIn,
  tensorName,
} from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import { subgroupOf } from "../targets/features.ts";
import { declareRegister } from "../targets/registers.ts";
import { allOf, CExpressions, type Generic, type GenericType, type LibraryFunction } from "./c-expressions.ts";
import { argumentsOf, headOf, type SourceNotes, workspaceOf } from "./cpp-frame.ts";
import { dealtIndices } from "./lane-statement.ts";
import { type Named, namedIn } from "./named.ts";
import { genericName, genericText, openClHelpers } from "./opencl-helpers.ts";
import { contains, dealtTo, isScalars, laneAxis, type Tasks, tasksOf, touchedIn } from "./opencl-tasks.ts";
import { divisorOf } from "./short-index.ts";
import { TileRegisters } from "./tile-registers.ts";
import { type LanguagePrinter, type Loop, type Of, phasesOf, printStatements } from "./walk.ts";

/** More elements than an `int` counts. */
const MANY = 2 ** 31;
/** Bytes at whose multiples a block read begins. OpenCL extension cl_intel_subgroups. */
const BLOCK_READ_BYTES = 4;

/**
 * The kernel of a scheduled nest.
 * @throws Error when the instruction is not reached from OpenCL C
 */
export function generateOpenCl(
  computation: Computation,
  intrinsic: Intrinsic,
  nest: LoopNest,
  notes: SourceNotes,
): Kernel {
  if (intrinsic.language !== "opencl")
    throw new Error(`${intrinsic.name} is reached from ${intrinsic.language}, not from OpenCL C`);
  const lanes = intrinsic.scope === "subgroup" ? subgroupOf(intrinsic) : 1;
  return new OpenClWriter(computation, nest, lanes).kernel(intrinsic, notes);
}

/** Functions of C where C++ has templates. */
class OpenClExpressions extends CExpressions {
  readonly generics = new Map<string, Code>();

  override called(name: Generic, types: readonly GenericType[], values: readonly Code[]): Code {
    const word = genericName(name, types);
    this.generics.set(word, genericText(name, types));
    return code`${identifier(word)}(${list(values)})`;
  }

  protected override library(name: LibraryFunction): Code {
    return code`${name}`;
  }

  protected override infinity(): Code {
    return code`INFINITY`;
  }
}

const LANE = new Name("local", "lane");
const STEP = new Name("local", "step");
const WORKSPACE = new Name("local", "workspace");
/** One, which no compiler knows: loops are written out as far as the schedule says, and no further. */
const ONCE = new Name("local", "once");
const ONE_OF_A_LINE = code`const int ${ONCE} = get_num_groups(1); /* 1: loops are not to be unrolled further */`;
const BARRIER = code`sub_group_barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);`;

class OpenClWriter extends TileRegisters implements LanguagePrinter {
  private readonly c: OpenClExpressions;
  private readonly width: number;
  private readonly scratch: ReadonlyMap<string, Scratch>;
  private readonly indexType: "int" | "long";
  /** Memory that the phase at hand both writes and reads. */
  private shared: ReadonlySet<string> = new Set();
  /** Inside a loop of scalars whose barriers stand around it. */
  private fenced = false;

  constructor(computation: Computation, nest: LoopNest, lanes: number) {
    super(nest);
    this.c = new OpenClExpressions(computation, nest);
    this.width = lanes;
    this.scratch = new Map(nest.scratch.map((s) => [s.name, s]));
    const sizes = [...argumentsOf(computation), ...nest.scratch].map((a) => a.elements);
    this.indexType = sizes.some((n) => n >= MANY) ? "long" : "int";
  }

  kernel(intrinsic: Intrinsic, notes: SourceNotes): Kernel {
    const { computation } = this.c;
    const storage = intrinsic.operands.map((o) => `${o.name} ${o.dtype} ${printStorage(o)}`).join(", ");
    const phases = phasesOf(this.nest.body);
    const functions = [
      this.kernelFunction(code`automap_prepare`, this.nest.prepare),
      ...phases.map((phase, i) => this.kernelFunction(code`automap_phase_${i}`, phase)),
    ];
    const text = lines([
      headOf(computation, [`${intrinsic.name}: ${storage}`, ...notes.lines]),
      code`#pragma OPENCL FP_CONTRACT OFF`,
      ...openClHelpers(functions, [...this.c.generics.values()]),
      ...(intrinsic.prelude === undefined ? [] : [apart(fillTemplate(intrinsic.prelude))]),
      NOTHING,
      ...functions,
    ]);
    return {
      language: "opencl",
      source: spell(text, "opencl"),
      features: intrinsic.features,
      promises: intrinsic.mnemonic,
      arguments: argumentsOf(computation),
      opencl: {
        workspaceBytes: workspaceOf(this.nest).bytes,
        lanes: this.width,
        steps: phases.map((phase) => dealtTo(phase, this.tasks)),
      },
    };
  }

  /** A work-group runs what the nest says of one thread. */
  private kernelFunction(name: Code, body: readonly Statement[]): Code {
    const { computation } = this.c;
    const named = namedIn(body, this.nest);
    const { reads, writes } = touchedIn(body);
    this.shared = new Set([...reads].filter((buffer) => writes.has(buffer)));
    const text = printStatements(body, this);
    const output = outputOf(computation).name;
    const tensors = Object.values(computation.tensors).map(
      (t) => code`global ${t.name === output ? "" : "const "}${C_TYPES[t.dtype]}* restrict ${tensorName(t.name)}`,
    );
    const { indexType, width } = this;
    return lines([
      ...(width > 1 ? [code`__attribute__((intel_reqd_sub_group_size(${width})))`] : []),
      code`__attribute__((reqd_work_group_size(${width}, 1, 1)))`,
      code`__kernel void ${name}(${list([code`global uint8_t* restrict ${WORKSPACE}`, ...tensors])}) {`,
      ...indented([
        code`const ${indexType} part = get_group_id(0), parts = get_num_groups(0);`,
        ...(width > 1 ? [code`const ${indexType} ${LANE} = get_sub_group_local_id();`] : []),
        ...(namesIn(text).has(ONCE.id) ? [ONE_OF_A_LINE] : []),
        ...this.declarations(named),
        ...text,
      ]),
      code`}`,
      NOTHING,
    ]);
  }

  /** Buffers and registers that a function names. Memory of one thread of the nest is that of a sub-group, or private to a work-item. */
  private declarations({ memory, registers }: Named): Code[] {
    const buffers = workspaceOf(this.nest).buffers.filter((b) => memory.has(b.name));
    const own = this.nest.scratch.filter((s) => s.scope === "local" && memory.has(s.name));
    return [
      ...buffers.map(({ name, dtype, offset }) => {
        const type = code`global ${C_TYPES[dtype]}*`;
        return code`${type} const ${tensorName(name)} = (${type})(${WORKSPACE} + ${offset});`;
      }),
      ...own.map(
        ({ name, dtype, elements }) =>
          code`${this.width > 1 ? "__local " : ""}${C_TYPES[dtype]} ${tensorName(name)}[${elements}];`,
      ),
      ...this.nest.registers.flatMap(({ name, intrinsic, operand }) =>
        (registers.get(name) ?? []).map((i) =>
          declareRegister(intrinsic, operandOf(intrinsic, operand), this.register({ file: name, index: number(i) })),
        ),
      ),
    ];
  }

  // ---- loops ------------------------------------------------------------------------------------------------------------------

  /** Sub-groups are many: loops inside the one that the nest deals are dealt too, as far as their blocks are by themselves. */
  private readonly tasks = (loop: Loop): Tasks[] => tasksOf(loop, this.width > 1 ? this.nest : undefined);

  row(loop: Loop, extents: Extents): readonly Code[] | undefined {
    if (loop.mode === "parallel") return this.tasks(loop).flatMap((tasks) => this.dealt(tasks, extents));
    if (this.width > 1 && contains(loop, (s) => s.kind === "register-issue")) {
      const inside = indented(printStatements(loop.body, this, extents));
      const name = axisName(loop.axis);
      const head = code`for (${this.indexType} ${name} = 0; ${name} < ${loop.extent} * ${ONCE}; ${name}++) {`;
      return [head, ...inside, code`}`];
    }
    if (this.width === 1 || !isScalars(loop)) return undefined;
    return this.behindBarriers([loop], () => this.overLanes(loop, extents));
  }

  private dealt({ loops, body }: Tasks, extents: Extents): Code[] {
    const { indexType } = this;
    const total = loops.reduce((all, l) => all * l.extent, 1);
    const within = { ...extents, ...Object.fromEntries(loops.map((l) => [l.axis, l.extent])) };
    const [only] = loops;
    const text = (): Code[] => indented(printStatements(body, this, within));
    if (this.width === 1 && only && !only.inTurn) {
      const name = axisName(only.axis);
      const at = (part: Code): Code => code`(${indexType})(${only.extent}L * ${part} / parts)`;
      const head = code`for (${indexType} ${name} = ${at(code`part`)}; ${name} < ${at(code`(part + 1)`)}; ${name}++) {`;
      return [head, ...text(), code`}`];
    }
    const indices = dealtIndices(loops, code`${STEP}`, indexType, axisName).map((d) => d.line);
    const head = code`for (${indexType} ${STEP} = part; ${STEP} < ${total}; ${STEP} += parts) {`;
    return [head, ...indented(indices), ...text(), code`}`];
  }

  /** A nest of scalar statements: the steps of one loop of each chain are shared by the lanes. */
  private overLanes(loop: Loop, extents: Extents): Code[] {
    const shared = laneAxis(loop, this.width);
    if (shared === undefined) {
      const within = { ...extents, [loop.axis]: loop.extent };
      return [this.openLoop(loop, within), ...indented(printStatements(loop.body, this, within)), code`}`];
    }
    return this.chain(loop, shared, extents);
  }

  private chain(loop: Loop, shared: string, extents: Extents): Code[] {
    const within = { ...extents, [loop.axis]: loop.extent };
    const name = axisName(loop.axis);
    const head =
      loop.axis === shared
        ? code`for (${this.indexType} ${name} = ${LANE}; ${name} < ${loop.extent}; ${name} += ${this.width}) {`
        : this.openLoop(loop, within);
    const body = loop.body.flatMap((s): Code[] =>
      s.kind === "loop" ? this.chain(s, shared, within) : s.kind === "scalar" ? this.assigned(s, within) : [],
    );
    return [head, ...indented(body), code`}`];
  }

  /** What lanes write, and others read, is there behind a barrier; so is what they read before it is written anew. */
  private behindBarriers(statements: readonly Statement[], print: () => Code[]): Code[] {
    const { reads, writes } = touchedIn(statements);
    const meets = [...reads, ...writes].some((buffer) => this.shared.has(buffer));
    const within = [...reads].some((buffer) => writes.has(buffer));
    if (!meets || this.fenced) return print();
    this.fenced = !within;
    const text = print();
    this.fenced = false;
    return [BARRIER, ...text, BARRIER];
  }

  openLoop({ axis, extent, range, mode, inTurn }: Loop, extents: Extents): Code {
    const name = axisName(axis);
    const type = this.indexType;
    if (mode === "parallel" && inTurn)
      return code`for (${type} ${name} = part; ${name} < ${extent}; ${name} += parts) {`;
    const bound = (helper: "at_least" | "at_most", first: number, others: readonly Expr[] = []): Code =>
      others.reduce(
        (text, e) => this.c.called(helper, ["int64_t"], [code`${this.c.index(e, extents)}`, text]),
        code`${first}`,
      );
    const [from, to] = [bound("at_least", 0, range?.from), bound("at_most", extent, range?.to)];
    return code`for (${type} ${name} = ${from}; ${name} < ${to}; ${name}++) {`;
  }

  openWhen({ condition }: Of<"when">, extents: Extents): Code {
    return code`if (${this.c.condition(condition, extents)}) {`;
  }

  // ---- leaves -----------------------------------------------------------------------------------------------------------------

  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { operand } = this.heldAt(register);
    const bytes = bytesOf(operand.dtype);
    const pointer = code`(${tensorName(memory.buffer)} + ${this.c.index(memory.base, extents)})`;
    const own = this.width > 1 ? "local" : "__private";
    const space = this.scratch.get(memory.buffer)?.scope === "local" ? own : "global";
    const isAligned = (elements: number): boolean => (elements * bytes) % BLOCK_READ_BYTES === 0;
    const isBlock = space === "global" && isAligned(divisorOf(memory.base, extents)) && isAligned(memory.stride);
    const words = { space: code`${space}`, by: code`${isBlock ? "block" : space}` };
    const moved = this.moved(kind, register, pointer, memory.stride, words);
    if (moved === undefined)
      throw new Error(`internal: ${operand.name} of ${register.file} has no ${kind} in OpenCL C`);
    return [moved];
  }

  issue(statement: Of<"register-issue">): Code[] {
    return this.issued(statement);
  }

  /** Outside of loops that lanes share, one of them. */
  scalar(statement: Of<"scalar">, extents: Extents): Code[] {
    const text = this.assigned(statement, extents);
    if (this.width === 1) return text;
    return this.behindBarriers([statement], () => [code`if (${LANE} == 0) {`, ...indented(text), code`}`]);
  }

  private assigned({ equation }: Of<"scalar">, extents: Extents): Code[] {
    const { target, op, value, where } = equation;
    const dtype = this.c.dtypes[target.tensor] ?? "f32";
    const place = this.c.place(target, extents);
    if (op !== "=") throw new Error(`internal: a scheduled nest assigns, it does not ${op}`);
    const statement = code`${tensorName(target.tensor)}[${place.at}] = ${this.c.value(value, dtype, extents)};`;
    const guards = [...(where === undefined ? [] : [this.c.condition(where, extents)]), ...place.guards];
    return [guards.length === 0 ? statement : code`if (${allOf(guards)}) ${statement}`];
  }

  protected override register({ file, index }: RegisterAt): Code {
    if (index.kind !== "number") throw new Error(`internal: register ${printExpr(index)} is not known while printing`);
    const { operand } = this.fileOf({ file, index });
    return code`${new Name("register", `${operand}${index.value}`, `${file} ${index.value}`)}`;
  }
}
