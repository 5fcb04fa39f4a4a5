/** @file oneDNN's kernels against the interpreter: a peer that computes something else is no fair comparison. */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Extents } from "../../abstraction/affine.ts";
import type { Computation } from "../../abstraction/computation.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import {
  describeOnednn,
  ONEDNN_FLAGS,
  type OnednnOptions,
  onednnKernel,
  onednnVersion,
} from "../../bench/peers/onednn.ts";
import { randomSetOnly, withConstant } from "../../bench/peers/reference.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { allowedCpus } from "../../runtime/processor.ts";
import { hasFeature, nativeTarget } from "../../targets/index.ts";
import { inFull } from "../support/slow.ts";

const compiler = await findCompiler();
const missing =
  compiler.status === "environment"
    ? compiler.what
    : onednnVersion() !== undefined
      ? undefined
      : "oneDNN is not installed (apt-get install libdnnl-dev)";
if (missing !== undefined) console.log(`skipped: ${missing}`);

const QUICK = { budgetSeconds: 0.005, batches: [3, 5], batchSeconds: 20e-6 } as const;

interface Case {
  readonly what: string;
  readonly computation: Computation;
  readonly options?: OnednnOptions;
  /** Shared among two threads as well. */
  readonly shared?: true;
  /** In a short run too: one of each algorithm, type and epilogue. */
  readonly short?: true;
}

function subject(op: string, types: string, parameters: Extents, layouts?: string, epilogue?: string): Computation {
  return instantiate(operatorNamed(op), {
    parameters,
    types: parseDataTypes(types),
    ...(layouts !== undefined && { layouts }),
    ...(epilogue !== undefined && { epilogue }),
  });
}
const conv = (op: string, types: string, parameters: Extents, layouts = "NHWC", epilogue?: string): Computation =>
  subject(op, types, parameters, layouts, epilogue);
const SCALED = "res[n,k,p,q] = sat_u8(round(max(f32(out[n,k,p,q]) * scale[k], 0)))";
/** Some sums fit into u8 with these, others are clamped. */
const scales = Float64Array.from({ length: 24 }, (_, k) => (k + 1) / 4096);

const SMALL = { c: 16, h: 9, w: 7, k: 24, r: 3, s: 3, stride: 2 };
const product = (op: string, types: string, parameters: Extents, epilogue?: string): Computation =>
  subject(op, types, parameters, undefined, epilogue);

const ALL: readonly Case[] = [
  { what: "f32", computation: conv("conv2d", "f32", SMALL), short: true },
  { what: "f32, NCHW as given", computation: conv("conv2d", "f32", SMALL, "NCHW"), options: { activations: "given" } },
  {
    what: "f32, blocked channels",
    computation: conv("conv2d", "f32", { ...SMALL, c: 16, k: 16 }),
    options: { implementation: 1 },
  },
  {
    what: "f32 by Winograd",
    computation: conv("conv2d", "f32", { ...SMALL, k: 16, h: 12, w: 12, stride: 1 }),
    options: { algorithm: "winograd" },
    shared: true,
  },
  { what: "bf16 -> f32", computation: conv("conv2d", "bf16", SMALL) },
  {
    what: "bf16 -> bf16",
    computation: conv("conv2d", "bf16", SMALL, "NHWC", "bf16"),
  },
  { what: "u8s8 -> s32", computation: conv("conv2d", "u8s8", SMALL) },
  {
    what: "u8s8 -> u8, scaled by channel, ReLU",
    computation: conv("conv2d", "u8s8", SMALL, "NHWC", SCALED),
    shared: true,
    short: true,
  },
  { what: "grouped u8s8", computation: conv("grp", "u8s8", { c: 32, h: 8, w: 8, k: 48, groups: 4 }) },
  { what: "dilated bf16", computation: conv("dil", "bf16", { c: 16, h: 9, w: 9, k: 16 }), short: true },
  { what: "depthwise f32", computation: conv("dep", "f32", { c: 24, h: 9, w: 9, stride: 2 }) },
  { what: "depthwise u8s8, two of each channel", computation: conv("dep", "u8s8", { c: 24, h: 9, w: 9, m: 2 }) },
  ...["f32", "bf16", "u8s8"].flatMap((types): Case[] => {
    const matrix = withConstant(product("matmul", types, { m: 5, n: 20, k: 37 }), "b");
    return [
      { what: `matmul ${types}`, computation: matrix },
      { what: `inner product ${types}`, computation: matrix, options: { algorithm: "inner-product" } },
    ];
  }),
  { what: "matmul f32 of two inputs", computation: product("matmul", "f32", { m: 5, n: 20, k: 37 }) },
  { what: "matvec u8s8", computation: product("matvec", "u8s8", { m: 40, k: 33 }), short: true },
  {
    what: "matvec f32, the matrix as weights",
    computation: withConstant(product("matvec", "f32", { m: 40, k: 33 }), "a"),
    options: { algorithm: "inner-product" },
    short: true,
  },
];
const CASES = ALL.filter((one) => inFull(true, one.short === true));

const ready = (computation: Computation, options?: OnednnOptions): Kernel => {
  const peer = onednnKernel(computation, options);
  if (peer.status === "refused") throw new Error(peer.reason);
  return peer.kernel;
};

