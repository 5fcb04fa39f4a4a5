/**
 * @file The library of a network on a GPU: a C header, and tables for the code that all networks share (package/files/network-cuda.h).
 *
 *     resnet18_net* net;
 *     if (int bad = resnet18_create(&net, 0)) puts(resnet18_message(bad));        weights go to the device
 *     resnet18_run(net, image, fc, stream);                                       one CUDA graph
 *     resnet18_destroy(net);
 */

import { unique } from "../../abstraction/collections.ts";
import { C_TYPES } from "../../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  identifier,
  indented,
  lines,
  list,
  type SourceText,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";
import { heldAs } from "../../network/value.ts";
import { capabilityFor } from "../../targets/gpu.ts";
import { capabilityText } from "../cuda/subject.ts";
import { assetText } from "../portable.ts";
import { namesOf } from "../subject.ts";
import { aboutParameters, type NetworkParameter, parametersOf } from "./border.ts";
import { placeText } from "./library.ts";
import { bytesOfValue, type NetworkParts } from "./subject.ts";

const pointer = ({ name, value, isOutput }: NetworkParameter): Code =>
  code`${isOutput ? "" : "const "}${C_TYPES[heldAs(value.type)]}* ${name}`;

/** The compute capability that all kernels of the network need. */
export function neededBy({ kernels }: NetworkParts): { readonly least: number; readonly only: boolean } {
  return capabilityFor(unique(kernels.flatMap(({ tuned }) => tuned?.features ?? [])));
}

export function cudaNetworkHeader(parts: NetworkParts): Code {
  const { subject, memory, weights, steps } = parts;
  const { name, upper } = namesOf(parts.subject);
  const parameters = parametersOf(parts);
  const { least, only } = neededBy(parts);
  return code`${comment([
    `${subject.name}: a network of ${steps.length} steps, for GPUs of compute capability ${capabilityText(least)}${only ? " and no other" : " or later"}.`,
    "",
    ...aboutParameters(parts),
    "",
    `On the device values between steps take ${memory.bytes} bytes, weights ${weights.length}. A network serves one call at a time, on the device that was`,
    "current when it was made; make one for each stream that runs beside others.",
    "The steps are one CUDA graph for each set of arguments: the first call with new pointers captures it, which takes a moment.",
    "Pointers are multiples of 16 bytes, as those of cudaMalloc are.",
    "With the flag KEEP every value has memory of its own, so that the output of each step can be looked at after a run.",
    "",
    ...subject.provenance,
  ])}
#ifndef AUTOMAP_${upper}_H
#define AUTOMAP_${upper}_H
#include <cuda_runtime_api.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_API __attribute__((visibility("default")))

typedef struct ${name}_net ${name}_net;
/* What a function returns; ${name}_message says it in words. From ${upper}_CUDA on it is that plus a cudaError_t. */
enum { ${upper}_OK = 0, ${upper}_NO_MEMORY, ${upper}_NULL, ${upper}_UNSUPPORTED, ${upper}_NOT_KEPT, ${upper}_NO_STEP, ${upper}_CUDA = 1000 };
enum { ${upper}_KEEP = 1 };

${upper}_API int ${name}_create(${name}_net** made, int flags);
/* Puts one run into a stream. Pointers are the device's. */
${upper}_API int ${name}_run(${name}_net* net, ${list(parameters.map(pointer))}, cudaStream_t stream);
/* The same with pointers of the host, and waits for the end. */
${upper}_API int ${name}_run_host(${name}_net* net, ${list(parameters.map(pointer))});
${upper}_API void ${name}_destroy(${name}_net* net);
${upper}_API const char* ${name}_message(int code);

/* For whoever looks inside: steps, their names, what the last run left as the output of one (of a network made with KEEP), and seconds of one launch
 * of a step among launches of itself, behind which values of the last run are lost. */
${upper}_API int ${name}_steps(void);
${upper}_API const char* ${name}_step_name(int step);
${upper}_API unsigned long ${name}_step_bytes(int step);
${upper}_API int ${name}_step_output(${name}_net* net, int step, void* to);
${upper}_API int ${name}_step_seconds(${name}_net* net, int step, double* seconds);

#ifdef __cplusplus
}
#endif
#endif
`;
}

export function cudaNetworkSource(parts: NetworkParts): SourceText {
  return spell(code`${tablesText(parts)}${functionsText(parts)}`, "cuda");
}

