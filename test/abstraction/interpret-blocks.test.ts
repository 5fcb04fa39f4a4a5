/**
 * @file Blocks and warps in the interpreter: a right nest runs in every order, one without a barrier, wait or commit in
 * none.
 */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { matrixRows } from "../../abstraction/blocks/holders.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import { type Computation, elementCount, inputsOf } from "../../abstraction/computation.ts";
import { access, axis, number } from "../../abstraction/expression.ts";
import { type Inputs, interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic, Operand } from "../../abstraction/intrinsic.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { matricesOf } from "../../codegen/cuda/fragment.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { rowNamed, stated } from "../support/subjects.ts";
import { barrier, commit, copy, lanes, onWarps, shared, wait, withoutEach } from "../support/warp-nest.ts";

interface Case {
  readonly computation: Computation;
  readonly nest: LoopNest;
}

const reversed = stated("y[i] = x[63-i] --i 64");
const s64 = shared("s", "f32", { i: 64 });
const readReversed = lanes("y[32*w+lane] = s[63-32*w-lane]");

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

/** One product of 16 x 16 x 16, its tiles moved by the instruction's own loads and stores. */
function wmmaProduct(by: "tiles" | "flat memory"): Case {
  const wmma = rowNamed("wmma.m16n16k16.f32.f16");
  const computation = stated("out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i 16 --j 16 --l 16 --dtype f16");
  const at = (file: string) => ({ file, index: number(0) });
  const memory = (buffer: string) => ({ buffer, base: number(0), stride: 16 });
  const row = axis("r");
  const column = axis("c");
  const read = (file: string, buffer: string): Statement => {
    if (by === "flat memory") return { kind: "load", register: at(file), memory: memory(buffer) };
    const tile = { axes: ["r", "c"], access: access(buffer, [row, column]), by: "instruction" } as const;
    return { kind: "fetch", register: at(file), tile };
  };
  const equation = { target: access("sums", [row, column]), op: "=", value: access("sum", []) } as const;
  const store: Statement =
    by === "flat memory"
      ? { kind: "store", register: at("c"), memory: memory("sums") }
      : { kind: "drain", register: at("c"), axes: ["r", "c"], equation, element: "sum", by: "instruction" };
  const nest = onWarps(
    1,
    [
      copy("a[i,l] = x[i,l]", { i: 16, l: 16 }, { group: "warp", width: 8 }),
      copy("b[l,j] = y[l,j]", { l: 16, j: 16 }, { group: "warp", width: 8 }),
      { kind: "clear", register: at("c") },
      barrier("warp"),
      read("a", "a"),
      read("b", "b"),
      { kind: "register-issue", intrinsic: wmma, registers: { c: at("c"), a: at("a"), b: at("b") } },
      store,
      barrier("warp"),
      copy("out[i,j] = sums[i,j]", { i: 16, j: 16 }, { group: "warp", width: 4 }),
    ],
    [
      shared("a", "f16", { i: 16, l: 16 }),
      shared("b", "f16", { l: 16, j: 16 }),
      shared("sums", "f32", { i: 16, j: 16 }),
    ],
    { registers: ["c", "a", "b"].map((name) => ({ name, intrinsic: wmma, operand: name, count: 1 })) },
  );
  return { computation, nest };
}

/** Two blocks sum halves into the workspace; behind a barrier of the whole call, others add them. */
function splitSum(): Case {
  const half = onWarps(
    1,
    [lanes("V[0,lane] = x[0,32*b+lane] + x[1,32*b+lane]"), lanes("partial[b,lane] = V[0,lane]")],
    [],
    { blocks: 2 },
  );
  const whole = onWarps(1, [lanes("y[lane] = partial[0,lane] + partial[1,lane]")]);
  const dims = [
    { name: "b", extent: 2 },
    { name: "i", extent: 32 },
  ];
  return {
    computation: stated("y[i] += x[r,i+32*c] --i 32 --r 2 --c 2"),
    nest: {
      scratch: [{ name: "partial", dtype: "f32", elements: 64, scope: "workspace", dims }],
      registers: [],
      vectors: [{ name: "V", dtype: "f32", lanes: 32, count: 1 }],
      prepare: [],
      body: [...half.body, barrier(), ...whole.body],
    },
  };
}

