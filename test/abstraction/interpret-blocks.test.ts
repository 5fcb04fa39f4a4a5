/**
 * @file Blocks and warps in the interpreter: a right nest runs in every order, one without a barrier, wait or commit in
 * none.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { matrixRows } from "../../abstraction/blocks/fragments.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic, Operand } from "../../abstraction/intrinsic.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { matricesOf } from "../../codegen/cuda/fragment.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { onWarps, readNest } from "../support/nest-text.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { stated } from "../support/subjects.ts";
import { withoutEach } from "../support/warp-nest.ts";

interface Case {
  readonly computation: Computation;
  readonly nest: LoopNest;
}

function someInputs(computation: Computation): Inputs {
  return Object.fromEntries(
    inputsOf(computation).map((t) => [t.name, Array.from({ length: elementCount(t) }, (_, i) => ((i * 7) % 13) - 6)]),
  );
}

function run({ computation, nest }: Case, order?: NestOrder, calls = 1): number[] {
  return [...interpretNest(nest, computation, someInputs(computation), calls, order)];
}

/** What the judge says of a nest; the same kind of fault in every order, or it does not count. */
function verdict(given: Case): string {
  const verdicts = ADVERSE_ORDERS.map((order) => {
    try {
      run(given, order);
      return "right";
    } catch (error) {
      if (!(error instanceof NestFault)) throw error;
      return error.kind;
    }
  });
  return [...new Set(verdicts)].join(" or ");
}

/** One product of 16 x 16 x 16, its tiles moved by the instruction's own loads and stores, from logical elements or from flat memory. */
function wmmaProduct(a: string, b: string, sums: string): Case {
  return {
    computation: stated("out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i 16 --j 16 --l 16 --dtype f16"),
    nest: onWarps(
      1,
      `
      copy i 16, l 16 by 8, by warp   a[i,l] = x[i,l]
      copy l 16, j 16 by 8, by warp   b[l,j] = y[l,j]
      c{0} <- identity
      barrier warp
      a{0} <- ${a}
      b{0} <- ${b}
      c{0} <- wmma.m16n16k16.f32.f16(a{0}, b{0})
      ${sums}
      barrier warp
      copy i 16, j 16 by 4, by warp   out[i,j] = sums[i,j]`,
      `
      shared a: f16[i 16, l 16]
      shared b: f16[l 16, j 16]
      shared sums: f32[i 16, j 16]
      registers c: 1 x wmma.m16n16k16.f32.f16.c
      registers a: 1 x wmma.m16n16k16.f32.f16.a
      registers b: 1 x wmma.m16n16k16.f32.f16.b`,
    ),
  };
}

/** Two warps that end with this read of `s`. */
function reversing(body: string, declared = "shared s: f32[i 64]"): Case {
  const read = "for lanes lane in 0..32\n  y[32*w+lane] = s[63-32*w-lane]";
  return { computation: stated("y[i] = x[63-i] --i 64"), nest: onWarps(2, `${body}\n${read}`, declared) };
}

/** Each of two warps turns its own elements round. */
function ownWarp(body: string): Case {
  const read = "for lanes lane in 0..32\n  y[32*w+lane] = s[w,31-lane]";
  return {
    computation: stated("y[i] = x[i-2*(i%32)+31] --i 64"),
    nest: onWarps(2, `${body}\n${read}`, "shared s: f32[w 2, i 32]"),
  };
}

/** Two warps turn one row round after another. */
function rounds(body: string, declared: string): Case {
  return { computation: stated("y[r,i] = x[r,63-i] --r 2 --i 64"), nest: onWarps(2, body, declared) };
}

