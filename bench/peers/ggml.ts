/**
 * @file ggml, the library of llama.cpp, as a peer: a product by weights of 4 bits, called from this process.
 *
 *     npm install --no-save --ignore-scripts @node-llama-cpp/linux-x64
 *     loadGgml("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64", koffi).product(weights, x, { m: 1, threads: 1 })
 *
 * It is found by the folder of its libraries, and takes the variant of its kernels that this processor runs. Its format Q4_0 shares an f16 scale among 32
 * weights. Weights lie in the buffer for which ggml has the fastest kernels: repacked, or tiles of AMX, as llama.cpp does when it reads a model.
 */

import { readdirSync } from "node:fs";
import { resolve } from "node:path";
import { UsageError } from "../../abstraction/error.ts";
import { shortBits } from "../../abstraction/short-floats.ts";
import type { loadKoffi } from "../../session/natives.ts";

type Koffi = Awaited<ReturnType<typeof loadKoffi>>;

/** Weights of Q4_0 that share a scale, and bytes of such a group: the scale, and two weights in each of the others. */
export const GGML_GROUP = 32;
const GROUP_BYTES = 18;
/** Values of enumerations in ggml.h and ggml-backend.h. */
const TYPE_F32 = 0;
const TYPE_Q4_0 = 2;
const CPU = 0;
/** Bytes of a context, which describes a few tensors and a graph. */
const CONTEXT_BYTES = 1 << 20;

/** Weights of 4 bits, [n, k], two in a byte, the first in its low half; a weight is its scale times its code less 8. */
export interface NarrowWeights {
  readonly n: number;
  readonly k: number;
  readonly codes: ArrayLike<number | bigint>;
  /** Of each 32 weights of a row, [n, k / 32]. */
  readonly scales: ArrayLike<number | bigint>;
}

/** A product of f32 numbers with such weights, in one of ggml's forms. */
export interface GgmlProduct {
  /** ggml's name of the memory that holds the weights, such as `CPU_REPACK`. */
  readonly form: string;
  run(): void;
  /** [m, n], of the last run. */
  output(): Float32Array;
  close(): void;
}

/**
 * A function for each form that ggml has for a processor's products. Weights of one are stored as in a file, of another interleaved, of a third
 * in tiles of AMX.
 * @param folder of the libraries
 * @throws UsageError where it has none that runs here
 */