/** The kernels' functions, the steps, and the code that all networks share. */
function tablesText(parts: NetworkParts): Code {
  const { subject, kernels, memory, kept, weights, steps, copies } = parts;
  const { name } = namesOf(parts.subject);
  const parameters = parametersOf(parts);
  const { least, only } = neededBy(parts);
  const most = Math.max(1, ...steps.map((s) => s.places.length));
  const functions = ["workspace_bytes", "allow", "prepare", "launch"] as const;
  const declared = kernels.map((kernel) => {
    const word = code`${identifier(kernel.name)}_tuned`;
    return code`extern "C" unsigned long ${word}_workspace_bytes(void);
extern "C" int ${word}_allow(void);
extern "C" int ${word}_prepare(void*, const void* const*, cudaStream_t);
extern "C" int ${word}_launch(void*, void* const*, cudaStream_t);`;
  });
  return code`${comment([`${subject.name}: its tables, and its public functions. The kernels are in ${subject.name}_k*.cu.`])}
#include "${name}.h"

#include <cuda_runtime.h>
#include <stdlib.h>
#include <string.h>

${lines(declared)}
extern "C" const unsigned char ${name}_weights[];

namespace {
enum { LEAST = ${least}, ONLY = ${only ? 1 : 0} };
${apart(assetText("network-cuda.h"))}

enum { MOST = ${most} };
const Code codes[] = {
${lines(indented(kernels.map((kernel) => code`{${list(functions.map((f) => code`${identifier(kernel.name)}_tuned_${identifier(f)}`))}},`)))}
};
const StepOf<MOST> steps[] = {
${lines(
  indented(
    steps.map(
      (s) =>
        code`{${stringLiteral(s.name)}, ${s.kernel ?? -1}, ${s.places.length}, {${list(s.places.map(placeText))}}, {${list(s.kept.map(placeText))}}, ${s.bytes}},`,
    ),
  ),
)}
};
const Moved moves[] = {
${lines(indented([...copies.map(({ to, from, bytes }) => code`{${to}, ${placeText(from)}, ${bytes}},`), code`{}`]))}
};
const unsigned long argument_bytes[] = {${list(parameters.map((p) => code`${bytesOfValue(p.value)}`))}};
const Tables<MOST> network_tables = {codes, steps, moves, ${steps.length}, ${copies.length}, ${subject.program.inputs.length}, ${subject.program.outputs.length}, ${memory.bytes}UL, ${kept.bytes}UL, ${weights.length}UL, ${name}_weights, argument_bytes};
} // namespace

`;
}

/** The public functions. */
function functionsText(parts: NetworkParts): Code {
  const { name, upper } = namesOf(parts.subject);
  const parameters = parametersOf(parts);
  const pointers = list(parameters.map((p) => code`(void*)${p.name}`));
  return code`struct ${name}_net : Network<MOST> {
  ${name}_net() : Network<MOST>(network_tables) {}
};

extern "C" int ${name}_create(${name}_net** made, int flags) {
  if (!made) return ${upper}_NULL;
  ${name}_net* net = new ${name}_net;
  const int bad = net->make(flags & ${upper}_KEEP);
  if (bad) ${name}_destroy(net);
  *made = bad ? nullptr : net;
  return bad;
}

extern "C" int ${name}_run(${name}_net* net, ${list(parameters.map(pointer))}, cudaStream_t stream) {
  void* const pointers[] = {${pointers}};
  return net ? net->run(pointers, stream) : ${upper}_NULL;
}

extern "C" int ${name}_run_host(${name}_net* net, ${list(parameters.map(pointer))}) {
  void* const pointers[] = {${pointers}};
  return net ? net->run_host(pointers) : ${upper}_NULL;
}

extern "C" void ${name}_destroy(${name}_net* net) {
  if (!net) return;
  net->end();
  delete net;
}

extern "C" const char* ${name}_message(int code) {
  if (code > ${upper}_CUDA) return cudaGetErrorString((cudaError_t)(code - ${upper}_CUDA));
  return code >= 0 && code <= ${upper}_NO_STEP ? MESSAGES[code] : "an unknown code";
}

extern "C" int ${name}_steps(void) { return network_tables.count; }
extern "C" const char* ${name}_step_name(int step) { return step >= 0 && step < network_tables.count ? steps[step].name : ""; }
extern "C" unsigned long ${name}_step_bytes(int step) { return step >= 0 && step < network_tables.count ? steps[step].bytes : 0; }
extern "C" int ${name}_step_output(${name}_net* net, int step, void* to) { return net && to ? net->step_output(step, to) : ${upper}_NULL; }
extern "C" int ${name}_step_seconds(${name}_net* net, int step, double* seconds) { return net && seconds ? net->step_seconds(step, seconds) : ${upper}_NULL; }
`;
}

/** The weights as an object file, embedded by the assembler. */
export function cudaWeightsSource(parts: NetworkParts): SourceText {
  const { name } = namesOf(parts.subject);
  const text = code`__asm__(".section .rodata\\n.balign 64\\n.globl ${name}_weights\\n.hidden ${name}_weights\\n${name}_weights:\\n.incbin \\"${name}.weights\\"\\n.previous\\n");
`;
  return spell(text, "c++");
}

/** The test program, like that of a CPU package but on the device: see networkMain in library.ts. */
export function cudaNetworkMain(parts: NetworkParts): SourceText {
  return spell(code`${mainHead(parts)}${mainBody(parts)}`, "cuda");
}

