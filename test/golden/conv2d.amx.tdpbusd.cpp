/*
 * out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])
 * out: s32[n 1, k 32, p 6, q 6], element at ((n*6 + p)*6 + q)*32 + k
 * in: u8[n 1, c 8, h 6, w 6], element at ((n*6 + h)*6 + w)*8 + c
 * w: s8[k 32, c 8, r 3, s 3], element at ((k*8 + c)*3 + r)*3 + s, packed ahead of time
 * amx.tdpbusd: c s32 tile[16*m + n], a u8 tile[64*m + k], b s8 tile[64*(k/4) + 4*n + k%4]
 * mapping   m <- q   n <- k   k <- c   waste 95.3 %
 * schedule  order n k p q r s c; block k 2; placement a padded, b tiled; threads 1
 * made by   automap
 */
#include <stdint.h>
#include <string.h>
#include <immintrin.h>
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


extern "C" unsigned long automap_workspace_bytes(void) { return 27776; }
extern "C" unsigned long automap_scratch_bytes(void) { return 0; }
extern "C" int automap_phases(void) { return 2; }

extern "C" void automap_prepare(void* workspace, const void* const* tensors) __attribute__((cold));
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, automap_workspace_bytes());
  const int part = 0, parts = 1;
  int8_t* const b_tiles = (int8_t*)((char*)workspace + 9280);
  const int8_t* const w = (const int8_t*)tensors[2];
  for (long k_step = 2L * part / parts; k_step < 2L * (part + 1) / parts; k_step++) {
    for (long r_step = 0; r_step < 3; r_step++) {
      for (long s_step = 0; s_step < 3; s_step++) {
        for (long k_inner = 0; k_inner < 64; k_inner++) {
          for (long n_inner = 0; n_inner < 16; n_inner++) {
            b_tiles[(k_step / 2) * 18432 + ((k_step % 2) * 1024) + (r_step * 6144) + (s_step * 2048) + (64 * (k_inner / 4) + (4 * n_inner) + (k_inner % 4))] = (k_inner < 8 ? (k_inner < 8 ? w[(((k_step * 16 + n_inner) * 8 + k_inner) * 3 + r_step) * 3 + s_step] : 0) : 0);
          }
        }
      }
    }
  }
}

static __attribute__((noinline)) void phase_0(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  uint8_t* const in_padded = (uint8_t*)((char*)workspace + 0);
  const uint8_t* const in = (const uint8_t*)tensors[1];
  for (long h_copy = 6L * part / parts; h_copy < 6L * (part + 1) / parts; h_copy++) {
    for (long w_copy = 0; w_copy < 6; w_copy++) {
      memcpy(in_padded + (h_copy + 1) * 1152 + ((w_copy + 1) * 64), in + (h_copy * 6 + w_copy) * 8, 8);
    }
  }
}

static void phase_1(void* workspace, void* const* tensors, int part, int parts) {
  (void)workspace, (void)tensors, (void)part, (void)parts;
  alignas(64) int32_t c_results[512];
  uint8_t* const in_padded = (uint8_t*)((char*)workspace + 0);
  int8_t* const b_tiles = (int8_t*)((char*)workspace + 9280);
  int32_t* const out = (int32_t*)tensors[0];
  amx_begin();
  for (long p_outer = 6L * part / parts; p_outer < 6L * (part + 1) / parts; p_outer++) {
    _tile_zero(0);
    _tile_zero(1);
    for (long r_outer = 0; r_outer < 3; r_outer++) {
      for (long s_outer = 0; s_outer < 3; s_outer++) {
        asm volatile("" ::: "memory"); _tile_loadd(2, (in_padded + p_outer * 1152 + (r_outer * 1152) + (s_outer * 64)), 64);
        asm volatile("" ::: "memory"); _tile_loadd(3, (b_tiles + r_outer * 6144 + (s_outer * 2048)), 64);
        _tile_dpbusd(0, 2, 3);
        asm volatile("" ::: "memory"); _tile_loadd(3, (b_tiles + 1024 + (r_outer * 6144) + (s_outer * 2048)), 64);
        _tile_dpbusd(1, 2, 3);
      }
    }
    _tile_stored(0, (c_results + 0), 64); asm volatile("" ::: "memory");
    _tile_stored(1, (c_results + 256), 64); asm volatile("" ::: "memory");
    for (long m_inner = 0; m_inner < 6; m_inner++) {
      for (long k_block = 0; k_block < 2; k_block++) {
        memcpy(out + (p_outer * 6 + m_inner) * 32 + (k_block * 16), c_results + k_block * 256 + (16 * m_inner), 64);
      }
    }
  }
}

extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  switch (phase) {
    case 0: return phase_0(workspace, tensors, part, parts);
    case 1: return phase_1(workspace, tensors, part, parts);
  }
}
