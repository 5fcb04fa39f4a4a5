/**
 * @file The runner of CUDA kernels on an emulated device: what passes, and every way to fail, each with its own status.
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  type Computation,
  defineComputation,
  elementCount,
  inputsOf,
  memoryElements,
  outputOf,
} from "../../abstraction/computation.ts";
import { wrap } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { cudaReferenceSource } from "../../runtime/reference/reference-cuda.ts";
import { toMemory } from "../../runtime/reference/verify.ts";
import { complaintOf, countSass } from "../../runtime/run/cuda-build.ts";
import { emulatedRunner } from "../support/emulated-runner.ts";
import { sourceOf } from "../support/source.ts";
import { stated } from "../support/subjects.ts";

const TIMING = { budgetSeconds: 0, batches: [1, 1], batchSeconds: 0 } as const;

const { folder, runner } = emulatedRunner();

const matmul = stated(
  "out[i,j] += f32(a[i,k]) * f32(b[k,j]) --i 5 --j 6 --k 7 --dtype f16 --epilogue c[i,j] = f16(max(out[i,j], 0)) --name matmul",
);

/** A kernel of one thread, by hand. */
function kernelOf(
  computation: Computation,
  body: string,
  launch = "cudaLaunchKernel(run, dim3(1), dim3(1), arguments, 0, stream)",
): Kernel {
  const tensors = [outputOf(computation), ...inputsOf(computation)];
  const source = `
#include <stdint.h>
static int error_in(const char* name) {
  FILE* file = fopen(name, "r");
  int error;
  if (!file || fscanf(file, "%d", &error) != 1) abort();
  fclose(file);
  return error;
}
static __device__ inline float number(uint16_t x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static __device__ inline uint16_t bits(float f) { _Float16 h = (_Float16)f; uint16_t x; memcpy(&x, &h, 2); return x; }
__global__ void run(uint16_t* out, const uint16_t* a, const uint16_t* b) {
${body}
}
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_prepare(void*, const void* const*, cudaStream_t) { return 0; }
extern "C" int automap_launch(void*, void* const* tensors, cudaStream_t stream) {
  uint16_t* out = (uint16_t*)tensors[0];
  const uint16_t *a = (const uint16_t*)tensors[1], *b = (const uint16_t*)tensors[2];
  void* arguments[] = {&out, &a, &b};
  return ${launch};
}`;
  return {
    language: "cuda",
    source: sourceOf(source),
    features: [],
    promises: undefined,
    arguments: tensors.map((t, i) => ({
      tensor: t.name,
      dtype: t.dtype,
      elements: memoryElements(t),
      role: i === 0 ? "output" : "input",
    })),
  };
}

/** A kernel whose launch gives this error. The text is the same for each, so it is compiled once. */
function failingKernel(error: number): Kernel {
  const file = join(folder, "error");
  writeFileSync(file, String(error));
  return kernelOf(matmul, RIGHT, `error_in("${file}")`);
}

const RIGHT = `for (int i = 0; i < 5; i++) for (int j = 0; j < 6; j++) {
    float sum = 0;
    for (int k = 0; k < 7; k++) sum += number(a[7 * i + k]) * number(b[6 * k + j]);
    out[6 * i + j] = bits(sum > 0 ? sum : 0);
  }`;

async function statusOf(kernel: Kernel, stepSeconds = 60): Promise<{ status: string; log?: string }> {
  const reference = await runner().reference(matmul, 1);
  const [measured] = await runner().measureTogether([kernel], reference, { ...TIMING, stepSeconds });
  if (!measured) throw new Error("no measurement");
  return measured;
}

