/**
 * @file Tiles in the registers of a warp, in CUDA: fetched from shared memory, multiplied, and stored (cuda-drains.ts).
 *
 *     load_4_matrices(a[0][0], a[0][1], a[0][2], a[0][3], &a_ring[a_ring_row + 512 * (k_tile % 3)]);     fetch by ldmatrix
 *     mma_m16n8k16_f32_f16(c[0], a[0], b[0]);                                                             issue
 *     *(Piece<float, 2>*)&out[out_at] = {{c[0][0], c[0][1]}};                                             drain
 *
 * The storage formulas of the instruction's declaration determine which lane holds which element.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { upTo } from "../../abstraction/collections.ts";
import { conjunctsOf } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  axesIn,
  axis,
  type Expr,
  number,
  plus,
  printExpr,
  substitute,
  times,
} from "../../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, type Operand, operandOf } from "../../abstraction/intrinsic.ts";
import type { RegisterAt, RegisterFile, TileAccess } from "../../abstraction/loop-nest.ts";
import { tileOffset } from "../../abstraction/memory-tile.ts";
import { type Code, code, list, Name } from "../../abstraction/source-text.ts";
import { declareRegister } from "../../targets/registers.ts";
import { allOf } from "../c-expressions.ts";
import { TileRegisters } from "../scheduled-nest.ts";
import { distance, divisorOf, shortIndex, shortTerms, sumOf } from "../short-index.ts";
import type { Named, Of } from "../walk.ts";
import { atPlace, matrixOf, placed } from "./cuda-boxes.ts";
import type { CopyContext } from "./cuda-copies.ts";
import { printDrain } from "./cuda-drains.ts";
import { ownAxis } from "./cuda-expressions.ts";
import { sideBySide } from "./cuda-pieces.ts";
import { heldElements, type Matrices, matricesOf, rowOfLane, WORD } from "./fragment.ts";

/** Counts the elements of a row that `ldmatrix` loads. */
const COLUMN = ownAxis("column");

export abstract class CudaTiles extends TileRegisters {
  protected abstract readonly context: CopyContext;

  declarations({ registers }: Named): Code[] {
    return this.nest.registers
      .filter((file) => registers.has(file.name))
      .map((file) => {
        const { intrinsic, operand, count } = file;
        return declareRegister(intrinsic, operandOf(intrinsic, operand), code`${nameOf(file)}[${count}]`);
      });
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  issue(statement: Of<"register-issue">, extents: Extents): Code[] {
    const { intrinsic, tiles = {} } = statement;
    const matrices = Object.entries(tiles).map(
      ([o, tile]) =>
        [o, matrixOf(this.context.c, this.nest, intrinsic, operandOf(intrinsic, o), tile, extents)] as const,
    );
    return this.issued(statement, Object.fromEntries(matrices));
  }

  /**
   * Marks the sums of an asynchronous instruction as read-write after its wait, so that no read of them moves before
   * it.
   */
  arrived({ asynchronous, name }: Intrinsic): Code[] {
    return this.nest.registers
      .filter((file) => file.intrinsic.name === name)
      .flatMap((file) =>
        upTo(file.count).map((i) =>
          asynchronous ? fillTemplate(asynchronous.arrived, { reg: code`${nameOf(file)}[${i}]` }) : code``,
        ),
      );
  }

  /** Loads or stores a tile of flat memory with the operand's own instruction. */
  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { c } = this.context;
    const at = c.hoist(shortIndex(memory.base, extents), `${memory.buffer}_at`);
    const pointer = code`&${c.tensor(memory.buffer)}[${c.index(at, extents)}]`;
    return [this.moved(kind, register, pointer, memory.stride)];
  }

  fetch({ register, tile }: Of<"fetch">, extents: Extents): Code[] {
    const { intrinsic, operand } = this.heldAt(register);
    const { by } = tile;
    const registers = upTo(tile.several?.count ?? 1).map((i) => ({
      register: { ...register, index: shortIndex(plus(register.index, i), {}) },
      // The next tile along a dimension.
      from: operand.dims.map((d, at) => (at === tile.several?.along ? i * d.extent : 0)),
    }));
    switch (by) {
      case "elements":
        return registers.flatMap((r) => this.fetchElements(intrinsic, operand, r, tile, extents));
      case "ldmatrix":
      case "ldmatrix.trans":
        return this.fetchMatrices(matricesOf(intrinsic, operand, by === "ldmatrix.trans"), registers, tile, extents);
      case "instruction":
        return registers.map(({ register: r, from }) => {
          const { pointer, stride } = this.rowsOf(operand, operand.load, { ...tile, from }, extents);
          return this.moved("load", r, pointer, stride);
        });
      default:
        return by satisfies never;
    }
  }

