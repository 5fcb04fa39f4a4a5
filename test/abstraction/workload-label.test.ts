/** @file The label of a workload contains everything that tells it from others. */

import { describe, expect, it } from "vitest";
import { type ComputationSpec, computationKey, defineComputation } from "../../abstraction/computation.ts";
import { attempt } from "../../abstraction/error.ts";
import { printEquation } from "../../abstraction/expression.ts";
import { type Described, describeWorkload, workloadLabel } from "../../operators/describe.ts";
import { EPILOGUE_NAMES } from "../../operators/epilogue.ts";
import { type InstantiateOptions, OPERATORS } from "../../operators/index.ts";
import { workloadNamed } from "../support/database.ts";

const labelOf = (described: Described): string => workloadLabel(describeWorkload(described));
type Options = InstantiateOptions & { readonly dtype?: string };

const workload = (name: string, { dtype, parameters, ...options }: Options = {}): Described =>
  workloadNamed(name, parameters, dtype, options);

const MATMUL = {
  equation: "c[m,n] += s32(a[m,k]) * s32(b[k,n])",
  extents: { m: 64, n: 32, k: 16 },
  tensors: { a: "u8", b: "s8" },
} as const;
const equation = (changed: Partial<ComputationSpec> = {}): Described => ({
  computation: defineComputation({ ...MATMUL, ...changed }),
});

describe("a workload is called", () => {
  const conv = "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1";
  it.each<[Described, string]>([
    [workload("conv2d"), `${conv}, f32->f32`],
    [workload("conv2d", { dtype: "u8s8", epilogue: "relu" }), `${conv}, u8s8->s32, relu`],
    [workload("conv2d", { dtype: "u8s8", epilogue: "requantize" }), `${conv}, u8s8->u8, requantize`],
    [workload("conv2d", { dtype: "f16->f16", epilogue: "bf16" }), `${conv}, f16->f16->bf16, bf16`],
    [workload("conv2d", { layouts: "NHWC" }), `${conv}, f32->f32, NHWC`],
    [workload("conv2d", { layouts: { w: "KRSC", in: "NHWC" } }), `${conv}, f32->f32, in=NHWC,w=KRSC`],
    [
      workload("conv2d", { parameters: { r: 1, s: 1, pad: 0, n: 2 } }),
      "conv2d n 2 c 64 h 56 w 56 k 64 r 1 s 1 pad 0, f32->f32",
    ],
    [
      workload("matmul", { epilogue: "res[m,n] = max(out[m,n], 1)", parameters: { m: 8 } }),
      "matmul m 8 n 1024 k 1024, f32->f32, res[m,n] = max(out[m,n], 1)",
    ],
    [equation(), "c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32"],
    [
      equation({ epilogue: "res[m,n] = max(c[m,n], 0)", tensors: { a: { dtype: "u8", layout: "KM" }, b: "s8" } }),
      "c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32, a=KM, relu",
    ],
    [equation({ name: "gemm" }), "gemm: c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32"],
    // It has the operator's name and is not what the operator computes.
    [
      { ...workload("matmul"), ...equation({ name: "matmul" }) },
      "matmul: c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32",
    ],
    [
      equation({ tensors: { a: { dtype: "u8", shape: [64, 20] }, b: { dtype: "s8", constant: true } } }),
      "c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32, a:u8[64,20]@m*20+k b constant",
    ],
  ])("by everything that tells it apart: %#", (described, label) => {
    expect(labelOf(described)).toBe(label);
  });

  it("by the user's own name first", () => {
    expect(workloadLabel(describeWorkload(equation()), "layer3")).toBe(
      "layer3: c[m,n] += s32(a[m,k]) * s32(b[k,n]), m 64 n 32 k 16, u8s8->s32",
    );
  });

  it("differently from every other", () => {
    const dtypes = ["f32", "f16", "f16->f16", "u8s8", "s8u8", "s8", "s8->s16", "bf16", "bf16f32", "f64"];
    const layouts = ["NHWC", "NHWC4c", "NCHW16c", { in: "NHWC" }, { w: "KRSC" }, { out: "NPQK" }, { a: "KM" }];
    const endings = ["res[*] = out[*] + skip[*]", "res[*] = f32(out[*])", ...EPILOGUE_NAMES];
    const all: Described[] = [];
    const add = (name: string, options: Options = {}): void => {
      const made = attempt(() => workload(name, options));
      if (made) all.push(made);
    };
    for (const { name, parameters } of OPERATORS) {
      // All of them below, on one operator.
      for (const dtype of dtypes.slice(0, 4)) add(name, { dtype });
      for (const ending of endings.slice(0, 3)) {
        const [of = ""] = /\[.*?\]/.exec(printEquation(workload(name).computation.equation)) ?? [];
        add(name, { epilogue: ending.replaceAll("[*]", of) });
      }
      for (const [p, { default: usual }] of Object.entries(parameters))
        for (const value of [usual + 1, 2 * usual]) add(name, { parameters: { [p]: value } });
    }
    for (const dtype of dtypes) add("matmul", { dtype });
    for (const name of ["conv2d", "depthwise-conv2d", "matmul"])
      for (const dtype of ["u8s8", "bf16"])
        for (const epilogue of [undefined, ...EPILOGUE_NAMES])
          for (const layout of dtype === "bf16" ? [undefined] : [undefined, ...layouts])
            add(name, {
              dtype,
              ...(epilogue === undefined ? {} : { epilogue }),
              ...(layout === undefined ? {} : { layouts: layout }),
            });
    const tensors: ComputationSpec["tensors"][] = [
      { a: "s8", b: "u8" },
      { a: "u8", b: { dtype: "s8", constant: true } },
      { a: { dtype: "u8", shape: [64, 17] }, b: "s8" },
      { a: { dtype: "u8", storage: "m*32 + k" }, b: "s8" },
      { a: { dtype: "u8", layout: "KM" }, b: "s8" },
      { a: { dtype: "u8", layout: "KM4m" }, b: "s8" },
      { a: "u8", b: { dtype: "s8", dims: ["k", "x"] } },
    ];
    for (const given of tensors) all.push(equation({ tensors: given }));
    const third = (dtype: "u8" | "s8"): Described =>
      equation({
        equation: "c[m,n] += s32(a[m,k]) * s32(b[k,n]) * s32(d[n])",
        tensors: { a: "u8", b: "s8", d: dtype },
      });
    all.push(equation(), equation({ name: "gemm" }), third("u8"), third("s8"));
    all.push(equation({ extents: { m: 64, n: 32, k: 1 } }));

    const byLabel = new Map<string, Set<string>>();
    const keys = new Set<string>();
    for (const described of all) {
      // Two operators may give the same computation under two names.
      const key = `${described.computation.name} ${computationKey(described.computation)}`;
      const label = labelOf(described);
      byLabel.set(label, (byLabel.get(label) ?? new Set()).add(key));
      keys.add(key);
    }
    expect(all.length).toBeGreaterThan(700);
    expect([...byLabel].filter(([, same]) => same.size > 1)).toEqual([]);
    expect(byLabel.size).toBeGreaterThanOrEqual(keys.size);
  });
});