describe("a CUDA kernel on the emulated device", () => {
  it("passes when every element of three sets of inputs lies within its bounds", async () => {
    expect(await statusOf(kernelOf(matmul, RIGHT))).toMatchObject({ status: "ok" });
  });

  it("is wrong when one element is, and the log names it, its inputs and the expected value", async () => {
    const { status, log } = await statusOf(kernelOf(matmul, `${RIGHT}\n  out[13] = bits(number(out[13]) + 0.25f);`));
    expect(status).toBe("wrong");
    expect(log).toMatch(/1 of 30 elements differ on exact inputs, call 1: element 13 of c is \S+, expected \S+ to \S+/);
  });

  it("is wrong when it leaves an element as it was", async () => {
    expect(await statusOf(kernelOf(matmul, RIGHT.replace("j < 6", "j < 5")))).toMatchObject({ status: "wrong" });
  });

  it("is wrong when a second call adds to the first", async () => {
    const added = RIGHT.replace(
      "out[6 * i + j] = ",
      "static float kept[30]; kept[6 * i + j] += sum; sum = kept[6 * i + j]; out[6 * i + j] = ",
    );
    expect(await statusOf(kernelOf(matmul, added))).toMatchObject({ status: "wrong" });
  });

  it("is out of bounds when it writes beside its output", async () => {
    const { status, log } = await statusOf(kernelOf(matmul, `${RIGHT}\n  out[30] = 0;`));
    expect([status, log]).toEqual(["out-of-bounds", "it writes beside its output, on exact inputs"]);
  });

  it("times out when it does not end", async () => {
    const endless = kernelOf(matmul, "  volatile bool on = true;\n  while (on) {}");
    expect(await statusOf(endless, 2)).toMatchObject({ status: "timed-out" });
  });

  it("is stopped while it runs, before its time limit", async () => {
    const endless = kernelOf(matmul, "  volatile bool on = true;\n  while (on) {}");
    const reference = await runner().reference(matmul, 1);
    // Compiled before: what is stopped is the run.
    await runner().compile(endless);
    const stop = new AbortController();
    const never = new AbortController().signal;
    const until = { soon: never, time: never, stop: stop.signal, needsOne: true };
    setTimeout(() => stop.abort(), 500);
    await expect(
      runner().measureTogether([endless], reference, { ...TIMING, stepSeconds: 1000, until }),
    ).rejects.toThrow("measuring was stopped");
  });

  it("crashes when it touches memory that is not its own", async () => {
    expect(await statusOf(kernelOf(matmul, "  *(volatile int*)8 = 1;"))).toMatchObject({ status: "crashed" });
  });

  it.each([
    ["crashed", "an invalid configuration", 9, "launch: cudaError"],
    ["out-of-resources", "more registers than a block has", 701, "launch: cudaErrorLaunchOutOfResources"],
    ["out-of-memory", "memory that is not there", 2, "launch: cudaErrorMemoryAllocation"],
    ["timed-out", "a kernel that the driver ends", 702, "launch: cudaErrorLaunchTimeout"],
    ["illegal-instruction", "an instruction of another GPU", 715, "launch: cudaErrorIllegalInstruction"],
  ])("is %s for %s", async (expected, _, error, words) => {
    const { status, log } = await statusOf(failingKernel(error));
    expect(status).toBe(expected);
    expect(log).toContain(words);
  });

  it("is out of resources when it asks for more shared memory than a block has", async () => {
    const kernel = kernelOf(matmul, RIGHT);
    const greedy = "cudaFuncSetAttribute(run, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 20)";
    const source = kernel.source.replace("cudaStream_t) { return 0; }", `cudaStream_t) { return ${greedy}; }`);
    const { status, log } = await statusOf({ ...kernel, source: sourceOf(source) });
    expect([status, log]).toEqual([
      "out-of-resources",
      expect.stringContaining("more shared memory than a block has: cudaErrorInvalidValue"),
    ]);
  });

  it.each([
    ["a driver that is too old", 35, "cudaErrorInsufficientDriver", /update the driver/],
    ["memory that has failed", 214, "cudaErrorECCUncorrectable", /memory has failed/],
    ["a device that another process has for itself", 46, "cudaErrorDevicesUnavailable", /end that process/],
  ])("is not at fault for %s: the machine is to blame", async (_, error, name, remedy) => {
    const failing = statusOf(failingKernel(error));
    await expect(failing).rejects.toMatchObject({
      problem: { what: expect.stringContaining(name), remedy: expect.stringMatching(remedy) },
    });
  });

  it("is measured again when a fault of the machine is gone", async () => {
    const flag = join(folder, "once");
    const launch = `access("${flag}", F_OK) == 0 ? cudaLaunchKernel(run, dim3(1), dim3(1), arguments, 0, stream) : (cudaError_t)(close(open("${flag}", O_CREAT, 0600)) + 214)`;
    const kernel = kernelOf(matmul, RIGHT, launch);
    const source = kernel.source.replace(
      "#include <stdint.h>",
      '#include <stdint.h>\nextern "C" int access(const char*, int), open(const char*, int, ...), close(int);\nenum { F_OK = 0, O_CREAT = 64 };',
    );
    expect(await statusOf({ ...kernel, source: sourceOf(source) })).toMatchObject({ status: "ok" });
  });

  it("does not fail the other kernels of its process when it fails", async () => {
    const reference = await runner().reference(matmul, 1);
    const kernels = [
      kernelOf(matmul, RIGHT),
      kernelOf(matmul, "  *(volatile int*)8 = 1;"),
      kernelOf(matmul, `${RIGHT}\n  // another`),
    ];
    const measured = await runner().measureTogether(kernels, reference, TIMING);
    expect(measured.map((m) => m.status)).toEqual(["ok", "crashed", "ok"]);
  });

  it("is measured by the process that measured others before, until one of them ends it", async () => {
    const reference = await runner().reference(matmul, 1);
    const file = join(folder, "processes");
    // Its own process notes its number at every launch.
    const noted = (body: string): Kernel => {
      const kernel = kernelOf(matmul, body);
      const source = kernel.source
        .replace("#include <stdint.h>", '#include <stdint.h>\nextern "C" int getpid(void);')
        .replace(
          "uint16_t* out =",
          `FILE* file = fopen("${file}", "a");\n  fprintf(file, "%d\\n", getpid()), fclose(file);\n  uint16_t* out =`,
        );
      return { ...kernel, source: sourceOf(source) };
    };
    await runner().prepare(reference);
    const statuses: string[] = [];
    const processes: number[] = [];
    for (const body of [RIGHT, `${RIGHT}\n  // 2`, "  *(volatile int*)8 = 1;", `${RIGHT}\n  // 3`]) {
      writeFileSync(file, "");
      const [measured] = await runner().measureTogether([noted(body)], reference, TIMING);
      statuses.push(measured?.status ?? "none");
      processes.push(...new Set(readFileSync(file, "utf8").trim().split("\n").map(Number)));
    }
    expect(statuses).toEqual(["ok", "ok", "crashed", "ok"]);
    const [first, second, third, fourth] = processes;
    expect(processes).toHaveLength(4);
    expect([second, third]).toEqual([first, first]);
    expect(fourth).not.toBe(first);
  });

  it("is checked by bounds that another kernel of its process has written over", async () => {
    const reference = await runner().reference(matmul, 1);
    // Bounds of 30 elements end a page by itself; a NaN there leaves an element unchecked.
    const vandal = kernelOf(
      matmul,
      `${RIGHT}
  FILE* maps = fopen("/proc/self/maps", "r");
  unsigned long from, to;
  char rights[8], rest[400];
  while (fscanf(maps, "%lx-%lx %7s%399[^\\n]", &from, &to, rights, rest) == 4) {
    const bool isTensors = from == ((unsigned long)out & ~4095ul) || from == ((unsigned long)a & ~4095ul) || from == ((unsigned long)b & ~4095ul);
    double* const all = (double*)(to - 256);
    bool isBounds = to - from == 4096 && rights[1] == 'w' && !isTensors;
    bool isNumber = false;
    for (int i = 0; i < 30 && isBounds; i++) {
      isBounds = all[i] > -1e6 && all[i] < 1e6;
      isNumber |= all[i] > 0.01;
    }
    for (int i = 0; i < 30 && isBounds && isNumber; i++) all[i] = __builtin_nan("");
  }
  fclose(maps);`,
    );
    const [first] = await runner().measureTogether([vandal], reference, TIMING);
    expect(first).toMatchObject({ status: "ok" });
    expect(await statusOf(kernelOf(matmul, "  out[0] = 0;"))).toMatchObject({ status: "wrong" });
  });

  it("drops out of a race that it loses, and is timed to the end otherwise", async () => {
    const reference = await runner().reference(matmul, 1);
    const slow = kernelOf(
      matmul,
      RIGHT,
      "(usleep(4000), cudaLaunchKernel(run, dim3(1), dim3(1), arguments, 0, stream))",
    );
    const source = slow.source.replace("#include <stdint.h>", '#include <stdint.h>\nextern "C" int usleep(unsigned);');
    const late = { ...slow, source: sourceOf(source) };
    const both = [kernelOf(matmul, RIGHT), late];
    const timing = { cache: "flushed", budgetSeconds: 10, batches: [3, 12] } as const;
    const samples = async (kernels: Kernel[], race?: { goal: number | undefined }): Promise<unknown[]> => {
      const measured = await runner().measureTogether(kernels, reference, { ...timing, ...(race && { race }) });
      return measured.map((m) => (m.status === "ok" ? [m.samples.length, m.lostTo !== undefined] : m.status));
    };
    const toTheEnd = [12, false];
    const lost = [3, true];
    expect(await samples(both)).toEqual([toTheEnd, toTheEnd]);
    expect(await samples(both, { goal: undefined })).toEqual([toTheEnd, lost]);
    expect(await samples([late], { goal: undefined })).toEqual([toTheEnd]);
    expect(await samples([late], { goal: 1e-9 })).toEqual([lost]);
  });

  it("has the compiler's message as its log when it does not compile", async () => {
    const { status, log } = await statusOf(kernelOf(matmul, "  no such thing;"));
    expect(status).toBe("compile-failed");
    expect(log).toContain("kernel.cu");
  });
});

