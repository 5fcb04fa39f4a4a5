/**
 * @file A matrix product by any matrix instruction of a warp, written by hand: every way to fetch its tiles and to store its sums.
 *
 *     warpMatmul(intrinsic, { i: 33, j: 20, l: 40 }, { a: "ldmatrix", b: "ldmatrix.trans", store: "direct" })
 *
 * A block has two warps, one below the other, and a tile of each operand over the whole sum in shared memory. Tiles reach beyond the ends
 * of the tensors, where they are filled with zeros and not stored.
 */

import { type Computation, defineComputation, extentsOf } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import type { LoopNest, TileAccess } from "../../abstraction/loop-nest.ts";
import { readNest } from "./nest-text.ts";

export interface WarpMatmulOptions {
  readonly a: TileAccess["by"];
  readonly b: TileAccess["by"];
  /** Each lane stores its own elements, or the instruction stores to shared memory and rows go from there. */
  readonly store: "direct" | "staged";
  /** A scale, a shift and a type that is rounded to. */
  readonly epilogue?: DType;
}

const WARPS = 2;

export function warpMatmul(
  intrinsic: Intrinsic,
  sizes: { readonly i: number; readonly j: number; readonly l: number },
  options: WarpMatmulOptions,
): { readonly computation: Computation; readonly nest: LoopNest } {
  const { m = 0, n = 0, k = 0 } = extentsOf(intrinsic.computation);
  const [a, b, c] = ["a", "b", "c"].map((o) => operandOf(intrinsic, o).dtype) as [DType, DType, DType]; // as declared
  const cast = (x: string, from: DType): string => (from === c ? x : `${c}(${x})`);
  const { epilogue } = options;
  const computation = defineComputation({
    name: "matmul",
    equation: `out[i,j] += ${cast("x[i,l]", a)} * ${cast("y[l,j]", b)}`,
    extents: { ...sizes },
    tensors: { x: a, y: b, ...(epilogue && { bias: c, low: epilogue }) },
    ...(epilogue && { epilogue: `low[i,j] = ${epilogue === "u8" ? "sat_u8" : epilogue}(max(out[i,j] + bias[j], 0))` }),
  });

  // 1. Tiles in shared memory, rows 16 bytes apart from a multiple of 128.
  const sums = Math.ceil(sizes.l / k) * k;
  const tile = (name: string, dtype: DType, rows: string, height: number, columns: string, width: number): string => {
    const pitch = width + 16 / bytesOf(dtype);
    return `shared ${name}: ${dtype}[${rows} ${height}, ${columns} ${width}] of ${height * pitch} at ${pitch}*${rows} + ${columns}`;
  };
  const rows = WARPS * m;
  // ldmatrix has its rows along the neighbours in a register: k of both factors.
  const ofA = (row: string, column: string): string =>
    options.a === "ldmatrix.trans" ? `a_tile[${column},${row}]` : `a_tile[${row},${column}]`;
  const ofB = (row: string, column: string): string =>
    options.b === "ldmatrix" ? `b_tile[${column},${row}]` : `b_tile[${row},${column}]`;
  const memory = [
    options.a === "ldmatrix.trans" ? tile("a_tile", a, "k", sums, "m", rows) : tile("a_tile", a, "m", rows, "k", sums),
    options.b === "ldmatrix" ? tile("b_tile", b, "n", n, "k", sums) : tile("b_tile", b, "k", sums, "n", n),
    ...(options.store === "staged" ? [tile("c_tile", c, "m", rows, "n", n)] : []),
    ...["c", "a", "b"].map((operand) => `registers ${operand}: 1 x ${intrinsic.name}.${operand}`),
  ];

  // 2. Statements.
  const stored = (from: string, row: string, column: string): string => {
    const place = `[${rows}*m_tile + ${row},${n}*n_tile + ${column}]`;
    const inside = `where ${rows}*m_tile + ${row} < ${sizes.i} and ${n}*n_tile + ${column} < ${sizes.j}`;
    if (!epilogue) return `out${place} = ${from} ${inside}`;
    const shifted = `max(${from} + bias[${n}*n_tile + ${column}], 0)`;
    return `low${place} = ${epilogue === "u8" ? "sat_u8" : epilogue}(${shifted}) ${inside}`;
  };
  const by = (way: string): string => (way === "elements" ? "" : ` by ${way}`);
  const secret = operandOf(intrinsic, "c").storage === undefined ? " by instruction" : "";
  const results =
    options.store === "direct"
      ? [`for u, v of c{0}   ${stored("sum[]", `${m}*warp + u`, "v")}`]
      : [
          `for u, v of c{0}${secret}   c_tile[${m}*warp + u,v] = sum[]`,
          "barrier block",
          `copy r ${rows}, s ${n}, by block   ${stored("c_tile[r,s]", "r", "s")}`,
        ];

  // 3. Blocks and warps.
  const nest = readNest(
    `
    ${memory.join("\n    ")}
    for at block m_tile in 0..${Math.ceil(sizes.i / rows)}
      for at block n_tile in 0..${Math.ceil(sizes.j / n)}
        for at warp warp in 0..${WARPS}
          c{0} <- identity
          copy r ${rows}, t ${sums}, by block   ${ofA("r", "t")} = x[${rows}*m_tile + r,t]
          copy t ${sums}, s ${n}, by block   ${ofB("t", "s")} = y[t,${n}*n_tile + s]
          barrier block
          for step in 0..${sums / k}
            a{0} <- ${ofA(`${m}*warp + u`, `${k}*step + w`)} over u, w${by(options.a)}
            b{0} <- ${ofB(`${k}*step + w`, "v")} over w, v${by(options.b)}
            c{0} <- ${intrinsic.name}(a{0}, b{0})
          ${results.join("\n          ")}`,
    () => intrinsic,
  );
  return { computation, nest };
}
