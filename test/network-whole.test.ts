/** @file Integers of 64 bits: computed exactly where the range of each is known to stay below 2^53, and refused elsewhere. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import { GraphBuilder } from "../network/builder.ts";
import type { Attribute, Graph } from "../network/graph.ts";
import { lowerGraph } from "../network/lower.ts";
import { runNetwork } from "../network/run.ts";
import type { ElementType } from "../network/value.ts";
import { networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { findCompiler } from "../runtime/compiler.ts";
import { loadNetwork } from "../session/load-network.ts";
import { networkSubject, openGraph } from "../session/network.ts";
import { writePackage } from "../session/package-folder.ts";
import { proveNetwork } from "../session/prove-network.ts";

const S32 = 6;
const F32 = 1;
const U8 = 2;
const S64 = 7;
const BOOL = 9;

interface One {
  readonly op: string;
  readonly attributes?: Readonly<Record<string, Attribute>>;
  /** Known numbers of s64 that are the second input. */
  readonly second?: readonly number[];
  /** Whether the input is the second input too. */
  readonly twice?: boolean;
  readonly type?: ElementType;
}

const X = [-7, -2147483648, 2147483647, 0, 5, 6];

function graphOf({ op, attributes = {}, second, twice = false, type = "s64" }: One): Graph {
  const net = new GraphBuilder("one");
  const x = net.input("x", [X.length], type);
  const other = second ? [net.whole("second", second)] : twice ? [x] : [];
  net.output(net.node(op, [x, ...other], attributes));
  return net.graph;
}

async function computed(one: One, x: readonly number[] = X): Promise<number[]> {
  const outputs = await runNetwork(lowerGraph(graphOf(one)), { x });
  return Array.from([...outputs.values()][0] ?? [], (y) => y + 0);
}

