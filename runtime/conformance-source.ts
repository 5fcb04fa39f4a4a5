/**
 * @file Generates the program that runs rows of the intrinsics table: readable C++ or CUDA, and the data it reads.
 *
 *     // avx512.vpdpbusd: c[n] += s32(a[k]) * s32(b[k,n])
 *     static void row_0(unsigned char* frame) {
 *       __m512i c;
 *       __m512i a;
 *       __m512i b;
 *       c = _mm512_loadu_si512(frame + 0);
 *       record(frame + 64, &c, sizeof c);
 *       ...
 *       c = dot_bytes(c, a, b);
 *       _mm512_storeu_si512(frame + 0, c);
 *     }
 *
 * The text between the braces is the row's own `load`, `emit` and `store`. `emulation/conformance.h` contains the rest
 * of the program and describes the data format.
 */

import { evaluateIndex, pointsOf, rowMajor } from "../abstraction/affine.ts";

import { product } from "../abstraction/collections.ts";
import { elementCount, extentsOf } from "../abstraction/computation.ts";
import { bytesOf, DTYPES, isByteFloat } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import { printEquation } from "../abstraction/expression.ts";
import {
  fillTemplate,
  type Intrinsic,
  lanesOf,
  type Operand,
  operandTensor,
  readsShared,
  registerElements,
  sizesOf,
} from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { printTile } from "../abstraction/matrix-view.ts";
import { dwordRows, tileElements, tilePlaces, tileRowElements } from "../abstraction/memory-tile.ts";
import { seededRandom } from "../abstraction/random.ts";
import {
  apart,
  type Code,
  code,
  commentText,
  identifier,
  lines,
  NOTHING,
  skeleton,
  stringLiteral,
} from "../abstraction/source-text.ts";
import { declareRegister, isNumbered, registerClass, subgroupOf } from "../targets/index.ts";
import { encodeElements } from "./bytes.ts";
import { type ConformanceCase, casesOf } from "./conformance-cases.ts";

/** Bytes of a register image in a frame: `IMAGE_HEADER + IMAGE_BYTES` of conformance.h. */
const IMAGE_FRAME_BYTES = 64 + 4096;

/** The offsets of an operand's tile and register image in the frame of its row. */
interface Place {
  readonly operand: Operand;
  readonly tileAt: number;
  readonly tileBytes: number;
  readonly imageAt: number;
}

/** Words of OpenCL templates. Tiles of a frame are in global memory, aligned to four bytes. */
const OPENCL_WORDS = { space: code`global`, by: code`block`, lane: code`item.get_sub_group().get_local_linear_id()` };

/** Words of CM templates: rows of dwords on a surface over the frame. */
function cmWords(operand: Operand, at: number): Readonly<Record<string, Code>> {
  const { rows, dwords, stride } = dwordRows(operand, tileRowElements(operand) * bytesOf(operand.dtype), true);
  const ptr = code`emulation::surface_over(frame), ${at}`;
  return { ptr, by: NOTHING, rows: code`${rows}, ${dwords}`, stride: code`${stride}` };
}

/** Whether the lanes of a sub-group execute a row, each as a work-item. */
const isOfLanes = ({ language, scope }: Intrinsic): boolean =>
  language === "sycl" || (language === "opencl" && scope === "subgroup");

/** The address of a tile in the frame. SYCL takes pointers to elements. */
const tileAddress = ({ language }: Intrinsic, { dtype }: Operand, at: number): Code =>
  language === "sycl" ? code`(${C_TYPES[dtype]}*)(frame + ${at})` : code`frame + ${at}`;

/** Threads that execute a row. */
function threadsOf(row: Intrinsic): number {
  return isOfLanes(row) ? subgroupOf(row) : row.language === "cuda" ? lanesOf(row) : 1;
}

