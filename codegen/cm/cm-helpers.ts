/**
 * @file Helper functions on lane vectors for kernels in C for Metal: access to elements of buffer surfaces, and
 * division that rounds down.
 */

import { code } from "../../abstraction/source-text.ts";
import type { Helpers } from "../cpp/cpp-helpers.ts";

export const CM_HELPERS: Helpers = {
  gather_lanes: code`/* Reads one element per lane. Doubles are pairs of dwords. */
template <typename T, uint N> _GENX_ inline vector<T, N> gather_lanes(SurfaceIndex surface, vector<int, N> at) {
  enum { WORDS = sizeof(T) / 4, READS = (N * WORDS + 15) / 16 };
  vector<uint, READS * 16> offsets = 0;
  for (int word = 0; word < WORDS; word++) offsets.template select<N, WORDS>(word) = at * (int)WORDS + word;
  vector<uint, READS * 16> words;
  for (int i = 0; i < READS; i++) {
    vector<uint, 16> own = offsets.template select<16, 1>(16 * i);
    read(surface, 0, own, words.template select<16, 1>(16 * i));
  }
  vector<T, READS * 16 / WORDS> lanes = words.template format<T>();
  return lanes.template select<N, 1>(0);
}
`,
  scatter_lanes: code`/* Writes one element per lane where the mask is set. */
template <typename T, uint N> _GENX_ inline void scatter_lanes(SurfaceIndex surface, vector<int, N> at, vector<T, N> value, vector<ushort, N> mask) {
  enum { WORDS = sizeof(T) / 4, WRITES = (N * WORDS + 15) / 16 };
  vector<uint, WRITES * 16> offsets = 0;
  vector<ushort, WRITES * 16> active = 0;
  vector<T, WRITES * 16 / WORDS> lanes = 0;
  for (int word = 0; word < WORDS; word++) {
    offsets.template select<N, WORDS>(word) = at * (int)WORDS + word;
    active.template select<N, WORDS>(word) = mask;
  }
  lanes.template select<N, 1>(0) = value;
  vector<uint, WRITES * 16> words = lanes.template format<uint>();
  for (int i = 0; i < WRITES; i++) {
    vector<uint, 16> own = offsets.template select<16, 1>(16 * i);
    vector<uint, 16> written = words.template select<16, 1>(16 * i);
    vector<ushort, 16> taken = active.template select<16, 1>(16 * i);
    SIMD_IF_BEGIN(taken) {
      write(surface, 0, own, written);
    }
    SIMD_IF_END;
  }
}
`,
  load_lanes: code`/* Adjacent lanes from one element on, in blocks of owords. */
template <typename T, uint N> _GENX_ inline vector<T, N> load_lanes(SurfaceIndex surface, int first) {
  enum { BYTES = N * sizeof(T), BLOCK = BYTES <= 16 ? 16 : BYTES <= 32 ? 32 : BYTES <= 64 ? 64 : 128 };
  enum { EACH = BLOCK / sizeof(T), READS = (N + EACH - 1) / EACH };
  vector<T, READS * EACH> lanes;
  for (int i = 0; i < READS; i++)
    read(DWALIGNED(surface), (uint)((first + i * EACH) * sizeof(T)), lanes.template select<EACH, 1>(i * EACH));
  return lanes.template select<N, 1>(0);
}
`,
  floor_div: code`template <uint N> _GENX_ inline vector<int, N> floor_div(vector<int, N> a, int b) {
  vector<int, N> quotient = a / b;
  quotient.merge(quotient - 1, a - quotient * b < 0);
  return quotient;
}
`,
  floor_mod: code`template <uint N> _GENX_ inline vector<int, N> floor_mod(vector<int, N> a, int b) {
  vector<int, N> rest = a % b;
  rest.merge(rest + b, rest < 0);
  return rest;
}
`,
  element: code`template <typename T> _GENX_ inline T element(SurfaceIndex surface, int at) {
  vector<T, 16 / sizeof(T)> words;
  read(DWALIGNED(surface), (uint)(at * sizeof(T)), words);
  return words(0);
}
`,
};
