/** @file The operator table: every row becomes a computation, and the computations are the operators they are named after. */

import { describe, expect, it } from "vitest";
import {
  type Computation,
  computationKey,
  elementCount,
  equationText,
  inputsOf,
  targetOf,
} from "../../abstraction/computation.ts";
import type { Values } from "../../abstraction/evaluate.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import {
  checkOperator,
  constantValues,
  defineOperator,
  type InstantiateOptions,
  instantiate,
  OPERATORS,
  operatorNamed,
} from "../../operators/index.ts";
import { operationsPerPoint, pointsOfStencil, STENCILS } from "../../operators/stencil.ts";
import { explanationOf } from "../support/message.ts";
import { operation } from "../support/subjects.ts";
import { layersNamed, suiteLayers } from "../support/suite.ts";

const S8 = parseDataTypes("s8");

/** An instance and its result on small integers: any order of summation gives the same, in f32 too. */
function run(name: string, options: InstantiateOptions, given: Record<string, Values> = {}) {
  const operator = operatorNamed(name);
  const computation = instantiate(operator, options);
  const inputs: Record<string, Values> = {};
  inputsOf(computation).forEach((tensor, salt) => {
    const random = Float64Array.from(
      { length: elementCount(tensor) },
      (_, i) => ((i * 7 + salt * 3 + (i >> 2)) % 9) - 4,
    );
    inputs[tensor.name] = given[tensor.name] ?? constantValues(operator, computation)[tensor.name] ?? random;
  });
  return { computation, inputs, out: [...interpret(computation, inputs)] };
}

/** Reads a row-major array at an index; outside it reads 0. */
function at(values: ArrayLike<number> | undefined, shape: readonly number[], index: readonly number[]): number {
  let flat = 0;
  for (const [d, extent] of shape.entries()) {
    const i = index[d] ?? 0;
    if (i < 0 || i >= extent || !Number.isInteger(i)) return 0;
    flat = flat * extent + i;
  }
  return values?.[flat] ?? Number.NaN;
}

function shapeOf(computation: Computation, tensor: string): number[] {
  return computation.tensors[tensor]?.dims.map((d) => d.extent) ?? [];
}

/** `f` at every index of a box, row-major. */
function tabulate(shape: readonly number[], f: (...index: number[]) => number): number[] {
  const [first, ...rest] = shape;
  if (first === undefined) return [f()];
  return Array.from({ length: first }, (_, i) => tabulate(rest, (...index) => f(i, ...index))).flat();
}

function sum(shape: readonly number[], f: (...index: number[]) => number): number {
  return tabulate(shape, f).reduce((total, x) => total + x, 0);
}

