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
import {
  type LoopNest,
  loop,
  type RegisterFile,
  type Scratch,
  type Statement,
  type TileAccess,
} from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";

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
  const tile = (name: string, dtype: DType, dims: readonly [string, number][]): Scratch => {
    const [[outer, rows], [inner, columns]] = dims as [[string, number], [string, number]]; // of two dimensions
    const pitch = columns + 16 / bytesOf(dtype);
    const storage = parseExpr(`${pitch}*${outer} + ${inner}`);
    const named = dims.map(([dim, extent]) => ({ name: dim, extent }));
    return { name, dtype, elements: rows * pitch, scope: "shared", dims: named, storage };
  };
  // ldmatrix has its rows along the neighbours in a register: k of both factors.
  const turned = options.b === "ldmatrix";
  const aTurned = options.a === "ldmatrix.trans";
  const scratch = [
    tile(
      "a_tile",
      a,
      aTurned
        ? [
            ["k", sums],
            ["m", WARPS * m],
          ]
        : [
            ["m", WARPS * m],
            ["k", sums],
          ],
    ),
    tile(
      "b_tile",
      b,
      turned
        ? [
            ["n", n],
            ["k", sums],
          ]
        : [
            ["k", sums],
            ["n", n],
          ],
    ),
    ...(options.store === "staged"
      ? [
          tile("c_tile", c, [
            ["m", WARPS * m],
            ["n", n],
          ]),
        ]
      : []),
  ];

  // 2. Statements.
  const copy = (axes: readonly [string, number][], equation: string): Statement => ({
    kind: "copy",
    equation: parseEquation(equation),
    width: 1,
    transfer: "plain",
    group: "block",
    axes: axes.map(([name, extent]) => ({ name, extent })),
  });
  const fetch = (operand: "a" | "b", by: TileAccess["by"], text: string): Statement => {
    const access = parseExpr(text);
    if (access.kind !== "access") throw new Error(`no access: ${text}`);
    const axes = operand === "a" ? ["u", "w"] : ["w", "v"];
    return { kind: "fetch", register: { file: operand, index: parseExpr("0") }, tile: { axes, access, by } };
  };
  const stored = (from: string): string => {
    const inside = `where ${WARPS * m}*m_tile + ROW < ${sizes.i} and ${n}*n_tile + COLUMN < ${sizes.j}`;
    if (!epilogue) return `out[${WARPS * m}*m_tile + ROW,${n}*n_tile + COLUMN] = ${from} ${inside}`;
    const shifted = `max(${from} + bias[${n}*n_tile + COLUMN], 0)`;
    return `low[${WARPS * m}*m_tile + ROW,${n}*n_tile + COLUMN] = ${epilogue === "u8" ? "sat_u8" : epilogue}(${shifted}) ${inside}`;
  };
  const at = (text: string, r: string, s: string): string => text.replaceAll("ROW", r).replaceAll("COLUMN", s);
  const drain = (equation: string, by?: "instruction"): Statement => ({
    kind: "drain",
    register: { file: "c", index: parseExpr("0") },
    axes: ["u", "v"],
    element: "sum",
    equation: parseEquation(equation),
    ...(by && { by }),
  });
  const secret = operandOf(intrinsic, "c").storage === undefined;
  const results: Statement[] =
    options.store === "direct"
      ? [drain(at(stored("sum[]"), `${m}*warp + u`, "v"))]
      : [
          drain(`c_tile[${m}*warp + u,v] = sum[]`, secret ? "instruction" : undefined),
          { kind: "barrier", group: "block" },
          copy(
            [
              ["r", WARPS * m],
              ["s", n],
            ],
            at(stored("c_tile[r,s]"), "r", "s"),
          ),
        ];
  const body: Statement[] = [
    { kind: "clear", register: { file: "c", index: parseExpr("0") } },
    copy(
      [
        ["r", WARPS * m],
        ["t", sums],
      ],
      `a_tile[${aTurned ? "t,r" : "r,t"}] = x[${WARPS * m}*m_tile + r,t]`,
    ),
    copy(
      [
        ["t", sums],
        ["s", n],
      ],
      `b_tile[${turned ? "s,t" : "t,s"}] = y[t,${n}*n_tile + s]`,
    ),
    { kind: "barrier", group: "block" },
    loop("step", sums / k, [
      fetch("a", options.a, aTurned ? `a_tile[${k}*step + w,${m}*warp + u]` : `a_tile[${m}*warp + u,${k}*step + w]`),
      fetch("b", options.b, turned ? `b_tile[v,${k}*step + w]` : `b_tile[${k}*step + w,v]`),
      {
        kind: "register-issue",
        intrinsic,
        registers: Object.fromEntries(["c", "a", "b"].map((o) => [o, { file: o, index: parseExpr("0") }])),
      },
    ]),
    ...results,
  ];

  // 3. Blocks and warps.
  const warps = loop("warp", WARPS, body, "warp");
  const columns = loop("n_tile", Math.ceil(sizes.j / n), [warps], "block");
  const registers = ["c", "a", "b"].map((operand): RegisterFile => ({ name: operand, intrinsic, operand, count: 1 }));
  const blocks = [loop("m_tile", Math.ceil(sizes.i / (WARPS * m)), [columns], "block")];
  return { computation, nest: { scratch, registers, prepare: [], body: blocks } };
}
