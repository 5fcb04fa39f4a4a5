/**
 * @file Tiles in the registers of a warp, in CUDA: fetched from shared memory, multiplied, drained to memory.
 *
 *     load_4_matrices(a[0][0], a[0][1], a[0][2], a[0][3], &a_ring[a_ring_row + 512 * (k_tile % 3)]);     fetch by ldmatrix
 *     mma_m16n8k16_f32_f16(c[0], a[0], b[0]);                                                             issue
 *     *(Piece<float, 2>*)&out[out_at] = {{c[0][0], c[0][1]}};                                             drain
 *
 * Which lane holds which element follows from the storage formulas of the instruction's declaration.
 */

import type { Extents } from "../abstraction/affine.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import {
  type Access,
  axesIn,
  axis,
  binary,
  type Expr,
  number,
  printExpr,
  substitute,
} from "../abstraction/expression.ts";
import {
  fillTemplate,
  type Intrinsic,
  lanesOf,
  type Operand,
  operandOf,
  type RowText,
} from "../abstraction/intrinsic.ts";
import type { LoopNest, RegisterAt, RegisterFile, TileAccess } from "../abstraction/loop-nest.ts";
import { tileOffset } from "../abstraction/memory-tile.ts";
import { type Code, code, indented, list, Name } from "../abstraction/source-text.ts";
import { clearRegister, declareRegister } from "../targets/registers.ts";
import type { CopyContext } from "./cuda-copies.ts";
import { placeWhere, vectorAt } from "./cuda-copies.ts";
import { ownAxis } from "./cuda-expressions.ts";
import { sideBySide } from "./cuda-pieces.ts";
import { atPlace, matrixOf } from "./cuda-views.ts";
import { heldElements, LANE, type Matrices, matricesOf, rowOfLane } from "./fragment.ts";
import { conjunction, guarded } from "./lane-statement.ts";
import type { Named } from "./named.ts";
import { distance, divisorOf, shortIndex, shortTerms, sumOf } from "./short-index.ts";
import type { Of } from "./walk.ts";

/** Counts the elements of a row that `ldmatrix` moves. */
const COLUMN = ownAxis("column");

/** Bytes of a register of a lane. */
const WORD = 4;

/** Lanes that exchange words before they store. */
const QUAD = 4;

/** Elements that a lane stores at once at most: neighbours that it holds. */
const WIDTHS = [8, 4, 2] as const;

export class CudaTiles {
  private readonly context: CopyContext;
  private readonly nest: LoopNest;

  constructor(context: CopyContext, nest: LoopNest) {
    this.context = context;
    this.nest = nest;
  }

  declarations({ registers }: Named): Code[] {
    return this.nest.registers
      .filter((file) => registers.has(file.name))
      .map((file) => {
        const { intrinsic, operand, count } = file;
        return declareRegister(intrinsic, operandOf(intrinsic, operand), code`${nameOf(file)}[${count}]`);
      });
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  clear({ register }: Of<"clear">): Code[] {
    const { intrinsic, operand } = this.fileOf(register);
    return [clearRegister(intrinsic, operandOf(intrinsic, operand), this.register(register))];
  }

  issue({ intrinsic, registers, tiles = {} }: Of<"register-issue">, extents: Extents): Code[] {
    const names = Object.entries(registers).map(([o, r]) => [o, this.register(r)] as const);
    const matrices = Object.entries(tiles).map(
      ([o, tile]) =>
        [o, matrixOf(this.context.c, this.nest, intrinsic, operandOf(intrinsic, o), tile, extents)] as const,
    );
    return [fillTemplate(intrinsic.emit, Object.fromEntries([...names, ...matrices]))];
  }

  /** The sums of an asynchronous instruction, of which none is in flight: nothing reads them earlier. */
  arrived({ asynchronous, name }: Intrinsic): Code[] {
    return this.nest.registers
      .filter((file) => file.intrinsic.name === name)
      .flatMap((file) =>
        Array.from({ length: file.count }, (_, i) =>
          asynchronous ? fillTemplate(asynchronous.arrived, { reg: code`${nameOf(file)}[${i}]` }) : code``,
        ),
      );
  }

  /** A tile of flat memory, by the operand's own load or store. */
  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { c } = this.context;
    const { intrinsic, operand } = this.fileOf(register);
    const declared = operandOf(intrinsic, operand);
    const at = c.hoist(shortIndex(memory.base, extents), `${memory.buffer}_at`);
    const pointer = code`&${c.tensor(memory.buffer)}[${c.index(at, extents)}]`;
    const template = kind === "load" ? declared.load : declared.store;
    return [this.byInstruction(template, register, pointer, memory.stride)];
  }

