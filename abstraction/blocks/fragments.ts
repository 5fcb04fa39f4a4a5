/**
 * @file Tiles between memory and the registers of a warp: `fetch`, `drain`, and `load` and `store` of flat memory.
 *
 *     a{0} <- a_ring[k_tile%3,16*warp_m+x_m,x_k] over x_m, x_k by ldmatrix
 *     for x_m, x_n of c{0}   out[16*warp_m+x_m,x_n] = sum[]
 *
 * Element by element, each lane moves what the operand's storage formula says it holds. By an instruction, the whole warp moves the tile. Which lane
 * accesses which element is then unspecified, so other threads must be ordered with every lane.
 *
 * Below: which lane of a warp holds which element of an operand, and which elements `ldmatrix` reads from memory in one row.
 *
 *     mma.m16n8k16 a     lane 0 holds [0,0] [0,1] [8,0] [8,1] [0,8] [0,9] [8,8] [8,9]
 *     ldmatrix           row 0 of the first matrix: [0,0] .. [0,7], which lanes 0 to 3 get two each
 */

import { evaluateIndex, pointsIn, pointsOf, rowMajor } from "../affine.ts";
import { hasName, namesOf } from "../collections.ts";
import { extentsOf } from "../computation.ts";
import { bytesOf, wrapperOf } from "../dtype.ts";
import { internal } from "../error.ts";
import { type Buffer, compileIndex, compilePlace, compileValue, type Environment } from "../evaluate.ts";
import type { Expr } from "../expression.ts";
import { lanesOf, type Operand, registerElements, sizesOf, WARP } from "../intrinsic.ts";
import type { MemoryTile, RegisterAt, Statement, TileAccess } from "../loop-nest.ts";
import {
  type BlockContext,
  compileRegister,
  elementAt,
  inFlightAt,
  type RegisterShape,
  refuse,
  refuseAt,
  type Standing,
  type Warp,
  type WarpRun,
} from "./context.ts";
import { ALL_LANES } from "./happens-before.ts";

/** Source: CUDA C++ Programming Guide, warp matrix functions: a tile begins at a multiple of 256 bits, rows at multiples of 16 bytes. */
const WMMA_TILE_BYTES = 32;
const WMMA_ROW_BYTES = 16;

/** Source: PTX ISA, ldmatrix: rows of 16 bytes, each at a multiple of 16 bytes. */
const LDMATRIX_ROW_BYTES = 16;

/** Describes what is wrong with the places of a tile's elements. */
type TileCheck = (places: Int32Array) => string | undefined;

export function compileFetch({ register, tile }: Extract<Statement, { kind: "fetch" }>, site: Standing): WarpRun {
  const { scope, judge } = site;
  const { access, axes, by, where, made, several = { count: 1, along: 0 } } = tile;
  const { shape, number } = compileRegister(register, site);
  const { values, dtype, watch } = scope.buffer(access.tensor);
  if (made === undefined) checkTypes(shape, dtype, access.tensor, site);
  else if (by !== "elements") refuse(site, `${by} moves a tile as it is: nothing is made of it`);
  const check = tileCheck(by, access.tensor, shape, site);
  const holders = by === "elements" ? holdersOrRefuse(shape, site) : undefined;
  const place = made === undefined ? compilePlace(access, scope) : () => 0;
  const make = made && compileValue(made, scope, shape.operand.dtype);
  const holds = where && compileIndex(where, scope);
  if (holds && by !== "elements") refuse(site, `${by} moves a whole tile: none of it is left out`);
  const seek = seekerOf(axes, shape, site);
  const extent = shape.operand.dims[several.along]?.extent ?? 0;
  const places = new Int32Array(shape.rows.length);
  return (warp) => {
    const { env } = warp;
    judge.begin(site, warp.number, env);
    for (let i = 0; i < several.count; i++) {
      const held = tileOf(warp, shape, number(warp, i), site);
      for (let e = 0; e < places.length; e++) {
        seek(env, e, several.along, i * extent);
        places[e] = holds !== undefined && holds(env) === 0 ? STAYS : place(env);
      }
      const problem = places.includes(-1) ? `the tile leaves ${access.tensor}` : check(places);
      if (problem !== undefined) refuseAt(site, warp, problem);
      for (let e = 0; e < places.length; e++) {
        const at = places[e] ?? 0;
        if (at === STAYS) {
          held[e] = 0;
          continue;
        }
        judge.lane = holders?.[e] ?? ALL_LANES;
        if (make) {
          seek(env, e, several.along, i * extent);
          held[e] = make(env);
          continue;
        }
        watch?.read(at);
        held[e] = values[at] ?? Number.NaN;
      }
    }
  };
}

