/** @file Integers of 64 bits in libraries, and the ranges that are known. What is computed and refused stands in test/golden/networks/integers.txt. */

import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { wholeResult } from "../../network/whole.ts";
import { loadNetwork } from "../../session/network/load-network.ts";
import { openGraph } from "../../session/network/network.ts";
import { onnx } from "../support/networks.ts";
import { expectProved } from "../support/proved-network.ts";
import { scratchFolder } from "../support/scratch.ts";

describe("the library of a network with s64 at its border", () => {
  const folder = scratchFolder();
  const at = join(folder, "ids");
  /** Rows by ids, ids counted on, a second name of the ids, a known list, and bool. */
  const graph = onnx(`
    table = [5,2]{0,1,2,3,4,5,6,7,8,9}
    known = s64{-1,1099511627776}
    rows = Gather(table, ids:s64[2,3])
    sums = CumSum(Mul(ids, Cast<to=s64>(mask:bool[2,3])), s64{1})
    same = Identity(ids)
    not = Not(mask)
    return rows, sums, same, known, not
  `);

  beforeAll(async () => {
    await expectProved(at, openGraph(graph));
  });

  it("takes and gives bigints from Node", async () => {
    const library = await loadNetwork(at, { trustImported: true });
    const given = { ids: BigInt64Array.of(0n, 1n, -1n, 4n, 2n, 3n), mask: Uint8Array.of(1, 1, 0, 0, 1, 1) };
    expect(library.run(given)).toEqual({
      rows: Float32Array.of(0, 1, 2, 3, 8, 9, 8, 9, 4, 5, 6, 7),
      sums: BigInt64Array.of(0n, 1n, 1n, 0n, 2n, 5n),
      same: given.ids,
      known: BigInt64Array.of(-1n, 2n ** 40n),
      not: Uint8Array.of(0, 0, 1, 1, 0, 0),
    });
    library.close();
  });

  it("refuses integers that do not fit 32 bits in the call that gives them", async () => {
    const library = await loadNetwork(at, { trustImported: true });
    const mask = new Uint8Array(6);
    const run = (id: bigint) => library.run({ ids: BigInt64Array.of(0n, 0n, 0n, 0n, 0n, id), mask });
    expect(Object.keys(run(-(2n ** 31n)))).toHaveLength(5);
    for (const id of [2n ** 31n, -(2n ** 31n) - 1n, 2n ** 63n - 1n])
      expect(() => run(id)).toThrow("a 64-bit integer is beyond 32 bits");
    library.close();
  });
});

describe("the library of a network that divides s64", () => {
  const folder = scratchFolder();
  const divisors = { negative: [-1, -2, -3, -7, -64, -128], positive: [1, 2, 3, 7, 64, 128] };

  it("rounds towards 0 for divisors of either sign, as its proof checks", async () => {
    const graph = onnx(`
      negative = Div(x:s64[4,6], s64{${divisors.negative}})
      positive = Div(x, s64{${divisors.positive}})
      return negative, positive
    `);
    const at = join(folder, "quotients");
    await expectProved(at, openGraph(graph));

    const library = await loadNetwork(at, { trustImported: true });
    const given = [-7n, 7n, -(2n ** 31n), 2n ** 31n - 1n].flatMap((row) => Array.from({ length: 6 }, () => row));
    const by = (all: readonly number[]): BigInt64Array =>
      BigInt64Array.from(given, (a, i) => a / BigInt(all[i % all.length] ?? 1));
    expect(library.run({ x: BigInt64Array.from(given) })).toEqual({
      negative: by(divisors.negative),
      positive: by(divisors.positive),
    });
    library.close();
  });
});

describe("the range of what is read", () => {
  const x = { name: "x", type: "s64", shape: [4, 4], range: [5, 9] } as const;
  it.each([
    ["x[i,j]", [5, 9]],
    ["x[clamp(i-1),j]", [5, 9]],
    ["x[i-1,j]", [0, 9]],
    ["x[3-i,j]", [0, 9]],
    ["2*x[i,j]-x[j,i]", [1, 13]],
  ] as const)("holds the 0 beyond a tensor's end where one may be read: %s", (value, range) => {
    const tensors = { x: { dtype: "f64", shape: [4, 4] } } as const;
    const computation = defineComputation({ equation: `y[i,j] = ${value}`, extents: { i: 4, j: 4 }, tensors });
    expect(wholeResult(computation, { x })).toEqual(range);
  });
});
