/**
 * @file Specifications: recurrences with their spatial mapping as text and as calls, lowered and equal to the equation;
 * and refusals.
 */

import { describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { parseRecurrence } from "../../abstraction/recurrence.ts";
import { parseSpecification } from "../../abstraction/specification.ts";
import { lowerComputation, lowerDesign } from "../../mapper/space-time/lower.ts";
import { arraySpace } from "../../mapper/space-time/problem.ts";
import { lowerSpecification } from "../../mapper/space-time/specify.ts";
import { convolution1d, convolution2d, integerInputs, product } from "../support/space-time.ts";
import { stated } from "../support/subjects.ts";

function expectEqual(nest: LoopNest, computation: Computation): void {
  const inputs = integerInputs(computation);
  expect([...interpretNest(nest, computation, inputs)], printNest(nest)).toEqual([...interpret(computation, inputs)]);
}

const URES = (c: number): string => `recurrence conv1d
loops c ${c}, q 5
X[c,q] = select(q == 0 or c == ${c - 1}, x[c+q], X[c+1,q-1])
W[c,q] = select(c == 0, w[q], W[c-1,q])
Z[c,q] = select(q == 0, 0, Z[c,q-1]) + X[c,q] * W[c,q]
out[c] = Z[c,q] where q == 4
merge_ures(X, W, Z, out)`;

/** The spatial mapping of each named design as its author would write it. */
const DESIGNS: Readonly<Record<string, string>> = {
  SBM: "[[1,1],[0,1]], [q = t, c = k-t]",
  BSM: "[[0,1],[1,1]], [q = k, c = t-k]",
  FSM: "[[0,1],[1,-1]], [q = k, c = t+k]",
  BFS: "[[1,0],[1,1]], [c = k, q = t-k], check_time",
  FFS: "[[1,0],[2,1]], [c = k, q = t-2*k]",
  FBS: "[[1,0],[0,1]], [c = k, q = t]",
  FSA: "[[0,1],[1,0]]",
};

describe("a specification", () => {
  for (const [name, rest] of Object.entries(DESIGNS))
    it(`${name} parses, lowers and equals the convolution`, () => {
      const specification = parseSpecification(`${URES(16)}\nspace_time_transform([c, q], [k, t], ${rest})`);
      for (const coalesced of [false, true])
        expectEqual(lowerSpecification(specification, { coalesced }), convolution1d(16, 5));
    });

  it("with two projections, mixed-radix time and its reverse equals the 2-D convolution", () => {
    const specification = parseSpecification(`loops c 16, p 5, q 5
      X[c,p,q] = select(c == 15 or q == 0, x[p,c+q], X[c+1,p,q-1])
      Z[c,p,q] = select(p == 0, select(q == 0, 0, Z[c,p+4,q-1]), Z[c,p-1,q]) + X[c,p,q] * w[p,q]
      out[c] = Z[c,p,q] where p == 4 and q == 4
      space_time_transform([c, p, q], [k, t], [[1,0,1],[0,1,5]], [p = t%5, q = t/5, c = k-q], check_time)`);
    expectEqual(lowerSpecification(specification, { coalesced: true }), convolution2d(16, 5, 5));
  });

  it("is one step for each line", () => {
    const text = `${URES(40)}
      tile(c, c_tile, c_in, 12)
      reorder(c_tile, c_in, q)
      gpu_blocks(c_tile)
      gpu_threads(c_in)
      store_in(x, shared)
      space_time_transform([c_in, q], [k, t], [[1,1],[0,1]], [q = t, c_in = k-q], check_time)`;
    expect(parseSpecification(text).steps).toEqual([
      { kind: "merge_ures", names: ["X", "W", "Z", "out"] },
      { kind: "tile", loop: "c", outer: "c_tile", inner: "c_in", size: 12 },
      { kind: "reorder", loops: ["c_tile", "c_in", "q"] },
      { kind: "gpu_blocks", loops: ["c_tile"] },
      { kind: "gpu_threads", loops: ["c_in"] },
      { kind: "store_in", name: "x", store: "shared" },
      {
        kind: "space_time_transform",
        source: ["c_in", "q"],
        destination: ["k", "t"],
        matrix: [
          [1, 1],
          [0, 1],
        ],
        reverse: [
          { loop: "q", value: parseExpr("t") },
          { loop: "c_in", value: parseExpr("k-q") },
        ],
        checkTime: true,
      },
    ]);
  });
});

describe("values that another variable reads some steps later", () => {
  const computation = stated(
    "y[i,j,k] += x[i-m,j,k] * v[m] --i 4 --j 3 --k 3 --m 2 --name differences --shape x=4x3x3",
  );
  const recurrence = parseRecurrence(`recurrence differences
    loops i 4, j 3, k 3
    A[i,j,k] = x[i,j,k]
    B[i,j,k] = v[0] * A[i,j,k] + select(i == 0, 0, v[1] * A[i-1,j,k])
    y[i,j,k] = B[i,j,k]`);
  const designs = [
    {
      allocation: [[0, 1, 0]],
      schedule: [
        [1, 0, 0],
        [0, 0, 1],
      ],
    },
    {
      allocation: [[1, 0, 0]],
      schedule: [
        [0, 1, 0],
        [1, 0, 1],
      ],
    },
    {
      allocation: [[1, 1, 0]],
      schedule: [
        [1, 0, 0],
        [0, 0, 1],
      ],
    },
    {
      allocation: [
        [0, 1, 0],
        [1, 0, 1],
      ],
      schedule: [[2, 0, 1]],
    },
  ];
  it.each(designs)("come from the register that still holds them: $allocation $schedule", (design) => {
    for (const coalesced of [false, true]) expectEqual(lowerDesign(recurrence, design, { coalesced }), computation);
  });
});

it("values loaded once and read a step later come from the register of that step", () => {
  const computation = stated("y[i,j,k] += x[j,k-m] * v[m] --i 3 --j 3 --k 4 --m 2 --name differences --shape x=3x4");
  const recurrence = parseRecurrence(`recurrence differences
    loops i 3, j 3, k 4
    A[i,j,k] = x[j,k]
    B[i,j,k] = v[0] * A[i,j,k] + select(k == 0, 0, v[1] * A[i,j,k-1])
    y[i,j,k] = B[i,j,k]`);
  const nest = lowerDesign(
    recurrence,
    {
      allocation: [[0, 1, 0]],
      schedule: [
        [1, 0, 0],
        [0, 0, 1],
      ],
    },
    { coalesced: true },
  );
  expect(printNest(nest)).toContain("A[t2,lane] = x[lane,t2]");
  expectEqual(nest, computation);
});

describe("larger domains", () => {
  const tiled = (more: string): string => `${URES(40)}
    tile(c, c_tile, c_in, 12)
    ${more}
    space_time_transform([c_in, q], [k, t], [[1,1],[0,1]])`;

  it("run tile by tile, with tiles overlapping by the halo and the last one cut off", () => {
    const nest = lowerSpecification(parseSpecification(tiled("gpu_blocks(c_tile)")), { coalesced: true });
    expectEqual(nest, convolution1d(40, 5));
    expect(printNest(nest)).toMatchInlineSnapshot(`
      "vectors X: 1 x f32[16]
      vectors W: 1 x f32[16]
      vectors Z: 1 x f32[16]
      for parallel c_tile in 0..4
        for lanes lane in 0..16
          X[0,lane] = x[12*c_tile+lane]
        for unrolled t in 0..5
          for lanes lane in 0..16
            W[0,lane] = w[t]
            Z[0,lane] = select(t == 0, 0, Z[0,lane-1]) + X[0,lane] * W[0,lane]
            out[12*c_tile+lane-t] = Z[0,lane] where t == 4 and lane >= t and lane < t+12 and lane < t-12*c_tile+40"
    `);
  });

  it("keep the part that a tile reads in a shared buffer", () => {
    for (const coalesced of [false, true]) {
      const nest = lowerSpecification(parseSpecification(tiled("store_in(x, shared)\nstore_in(w, shared)")), {
        coalesced,
      });
      expectEqual(nest, convolution1d(40, 5));
      expect(nest.scratch.map((s) => `${s.name} ${s.elements}`)).toEqual(["x_shared 16", "w_shared 5"]);
    }
  });

  it("tile a summed loop too, where points beyond the end add nothing", () => {
    const text = `${URES(16)}\ntile(q, q_tile, q_in, 2)\nspace_time_transform([c, q_in], [k, t], [[1,1],[0,1]])`;
    const nest = lowerSpecification(parseSpecification(text), { coalesced: true });
    expect(printNest(nest)).toContain("out[lane-t] += Z[0,lane]");
    expectEqual(nest, convolution1d(16, 5));
  });

  it("add nothing beyond the end even where the tensor is longer", () => {
    const windows = stated("out[c] += x[c+q] --c 6 --q 5 --name windows --shape x=20");
    const text = `recurrence windows
      loops c 6, q 5
      tensors x f32[20]
      Z[c,q] = select(q == 0, 0, Z[c,q-1]) + x[c+q]
      out[c] = Z[c,q] where q == 4
      tile(q, q_tile, q_in, 2)
      space_time_transform([c, q_in], [k, t], [[1,0],[0,1]])`;
    expectEqual(lowerSpecification(parseSpecification(text)), windows);
  });

  it("of stride 2 fill every PE once the filter is split by phase", () => {
    const text = URES(16)
      .replaceAll("x[c+q]", "x[2*c+q]")
      .replace("X[c+1,q-1]", "X[c+1,q-2]")
      .replace("q == 0 or", "q < 2 or");
    const split = `tile(q, q_outer, q_phase, 2)
      space_time_transform([c, q_outer, q_phase], [k, t1, t2], [[1,1,0],[0,0,1],[0,1,0]])`;
    for (const coalesced of [false, true]) {
      const nest = lowerSpecification(parseSpecification(`${text}\n${split}`), { coalesced });
      expect(nest.vectors?.map((v) => v.lanes)).toEqual([18, 18, 18]);
      expectEqual(nest, convolution1d(16, 5, 2));
    }
  });

  it("run a long time axis in blocks of as many steps as registers rotate over", () => {
    const computation = convolution1d(50, 5);
    const text = `${URES(50)}\nspace_time_transform([c, q], [k, t], [[0,1],[1,-1]])`;
    const nest = lowerSpecification(parseSpecification(text), { coalesced: true, unroll: 16 });
    expect(printNest(nest)).toContain("for t_block in 0..27\n  for unrolled t_step in 0..2");
    expectEqual(nest, computation);
    expectEqual(lowerSpecification(parseSpecification(text), { unroll: 16 }), computation);
  });

  it("add channels and filter rows over several runs", () => {
    const computation = stated(
      "out[k,p,q] += x[c,p+r,q+s] * w[k,c,r,s] --k 2 --c 3 --p 3 --q 17 --r 3 --s 3 --name conv2d",
    );
    for (const [allocation, schedule] of [
      [[[1, 1]], [[0, 1]]],
      [[[0, 1]], [[1, 1]]],
      [[[0, 1]], [[1, 0]]],
    ] as const)
      for (const coalesced of [false, true]) {
        const space = arraySpace(computation, { loops: ["q", "s"], lanes: 6 });
        const nest = lowerComputation(computation, space, { allocation, schedule }, { coalesced, parallel: ["p"] });
        expect(printNest(nest)).toContain("for parallel p in 0..3");
        expectEqual(nest, computation);
      }
  });

  it("run a product on a plane of lanes with its depth in tiles", () => {
    const computation = product(6, 5, 7);
    const space = arraySpace(computation, { loops: ["i", "j", "k"], lanes: 4 });
    const plane = {
      allocation: [
        [1, 0, 0],
        [0, 1, 0],
      ],
      schedule: [[1, 1, 1]],
    } as const;
    const nest = lowerComputation(computation, space, plane, { coalesced: true });
    expectEqual(nest, computation);
  });
});

/** What a refused action says. */
function refusal(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  throw new Error("accepted");
}

describe("a transform is refused", () => {
  const recurrence = parseRecurrence(URES(16).split("\n").slice(0, -1).join("\n"));
  const lowered = (text: string): string =>
    refusal(() => lowerSpecification(parseSpecification(`${URES(16)}\n${text}`)));

  it("when its rows have the wrong length", () => {
    expect(refusal(() => lowerDesign(recurrence, { allocation: [[1, 1, 0]], schedule: [[0, 1]] }))).toBe(
      "conv1d: allocation row (1,1,0) has 3 entries, the array has 2 loops (c, q)",
    );
  });

  it("when two points meet, naming both", () => {
    expect(refusal(() => lowerDesign(recurrence, { allocation: [[1, 1]], schedule: [[2, 2]] }))).toMatch(
      /^conv1d: points \(.*\) and \(.*\) of \(c,q\) both run on PE .* at step .*/,
    );
  });

  it("when a dependence that cannot be turned runs backwards", () => {
    const scan = parseRecurrence(
      "recurrence scan\nloops i 8, j 4\nY[i,j] = select(i == 0, 0, Y[i-1,j]) + x[i,j]\ny[i,j] = Y[i,j]",
    );
    expect(refusal(() => lowerDesign(scan, { allocation: [[0, 1]], schedule: [[-1, 0]] }))).toContain(
      "the dependence (1,0) of Y runs backwards in time",
    );
    expectEqual(
      lowerDesign(scan, { allocation: [[0, 1]], schedule: [[1, 0]] }, { coalesced: true }),
      stated("y[i,j] += x[k,j] where k <= i --i 8 --j 4 --k 8"),
    );
  });

  it("when its reverse does not invert, naming the first point that does not come back", () => {
    expect(lowered("space_time_transform([c, q], [k, t], [[1,1],[0,1]], [q = t, c = k+t])")).toBe(
      "conv1d: the reverse transform does not invert: point (0,1) runs at (k,t) = (1,1), which it takes to (2,1)",
    );
    expect(lowered("space_time_transform([c, q], [k, t], [[1,1],[0,1]], [q = t])")).toBe(
      "conv1d: the reverse transform does not give c",
    );
    expect(lowered("space_time_transform([c, q], [k, t], [[1,1],[0,1]], [c = k-q, q = t])")).toBe(
      'conv1d: reverse transform of c uses "q", which is not known there',
    );
  });

  it("when it has more PEs than there are lanes", () => {
    expect(refusal(() => lowerDesign(recurrence, { allocation: [[1, 1]], schedule: [[0, 1]] }, { lanes: 16 }))).toBe(
      "conv1d: the array has 20 PEs (20), and there are 16 lanes",
    );
    expectEqual(
      lowerDesign(recurrence, { allocation: [[1, 1]], schedule: [[0, 1]] }, { lanes: 32 }),
      convolution1d(16, 5),
    );
  });

  it("with its line, whatever empty lines stand before", () => {
    expect(refusal(() => parseSpecification("\n\nloops c 4, q 2\nX[c,q] = ]"))).toMatch(/^line 4: /);
  });

  it.each([
    ["space_time_transform([c, r], [k, t], [[1,1],[0,1]])", 'space_time_transform: no loop "r"'],
    ["space_time_transform([c, q], [k, t], [[1,1]])", "1 rows for 2 destination loops (k, t)"],
    ["space_time_transform([c, q], [k, t], [[1,1],[0,1,2]])", "row (0,1,2) has 3 entries for 2 source loops (c, q)"],
    ["space_time_transform([c, q], [k, l], [[1,1],[0,1]])", "no destination loop is time"],
    ["tile(r, a, b, 4)", 'tile: no loop "r"'],
    ["tile(c, q, b, 4)", "tile: q and b must be new names"],
    ["reorder(q, x)", 'reorder: no loop "x"'],
    ["store_in(Z, shared)", "variable Z lives in registers"],
    ["store_in(x, texture)", "store_in takes a name and one of registers, shared"],
    ["merge_ures(X, Z)", "merge_ures: W is defined but not merged"],
    ["gpu_block(c)", 'no primitive "gpu_block"'],
    ["tile(c, a, b, 4)", "no space_time_transform says where and when points run"],
    ["gpu_blocks(q)\ntile(c, a, b, 4)\nspace_time_transform([a, b], [k, t], [[0,1],[1,0]])", "loop q is summed over"],
  ])("as text: %s", (text, message) => {
    expect(lowered(text)).toContain(message);
  });
});