describe.skipIf(missing !== undefined)("oneDNN behind the interface of our kernels", () => {
  const runners = new Map<number, Runner>();
  // Compiled kernels stay where runners keep them by default: the next run of the tests finds them.
  beforeAll(async () => {
    // oneDNN's threads wait for one another by spinning: beside other tests two of them may not come to an end in time.
    const most = inFull(Math.min(2, allowedCpus().length), 1);
    if (most < 2) console.log("skipped: two threads; they want two processors for themselves and npm run test:slow");
    for (let threads = 1; threads <= most; threads++) {
      const made = await createRunner({ threads, flags: [...ONEDNN_FLAGS, ...inFull([], ["-O0"])] });
      if (made.status === "environment") throw new Error(made.what);
      runners.set(threads, made.runner);
      for (const { computation, options, shared } of CASES)
        if (threads === 1 || shared) void made.runner.compile(ready(computation, { ...options, threads }));
    }
  });
  afterAll(async () => {
    for (const runner of runners.values()) await runner.close();
  });

  const runnerOf = (threads: number): Runner => {
    const runner = runners.get(threads);
    if (!runner) throw new Error(`internal: no runner of ${threads} threads`);
    return runner;
  };
  const measured = async (threads: number, { computation, options }: Case): Promise<string> => {
    const runner = runnerOf(threads);
    const fixed = computation.tensors["scale"] && { fixed: { scale: scales } };
    const all = await runner.reference(computation, 7, fixed);
    const reference = options?.algorithm === "winograd" ? randomSetOnly(all) : all;
    const result = await runner.measure(ready(computation, { ...options, threads }), reference, QUICK);
    return result.status === "ok" ? "ok" : `${result.status}: ${result.log}`;
  };

  // Without VNNI oneDNN saturates sums of two products of bytes, and without AVX512-BF16 it rounds otherwise.
  const runs = ({ computation: { tensors } }: Pick<Case, "computation">): boolean => {
    const types = new Set(Object.values(tensors).map(({ dtype }) => dtype));
    const needs = types.has("s8") ? ["avx512_vnni"] : types.has("bf16") ? ["avx512_bf16"] : [];
    return needs.every((feature) => hasFeature(nativeTarget(), feature));
  };
  it.each(CASES.filter(runs))("equals the interpreter: $what", async (one) => {
    for (const threads of one.shared ? runners.keys() : [1]) expect(await measured(threads, one)).toBe("ok");
  });

  it("is timed in turns with others of its kind, sharing their threads", async () => {
    const threads = Math.max(...runners.keys());
    const computation = conv("conv2d", hasFeature(nativeTarget(), "avx512_vnni") ? "u8s8" : "f32", SMALL);
    const kernels = [
      ready(computation, { threads }),
      ready(computation, { threads, activations: "given" }),
      ready(computation, { threads, implementation: 1 }),
    ];
    const reference = await runnerOf(threads).reference(computation, 7);
    const results = await runnerOf(threads).compareKernels(kernels, reference, QUICK);
    expect(results.map((r) => (r.status === "ok" ? "ok" : r.log))).toEqual(["ok", "ok", "ok"]);
  });

  it("reports which implementation oneDNN chose", async () => {
    const text = await describeOnednn(ready(conv("conv2d", "f32", SMALL)), runnerOf(1));
    expect(text).toMatch(/alg:convolution_direct.*mb1_ic16oc24_ih9oh5kh3sh2dh0ph1_iw7ow4kw3sw2dw0pw1/);
  });

  it("uses only the instructions it is allowed", async () => {
    const text = await describeOnednn(ready(conv("conv2d", "f32", SMALL), { maxIsa: "sse41" }), runnerOf(1));
    expect(text).not.toMatch(/avx/);
    expect(
      await measured(1, { what: "", computation: conv("conv2d", "f32", SMALL), options: { maxIsa: "sse41" } }),
    ).toBe("ok");
  });

  it("ends with oneDNN's own message when nothing implements the problem", async () => {
    const computation = conv("conv2d", "bf16", { ...SMALL, stride: 1 });
    expect(await measured(1, { what: "", computation, options: { algorithm: "winograd" } })).toContain("unimplemented");
  });
});

describe("oneDNN's problem, read from a computation", () => {
  it("finds stride, dilation and padding in the index, groups in the shapes", () => {
    const { source } = ready(
      conv("grp", "u8s8", { c: 32, h: 9, w: 8, k: 48, groups: 4, stride: 2, pad: 3, dilation: 2 }),
    );
    expect(source.split("\n").filter((line) => /^ {4}(\{|\/\* step)/.test(line))).toMatchInlineSnapshot(`
      [
        "    /* step, dilation, pad */ {2, 2}, {1, 1}, {3, 3},",
        "    {1, type::u8, {1, 32, 9, 8}, {2304, 1, 256, 32}, true},",
        "    {2, type::s8, {4, 12, 8, 3, 3}, {864, 72, 9, 3, 1}, true},",
        "    {0, type::s32, {1, 48, 6, 5}, {1440, 1, 240, 48}, true},",
      ]
    `);
  });

  it.each<[what: string, computation: Computation, options: OnednnOptions, reason: RegExp]>([
    ["a blocked layout", conv("conv2d", "f32", SMALL, "NCHW16c"), {}, /^layout: in is stored at/],
    ["another operator", product("bmm", "f32", {}), {}, /^operator: batched-matmul is not among the peers/],
    [
      "an algorithm of another operator",
      product("gmm", "f32", {}),
      { algorithm: "direct" },
      /^algorithm: direct does not/,
    ],
    ["an unknown ISA", conv("conv2d", "f32", SMALL), { maxIsa: "sse9" }, /^maxIsa: oneDNN knows sse41, /],
    ["a type it has not", product("gmm", "f64", {}), {}, /^type: oneDNN has no f64 \(a\)/],
    [
      "a factor for each row",
      product("gmv", "u8s8", {}, "y[m] = sat_u8(round(max(f32(out[m]) * scale[m], 0)))"),
      {},
      /^epilogue: a factor for each row/,
    ],
  ])("refuses %s with a reason", (_what, computation, options, reason) => {
    const peer = onednnKernel(computation, options);
    expect(peer.status === "refused" && peer.reason).toMatch(reason);
  });
});
