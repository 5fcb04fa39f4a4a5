/**
 * @file Computation of single lanes in CUDA: each thread's registers are variables, and those of a partner are read by
 * shuffles.
 *
 *     for lanes lane in 0..32
 *       in_held[i,lane] = in[8*lane + i]   (i in 0..8 at once)        const Piece<uint16_t, 8> in_piece = *(const Piece<uint16_t, 8>*)&in[8 * lane];
 *       sum[0,lane] += f32(in_held[0,lane]) * f32(w_held[0,lane])     sum0 = fmaf((float)(from_f16(in_held0)), (float)(from_f16(w_held0)), sum0);
 *       sum[0,lane] = sum[0,lane] + sum[0,lane^16]                    sum0 = sum0 + __shfl_xor_sync(0xffffffffu, sum0, 16);
 */

import type { Extents } from "../abstraction/affine.ts";
import { type Access, axis } from "../abstraction/expression.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { Dimension } from "../abstraction/layout.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { substituteAxis } from "../abstraction/rewrite-statement.ts";
import { type Code, code, list } from "../abstraction/source-text.ts";
import { type CopyContext, pieceType, readPiece, vectorAt, writtenPiece } from "./cuda-copies.ts";
import { requireTogether, stepped, steppedAccess } from "./cuda-pieces.ts";
import { LANE } from "./fragment.ts";
import { conjunction, registerName } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import type { Loop, Of } from "./walk.ts";
import type { WarpExpressions } from "./warp-expressions.ts";
import { WarpLanes } from "./warp-lanes.ts";

/** The lanes of the warps of a block. Loop-invariant parts of indices are named above the loops. */
export class ThreadLanes extends WarpLanes {
  private readonly context: CopyContext;

  constructor(context: CopyContext, nest: LoopNest) {
    super(context.c, nest);
    this.context = context;
  }

  protected override threadOf(): Code {
    return code`${this.c.axis(LANE)}`;
  }

  protected override statement(statement: Of<"scalar">, loop: Loop, extents: Extents): Code[] {
    const own = substituteAxis(statement, loop.axis, axis(LANE)) as Of<"scalar">; // a scalar statement stays one
    if (!own.together) return super.statement(own, { ...loop, axis: LANE }, extents);
    this.c.begin({ lane: LANE });
    return neighbours(own, own.together, this.context, extents, this.beyond(LANE, loop.extent));
  }
}

export function laneRegisters(nest: LoopNest, { registers }: Named): Code[] {
  return (nest.vectors ?? []).flatMap(({ name, dtype }) => {
    const numbers = registers.get(name);
    return numbers ? [code`${C_TYPES[dtype]} ${list(numbers.map((i) => registerName(name, i)))};`] : [];
  });
}

/** What moves neighbours into registers of a lane, or from them. */
interface Neighbours extends Pick<CopyContext, "aligned"> {
  readonly c: WarpExpressions;
  /** Elements that a register holds: several are the bits of a word. */
  readonly perRegister?: number;
  /** Whether some value reads one of the elements of a register. */
  readonly isRead?: (held: readonly Access[]) => boolean;
}

/**
 * Contiguous elements, accessed at once: loaded into separate registers, or stored from computed values.
 * @param beyond conditions that exclude threads beyond the lanes
 */
export function neighbours(
  { equation: { target, value, where } }: Of<"scalar">,
  { name, extent }: Dimension,
  { c, aligned, perRegister = 1, isRead = () => true }: Neighbours,
  extents: Extents,
  beyond: readonly Code[],
): Code[] {
  const at = (a: Access, i: number): Access => steppedAccess(a, name, i);
  const first = c.ownRegister(at(target, 0));
  const memory = first === undefined ? target : value;
  if (memory.kind !== "access") throw new Error("internal: what is read at once is an access");
  requireTogether(c, memory, name, extent, { ...extents, [name]: extent });
  const dtype = c.dtypes[memory.tensor] ?? "f32";
  const held = perRegister === 1 ? dtype : "u32";
  const count = extent / perRegister;
  const places = Array.from({ length: count }, (_, i) => i * perRegister);
  const access = at(memory, 0);
  const place = c.placeWhere(access, conjunction(where), extents, first === undefined ? "to" : "from");
  const vector = vectorAt({ c, aligned }, access, held, count, place.at, extents, first === undefined);
  const guards = [...beyond, ...place.guards];
  if (first === undefined) {
    const values = places.map((i) => c.value(stepped(value, name, i), dtype, extents));
    return writtenPiece(vector, values, guards);
  }
  const outside = c.outside(memory.tensor, dtype);
  const registers = places.map((i) => {
    const elements = Array.from({ length: perRegister }, (_, n) => at(target, i + n));
    return isRead(elements) ? (c.ownRegister(at(target, i)) ?? first) : undefined;
  });
  const loaded = { from: vector, guards, outside: perRegister === 1 ? outside : code`@spread_half(${outside})` };
  return readPiece(memory.tensor, pieceType(held, count), loaded, registers);
}