  fetch({ register, tile }: Of<"fetch">, extents: Extents): Code[] {
    const { intrinsic, operand: name } = this.fileOf(register);
    const operand = operandOf(intrinsic, name);
    const { by } = tile;
    const registers = Array.from({ length: tile.several?.count ?? 1 }, (_, i) => ({
      register: { ...register, index: shortIndex(binary("+", register.index, number(i)), {}) },
      // A tile further along a dimension.
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
          return this.byInstruction(operand.load, r, pointer, stride);
        });
      default:
        return by satisfies never;
    }
  }

  drain({ register, axes, equation, element, by }: Of<"drain">, extents: Extents): Code[] {
    const { intrinsic, operand: name } = this.fileOf(register);
    const operand = operandOf(intrinsic, name);
    if (equation.op !== "=") throw new Error("internal: a drain assigns");
    if (by === "instruction") {
      if (equation.value.kind !== "access" || equation.value.tensor !== element || equation.where)
        throw new Error(`internal: ${intrinsic.name} stores its sums as they are, not ${printExpr(equation.value)}`);
      const tile = { axes, access: equation.target, from: operand.dims.map(() => 0) };
      const { pointer, stride } = this.rowsOf(operand, operand.store, tile, extents);
      return [this.byInstruction(operand.store, register, pointer, stride)];
    }
    if (by === "quads") return this.drainQuads({ register, axes, equation, element }, intrinsic, operand, extents);
    // 1. Each element of this lane at its place.
    const held = heldElements(intrinsic, operand).map((place, e) => {
      const known = new Map(axes.map((a, d) => [a, place[d] ?? number(0)]));
      const target = { ...equation.target, index: equation.target.index.map((i) => substitute(i, known, "index")) };
      const { c } = this.context;
      const where = conjunction(equation.where).map((w) => substitute(w, known, "index"));
      const { at, guards } = c.placeOf(target, extents);
      return { e, target, value: substitute(equation.value, known), at, conditions: [...where, ...guards], where };
    });
    // 2. Neighbours that lie side by side together.
    const lines: Code[] = [];
    const text = this.register(register);
    for (let e = 0; e < held.length; ) {
      const width = WIDTHS.find((w) => e % w === 0 && this.storedTogether(held.slice(e, e + w), w, extents)) ?? 1;
      lines.push(...this.store(held.slice(e, e + width), { text, operand, element }, extents));
      e += width;
    }
    return lines;
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
    if (!Number.isInteger(inWord)) throw new Error(`internal: lanes hold ${operand.dtype} in no registers of 32 bits`);
    const held = heldElements(intrinsic, operand);
    return Array.from({ length: held.length / inWord }, (_, w) => {
      const accesses = held.slice(w * inWord, (w + 1) * inWord).map((place) => atPlace(tile, place, from));
      const places = accesses.map((a) => c.offsetOf(a, extents));
      const [first, firstAccess] = [places[0] ?? number(0), accesses[0] ?? tile.access];
      const memory = c.tensor(tile.access.tensor);
      const single = (a: Access): Code => code`${memory}[${c.place(a, extents).at}]`;
      if (operand.dtype === "f32" || operand.dtype === "s32") return code`${text}[${w}] = ${single(firstAccess)};`;
      const together =
        divisorOf(first, extents) % inWord === 0 && places.every((at, e) => distance(first, at, extents) === e);
      if (together) return code`${text}[${w}] = *(const unsigned*)&${single(firstAccess)};`;
      // Little end first.
      const parts = accesses.map((a, e) => {
        const bits = code`(unsigned)(${size === 1 ? "uint8_t" : "uint16_t"})${single(a)}`;
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
      lines.push(code`load_${count}_matri${count === 1 ? "x" : "ces"}${form}(${words}, ${address});`);
      first += count;
    }
    return lines;
  }

  /** Where the row of this lane begins. @throws Error where its bytes do not lie side by side, at a multiple of 16 */
  private rowAddress(matrices: Matrices, row: readonly Expr[], tile: TileAccess, extents: Extents): Code {
    const { c } = this.context;
    const from = row.map(() => 0);
    const moved = row.map((e, d) => (d === matrices.along ? binary("+", e, axis(COLUMN)) : e));
    const within = { ...extents, [COLUMN]: matrices.columns };
    if (!sideBySide(c, atPlace(tile, moved, from), COLUMN, matrices.columns, within))
      throw new Error(`internal: ${tile.access.tensor}: ${tile.by} wants rows of 16 bytes, at multiples of 16`);
    return code`&${c.tensor(tile.access.tensor)}[${c.place(atPlace(tile, row, from), extents, "row").at}]`;
  }

  // ---- the instruction's own moves ---------------------------------------------------------------------------------------------

  private byInstruction(template: RowText | undefined, register: RegisterAt, pointer: Code, stride: number): Code {
    const { intrinsic, operand } = this.fileOf(register);
    if (template === undefined) throw new Error(`internal: ${intrinsic.name} does not move ${operand} by itself`);
    const bytes = stride * bytesOf(operandOf(intrinsic, operand).dtype);
    return fillTemplate(template, { reg: this.register(register), ptr: pointer, stride: code`${bytes}` });
  }

  /** Where a tile begins and how far its rows are apart. @throws Error where it lies otherwise than the instruction wants */
  private rowsOf(
    operand: Operand,
    template: string | undefined,
    { axes, access, from }: Pick<TileAccess, "axes" | "access"> & { readonly from: readonly number[] },
    extents: Extents,
  ): { readonly pointer: Code; readonly stride: number } {
    const { c } = this.context;
    const within = { ...extents, ...Object.fromEntries(axes.map((a, d) => [a, operand.dims[d]?.extent ?? 1])) };
    const moved = axes.map((a, d) => binary("+", axis(a), number(from[d] ?? 0)));
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
    // Rows lie one behind the other, or columns.
    const [outer = "", inner = ""] = operand.layout === "column" ? [...axes].reverse() : axes;
    const stride = strided ? (terms.find((t) => t.of.kind === "axis" && t.of.name === outer)?.factor ?? 0) : 0;
    const names = new Map(operand.dims.map((d, i) => [d.name, axis(axes[i] ?? "")]));
    const wanted = strided
      ? binary("+", binary("*", number(stride), axis(outer)), axis(inner))
      : substitute(tileOffset(operand), names, "index");
    if (distance(wanted, own, within) !== 0)
      throw new Error(`internal: a tile of ${operand.name} lies at ${printExpr(own, "formula")} of ${access.tensor}`);
    const first = atPlace(
      { axes, access },
      from.map(number),
      from.map(() => 0),
    );
    return { pointer: code`&${c.tensor(access.tensor)}[${c.place(first, extents).at}]`, stride };
  }

  // ---- drains -----------------------------------------------------------------------------------------------------------------

  /** Whether elements lie side by side in memory from a multiple of their number on, all inside or all outside. */
  private storedTogether(held: readonly Held[], width: number, extents: Extents): boolean {
    const [first, ...others] = held;
    const last = others.at(-1);
    if (!first || !last || held.length !== width) return false;
    const dtype = this.context.c.dtypes[first.target.tensor] ?? "f32";
    if (width * bytesOf(dtype) > 16 || divisorOf(first.at, extents) % width !== 0) return false;
    if (!held.every((h, e) => distance(first.at, h.at, extents) === e)) return false;
    // Of conditions that differ, each asks whether an index at a multiple of the width is below such a multiple.
    return first.conditions.every((condition, i) => {
      const lastly = last.conditions[i];
      if (!lastly || first.conditions.length !== last.conditions.length) return false;
      if (printExpr(condition) === printExpr(lastly)) return true;
      if (condition.kind !== "compare" || lastly.kind !== "compare") return false;
      const { op, left, right } = condition;
      const limit = right.kind === "number" && right.value % width === 0 && (op === "<" || op === ">=");
      return limit && divisorOf(left, extents) % width === 0 && distance(left, lastly.left, extents) === width - 1;
    });
  }

  private store(held: readonly Held[], from: Drained, extents: Extents): Code[] {
    const { c } = this.context;
    const [first] = held;
    if (!first) return [];
    const dtype = c.dtypes[first.target.tensor] ?? "f32";
    const to = placeWhere(c, first.target, first.where, extents);
    const values = held.map((h) => this.withElement(from, h.e, () => c.value(h.value, dtype, extents)));
    const [only] = values;
    const stored =
      held.length === 1 && only
        ? code`${c.memory(first.target, extents)}[${to.at}] = ${only};`
        : code`${vectorAt(this.context, first.target, dtype, held.length, to.at, extents, true)} = {{${list(values)}}};`;
    return guarded(to.guards, [stored]);
  }

  /** Words of two results, exchanged among four lanes: each has 16 bytes of a row then, and writes them at once. */
  private drainQuads(
    { register, axes, equation, element }: Pick<Of<"drain">, "register" | "axes" | "equation" | "element">,
    intrinsic: Intrinsic,
    operand: Operand,
    extents: Extents,
  ): Code[] {
    const { c } = this.context;
    const held = heldElements(intrinsic, operand);
    const from: Drained = { text: this.register(register), operand, element };
    const dtype = c.dtypes[equation.target.tensor] ?? "f16";
    const known = (place: readonly Expr[]): Map<string, Expr> =>
      new Map(axes.map((a, d) => [a, place[d] ?? number(0)]));
    const result = (e: number): Code => {
      const value = substitute(equation.value, known(held[e] ?? []));
      return this.withElement(from, e, () => c.value(value, dtype, extents));
    };
    const lines: Code[] = [];
    // Element 4*block + 2*half + i of a lane is column 8*block + 2*(lane%4) + i of one of two rows.
    for (let block = 0; 4 * block < held.length; block += QUAD)
      for (const half of [0, 1]) {
        const words = Array.from({ length: QUAD }, (_, j) => {
          const e = 4 * (block + j) + 2 * half;
          return code`(unsigned)${result(e)} | (unsigned)${result(e + 1)} << 16`;
        });
        const [row = number(0), column = number(0)] = held[4 * block + 2 * half] ?? [];
        const quadLane = binary("%", axis(LANE), number(QUAD));
        const places = known([
          row,
          shortIndex(binary("+", column, binary("*", number(6), quadLane)), { [LANE]: lanesOf(intrinsic) }),
        ]);
        const index = equation.target.index.map((i) => substitute(i, places, "index"));
        const where = conjunction(equation.where).map((w) => substitute(w, places, "index"));
        const to = placeWhere(c, { ...equation.target, index }, where, extents);
        this.context.aligned(equation.target.tensor, QUAD * WORD);
        const stored = code`*(Piece<unsigned, 4>*)&${c.tensor(equation.target.tensor)}[${to.at}] = {{words[0], words[1], words[2], words[3]}};`;
        lines.push(
          code`{`,
          ...indented([
            code`unsigned words[4] = {${list(words)}};`,
            code`exchange_in_quad(words);`,
            ...guarded(to.guards, [stored]),
          ]),
          code`}`,
        );
      }
    return lines;
  }

  private withElement<T>(from: Drained, e: number, print: () => T): T {
    const { c } = this.context;
    c.atHand = ({ tensor }) => (tensor === from.element ? elementOf(from, e) : undefined);
    try {
      return print();
    } finally {
      c.atHand = () => undefined;
    }
  }

  // ---- registers --------------------------------------------------------------------------------------------------------------

  private fileOf({ file }: RegisterAt): RegisterFile {
    const found = this.nest.registers.find((r) => r.name === file);
    if (!found) throw new Error(`internal: no registers "${file}"`);
    return found;
  }

  /** `c[3]`: an index that is not known while printing would put the registers into memory. */
  private register(at: RegisterAt): Code {
    const file = this.fileOf(at);
    const index = shortIndex(at.index, {});
    if (index.kind !== "number" || index.value < 0 || index.value >= file.count)
      throw new Error(`internal: register ${printExpr(at.index)} of ${file.count} is not known while printing`);
    return code`${nameOf(file)}[${index.value}]`;
  }
}

const nameOf = (file: RegisterFile): Name => new Name("register", file.name);

/** A register to fill, and where its tile begins. */
interface Fetched {
  readonly register: RegisterAt;
  readonly from: readonly number[];
}

/** An element of a lane and where it goes. */
interface Held {
  readonly e: number;
  readonly target: Access;
  readonly value: Expr;
  readonly at: Expr;
  /** Those of the statement, and those of the tensor's ends. */
  readonly conditions: readonly Expr[];
  readonly where: readonly Expr[];
}

interface Drained {
  readonly text: Code;
  readonly operand: Operand;
  readonly element: string;
}

/** An element of a lane's registers, as values of its type are held: 16-bit floats as their bits. */
function elementOf({ text, operand }: Drained, e: number): Code {
  const inWord = WORD / bytesOf(operand.dtype);
  if (inWord === 1) return code`${text}[${e}]`;
  const type: Partial<Record<DType, "uint16_t" | "int8_t" | "uint8_t">> = {
    f16: "uint16_t",
    bf16: "uint16_t",
    s8: "int8_t",
    u8: "uint8_t",
  };
  const held = type[operand.dtype];
  if (held === undefined) throw new Error(`internal: no way to an element of ${operand.dtype} in registers`);
  const shift = 8 * bytesOf(operand.dtype) * (e % inWord);
  const word = code`${text}[${Math.floor(e / inWord)}]`;
  return code`(${held})${shift === 0 ? word : code`(${word} >> ${shift})`}`;
}

/** Four, two or one matrices: as many as lie in a rectangle, and the row that a lane names. */
function largestLoad(
  matrices: Matrices,
  origins: readonly (readonly number[])[],
): [count: number, row: readonly Expr[]] {
  for (const count of [4, 2, 1]) {
    const row = origins.length >= count ? rowOfLane(matrices, origins.slice(0, count)) : undefined;
    if (row) return [count, row];
  }
  throw new Error("internal: a tile without matrices");
}