  drain(statement: Of<"drain">, extents: Extents): Code[] {
    const { register, axes, equation, element, by } = statement;
    const { intrinsic, operand } = this.heldAt(register);
    if (equation.op !== "=") internal("a drain assigns");
    if (by !== "instruction")
      return printDrain(statement, { intrinsic, operand, text: this.register(register) }, this.context, extents);
    if (equation.value.kind !== "access" || equation.value.tensor !== element || equation.where)
      internal(`${intrinsic.name} stores its sums as they are, not ${printExpr(equation.value)}`);
    const tile = { axes, access: equation.target, from: operand.dims.map(() => 0) };
    const { pointer, stride } = this.rowsOf(operand, operand.store, tile, extents);
    return [this.moved("store", register, pointer, stride)];
  }

  // ---- fetches ----------------------------------------------------------------------------------------------------------------

  private fetchElements(
    intrinsic: Intrinsic,
    operand: Operand,
    { register, from }: Fetched,
    tile: TileAccess,
    extents: Extents,
  ): Code[] {
    const { c } = this.context;
    const text = this.register(register);
    const size = bytesOf(operand.dtype);
    const inWord = WORD / size;
    if (!Number.isInteger(inWord)) internal(`lanes hold ${operand.dtype} in no registers of 32 bits`);
    const held = heldElements(intrinsic, operand);
    return upTo(held.length / inWord).map((w) => {
      const own = held.slice(w * inWord, (w + 1) * inWord);
      const accesses = own.map((place) => atPlace(tile, place, from));
      const places = accesses.map((a) => c.offsetOf(a, extents));
      const first = places[0] ?? number(0);
      const firstAccess = accesses[0] ?? tile.access;
      const memory = c.tensor(tile.access.tensor);
      const single = (a: Access): Code => code`${memory}[${c.place(a, extents).at}]`;
      const tests = own.map((place) =>
        c.tests(conjunctsOf(tile.where && placed(tile.where, tile.axes, place, from)), extents),
      );
      const tested = (e: number, value: Code): Code => {
        const all = tests[e] ?? [];
        return all.length > 0 ? code`(${allOf(all)} ? ${value} : 0)` : value;
      };
      if (operand.dtype === "f32" || operand.dtype === "s32")
        return code`${text}[${w}] = ${tested(0, single(firstAccess))};`;
      const together =
        tests.every((all) => all.length === 0) &&
        divisorOf(first, extents) % inWord === 0 &&
        places.every((at, e) => distance(first, at, extents) === e);
      const word = code`*(const unsigned*)&${single(firstAccess)}`;
      if (together || inWord === 1) return code`${text}[${w}] = ${tested(0, word)};`;
      // Little-endian.
      const parts = accesses.map((a, e) => {
        const bits = tested(e, code`(unsigned)(${size === 1 ? "uint8_t" : "uint16_t"})${single(a)}`);
        return e === 0 ? bits : code`${bits} << ${8 * size * e}`;
      });
      return code`${text}[${w}] = ${parts.reduce((all, part) => code`${all} | ${part}`)};`;
    });
  }

  private fetchMatrices(matrices: Matrices, registers: readonly Fetched[], tile: TileAccess, extents: Extents): Code[] {
    const all = registers.flatMap(({ register, from }) =>
      matrices.origins.map((origin, w) => ({
        word: code`${this.register(register)}[${w}]`,
        origin: origin.map((at, d) => at + (from[d] ?? 0)),
      })),
    );
    const form = tile.by === "ldmatrix" ? "" : "_transposed";
    const lines: Code[] = [];
    for (let first = 0; first < all.length; ) {
      const [count, row] = largestLoad(
        matrices,
        all.slice(first, first + 4).map((w) => w.origin),
      );
      const group = all.slice(first, first + count);
      const address = this.rowAddress(matrices, row, tile, extents);
      const words = list(group.map((w) => w.word));
      lines.push(code`@load_${count}_matri${count === 1 ? "x" : "ces"}${form}(${words}, ${address});`);
      first += count;
    }
    return lines;
  }

