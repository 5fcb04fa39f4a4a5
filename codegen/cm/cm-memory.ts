/**
 * @file Helper functions on sixteen lanes for kernels of mappings in C for Metal: elements of buffer surfaces and of
 * shared local memory, bounds, types. They call only functions that `cm/cm.h` documents for Xe-HPG and later
 * (`cm_load`, `cm_store`, ...).
 *
 *     gather<uchar>(b, 19 * k + n_lanes, n_lanes < 19)          an element for each lane where n < 19
 */

import type { Computation } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { code } from "../../abstraction/source-text.ts";
import { argumentsOf } from "../cpp/cpp-frame.ts";
import type { Helpers } from "../cpp/cpp-helpers.ts";

/** Lanes of a vector of elements: the message width that both Xe-HPG and Xe-HPC support. */
export const CM_LANES = 16;

export const CM_MEMORY: Helpers = {
  gather: code`/* The elements of active lanes; 0 in the others. */
template <typename T> _GENX_ inline vector<T, 16> gather(SurfaceIndex surface, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T);
  vector<T, 16> lanes = 0;
  lanes.merge(cm_load<T>(surface, offsets, active), active);
  return lanes;
}
`,
  scatter: code`template <typename T> _GENX_ inline void scatter(SurfaceIndex surface, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T);
  cm_store<T>(surface, offsets, value, active);
}
`,
  gather_slm: code`/* The same in shared local memory, from a byte offset on. */
template <typename T> _GENX_ inline vector<T, 16> gather_slm(uint from, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T) + from;
  vector<T, 16> lanes = 0;
  lanes.merge(cm_load_slm<T>(offsets, active), active);
  return lanes;
}
`,
  scatter_slm: code`template <typename T> _GENX_ inline void scatter_slm(uint from, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at * (int)sizeof(T) + from;
  cm_store_slm<T>(offsets, value, active);
}
`,
  chosen: code`template <typename T> _GENX_ inline vector<T, 16> chosen(vector<ushort, 16> where, vector<T, 16> yes, vector<T, 16> no) {
  no.merge(yes, where);
  return no;
}
`,
  at_least: code`template <typename T> _GENX_ inline vector<T, 16> at_least(vector<T, 16> x, vector<T, 16> low) { /* keeps NaN */
  x.merge(low, x < low);
  return x;
}
`,
  at_most: code`template <typename T> _GENX_ inline vector<T, 16> at_most(vector<T, 16> x, vector<T, 16> high) { /* keeps NaN */
  x.merge(high, x > high);
  return x;
}
`,
  most: code`template <typename T> _GENX_ inline vector<T, 16> most(vector<T, 16> x, vector<T, 16> y) { /* NaN wins */
  y.merge(x, (x > y) | (x != x));
  return y;
}
`,
  least: code`template <typename T> _GENX_ inline vector<T, 16> least(vector<T, 16> x, vector<T, 16> y) { /* NaN wins */
  y.merge(x, (x < y) | (x != x));
  return y;
}
`,
  saturate: code`_GENX_ inline vector<int, 16> saturate(vector<float, 16> x, float low, float high) { /* NaN becomes 0 */
  x.merge(0.0f, x != x);
  x.merge(low, x < low);
  x.merge(high, x > high);
  return vector<int, 16>(x);
}
`,
  saturate_s32: code`_GENX_ inline vector<int, 16> saturate_s32(vector<float, 16> x) { /* a float can hold 2^31 but not 2^31 - 1 */
  vector<ushort, 16> beyond = x >= 2147483648.0f;
  vector<int, 16> whole = @saturate(x, -2147483648.0f, 2147483520.0f);
  whole.merge(2147483647, beyond);
  return whole;
}
`,
  half_of: code`/* Rounded to f16, to nearest, ties to even. */
_GENX_ inline vector<float, 16> half_of(vector<float, 16> x) {
  vector<half, 16> rounded = x;
  return vector<float, 16>(rounded);
}
`,
  bf16_of: code`/* Rounded to bf16, to nearest, ties to even. */
_GENX_ inline vector<float, 16> bf16_of(vector<float, 16> x) {
  vector<uint, 16> bits = x.format<uint>();
  vector<uint, 16> near = bits + 0x7fffu + ((bits >> 16) & 1u);
  near.merge(bits | 0x400000u, x != x);
  near = near & 0xffff0000u;
  return vector<float, 16>(near.format<float>());
}
`,
  tf32_of: code`/* Rounded to 10 bits of fraction, to nearest, ties to even. */
_GENX_ inline vector<float, 16> tf32_of(vector<float, 16> x) {
  vector<uint, 16> bits = x.format<uint>();
  vector<uint, 16> near = (bits + 0xfffu + ((bits >> 13) & 1u)) & 0xffffe000u;
  near.merge(bits, (bits & 0x7f800000u) == 0x7f800000u);
  return vector<float, 16>(near.format<float>());
}
`,
  float_of: code`/* A float whose last bit is odd where it differs from the integer, so that rounding it again equals rounding the integer. */
_GENX_ inline vector<float, 16> float_of(vector<int, 16> x) {
  vector<int, 16> high = x >> 8;
  high.merge(high | 1, (x & 255) != 0);
  vector<float, 16> whole = x;
  whole.merge(vector<float, 16>(high) * 256.0f, (x >= 16777216) | (x <= -16777216));
  return whole;
}
`,
  from_f16: code`_GENX_ inline vector<float, 16> from_f16(vector<ushort, 16> bits) {
  vector<half, 16> same = bits.format<half>();
  return vector<float, 16>(same);
}
`,
  to_f16: code`_GENX_ inline vector<ushort, 16> to_f16(vector<float, 16> x) {
  vector<half, 16> rounded = x;
  return vector<ushort, 16>(rounded.format<ushort>());
}
`,
  from_bf16: code`_GENX_ inline vector<float, 16> from_bf16(vector<ushort, 16> bits) {
  vector<uint, 16> whole = bits;
  whole = whole << 16;
  return vector<float, 16>(whole.format<float>());
}
`,
  to_bf16: code`_GENX_ inline vector<ushort, 16> to_bf16(vector<float, 16> x) { /* of a number that is already rounded */
  vector<uint, 16> bits = x.format<uint>();
  return vector<ushort, 16>(bits >> 16);
}
`,
  bits_as_float: code`_GENX_ inline float bits_as_float(uint bits) {
  vector<uint, 1> held = bits;
  vector<float, 1> same = held.format<float>();
  return same(0);
}
`,
};

