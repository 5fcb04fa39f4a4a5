/**
 * @file Packages whole, as text: test/golden/packages. Whether they build and compute is the subject of emit, network-library and their siblings; a file
 * that is copied as it stands, a kernel or its test, and what another package here shows, is a hash.
 *
 *     vitest run test/package/golden-packages.test.ts --update       after a change that is meant
 */

import { createHash } from "node:crypto";
import { expect, it } from "vitest";
import { defineComputation } from "../../abstraction/computation.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { packageFiles } from "../../package/index.ts";
import { networkFiles } from "../../package/network/index.ts";
import { generate } from "../../session/kinds/mapping-kind.ts";
import {
  choicesOf,
  inBrainFloatsOnCpu,
  inHalfOnGpu,
  networkSubject,
  openGraph,
} from "../../session/network/network.ts";
import { VERSION } from "../../session/version.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { engineMatmul } from "../support/cuda-packages.ts";
import { onnx } from "../support/networks.ts";
import { plainCandidate } from "../support/packages.ts";
import { operation } from "../support/subjects.ts";

const H100 = nvidiaTarget("h100");

type Files = ReadonlyMap<string, unknown>;

const computation = operation("matmul m=16 n=16 k=64", "u8s8", { epilogue: "requantize" });

function tuned(): Files {
  const plain = plainCandidate(computation, intrinsicsNamed("amx.tdpbusd"));
  if (!plain) throw new Error("nothing maps");
  const kernel = generate(plain.candidate, plain.mapping);
  return packageFiles({ name: "product", computation, tuned: kernel, threads: 2, provenance: ["a test"] });
}

const portable = (): Files =>
  packageFiles({
    name: "prefix",
    computation: defineComputation({
      equation: "y[i] = y[i-1] + x[i]",
      extents: { i: 40 },
      tensors: { x: "f32", y: "f32" },
    }),
    threads: 1,
    provenance: [],
  });

const LAYERS = `
  hidden = MaxPool<kernel_shape=[2,2]>(Relu(Conv(image[1,3,6,6], [8,3,3,3]{drawn}, [8]{drawn})))
  return Softmax(Gemm<transB=1>(Flatten(hidden), [5,72]{drawn}, [5]{drawn}))
`;
const IDS = "rows = Gather([5,2]{drawn}, ids:s64[2,3]); return rows, CumSum(ids, s64{1}), Not(mask:bool[2,3])";

const PACKAGES: Readonly<Record<string, () => Files>> = {
  product: tuned,
  prefix: portable,
  "product.cuda": () => packageFiles(engineMatmul()),
  "layers.network": () =>
    networkFiles(networkSubject(openGraph(onnx(LAYERS)).program, new Map(), { name: "layers", threads: 2 })),
  "layers.network.bf16": () =>
    networkFiles(networkSubject(inBrainFloatsOnCpu(openGraph(onnx(LAYERS))).program, new Map(), { name: "narrow" })),
  "ids.network": () => networkFiles(networkSubject(openGraph(onnx(IDS)).program, new Map(), { name: "ids" })),
  "rows.network.cuda": () => {
    const { program } = inHalfOnGpu(openGraph(onnx("Softmax(Relu(image:f16[3,5]))")));
    return networkFiles(networkSubject(program, choicesOf(program, { machine: H100 }), { name: "rows", gpu: H100 }));
  },
  "half.network": () =>
    networkFiles(networkSubject(inHalfOnGpu(openGraph(onnx(LAYERS))).program, new Map(), { name: "half" })),
};

const hashOf = (data: string | Uint8Array): string => createHash("sha256").update(data).digest("hex").slice(0, 12);

const HASHED =
  /\.d\.ts$|_(?:k\d+|portable|tuned|test|reference)\.(?:cpp|cu)$|^(?:binding|network-binding|memory|self-test|torch_\w+|torch-check|cuda-test|network-cuda)\.\w+$/;

/** Texts that a package before has shown. */
const seen = new Set<string>();

function fileText([name, held]: readonly [string, unknown]): string {
  if (ArrayBuffer.isView(held))
    return `=== ${name}: ${held.byteLength} bytes, ${hashOf(Buffer.from(held.buffer, held.byteOffset, held.byteLength))}`;
  const text = `${held}`.replaceAll(VERSION, "VERSION");
  const isHashed = seen.has(text) || HASHED.test(name);
  seen.add(text);
  return isHashed ? `=== ${name}: ${hashOf(text)}` : `=== ${name}\n${text.trimEnd()}`;
}

it.each(Object.entries(PACKAGES))("%s", async (name, files) => {
  await expect(`${[...files()].map(fileText).join("\n")}\n`).toMatchFileSnapshot(`../golden/packages/${name}.txt`);
});
