/**
 * @file Lanes as the threads of a warp: a register is a scalar of each thread, a shift is a shuffle, and a parallel
 * loop is distributed to warps. Arrays of at most 16 lanes are distributed to equal parts of a warp.
 *
 *     Z0 = fmaf(x[28 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1));
 *     Z0 = fmaf(x[12 * b + lane], w[q], __shfl_up_sync(0xffffffffu, Z0, 1, 16));
 *
 * Constants that all lanes read at the same address are in constant memory. Emulation: runtime/emulation/cuda.h.
 */

import { type Extents, strideIn } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import { type Access, accessesIn, axis } from "../../abstraction/expression.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import { substituteAxis } from "../../abstraction/rewrite-statement.ts";
import { type Code, code, list } from "../../abstraction/source-text.ts";
import { LINE_BYTES } from "../../targets/nvidia-gpu.ts";
import { equationsIn, guarded, registerName } from "../lane-statement.ts";
import type { Loop, Named, Of } from "../walk.ts";
import type { WarpExpressions } from "../warp-expressions.ts";
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
