/**
 * @file The emulated GPU: a missing barrier, wait or lane shows in some order of its threads; misuse ends with a
 * message.
 */

import { beforeAll, describe, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { ADVERSE_ORDERS, type EmulatedRun, runEmulated } from "../../runtime/emulated-kernel.ts";
import { sourceOf } from "../support/source.ts";

/** A kernel of 64 threads and two blocks on 128 floats; `launch` may ask for dynamic shared memory. */
function kernel(body: string, launch = "", shared = 0): Kernel {
  const source = `
static __global__ void step(float* out, const float* in) {
  const int t = threadIdx.x, block = 64 * blockIdx.x;
  ${body}
}
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_prepare(void*, const void* const*, cudaStream_t) { return 0; }
extern "C" int automap_launch(void* workspace, void* const* tensors, cudaStream_t stream) {
  float* out = (float*)tensors[0];
  const float* in = (const float*)tensors[1];
  void* arguments[] = {(void*)&out, (void*)&in};
  cudaError_t error = cudaSuccess;
  ${launch}
  return error ? error : cudaLaunchKernel(step, dim3(2), dim3(64), arguments, ${shared}, stream);
}
`;
  const tensor = (name: string, role: "output" | "input") =>
    ({ tensor: name, dtype: "f32", elements: 128, role }) as const;
  const tensors = [tensor("out", "output"), tensor("in", "input")];
  return { language: "cuda", source: sourceOf(source), features: ["sm_80"], promises: undefined, arguments: tensors };
}

const INPUT = Array.from({ length: 128 }, (_, i) => i + 1);
const REVERSED = INPUT.map((_, i) => INPUT[64 * Math.floor(i / 64) + 63 - (i % 64)] ?? 0);
/** The last four of each block are outside. */
const FILLED = REVERSED.map((v, i) => (i % 64 < 4 ? 0 : v));

const through = (barrier: string): string => `
  __shared__ float s[64];
  s[t] = in[block + t];
  ${barrier}
  out[block + t] = s[63 - t];`;

const dynamic = `
  float* s = (float*)dynamic_shared() + 16000;
  s[t] = in[block + t];
  __syncthreads();
  out[block + t] = s[63 - t];`;
const ask = (bytes: number): string =>
  `error = cudaFuncSetAttribute(step, cudaFuncAttributeMaxDynamicSharedMemorySize, ${bytes});`;

const copied = (commit: string, wait: string): string => `
  __shared__ __align__(16) float s[64];
  if (t < 16) copy_async_where<16>(t < 15, &s[4 * t], in, block + 4 * t);
  ${commit}
  ${wait}
  __syncthreads();
  out[block + t] = s[63 - t];`;

/** Four matrices of numbers 0 to 255, row by row; the first warp shows the upper half of its first register, the other its last. */
const matrices = (load: string): string => `
  __shared__ __align__(16) uint16_t s[256];
  for (int i = 0; i < 8 && t < 32; i++) s[8 * t + i] = 8 * t + i;
  __syncthreads();
  unsigned a, b, c, d;
  ${load}(a, b, c, d, &s[8 * (t % 32)]);
  out[block + t] = t < 32 ? a >> 16 : d & 0xffff;`;
const LANES = INPUT.map((_, i) => i % 64);
const row = (t: number): number => 8 * Math.floor((t % 32) / 4) + 2 * (t % 4);
const column = (t: number): number => 16 * (t % 4) + Math.floor((t % 32) / 4);

const own = `
  __shared__ float s[1];
  float sum = in[block + t];
  if (t < 32) {
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (t == 0) s[0] = sum;
  }
  __syncthreads();
  out[block + t] = s[0];`;
/** Each of two blocks writes into the other's shared memory. */
const across = (barrier: string, block = "1 - blockIdx.x"): Kernel =>
  kernel(
    `
  float* s = (float*)dynamic_shared();
  cluster_has_begun();
  in_block(s, ${block})[t] = in[block + t];
  ${barrier}
  out[block + t] = s[63 - t];`,
    "return launch_with(step, 2, 0, dim3(2), dim3(64), arguments, 1024, stream);",
  );
const EXCHANGED = [...REVERSED.slice(64), ...REVERSED.slice(0, 64)];

/** A box of 64 floats of each block, from a place of its row on. */
const boxed = (first: number): string => `
  float* s = (float*)dynamic_shared();
  uint64_t* full = (uint64_t*)(dynamic_shared() + 512);
  init_arrivals(full, 1, 1);
  publish_arrivals();
  CUtensorMap map;
  describe_box<2>(&map, in, 4, {64, 2}, {256}, {32, 1});
  if (t == 0) {
    expect_bytes(full, 128);
    copy_box<2>(s, &map, {${first}, (int)blockIdx.x}, full);
  }
  await_arrival(full, 0);
  // Rows of 128 bytes are swizzled: the first one is as it was.
  out[block + t] = s[t % 32];`;
/** Four floats on; zeros before the first. */
const beginsAt = (first: number): number[] =>
  INPUT.map((_, i) => {
    const at = first + (i % 32);
    return at < 0 ? 0 : (INPUT[64 * Math.floor(i / 64) + at] ?? 0);
  });

const sumOf = (from: number): number => INPUT.slice(from, from + 32).reduce((a, b) => a + b, 0);

const CASES: Readonly<Record<string, { readonly kernel: Kernel; readonly want: readonly number[] }>> = {
  barrier: { kernel: kernel(through("__syncthreads();")), want: REVERSED },
  "no barrier": { kernel: kernel(through("")), want: REVERSED },
  "a warp's barrier": { kernel: kernel(through("__syncwarp();")), want: REVERSED },
  "64 KiB": { kernel: kernel(dynamic, ask(65536), 65536), want: REVERSED },
  "64 KiB not asked for": { kernel: kernel(dynamic, "", 65536), want: REVERSED },
  "293 KiB": { kernel: kernel(dynamic, ask(300000), 65536), want: REVERSED },
  copied: { kernel: kernel(copied("commit_copies();", "wait_for_copies<0>();")), want: FILLED },
  "no wait": { kernel: kernel(copied("commit_copies();", "")), want: FILLED },
  "no commit": { kernel: kernel(copied("", "wait_for_copies<0>();")), want: FILLED },
  "a wait for the group before": { kernel: kernel(copied("commit_copies();", "wait_for_copies<1>();")), want: FILLED },
  matrices: {
    kernel: kernel(matrices("load_4_matrices")),
    want: LANES.map((t) => row(t) + (t < 32 ? 1 : 192)),
  },
  "turned matrices": {
    kernel: kernel(matrices("load_4_matrices_transposed")),
    want: LANES.map((t) => column(t) + (t < 32 ? 8 : 192)),
  },
  "collectives of one warp": { kernel: kernel(own), want: INPUT.map((_, i) => sumOf(i < 64 ? 0 : 64)) },
  "across a cluster": { kernel: across("barrier_of_cluster();"), want: EXCHANGED },
  "across a cluster, a block's barrier": { kernel: across("__syncthreads();"), want: EXCHANGED },
  "beyond a cluster": { kernel: across("barrier_of_cluster();", "2"), want: EXCHANGED },
  "a box": { kernel: kernel(boxed(4), "", 1024), want: beginsAt(4) },
  "a box from before the tensor": { kernel: kernel(boxed(-4), "", 1024), want: beginsAt(-4) },
  "a box off its pieces": { kernel: kernel(boxed(-1), "", 1024), want: beginsAt(-1) },
  deadlock: { kernel: kernel("if (t == 5) __syncthreads(); else __syncwarp(); out[block + t] = 0;"), want: INPUT },
  "a crooked copy": {
    kernel: kernel("__shared__ float s[64]; copy_async<16>(&s[t], &in[0]); out[block + t] = 0;"),
    want: INPUT,
  },
  "matrices in global memory": {
    kernel: kernel(`
  __shared__ float s[1];
  unsigned a;
  if (t == 0) s[0] = 0;
  load_1_matrix(a, (const void*)((uintptr_t)out & ~(uintptr_t)15));
  out[block + t] = s[0];`),
    want: INPUT,
  },
};

/** A byte where the kernel may not read or write; its answer is right otherwise. */
const STRAYS: Readonly<Record<string, readonly [body: string, ends: RegExp]>> = {
  "a read behind an input": ["out[block + t] = in[block + t] + 0 * in[128];", /failed: .*SIGSEGV/],
  "a read before an input": ["out[block + t] = in[block + t] + 0 * in[-1];", /wrong/],
  "a write to an input": ["((volatile float*)in)[t] = in[t]; out[block + t] = in[block + t];", /failed: .*SIGSEGV/],
  "a write before the output": ["out[block + t] = in[block + t]; out[-1] = 1;", /written before the output/],
};

const outcomes = new Map<string, string[]>();

/** One program: `right`, `wrong`, or how it ended, in every order. */
beforeAll(async () => {
  const strays = Object.entries(STRAYS).map(([name, [body]]) => [name, { kernel: kernel(body), want: INPUT }] as const);
  const workspace = kernel(
    "out[block + t] = in[block + t];",
    "for (int i = 0; i < 60; i++) ((char*)workspace)[i] = 1; ((char*)workspace)[64] = 1;",
  );
  const all = [
    ...Object.entries(CASES),
    ...strays,
    ["a write behind the workspace", { kernel: workspace, want: INPUT }] as const,
  ];
  const asked = all.flatMap(([name, { kernel: k, want }]) =>
    ADVERSE_ORDERS.map((order) => ({ name, want, job: { kernel: k, inputs: { in: INPUT }, order } })),
  );
  const runs = await runEmulated(asked.map(({ job }) => job));
  const outcome = (run: EmulatedRun | undefined, want: readonly number[]): string => {
    if (run?.status !== "ok") return `${run?.status}: ${run?.log}`;
    return want.every((v, i) => v === run.output[i]) ? "right" : "wrong";
  };
  for (const [i, { name, want }] of asked.entries())
    outcomes.set(name, [...(outcomes.get(name) ?? []), outcome(runs[i], want)]);
});

const always = (what: unknown): unknown[] => ADVERSE_ORDERS.map(() => what);
const late = ADVERSE_ORDERS.map((o) => (o.copies === "late" ? "wrong" : "right"));

describe("shared memory", () => {
  it("holds after a barrier the values written before it, in every order", () => {
    expect(outcomes.get("barrier")).toEqual(always("right"));
  });

  it("holds old values without a barrier, and also with a barrier of the warp alone", () => {
    expect(outcomes.get("no barrier")).toEqual(always("wrong"));
    expect(outcomes.get("a warp's barrier")).toContain("wrong");
  });

  it("beyond 48 KiB must be requested, and cannot exceed what a block may have", () => {
    expect(outcomes.get("64 KiB")).toEqual(always("right"));
    expect(outcomes.get("64 KiB not asked for")).toEqual(always(expect.stringMatching(/^failed: .*exited with 4/)));
    expect(outcomes.get("293 KiB")).toEqual(always(expect.stringMatching(/^failed: .*exited with 4/)));
  });
});

describe("the shared memory of another block", () => {
  it("is visible after a barrier of the cluster, and not after one of the block", () => {
    expect(outcomes.get("across a cluster")).toEqual(always("right"));
    expect(outcomes.get("across a cluster, a block's barrier")).toContain("wrong");
  });
});

describe("asynchronous copies", () => {
  it("arrive at the wait, with zeros outside the tensor", () => {
    expect(outcomes.get("copied")).toEqual(always("right"));
  });

  it.each(["no wait", "no commit", "a wait for the group before"])(
    "have not arrived without the right wait: %s",
    (name) => {
      expect(outcomes.get(name)).toEqual(late);
    },
  );
});

describe("the copy engine", () => {
  it("brings a box from any multiple of 16 bytes, with zeros outside the tensor", () => {
    expect(outcomes.get("a box")).toEqual(always("right"));
    expect(outcomes.get("a box from before the tensor")).toEqual(always("right"));
  });
});

describe("a warp", () => {
  it("reads rows of matrices from its lanes' addresses, transposed or not", () => {
    expect(outcomes.get("matrices")).toEqual(always("right"));
    expect(outcomes.get("turned matrices")).toEqual(always("right"));
  });

  it("may run collectives of its own while other warps wait for the block", () => {
    expect(outcomes.get("collectives of one warp")).toEqual(always("right"));
  });
});

describe("memory outside a kernel's tensors", () => {
  it.each(Object.entries(STRAYS))("is not touched unnoticed: %s", (name, [, ends]) => {
    expect(outcomes.get(name)).toEqual(always(expect.stringMatching(ends)));
  });

  it("is not touched unnoticed: a write behind the workspace", () => {
    expect(outcomes.get("a write behind the workspace")).toEqual(
      always(expect.stringMatching(/SIGSEGV|behind the workspace/)),
    );
  });
});

describe("an access or a wait that no GPU accepts", () => {
  it.each([
    ["deadlock", /nobody can go on: thread 0 waits for its warp; thread 5 waits for its block; thread 6 waits/],
    ["beyond a cluster", /a block of the cluster has no such memory/],
    ["a box off its pieces", /the engine begins at multiples of 16 bytes along the innermost dimension/],
    ["a crooked copy", /thread \d+ of block [01]: cp.async wants shared memory, aligned to its size/],
    ["matrices in global memory", /ldmatrix wants rows in shared memory, aligned to 16 bytes/],
  ])("ends the program with a message: %s", (name, sentence) => {
    expect(outcomes.get(name)).toEqual(always(expect.stringMatching(sentence)));
  });
});
