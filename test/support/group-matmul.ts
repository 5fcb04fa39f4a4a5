/**
 * @file A matrix product by wgmma, written by hand: a ring filled by asynchronous copies, read by the instruction itself, and everything that
 * must stand between the two.
 *
 *     const { computation, nest } = groupMatmul({ stages: 3 });
 *     groupMatmul({ without: "fence memory" })                 the same with one fence too few
 *
 * Two warpgroups of 64 x 32 results, steps of 64 k, products of one step in flight while the next is fetched.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { type LoopNest, loop, type Scratch, type Statement, type TileAccess } from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { rowNamed } from "./subjects.ts";

/** The synchronisation that can be left out. */
export const GUARDS = ["fence memory", "fence registers", "commit", "wait", "barrier", "arrival"] as const;

export interface GroupMatmulOptions {
  readonly stages?: number;
  readonly without?: (typeof GUARDS)[number];
  /** Steps whose products are in flight behind the wait of a step. */
  readonly inFlight?: number;
  /** Stages that copies run ahead. */
  readonly ahead?: number;
  /** `y` lies as [N][K]. */
  readonly turned?: boolean;
  /** The swizzle of b's rows by another row. */
  readonly crooked?: boolean;
}

const M = 128;
const N = 32;
const K = 64;
const STEPS = 4;

function text(name: string, formula: string): TileAccess["access"] {
  const access = parseExpr(`${name}[${formula}]`);
  if (access.kind !== "access") throw new Error(`no access: ${formula}`);
  return access;
}

export function groupMatmul(options: GroupMatmulOptions = {}): {
  readonly computation: Computation;
  readonly nest: LoopNest;
  readonly intrinsic: Intrinsic;
} {
  const { stages = 3, without, inFlight = 1, turned = false, crooked = false } = options;
  const { ahead = stages - 1 - inFlight } = options;
  const wgmma = rowNamed("wgmma.m64n32k16.f32.f16");
  const computation = defineComputation({
    name: "matmul",
    equation: `out[i,j] += f32(x[i,l]) * f32(${turned ? "y[j,l]" : "y[l,j]"})`,
    extents: { i: M, j: N, l: K * STEPS },
    tensors: { x: "f16", y: "f16" },
  });
  const ring = (
    name: string,
    row: string,
    rows: number,
    columns: number,
    column: string,
    swizzle: string,
  ): Scratch => ({
    name,
    dtype: "f16",
    elements: stages * rows * columns,
    scope: "shared",
    dims: [
      { name: "stage", extent: stages },
      { name: row, extent: rows },
      { name: column, extent: columns },
    ],
    storage: parseExpr(`${rows * columns}*stage + ${columns}*${row} + 8*((${column}/8) ^ (${swizzle})) + ${column}%8`),
  });
  const turn = crooked ? "/2" : "";
  const scratch = [
    ring("a_ring", "m", M, K, "k", "m%8"),
    turned ? ring("b_ring", "n", N, K, "k", `n${turn}%8`) : ring("b_ring", "k", K, N, "n", "k/2%4"),
  ];
  const copy = (axes: readonly [string, number][], equation: string, when?: string): Statement => ({
    kind: "copy",
    equation: parseEquation(equation),
    width: 8,
    transfer: "async",
    group: "block",
    axes: axes.map(([name, extent]) => ({ name, extent })),
    ...(when !== undefined && { when: parseEquation(`z[] = 0 where ${when}`).where }),
  });
  const copies = (step: string, when?: string): Statement[] => [
    copy(
      [
        ["r", M],
        ["t", K],
      ],
      `a_ring[(${step})%${stages},r,t] = x[r,${K}*(${step})+t]`,
      when,
    ),
    turned
      ? copy(
          [
            ["s", N],
            ["t", K],
          ],
          `b_ring[(${step})%${stages},s,t] = y[s,${K}*(${step})+t]`,
          when,
        )
      : copy(
          [
            ["t", K],
            ["s", N],
          ],
          `b_ring[(${step})%${stages},t,s] = y[${K}*(${step})+t,s]`,
          when,
        ),
    { kind: "commit" },
  ];
  const unless = (guard: (typeof GUARDS)[number], s: Statement): Statement[] => (without === guard ? [] : [s]);
  const sums = { file: "c", index: parseExpr("0") };
  const tile = (axes: readonly string[], access: TileAccess["access"]): TileAccess => ({
    axes,
    access,
    by: "instruction",
  });
  const body: Statement[] = [
    { kind: "clear", register: sums },
    ...Array.from({ length: ahead }, (_, s) => copies(String(s))).flat(),
    loop("step", STEPS, [
      ...unless("arrival", { kind: "wait", pending: ahead - 1 }),
      ...unless("fence memory", { kind: "fence", on: "memory", of: wgmma }),
      ...unless("barrier", { kind: "barrier", group: "block" }),
      ...unless("fence registers", { kind: "fence", on: "registers", of: wgmma }),
      loop(
        "part",
        K / 16,
        [
          {
            kind: "register-issue",
            intrinsic: wgmma,
            registers: { c: sums },
            tiles: {
              a: tile(["u", "w"], text("a_ring", `step%${stages},64*g+u,16*part+w`)),
              b: tile(
                ["w", "v"],
                turned ? text("b_ring", `step%${stages},v,16*part+w`) : text("b_ring", `step%${stages},16*part+w,v`),
              ),
            },
          },
        ],
        "unrolled",
      ),
      ...unless("commit", { kind: "commit", of: wgmma }),
      ...unless("wait", { kind: "wait", pending: inFlight, of: wgmma }),
      ...copies(`step+${ahead}`, `step+${ahead} < ${STEPS}`),
    ]),
    ...unless("wait", { kind: "wait", pending: 0, of: wgmma }),
    {
      kind: "drain",
      register: sums,
      axes: ["u", "v"],
      element: "sum",
      equation: parseEquation("out[64*g+u,v] = sum[]"),
    },
  ];
  const nest: LoopNest = {
    scratch,
    registers: [{ name: "c", intrinsic: wgmma, operand: "c", count: 1 }],
    prepare: [],
    body: [loop("block", 1, [loop("g", M / 64, body, "warpgroup")], "block")],
  };
  return { computation, nest, intrinsic: wgmma };
}
