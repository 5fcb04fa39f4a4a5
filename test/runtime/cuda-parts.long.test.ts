/**
 * @file Kernels whose two parts are compiled apart: what the host's part asks of a driver that prints what it is asked. Their code is a text that no
 * device runs.
 */

import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { nvccToolchain } from "../../runtime/run/cuda-build.ts";
import { partsOf } from "../../runtime/run/cuda-parts.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { matmulF16, wgmmaSchedule } from "../support/grid-kernels.ts";
import { keptProgram } from "../support/kept-compiler.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

/** Prints each call; addresses are told from numbers by their size. */
const DRIVER = `
#include <cstdint>
#include <cstdio>
#include <cstring>
static const char* names[8];
static int count = 0;
extern "C" {
int cuModuleLoadData(void** module, const void* image) { *module = (void*)0x5000; return printf("load %.4s\\n", (const char*)image), 0; }
int cuModuleUnload(void* module) { return printf("unload %p\\n", module), 0; }
int cuModuleGetFunction(void** function, void* module, const char* name) {
  names[count] = name;
  *function = (void*)(intptr_t)count++;
  return printf("function %s\\n", name), 0;
}
int cuModuleGetGlobal_v2(uint64_t* at, size_t* bytes, void*, const char* name) { *at = 0x6000, *bytes = 99; return printf("constant %s\\n", name), 0; }
int cuFuncSetAttribute(void* function, int attribute, int value) { return printf("set %d of %s to %d\\n", attribute, names[(intptr_t)function], value), 0; }
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* stream) { return printf("%zu of %d at %lx, stream %p\\n", bytes, value, to, stream), 0; }
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t bytes, void* stream) { return printf("copy %zu from %lx to %lx, stream %p\\n", bytes, from, to, stream), 0; }
struct Attribute { int id; alignas(8) union { unsigned words[3]; char bytes[64]; } value; };
struct Config { unsigned grid[3], block[3], shared; void* stream; Attribute* attributes; unsigned count; };
int cuLaunchKernelEx(const Config* c, void* function, void** arguments, void**) {
  printf("launch %s: %u %u %u of %u %u %u, %u bytes, stream %p", names[(intptr_t)function], c->grid[0], c->grid[1], c->grid[2], c->block[0], c->block[1], c->block[2], c->shared, c->stream);
  for (unsigned i = 0; i < c->count; i++) printf(", attribute %d: %u", c->attributes[i].id, c->attributes[i].value.words[0]);
  return printf(", first %lx\\n", (unsigned long)*(uint64_t*)arguments[0]), 0;
}
int cuTensorMapEncodeTiled(void* map, int type, unsigned rank, void* tensor, const uint64_t* extents, const uint64_t* pitches, const unsigned* box, const unsigned*, int, int swizzle, int promotion, int) {
  memset(map, 7, 128);
  printf("box %u x %u of %lu x %lu, pitch %lu, type %d, rank %u, swizzle %d, promotion %d at %p\\n", box[0], box[1], extents[0], extents[1], pitches[0], type, rank, swizzle, promotion, tensor);
  return 0;
}
}`;

const CALLER = `
#include <cstdio>
#include <dlfcn.h>
int main(int, char** words) {
  void* library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (!library) return puts(dlerror()), 1;
  void* tensors[] = {(void*)0x1000, (void*)0x2000, (void*)0x3000};
  printf("workspace %lu\\n", ((unsigned long (*)())dlsym(library, "automap_workspace_bytes"))());
  auto prepare = (int (*)(void*, void* const*, void*))dlsym(library, "automap_prepare");
  auto launch = (int (*)(void*, void* const*, void*))dlsym(library, "automap_launch");
  printf("prepared %d\\n", prepare((void*)0x9000, tensors, (void*)0x77));
  for (int i = 0; i < 2; i++) printf("launched %d\\n", launch((void*)0x9000, tensors, (void*)0x77));
  return dlclose(library);
}`;

async function made(words: readonly string[]): Promise<void> {
  const run = await runChild([keptProgram("g++"), ...words], { timeLimitMs: 900_000, cwd: folder });
  expect([run.status, run.stderr]).toEqual(["ok", ""]);
}