export function loadGgml(folder: string, koffi: Koffi) {
  const open = (library: string): ReturnType<Koffi["load"]> => {
    const name = readdirSync(folder).find((file) => file.startsWith(`${library}.`) && file.includes(".so"));
    if (name === undefined)
      throw new UsageError(`${folder} holds no ${library}.so`, "give the folder of ggml's libraries");
    return koffi.load(resolve(folder, name));
  };
  const base = open("libggml-base");
  const backends = open("libggml");
  koffi.struct("ggml_init_params", { mem_size: "size_t", mem_buffer: "void *", no_alloc: "bool" });
  const init = base.func("void *ggml_init(ggml_init_params params)");
  const free = base.func("void ggml_free(void *context)");
  const tensor = base.func("void *ggml_new_tensor_2d(void *context, int type, int64_t inner, int64_t outer)");
  const multiply = base.func("void *ggml_mul_mat(void *context, void *weights, void *x)");
  const newGraph = base.func("void *ggml_new_graph(void *context)");
  const expand = base.func("void ggml_build_forward_expand(void *graph, void *tensor)");
  const allocate = base.func("void *ggml_backend_alloc_ctx_tensors_from_buft(void *context, void *type)");
  const freeBuffer = base.func("void ggml_backend_buffer_free(void *buffer)");
  const set = base.func("void ggml_backend_tensor_set(void *tensor, const void *data, size_t offset, size_t bytes)");
  const get = base.func("void ggml_backend_tensor_get(const void *tensor, void *data, size_t offset, size_t bytes)");
  const compute = base.func("int ggml_backend_graph_compute(void *backend, void *graph)");
  const usualType = base.func("void *ggml_backend_get_default_buffer_type(void *backend)");
  const nameOf = base.func("const char *ggml_backend_buft_name(void *type)");
  const deviceOf = base.func("void *ggml_backend_get_device(void *backend)");
  const registryOf = base.func("void *ggml_backend_dev_backend_reg(void *device)");
  const addressOf = base.func("void *ggml_backend_reg_get_proc_address(void *registry, const char *name)");
  backends.func("void ggml_backend_load_all_from_path(const char *folder)")(resolve(folder));

  const backend = backends.func("void *ggml_backend_init_by_type(int type, const char *options)")(CPU, null);
  if (backend === null) throw new UsageError(`no library of ${folder} runs on this processor`);
  const device = deviceOf(backend);
  const found = (name: string, prototype: string) =>
    koffi.decode(addressOf(registryOf(device), name), koffi.proto(prototype));
  const setThreads = found("ggml_backend_set_n_threads", "void set_threads(void *backend, int threads)");
  const special = found("ggml_backend_dev_get_extra_bufts", "void **special_types(void *device)")(device);
  const types: unknown[] = [usualType(backend)];
  for (let i = 0; ; i++) {
    const type: unknown = koffi.decode(special, i * koffi.sizeof("void *"), "void *");
    if (type === null) break;
    types.push(type);
  }

  const productIn = (type: unknown, weights: NarrowWeights, x: Float32Array): GgmlProduct => {
    const { n, k } = weights;
    const m = x.length / k;
    const [constants, values] = [1, 2].map(() => init({ mem_size: CONTEXT_BYTES, mem_buffer: null, no_alloc: true }));
    const w = tensor(constants, TYPE_Q4_0, k, n);
    const input = tensor(values, TYPE_F32, k, m);
    const output = multiply(values, w, input);
    const graph = newGraph(values);
    expand(graph, output);
    const buffers = [allocate(constants, type), allocate(values, usualType(backend))];
    const bytes = bytesOf(weights);
    set(w, bytes, 0, bytes.byteLength);
    set(input, x, 0, x.byteLength);
    return {
      form: String(nameOf(type)),
      run: () => {
        if (compute(backend, graph) !== 0) throw new Error("ggml did not compute its graph");
      },
      output: () => {
        const result = new Float32Array(m * n);
        get(output, result, 0, result.byteLength);
        return result;
      },
      close: () => {
        buffers.forEach(freeBuffer);
        [constants, values].forEach(free);
      },
    };
  };
  return {
    version: String(base.func("const char *ggml_version()")()),
    /** The product in each form. x: [m, k]. */
    products: (weights: NarrowWeights, x: Float32Array, threads: number): readonly GgmlProduct[] => {
      setThreads(backend, threads);
      return types.map((type) => productIn(type, weights, x));
    },
  };
}

/** The weights in Q4_0: of each group the scale in f16, then byte i with weight i in its low half and weight 16 + i in its high half. */
export function bytesOf({ n, k, codes, scales }: NarrowWeights): Uint8Array {
  const bytes = new Uint8Array((n * k * GROUP_BYTES) / GGML_GROUP);
  const view = new DataView(bytes.buffer);
  const half = GGML_GROUP / 2;
  const codeAt = (i: number): number => (Number(codes[i >> 1]) >> (4 * (i % 2))) & 15;
  for (let group = 0; group < (n * k) / GGML_GROUP; group++) {
    view.setUint16(group * GROUP_BYTES, shortBits("f16", Number(scales[group])), true);
    for (let i = 0; i < half; i++)
      bytes[group * GROUP_BYTES + 2 + i] =
        codeAt(group * GGML_GROUP + i) | (codeAt(group * GGML_GROUP + half + i) << 4);
  }
  return bytes;
}
