/**
 * @file Rows of x86's vectors from forms that differ in width, types and names: multiply-adds and dot products, with the left factor common to all
 * lanes and lane by lane.
 *
 *     multiplyAdds({ name: "avx2.fma.f32", ... })          c[i] += a[i] * b[i]                     and .broadcast: c[n] += a[] * b[n]
 *     dots({ name: "avx512.vpdpbusd", ... })               c[n] += s32(a[k]) * s32(b[k,n])         and .lanes: c[n] += s32(a[n,k]) * s32(b[n,k])
 */

import type { DType } from "../abstraction/dtype.ts";
import { type Intrinsic, type IntrinsicSpec, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";
import { dotOf } from "./lane-forms.ts";

/** How C++ moves a vector between registers and memory. */
interface Moves {
  readonly load: string;
  readonly store: string;
}

/** Integers of any width: the lanes only matter to the instruction. */
export const INTEGERS_256: Moves = {
  load: "{reg} = _mm256_loadu_si256((const __m256i*)({ptr}));",
  store: "_mm256_storeu_si256((__m256i*)({ptr}), {reg});",
};
export const INTEGERS_512: Moves = {
  load: "{reg} = _mm512_loadu_si512({ptr});",
  store: "_mm512_storeu_si512({ptr}, {reg});",
};
export const FLOATS_256: Moves = {
  load: "{reg} = _mm256_loadu_ps((const float*)({ptr}));",
  store: "_mm256_storeu_ps((float*)({ptr}), {reg});",
};
export const FLOATS_512: Moves = {
  load: "{reg} = _mm512_loadu_ps({ptr});",
  store: "_mm512_storeu_ps({ptr}, {reg});",
};

/** What a row says as its form does. */
type Facts = Pick<IntrinsicSpec, "name" | "isa" | "prelude" | "emit" | "subnormals" | "cost" | "mnemonic" | "source">;

/** An instruction that works lane by lane on vectors of one width and one type. */
export interface LaneForm extends Facts {
  readonly dtype: DType;
  readonly lanes: number;
  readonly file: "ymm" | "zmm";
  readonly moves: Moves;
}

/** A row of one operation in each lane. */
export function laneByLane(
  { dtype, lanes, file, moves, ...facts }: LaneForm,
  { family, summary }: Pick<IntrinsicSpec, "family" | "summary">,
): Intrinsic {
  const factor: OperandSpec = { dtype, storage: `${file}[i]`, load: moves.load };
  return tableRow({
    ...facts,
    family,
    language: "c++",
    summary: `${summary}, lane by lane.`,
    compute: "c[i] += a[i] * b[i]",
    extents: { i: lanes },
    operands: { a: factor, b: factor, c: { ...factor, ...moves } },
  });
}

export interface MultiplyAddForm extends LaneForm {
  readonly lanes: keyof typeof NUMBERS;
  /** Loads one element into all lanes. */
  readonly loadShared: string;
  /** The instruction that does so, where the manual lists it apart. */
  readonly sharedBy?: string;
}

const NUMBERS = { 4: "Four", 8: "Eight", 16: "Sixteen", 32: "Thirty-two" } as const;

/** Multiply-adds lane by lane, and with one factor common to all lanes. */
export function multiplyAdds({ loadShared, sharedBy, ...form }: MultiplyAddForm): readonly [Intrinsic, Intrinsic] {
  const { dtype, lanes, file, moves, ...facts } = form;
  const summary = `${NUMBERS[lanes]} ${dtype} multiply-adds`;
  const factor: OperandSpec = { dtype, storage: `${file}[n]`, load: moves.load };
  return [
    laneByLane(form, { family: "fma", summary }),
    tableRow({
      ...facts,
      name: `${form.name}.broadcast`,
      family: "fma",
      language: "c++",
      summary: `${summary} with one factor common to all lanes.`,
      compute: "c[n] += a[] * b[n]",
      extents: { n: lanes },
      operands: { a: { ...factor, load: loadShared }, b: factor, c: { ...factor, ...moves } },
      source: sharedBy === undefined ? form.source : `${form.source}; ${sharedBy}`,
    }),
  ];
}

/** An instruction that adds several products to each lane of its sums. */
export interface DotForm extends Facts {
  readonly family: string;
  /** The summary but for its end. */
  readonly summary: string;
  /** What all lanes share: "the u8". */
  readonly shared: string;
  readonly a: DType;
  readonly b: DType;
  readonly sum: "s32" | "f32";
  readonly lanes: 8 | 16;
  /** Products of one lane. */
  readonly products: 2 | 4;
  /** Register file of the factors. */
  readonly file: "xmm" | "ymm" | "zmm";
  /** Loads the factors of one lane into all lanes. */
  readonly loadShared: string;
  /** Loads the factors of every lane. */
  readonly loadOwn: string;
  readonly moves: Moves;
  /** Whether the sum of the products and the old value is clamped: once, not after each product. */
  readonly isSaturating?: true;
}

/** What dot products into all lanes of a width say alike: their factors lie as integers do. */
type Width = Pick<DotForm, "lanes" | "file" | "loadShared" | "loadOwn" | "moves">;
export const DOTS_256: Width = {
  lanes: 8,
  file: "ymm",
  loadShared: "{reg} = _mm256_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: INTEGERS_256.load,
  moves: INTEGERS_256,
};
export const DOTS_512: Width = {
  lanes: 16,
  file: "zmm",
  loadShared: "{reg} = _mm512_broadcastd_epi32(_mm_loadu_si32({ptr}));",
  loadOwn: INTEGERS_512.load,
  moves: INTEGERS_512,
};

/** Four products of u8 by s8 a lane, which x86 has in every width. */
export const BYTE_DOTS = {
  family: "vnni",
  shared: "the u8",
  a: "u8",
  b: "s8",
  sum: "s32",
  products: 4,
  mnemonic: "vpdpbusd",
} as const satisfies Partial<DotForm>;

/** Dot products with the left factors common to all lanes, and lane by lane. */
export function dots(form: DotForm): readonly [Intrinsic, Intrinsic] {
  const { summary, shared, a, b, sum, lanes, products, file, loadShared, loadOwn, moves, isSaturating, ...facts } =
    form;
  const storage = `${file}[${products}*n + k]`;
  const row = (isShared: boolean): Intrinsic =>
    tableRow({
      ...facts,
      name: isShared ? form.name : `${form.name}.lanes`,
      language: "c++",
      summary: `${summary}, ${isShared ? `${shared} common to all lanes` : "lane by lane"}.`,
      compute: dotOf(sum, isShared, isSaturating && "sat+="),
      extents: { n: lanes, k: products },
      operands: {
        a: { dtype: a, storage, load: isShared ? loadShared : loadOwn },
        b: { dtype: b, storage, load: loadOwn },
        c: { dtype: sum, storage: `${lanes === 16 ? "zmm" : "ymm"}[n]`, ...moves },
      },
    });
  return [row(true), row(false)];
}