describe("the reference on the device", () => {
  const cases: readonly Computation[] = [
    matmul,
    defineComputation({
      name: "conv",
      equation: "out[n,k,p,q] += s32(in[n,c,p*2+r-1,q*2+s-1]) * s32(w[k,c,r,s]) where (p+q)%3 != 1",
      extents: { n: 1, k: 3, p: 4, q: 4, c: 2, r: 3, s: 3 },
      tensors: {
        in: { dtype: "u8", shape: [1, 2, 8, 8], dims: ["n", "c", "h", "w"], layout: "NHWC" },
        w: "s8",
      },
    }),
    stated(
      "out[n,g*4+o] += f32(a[n,g,i]) * f32(b[g,o,i]); c[n,j] = f16(out[n,j]) --n 3 --g 3 --o 4 --i 5 --dtype f16 --name groups",
    ),
    stated(
      "out[i,j] += f32(a[i,k]) * f32(b[k,j]) --i 5 --j 6 --k 7 --dtype f16 --epilogue c[i,j] = f16(0.5 * out[i,j] * (1 + erf(out[i,j] * 0.7071067811865476))) --name gelu",
    ),
    stated(
      "out[i,j] += f32(a[i,k]) * f32(b[k,j]) --i 5 --j 6 --k 7 --dtype f16 --epilogue c[i,j] = f16(select(i < 3, square(out[i,j]) / (1 + abs(out[i,j])), pow(out[i,j], 3) - floor(out[i,j]) * tanh(-out[i,j]))) --name functions",
    ),
    stated(
      "out[i,j] += s32(a[i,k]) * s32(b[k,j]) --i 5 --j 6 --k 7 --dtype s8 --epilogue c[i,j] = out[i,j] * out[i,j] % 7 - s32(round(f32(out[i,j]) / 2)) --name remainders",
    ),
    stated(
      "out[i,j] += s32(a[i,k]) * s32(b[k,j]) --i 5 --j 6 --k 7 --dtype s8 --epilogue c[i,j] = (out[i,j] * 3 + 1) * 1500000001 + 7 --name wrapping",
    ),
  ];

  for (const computation of cases)
    it(`gives tight bounds around what the interpreter computes: ${computation.name}`, async () => {
      const random = seededRandom(3);
      const inputs = Object.fromEntries(
        inputsOf(computation).map((t) => [
          t.name,
          Float64Array.from({ length: elementCount(t) }, () => wrap(t.dtype, Math.round(6 * random() - 3) / 2)),
        ]),
      );
      const output = outputOf(computation);
      const expected = toMemory(output, interpret(computation, inputs));
      // A kernel that stores what a file holds is compiled once for all computations.
      const constant = (name: string, values: Float64Array): Kernel => {
        const file = join(folder, name);
        writeFileSync(file, values.join(" "));
        const stored = output.dtype === "f16" ? "out[i] = bits((float)x)" : "((int32_t*)out)[i] = (int32_t)x";
        return kernelOf(
          computation,
          `  FILE* file = fopen("${file}", "r");
  double x;
  for (int i = 0; fscanf(file, "%lf", &x) == 1; i++) ${stored};
  fclose(file);`,
        );
      };
      const reference = await runner().reference(computation, 1, { fixed: inputs });
      const off = Float64Array.from(expected, (x, i) => (i === 7 ? x + 1 : x));
      const measured = await runner().measureTogether(
        [constant("expected", expected), constant("off", off)],
        reference,
        TIMING,
      );
      expect(measured.map((m) => m.status)).toEqual(["ok", "wrong"]);
    });

  it("refuses an output whose elements several points write", () => {
    const joined = stated("y[i/2] += a[i] --i 4 --dtype s32");
    expect(() => cudaReferenceSource(joined)).toThrow("several points meet in one element");
  });
});

describe("the output of ptxas and cuobjdump", () => {
  it("counts as a failure when registers are spilled or matrix products are serialised", () => {
    expect(
      complaintOf("ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"),
    ).toBeUndefined();
    expect(complaintOf("    64 bytes stack frame, 60 bytes spill stores, 68 bytes spill loads")).toEqual({
      status: "spilled",
      log: "registers do not suffice: 64 bytes of stack, 60 bytes stored and 68 loaded",
    });
    expect(
      complaintOf("ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized"),
    ).toMatchObject({ status: "serialised", log: expect.stringContaining("C7510") });
  });

  it("counts an instruction whatever suffixes its name has", () => {
    const listing = [
      "        /*0a10*/                   HMMA.16816.F32 R4, R8, R10, R4 ;",
      "        /*0a20*/              @!P0 HMMA.16816.F32 R4, R8, R10, R4 ;",
      "        /*0a30*/                   LDSM.16.M88.4 R8, [R2] ;",
    ];
    expect(countSass(listing.join("\n"), "HMMA")).toBe(2);
  });
});
