/**
 * @file Advanced Matrix Extensions: eight tiles of 16 rows by 64 bytes; one instruction computes a 16x16 block of products.
 *
 *     amx.tdpbusd     c[m,n] += s32(a[m,k]) * s32(b[k,n])      16 x 16 x 64
 *     b               tile[64*(k/4) + 4*n + k%4]               four consecutive k side by side, a row of n each
 *
 * Registers are the tile numbers 0 to 7 and must be constants. Before it uses tiles, a thread runs `amx_begin();` (the `setup`), which requests the
 * tile state from Linux and configures every tile to its full size. Loads carry a compiler barrier, because g++ 12 gives `_tile_loadd` no memory
 * operand and would move stores past it.
 */

import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";

const PRELUDE = `#include <immintrin.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Asks Linux for the AMX tile state once (arch_prctl 0x1023: ARCH_REQ_XCOMP_PERM, feature 18) and makes all tiles 16 rows of 64 bytes:
   at every call, since other code of the process may have configured them otherwise. */
static inline void amx_begin(void) {
  struct { unsigned char palette, start_row, reserved[14]; unsigned short row_bytes[16]; unsigned char rows[16]; } tiles = {};
  tiles.palette = 1;
  for (int t = 0; t < 8; t++) tiles.row_bytes[t] = 64, tiles.rows[t] = 16;
  static thread_local bool allowed = false;
  if (!allowed && syscall(SYS_arch_prctl, 0x1023, 18)) abort();
  allowed = true;
  asm volatile("" :: "r"(&tiles) : "memory"); /* g++ 12 takes _tile_loadconfig to read 8 bytes only */
  _tile_loadconfig(&tiles);
}
`;

const tile = {
  load: 'asm volatile("" ::: "memory"); _tile_loadd({reg}, {ptr}, {stride});',
  store: '_tile_stored({reg}, {ptr}, {stride}); asm volatile("" ::: "memory");',
};

const common = { family: "amx", language: "c++", prelude: PRELUDE, setup: "amx_begin();" } as const;

/** One full tile every 16 cycles. */
const cost = {
  issueCycles: 16,
  latencyCycles: 52,
  source:
    "measured 2026-11-21 on one core of a Xeon with AMX: 7638 G int8 and 3744 G bf16 operations a second from registers, " +
    "98 % of one issue every 16 cycles; latency from Intel's optimisation manual, not measured",
};

export const tdpbssd = tableRow({
  ...common,
  name: "amx.tdpbssd",
  isa: "amx_int8",
  summary: "A 16x16x64 matrix product of s8 by s8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
  extents: { m: 16, n: 16, k: 64 },
  operands: {
    a: { dtype: "s8", storage: "tile[64*m + k]", load: tile.load },
    b: { dtype: "s8", storage: "tile[64*(k/4) + 4*n + k%4]", load: tile.load },
    c: { dtype: "s32", storage: "tile[16*m + n]", ...tile },
  },
  emit: "_tile_dpbssd({c}, {a}, {b});",
  cost,
  mnemonic: "tdpbssd",
  source: "Intel SDM vol. 2, TDPBSSD",
});

export const tdpbsud = tableRow({
  ...common,
  name: "amx.tdpbsud",
  isa: "amx_int8",
  summary: "A 16x16x64 matrix product of s8 by u8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
  extents: { m: 16, n: 16, k: 64 },
  operands: {
    a: { dtype: "s8", storage: "tile[64*m + k]", load: tile.load },
    b: { dtype: "u8", storage: "tile[64*(k/4) + 4*n + k%4]", load: tile.load },
    c: { dtype: "s32", storage: "tile[16*m + n]", ...tile },
  },
  emit: "_tile_dpbsud({c}, {a}, {b});",
  cost,
  mnemonic: "tdpbsud",
  source: "Intel SDM vol. 2, TDPBSUD",
});

export const tdpbusd = tableRow({
  ...common,
  name: "amx.tdpbusd",
  isa: "amx_int8",
  summary: "A 16x16x64 matrix product of u8 by s8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
  extents: { m: 16, n: 16, k: 64 },
  operands: {
    a: { dtype: "u8", storage: "tile[64*m + k]", load: tile.load },
    b: { dtype: "s8", storage: "tile[64*(k/4) + 4*n + k%4]", load: tile.load },
    c: { dtype: "s32", storage: "tile[16*m + n]", ...tile },
  },
  emit: "_tile_dpbusd({c}, {a}, {b});",
  cost,
  mnemonic: "tdpbusd",
  source: "Intel SDM vol. 2, TDPBUSD",
});

export const tdpbuud = tableRow({
  ...common,
  name: "amx.tdpbuud",
  isa: "amx_int8",
  summary: "A 16x16x64 matrix product of u8 by u8.",
  compute: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
  extents: { m: 16, n: 16, k: 64 },
  operands: {
    a: { dtype: "u8", storage: "tile[64*m + k]", load: tile.load },
    b: { dtype: "u8", storage: "tile[64*(k/4) + 4*n + k%4]", load: tile.load },
    c: { dtype: "s32", storage: "tile[16*m + n]", ...tile },
  },
  emit: "_tile_dpbuud({c}, {a}, {b});",
  cost,
  mnemonic: "tdpbuud",
  source: "Intel SDM vol. 2, TDPBUUD",
});

/** Pairs of k are summed in f32. Subnormal inputs count as zero and subnormal results are flushed. */
export const tdpbf16ps = tableRow({
  ...common,
  name: "amx.tdpbf16ps",
  isa: "amx_bf16",
  summary: "A 16x16x32 matrix product of bf16 with f32 sums.",
  compute: "c[m,n] += f32(a[m,k]) * f32(b[k,n])",
  extents: { m: 16, n: 16, k: 32 },
  operands: {
    a: { dtype: "bf16", storage: "tile[32*m + k]", load: tile.load },
    b: { dtype: "bf16", storage: "tile[32*(k/2) + 2*n + k%2]", load: tile.load },
    c: { dtype: "f32", storage: "tile[16*m + n]", ...tile },
  },
  emit: "_tile_dpbf16ps({c}, {a}, {b});",
  subnormals: "flushed",
  cost,
  mnemonic: "tdpbf16ps",
  source: "Intel SDM vol. 2, TDPBF16PS",
});

export const AMX: readonly Intrinsic[] = [tdpbssd, tdpbsud, tdpbusd, tdpbuud, tdpbf16ps];