/** The program's arrays as arguments of a run. */
const given = (parts: NetworkParts, from: Code): Code =>
  list(
    parametersOf(parts).map(
      (p, i) => code`(${p.isOutput ? "" : "const "}${C_TYPES[heldAs(p.value.type)]}*)${from}[${i}]`,
    ),
  );

function mainHead(parts: NetworkParts): Code {
  const { subject, steps } = parts;
  const { name } = namesOf(parts.subject);
  const parameters = parametersOf(parts);
  return code`${comment([
    `Runs ${subject.name} on files: its inputs, then its outputs. --keep FOLDER writes the output of each step there.`,
    "--times N prints the seconds of each of N runs that follow one another in a stream, --steps 1 those of each step by itself.",
    "Exit code 6: there is no GPU here that can run it.",
  ])}
#include "${name}.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned long sizes[] = {${list(parameters.map((p) => code`${bytesOfValue(p.value)}`))}};
enum { INPUTS = ${subject.program.inputs.length}, ALL = ${parameters.length}, STEPS = ${steps.length} };

static bool move(const char* path, void* bytes, unsigned long size, bool reads) {
  FILE* file = fopen(path, reads ? "rb" : "wb");
  if (!file) return fprintf(stderr, "%s cannot be opened\\n", path), false;
  const unsigned long moved = reads ? fread(bytes, 1, size, file) : fwrite(bytes, 1, size, file);
  if (fclose(file) || moved != size) return fprintf(stderr, "%s: %lu bytes of %lu\\n", path, moved, size), false;
  return true;
}
static int failed(const char* what, int code) { return fprintf(stderr, "%s: %s\\n", what, ${name}_message(code)), 1; }

`;
}

function mainBody(parts: NetworkParts): Code {
  const { name, upper } = namesOf(parts.subject);
  return code`int main(int count, char** words) {
  const char* folder = nullptr;
  long times = 0, profiled = 0;
  int first = 1;
  for (; first + 1 < count && !strncmp(words[first], "--", 2); first += 2) {
    if (!strcmp(words[first], "--keep")) folder = words[first + 1];
    else if (!strcmp(words[first], "--times")) times = atol(words[first + 1]);
    else if (!strcmp(words[first], "--steps")) profiled = atol(words[first + 1]);
  }
  if (count - first != ALL) return fprintf(stderr, "usage: %s [--keep FOLDER] [--times N] [--steps 1] INPUT... OUTPUT...\\n", words[0]), 2;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) || devices == 0) return fprintf(stderr, "there is no GPU here, or no driver for it\\n"), 6;
  void* data[ALL];
  void* there[ALL];
  for (int i = 0; i < ALL; i++) {
    data[i] = aligned_alloc(64, (sizes[i] / 64 + 1) * 64);
    if (!data[i] || (i < INPUTS && !move(words[first + i], data[i], sizes[i], true))) return 1;
  }
  ${name}_net* net;
  if (int code = ${name}_create(&net, folder || profiled ? ${upper}_KEEP : 0)) return failed("create", code), code == ${upper}_UNSUPPORTED ? 6 : 1;
  if (int code = ${name}_run_host(net, ${given(parts, code`data`)})) return failed("run", code);
  for (int i = INPUTS; i < ALL; i++) if (!move(words[first + i], data[i], sizes[i], false)) return 1;
  char* output = (char*)malloc(1);
  for (int step = 0; folder && step < STEPS; step++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/step_%d.bin", folder, step);
    output = (char*)realloc(output, ${name}_step_bytes(step));
    if (int code = ${name}_step_output(net, step, output)) return failed("step", code);
    if (!move(path, output, ${name}_step_bytes(step), false)) return 1;
  }
  cudaStream_t stream;
  if (cudaStreamCreate(&stream)) return 1;
  for (int i = 0; i < ALL; i++) {
    if (cudaMalloc(&there[i], sizes[i])) return 1;
    if (i < INPUTS && cudaMemcpy(there[i], data[i], sizes[i], cudaMemcpyHostToDevice)) return 1;
  }
  if (times) ${name}_run(net, ${given(parts, code`there`)}, stream);
  cudaEvent_t begin, done;
  if (cudaEventCreate(&begin) || cudaEventCreate(&done)) return 1;
  for (long i = 0; i < times; i++) {
    enum { RUNS = 20 };
    float ms = 0;
    cudaEventRecord(begin, stream);
    for (int run = 0; run < RUNS; run++) ${name}_run(net, ${given(parts, code`there`)}, stream);
    cudaEventRecord(done, stream);
    if (cudaEventSynchronize(done) || cudaEventElapsedTime(&ms, begin, done)) return 1;
    printf("%.9f\\n", ms * 1e-3 / RUNS);
  }
  for (int step = 0; profiled && step < STEPS; step++) {
    double seconds = 0;
    if (int code = ${name}_step_seconds(net, step, &seconds)) return failed("step", code);
    printf("%.9f %s\\n", seconds, ${name}_step_name(step));
  }
  ${name}_destroy(net);
  return 0;
}
`;
}