/** What the caller and the driver print. */
async function asked(name: string, source: string): Promise<string[]> {
  const compiler = await compilerHere();
  const parts = partsOf(source);
  if (!parts) throw new Error("nothing to compile apart");
  writeFileSync(join(folder, `${name}.cpp`), parts.host);
  writeFileSync(join(folder, `${name}.fatbin`), `${name} code`);
  const host = nvccToolchain(DEVICE, compiler).apart?.host(join(folder, `${name}.cpp`), `${name}.fatbin`, `${name}.so`);
  expect(await runChild(host ?? [], { timeLimitMs: 900_000, cwd: folder })).toMatchObject({ status: "ok", stderr: "" });
  const env = { LD_LIBRARY_PATH: folder };
  const run = await runChild([join(folder, "caller"), join(folder, `${name}.so`)], { timeLimitMs: 900_000, env });
  expect(run.status).toBe("ok");
  return run.stdout.trim().split("\n");
}

const DEVICE = {
  name: "NVIDIA H100 80GB HBM3",
  id: "GPU-1",
  driver: "580",
  cuda: "13.0",
  capability: 90,
  limits: "",
  memoryMiB: undefined,
  nvcc: { path: "nvcc", version: "V13.0" },
  disassembler: "",
};

function productOf(more: Partial<GridSchedule>): string {
  const schedule = wgmmaSchedule(128, 64, 64, more);
  const matching = { m: ["m"], n: ["n"], k: ["k"] };
  const operands = { c: "out[m,n]", a: "a[m,k]", b: "b[k,n]" };
  const candidate = { kind: "grid", intrinsic: "wgmma.m64n64k16.f32.f16", matching, operands, schedule } as const;
  return kernelFor(matmulF16(256, 256, 512), candidate, nvidiaTarget("h100")).source;
}

describe("the host's part of a kernel, compiled apart", () => {
  beforeAll(async () => {
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, "driver.cpp"), DRIVER);
    writeFileSync(join(folder, "caller.cpp"), CALLER);
    await made(["driver.cpp", "-shared", "-fPIC", "-o", "libcuda.so.1"]);
    await made(["caller.cpp", "-ldl", "-o", "caller"]);
  });

  const boxes = { warps: { m: 1, n: 1 }, transfer: "engine", producer: "warp" } as const;

  it("describes boxes, and launches blocks in clusters", async () => {
    const schedule = { ...boxes, multicast: { blocks: 2, along: "rows" } } as const;
    expect(await asked("boxes", productOf(schedule))).toMatchInlineSnapshot(`
      [
        "workspace 64",
        "load boxe",
        "function phase_0",
        "set 8 of phase_0 to 73776",
        "prepared 0",
        "box 64 x 128 of 512 x 256, pitch 1024, type 1, rank 2, swizzle 3, promotion 3 at 0x2000",
        "box 64 x 32 of 256 x 512, pitch 512, type 1, rank 2, swizzle 3, promotion 3 at 0x3000",
        "launch phase_0: 8 1 1 of 160 1 1, 73776 bytes, stream 0x77, attribute 4: 2, first 1000",
        "launched 0",
        "box 64 x 128 of 512 x 256, pitch 1024, type 1, rank 2, swizzle 3, promotion 3 at 0x2000",
        "box 64 x 32 of 256 x 512, pitch 512, type 1, rank 2, swizzle 3, promotion 3 at 0x3000",
        "launch phase_0: 8 1 1 of 160 1 1, 73776 bytes, stream 0x77, attribute 4: 2, first 1000",
        "launched 0",
        "unload 0x5000",
      ]
    `);
  });

  it("launches a kernel after another, which sums parts in the workspace", async () => {
    const schedule = { ...boxes, split: { parts: 2, through: "memory" } } as const;
    expect(await asked("parts", productOf(schedule))).toMatchInlineSnapshot(`
      [
        "workspace 524352",
        "load part",
        "function phase_0",
        "set 8 of phase_0 to 73776",
        "prepared 0",
        "box 64 x 128 of 512 x 256, pitch 1024, type 1, rank 2, swizzle 3, promotion 3 at 0x2000",
        "box 64 x 64 of 256 x 512, pitch 512, type 1, rank 2, swizzle 3, promotion 3 at 0x3000",
        "launch phase_0: 16 1 1 of 160 1 1, 73776 bytes, stream 0x77, first 9000",
        "function phase_1",
        "launch phase_1: 64 1 1 of 256 1 1, 0 bytes, stream 0x77, first 1000",
        "launched 0",
        "box 64 x 128 of 512 x 256, pitch 1024, type 1, rank 2, swizzle 3, promotion 3 at 0x2000",
        "box 64 x 64 of 256 x 512, pitch 512, type 1, rank 2, swizzle 3, promotion 3 at 0x3000",
        "launch phase_0: 16 1 1 of 160 1 1, 73776 bytes, stream 0x77, first 9000",
        "launch phase_1: 64 1 1 of 256 1 1, 0 bytes, stream 0x77, first 1000",
        "launched 0",
        "unload 0x5000",
      ]
    `);
  });

  it("copies constants", async () => {
    const text = readFileSync(new URL("../golden/lanes.conv1d.cu", import.meta.url), "utf8");
    expect(await asked("constants", text)).toMatchInlineSnapshot(`
      [
        "workspace 64",
        "load cons",
        "constant _ZN9constants1wE",
        "copy 20 from 3000 to 6000, stream 0x77",
        "prepared 0",
        "function phase_0",
        "launch phase_0: 3 1 1 of 128 1 1, 0 bytes, stream 0x77, first 1000",
        "launched 0",
        "launch phase_0: 3 1 1 of 128 1 1, 0 bytes, stream 0x77, first 1000",
        "launched 0",
        "unload 0x5000",
      ]
    `);
  });
});