  /** The address of this lane's row. @throws Error unless its bytes are contiguous and aligned to 16 */
  private rowAddress(matrices: Matrices, row: readonly Expr[], tile: TileAccess, extents: Extents): Code {
    const { c } = this.context;
    const from = row.map(() => 0);
    const moved = row.map((e, d) => (d === matrices.along ? plus(e, axis(COLUMN)) : e));
    const within = { ...extents, [COLUMN]: matrices.columns };
    if (!sideBySide(c, atPlace(tile, moved, from), COLUMN, matrices.columns, within))
      internal(`${tile.access.tensor}: ${tile.by} wants rows of 16 bytes, at multiples of 16`);
    return code`&${c.tensor(tile.access.tensor)}[${c.place(atPlace(tile, row, from), extents, "row").at}]`;
  }

  // ---- the instruction's own moves ---------------------------------------------------------------------------------------------

  /**
   * The address of a tile, and its row pitch. @throws Error if the layout is not the one that the instruction requires
   */
  private rowsOf(
    operand: Operand,
    template: string | undefined,
    { axes, access, from }: Pick<TileAccess, "axes" | "access"> & { readonly from: readonly number[] },
    extents: Extents,
  ): { readonly pointer: Code; readonly stride: number } {
    const { c } = this.context;
    const within = { ...extents, ...Object.fromEntries(axes.map((a, d) => [a, operand.dims[d]?.extent ?? 1])) };
    const moved = axes.map((a, d) => plus(axis(a), from[d] ?? 0));
    const inTile = (e: Expr): boolean => axesIn(e).some((a) => axes.includes(a));
    const terms = shortTerms(
      c.placeOf(
        atPlace(
          { axes, access },
          moved,
          axes.map(() => 0),
        ),
        within,
      ).at,
      within,
    );
    const own = sumOf(terms.filter((t) => inTile(t.of)));
    const strided = template?.includes("{stride}") === true;
    // The tile is stored by rows, or by columns.
    const [outer = "", inner = ""] = operand.layout === "column" ? [...axes].reverse() : axes;
    const stride = strided ? (terms.find((t) => t.of.kind === "axis" && t.of.name === outer)?.factor ?? 0) : 0;
    const names = new Map(operand.dims.map((d, i) => [d.name, axis(axes[i] ?? "")]));
    const wanted = strided
      ? plus(times(stride, axis(outer)), axis(inner))
      : substitute(tileOffset(operand), names, "index");
    if (distance(wanted, own, within) !== 0)
      internal(`a tile of ${operand.name} lies at ${printExpr(own, "formula")} of ${access.tensor}`);
    const first = atPlace(
      { axes, access },
      from.map(number),
      from.map(() => 0),
    );
    return { pointer: code`&${c.tensor(access.tensor)}[${c.place(first, extents).at}]`, stride };
  }

  // ---- registers --------------------------------------------------------------------------------------------------------------

  /** `c[3]`. An index that is not constant would move the registers to local memory. */
  protected override register(at: RegisterAt): Code {
    const file = this.fileOf(at);
    const index = shortIndex(at.index, {});
    if (index.kind !== "number" || index.value < 0 || index.value >= file.count)
      internal(`register ${printExpr(at.index)} of ${file.count} is not known while printing`);
    return code`${nameOf(file)}[${index.value}]`;
  }
}

const nameOf = (file: RegisterFile): Name => new Name("register", file.name);

/** A register to load, and the origin of its tile. */
interface Fetched {
  readonly register: RegisterAt;
  readonly from: readonly number[];
}

/** Four, two or one matrices, as many as form a rectangle, and the row that each lane supplies. */
function largestLoad(
  matrices: Matrices,
  origins: readonly (readonly number[])[],
): [count: number, row: readonly Expr[]] {
  for (const count of [4, 2, 1]) {
    const row = origins.length >= count ? rowOfLane(matrices, origins.slice(0, count)) : undefined;
    if (row) return [count, row];
  }
  internal("a tile without matrices");
}
