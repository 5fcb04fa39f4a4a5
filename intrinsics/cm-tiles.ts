/**
 * @file How CM kernels move tiles: rows of dwords between registers and memory, in the blocks that `cm/cm.h` documents for Xe-HPG and later. A printer
 * supplies the memory (`{by}`), the number of rows and of dwords per row (`{rows}`), and the distance between rows (`{stride}`).
 *
 *     a0 = load_rows<int, 8, 8>(a, 256 * m, 64);        eight rows of 32 bytes, 64 bytes apart
 *     a0 = load_rows<int, 1, 64>(a, 256 * m, 256);      a tile in one piece
 */

/** Functions of the rows below; the compiler drops those that are not called. */
export const CM_TILES = `static const uint numbers_of_bytes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
/* Rows of dwords, 'stride' bytes apart. Offsets are multiples of four. */
template <typename T, int ROWS, int WORDS> _GENX_ inline vector<T, ROWS * WORDS> load_rows(SurfaceIndex surface, uint at, uint stride) {
  vector<T, ROWS * WORDS> tile;
#pragma unroll
  for (int r = 0; r < ROWS; r++) tile.template select<WORDS, 1>(r * WORDS) = cm_load<T, WORDS>(surface, at + r * stride);
  return tile;
}

/* The same at any offset, byte by byte. */
template <typename T, int ROWS, int WORDS> _GENX_ inline vector<T, ROWS * WORDS> load_rows_of_bytes(SurfaceIndex surface, uint at, uint stride) {
  vector<T, ROWS * WORDS> tile;
  vector_ref<uchar, 4 * ROWS * WORDS> bytes = tile.template format<uchar>();
  enum { PIECE = 4 * WORDS < 16 ? 4 * WORDS : 16 };
  vector<uint, 16> numbers(numbers_of_bytes);
  vector<ushort, 16> inside = numbers < (uint)PIECE;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 4 * WORDS; i += 16) {
      vector<uint, 16> offsets = numbers + (at + r * stride + i);
      vector<uchar, 16> piece = cm_load<uchar>(surface, offsets, inside);
      bytes.template select<PIECE, 1>(r * 4 * WORDS + i) = piece.template select<PIECE, 1>(0);
    }
  return tile;
}

template <typename T, int ROWS, int WORDS> _GENX_ inline void store_rows(SurfaceIndex surface, uint at, uint stride, vector<T, ROWS * WORDS> tile) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    vector<T, WORDS> row = tile.template select<WORDS, 1>(r * WORDS);
    cm_store<T, WORDS>(surface, at + r * stride, row);
  }
}

/* The same in shared local memory. */
template <typename T, int ROWS, int WORDS> _GENX_ inline vector<T, ROWS * WORDS> load_rows_slm(uint at, uint stride) {
  vector<T, ROWS * WORDS> tile;
#pragma unroll
  for (int r = 0; r < ROWS; r++) tile.template select<WORDS, 1>(r * WORDS) = cm_load_slm<T, WORDS>(at + r * stride);
  return tile;
}

template <typename T, int ROWS, int WORDS> _GENX_ inline void store_rows_slm(uint at, uint stride, vector<T, ROWS * WORDS> tile) {
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    vector<T, WORDS> row = tile.template select<WORDS, 1>(r * WORDS);
    cm_store_slm<T, WORDS>(at + r * stride, row);
  }
}

template <typename T, int ROWS, int WORDS> _GENX_ inline vector<T, ROWS * WORDS> load_rows_of_bytes_slm(uint at, uint stride) {
  vector<T, ROWS * WORDS> tile;
  vector_ref<uchar, 4 * ROWS * WORDS> bytes = tile.template format<uchar>();
  enum { PIECE = 4 * WORDS < 16 ? 4 * WORDS : 16 };
  vector<uint, 16> numbers(numbers_of_bytes);
  vector<ushort, 16> inside = numbers < (uint)PIECE;
  for (int r = 0; r < ROWS; r++)
    for (int i = 0; i < 4 * WORDS; i += 16) {
      vector<uint, 16> offsets = numbers + (at + r * stride + i);
      vector<uchar, 16> piece = cm_load_slm<uchar>(offsets, inside);
      bytes.template select<PIECE, 1>(r * 4 * WORDS + i) = piece.template select<PIECE, 1>(0);
    }
  return tile;
}`;

type CmElement = "int" | "uint" | "float";

export const loadRows = (type: CmElement): string => `{reg} = load_rows{by}<${type}, {rows}>({ptr}, {stride});`;
export const storeRows = (type: CmElement): string => `store_rows{by}<${type}, {rows}>({ptr}, {stride}, {reg});`;