function refusalOf(graph: Graph): string {
  try {
    lowerGraph(graph);
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
  return "accepted";
}

const times = (each: (x: bigint) => bigint, bits = 64): number[] =>
  X.map((x) => Number(BigInt.asIntN(bits, each(BigInt(x)))));

describe("s64 that is known when the network runs", () => {
  it.each([
    [{ op: "Add", twice: true }, times((x) => 2n * x)],
    [{ op: "Sub", second: [1] }, times((x) => x - 1n)],
    [{ op: "Mul", second: [2 ** 21] }, times((x) => x * 2n ** 21n)],
    [{ op: "Neg" }, times((x) => -x)],
    [{ op: "Abs" }, times((x) => (x < 0n ? -x : x))],
    [{ op: "Div", second: [3] }, times((x) => x / 3n)],
    [{ op: "Div", second: [-2] }, times((x) => x / -2n)],
    [{ op: "Mod", second: [3] }, times((x) => ((x % 3n) + 3n) % 3n)],
    [{ op: "Mod", second: [-3], attributes: { fmod: 1 } }, times((x) => x % 3n)],
    [{ op: "Clip", second: [0] }, times((x) => (x < 0n ? 0n : x))],
    [{ op: "CumSum", second: [0] }, X.map((_, i) => X.slice(0, i + 1).reduce((sum, x) => sum + x, 0))],
    [{ op: "ReduceSum", attributes: { keepdims: 0 } }, [X.reduce((sum, x) => sum + x, 0)]],
    [{ op: "Cast", attributes: { to: S32 } }, X],
    [{ op: "Cast", attributes: { to: U8 } }, X.map((x) => x & 0xff)],
    [{ op: "Cast", attributes: { to: F32 } }, X.map(Math.fround)],
    [{ op: "Cast", attributes: { to: BOOL } }, X.map((x) => (x === 0 ? 0 : 1))],
    [{ op: "Cast", attributes: { to: S64 }, type: "s32" }, X],
  ] as const)("is computed exactly: %j", async (one, expected) => {
    expect(await computed(one)).toEqual(expected);
  });

  it("is truncated from floats towards 0, and cut to its low 32 bits", async () => {
    const floats = [-1.5, 1.5, -0.25, 3e9, -3e9, 2 ** 40 + 2 ** 17].map(Math.fround);
    const long = floats.map(Math.trunc).map((x) => x + 0);
    expect(await computed({ op: "Cast", attributes: { to: S64 }, type: "f32" }, floats)).toEqual(long);
    const net = new GraphBuilder("low");
    const whole = net.node("Cast", [net.input("x", [6])], { to: S64 });
    net.output(net.node("Cast", [whole], { to: S32 }));
    const low = await runNetwork(lowerGraph(net.graph), { x: floats });
    expect(Array.from([...low.values()][0] ?? [])).toEqual(long.map((x) => Number(BigInt.asIntN(32, BigInt(x)))));
  });

  it("is refused where it could pass 2^53, where a quotient could be by 0, and where it is no integer", () => {
    const beyond = "(X) would hold s64 elements beyond 2^53, or a quotient by what may be 0, which is not supported";
    const told = (one: One): string => refusalOf(graphOf(one)).replace(/^.*?: \w+ would/, "(X) would");
    expect(told({ op: "Mul", twice: true })).toBe(beyond);
    expect(told({ op: "Mul", second: [2 ** 23] })).toBe(beyond);
    expect(told({ op: "Div", twice: true })).toBe(beyond);
    expect(told({ op: "Pow", second: [2] })).toBe(beyond);
    expect(told({ op: "Mean", twice: true })).toBe(beyond);
    expect(refusalOf(graphOf({ op: "Div", second: [0] }))).toBe("div0 (Div): it divides by 0");
  });
});

describe('the ends of s64, which a model may use for "to the end"', () => {
  const END = Number.MAX_SAFE_INTEGER;

  it("are refused as elements, and bound what is smaller", () => {
    const net = new GraphBuilder("filled");
    const [ids, mask] = [net.input("ids", [2], "s64"), net.input("mask", [2], "bool")];
    net.output(net.node("Where", [mask, ids, net.whole("far", [END])]));
    expect(refusalOf(net.graph)).toMatch(/^where0 \(Where\): .* would hold s64 elements beyond 2\^53/);
    const known = new GraphBuilder("known");
    known.output(known.node("Abs", [known.input("x", [1])]));
    known.output(known.whole("far", [-END]));
    expect(refusalOf(known.graph)).toBe(
      'output "far" of known would hold s64 elements beyond 2^53, which is not supported',
    );
    const bounded = new GraphBuilder("bounded");
    bounded.output(bounded.node("Min", [bounded.input("ids", [2], "s64"), bounded.whole("far", [END])]));
    expect(refusalOf(bounded.graph)).toBe("accepted");
  });
});

describe("the library of a network with s64 at its border", () => {
  const folder = mkdtempSync(join(tmpdir(), "automap-whole-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const at = join(folder, "ids");
  /** Rows by ids, ids counted on, a second name of the ids, a known list, and bool. */
  const net = new GraphBuilder("ids");
  const ids = net.input("ids", [2, 3], "s64");
  const mask = net.input("mask", [2, 3], "bool");
  const table = net.constant(
    "table",
    [5, 2],
    Float32Array.from({ length: 10 }, (_, i) => i),
  );
  net.output(net.node("Gather", [table, ids], {}, "rows"));
  net.output(
    net.node(
      "CumSum",
      [net.node("Mul", [ids, net.node("Cast", [mask], { to: S64 })]), net.whole("one", [1])],
      {},
      "sums",
    ),
  );
  net.output(net.node("Identity", [ids], {}, "same"));
  net.output(net.whole("known", [-1, 2 ** 40]));
  net.output(net.node("Not", [mask], {}, "not"));

  beforeAll(async () => {
    const { plain, program } = openGraph(net.graph);
    const subject = networkSubject(program, new Map());
    writePackage(at, networkFiles(subject));
    const compiler = await findCompiler();
    if (compiler.status === "environment") throw new Error(compiler.what);
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
      expect(() => run(id)).toThrow("ids: a 64-bit integer is beyond 32 bits");
    library.close();
  });
});

describe("the library of a network that divides s64", () => {
  const folder = mkdtempSync(join(tmpdir(), "automap-quotient-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  const divisors = { negative: [-1, -2, -3, -7, -64, -128], positive: [1, 2, 3, 7, 64, 128] };

  it("rounds towards 0 for divisors of either sign, as its proof checks", async () => {
    const net = new GraphBuilder("quotients");
    const x = net.input("x", [4, 6], "s64");
    for (const [name, by] of Object.entries(divisors))
      net.output(net.node("Div", [x, net.whole(`${name}s`, by)], {}, name));
    const { plain, program } = openGraph(net.graph);
    const subject = networkSubject(program, new Map());
    const at = join(folder, "quotients");
    writePackage(at, networkFiles(subject));
    const compiler = await findCompiler();
    if (compiler.status === "environment") throw new Error(compiler.what);
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