/** Nests with what order they need and no more. */
const RIGHT: Readonly<Record<string, Case>> = {
  "a copy by the block": {
    computation: reversed,
    nest: onWarps(2, [copy("s[i] = x[i]", { i: 64 }), barrier("block"), readReversed], [s64]),
  },
  "an asynchronous copy by the block": {
    computation: reversed,
    nest: onWarps(
      2,
      [
        copy("s[i] = x[i]", { i: 64 }, { transfer: "async", width: 4 }),
        commit,
        wait(0),
        barrier("block"),
        readReversed,
      ],
      [s64],
    ),
  },
  "a copy by each warp": {
    computation: stated("y[i] = x[i-2*(i%32)+31] --i 64"),
    nest: onWarps(
      2,
      [copy("s[w,i] = x[32*w+i]", { i: 32 }, { group: "warp" }), barrier("warp"), lanes("y[32*w+lane] = s[w,31-lane]")],
      [shared("s", "f32", { w: 2, i: 32 })],
    ),
  },
  "an asynchronous copy by each warp": {
    computation: stated("y[i] = x[i-2*(i%32)+31] --i 64"),
    nest: onWarps(
      2,
      [
        copy("s[w,i] = x[32*w+i]", { i: 32 }, { group: "warp", transfer: "async" }),
        commit,
        wait(0),
        barrier("warp"),
        lanes("y[32*w+lane] = s[w,31-lane]"),
      ],
      [shared("s", "f32", { w: 2, i: 32 })],
    ),
  },
  "lanes that write for other warps": {
    computation: reversed,
    nest: onWarps(2, [lanes("s[32*w+lane] = x[32*w+lane]"), barrier("block"), readReversed], [s64]),
  },
  "memory that is used again": {
    computation: stated("y[r,i] = x[r,63-i] --r 2 --i 64"),
    nest: onWarps(
      2,
      [
        loop("round", 2, [
          copy("s[i] = x[round,i]", { i: 64 }),
          barrier("block"),
          lanes("y[round,32*w+lane] = s[63-32*w-lane]"),
          barrier("block"),
        ]),
      ],
      [s64],
    ),
  },
  "two groups in flight": {
    computation: stated("y[r,i] = x[r,63-i] --r 2 --i 64"),
    nest: onWarps(
      2,
      [
        copy("s[0,i] = x[0,i]", { i: 64 }, { transfer: "async" }),
        commit,
        copy("s[1,i] = x[1,i]", { i: 64 }, { transfer: "async" }),
        commit,
        wait(1),
        barrier("block"),
        lanes("y[0,32*w+lane] = s[0,63-32*w-lane]"),
        wait(0),
        barrier("block"),
        lanes("y[1,32*w+lane] = s[1,63-32*w-lane]"),
      ],
      [shared("s", "f32", { stage: 2, i: 64 })],
    ),
  },
  "an asynchronous copy of what the block wrote, and writes again": {
    computation: stated("y[r,i] = x[r,63-i] --r 2 --i 64"),
    nest: onWarps(
      2,
      [
        loop("round", 2, [
          lanes("kept[32*w+lane] = x[round,32*w+lane]"),
          barrier("block"),
          copy("s[i] = kept[i]", { i: 64 }, { transfer: "async" }),
          commit,
          wait(0),
          barrier("block"),
          lanes("y[round,32*w+lane] = s[63-32*w-lane]"),
        ]),
      ],
      [s64, { name: "kept", dtype: "f32", elements: 64, scope: "workspace" }],
    ),
  },
  "blocks that add what others left": splitSum(),
  "tiles that an instruction loads and stores": wmmaProduct("tiles"),
  "tiles of flat memory": wmmaProduct("flat memory"),
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
