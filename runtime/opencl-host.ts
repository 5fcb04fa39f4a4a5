/**
 * @file Wraps an OpenCL C kernel in the C interface of a C++ kernel, so that it is compiled, checked, timed and
 * compared like any other, in the same child process under the same limits. The device is the first CPU of any OpenCL
 * platform.
 *
 *     compileSource(openClHost(kernel), [...kernelFlags({ features: [] }), ...OPENCL_FLAGS], ".so", options)
 *
 * Tensors and workspace are buffers in host memory, without copies. A call runs all phases in order and waits once at
 * the end. The device distributes the work, so that parts other than the first have nothing to do.
 */

import { bytesOf } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import { code, list, type SourceText, spell, stringLiteral } from "../abstraction/source-text.ts";

/** Flags in addition to those of a kernel. */
export const OPENCL_FLAGS: readonly string[] = ["-lOpenCL"];

/** The program for a kernel of independent work-items. @throws Error for a kernel with sub-groups */
export function openClHost({ source, arguments: tensors, opencl }: Kernel): SourceText {
  if (opencl?.lanes !== 1) internal("no device here runs this kernel in OpenCL C");
  const text = code`#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static const char* SOURCE = ${stringLiteral(source)};
enum { PHASES = ${opencl.steps.length}, TENSORS = ${tensors.length} };
static const size_t WORKSPACE_BYTES = ${opencl.workspaceBytes};
static const size_t BYTES[] = {${list(tensors.map((t) => code`${t.elements * bytesOf(t.dtype)}`))}};
static const size_t STEPS[] = {${list(opencl.steps.map((n) => code`${n}`))}};

#define MUST(call) must(call, #call)
static void must(cl_int error, const char* what) {
  if (error == CL_SUCCESS) return;
  fprintf(stderr, "OpenCL error %d of %s\\n", error, what);
  abort();
}
static cl_context context;
static cl_command_queue queue;
static cl_kernel kernels[1 + PHASES];

static cl_device_id first_cpu() {
  cl_platform_id platforms[16];
  cl_uint count = 0;
  MUST(clGetPlatformIDs(16, platforms, &count));
  cl_device_id device = nullptr;
  for (cl_uint i = 0; i < count && i < 16; i++)
    if (clGetDeviceIDs(platforms[i], CL_DEVICE_TYPE_CPU, 1, &device, nullptr) == CL_SUCCESS) return device;
  fprintf(stderr, "no OpenCL platform here has a CPU\\n");
  abort();
}

static void begin() {
  if (context) return;
  setenv("PATH", "/usr/local/bin:/usr/bin:/bin", 0); /* PoCL calls a linker, and who measures kernels passes no PATH on */
  cl_int error = CL_SUCCESS;
  cl_device_id device = first_cpu();
  context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &error);
  must(error, "clCreateContext");
  queue = clCreateCommandQueue(context, device, 0, &error);
  must(error, "clCreateCommandQueue");
  cl_program program = clCreateProgramWithSource(context, 1, &SOURCE, nullptr, &error);
  must(error, "clCreateProgramWithSource");
  if (clBuildProgram(program, 1, &device, "-cl-std=CL1.2", nullptr, nullptr) != CL_SUCCESS) {
    static char log[16384];
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log - 1, log, nullptr);
    fprintf(stderr, "%s\\n", log);
    abort();
  }
  for (int i = 0; i <= PHASES; i++) {
    char name[32];
    if (i == 0) snprintf(name, sizeof name, "automap_prepare");
    else snprintf(name, sizeof name, "automap_phase_%d", i - 1);
    kernels[i] = clCreateKernel(program, name, &error);
    must(error, name);
  }
}

/* A buffer for each place in memory that kernels were called with. */
static cl_mem buffer(const void* at, size_t bytes) {
  struct Known { const void* at; size_t bytes; cl_mem memory; };
  static Known known[64];
  static int count = 0;
  for (int i = 0; i < count; i++)
    if (known[i].at == at && known[i].bytes == bytes) return known[i].memory;
  cl_int error = CL_SUCCESS;
  Known& made = known[count < 64 ? count++ : 63];
  if (made.memory) clReleaseMemObject(made.memory);
  made = {at, bytes, clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, bytes, const_cast<void*>(at), &error)};
  must(error, "clCreateBuffer");
  return made.memory;
}

static void enqueue(int which, size_t groups, void* workspace, const void* const* tensors) {
  begin();
  for (int i = 0; i <= TENSORS; i++) {
    const void* at = i == 0 ? workspace : tensors[i - 1];
    cl_mem memory = at ? buffer(at, i == 0 ? WORKSPACE_BYTES : BYTES[i - 1]) : buffer(workspace, WORKSPACE_BYTES);
    MUST(clSetKernelArg(kernels[which], i, sizeof memory, &memory));
  }
  const size_t one = 1;
  MUST(clEnqueueNDRangeKernel(queue, kernels[which], 1, nullptr, &groups, &one, 0, nullptr, nullptr));
}

extern "C" unsigned long automap_workspace_bytes(void) { return WORKSPACE_BYTES; }
extern "C" int automap_phases(void) { return 1; }
extern "C" void automap_prepare(void* workspace, const void* const* tensors) {
  memset(workspace, 0, WORKSPACE_BYTES);
  enqueue(0, 1, workspace, tensors);
  MUST(clFinish(queue));
}
extern "C" void automap_run(void* workspace, void* const* tensors, int, int part, int parts) {
  if (part != 0) return;
  for (int i = 0; i < PHASES; i++) enqueue(1 + i, STEPS[i] < (size_t)parts ? STEPS[i] : (size_t)parts, workspace, tensors);
  MUST(clFinish(queue));
}
`;
  return spell(text, "c++");
}
