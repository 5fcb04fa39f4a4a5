/**
 * @file A matrix product on warps, written by hand: an example of a lowered GPU candidate for tests to alter.
 *
 *     const { computation, nest } = ringMatmul({ stages: 3 });
 *     ringMatmul({ stages: 3, without: "barrier" })                the same with one barrier too few
 *
 * Blocks of 32 x 16 results, two warps of 16 x 16, steps of 16 k through a ring of stages in shared memory, copied asynchronously.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { access, axis, binary, compare, type Expr, number } from "../../abstraction/expression.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import { type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { rowNamed, stated } from "./subjects.ts";

export interface RingMatmulOptions {
  readonly stages?: number;
  /** Steps of 16 along k. */
  readonly steps?: number;
  /** What is left out: the barrier or the wait at the head of a step, or the commit behind a copy. */
  readonly without?: "barrier" | "wait" | "commit";
  /** Groups that may be in flight at the head of a step; one more than is right reads too early. */
  readonly pending?: number;
  /** Stages that copies run ahead; `stages` overruns the ring. */
  readonly ahead?: number;
  /** Plain copies instead of asynchronous ones. */
  readonly transfer?: "plain" | "async";
}

const M = 64;
const N = 32;
const TILE = { m: 32, n: 16, k: 16 };

const add = (left: Expr, right: Expr): Expr => binary("+", left, right);
const times = (factor: number, e: Expr): Expr => binary("*", number(factor), e);

export function ringMatmul(options: RingMatmulOptions = {}): { computation: Computation; nest: LoopNest } {
  const { stages = 3, steps = 4, without, transfer = "async" } = options;
  const { pending = stages - 2, ahead = stages - 1 } = options;
  const computation = stated(
    `out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i ${M} --j ${N} --l ${TILE.k * steps} --dtype f16 --name matmul`,
  );
  const mma = rowNamed("mma.m16n8k16.f32.f16");

  // Rows of 32 bytes: the pieces of 16 bytes swap by row, so that eight rows meet all banks.
  const ring = (name: string, dims: readonly Dimension[], formula: string): Scratch => ({
    name,
    dtype: "f16",
    elements: dims.reduce((product, d) => product * d.extent, 1),
    scope: "shared",
    dims,
    storage: parseExpr(formula),
  });
  const a = ring(
    "a_ring",
    [
      { name: "stage", extent: stages },
      { name: "m", extent: TILE.m },
      { name: "k", extent: TILE.k },
    ],
    `${TILE.m * TILE.k}*stage + 16*m + 8*((k/8) ^ ((m/4)%2)) + k%8`,
  );
  const b = ring(
    "b_ring",
    [
      { name: "stage", extent: stages },
      { name: "k", extent: TILE.k },
      { name: "n", extent: TILE.n },
    ],
    `${TILE.k * TILE.n}*stage + 16*k + 8*((n/8) ^ ((k/4)%2)) + n%8`,
  );

  const copies = (step: Expr): Statement[] => {
    const stage = binary("%", step, number(stages));
    const rows = [
      { name: "m_in", extent: TILE.m },
      { name: "k_in", extent: TILE.k },
    ];
    const columns = [
      { name: "k_in", extent: TILE.k },
      { name: "n_in", extent: TILE.n },
    ];
    const when = step.kind === "number" ? {} : { when: compare("<", step, number(steps)) };
    const common = { kind: "copy", width: 8, transfer, group: "block", ...when } as const;
    const k = add(times(TILE.k, step), axis("k_in"));
    return [
      {
        ...common,
        axes: rows,
        equation: {
          target: access("a_ring", [stage, axis("m_in"), axis("k_in")]),
          op: "=",
          value: access("x", [add(times(TILE.m, axis("m_tile")), axis("m_in")), k]),
        },
      },
      {
        ...common,
        axes: columns,
        equation: {
          target: access("b_ring", [stage, axis("k_in"), axis("n_in")]),
          op: "=",
          value: access("y", [k, add(times(TILE.n, axis("n_tile")), axis("n_in"))]),
        },
      },
      ...(transfer === "async" && without !== "commit" ? [{ kind: "commit" } as const] : []),
    ];
  };

  const stage = binary("%", axis("k_tile"), number(stages));
  const step: Statement[] = [
    ...(transfer === "async" && without !== "wait" ? [{ kind: "wait", pending } as const] : []),
    ...(without !== "barrier" ? [{ kind: "barrier", group: "block" } as const] : []),
    ...copies(add(axis("k_tile"), number(ahead))),
    {
      kind: "fetch",
      register: { file: "a", index: number(0) },
      tile: {
        axes: ["x_m", "x_k"],
        access: access("a_ring", [stage, add(times(16, axis("warp_m")), axis("x_m")), axis("x_k")]),
        by: "ldmatrix",
      },
    },
    {
      kind: "fetch",
      register: { file: "b", index: number(0) },
      tile: {
        axes: ["x_k", "x_n"],
        access: access("b_ring", [stage, axis("x_k"), axis("x_n")]),
        by: "ldmatrix.trans",
        several: { count: 2, along: 1 },
      },
    },
    loop(
      "j",
      2,
      [
        {
          kind: "register-issue",
          intrinsic: mma,
          registers: {
            c: { file: "c", index: axis("j") },
            a: { file: "a", index: number(0) },
            b: { file: "b", index: axis("j") },
          },
        },
      ],
      "unrolled",
    ),
  ];

  const row = add(add(times(TILE.m, axis("m_tile")), times(16, axis("warp_m"))), axis("x_m"));
  const column = add(add(times(TILE.n, axis("n_tile")), times(8, axis("j"))), axis("x_n"));
  const body: Statement[] = [
    loop("j", 2, [{ kind: "clear", register: { file: "c", index: axis("j") } }], "unrolled"),
    ...Array.from({ length: ahead }, (_, s) => copies(number(s))).flat(),
    loop("k_tile", steps, step),
    loop(
      "j",
      2,
      [
        {
          kind: "drain",
          register: { file: "c", index: axis("j") },
          axes: ["x_m", "x_n"],
          element: "sum",
          equation: { target: access("out", [row, column]), op: "=", value: access("sum", []) },
        },
      ],
      "unrolled",
    ),
  ];
  const warps = [loop("warp_m", TILE.m / 16, body, "warp")];
  const blocks = [loop("m_tile", M / TILE.m, [loop("n_tile", N / TILE.n, warps, "block")], "block")];
  return {
    computation,
    nest: {
      scratch: [a, b],
      registers: [
        { name: "c", intrinsic: mma, operand: "c", count: 2 },
        { name: "a", intrinsic: mma, operand: "a", count: 1 },
        { name: "b", intrinsic: mma, operand: "b", count: 2 },
      ],
      prepare: [],
      body: blocks,
    },
  };
}
