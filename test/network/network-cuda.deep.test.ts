/**
 * @file The library of a network on a GPU: on the emulated device every step gives what its equation says, and nvcc
 * builds all of it.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import type { Graph } from "../../network/graph.ts";
import { bertBase } from "../../network/models/bert.ts";
import { SeededLayers } from "../../network/models/layers.ts";
import { type NetworkParts, networkBuildOf, networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { cudaJudge, type OutputJudge } from "../../runtime/run/cuda-judge.ts";
import { choicesOf, inHalfOnGpu, networkSubject, openGraph } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { emulatedNvcc } from "../support/emulated-nvcc.ts";
import { NVCC } from "../support/grid-kernels.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce, keptProgram } from "../support/kept-compiler.ts";
import { MOVES, onnx } from "../support/networks.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";

compileOnce();
const H100 = nvidiaTarget("h100");
const folder = scratchFolder();
let compiler: Compiler;
let nvcc: string;
beforeAll(async () => {
  compiler = await compilerHere();
  nvcc = emulatedNvcc(folder);
});

/** A residual block, pooling, a product and a softmax. */
function block(): Graph {
  const net = new SeededLayers("block", 7);
  const x = net.input("image", [1, 16, 6, 6]);
  const pooled = net.node("MaxPool", [x], { kernel_shape: [3, 3], strides: [1, 1], pads: [1, 1, 1, 1] });
  const a = net.convolved(pooled, "a", { from: 16, to: 16, kernel: 3, relu: false });
  const sum = net.node("Relu", [net.node("Add", [a, pooled])]);
  net.output(net.node("Softmax", [net.classified(sum, 16, 40)], { axis: 1 }));
  return net.graph;
}

/** A masked softmax and a layer norm, of whose values another step reads one. */
function norms(): Graph {
  const net = new SeededLayers("norms", 9);
  const x = net.input("x", [2, 3, 5, 72]);
  const masked = net.node("Add", [x, net.input("mask", [2, 1, 1, 72])]);
  const soft = net.node("Softmax", [masked], { axis: -1 });
  const gains = [net.drawn("gain", [72], 0.2, 1), net.drawn("offset", [72], 0.1)];
  net.output(net.node("LayerNormalization", [net.node("Add", [soft, masked]), ...gains]));
  net.output(net.node("Transpose", [soft], { perm: [0, 2, 1, 3] }));
  return net.graph;
}

/** A mask of infinities on a sum, and the largest of each row. */
const MASKED: Graph = {
  ...onnx(`
    sum = Add(x[3,4], {0,0,-inf,1})
    return sum, ReduceMax<keepdims=0>(sum, s64{1})
  `),
  name: "masked",
};

function emitted(graph: Graph, name: string): { at: string; parts: NetworkParts } {
  const { program } = inHalfOnGpu(openGraph(graph));
  const subject = networkSubject(program, choicesOf(program, { machine: H100 }), { gpu: H100 });
  const at = join(folder, name);
  writePackage(at, networkFiles(subject));
  return { at, parts: partsOfNetwork(subject) };
}

/** Steps that are computed with a later one of their rows. */
const TOGETHER: Readonly<Record<string, number>> = {
  "a residual block": 3,
  "moves alone": 1,
  norms: 10,
  "heads of attention": 12,
};

/** A judge on the emulated device, and what it says of each step. */
async function judgeOf(): Promise<{ readonly judge: OutputJudge; readonly judged: string[] }> {
  const found = await cudaJudge({ emulated: true, workdir: join(folder, "judge") });
  if ("status" in found) throw new Error(found.what);
  const judged: string[] = [];
  return {
    judge: async (outputs) => {
      const all = await found(outputs);
      judged.push(...all.map((one) => (one.status === "unjudged" ? one.because : one.status)));
      return all;
    },
    judged,
  };
}