describe("the table", () => {
  it.each(OPERATORS.map((o) => [o.name, o] as const))(
    "%s can be made with its defaults, with bf16, and with u8s8 unless sums are stored beside inputs or scales are floats",
    (_, operator) => {
      for (const types of [parseDataTypes("f32"), parseDataTypes("bf16"), parseDataTypes("u8s8")]) {
        if (operator.stores !== undefined && types.inputs[0] === "u8") {
          expect(explanationOf(() => instantiate(operator, { types }))).toMatch(/sums of u8 do not fit into u8/);
          continue;
        }
        if (operator.integers !== undefined && types.inputs[0] === "u8") {
          expect(explanationOf(() => instantiate(operator, { types }))).toMatch(/its scales are floats/);
          continue;
        }
        const computation = instantiate(operator, { types });
        expect(targetOf(computation).name).toBe("out");
        const type = operator.tensors["out"]?.type;
        expect(targetOf(computation).dtype).toBe(type === "f32" ? type : types.sum);
        for (const { name } of inputsOf(computation)) expect(operator.tensors[name]?.type).not.toBe("sum");
        const tensors = [targetOf(computation), ...inputsOf(computation)].map((t) => t.name);
        expect(Object.keys(operator.tensors).toSorted()).toEqual(tensors.toSorted());
        // A loop counter and an array of one name would clash in generated code.
        for (const { name } of computation.axes) expect(Object.keys(computation.tensors)).not.toContain(name);
      }
    },
  );

  it("prints every equation with its default parameters", () => {
    const width = Math.max(...OPERATORS.map(({ name }) => name.length));
    const lines = OPERATORS.map((o) => `${o.name.padEnd(width)}  ${equationText(instantiate(o))}`);
    expect(`\n${lines.join("\n")}\n`).toMatchInlineSnapshot(`
      "
      matvec             out[m] += a[m,k] * b[k]
      matmul             out[m,n] += a[m,k] * b[k,n]
      matmul-4bit        out[m,n] += a[m,32*g+2*b+h] * ((f32(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8) * s[n,g])
      matmul-8bit        out[m,n] += a[m,32*g+j] * (f32(w[n,g,j]) * s[n,g])
      matmul-4bit-s8     out[m,n] += f32(s32(a[m,32*g+2*b+h]) * s32(s8(select(h == 0, w[n,g,b] % 16, w[n,g,b] / 16)) - 8)) * (s[n,g] * t[m,g])
      scaled-matmul      out[m,128*u+v] += a[m,128*g+j] * b[128*u+v,128*g+j] * (s[m,g] * t[u,g])
      batched-matmul     out[b,m,n] += x[b,m,k] * y[b,k,n]
      grouped-fc         out[n,g*128+k] += in[n,g*128+c] * w[g*128+k,c]
      grouped-matmul     out[t,m,n] += a[t,m,k] * w[clamp(group[t]),n,k] where group[t] >= 0
      counted-matmul     out[g,m,n] += a[g,m,k] * w[g,n,k] where m < count[g]
      attention-scores   out[b,h,i,j] += q[b,h,i,d] * k[b,h,j,d]
      conv1d             out[n,k,p] += in[n,c,p+r-1] * w[k,c,r]
      conv2d             out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s]
      conv3d             out[n,k,o,p,q] += in[n,c,o+t-1,p+r-1,q+s-1] * w[k,c,t,r,s]
      transposed-conv2d  out[n,k,p,q] += in[n,c,(p+1-r)/2,(q+1-s)/2] * w[c,k,r,s] where (p+1-r)%2 == 0 and (q+1-s)%2 == 0
      grouped-conv2d     out[n,g*8+k,p,q] += in[n,g*8+c,p+r-1,q+s-1] * w[g*8+k,c,r,s]
      dilated-conv2d     out[n,k,p,q] += in[n,c,p+r*2-2,q+s*2-2] * w[k,c,r,s]
      depthwise-conv2d   out[n,c+m,p,q] += in[n,c,p+r-1,q+s-1] * w[c+m,r,s]
      capsule-conv2d     out[n,k,p,q,u] += in[n,c,p+r-1,q+s-1] * w[k,c,r,s,u]
      batched-conv2d     out[n,k,p,q] += in[n,c,p+r-1,q+s-1] * w[n,k,c,r,s]
      conv1d-single      out[p] += in[p+r] * w[r]
      conv2d-single      out[p,q] += in[p+r,q+s] * w[r,s]
      mean               out[c] += in[c,l] * average[l]
      variance           out[c] += square(in[c,l] - mean[c]) * average[l]
      scan               out[i,j] += in[i,k] * tri[k,j]
      mttkrp             out[i,j] += x[i,k,l] * (b[k,j] * c[l,j])
      ttm                out[i,j,r] += x[i,j,k] * u[k,r]
      stencil2d-star     out[i,j] += in[i+r-1,j+s-1] * w[r,s] where r == 1 or s == 1
      stencil2d-box      out[i,j] += in[i+r-1,j+s-1] * w[r,s]
      stencil3d-star     out[i,j,k] += in[i+r-1,j+s-1,k+t-1] * w[r,s,t] where r == 1 and s == 1 or r == 1 and t == 1 or s == 1 and t == 1
      stencil3d-box      out[i,j,k] += in[i+r-1,j+s-1,k+t-1] * w[r,s,t]
      2d5pt              out[i,j] += in[i+r-1,j+s-1] * w[r,s] where r == 1 or s == 1
      2d9pt              out[i,j] += in[i+r-2,j+s-2] * w[r,s] where r == 2 or s == 2
      2d13pt             out[i,j] += in[i+r-3,j+s-3] * w[r,s] where r == 3 or s == 3
      2d17pt             out[i,j] += in[i+r-4,j+s-4] * w[r,s] where r == 4 or s == 4
      2d21pt             out[i,j] += in[i+r-5,j+s-5] * w[r,s] where r == 5 or s == 5
      2ds25pt            out[i,j] += in[i+r-6,j+s-6] * w[r,s] where r == 6 or s == 6
      2d25pt             out[i,j] += in[i+r-2,j+s-2] * w[r,s]
      2d64pt             out[i,j] += in[i+r-4,j+s-4] * w[r,s] where r != 4 and s != 4
      2d81pt             out[i,j] += in[i+r-4,j+s-4] * w[r,s]
      2d121pt            out[i,j] += in[i+r-5,j+s-5] * w[r,s]
      3d7pt              out[i,j,k] += in[i+r-1,j+s-1,k+t-1] * w[r,s,t] where r == 1 and s == 1 or r == 1 and t == 1 or s == 1 and t == 1
      3d13pt             out[i,j,k] += in[i+r-2,j+s-2,k+t-2] * w[r,s,t] where r == 2 and s == 2 or r == 2 and t == 2 or s == 2 and t == 2
      3d27pt             out[i,j,k] += in[i+r-1,j+s-1,k+t-1] * w[r,s,t]
      3d125pt            out[i,j,k] += in[i+r-2,j+s-2,k+t-2] * w[r,s,t]
      poisson            out[i,j,k] += in[i+r-1,j+s-1,k+t-1] * w[r,s,t] where r == 1 or s == 1 or t == 1
      interaction        out[b,i,j] += e[b,i,k] * select(j == 0, d[b,k], e[b,j-1,k]) where j <= i; z[b,i*(i+1)/2+j+128] = out[b,i,j] where j <= i, z[b,k] = d[b,k]
      "
    `);
  });

  it("says the axes of each operator and their extents", () => {
    const width = Math.max(...OPERATORS.map(({ name }) => name.length));
    const lines = OPERATORS.filter(({ fixed }) => fixed["radius"] === undefined).map((o) => {
      const { axes } = instantiate(o);
      const text = (kind: string) =>
        axes
          .filter((a) => a.kind === kind)
          .map((a) => `${a.name}${a.extent}`)
          .join(" ");
      return `${o.name.padEnd(width)}  ${text("spatial")} | ${text("reduce")}`;
    });
    expect(`\n${lines.join("\n")}\n`).toMatchInlineSnapshot(`
      "
      matvec             m1024 | k1024
      matmul             m1024 n1024 | k1024
      matmul-4bit        m1 n4096 | g128 b16 h2
      matmul-8bit        m1 n4096 | g128 j32
      matmul-4bit-s8     m1 n4096 | g128 b16 h2
      scaled-matmul      m1024 u8 v128 | g8 j128
      batched-matmul     b12 m512 n64 | k512
      grouped-fc         n16 g8 k128 | c128
      grouped-matmul     t16 m64 n1024 | k512
      counted-matmul     g8 m128 n1024 | k512
      attention-scores   b1 h12 i512 j512 | d64
      conv1d             n1 k512 p892 | c512 r3
      conv2d             n1 k64 p56 q56 | c64 r3 s3
      conv3d             n1 k64 o16 p56 q56 | c64 t3 r3 s3
      transposed-conv2d  n1 k64 p56 q56 | c128 r4 s4
      grouped-conv2d     n1 g32 k8 p28 q28 | c8 r3 s3
      dilated-conv2d     n1 k512 p14 q14 | c512 r3 s3
      depthwise-conv2d   n1 c32 m1 p112 q112 | r3 s3
      capsule-conv2d     n1 k64 p56 q56 u8 | c64 r3 s3
      batched-conv2d     n16 k64 p56 q56 | c64 r3 s3
      conv1d-single      p1048560 | r17
      conv2d-single      p8188 q8188 | r5 s5
      mean               c64 | l3136
      variance           c64 | l3136
      scan               i1024 j1024 | k1024
      mttkrp             i512 j32 | k128 l128
      ttm                i256 j256 r32 | k256
      stencil2d-star     i8192 j8192 | r3 s3
      stencil2d-box      i8192 j8192 | r3 s3
      stencil3d-star     i512 j512 k512 | r3 s3 t3
      stencil3d-box      i512 j512 k512 | r3 s3 t3
      interaction        b32768 i26 j26 | k128
      "
    `);
  });

  it("is filled with parameters: strides, padding, dilation, groups", () => {
    const instances = [
      "depthwise-conv2d n=2 c=3 h=5 w=6 m=2 r=3 s=3 stride=2 pad=1",
      "capsule-conv2d c=2 h=4 w=4 k=3 r=2 s=2 caps=4 pad=0",
      "batched-conv2d n=3 c=2 h=4 w=4 k=2 r=3 s=3 pad=1",
      "conv3d c=2 d=4 h=3 w=3 k=2 t=2 r=1 s=1 stride_d=2 stride=1 pad_d=1 pad=0",
      "conv1d c=4 l=9 k=2 r=3 dilation=2 pad=2 groups=2",
      "grouped-fc n=2 i=6 o=4 groups=2",
      "mttkrp i=3 j=2 k=4 l=5",
    ];
    const lines = instances.flatMap((words) => [words, ...computationKey(operation(words, "s8")).split("; ")]);
    expect(`\n${lines.join("\n")}\n`).toMatchInlineSnapshot(`
      "
      depthwise-conv2d n=2 c=3 h=5 w=6 m=2 r=3 s=3 stride=2 pad=1
      out[n,c*2+m,p,q] += s32(in[n,c,p*2+r-1,q*2+s-1]) * s32(w[c*2+m,r,s])
      n=2,c=3,m=2,p=3,q=3,r=3,s=3
      out:s32[2,6,3,3]@((n*6 + k)*3 + p)*3 + q
      in:s8[2,3,5,6]@((n*3 + c)*5 + h)*6 + w
      w:s8[6,3,3]@(k*3 + r)*3 + s constant
      capsule-conv2d c=2 h=4 w=4 k=3 r=2 s=2 caps=4 pad=0
      out[n,k,p,q,u] += s32(in[n,c,p+r,q+s]) * s32(w[k,c,r,s,u])
      n=1,k=3,p=3,q=3,u=4,c=2,r=2,s=2
      out:s32[1,3,3,3,4]@(((n*3 + k)*3 + p)*3 + q)*4 + u
      in:s8[1,2,4,4]@((n*2 + c)*4 + h)*4 + w
      w:s8[3,2,2,2,4]@(((k*2 + c)*2 + r)*2 + s)*4 + u constant
      batched-conv2d n=3 c=2 h=4 w=4 k=2 r=3 s=3 pad=1
      out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[n,k,c,r,s])
      n=3,k=2,p=4,q=4,c=2,r=3,s=3
      out:s32[3,2,4,4]@((n*2 + k)*4 + p)*4 + q
      in:s8[3,2,4,4]@((n*2 + c)*4 + h)*4 + w
      w:s8[3,2,2,3,3]@(((n*2 + k)*2 + c)*3 + r)*3 + s
      conv3d c=2 d=4 h=3 w=3 k=2 t=2 r=1 s=1 stride_d=2 stride=1 pad_d=1 pad=0
      out[n,k,o,p,q] += s32(in[n,c,o*2+t-1,p+r,q+s]) * s32(w[k,c,t,r,s])
      n=1,k=2,o=3,p=3,q=3,c=2,t=2,r=1,s=1
      out:s32[1,2,3,3,3]@(((n*2 + k)*3 + o)*3 + p)*3 + q
      in:s8[1,2,4,3,3]@(((n*2 + c)*4 + d)*3 + h)*3 + w
      w:s8[2,2,2,1,1]@(k*2 + c)*2 + t + r + s constant
      conv1d c=4 l=9 k=2 r=3 dilation=2 pad=2 groups=2
      out[n,g+k,p] += s32(in[n,g*2+c,p+r*2-2]) * s32(w[g+k,c,r])
      n=1,g=2,k=1,p=9,c=2,r=3
      out:s32[1,2,9]@(n*2 + k)*9 + p
      in:s8[1,4,9]@(n*4 + c)*9 + l
      w:s8[2,2,3]@(k*2 + c)*3 + r constant
      grouped-fc n=2 i=6 o=4 groups=2
      out[n,g*2+k] += s32(in[n,g*3+c]) * s32(w[g*2+k,c])
      n=2,g=2,k=2,c=3
      out:s32[2,4]@n*4 + o
      in:s8[2,6]@n*6 + i
      w:s8[4,3]@o*3 + c constant
      mttkrp i=3 j=2 k=4 l=5
      out[i,j] += s32(x[i,k,l]) * s32(b[k,j] * c[l,j])
      i=3,j=2,k=4,l=5
      out:s32[3,2]@i*2 + j
      x:s8[3,4,5]@(i*4 + k)*5 + l
      b:s8[4,2]@k*2 + j
      c:s8[5,2]@l*2 + j
      "
    `);
  });

  it("uses each name and alias once", () => {
    const words = OPERATORS.flatMap(({ name, aliases }) => [name, ...aliases]);
    expect(new Set(words).size).toBe(words.length);
    for (const word of words) expect(operatorNamed(word)).toBeDefined();
    expect(words).toEqual(
      expect.arrayContaining("gmv gmm c1d c2d c3d t2d grp dil dep cap bcv gfc men var scn".split(" ")),
    );
  });

  it("instantiates every layer of the suites", () => {
    const suite = suiteLayers();
    expect(suite.length).toBeGreaterThan(100);
    for (const { op, params } of [...suite, ...layersNamed("net")])
      instantiate(operatorNamed(op), { parameters: params, types: S8 });
    expect(new Set(suite.map((c) => c.op)).size).toBe(15);
  });

  it.each(OPERATORS)("has a row whose parts fit together: $name", checkOperator);

  it("refuses a row that does not describe a tensor", () => {
    const row = { name: "copy", summary: "", parameters: {}, equation: "y[i] = x[i]", axes: { i: "8" } };
    const incomplete = defineOperator({ ...row, tensors: { y: { type: "sum" } } });
    expect(() => checkOperator(incomplete)).toThrow("does not describe tensor x");
  });
});

