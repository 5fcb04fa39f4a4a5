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

import type { DType } from "../abstraction/dtype.ts";
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

/** One full tile every 16 cycles. */
const cost = {
  issueCycles: 16,
  latencyCycles: 52,
  source:
    "measured 2026-11-21 on one core of a Xeon with AMX: 7638 G int8 and 3744 G bf16 operations a second from registers, " +
    "98 % of one issue every 16 cycles; latency from Intel's optimisation manual, not measured",
};

interface Product {
  /** The mnemonic. */
  readonly name: string;
  readonly isa: string;
  readonly a: DType;
  readonly b: DType;
  readonly sum: "s32" | "f32";
  /** Consecutive k that lie side by side in `b`. */
  readonly group: 2 | 4;
  readonly summary: string;
  readonly subnormals?: "flushed";
}

function product({ name, isa, a, b, sum, group, summary, ...facts }: Product): Intrinsic {
  const k = 16 * group;
  const compute: string = `c[m,n] += ${sum}(a[m,k]) * ${sum}(b[k,n])`;
  return tableRow({
    ...facts,
    name: `amx.${name}`,
    family: "amx",
    isa,
    language: "c++",
    summary: `A 16x16x${k} matrix product of ${summary}.`,
    compute,
    extents: { m: 16, n: 16, k },
    operands: {
      a: { dtype: a, storage: `tile[${k}*m + k]`, load: tile.load },
      b: { dtype: b, storage: `tile[${k}*(k/${group}) + ${group}*n + k%${group}]`, load: tile.load },
      c: { dtype: sum, storage: "tile[16*m + n]", ...tile },
    },
    prelude: PRELUDE,
    setup: "amx_begin();",
    emit: `_tile_${name.slice(1)}({c}, {a}, {b});`,
    cost,
    mnemonic: name,
    source: `Intel SDM vol. 2, ${name.toUpperCase()}`,
  });
}

/** A product of bytes. */
const bytes = (name: string, a: "u8" | "s8", b: "u8" | "s8"): Intrinsic =>
  product({ name, isa: "amx_int8", a, b, sum: "s32", group: 4, summary: `${a} by ${b}` });

export const AMX: readonly Intrinsic[] = [
  bytes("tdpbssd", "s8", "s8"),
  bytes("tdpbsud", "s8", "u8"),
  bytes("tdpbusd", "u8", "s8"),
  bytes("tdpbuud", "u8", "u8"),
  // Pairs of k are summed in f32. Subnormal inputs count as zero and subnormal results are flushed.
  product({
    name: "tdpbf16ps",
    isa: "amx_bf16",
    a: "bf16",
    b: "bf16",
    sum: "f32",
    group: 2,
    summary: "bf16 with f32 sums",
    subnormals: "flushed",
  }),
];
