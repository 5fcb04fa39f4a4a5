/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, and a parallel
 * loop is distributed to warps. Arrays of at most 16 lanes are distributed to equal parts of a warp.
 *
 *     Z0 = fmaf(x[28 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1));
 *     Z0 = fmaf(x[12 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1, 16));
 *
 * Constants that all lanes read at the same address are in constant memory. Emulation: runtime/emulation/cuda.h.
 *
 * Windows of f16 on the threads of a warp, two elements in each register: half2 of CUDA.
 *
 *     A[0,lane] += X[0,lane] * w[q]        A0 = fma_halves(X0, spread_half(constants::w[q]), A0);
 *     A[1,lane] += X[1,lane] * w[q]
 *     A[0,lane] += X[1,lane] * w[q]        A0 = fma_halves(joined_halves<0x5432>(X0, X1), spread_half(constants::w[q]), A0);
 *     A[1,lane] += X[2,lane] * w[q]
 *
 * Register 2k and the one after it are pair k. Each multiply-add is rounded to f16. Helpers: cuda-helpers.ts.
 */

import { type Dimension, type Extents, strideIn } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  accessesIn,
  axis,
  type Equation,
  type Expr,
  isSame,
  printEquation,
} from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { type Code, code, hexadecimal, list } from "../../abstraction/source-text.ts";
import { LINE_BYTES } from "../../targets/nvidia-gpu.ts";
import { equationsIn, guarded, type LaneAccess, registerIn, registerName } from "../lane-printer.ts";
import type { Loop, Named, Of } from "../walk.ts";
import { type LaneRegister, ThreadExpressions, type WarpExpressions } from "../warp-expressions.ts";
import { WarpLanes } from "../warp-lanes.ts";
import { type Aligned, pieceType, readPiece, vectorAt, writtenPiece } from "./cuda-copies.ts";
import { requireTogether, stepped, steppedAccess } from "./cuda-pieces.ts";
import { LANE } from "./fragment.ts";

/** `X 3`, if the register's number is a constant. */
function registerText({ tensor, index: [register] }: Access): string {
  return `${tensor} ${register?.kind === "number" ? register.value : ""}`;
}

export class CudaLanes extends WarpLanes {
  private readonly aligned: Aligned;
  /** Registers that some value reads. */
  private readonly read: ReadonlySet<string>;
  /** Registers for elements of a vector load that no value reads. They are omitted. */
  private readonly unread = new Set<string>();
  protected override readonly laneFence: Code | undefined = code`__syncwarp();`;
  /** Neighbouring elements that a register holds. */
  protected readonly perRegister: number = 1;

  constructor(c: WarpExpressions, aligned: Aligned) {
    super(c);
    this.aligned = aligned;
    const all = equationsIn([...c.nest.prepare, ...c.nest.body]);
    this.read = new Set(all.flatMap(({ value }) => accessesIn(value)).map(registerText));
  }

  protected override isUnread(file: string, register: number): boolean {
    return this.unread.has(`${file} ${register}`);
  }

  protected override statement(statement: Of<"scalar">, loop: Loop, extents: Extents): Code[] {
    const { together } = statement;
    if (!together) return super.statement(statement, loop, extents);
    this.c.begin({ lane: loop.axis });
    return this.neighbours(statement, together, loop, { ...extents, [loop.axis]: loop.extent });
  }