describe("convolutions", () => {
  it.each([
    { stride: 1, pad: 1, dilation: 1, groups: 1 },
    { stride: 2, pad: 0, dilation: 1, groups: 1 },
    { stride: 2, pad: 3, dilation: 2, groups: 1 },
    { stride: 1, pad: 1, dilation: 1, groups: 2 },
    { stride: 3, pad: 2, dilation: 2, groups: 4 },
  ])("conv2d is the convolution with $stride $pad $dilation $groups", ({ stride, pad, dilation, groups }) => {
    const parameters = { n: 2, c: 4, h: 7, w: 8, k: 8, r: 3, s: 2, stride, pad, dilation, groups };
    const { computation, inputs, out } = run("conv2d", { parameters, types: S8 });
    const cg = 4 / groups;
    const kg = 8 / groups;
    const shape = shapeOf(computation, "out");
    const outputs = (input: number, kernel: number) =>
      Math.floor((input + 2 * pad - dilation * (kernel - 1) - 1) / stride) + 1;
    expect(shape).toEqual([2, 8, outputs(7, 3), outputs(8, 2)]);
    expect(shapeOf(computation, "in")).toEqual([2, 4, 7, 8]);
    expect(shapeOf(computation, "w")).toEqual([8, cg, 3, 2]);
    const expected = tabulate(shape, (n = 0, k = 0, p = 0, q = 0) =>
      sum([cg, 3, 2], (c = 0, r = 0, s = 0) => {
        const channel = Math.floor(k / kg) * cg + c;
        const place = [n, channel, p * stride + r * dilation - pad, q * stride + s * dilation - pad];
        return at(inputs["in"], [2, 4, 7, 8], place) * at(inputs["w"], [8, cg, 3, 2], [k, c, r, s]);
      }),
    );
    expect(out).toEqual(expected);
  });

  it.each([
    { stride: 1, pad: 0, dilation: 1 },
    { stride: 2, pad: 1, dilation: 1 },
    { stride: 3, pad: 2, dilation: 2 },
  ])("transposed-conv2d gathers the result of scattering, with $stride $pad $dilation", ({ stride, pad, dilation }) => {
    const parameters = { n: 1, c: 2, h: 3, w: 4, k: 3, r: 4, s: 3, stride, pad, dilation };
    const { computation, inputs, out } = run("t2d", { parameters, types: S8 });
    const [, , P = 0, Q = 0] = shapeOf(computation, "out");
    expect(P).toBe((3 - 1) * stride - 2 * pad + dilation * 3 + 1);
    const scattered = new Array<number>(3 * P * Q).fill(0);
    tabulate([2, 3, 4, 3, 4, 3], (c = 0, h = 0, w = 0, k = 0, r = 0, s = 0) => {
      const p = h * stride + r * dilation - pad;
      const q = w * stride + s * dilation - pad;
      const product = at(inputs["in"], [1, 2, 3, 4], [0, c, h, w]) * at(inputs["w"], [2, 3, 4, 3], [c, k, r, s]);
      if (p >= 0 && p < P && q >= 0 && q < Q)
        scattered[(k * P + p) * Q + q] = (scattered[(k * P + p) * Q + q] ?? 0) + product;
      return 0;
    });
    expect(out).toEqual(scattered);
    expect(computation.equation.where === undefined).toBe(stride === 1);
  });
});