/** The function of a row. Compilers report its errors under the row's name. */
export function rowFunction(intrinsic: Intrinsic, functionName: Code): Code {
  const places = placesOf(intrinsic);
  const variable = (operand: Operand): Code => identifier(operand.name);
  const register = (operand: Operand): Code =>
    isNumbered(operand.file) ? code`${intrinsic.operands.indexOf(operand)}` : variable(operand);
  const declarations = places.map(({ operand }) => declareRegister(intrinsic, operand, variable(operand)));
  const wordsOf = ({ operand, tileAt }: Place): Readonly<Record<string, Code>> => ({
    reg: register(operand),
    ptr: tileAddress(intrinsic, operand, tileAt),
    stride: strideOf(operand),
    ...OPENCL_WORDS,
    ...(intrinsic.language === "cm" && cmWords(operand, tileAt)),
  });
  const loads = places.flatMap((place) => {
    const { operand, tileAt, imageAt } = place;
    const load =
      operand.load === undefined
        ? code`memcpy((void*)&${variable(operand)}, ${tileAddress(intrinsic, operand, tileAt)}, sizeof ${variable(operand)});`
        : fillTemplate(operand.load, wordsOf(place));
    return [load, recordOf(intrinsic, operand, register(operand), code`frame + ${imageAt}`)];
  });
  const emit = issueOf(
    intrinsic,
    Object.fromEntries(
      intrinsic.operands.map((operand) => [
        operand.name,
        readsShared(operand) ? printTile(intrinsic, operand, variable(operand)) : register(operand),
      ]),
    ),
  );
  const [target = internal(`${intrinsic.name} has no operands`)] = places;
  const result = tileAddress(intrinsic, target.operand, target.tileAt);
  const stored = variable(target.operand);
  const store =
    target.operand.store === undefined
      ? code`memcpy(${result}, (const void*)&${stored}, sizeof ${stored});`
      : fillTemplate(target.operand.store, wordsOf(target));
  const setup = intrinsic.setup === undefined ? [] : [fillTemplate(intrinsic.setup)];
  const ofItem = intrinsic.language === "sycl" ? [code`const sycl::nd_item<1> item;`] : [];
  const body = [...ofItem, ...declarations, ...setup, ...loads, ...emit, store].filter((line) => skeleton(line) !== "");
  return code`// ${commentText(`${intrinsic.name}: ${printEquation(intrinsic.computation.equation)}`)}
#line 1 ${stringLiteral(intrinsic.name)}
${intrinsic.language === "cuda" ? "__global__" : "static"} void ${functionName}(unsigned char* frame) {
  ${body}
}
`;
}

/** One issue, with a wait if it is asynchronous. The threads themselves have written operands in shared memory. */
function issueOf({ emit, asynchronous }: Intrinsic, words: Readonly<Record<string, Code>>): Code[] {
  const issue = fillTemplate(emit, words);
  if (!asynchronous) return [issue];
  const [publish, fence, commit, wait] = (["publish", "fence", "commit", "wait"] as const).map((what) =>
    fillTemplate(asynchronous[what], { pending: code`0` }),
  ) as [Code, Code, Code, Code]; // of four
  return [publish, code`__syncthreads();`, fence, issue, commit, wait];
}

/** The preludes of rows without duplicates. Compilers report their errors under `preludeLabel`. */
export function preludesOf(rows: readonly Intrinsic[]): Code {
  return lines(rows.flatMap((row) => (preludeLabel(rows, row) === labelOf(row) ? preludeOf(row) : [])));
}

const preludeOf = (row: Intrinsic): Code[] =>
  row.prelude === undefined ? [] : [code`#line 1 ${stringLiteral(labelOf(row))}`, apart(fillTemplate(row.prelude))];

/** The name of the first row with the same prelude. */
export function preludeLabel(rows: readonly Intrinsic[], row: Intrinsic): string {
  return labelOf(rows.find((other) => other.prelude === row.prelude) ?? row);
}

function labelOf(row: Intrinsic): string {
  return `prelude of ${row.name}`;
}

/**
 * Rows of OpenCL C, each with its prelude in a namespace, since preludes for different sub-group sizes define the same
 * functions.
 */
export function openClRows(rows: readonly Intrinsic[]): Code[] {
  return rows.map(
    (row, i) => code`namespace of_row_${i} {
${preludeOf(row)}
${rowFunction(row, code`row_${i}`)}
}
using of_row_${i}::row_${i};`,
  );
}

/** The table of rows at the end of a program. */
export function rowTable(rows: readonly Intrinsic[]): Code {
  return code`static const Row rows[] = {
  ${rows.map((row, i) => code`{${stringLiteral(row.name)}, row_${i}, ${threadsOf(row)}},`)}
};
static const int row_count = ${rows.length};
`;
}

/**
 * The operands and expected results of rows in the format of `conformance.h`. A row's numbers depend only on the seed
 * and its name.
 */
export function conformanceData(rows: readonly Intrinsic[], seed: number): Uint8Array {
  const bytes = new ByteWriter();
  for (const row of rows) writeRow(bytes, row, casesOf(row, seededRandom(seed ^ hashOf(row.name))));
  return bytes.finish();
}

