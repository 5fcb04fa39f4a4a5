/** @file The interpreter's messages for races: both statements, the element, the threads, the missing barrier. */

import { describe, expect, it } from "vitest";
import { NestFault } from "../../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS, type NestOrder } from "../../abstraction/blocks/run.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { access, axis, number } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { type LoopNest, loop, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import { ringMatmul } from "../support/ring-matmul.ts";
import { rowNamed, smallIntegers, stated } from "../support/subjects.ts";
import { barrier, commit, copy, lanes, onWarps, shared, wait } from "../support/warp-nest.ts";

const REVERSED = stated("y[i] = x[63-i] --i 64");
const S = shared("s", "f32", { i: 64 });
const READ = lanes("y[32*w+lane] = s[63-32*w-lane]");
const ASYNC = { transfer: "async", width: 4 } as const;

function run(nest: LoopNest, computation = REVERSED, order: NestOrder = {}): Float64Array {
  return interpretNest(nest, computation, smallIntegers(computation), 1, order);
}

function faultOf(nest: LoopNest, computation: Computation = REVERSED, order: NestOrder = {}): string {
  try {
    run(nest, computation, order);
  } catch (error) {
    if (error instanceof NestFault) return error.message;
    throw error;
  }
  return "nothing wrong";
}

describe("a race", () => {
  it("is a read with no barrier behind the write", () => {
    expect(faultOf(onWarps(2, [copy("s[i] = x[i]", { i: 64 }), READ], [S]))).toMatchInlineSnapshot(`
      "s[32] may be read before it is written
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 0, lane 31 (b 0, w 0)
        copy i 64, by block   s[i] = x[i]
          writes it: block 0, warp 1, lane 0 (b 0, w 1)
        missing: a barrier of the block between the two"
    `);
  });

  it("is a read that comes before the write in another order of warps", () => {
    const nest = onWarps(2, [copy("s[i] = x[i]", { i: 32 }), READ], [S]);
    expect(faultOf(nest, REVERSED, { warps: "reversed" })).toMatchInlineSnapshot(`
      "s[0] may be read before it is written
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 1, lane 31 (b 0, w 1)
        copy i 32, by block   s[i] = x[i]
          writes it: block 0, warp 0, lane 0 (b 0, w 0)
        missing: a barrier of the block between the two"
    `);
  });

  it("is a read of an asynchronous copy that is not awaited, whatever barriers stand between", () => {
    const nest = onWarps(2, [copy("s[i] = x[i]", { i: 64 }, ASYNC), commit, barrier("block"), READ], [S]);
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "s[63] is read before what writes it has ended
        copy i 64 by 4, async, by block   s[i] = x[i]
          writes it: block 0, warp 0, lane 15 (b 0, w 0)
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 0, lane 0 (b 0, w 0)
        missing: a wait for the copy, and then a barrier of the block"
    `);
  });

  it("is a wait with no commit before it, which awaits nothing", () => {
    const nest = onWarps(2, [copy("s[i] = x[i]", { i: 64 }, ASYNC), wait(0), barrier("block"), READ], [S]);
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "s[63] is read before what writes it has ended
        copy i 64 by 4, async, by block   s[i] = x[i]
          writes it: block 0, warp 0, lane 15 (b 0, w 0)
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 0, lane 0 (b 0, w 0)
        missing: a commit of the copy and a wait for it, and then a barrier of the block"
    `);
  });

  it("is a wait behind the barrier: each thread awaits its own copies only", () => {
    const nest = onWarps(2, [copy("s[i] = x[i]", { i: 64 }, ASYNC), commit, barrier("block"), wait(0), READ], [S]);
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "s[63] is read before what writes it has ended
        copy i 64 by 4, async, by block   s[i] = x[i]
          writes it: block 0, warp 0, lane 15 (b 0, w 0)
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 0, lane 0 (b 0, w 0)
        missing: a barrier of the block behind the wait for the copy"
    `);
  });

  it("is a ring whose producer overruns its consumer", () => {
    const rows = stated("y[r,i] = x[r,63-i] --r 4 --i 64");
    const ring = (stages: number): LoopNest =>
      onWarps(
        2,
        [
          copy("s[0,i] = x[0,i]", { i: 64 }, ASYNC),
          commit,
          loop("round", 4, [
            wait(0),
            barrier("block"),
            lanes(`y[round,32*w+lane] = s[round%${stages},63-32*w-lane]`),
            copy(`s[(round+1)%${stages},i] = x[round+1,i]`, { i: 64 }, { ...ASYNC, when: "round+1 < 4" }),
            commit,
          ]),
        ],
        [shared("s", "f32", { stage: 2, i: 64 })],
      );
    expect(faultOf(ring(2), rows)).toBe("nothing wrong");
    expect(faultOf(ring(1), rows)).toMatchInlineSnapshot(`
      "s[stage 0, i 32] is overwritten while another thread may still read it
        y[round,32*w+lane] = s[round%1,63-32*w-lane]
          reads it: block 0, warp 0, lane 31 (b 0, w 0, round 0)
        copy i 64 by 4, async, by block where round+1 < 4   s[(round+1)%1,i] = x[round+1,i]
          writes it: block 0, warp 0, lane 8 (b 0, w 0, round 0)
        missing: a barrier of the block between the two, or a ring of more stages"
    `);
  });

  it("is shared memory that is filled again too early", () => {
    const nest = onWarps(
      2,
      [copy("s[i] = x[i]", { i: 64 }), copy("s[63-i] = x[63-i]", { i: 64 }), barrier("block"), READ],
      [S],
    );
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "s[32] is written twice without order
        copy i 64, by block   s[63-i] = x[63-i]
          writes it: block 0, warp 0, lane 31 (b 0, w 0)
        copy i 64, by block   s[i] = x[i]
          writes it: block 0, warp 1, lane 0 (b 0, w 1)
        missing: a barrier of the block between the two"
    `);
  });

  it("is an element of the output that two blocks write, or two warps, or two lanes", () => {
    const nest = (...equations: readonly string[]): LoopNest => onWarps(2, [lanes(...equations)], [], { blocks: 2 });
    expect(faultOf(nest("y[32*w+lane] = x[63-32*w-lane]"))).toMatchInlineSnapshot(`
      "y[0] is written twice without order
        y[32*w+lane] = x[63-32*w-lane]
          writes it: block 0, warp 0, lane 0 (b 0, w 0)
        y[32*w+lane] = x[63-32*w-lane]
          writes it: block 1, warp 0, lane 0 (b 1, w 0)
        missing: a barrier of the whole call between the two: blocks run in any order, or threads that keep apart"
    `);
    expect(faultOf(nest("y[32*b+lane] = x[63-32*b-lane]"))).toMatchInlineSnapshot(`
      "y[0] is written twice without order
        y[32*b+lane] = x[63-32*b-lane]
          writes it: block 0, warp 0, lane 0 (b 0, w 0)
        y[32*b+lane] = x[63-32*b-lane]
          writes it: block 0, warp 1, lane 0 (b 0, w 1)
        missing: a barrier of the block between the two, or threads that keep apart"
    `);
    const mma = rowNamed("mma.m16n8k16.f32.f16");
    const drain: Statement = {
      kind: "drain",
      register: { file: "c", index: number(0) },
      axes: ["m", "n"],
      element: "sum",
      equation: { target: access("y", [axis("m")]), op: "=", value: access("sum", []) },
    };
    const registers = [{ name: "c", intrinsic: mma, operand: "c", count: 1 }];
    const sums = onWarps(1, [{ kind: "clear", register: drain.register }, drain], [], { registers });
    expect(faultOf(sums)).toMatchInlineSnapshot(`
      "y[0] is written twice without order
        for m, n of c{0}   y[m] = sum[]
          writes it: block 0, warp 0, lane 0 (b 0, w 0)
        for m, n of c{0}   y[m] = sum[]
          writes it: block 0, warp 0, lane 1 (b 0, w 0)
        missing: an order of its lanes: nothing orders the lanes of one statement, or threads that keep apart"
    `);
  });

  it("is a read of an element that another block wrote in the same phase", () => {
    const dims = [{ name: "i", extent: 64 }];
    const left: Scratch = { name: "left", dtype: "f32", elements: 64, scope: "workspace", dims };
    const nest = onWarps(
      1,
      [lanes("left[32*b+lane] = x[32*b+lane]"), lanes("y[32*b+lane] = left[63-32*b-lane]")],
      [left],
      { blocks: 2 },
    );
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "left[32] may be read before it is written
        y[32*b+lane] = left[63-32*b-lane]
          reads it: block 0, warp 0, lane 31 (b 0, w 0)
        left[32*b+lane] = x[32*b+lane]
          writes it: block 1, warp 0, lane 0 (b 1, w 0)
        missing: a barrier of the whole call between the two: blocks run in any order"
    `);
  });

  it("is a write to another block of the cluster that may not have begun, whichever block it is", () => {
    const parts: Scratch = { ...shared("s", "f32", { block: 2, i: 32 }), scope: "cluster" };
    const nest = (own: number, ...first: readonly Statement[]): LoopNest => ({
      scratch: [parts],
      registers: [],
      prepare: [],
      body: [
        loop(
          "b",
          1,
          [
            loop(
              "q",
              2,
              [
                loop(
                  "w",
                  1,
                  [
                    ...first,
                    copy(`s[${own},i] = x[i]`, { i: 32 }, { when: `q-${own}` }),
                    barrier("cluster"),
                    lanes(`y[32*q+lane] = s[${own},lane]`),
                    barrier("cluster"),
                  ],
                  "warp",
                ),
              ],
              "cluster",
            ),
          ],
          "block",
        ),
      ],
    });
    const begun: Statement = { kind: "barrier", group: "cluster", of: "beginnings" };
    for (const own of [0, 1]) {
      expect(faultOf(nest(own, begun))).toBe("nothing wrong");
      expect(faultOf(nest(own)).split("\n").at(-1)).toBe(
        "  missing: a barrier of the cluster, of beginnings: the block may not have begun",
      );
    }
  });

  it("is a statement of one thread beside blocks", () => {
    const blocks = onWarps(1, [lanes("y[32*b+lane] = x[63-32*b-lane]")], [], { blocks: 2 });
    const ahead = loop("i", 2, []);
    expect(faultOf({ ...blocks, body: [ahead, barrier(), ...blocks.body] })).toBe("nothing wrong");
    expect(faultOf({ ...blocks, body: [ahead, ...blocks.body] })).toMatchInlineSnapshot(`
      "blocks and what one thread runs stand side by side
        for i in 0..2
        for at block b in 0..2
        missing: a barrier of the whole call between the two"
    `);
  });

  it("is refused even where the values are right in every order", () => {
    // Both copies bring the same values, and lanes of one warp run in step here: nothing ever goes wrong.
    const twice = onWarps(
      1,
      [
        copy("s[i] = x[i]", { i: 64 }),
        copy("s[i] = x[i]", { i: 64 }),
        lanes("y[lane] = s[63-lane]", "y[32+lane] = s[31-lane]"),
      ],
      [S],
    );
    const x = Array.from({ length: 64 }, (_, i) => i);
    const expected = interpret(REVERSED, { x });
    for (const order of ADVERSE_ORDERS) {
      expect(interpretNest(twice, REVERSED, { x }, 1, { ...order, races: "ignored" })).toEqual(expected);
      expect(() => interpretNest(twice, REVERSED, { x }, 1, order)).toThrow(NestFault);
    }
  });

  it("shows as wrong values in an adverse order", () => {
    const right = (options: Parameters<typeof ringMatmul>[0], order: NestOrder): boolean => {
      const { computation, nest } = ringMatmul(options);
      const inputs = smallIntegers(computation);
      const expected = interpret(computation, inputs);
      const got = interpretNest(nest, computation, inputs, 1, { ...order, races: "ignored" });
      return got.every((value, i) => value === expected[i]);
    };
    const seen = (options: Parameters<typeof ringMatmul>[0]): boolean[] =>
      ADVERSE_ORDERS.map((order) => right(options, order));
    expect(seen({})).toEqual([true, true, true, true, true, true]);
    // Without its wait, a copy that comes at once is in time.
    expect(seen({ without: "wait" })).toEqual([true, false, true, false, true, false]);
    // Overrunning the ring, a copy that comes late spares what is still read.
    expect(seen({ ahead: 3 })).toEqual([false, true, false, true, false, true]);
  });
});

describe("a copy by the engine", () => {
  const view: TensorView = {
    dims: [{ name: "i", own: [{ position: 0, extent: 64 }], extent: 64, pitch: 1 }],
    at: [number(0)],
    rows: { kind: "box", extents: [64] },
  };
  const arrival = { name: "there", stage: number(0) };
  const sent: Statement = {
    kind: "send",
    copies: [copy("s[i] = x[i]", { i: 64 }, { transfer: "engine", view })],
    arrival,
  };
  const awaited = (use: number): Statement => ({ kind: "await", arrival, use: number(use) });
  const nest = (...statements: readonly Statement[]): LoopNest => ({
    ...onWarps(1, [...statements, lanes("y[lane] = s[63-lane]", "y[32+lane] = s[31-lane]")], [S]),
    arrivals: [{ name: "there", stages: 1 }],
  });

  it("brings every element of its box, from the first on, by the time it is awaited", () => {
    const x = Array.from({ length: 64 }, (_, i) => i + 1);
    for (const order of ADVERSE_ORDERS)
      expect(interpretNest(nest(sent, awaited(0)), REVERSED, { x }, 1, order)).toEqual(interpret(REVERSED, { x }));
    expect(faultOf(nest(sent))).toContain("missing: a wait for the stage");
  });

  it("is awaited use by use", () => {
    expect(faultOf(nest(sent, awaited(3)))).toMatch(/^use 3 is awaited and \d have been/);
    expect(faultOf(nest(sent, awaited(0), awaited(0)))).toBe("nothing wrong");
  });
});

describe("a read or a barrier that cannot complete", () => {
  it("is the read of an element of shared memory that nothing writes", () => {
    const nest = onWarps(2, [copy("s[i] = x[i]", { i: 48 }), barrier("block"), READ], [S]);
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "s[63] is read, and nothing has written it
        y[32*w+lane] = s[63-32*w-lane]
          reads it: block 0, warp 0, lane 0 (b 0, w 0)"
    `);
  });

  it("is the read of shared memory that an earlier block left", () => {
    const nest = onWarps(
      1,
      [copy("s[i] = x[i]", { i: 64 }, { when: "b < 1" }), barrier("block"), lanes("y[32*b+lane] = s[63-32*b-lane]")],
      [S],
      { blocks: 2 },
    );
    expect(faultOf(nest).split("\n")[0]).toBe("s[31] is read, and nothing has written it");
  });

  it("is a barrier that some warps do not reach", () => {
    const some = loop("v", 1, [barrier("block")], "warp");
    const all = loop("w", 2, [barrier("block"), lanes("y[32*w+lane] = x[63-32*w-lane]")], "warp");
    const nest: LoopNest = { scratch: [], registers: [], prepare: [], body: [loop("b", 1, [some, all], "block")] };
    expect(faultOf(nest)).toMatchInlineSnapshot(`
      "the warps of a block do not come to the same barrier: those that wait never go on
        waits at barrier block: block 0, warp 0, all lanes (b 0, v 0)
        waits at barrier block: block 0, warp 1, all lanes (b 0, w 1)
        missing: the same barriers in every warp, as beside the loops at warp"
    `);
    const end: LoopNest = { ...nest, body: [loop("b", 1, [loop("w", 2, [], "warp"), some], "block")] };
    expect(faultOf(end).split("\n").slice(0, 3)).toMatchInlineSnapshot(`
      [
        "the warps of a block do not come to the same barrier: those that wait never go on",
        "  waits at barrier block: block 0, warp 0, all lanes (b 0, v 0)",
        "  warp 1 has ended",
      ]
    `);
  });
});
