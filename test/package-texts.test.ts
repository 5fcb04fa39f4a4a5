/** @file What the files of packages say about their kernels and inputs, without building them. */

import { describe, expect, it } from "vitest";
import type { Computation } from "../abstraction/computation.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { GraphBuilder } from "../network/builder.ts";
import { lowerGraph } from "../network/lower.ts";
import { cudaPackageFiles } from "../package/cuda/index.ts";
import { librarySources } from "../package/index.ts";
import { networkFiles } from "../package/network/index.ts";
import { generate } from "../session/mapping-kind.ts";
import { networkSubject } from "../session/network.ts";
import { engineMatmul } from "./support/cuda-packages.ts";
import { computationOf, plainCandidate } from "./support/packages.ts";

describe("a kernel's library", () => {
  /** The tests for the extensions of a kernel on one instruction. */
  const testsFor = (computation: Computation, intrinsic: string): readonly string[] => {
    const plain = plainCandidate(computation, intrinsicsNamed(intrinsic));
    if (!plain) throw new Error(`${computation.name} does not map onto ${intrinsic}`);
    const tuned = generate(plain.candidate, plain.mapping);
    const files = librarySources({ name: "product", computation, tuned, threads: 1, provenance: [] });
    const library = `${files.get("product.cpp")}`;
    return [...library.matchAll(/if \(!\((.*)\)\) add\("(.*)"\);/g)].map(([, test, name]) => `${name}: ${test}`);
  };

  it("asks the system for tiles where its extension is one of tiles, and only there", () => {
    const tests = testsFor(computationOf("matmul", "u8s8", { m: 16, n: 16, k: 64 }), "amx.tdpbusd");
    expect(tests.filter((test) => test.includes("tiles_allowed"))).toEqual([
      "amx-tile: bit(7, 0, EDX, 24) && tiles_allowed()",
    ]);
    expect(tests).toContain("amx-int8: bit(7, 0, EDX, 25)");
  });
});

describe("a package in CUDA", () => {
  it("lays out its inputs for PyTorch, and not its output", () => {
    const readme = `${cudaPackageFiles(engineMatmul()).get("README.md")}`;
    const laid = [...readme.matchAll(/^(\w+) = torch_ext\.laid_out\("(\w+)", (\w+)\)$/gm)].map(([, ...words]) => words);
    expect(laid).toEqual([
      ["a", "a", "a"],
      ["b", "b", "b"],
    ]);
  });
});

describe("the header of a network", () => {
  const filesOf = (type: "f32" | "s64", { threads = 1, isOutputWide = false } = {}) => {
    const net = new GraphBuilder("one");
    const x = net.input("x", [4], type);
    net.output(isOutputWide ? net.node("Cast", [x], { to: 7 }) : net.node("Add", [x, x]));
    return networkFiles({
      ...networkSubject(lowerGraph(net.graph), new Map(), { name: "one", threads }),
      provenance: [],
    });
  };
  const headerOf = (...given: Parameters<typeof filesOf>): string => `${filesOf(...given).get("one.h")}`;

  it("says how many threads a call runs on, where there are several", () => {
    expect(headerOf("f32", { threads: 2 })).toMatch(/runs on 2 threads: the caller's, and 1 of the network's/);
    expect(headerOf("f32")).not.toMatch(/A call runs on/);
    expect(networkSubject(lowerGraph(new GraphBuilder("none").graph), new Map()).threads).toBe(1);
  });

  it("has code that widens halves only where there are such weights", () => {
    expect(`${filesOf("f32").get("one.cpp")}`).not.toContain("widen_halves");
  });

  it("says what numbers an input of int64_t may hold, where there is one", () => {
    expect(headerOf("s64")).toContain("Inputs of int64_t hold numbers of 32 bits");
    expect(headerOf("f32")).not.toContain("Inputs of int64_t");
    expect(headerOf("f32", { isOutputWide: true })).not.toContain("Inputs of int64_t");
  });
});
