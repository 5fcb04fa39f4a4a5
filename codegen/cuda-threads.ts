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
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { substituteAxis } from "../abstraction/rewrite-statement.ts";
import { type Code, code, list } from "../abstraction/source-text.ts";
import { type CopyContext, pieceType, readPiece, vectorAt, writtenPiece } from "./cuda-copies.ts";
import { requireTogether, stepped, steppedAccess } from "./cuda-pieces.ts";
import { LANE } from "./fragment.ts";
import { conjunction, registerName } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import type { Loop, Of } from "./walk.ts";
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

/**
 * Contiguous elements, accessed at once: loaded into separate registers, or stored from computed values.
 * @param beyond conditions that exclude threads beyond the lanes
 */
function neighbours(
  { equation }: Of<"scalar">,
  { name, extent }: { readonly name: string; readonly extent: number },
  context: CopyContext,
  extents: Extents,
  beyond: readonly Code[],
): Code[] {
  const { c } = context;
  const { target, value, where } = equation;
  const at = (a: Access, i: number): Access => steppedAccess(a, name, i);
  const first = c.ownRegister(at(target, 0));
  const memory = first === undefined ? target : value;
  if (memory.kind !== "access") throw new Error("internal: what is read at once is an access");
  requireTogether(c, memory, name, extent, { ...extents, [name]: extent });
  const dtype = c.dtypes[memory.tensor] ?? "f32";
  const places = Array.from({ length: extent }, (_, i) => i);
  if (first === undefined) {
    const to = c.placeWhere(at(target, 0), conjunction(where), extents);
    const values = places.map((i) => c.value(stepped(value, name, i), dtype, extents));
    const written = vectorAt(context, at(target, 0), dtype, extent, to.at, extents, true);
    return writtenPiece(written, values, [...beyond, ...to.guards]);
  }
  const read = at(memory, 0);
  const from = c.place(read, extents, "from");
  const loaded = {
    from: vectorAt(context, read, dtype, extent, from.at, extents),
    guards: [...beyond, ...from.guards],
    outside: c.outside(memory.tensor, dtype),
  };
  const registers = places.map((i) => c.ownRegister(at(target, i)) ?? first);
  return readPiece(memory.tensor, pieceType(dtype, extent), loaded, registers);
}