export function compileDrain(
  { register, axes, equation, element, by, part }: Extract<Statement, { kind: "drain" }>,
  site: Standing,
): WarpRun {
  const { scope, judge } = site;
  const { target, op, value, where } = equation;
  const { shape, number } = compileRegister(register, site);
  const { values, dtype, watch } = scope.buffer(target.tensor);
  if (op !== "=") refuse(site, `a drain assigns with "=", not with "${op}"`);
  checkWritable(target.tensor, site);
  const one: Buffer = { values: new Float64Array(1), shape: [], dtype: shape.operand.dtype };
  const inner = scope.including(element, one);
  const evaluate = compileValue(value, inner, dtype);
  const holds = where && compileIndex(where, scope);
  const place = compilePlace(target, scope);
  const round = wrapperOf(dtype);
  const whole = by === "instruction";
  const from = part && compileIndex(part.from, scope);
  const columns = digitsOf(shape.operand).at(-1);
  if (whole && !isElement(value, element))
    refuse(site, "an instruction that stores a tile computes nothing: the value must be the register's element");
  if (whole) checkTypes(shape, dtype, target.tensor, site);
  const exchanged = by === "quads" || by === "stmatrix";
  if (by === "stmatrix" && (holds || site.scratch.get(target.tensor)?.scope !== "shared"))
    refuse(site, `stmatrix writes whole tiles of shared memory, and ${target.tensor} is none, or some of it stays`);
  const check = exchanged
    ? rowsOfLanes(by, target.tensor, bytesOf(dtype), shape, site)
    : tileCheck(by ?? "elements", target.tensor, shape, site);
  // After an exchange among lanes, the writing lane of an element is unspecified.
  const holders = whole || exchanged ? undefined : holdersOrRefuse(shape, site);
  const seek = seekerOf(axes, shape, site);
  const places = new Int32Array(shape.rows.length);
  const results = new Float64Array(shape.rows.length);
  return (warp) => {
    const { env } = warp;
    judge.begin(site, warp.number, env);
    const held = filledTileOf(warp, shape, number(warp), site);
    const first = from?.(env) ?? 0;
    const isInPart = (e: number): boolean => {
      const column = (columns?.[e] ?? 0) - first;
      return part === undefined || (column >= 0 && column < part.extent);
    };
    for (let e = 0; e < places.length; e++) {
      seek(env, e);
      const stays = !isInPart(e) || (holds !== undefined && holds(env) === 0);
      if (stays && whole) refuseAt(site, warp, "an instruction stores a whole tile: none of it can stay");
      places[e] = stays ? STAYS : place(env);
      if (stays) continue;
      judge.lane = holders?.[e] ?? ALL_LANES;
      one.values[0] = held[e] ?? Number.NaN;
      results[e] = round(evaluate(env));
    }
    const problem = places.includes(-1) ? `the tile leaves ${target.tensor}` : check(places);
    if (problem !== undefined) refuseAt(site, warp, problem);
    for (let e = 0; e < places.length; e++) {
      const at = places[e] ?? STAYS;
      if (at === STAYS) continue;
      judge.lane = holders?.[e] ?? ALL_LANES;
      watch?.write(at);
      values[at] = results[e] ?? Number.NaN;
    }
  };
}

/** Lanes hold the same elements of all registers, so nothing moves between them. */
export function compileAccumulate(
  { register, scales, into }: Extract<Statement, { kind: "accumulate" }>,
  site: Standing,
): WarpRun {
  const to = compileRegister(into, site);
  const factors = [register, ...scales].map((of) => {
    const { shape, number } = compileRegister(of, site);
    if (shape.intrinsic !== to.shape.intrinsic || shape.operand !== to.shape.operand)
      refuse(site, `${of.file} holds another operand than ${into.file}: lanes would add elements of other places`);
    return (warp: Warp): Float64Array => filledTileOf(warp, shape, number(warp), site);
  });
  const round = wrapperOf(to.shape.operand.dtype);
  return (warp) => {
    const tiles = factors.map((tileIn) => tileIn(warp));
    const sums = filledTileOf(warp, to.shape, to.number(warp), site);
    for (let e = 0; e < sums.length; e++) {
      const added = tiles.reduce((product, tile) => round(product * (tile[e] ?? Number.NaN)), 1);
      sums[e] = round((sums[e] ?? Number.NaN) + added);
    }
  };
}