describe("products and reductions", () => {
  it("mean and variance are those of each channel of an NCHW tensor", () => {
    const parameters = { n: 2, c: 3, h: 2, w: 4 };
    const operator = operatorNamed("mean");
    const computation = instantiate(operator, { parameters });
    const { dims, storage } = computation.tensors["in"] ?? {};
    expect(dims).toEqual([
      { name: "c", extent: 3 },
      { name: "l", extent: 16 },
    ]);
    expect(storage && printExpr(storage, "formula")).toBe("l/8*24 + c*8 + l%8");
    // With one image the formula is row-major.
    const one = instantiate(operator, { parameters: { ...parameters, n: 1 } }).tensors["in"]?.storage;
    expect(one && printExpr(one, "formula")).toBe("c*8 + l");

    const mean = run("mean", { parameters });
    const expected = tabulate([3], (c = 0) => sum([16], (l = 0) => at(mean.inputs["in"], [3, 16], [c, l])) / 16);
    expect(mean.out).toEqual(expected);
    const variance = run("variance", { parameters }, { mean: Float64Array.from(mean.out) });
    const squares = tabulate([3], (c = 0) =>
      sum([16], (l = 0) => (at(variance.inputs["in"], [3, 16], [c, l]) - (mean.out[c] ?? 0)) ** 2),
    );
    expect(variance.out).toEqual(squares.map((x) => x / 16));
  });

  it("scan gives the running sums of each row", () => {
    const { inputs, out } = run("scan", { parameters: { m: 3, n: 5 }, types: S8 });
    expect([...(inputs["tri"] ?? [])].slice(0, 10)).toEqual([1, 1, 1, 1, 1, 0, 1, 1, 1, 1]);
    const expected = tabulate([3, 5], (i = 0, j = 0) => sum([j + 1], (k = 0) => at(inputs["in"], [3, 5], [i, k])));
    expect(out).toEqual(expected);
  });

  it("products of groups have the matrix of each tile's group, and count rows", () => {
    const parameters = { groups: 3, t: 4, m: 2, n: 3, k: 2 };
    const shapes = { a: [4, 2, 2], w: [3, 3, 2] } as const;
    const product = (values: Record<string, Values>, t: number, m: number, n: number, matrix: number): number =>
      sum([2], (k = 0) => at(values["a"], shapes.a, [t, m, k]) * at(values["w"], shapes.w, [matrix, n, k]));
    const group = [1, 9, -1, 0];
    const grouped = run("grouped-matmul", { parameters, types: S8 }, { group: Float64Array.from(group) });
    const ofTiles = tabulate([4, 2, 3], (t = 0, m = 0, n = 0) => {
      const matrix = group[t] ?? 0;
      return matrix < 0 ? 0 : product(grouped.inputs, t, m, n, Math.min(matrix, 2));
    });
    expect(grouped.out).toEqual(ofTiles);
    const count = [0, 1, 5];
    const counted = run(
      "counted-matmul",
      { parameters: { g: 3, m: 2, n: 3, k: 2 }, types: S8 },
      { count: Float64Array.from(count) },
    );
    const ofGroups = tabulate([3, 2, 3], (g = 0, m = 0, n = 0) =>
      m < (count[g] ?? 0) ? product(counted.inputs, g, m, n, g) : 0,
    );
    expect(counted.out).toEqual(ofGroups);
    // Tiles of the default are sorted by group, of which there are more and more, and the last tiles are empty.
    const operator = operatorNamed("grouped-matmul");
    expect([...(constantValues(operator, instantiate(operator, { parameters: { t: 16 } }))["group"] ?? [])]).toEqual([
      0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, -1,
    ]);
  });

  it("leaves out constants that an integer type cannot hold", () => {
    const operator = operatorNamed("mean");
    expect(Object.keys(constantValues(operator, instantiate(operator)))).toEqual(["average"]);
    expect(Object.keys(constantValues(operator, instantiate(operator, { types: S8 })))).toEqual([]);
  });
});