function writeRow(out: ByteWriter, intrinsic: Intrinsic, cases: readonly ConformanceCase[]): void {
  const places = placesOf(intrinsic);
  const last = places.at(-1);
  const target = intrinsic.operands[0];
  if (!last || !target) internal(`${intrinsic.name} has no operands`);

  // 1. The layout of the row.
  const results = elementCount(operandTensor(intrinsic, target));
  out.int(cases.length);
  out.int(last.imageAt + IMAGE_FRAME_BYTES);
  out.int(DTYPES.indexOf(target.dtype));
  out.int(target.dims.length);
  for (const dim of target.dims) out.int(dim.extent);
  out.int(results);
  out.int(places.length);
  for (const { operand, tileAt, tileBytes, imageAt } of places) {
    const map = imageMap(intrinsic, operand);
    out.text(operand.name, 16);
    out.int(tileAt);
    out.int(tileBytes);
    out.int(imageAt);
    out.int(bytesOf(operand.dtype));
    out.int(map.length);
    for (const from of map) out.int(from);
  }
  for (const place of tilePlaces(intrinsic, target.name)) out.int(place);
  const factors = factorsOfBytes(intrinsic);
  const summed = intrinsic.computation.axes.filter((axis) => axis.kind === "reduce");
  out.int(factors.length === 0 ? 0 : product(summed.map((axis) => axis.extent)));
  if (factors.length > 0) out.int(intrinsic.sumBits ?? 0);
  for (const factor of factors) {
    out.int(DTYPES.indexOf(factor.dtype));
    for (const place of tilePlaces(intrinsic, factor.name)) out.int(place);
  }

  // 2. The cases.
  for (const { label, operands, expected, bound } of cases) {
    out.text(label, 32);
    for (const { operand } of places) {
      const tile = new Float64Array(tileElements(operand));
      const at = tilePlaces(intrinsic, operand.name);
      operands[operand.name]?.forEach((value, i) => {
        tile[at[i] ?? 0] = value;
      });
      out.bytes(encodeElements(operand.dtype, tile));
    }
    out.doubles(expected);
    out.int(bound === undefined ? 1 : 0);
    if (bound !== undefined) out.doubles(bound);
  }
}

/** The factors of a matrix product of floats of one byte, of which there are few enough to try all. */
function factorsOfBytes({ operands }: Intrinsic): readonly Operand[] {
  const [target, ...factors] = operands;
  const isProduct = target?.dims.length === 2 && factors.length === 2;
  return isProduct && factors.every(({ dtype }) => isByteFloat(dtype)) ? factors : [];
}

/** For each register element, the tile element it must equal, or -1 if none; empty if the layout is not documented. */
function imageMap(intrinsic: Intrinsic, operand: Operand): Int32Array {
  const { storage } = operand;
  if (storage === undefined || intrinsic.scope === "warpgroup" || registerClass(operand.file)?.sizeless)
    return new Int32Array();
  const map = new Int32Array(registerElements(intrinsic, operand)).fill(-1);
  const places = tilePlaces(intrinsic, operand.name);
  const logical = rowMajor(operand.dims);
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  for (const point of pointsOf([...operand.dims.map((d) => d.name), ...operand.broadcast], extents))
    map[evaluateIndex(storage, point)] = places[evaluateIndex(logical, point)] ?? -1;
  return map;
}

function placesOf(intrinsic: Intrinsic): Place[] {
  let at = 0;
  return intrinsic.operands.map((operand) => {
    const tileAt = at;
    const tileBytes = tileElements(operand) * bytesOf(operand.dtype);
    const imageAt = tileAt + 64 * Math.ceil(tileBytes / 64);
    at = imageAt + IMAGE_FRAME_BYTES;
    return { operand, tileAt, tileBytes, imageAt };
  });
}

/** Bytes between the rows of a contiguous tile. */
function strideOf(operand: Operand): Code {
  return code`${tileRowElements(operand) * bytesOf(operand.dtype)}`;
}

/** Records the register's contents after its load, if the layout is documented. */
function recordOf(intrinsic: Intrinsic, { file, storage }: Operand, register: Code, image: Code): Code {
  const { scope } = intrinsic;
  // The image of a warpgroup's registers would be too large. The result suffices to check them.
  if (storage === undefined || file === "shared" || scope === "warpgroup") return NOTHING;
  const registers = registerClass(file);
  if (isOfLanes(intrinsic)) {
    const isWhole = intrinsic.language === "sycl" || registers?.perLane;
    return code`record_rows(${image}, &${register}, sizeof ${register}, sizeof ${register}${isWhole ? "" : ".s0"});`;
  }
  if (registers?.sizeless) return NOTHING;
  if (registers?.numbered) return code`record_tile(${image}, ${register});`;
  const record = registers?.perLane ? "record_lane" : "record";
  return code`${record}(${image}, &${register}, sizeof ${register});`;
}

function hashOf(text: string): number {
  let hash = 0;
  for (const character of text) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) | 0;
  return hash;
}

/** A growing buffer of bytes. */
class ByteWriter {
  private readonly parts: Uint8Array[] = [];

  bytes(part: Uint8Array): void {
    this.parts.push(part);
  }

  int(value: number): void {
    this.parts.push(encodeElements("s32", [value]));
  }

  doubles(values: Float64Array): void {
    this.parts.push(encodeElements("f64", values));
  }

  /** Writes text to a field of fixed size, terminated by a zero. */
  text(value: string, size: number): void {
    const part = new Uint8Array(size);
    part.set(new TextEncoder().encode(value).subarray(0, size - 1));
    this.parts.push(part);
  }

  finish(): Uint8Array {
    return Buffer.concat(this.parts);
  }
}
