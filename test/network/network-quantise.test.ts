/** @file Quantised networks: layers on integers give the results of real numbers, each as one step of u8 and s8. */

import { describe, expect, it } from "vitest";
import { type Computation, computationKey, equationText } from "../../abstraction/computation.ts";
import { number, rewrite } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { rebuilt } from "../../abstraction/rebuild.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { fuse } from "../../network/fuse.ts";
import { liftedNumbers } from "../../network/lift-numbers.ts";
import { lowerGraph } from "../../network/lower.ts";
import { MODELS } from "../../network/models/index.ts";
import { mobilenetV1 } from "../../network/models/mobilenet.ts";
import type { NumberArray } from "../../network/numbers.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { quantise } from "../../network/quantise.ts";
import { runNetwork } from "../../network/run.ts";
import { openGraph } from "../../session/network/network.ts";
import { onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";
import { block, rangesOf } from "../support/quantised.ts";

describe("a quantised network", () => {
  it("has one step of u8 and s8 for each layer, and outputs near the original ones", async () => {
    const graph = block();
    const random = seededRandom(3);
    const inputs = { x: Float32Array.from({ length: 256 }, () => 4 * random() - 2) };
    const whole = quantise(graph, await rangesOf(graph, inputs));
    const program = fuse(lowerGraph(whole));
    expect(
      program.steps.map(
        ({ ops, computation }) => `${ops.join(" ")}: ${equationText(computation).replaceAll(/\d+\.\d+/g, "S")}`,
      ),
    ).toMatchInlineSnapshot(`
      [
        "QuantizeLinear: y[i0,i1,i2,i3] = sat_u8(round(x0[i0,i1,i2,i3] / S) + f32(128))",
        "Conv: y[i0,i1,i2,i3] = select(i2 >= 1 and i2 < 9 and i3 >= 1 and i3 < 9, x[i0,i1,i2-1,i3-1], 128)",
        "Conv QuantizeLinear: out[n,k,p,q] += s32(in[n,c,p*2+r,q*2+s]) * s32(w[k,c,r,s]); res[n,k,p,q] = sat_u8(round(f32(out[n,k,p,q] + e0[k]) * e1[k]) + e2[])",
        "Conv Relu QuantizeLinear: out[n,k,p,q] += s32(in[n,c,p*2+r,q*2+s]) * s32(w[k,c,r,s]); res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q] + e0[k]) * e1[k], 0)))",
        "Conv QuantizeLinear Add Relu QuantizeLinear: out[n,c+m,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[c+m,r,s]); res[n,d1,p,q] = sat_u8(round(max(f32(s32(sat_u8(round(f32(out[n,d1,p,q] + e0[d1]) * e1[d1]) + e3[])) - e4[]) * e5[] + f32(s32(e2[n,d1,p,q]) - e6[]) * e7[], 0)))",
        "MaxPool: y[n,c,p,q] max= x[n,c,p*2+r-1,q*2+s-1]",
        "GlobalAveragePool: y[i0,i1] += s32(x[i0,i1,i2,i3])",
        "GlobalAveragePool QuantizeLinear: y[i0,i1,i2,i3] = sat_u8(round(f32(x0[i0,i1,i2,i3]) * S / 4 / S))",
        "Gemm: out[m,n] += s32(a[m,k]) * s32(b[k,n]); res[m,n] = f32(out[m,n] + e0[n]) * e1[n]",
      ]
    `);
    const [before] = (await runNetwork(lowerGraph(graph), inputs)).values();
    const [after] = (await runNetwork(program, inputs)).values();
    const most = Math.max(...Array.from(before ?? [], Math.abs));
    for (let i = 0; i < 5; i++) expect(Math.abs((after?.[i] ?? 0) - (before?.[i] ?? 0))).toBeLessThan(0.03 * most);
  });

  it("has weights within half a step of the real ones, and the largest of each filter at the end of the range", () => {
    const graph = onnx("w = [4,2]{1,-0.3,0.7,0.02,-5,3.3,0,0}; fc = Gemm<transB=1>(x[1,2], w); return fc");
    const values = Array.from(graph.constants.get("w")?.values ?? [], Number);
    const { constants } = quantise(graph, { x: [-1, 1] });
    const whole = Array.from(constants.get("w.s8")?.values ?? [], Number);
    const steps = Array.from(constants.get("w.scale")?.values ?? [], Number);
    expect(steps).toHaveLength(4);
    for (const [i, weight] of values.entries()) {
      const step = steps[Math.floor(i / 2)] ?? Number.NaN;
      expect(Math.abs((whole[i] ?? Number.NaN) * step - weight)).toBeLessThanOrEqual(step * 0.5001);
    }
    expect([0, 1, 2].map((k) => Math.max(...whole.slice(2 * k, 2 * k + 2).map(Math.abs)))).toEqual([127, 127, 127]);
  });

  it("is read back from ONNX unchanged", async () => {
    const graph = quantise(block(), await rangesOf(block(), { x: new Float32Array(256).fill(1) }));
    const again = parseOnnx(onnxBytes(graph), "block.onnx", ".");
    const x = Float32Array.from({ length: 256 }, (_, i) => (i % 7) / 3 - 1);
    expect(await runNetwork(lowerGraph(again), { x })).toEqual(await runNetwork(lowerGraph(graph), { x }));
  });

  it.each(["shared weights", "an output before its norm", "a factor of the bias"])(
    "gives outputs near the original ones: %s",
    async (kind) => {
      const returned = { "shared weights": "again, ", "an output before its norm": "fc, " }[kind] ?? "";
      const graph = onnx(`
        w = [2,2]{1,0.5,-1,0.25}
        b = {0.5,0.5}
        fc = Gemm<transB=1, beta=${kind === "a factor of the bias" ? 0.5 : 1}>(x[4,2], w, b)
        ${kind === "shared weights" ? "again = Gemm<transB=1>(x, w, b)" : ""}
        norm = BatchNormalization(fc, {2,2}, {1,1}, {0.5,0.5}, {4,4})
        return ${returned}norm
      `);
      const inputs = { x: Float32Array.from({ length: 8 }, (_, i) => (i - 3) / 2) };
      const before = [...(await runNetwork(lowerGraph(graph), inputs)).values()];
      const after = [...(await runNetwork(fuse(lowerGraph(quantise(graph, { x: [-2, 2.5] }))), inputs)).values()];
      expect(after).toHaveLength(before.length);
      for (const [i, elements] of before.entries())
        for (const [at, element] of Array.from(elements).entries())
          expect(Math.abs((after[i]?.[at] ?? Number.NaN) - Number(element))).toBeLessThan(0.05);
    },
  );

  it("refuses weights stored by columns, and ranges that are not finite", () => {
    expect(() => quantise(onnx("fc = Gemm(x[1,4], [4,2]{0})"), { x: [0, 1] })).toThrow(
      "fc (Gemm): weights that lie by columns are not quantised",
    );
    expect(() => quantise(mobilenetV1({ size: 32 }), { image: [0, Number.NaN] })).toThrow(
      "the range of image, 0 to NaN, is none",
    );
    // Each end is a number, and their distance is none.
    expect(() => quantise(mobilenetV1({ size: 32 }), { image: [-1e308, 1e308] })).toThrow(
      "the range of image, -1e+308 to 1e+308, is none",
    );
  });

  it.each(["resnet18-u8s8", "mobilenet-v1-u8s8"])("is built by name: %s", (name) => {
    const build = MODELS[name];
    if (!build) throw new Error("no such network");
    const { program } = openGraph(build());
    const types = (step: (typeof program.steps)[number]): string =>
      Object.values(step.computation.tensors)
        .map(({ dtype }) => dtype)
        .join();
    const layers = program.steps.filter(({ ops }) => ops.includes("Conv") && ops.length > 1);
    expect(layers.length).toBe(name.startsWith("resnet18") ? 20 : 27);
    for (const layer of layers) expect(types(layer)).toMatch(/^u8,u8,s8,s32,f32(,f32|,f32,s32,f32,u8,s32,f32)?$/);
  });
});

/** Two layers and what is added to the second, all of it under scales and zero points of its own. */
function residual(seed: number): GraphBuilder {
  const random = seededRandom(seed);
  const net = new GraphBuilder("residual");
  const scalar = (name: string, value: number): string => net.constant(name, [], Float32Array.of(value));
  const shown = (of: string, zero: number): string => {
    const parameters = [
      scalar(`${of}.scale`, 0.1 + random()),
      net.constant(`${of}.zero`, [], Uint8Array.of(zero), "u8"),
    ];
    const stored = net.node("QuantizeLinear", [of, ...parameters], {}, `${of}.q`);
    return net.node("DequantizeLinear", [stored, ...parameters], {}, `${of}.d`);
  };
  const layer = (x: string, name: string): string => {
    const w = net.constant(
      `${name}.w`,
      [8, 8],
      new Int8Array(64).map(() => randomInteger(random, -127, 127)),
      "s8",
    );
    const weights = net.node("DequantizeLinear", [w, scalar(`${name}.w.scale`, 0.01)], {}, `${name}.w.d`);
    return net.node("MatMul", [x, weights], {}, name);
  };
  const x = shown(net.input("x", [4, 8]), randomInteger(random, 0, 255));
  const first = shown(layer(x, "first"), randomInteger(random, 1, 255));
  const second = shown(layer(first, "second"), randomInteger(random, 1, 255));
  net.output(shown(net.node("Add", [second, first], {}, "sum"), randomInteger(random, 1, 255)));
  return net;
}

describe("scales and zero points of layers", () => {
  const seeds = [1, 2, 3];

  it("are read as constants: layers that differ only in them are one task", () => {
    const keys = seeds.map((seed) =>
      fuse(lowerGraph(residual(seed).graph))
        .steps.filter(({ ops }) => ops.includes("MatMul"))
        .map(({ computation }) => computationKey(computation)),
    );
    expect(new Set(keys.map((key) => key.join("\n"))).size).toBe(1);
    expect(keys[0]).toHaveLength(2);
  });

  it("give the same bits as numbers in the equation", () => {
    for (const seed of seeds)
      for (const step of fuse(lowerGraph(residual(seed).graph)).steps) {
        const { computation, reads } = step;
        if (!computation.epilogue) continue;
        const random = seededRandom(seed);
        const given = Object.fromEntries(
          Object.entries(reads).map(([name, { constant, shape }]) => [
            name,
            constant ?? drawn({ type: "u8" }, shape[0] === 4 ? 32 : 64, random),
          ]),
        );
        const numbers = withNumbers(computation, given);
        expect(interpret(computation, given)).toEqual(interpret(numbers, given));
        const kept = Object.entries(reads).filter(([name]) => Object.hasOwn(numbers.tensors, name));
        expect(liftedNumbers({ ...step, computation: numbers, reads: Object.fromEntries(kept) }).reads).toEqual(reads);
      }
  });
});

/** Constants of no dimension put in as numbers. */
function withNumbers(computation: Computation, given: Readonly<Record<string, ArrayLike<number>>>): Computation {
  const { epilogue } = computation;
  if (!epilogue) throw new Error("no epilogue");
  const value = rewrite(epilogue.equation.value, (e) =>
    e.kind === "access" && e.index.length === 0 ? number(given[e.tensor]?.[0] ?? Number.NaN) : e,
  );
  return rebuilt(computation, { epilogue: { ...epilogue.equation, value } });
}

interface Integers {
  readonly type: "u8" | "s8";
  readonly zero?: number;
}

const ARRAYS = { u8: Uint8Array, s8: Int8Array } as const;

function drawn({ type }: Integers, count: number, random: () => number): NumberArray {
  const [least, most] = type === "u8" ? [0, 255] : [-128, 127];
  return new ARRAYS[type](count).map(() => randomInteger(random, least, most));
}

/** The same layer by numbers: integers less their zero points, in f64. */
function layerOf(op: "ConvInteger" | "Conv", [x, w]: readonly [Integers, Integers], values: NumberArray, run: boolean) {
  const net = new GraphBuilder("layer");
  const attributes = { kernel_shape: [3, 3], pads: [1, 1, 0, 1], strides: [2, 1] };
  if (op === "Conv") {
    const less = Float64Array.from(values, (value) => value - (w.zero ?? 0));
    net.output(
      net.node("Conv", [net.input("x", [1, 2, 6, 5], "f64"), net.constant("w", [3, 2, 3, 3], less, "f64")], attributes),
    );
    return net.graph;
  }
  const zero = ({ type, zero: value = 0 }: Integers, name: string): string =>
    net.constant(name, [], ARRAYS[type].of(value), type);
  const input = net.input("x", [1, 2, 6, 5], x.type);
  const weights = net.constant("w", [3, 2, 3, 3], values, w.type);
  const zeroOfInput = run ? net.input("zero", [], x.type) : zero(x, "zero");
  net.output(net.node("ConvInteger", [input, weights, zeroOfInput, zero(w, "w.zero")], attributes));
  return net.graph;
}

describe("sums of integers minus their zero points", () => {
  it.each([
    [{ type: "u8" }, { type: "s8" }, "u8 s8"],
    [{ type: "u8", zero: 113 }, { type: "s8" }, "u8 s8"],
    [{ type: "s8", zero: -7 }, { type: "s8" }, "u8 s8"],
    [{ type: "u8", zero: 3 }, { type: "u8", zero: 128 }, "u8 s8"],
    [{ type: "u8", zero: 3 }, { type: "s8", zero: 100 }, "u8 s32"],
  ] as const)("of %o by %o are exact, multiplied as %s", async (x, w, types) => {
    const random = seededRandom(5);
    const values = drawn(w, 54, random);
    const image = drawn(x, 60, random);
    const zero = "zero" in x ? x.zero : 0;
    const numbers = Float64Array.from(image, (value) => value - zero);
    const [wanted] = (await runNetwork(lowerGraph(layerOf("Conv", [x, w], values, false)), { x: numbers })).values();
    for (const run of [false, true]) {
      const program = lowerGraph(layerOf("ConvInteger", [x, w], values, run));
      const [got] = (await runNetwork(program, { x: image, ...(run && { zero: [zero] }) })).values();
      expect(Array.from(got ?? [])).toEqual(Array.from(wanted ?? []));
      if (run) continue;
      const sum = fuse(program).steps.at(-1)?.computation.tensors;
      expect(`${sum?.["in"]?.dtype} ${sum?.["w"]?.dtype}`).toBe(types);
    }
  });
});
