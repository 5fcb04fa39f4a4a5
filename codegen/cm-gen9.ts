/**
 * @file What differs in C for Metal for Gen9, which lacks `cm_load` and `cm_store`: elements of dwords only, gathered and
 * scattered by the messages that Gen9 has.
 *
 *     gather<float>(b, 19 * k + n_lanes, n_lanes < 19)          scattered read of dwords at offsets in elements
 */

import type { Computation } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { code } from "../abstraction/source-text.ts";
import { argumentsOf } from "./cpp-frame.ts";
import type { Helpers } from "./cpp-helpers.ts";

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
    throw new UsageError(`CM for Gen9: elements of ${narrow.dtype}, and its scattered messages are of dwords`, {
      hint: "f32 or s32, or --language opencl",
    });
}