/** In place of an element's place: the element is not moved. */
const STAYS = -2;

/** `load` and `store`: a tile of flat memory, moved by the operand's own instruction. */
export function compileTileMove(
  { kind, register, memory }: { kind: "load" | "store"; register: RegisterAt; memory: MemoryTile },
  site: Standing,
): WarpRun {
  const { scope, judge } = site;
  const { shape, number } = compileRegister(register, site);
  const { values, dtype, watch } = scope.buffer(memory.buffer);
  checkTypes(shape, dtype, memory.buffer, site);
  if (kind === "store") checkWritable(memory.buffer, site);
  const holders = holdersOf(shape);
  const base = compileIndex(memory.base, scope);
  const { rows, columns } = shape;
  return (warp) => {
    judge.begin(site, warp.number, warp.env);
    const from = base(warp.env);
    const n = number(warp);
    const held = kind === "load" ? tileOf(warp, shape, n, site) : filledTileOf(warp, shape, n, site);
    for (let e = 0; e < rows.length; e++) {
      const at = from + (rows[e] ?? 0) * memory.stride + (columns[e] ?? 0);
      if (at < 0 || at >= values.length)
        refuseAt(site, warp, `the tile leaves ${memory.buffer}: it has ${values.length} elements, and no ${at}`);
      judge.lane = holders?.[e] ?? ALL_LANES;
      if (kind === "load") {
        watch?.read(at);
        held[e] = values[at] ?? Number.NaN;
      } else {
        watch?.write(at);
        values[at] = held[e] ?? Number.NaN;
      }
    }
  };
}

/**
 * The tile of a register that is written; it counts as filled from now on.
 * @throws NestFault while an issue that reads or writes it is in flight
 */
export function tileOf(warp: Warp, shape: RegisterShape, number: number, site: Standing): Float64Array {
  const file = warp.files[shape.number];
  const tile = file?.tiles[number];
  if (!file || !tile) internal(`no register ${shape.name}{${number}}`);
  const flight = file.flights[number];
  if (flight?.endedIn === Number.POSITIVE_INFINITY) {
    const missing = `${flight.committed ? "" : "a commit of the issue and "}a wait for it`;
    throw inFlightAt(site, warp, `${shape.name}{${number}}`, missing);
  }
  file.filled[number] = 1;
  file.touched[number] = 1;
  return tile;
}

/** The tile of a register that is read. @throws NestFault when it was never filled */
export function filledTileOf(warp: Warp, shape: RegisterShape, number: number, site: Standing): Float64Array {
  if (warp.files[shape.number]?.filled[number] !== 1)
    refuseAt(site, warp, `${shape.name}{${number}} is read, and nothing has filled it`);
  return tileOf(warp, shape, number, site);
}

/** A function that sets the names of an operand's dimensions to the index of an element. */
export function seekerOf(
  axes: readonly string[],
  { intrinsic, operand }: Pick<RegisterShape, "intrinsic" | "operand">,
  site: Standing,
): (env: Environment, element: number, along?: number, shift?: number) => void {
  if (axes.length !== operand.dims.length)
    refuse(site, `${axes.join(", ")} run over ${operand.dims.length} dimensions of ${intrinsic.name}.${operand.name}`);
  const taken = axes.find((name) => hasName(site.loops, name));
  if (taken !== undefined)
    refuse(site, `${taken} runs over the tile and is an axis of a loop around it: give it another name`);
  const digits = digitsOf(operand).map((of, d) => ({ of, slot: site.scope.slot(axes[d] ?? "") }));
  return (env, element, along = -1, shift = 0) => {
    for (let d = 0; d < digits.length; d++) {
      const digit = digits[d];
      if (digit) env[digit.slot] = (digit.of[element] ?? 0) + (d === along ? shift : 0);
    }
  };
}