it("includes all of CUDA's header only for a kernel that calls mathematical functions", () => {
  const product = productOf({ transfer: "async" });
  expect(partsOf(product)?.isLight).toBe(true);
  expect(partsOf(product.replace("wgmma_commit();", "c[0][0] = tanhf(c[0][0]);"))?.isLight).toBe(false);
});

const nvcc = findProgram("nvcc");

it.skipIf(nvcc === undefined)("has the same code of the device in parts as whole", async () => {
  const source = productOf({ warps: { m: 1, n: 1 }, transfer: "engine", producer: "warp" });
  const parts = partsOf(source);
  const compiled = async (name: string, text: string, light: boolean): Promise<Buffer> => {
    writeFileSync(join(folder, `${name}.cu`), text);
    const toolchain = nvccToolchain({ ...DEVICE, nvcc: { path: nvcc ?? "", version: "" } }, await compilerHere());
    const words = toolchain.apart?.device(`${name}.cu`, `${name}.cubin`, light) ?? [];
    const run = await runChild(
      words.map((word) => (word === "-fatbin" ? "-cubin" : word)),
      { timeLimitMs: 900_000, cwd: folder },
    );
    expect(run.status).toBe("ok");
    return codeIn(readFileSync(join(folder, `${name}.cubin`)));
  };
  const whole = await compiled("whole", source, false);
  expect(whole.length).toBeGreaterThan(1000);
  expect(await compiled("light", parts?.device ?? "", true)).toEqual(whole);
});

/** The machine code in an ELF file: its section .text.*. */
function codeIn(file: Buffer): Buffer {
  const table = Number(file.readBigUInt64LE(40));
  const sections = Array.from({ length: file.readUInt16LE(60) }, (_, i) => {
    const at = table + i * file.readUInt16LE(58);
    const from = Number(file.readBigUInt64LE(at + 24));
    return { name: file.readUInt32LE(at), from, to: from + Number(file.readBigUInt64LE(at + 32)) };
  });
  const names = sections[file.readUInt16LE(62)]?.from ?? 0;
  const code = sections.find(({ name }) => file.toString("latin1", names + name, names + name + 6) === ".text.");
  return file.subarray(code?.from, code?.to);
}

async function compilerHere(): Promise<Compiler> {
  const compiler = await findCompiler();
  if (compiler.status !== "found") throw new Error(compiler.what);
  return compiler;
}

it("leaves a text by hand whole", () => {
  expect(
    partsOf('__global__ void run() {}\nextern "C" unsigned long automap_workspace_bytes(void) { return 0; }'),
  ).toBeUndefined();
});