  /** Contiguous elements, accessed at once: loaded into separate registers, or stored from computed values. */
  private neighbours(
    { equation: { target, value, where } }: Of<"scalar">,
    { name, extent }: Dimension,
    loop: Loop,
    extents: Extents,
  ): Code[] {
    const { c, aligned, perRegister } = this;
    const at = (a: Access, i: number): Access => steppedAccess(a, name, i);
    const first = c.ownRegister(at(target, 0));
    const memory = first === undefined ? target : value;
    if (memory.kind !== "access") internal("what is read at once is an access");
    requireTogether(c, memory, name, extent, { ...extents, [name]: extent });
    const dtype = this.dtypeOf(memory.tensor);
    const held = perRegister === 1 ? dtype : "u32";
    const count = extent / perRegister;
    const places = upTo(count).map((i) => i * perRegister);
    const access = at(memory, 0);
    const place = c.placeWhere(access, conjunctsOf(where), extents, first === undefined ? "to" : "from");
    const vector = vectorAt({ c, aligned }, access, held, count, place.at, extents, first === undefined);
    const guards = [...this.beyond(loop.axis, loop.extent), ...place.guards];
    if (first === undefined) {
      const values = places.map((i) => c.value(stepped(value, name, i), dtype, extents));
      return writtenPiece(vector, values, guards);
    }
    const outside = c.outside(memory.tensor, dtype);
    const registers = places.map((i) => {
      const elements = upTo(perRegister).map((n) => at(target, i + n));
      return this.isRead(elements) ? (c.ownRegister(at(target, i)) ?? first) : undefined;
    });
    const loaded = { from: vector, guards, outside: perRegister === 1 ? outside : code`@spread_half(${outside})` };
    return readPiece(memory.tensor, pieceType(held, count), loaded, registers);
  }

  /** Whether some value reads one of these elements. Registers of others are omitted. */
  protected isRead(held: readonly Access[]): boolean {
    const registers = held.map(registerText);
    if (registers.some((register) => this.read.has(register))) return true;
    for (const register of registers) this.unread.add(register);
    return false;
  }

  /** One lane fetches each line of a row into the last cache. */
  protected override prefetched(access: Access, _isDistant: boolean, loop: Loop, extents: Extents): Code[] {
    const within = { ...extents, [loop.axis]: loop.extent };
    this.c.begin({ lane: loop.axis });
    const dtype = this.dtypeOf(access.tensor);
    const stride = strideIn(this.c.placeOf(access, within).at, loop.axis) ?? 0;
    const perLine = Math.max(1, Math.floor(LINE_BYTES / Math.max(1, Math.abs(stride) * bytesOf(dtype))));
    const { at, guards } = this.c.placeWhere(access, [], within);
    const first = perLine === 1 ? [] : [code`${this.threadOf(loop.axis)} % ${perLine} == 0`];
    return guarded([...first, ...guards], [code`@prefetch_line(&${this.c.tensor(access.tensor)}[${at}]);`]);
  }
}

/** The lanes of the warps of a block. Loop-invariant parts of indices are named above the loops. */
export class ThreadLanes extends CudaLanes {
  protected override readonly laneFence = undefined;

  override declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name, dtype }) => {
      const numbers = registers.get(name);
      return numbers ? [code`${C_TYPES[dtype]} ${list(numbers.map((i) => registerName(name, i)))};`] : [];
    });
  }

  protected override isRead(): boolean {
    return true;
  }

  protected override threadOf(): Code {
    return code`${this.c.axis(LANE)}`;
  }

  protected override statement(statement: Of<"scalar">, loop: Loop, extents: Extents): Code[] {
    const own = substituteAxis(statement, loop.axis, axis(LANE)) as Of<"scalar">; // a scalar statement stays one
    return super.statement(own, { ...loop, axis: LANE }, extents);
  }
}

// ---- two elements of f16 in each register ----------------------------------------------------------------------------------------

/** Elements of a register. */
const PAIR = 2;

const pairOf = (register: number): number => Math.floor(register / PAIR);

/** The two bytes of an element of a pair, as digits of PRMT's selector; those of the second pair count from 4. */
const bytesAt = (register: number, second: boolean): number =>
  (register % PAIR === 0 ? 0x10 : 0x32) + (second ? 0x44 : 0);

/** An access to a register names the pair that holds it. */
class HalfExpressions extends ThreadExpressions {
  override registerOf(access: Access): LaneRegister | undefined {
    const found = super.registerOf(access);
    return found && { ...found, name: registerName(found.file.name, pairOf(found.register)) };
  }
}

/** @throws UsageError, where it prints, for statements that do not compute neighbouring elements two by two */
export class HalfLanes extends CudaLanes {
  protected override readonly perRegister = PAIR;

  constructor(computation: Computation, nest: LoopNest, constants: ReadonlySet<string>, aligned: Aligned) {
    super(new HalfExpressions(computation, nest, undefined, constants), aligned);
  }