/** Nests with what order they need and no more. */
const RIGHT: Readonly<Record<string, Case>> = {
  "a copy by the block": reversing("copy i 64, by block   s[i] = x[i]\nbarrier block"),
  "an asynchronous copy by the block": reversing(
    "copy i 64 by 4, async, by block   s[i] = x[i]\ncommit\nwait 0\nbarrier block",
  ),
  "a copy by each warp": ownWarp("copy i 32, by warp   s[w,i] = x[32*w+i]\nbarrier warp"),
  "an asynchronous copy by each warp": ownWarp(
    "copy i 32, async, by warp   s[w,i] = x[32*w+i]\ncommit\nwait 0\nbarrier warp",
  ),
  "lanes that write for other warps": reversing(
    "for lanes lane in 0..32\n  s[32*w+lane] = x[32*w+lane]\nbarrier block",
  ),
  "memory that is used again": rounds(
    `
    for round in 0..2
      copy i 64, by block   s[i] = x[round,i]
      barrier block
      for lanes lane in 0..32
        y[round,32*w+lane] = s[63-32*w-lane]
      barrier block`,
    "shared s: f32[i 64]",
  ),
  "two groups in flight": rounds(
    `
    copy i 64, async, by block   s[0,i] = x[0,i]
    commit
    copy i 64, async, by block   s[1,i] = x[1,i]
    commit
    wait 1
    barrier block
    for lanes lane in 0..32
      y[0,32*w+lane] = s[0,63-32*w-lane]
    wait 0
    barrier block
    for lanes lane in 0..32
      y[1,32*w+lane] = s[1,63-32*w-lane]`,
    "shared s: f32[stage 2, i 64]",
  ),
  "an asynchronous copy of what the block wrote, and writes again": rounds(
    `
    for round in 0..2
      for lanes lane in 0..32
        kept[32*w+lane] = x[round,32*w+lane]
      barrier block
      copy i 64, async, by block   s[i] = kept[i]
      commit
      wait 0
      barrier block
      for lanes lane in 0..32
        y[round,32*w+lane] = s[63-32*w-lane]`,
    "shared s: f32[i 64]\nworkspace kept: f32[64]",
  ),
  "blocks that add what others left": {
    computation: stated("y[i] += x[r,i+32*c] --i 32 --r 2 --c 2"),
    nest: readNest(`
      workspace partial: f32[b 2, i 32]
      vectors V: 1 x f32[32]
      for at block b in 0..2
        for at warp w in 0..1
          for lanes lane in 0..32
            V[0,lane] = x[0,32*b+lane] + x[1,32*b+lane]
          for lanes lane in 0..32
            partial[b,lane] = V[0,lane]
      barrier
      for at block b in 0..1
        for at warp w in 0..1
          for lanes lane in 0..32
            y[lane] = partial[0,lane] + partial[1,lane]`),
  },
  "tiles that an instruction loads and stores": wmmaProduct(
    "a[r,c] over r, c by instruction",
    "b[r,c] over r, c by instruction",
    "for r, c of c{0} by instruction   sums[r,c] = sum[]",
  ),
  "tiles of flat memory": wmmaProduct("a[0 .. by 16]", "b[0 .. by 16]", "sums[0 .. by 16] <- c{0}"),
  "a ring of two stages": ringMatmul({ stages: 2 }),
  "a ring of three stages": ringMatmul({ stages: 3 }),
  "a ring of four stages, for two steps": ringMatmul({ stages: 4, steps: 2 }),
  "a ring of plain copies": ringMatmul({ stages: 2, transfer: "plain" }),
};

describe("a nest with no more synchronisation than it needs", () => {
  it.each(Object.entries(RIGHT))("runs in every order, twice: %s", (_, given) => {
    const expected = [...interpret(given.computation, someInputs(given.computation))];
    for (const order of ADVERSE_ORDERS) expect(run(given, order, 2), JSON.stringify(order)).toEqual(expected);
  });

  it.each(Object.entries(RIGHT))(
    "is refused in every order without any one barrier, wait or commit: %s",
    (_, given) => {
      const shorter = withoutEach(given.nest);
      expect(shorter.length).toBeGreaterThan(0);
      for (const { left, nest } of shorter)
        expect(verdict({ ...given, nest }), `without ${left}\n${printNest(nest)}`).toBe("race");
    },
  );
});

/** The elements of each row of 16 bytes, as the printer names them; undefined where it prints no ldmatrix. */
function printedRows(intrinsic: Intrinsic, operand: Operand, transposed: boolean): number[][] | undefined {
  try {
    const { along, across, columns, origins } = matricesOf(intrinsic, operand, transposed);
    const width = operand.dims[1]?.extent ?? 1;
    const list = (count: number): number[] => Array.from({ length: count }, (_, i) => i);
    return origins.flatMap((origin) =>
      list(8).map((row) =>
        list(columns).map((column) => {
          const [m = 0, n = 0] = origin.map((at, d) => at + (d === along ? column : d === across ? row : 0));
          return m * width + n;
        }),
      ),
    );
  } catch {
    return undefined;
  }
}

it("ldmatrix reads the rows that the printer names, as both derive them from the storage formula", () => {
  const tiles = INTRINSICS.flatMap((intrinsic) =>
    intrinsic.operands.filter((o) => o.file === "frag").map((operand) => ({ intrinsic, operand })),
  );
  let same = 0;
  for (const { intrinsic, operand } of tiles)
    for (const by of ["ldmatrix", "ldmatrix.trans"] as const) {
      const read = matrixRows({ intrinsic, operand }, by);
      const printed = printedRows(intrinsic, operand, by === "ldmatrix.trans");
      const label = `${intrinsic.name}.${operand.name} by ${by}`;
      if (printed) {
        expect(read, label).toEqual(printed);
        same++;
      } else {
        // No row then runs along a dimension of the tile.
        const steps = (read ?? []).map(([first = 0, second = 0]) => second - first);
        expect(
          steps.filter((step) => step === 1 || step === operand.dims[1]?.extent),
          label,
        ).toEqual([]);
      }
    }
  expect(same).toBeGreaterThan(20);
});
