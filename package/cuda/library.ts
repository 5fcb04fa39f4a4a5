/**
 * @file The public interface of a CUDA package: a C header, and host code that checks the GPU before it launches.
 *
 *     conv2d_run(in, w, out, workspace, conv2d_workspace_bytes(), stream);      0, or a code that conv2d_message puts in words
 *
 * The launches themselves are the kernel's own: what the search measured is what runs here.
 */

import { sortedBy } from "../../abstraction/collections.ts";
import { equationText } from "../../abstraction/computation.ts";
import {
  type Code,
  code,
  comment,
  join,
  lines as linesOf,
  list,
  NOTHING,
  type SourceText,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";
import { aboutParameter, type Parameter, pointerTo } from "../subject.ts";
import {
  alignmentOf,
  CODES,
  CUDA_ERRORS,
  type CudaSubject,
  capabilityText,
  codeOf,
  constantsOf,
  WORKSPACE_ALIGNMENT,
} from "./subject.ts";

const WORKSPACE = code`void* workspace, size_t workspace_bytes, cudaStream_t stream`;

const signature = (parameters: readonly Parameter[]): Code => join([...parameters.map(pointerTo), WORKSPACE], code`, `);

/** "compute capability 9.0 and no other". */
function needsText({ needs: { least, only } }: CudaSubject): string {
  return `compute capability ${capabilityText(least)}${only ? " and no other" : " or later"}`;
}

/** The header. Parameter names are spelled as in the package's other public files. */
export function headerText(cuda: CudaSubject): Code {
  const { subject, name, upper, parameters, call, architecture } = cuda;
  const about = (p: Parameter): (Code | string)[] => {
    const bytes = alignmentOf(cuda, p);
    const indent = " ".repeat(p.name.wish.length);
    return [
      ...aboutParameter(p),
      ...(bytes === undefined ? [] : [`${indent}   begins at a multiple of ${bytes} bytes`]),
    ];
  };
  const prepare = code`/* Before the first run on a GPU, and again whenever a constant has changed; runs on other streams are to wait for it. */
${upper}_API int ${name}_prepare(${signature(constantsOf(cuda))});
`;
  return code`${comment([
    `${subject.name}: ${equationText(subject.computation)}`,
    "",
    ...parameters.flatMap(about),
    "",
    "Pointers are the GPU's. The output may not overlap an input or the workspace. An element that the storage formula does not reach is",
    "neither read for its value nor promised to be kept.",
    "",
    `The kernel needs ${needsText(cuda)}; the build makes code for sm_${architecture} unless it is told otherwise.`,
    "Functions may be called from several threads, each with a workspace of its own, and while a stream is captured into a graph. They return",
    "when the work is in the stream, on the device that is current.",
    call.prepares &&
      "Constants that were prepared are the same for all calls on a device, whatever their stream and workspace.",
    "",
    ...subject.provenance,
  ])}
#ifndef AUTOMAP_${upper}_H
#define AUTOMAP_${upper}_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_API __attribute__((visibility("default")))

/* What a function returns; ${name}_message says it in words. From ${upper}_CUDA on it is that plus a cudaError_t. */
enum { ${list([...CODES.map(([word], value) => code`${upper}_${word} = ${value}`), code`${upper}_CUDA = ${CUDA_ERRORS}`])} };

/* Of the memory on the GPU that each call is given, at a multiple of ${WORKSPACE_ALIGNMENT} bytes${
    call.prepares ? NOTHING : code`; what it holds before and after does not matter`
  }. With 0 it may be null. */
${upper}_API size_t ${name}_workspace_bytes(void);
/* ${upper}_OK, or why the current GPU cannot run the kernel; run asks by itself. */
${upper}_API int ${name}_supported(void);
${call.prepares ? prepare : NOTHING}/* Puts one call of the kernel into a stream. */
${upper}_API int ${name}_run(${signature(parameters)});
/* A sentence; of this thread until the next call of it. */
${upper}_API const char* ${name}_message(int code);

#ifdef __cplusplus
}
#endif
#endif
`;
}

/** Code that queries the current device once and lets its kernels use the shared memory they need. */
function readyText(cuda: CudaSubject): Code {
  const { name, needs } = cuda;
  const able = needs.only ? code`capability == ${needs.least}` : code`capability >= ${needs.least}`;
  const ok = codeOf(cuda, "OK");
  const unsupported = codeOf(cuda, "UNSUPPORTED");
  return code`enum { MOST_DEVICES = 64 };

static int told(int error) {
  if (error == cudaSuccess) return ${ok};
  if (error == cudaErrorNoKernelImageForDevice) return ${unsupported};
  if (error == cudaErrorMisalignedAddress) return ${codeOf(cuda, "MISALIGNED")};
  return ${codeOf(cuda, "CUDA")} + error;
}

static int capability_of(int device, int* capability) {
  int major = 0, minor = 0;
  cudaError_t error = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (error == cudaSuccess) error = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *capability = 10 * major + minor;
  return told(error);
}

static int asked(int device) {
  int capability = 0;
  if (int bad = capability_of(device, &capability)) return bad;
  return ${able} ? told(${name}_tuned_allow()) : ${unsupported};
}

/* Each device is asked once; two threads that come first together hear the same. */
static int ready(int* device) {
  static std::atomic<bool> able[MOST_DEVICES];
  if (cudaError_t error = cudaGetDevice(device)) return told(error);
  if (*device < MOST_DEVICES && able[*device].load(std::memory_order_acquire)) return ${ok};
  const int found = asked(*device);
  if (found == ${ok} && *device < MOST_DEVICES) able[*device].store(true, std::memory_order_release);
  return found;
}`;
}

/** The kernel's tensor pointers, the output first. Those that the calling function does not receive are null. */
function tensorsText({ parameters }: CudaSubject, given: readonly Parameter[]): Code {
  const places = sortedBy(parameters, (a) => a.place);
  return code`void* const tensors[] = {${list(places.map((p) => (given.includes(p) ? code`(void*)${p.name}` : code`nullptr`)))}};`;
}

export function librarySource(cuda: CudaSubject): SourceText {
  const { subject, name, parameters, call } = cuda;
  const constants = constantsOf(cuda);
  const checks = (given: readonly Parameter[]): Code => {
    const nulls = given.map((p) => code`!${p.name}`);
    return linesOf([
      nulls.length !== 0 && code`  if (${join(nulls, code` || `)}) return ${codeOf(cuda, "NULL")};`,
      code`  if (!fits(workspace, workspace_bytes)) return ${codeOf(cuda, "WORKSPACE")};
  int device = 0;
  if (int bad = ready(&device)) return bad;`,
    ]);
  };
  const prepare = code`
extern "C" int ${name}_prepare(${signature(constants)}) {
${checks(constants)}
  ${tensorsText(cuda, constants)}
  const int done = told(${name}_tuned_prepare(workspace, (const void* const*)tensors, stream));
  if (done == ${codeOf(cuda, "OK")} && device < MOST_DEVICES) prepared[device].store(true, std::memory_order_release);
  return done;
}
`;
  const text = code`${comment([`${subject.name}: asks the GPU, checks what it is given, and launches. The kernel is in ${subject.name}_tuned.cu.`])}
#include "${name}.h"

#include <atomic>
#include <stdio.h>

extern "C" int ${name}_tuned_allow(void);
${call.prepares ? code`extern "C" int ${name}_tuned_prepare(void* workspace, const void* const* tensors, cudaStream_t stream);\n` : NOTHING}extern "C" int ${name}_tuned_launch(void* workspace, void* const* tensors, cudaStream_t stream);

namespace {
${readyText(cuda)}
${call.prepares ? code`\nstatic std::atomic<bool> prepared[MOST_DEVICES];\n` : NOTHING}
static bool fits(const void* workspace, size_t bytes) {
  return ${name}_workspace_bytes() == 0 || (workspace && bytes >= ${name}_workspace_bytes() && (uintptr_t)workspace % ${WORKSPACE_ALIGNMENT} == 0);
}
} // namespace

extern "C" size_t ${name}_workspace_bytes(void) { return ${call.workspaceBytes}; }

extern "C" int ${name}_supported(void) {
  int device = 0;
  return ready(&device);
}
${call.prepares ? prepare : NOTHING}
extern "C" int ${name}_run(${signature(parameters)}) {
${checks(parameters)}
${call.prepares ? code`  if (device < MOST_DEVICES && !prepared[device].load(std::memory_order_acquire)) return ${codeOf(cuda, "NOT_PREPARED")};\n` : NOTHING}  ${tensorsText(cuda, parameters)}
  return told(${name}_tuned_launch(workspace, tensors, stream));
}

extern "C" const char* ${name}_message(int code) {
  static const char* const messages[] = {
${join(CODES.map(([, message]) => code`    ${stringLiteral(message)},\n`))}  };
  if (code > ${CUDA_ERRORS}) return cudaGetErrorString((cudaError_t)(code - ${CUDA_ERRORS}));
  if (code < 0 || code >= ${CODES.length}) return "an unknown code";
  if (code != ${codeOf(cuda, "UNSUPPORTED")}) return messages[code];
  static thread_local char text[200];
  int device = 0, capability = 0;
  if (cudaGetDevice(&device) == cudaSuccess) capability_of(device, &capability);
  snprintf(text, sizeof text, "%s: it has compute capability %d.%d, the kernel needs %s, and this library code for it", messages[code],
           capability / 10, capability % 10, ${stringLiteral(needsText(cuda))});
  return text;
}
`;
  return spell(text, "cuda");
}