function holdersOrRefuse(shape: RegisterShape, site: Standing): Int8Array {
  const { intrinsic, operand } = shape;
  const holders = holdersOf(shape);
  if (!holders)
    refuse(
      site,
      `which lane holds what of ${intrinsic.name}.${operand.name} is the vendor's secret: move it by its instruction`,
    );
  return holders;
}

export function checkTypes(
  { intrinsic, operand }: Pick<RegisterShape, "intrinsic" | "operand">,
  dtype: string,
  buffer: string,
  site: Standing,
): void {
  if (operand.dtype !== dtype)
    refuse(site, `${buffer} holds ${dtype}, and ${intrinsic.name}.${operand.name} is ${operand.dtype}`);
}

function checkWritable(buffer: string, site: Standing): void {
  if (site.inputs.has(buffer)) refuse(site, `${buffer} is an input: nothing may write it`);
}

function isElement(value: Expr, element: string): boolean {
  return value.kind === "access" && value.tensor === element;
}

function tileCheck(by: TileAccess["by"], buffer: string, shape: RegisterShape, site: Standing): TileCheck {
  const bytes = bytesOf(shape.operand.dtype);
  switch (by) {
    case "elements":
      return () => undefined;
    case "instruction":
      return rowsCheck(buffer, shape, bytes, site);
    case "ldmatrix":
    case "ldmatrix.trans": {
      if (site.scratch.get(buffer)?.scope !== "shared")
        refuse(site, `ldmatrix reads shared memory, and ${buffer} is none`);
      const rows = matrixRows(shape, by);
      if (!rows)
        refuse(
          site,
          `${by} cannot give the lanes what ${shape.intrinsic.name}.${shape.operand.name} wants them to hold`,
        );
      return (places) => {
        for (const row of rows) {
          const first = places[row[0] ?? 0] ?? 0;
          const apart = row.findIndex((e, j) => places[e] !== first + j);
          const name = (at: number): string => elementAt(site, buffer, at);
          if (apart > 0)
            return `${name(first)} and ${name(places[row[apart] ?? 0] ?? 0)} belong to one row of 16 bytes and do not lie ${apart} apart`;
          if ((first * bytes) % LDMATRIX_ROW_BYTES !== 0)
            return `${name(first)} lies at byte ${first * bytes}: a row of ldmatrix begins at a multiple of ${LDMATRIX_ROW_BYTES}`;
        }
        return undefined;
      };
    }
    default:
      return by satisfies never;
  }
}

/** Bytes that lie together after lanes have exchanged elements. */
const QUAD_BYTES = 16;

/** Checks what lanes exchange before they store it: 16 bytes that are written together or not at all. */
function rowsOfLanes(
  by: string,
  buffer: string,
  bytes: number,
  { intrinsic, operand }: RegisterShape,
  site: Standing,
): TileCheck {
  const atOnce = QUAD_BYTES / bytes;
  const columns = operand.dims.at(-1)?.extent ?? 0;
  if (bytes !== 2 || columns % atOnce !== 0)
    refuse(site, `lanes cannot exchange ${columns} columns of ${bytes} bytes of ${intrinsic.name} by ${by}`);
  return (places) => {
    for (let e = 0; e < places.length; e += atOnce) {
      const first = places[e] ?? STAYS;
      const apart = places.subarray(e, e + atOnce).findIndex((at, j) => at !== (first === STAYS ? STAYS : first + j));
      if (apart >= 0)
        return `${atOnce} results of lanes by ${by} do not lie side by side in ${buffer}, or not all of them stay`;
      if (first !== STAYS && first % atOnce !== 0)
        return `${elementAt(site, buffer, first)} lies at element ${first}: ${atOnce} results begin at a multiple of ${atOnce}`;
    }
    return undefined;
  };
}