describe("the library of a network on a GPU", () => {
  it.each([
    ["a residual block", block],
    ["moves alone", () => MOVES],
    ["norms", norms],
    ["heads of attention", () => bertBase({ tokens: 16, layers: 1, hidden: 32, heads: 2, vocabulary: 16 })],
  ] as const)("computes its equations on the emulated device: %s", async (name, build) => {
    const { at, parts } = emitted(build(), name.replaceAll(" ", "-"));
    const { judge, judged } = await judgeOf();
    const proof = await proveNetwork(at, parts, compiler, { builder: { command: [nvcc] }, judge });
    expect(proof).toEqual({ status: "right", steps: parts.steps.length });
    expect(judged).toEqual(parts.steps.map(() => "right"));
    expect(parts.kernels.map(({ tuned }) => tuned?.language)).toEqual(parts.kernels.map(() => "cuda"));
    const together = parts.steps.filter(({ kernel }) => kernel === undefined).length;
    expect(together).toBe(TOGETHER[name]);
  });

  it("replays its graph on the current input, and names a wrong step", async () => {
    const { at, parts } = emitted(MOVES, "again");
    const main = join(at, "moves_main.cu");
    // A second run of other numbers behind the first.
    const twice = `if (int code = moves_run_host(net, $1)) return failed("run", code);\n  ((uint16_t*)data[0])[5] ^= 0x4000;\n  `;
    writeFileSync(
      main,
      readFileSync(main, "utf8").replace(
        /if \(int code = moves_run_host\(net, (.*)\)\) return/,
        (all, given) => `${twice.replace("$1", given)}${all}`,
      ),
    );
    // The outputs belong to the changed input, so no step matches the first input.
    const wrong = { status: "wrong", step: expect.stringContaining("Transpose") };
    const builder = { command: [nvcc] };
    expect(await proveNetwork(at, parts, compiler, { builder })).toMatchObject(wrong);
    const { judge, judged } = await judgeOf();
    expect(await proveNetwork(at, parts, compiler, { builder, judge })).toMatchObject({
      ...wrong,
      said: expect.stringMatching(/^1 elements differ: the one at 7 in memory is /),
    });
    expect(judged).toContain("wrong");
  });

  it("leaves infinite answers to the CPU, which demands exactly them", async () => {
    const { at, parts } = emitted(MASKED, "masked");
    const builder = { command: [nvcc] };
    const { judge, judged } = await judgeOf();
    expect(await proveNetwork(at, parts, compiler, { builder, judge })).toMatchObject({ status: "right" });
    expect(judged[0]).toBe("3 elements have no bounds on a device: infinities and NaN among them");
    const main = join(at, "masked_main.cu");
    const text = readFileSync(main, "utf8");
    // An infinity more in the input makes one masked element NaN and no other element different.
    writeFileSync(main, text.replace(/(if \(int code = masked_run_host)/, "((uint16_t*)data[0])[6] = 0x7c00;\n  $1"));
    expect(await proveNetwork(at, parts, compiler, { builder, judge })).toMatchObject({
      status: "wrong",
      said: "element 6 is NaN, and its equation gives -Infinity within 0",
    });
  });

  it("does not call an output right to which a reference gives no bounds", async () => {
    const { judge } = await judgeOf();
    const product = defineComputation({
      equation: "out[m] += a[m,k] * b[k]",
      extents: { m: 3, k: 2 },
      tensors: { a: "f32", b: "f32" },
    });
    const [row, vector, output] = ["row", "vector", "output"].map((name) => join(folder, `${name}.bin`));
    const most = Number.POSITIVE_INFINITY;
    const least = Number.NEGATIVE_INFINITY;
    writeFileSync(row ?? "", new Uint8Array(Float32Array.of(1, 2, most, 1, most, least).buffer));
    writeFileSync(vector ?? "", new Uint8Array(Float32Array.of(1, 1).buffer));
    const judgedAs = async (...made: readonly number[]) => {
      writeFileSync(output ?? "", new Uint8Array(Float32Array.from(made).buffer));
      return (await judge([{ computation: product, output: output ?? "", inputs: [row ?? "", vector ?? ""] }]))[0];
    };
    const unjudged = { status: "unjudged", because: expect.stringMatching(/^2 elements have no bounds/) };
    expect(await judgedAs(3, 17, 18)).toEqual(unjudged);
    expect(await judgedAs(3, most, Number.NaN)).toEqual(unjudged);
    expect(await judgedAs(4, most, Number.NaN)).toMatchObject({ status: "wrong" });
  });

  it("has a PyTorch module, a header and a script that agree on its tensors", () => {
    const { at, parts } = emitted(MOVES, "files");
    const text = (name: string): string => readFileSync(join(at, name), "utf8");
    expect(text("moves.h")).toContain(
      "int moves_run(moves_net* net, const uint16_t* x, uint16_t* reducemean3, uint16_t* reshape4, uint16_t* identity5, cudaStream_t stream);",
    );
    expect(text("moves_torch.py")).toContain('["x","float16",[2,3,4]],');
    expect(text("build.sh").match(/-c moves\S*\.cu/g)).toHaveLength(parts.kernels.length + 1);
    expect(networkBuildOf(parts).library.flags).toContain("-gencode=arch=compute_90a,code=sm_90a");
  });

  const python = findProgram("python3");
  it.skipIf(python === undefined)(`is Python${python ? "" : " (skipped: no python3)"}`, async () => {
    const { at } = emitted(MOVES, "python");
    const check = "import ast, sys\nast.parse(open(sys.argv[1]).read())";
    const run = await runChild([python ?? "", "-c", check, join(at, "moves_torch.py")], { timeLimitMs: 900_000 });
    expect(run).toMatchObject({ status: "ok" });
  });

  it.skipIf(NVCC === undefined)(`is compiled by nvcc${NVCC === undefined ? " (skipped: no nvcc)" : ""}`, async () => {
    const { at, parts } = emitted(MOVES, "taken");
    const { objects, main } = networkBuildOf(parts);
    const own = objects.find(({ sources }) => sources[0] === "moves.cu");
    const compiled = [own?.flags ?? [], main.flags].map((flags, i) => {
      const source = i === 0 ? "moves.cu" : "moves_main.cu";
      const words = [...flags.filter((flag) => flag !== "-c"), "-c", source, "-o", `${source}.o`];
      return runChild([keptProgram(NVCC ?? ""), ...words], { timeLimitMs: 900_000, cwd: at });
    });
    for (const run of await Promise.all(compiled)) expect([run.status, run.stderr]).toEqual(["ok", ""]);
  });

  const isBuilt = NVCC !== undefined && inFull(true, false);
  it.skipIf(!isBuilt)(`is built by its script${isBuilt ? "" : " (skipped: no nvcc, or AUTOMAP_SLOW)"}`, async () => {
    const { at } = emitted(MOVES, "script");
    expect(await runChild(["sh", join(at, "build.sh")], { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
    const files = ["in", "mean", "shaped", "same"].map((name) => join(at, name));
    writeFileSync(files[0] ?? "", new Uint8Array(48));
    const ran = await runChild([join(at, "build/moves_main"), ...files], { timeLimitMs: 900_000 });
    expect([0, 6]).toContain(ran.status === "failed" ? ran.exitCode : 0);
  });
});