  override declarations({ registers }: Named): Code[] {
    return (this.nest.vectors ?? []).flatMap(({ name }) => {
      const pairs = new Set((registers.get(name) ?? []).filter((i) => !this.isUnread(name, i)).map(pairOf));
      return [...pairs].map((i) => code`uint32_t ${registerName(name, i)} = 0;`);
    });
  }

  override lanes(loop: Loop, extents: Extents): Code[] {
    const lines: Code[] = [];
    let held: Equation | undefined;
    for (const s of loop.body) {
      if (s.kind !== "scalar") internal(`lanes of ${loop.axis} run a ${s.kind}`);
      if (s.together) {
        lines.push(...this.statement(s, loop, extents));
        if (s.prefetch) lines.push(...this.prefetched(s.prefetch, s.isDistant ?? false, loop, extents));
      } else if (held === undefined) {
        held = s.equation;
        continue;
      } else lines.push(this.both(held, s.equation, loop, extents));
      if (s.together && held) throw this.unpaired(held);
      held = undefined;
    }
    if (held) throw this.unpaired(held);
    this.c.begin(undefined);
    return lines;
  }

  private unpaired(equation: Equation): UsageError {
    return new UsageError(
      `${this.c.computation.name}: lanes of cuda compute f16 two by two, and ${printEquation(equation)} stands alone`,
      "give each lane of a window 2, 4 or 8 outputs, or compute in --dtype f32",
    );
  }

  /** Two statements on neighbouring registers as one. */
  private both(first: Equation, second: Equation, loop: Loop, extents: Extents): Code {
    const one = dataOf(first);
    const two = dataOf(second);
    if (!one || !two) throw this.unpaired(first);
    const alike = one.factor === two.factor || (one.factor && two.factor && isSame(one.factor, two.factor));
    const a = this.register(first.target);
    const b = this.register(second.target);
    if (!a || !b || a.file !== b.file || a.register % PAIR !== 0 || b.register !== a.register + 1)
      throw this.unpaired(first);
    if (first.op !== second.op || first.where || second.where || !alike) throw this.unpaired(first);
    this.c.begin({ lane: loop.axis });
    const sum = this.named(a);
    const [low, high] = [one, two].map(({ data }) => (data.kind === "access" ? this.register(data) : undefined));
    const isOwn = ({ lane }: LaneAccess): boolean => isSame(lane, axis(loop.axis));
    if (!low || !high || ![a, b, low, high].every(isOwn)) throw this.unpaired(first);
    const data = this.joined(low, high);
    const weight = one.factor && code`@spread_half(${this.c.value(one.factor, "f16", extents)})`;
    return code`${sum} = ${this.combined(first, sum, data, weight)};`;
  }

  private combined({ op }: Equation, sum: Code, data: Code, weight: Code | undefined): Code {
    if (op === "=") return weight ? code`@multiplied_halves(${data}, ${weight})` : data;
    if (op !== "+=") internal(`pairs of f16 are added, not combined by ${op}`);
    return weight ? code`@fma_halves(${data}, ${weight}, ${sum})` : code`@added_halves(${sum}, ${data})`;
  }

  /** Two elements as a pair. */
  private joined(low: LaneAccess, high: LaneAccess): Code {
    const first = this.named(low);
    if (low.file === high.file && low.register % PAIR === 0 && high.register === low.register + 1) return first;
    const selector = bytesAt(low.register, false) + (bytesAt(high.register, true) << 8);
    return code`@joined_halves<${hexadecimal(selector)}>(${first}, ${this.named(high)})`;
  }

  private named({ file, register }: LaneAccess): Code {
    return code`${registerName(file.name, pairOf(register))}`;
  }

  private register(access: Access): LaneAccess | undefined {
    return registerIn(this.nest, access);
  }
}

/** `data * factor`, or data alone; undefined for any other value. */
function dataOf({ value }: Equation): { readonly data: Expr; readonly factor?: Expr } | undefined {
  if (value.kind !== "binary") return { data: value };
  if (value.op !== "*") return undefined;
  return { data: value.left, factor: value.right };
}