describe("stencils", () => {
  it.each([
    { radius: 1, keeps: "star" },
    { radius: 2, keeps: "star" },
    { radius: 1, keeps: "box" },
  ])("a $keeps of radius $radius sums its neighbours, and zeros beyond the grid", ({ radius, keeps }) => {
    const { inputs, out } = run(`stencil2d-${keeps}`, { parameters: { h: 5, w: 6, radius }, types: S8 });
    const side = 2 * radius + 1;
    const expected = tabulate([5, 6], (i = 0, j = 0) =>
      sum([side, side], (r = 0, s = 0) => {
        if (keeps === "star" && r !== radius && s !== radius) return 0;
        return at(inputs["in"], [5, 6], [i + r - radius, j + s - radius]) * at(inputs["w"], [side, side], [r, s]);
      }),
    );
    expect(out).toEqual(expected);
  });

  it("a 3-D star has 6 * radius + 1 points", () => {
    for (const radius of [1, 2, 3]) expect(taps("stencil3d-star", { radius })).toBe(6 * radius + 1);
  });

  it.each(STENCILS.map((s) => [s.name, s] as const))(
    "%s reads as many neighbours as its name says",
    (name, stencil) => {
      const points = name === "poisson" ? 19 : Number(/(\d+)pt/.exec(name)?.[1]);
      expect(pointsOfStencil(stencil)).toHaveLength(points);
      expect(taps(name)).toBe(points);
    },
  );

  it("the published operation counts follow from points and coefficients, except for 3d125pt", () => {
    const lines = STENCILS.map((s) => {
      const counted = operationsPerPoint(s);
      return `${s.name} ${counted}${counted === s.publishedOperations ? "" : ` (published ${s.publishedOperations})`}`;
    });
    expect(lines.join(", ")).toBe(
      "2d5pt 9, 2d9pt 17, 2d13pt 25, 2d17pt 33, 2d21pt 41, 2ds25pt 49, 2d25pt 33, 2d64pt 73, 2d81pt 95, 2d121pt 241, " +
        "3d7pt 13, 3d13pt 25, 3d27pt 30, 3d125pt 129 (published 130), poisson 21",
    );
  });

  it("the weights of a named stencil are zero exactly outside its shape", () => {
    for (const stencil of STENCILS) {
      const operator = operatorNamed(stencil.name);
      const computation = instantiate(operator, { parameters: smallGrid(operator.name), types: parseDataTypes("f64") });
      const weights = constantValues(operator, computation)["w"] ?? new Float64Array();
      expect(weights.filter((x) => x !== 0)).toHaveLength(pointsOfStencil(stencil).length);
    }
    const derivative = STENCILS.find((s) => s.name === "2d64pt");
    expect(derivative && weightsOf("2d64pt").reduce((total, x) => total + x, 0)).toBeCloseTo(0, 12);
    expect([weightsOf("3d27pt")[0], weightsOf("3d27pt")[13], weightsOf("poisson")[13]]).toEqual([0.75, 0.125, 2.666]);
  });

  function smallGrid(name: string): Record<string, number> {
    const side = name.includes("3d") || name === "poisson" ? 7 : 15;
    return Object.fromEntries(Object.keys(operatorNamed(name).parameters).map((p) => [p, p === "radius" ? 1 : side]));
  }

  function weightsOf(name: string): number[] {
    const operator = operatorNamed(name);
    const computation = instantiate(operator, { parameters: smallGrid(name), types: parseDataTypes("f64") });
    return [...(constantValues(operator, computation)["w"] ?? [])];
  }

  /** Ones everywhere: the middle of the grid counts the neighbours. */
  function taps(name: string, more: Record<string, number> = {}): number | undefined {
    const operator = operatorNamed(name);
    const computation = instantiate(operator, { parameters: { ...smallGrid(name), ...more }, types: S8 });
    const ones = Object.fromEntries(
      inputsOf(computation).map((t) => [t.name, new Float64Array(elementCount(t)).fill(1)]),
    );
    const out = interpret(computation, ones);
    return out[(out.length - 1) / 2];
  }
});