// ---- Gen9 ---------------------------------------------------------------------------------------------------------------------

/*
 * What differs in C for Metal for Gen9, which lacks `cm_load` and `cm_store`: elements of dwords only, gathered and
 * scattered by the messages that Gen9 has.
 *
 *     gather<float>(b, 19 * k + n_lanes, n_lanes < 19)          scattered read of dwords at offsets in elements
 */

/** In place of the helpers of the same names for Xe-HPG and later. */
export const GEN9_MEMORY: Helpers = {
  gather: code`/* The element of each lane that is active, 0 for the others. */
template <typename T> _GENX_ inline vector<T, 16> gather(SurfaceIndex surface, vector<int, 16> at, vector<ushort, 16> active) {
  vector<uint, 16> own = at;
  vector<uint, 16> offsets = 0;
  offsets.merge(own, active);
  vector<T, 16> read_lanes;
  read(surface, 0, offsets, read_lanes.template select<16, 1>(0));
  vector<T, 16> lanes = 0;
  lanes.merge(read_lanes, active);
  return lanes;
}
`,
  scatter: code`template <typename T> _GENX_ inline void scatter(SurfaceIndex surface, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<uint, 16> offsets = at;
  SIMD_IF_BEGIN(active) {
    write(surface, 0, offsets, value);
  }
  SIMD_IF_END;
}
`,
  gather_slm: code`/* The same in shared local memory, from a byte on. */
template <typename T> _GENX_ inline vector<T, 16> gather_slm(uint from, vector<int, 16> at, vector<ushort, 16> active) {
  vector<ushort, 16> own = at;
  vector<ushort, 16> offsets = 0;
  offsets.merge(own, active);
  vector<T, 16> read_lanes;
  cm_slm_read(from, offsets, read_lanes);
  vector<T, 16> lanes = 0;
  lanes.merge(read_lanes, active);
  return lanes;
}
`,
  scatter_slm: code`template <typename T> _GENX_ inline void scatter_slm(uint from, vector<int, 16> at, vector<T, 16> value, vector<ushort, 16> active) {
  vector<ushort, 16> offsets = at;
  SIMD_IF_BEGIN(active) {
    cm_slm_write(from, offsets, value);
  }
  SIMD_IF_END;
}
`,
};

/** @throws UsageError for elements that are no dwords */
export function checkGen9(computation: Computation, nest: LoopNest): void {
  const [narrow] = [...argumentsOf(computation), ...nest.scratch].filter((a) => bytesOf(a.dtype) !== 4);
  if (narrow)
    throw new UsageError(
      `CM for Gen9: elements of ${narrow.dtype}, and its scattered messages are of dwords`,
      "f32 or s32, or --language opencl",
    );
}