/** Checks an instruction's own load or store: rows of contiguous elements at a constant distance. */
function rowsCheck(
  buffer: string,
  { operand, rows, columns }: RegisterShape,
  bytes: number,
  context: BlockContext,
): TileCheck {
  const origin = rows.findIndex((row, e) => row === 0 && columns[e] === 0);
  const second = rows.findIndex((row, e) => row === 1 && columns[e] === 0);
  const opaque = operand.storage === undefined;
  return (places) => {
    const first = places[origin] ?? 0;
    const stride = second < 0 ? 0 : (places[second] ?? 0) - first;
    const name = (at: number): string => elementAt(context, buffer, at);
    const apart = places.findIndex((at, e) => at !== first + (rows[e] ?? 0) * stride + (columns[e] ?? 0));
    if (apart >= 0)
      return `${name(first)} and ${name(places[apart] ?? 0)} do not lie in rows ${stride} apart, as the instruction moves them`;
    if (opaque && (first * bytes) % WMMA_TILE_BYTES !== 0)
      return `${name(first)} lies at byte ${first * bytes}: the tile must begin at a multiple of ${WMMA_TILE_BYTES}`;
    if (opaque && (stride * bytes) % WMMA_ROW_BYTES !== 0)
      return `rows of ${buffer} lie ${stride * bytes} bytes apart: the instruction wants a multiple of ${WMMA_ROW_BYTES}`;
    return undefined;
  };
}

/** An operand of an instruction. */
type Held = Pick<RegisterShape, "intrinsic" | "operand">;

/** Bytes of one lane's register. */
const WORD = 4;

/** The index of each logical element along each dimension, elements row-major. */
function digitsOf({ dims }: Operand): readonly Int32Array[] {
  const size = pointsIn(dims);
  let below = size;
  return dims.map(({ extent }) => {
    below /= extent;
    const step = below;
    return Int32Array.from({ length: size }, (_, e) => Math.floor(e / step) % extent);
  });
}

/** Each element of the operand's registers: its logical element, its lane, and its position within the lane. */
function* heldElements({ intrinsic, operand }: Held): Generator<{ element: number; lane: number; own: number }> {
  const { storage, dims, broadcast } = operand;
  const each = registerElements(intrinsic, operand) / lanesOf(intrinsic);
  if (storage === undefined || !Number.isInteger(each)) return;
  const logical = rowMajor(dims);
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  for (const point of pointsOf([...namesOf(dims), ...broadcast], extents)) {
    const place = evaluateIndex(storage, point);
    yield { element: evaluateIndex(logical, point), lane: Math.floor(place / each), own: place % each };
  }
}

/** The lane of each logical element, or {@link ALL_LANES} when several hold it; undefined when the vendor does not publish the layout. */
function holdersOf(shape: Held & Pick<RegisterShape, "rows">): Int8Array | undefined {
  const holders = new Map<number, number>();
  for (const { element, lane } of heldElements(shape)) {
    const known = holders.get(element) ?? lane;
    holders.set(element, known === lane ? lane : ALL_LANES);
  }
  if (holders.size === 0) return undefined;
  return Int8Array.from({ length: shape.rows.length }, (_, element) => holders.get(element) ?? ALL_LANES);
}

/**
 * The logical elements of each row of 16 bytes that `ldmatrix` reads. Word i of lane t comes from matrix i, row t/4, word t%4. Transposed, the two
 * halves of a word are rows 2*(t%4) and 2*(t%4) + 1 of column t/4 (PTX ISA, ldmatrix).
 * @returns undefined when no rows of memory give the lanes the elements they must hold
 */
export function matrixRows(shape: Held, by: "ldmatrix" | "ldmatrix.trans"): readonly (readonly number[])[] | undefined {
  const bytes = bytesOf(shape.operand.dtype);
  const perWord = WORD / bytes;
  if (!Number.isInteger(perWord) || (by === "ldmatrix.trans" && bytes !== 2)) return undefined;
  const length = by === "ldmatrix" ? 4 * perWord : 8;
  const words = registerElements(shape.intrinsic, shape.operand) / WARP / perWord;
  const rows = Array.from({ length: 8 * words }, () => new Array<number>(length).fill(-1));
  for (const { element, lane, own } of heldElements(shape)) {
    const matrix = Math.floor(own / perWord);
    const inWord = own % perWord;
    const major = Math.floor(lane / 4);
    const minor = lane % 4;
    const [row, column] = by === "ldmatrix" ? [major, minor * perWord + inWord] : [minor * perWord + inWord, major];
    const list = rows[8 * matrix + row];
    if (list) list[column] = element;
  }
  return rows.length > 0 && rows.every((row) => !row.includes(-1)) ? rows : undefined;
}
