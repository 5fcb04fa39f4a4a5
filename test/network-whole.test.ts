/** @file Integers of 64 bits: computed exactly where the range of each is known to stay below 2^53, and refused elsewhere. */

import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../abstraction/computation.ts";
import type { Graph } from "../network/graph.ts";
import type { ElementType } from "../network/value.ts";
import { wholeResult } from "../network/whole.ts";
import { networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { loadNetwork } from "../session/load-network.ts";
import { networkSubject, openGraph } from "../session/network.ts";
import { writePackage } from "../session/package-folder.ts";
import { proveNetwork } from "../session/prove-network.ts";
import { compilerHere } from "./support/here.ts";
import { made, onnx, refused } from "./support/networks.ts";
import { scratchFolder } from "./support/scratch.ts";

const X = [-7, -2147483648, 2147483647, 0, 5, 6];

/** A network of one node that reads the numbers x. */
const nodeOf = (node: string, type: ElementType = "s64") => onnx(`x:${type}[${X.length}]; ${node}`);

async function computed(graph: Graph, x: readonly number[] = X): Promise<number[]> {
  return (await made(graph, x)).map((y) => y + 0);
}

const times = (each: (x: bigint) => bigint, bits = 64): number[] =>
  X.map((x) => Number(BigInt.asIntN(bits, each(BigInt(x)))));

describe("s64 that is known when the network runs", () => {
  it.each([
    ["Add(x, x)", times((x) => 2n * x)],
    ["Sub(x, s64{1})", times((x) => x - 1n)],
    ["Mul(x, s64{2097152})", times((x) => x * 2n ** 21n)],
    ["Neg(x)", times((x) => -x)],
    ["Abs(x)", times((x) => (x < 0n ? -x : x))],
    ["Div(x, s64{3})", times((x) => x / 3n)],
    ["Div(x, s64{-2})", times((x) => x / -2n)],
    ["Mod(x, s64{3})", times((x) => ((x % 3n) + 3n) % 3n)],
    ["Mod<fmod=1>(x, s64{-3})", times((x) => x % 3n)],
    ["Clip(x, s64{0})", times((x) => (x < 0n ? 0n : x))],
    ["CumSum(x, s64{0})", X.map((_, i) => X.slice(0, i + 1).reduce((sum, x) => sum + x, 0))],
    ["ReduceSum<keepdims=0>(x)", [X.reduce((sum, x) => sum + x, 0)]],
    ["Cast<to=s32>(x)", X],
    ["Cast<to=u8>(x)", X.map((x) => x & 0xff)],
    ["Cast<to=f32>(x)", X.map(Math.fround)],
    ["Cast<to=bool>(x)", X.map((x) => (x === 0 ? 0 : 1))],
  ] as const)("is computed exactly: %s", async (node, expected) => {
    expect(await computed(nodeOf(node))).toEqual(expected);
  });

  it("is made of 32 bits", async () => {
    expect(await computed(nodeOf("Cast<to=s64>(x)", "s32"))).toEqual(X);
  });

  it("is truncated from floats towards 0, and cut to its low 32 bits", async () => {
    const floats = [-1.5, 1.5, -0.25, 3e9, -3e9, 2 ** 40 + 2 ** 17].map(Math.fround);
    const long = floats.map(Math.trunc).map((x) => x + 0);
    expect(await computed(nodeOf("Cast<to=s64>(x)", "f32"), floats)).toEqual(long);
    expect(await computed(nodeOf("Cast<to=s32>(Cast<to=s64>(x))", "f32"), floats)).toEqual(
      long.map((x) => Number(BigInt.asIntN(32, BigInt(x)))),
    );
  });

  it("is refused where it could pass 2^53, where a quotient could be by 0, and where it is no integer", () => {
    const beyond = "(X) would hold s64 elements beyond 2^53, or a quotient by what may be 0, which is not supported";
    for (const node of ["Mul(x, x)", "Mul(x, s64{8388608})", "Div(x, x)", "Pow(x, s64{2})", "Mean(x, x)"])
      expect(refused(nodeOf(node)).replace(/^.*?: \w+ would/, "(X) would"), node).toBe(beyond);
    expect(refused(nodeOf("Div(x, s64{0})"))).toBe("div0 (Div): it divides by 0");
  });
});

describe('the ends of s64, which a model may use for "to the end"', () => {
  const END = Number.MAX_SAFE_INTEGER;

  it("are refused as elements, and bound what is smaller", () => {
    expect(refused(onnx(`Where(mask:bool[2], ids:s64[2], s64{${END}})`))).toMatch(
      /^where0 \(Where\): .* would hold s64 elements beyond 2\^53/,
    );
    expect(refused(onnx(`far = s64{-${END}}; return Abs(x[1]), far`))).toBe(
      'output "far" of text would hold s64 elements beyond 2^53, which is not supported',
    );
    expect(refused(onnx(`Min(ids:s64[2], s64{${END}})`))).toBe("accepted");
  });
});

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
    const { plain, program } = openGraph(graph);
    const subject = networkSubject(program, new Map());
    writePackage(at, networkFiles(subject));
    const compiler = await compilerHere();
    const proof = await proveNetwork(at, partsOfNetwork(subject), compiler, { asRead: plain });
    expect(proof).toEqual({ status: "right", steps: program.steps.length });
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
    const { plain, program } = openGraph(graph);
    const subject = networkSubject(program, new Map());
    const at = join(folder, "quotients");
    writePackage(at, networkFiles(subject));
    const compiler = await compilerHere();
    const proof = await proveNetwork(at, partsOfNetwork(subject), compiler, { asRead: plain });
    expect(proof).toEqual({ status: "right", steps: program.steps.length });

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
