/**
 * @file The C library of a network. One function runs all steps, on an arena whose layout is planned ahead.
 *
 *     resnet18_net* net;
 *     if (resnet18_create(&net, 0)) ...                weights are packed here
 *     resnet18_run(net, image, fc);                    as often as wanted
 *     resnet18_destroy(net);
 */

import { unique } from "../../abstraction/collections.ts";
import {
  apart,
  type Code,
  code,
  comment,
  identifier,
  indented,
  join,
  lines,
  list,
  NOTHING,
  type SourceText,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";
import { featureTests } from "../library.ts";
import { POOL } from "../pool.ts";
import { namesOf } from "../subject.ts";
import { aboutParameters, borderTypeInC, countOf, isWide, NARROWED, parametersOf, WIDENED } from "./border.ts";
import { bytesOfValue, type NetworkParts, type Place } from "./subject.ts";

/** Return codes of the library's functions. */
const CODES = ["OK", "NO_MEMORY", "NULL", "UNSUPPORTED", "NO_THREAD", "RANGE"] as const;

const signatureOf = (parts: NetworkParts): Code =>
  list(
    parametersOf(parts).map(
      ({ name, value, isOutput }) => code`${isOutput ? "" : "const "}${borderTypeInC(value.type)}* ${name}`,
    ),
  );

export function networkHeader(parts: NetworkParts): Code {
  const { subject, memory, weights, steps } = parts;
  const { threads } = subject;
  const { name, upper } = namesOf(subject);
  return code`${comment([
    `${subject.name}: a network of ${steps.length} steps.`,
    "",
    ...aboutParameters(parts),
    "",
    `Values between steps and the scratch of a step take ${memory.bytes} bytes, weights ${weights.length}. A network serves one call at a time; make one for every thread that calls.`,
    threads > 1 &&
      `A call runs on ${threads} threads: the caller's, and ${threads - 1} of the network's own, which spin until the call ends and then sleep; on fewer where the process may use fewer processors.`,
    parametersOf(parts).some((p) => isWide(p) && !p.isOutput) &&
      "Inputs of int64_t hold numbers of 32 bits; run returns RANGE for others, and leaves the outputs as they were.",
    "With the flag KEEP every value has memory of its own, so that the output of each step can be looked at after a run.",
    "With the flag TIMES the time of each step is taken: seconds of all runs together. A step that is computed with a later one takes none.",
    "",
    ...subject.provenance,
  ])}
#ifndef AUTOMAP_${upper}_H
#define AUTOMAP_${upper}_H
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ${name}_net ${name}_net;
enum { ${list(CODES.map((word, i) => code`${upper}_${word} = ${i}`))} };
enum { ${upper}_KEEP = 1, ${upper}_TIMES = 2 };

int ${name}_create(${name}_net** made, int flags);
int ${name}_run(${name}_net* net, ${signatureOf(parts)});
/* The same with the inputs and the outputs in arrays, in the order of run: for languages whose calls of C have few parameters. */
int ${name}_run_all(${name}_net* net, const void* const* inputs, void* const* outputs);
void ${name}_destroy(${name}_net* net);

/* For whoever looks inside: steps, their names, and what the last run left as the output of one (of a network made with KEEP). */
int ${name}_steps(void);
const char* ${name}_step_name(int step);
unsigned long ${name}_step_bytes(int step);
const void* ${name}_step_output(const ${name}_net* net, int step);
double ${name}_step_seconds(const ${name}_net* net, int step);

#ifdef __cplusplus
}
#endif
#endif
`;
}

const KINDS = { arena: "ARENA", weights: "WEIGHTS", widened: "WIDENED", input: "INPUT", output: "OUTPUT" } as const;
export const placeText = (place: Place): Code =>
  code`{${KINDS[place.kind]}, ${"offset" in place ? place.offset : place.number}}`;

/** Prefix of a kernel's functions. The tuned kernel and its plain-loop version have different ones. */
const codeOf = ({ name, tuned }: NetworkParts["kernels"][number]): Code =>
  code`${identifier(name)}_${tuned ? "tuned" : "portable"}`;

export function networkSource(parts: NetworkParts): SourceText {
  const make = [kernelsText, stepsText, stateText, createText, runText, endText];
  return spell(join(make.map((part) => part(parts))), "c++");
}

/** The head of the file, the weights, and the kernels' names. */
function kernelsText(parts: NetworkParts): Code {
  const { subject, kernels } = parts;
  const { name } = namesOf(parts.subject);
  const declared = kernels.map((kernel) => {
    const word = codeOf(kernel);
    return code`extern "C" unsigned long ${word}_workspace_bytes(void);
extern "C" void ${word}_prepare(void*, const void* const*);
extern "C" int ${word}_phases(void);
extern "C" void ${word}_run(void*, void* const*, int, int, int);`;
  });
  const features = unique(kernels.flatMap(({ tuned }) => tuned?.features ?? []));
  return code`${comment([`${subject.name}: runs the steps one after another. The kernels are in ${subject.name}_k*.cpp.`])}
#include "${name}.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

__asm__(".section .rodata\\n.balign 64\\n${name}_weights:\\n.incbin \\"${name}.weights\\"\\n.previous\\n");
extern "C" __attribute__((visibility("hidden"))) const unsigned char ${name}_weights[];

${lines(declared)}

${apart(featureTests(features))}

namespace {
struct Code {
  unsigned long (*workspace_bytes)(void);
  void (*prepare)(void* workspace, const void* const* tensors);
  int (*phases)(void);
  void (*run)(void* workspace, void* const* tensors, int phase, int part, int parts);
};
const Code codes[] = {
${lines(indented(kernels.map((kernel) => list(["workspace_bytes", "prepare", "phases", "run"].map((f) => code`${codeOf(kernel)}_${identifier(f)}`))).map((all) => code`{${all}},`)))}
};
enum { THREADS = ${subject.threads} };
} // namespace
${isPooled(parts) ? apart(POOL) : NOTHING}
namespace {
`;
}

const isPooled = ({ subject }: NetworkParts): boolean => subject.threads > 1;

/** The place of each step's tensors in memory. */
function stepsText({ steps }: NetworkParts): Code {
  const most = Math.max(1, ...steps.map((s) => s.places.length));
  return code`enum Kind { ARENA, WEIGHTS, WIDENED, INPUT, OUTPUT };
/* Where a tensor lies: an offset into a block, or the number of an argument. */
struct Place {
  Kind kind;
  unsigned long at;
};
enum { MOST = ${most}, STEPS = ${steps.length}, ALIGNMENT = 64, LARGE_PAGE = 2 << 20 };
struct Step {
  const char* name;
  /* The code of a step that is computed with a later one is -1. The workspace is the one of that step. Scratch lies behind the tensors. */
  int code, count, workspace;
  Place places[MOST], kept[MOST];
  unsigned long bytes;
};
const Step steps[] = {
${lines(
  indented(
    steps.map(
      (s) =>
        code`{${stringLiteral(s.name)}, ${s.kernel ?? -1}, ${s.places.length}, ${s.workspace}, {${list(s.places.map(placeText))}}, {${list(s.kept.map(placeText))}}, ${s.bytes}},`,
    ),
  ),
)}
};

/* In large pages where the system has them: packed weights in pages of 4 KiB miss the TLB at every page. */
void* block(unsigned long bytes) {
  const unsigned long alignment = bytes < LARGE_PAGE ? ALIGNMENT : LARGE_PAGE, size = (bytes / alignment + 1) * alignment;
  void* made = aligned_alloc(alignment, size);
#ifdef MADV_HUGEPAGE
  if (made && alignment == LARGE_PAGE) madvise(made, size, MADV_HUGEPAGE);
#endif
  return made;
}
unsigned long aligned(unsigned long bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }
} // namespace

`;
}

/** The fields of a network object, and the tensor pointers of a step. */
function stateText(parts: NetworkParts): Code {
  const { subject, widened } = parts;
  const { name } = namesOf(parts.subject);
  const wide = parametersOf(parts).filter(isWide);
  return code`struct ${name}_net {
  bool keep, times;
  double seconds[STEPS];
  unsigned char* arena;
  /* Weights that the file holds in fewer bits. */
  unsigned char* widened;
  void* workspaces[STEPS];
${isPooled(parts) ? code`  Pool* pool;\n` : NOTHING}  /* Of the last run. */
  const void* inputs[${Math.max(1, subject.program.inputs.length)}];
  void* outputs[${Math.max(1, subject.program.outputs.length)}];
${wide.length > 0 ? code`  double* wide[${wide.length}];\n` : NOTHING}};

static double now(void) {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + 1e-9 * time.tv_nsec;
}

static void* placed(const ${name}_net* net, const Place& place) {
  switch (place.kind) {
    case ARENA: return net->arena + place.at;
    case WEIGHTS: return (void*)(${name}_weights + place.at);
    case WIDENED: return net->widened + place.at;
    case INPUT: return (void*)net->inputs[place.at];
    default: return net->outputs[place.at];
  }
}

${widened.halves.length > 0 ? halvesText(parts) : NOTHING}${widened.integers.length > 0 ? integersText(parts) : NOTHING}${wide.some((p) => !p.isOutput) ? WIDENED : NOTHING}${wide.some((p) => p.isOutput) ? NARROWED : NOTHING}static void collect(const ${name}_net* net, const Step& step, void** tensors) {
  for (int i = 0; i < step.count; i++) tensors[i] = placed(net, (net->keep ? step.kept : step.places)[i]);
}

`;
}

/** Brings the weights of f16 to f32. */
function halvesText(parts: NetworkParts): Code {
  const { halves } = parts.widened;
  const { name } = namesOf(parts.subject);
  return code`static const struct {
  unsigned long from, to, count;
} halves[] = {
${lines(indented(halves.map(({ from, to, elements }) => code`{${from}, ${to}, ${elements}},`)))}
};

static void widen_halves(unsigned char* widened) {
  for (const auto& part : halves) {
    const unsigned char* from = ${name}_weights + part.from;
    unsigned char* to = widened + part.to;
    for (unsigned long i = 0; i < part.count; i++) {
      const uint32_t half = from[2 * i] | from[2 * i + 1] << 8, sign = (half & 0x8000) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
      uint32_t bits = sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
      if (exponent == 0) {
        const float small = fraction * 0x1p-24f;
        memcpy(&bits, &small, 4);
        bits |= sign;
      }
      memcpy(to + 4 * i, &bits, 4);
    }
  }
}

`;
}

/** Brings the weights of 8 bits to f32, by the scale and the zero of each channel. */
function integersText(parts: NetworkParts): Code {
  const { integers } = parts.widened;
  const { name } = namesOf(parts.subject);
  return code`static const struct {
  unsigned long from, to, count, by, channels, run;
  bool has_sign;
} integers[] = {
${lines(
  indented(
    integers.map(
      ({ from, to, elements, by, channels, run, type }) =>
        code`{${from}, ${to}, ${elements}, ${by}, ${channels}, ${run}, ${type === "s8" ? 1 : 0}},`,
    ),
  ),
)}
};

static void widen_integers(unsigned char* widened) {
  for (const auto& part : integers) {
    const unsigned char* from = ${name}_weights + part.from;
    for (unsigned long begin = 0; begin < part.count; begin += part.run) {
      const unsigned char* by = ${name}_weights + part.by + begin / part.run % part.channels * 4;
      float scale, zero;
      memcpy(&scale, by, 4);
      memcpy(&zero, by + 4 * part.channels, 4);
      const unsigned long end = part.count - begin < part.run ? part.count : begin + part.run;
      for (unsigned long i = begin; i < end; i++) {
        const float number = ((float)(part.has_sign ? (int8_t)from[i] : from[i]) - zero) * scale;
        memcpy(widened + part.to + 4 * i, &number, 4);
      }
    }
  }
}

`;
}

/** The create function: allocates memory and packs constants. */
function createText(parts: NetworkParts): Code {
  const { memory, kept, widened } = parts;
  const { name, upper } = namesOf(parts.subject);
  const wide = parametersOf(parts).filter(isWide);
  return code`extern "C" int ${name}_create(${name}_net** made, int flags) {
  if (!made) return ${upper}_NULL;
  *made = nullptr;
  if (*missing_words()) return ${upper}_UNSUPPORTED;
  ${name}_net* net = (${name}_net*)calloc(1, sizeof(${name}_net));
  if (!net) return ${upper}_NO_MEMORY;
  net->keep = flags & ${upper}_KEEP;
  net->times = flags & ${upper}_TIMES;
  unsigned long bytes = aligned(net->keep ? ${kept.bytes}UL : ${memory.bytes}UL)${widened.bytes > 0 ? code` + ${widened.bytes}UL` : NOTHING};
  for (int i = 0; i < STEPS; i++)
    if (steps[i].code >= 0 && steps[i].workspace == i) bytes += aligned(codes[steps[i].code].workspace_bytes());
${join(wide.map((p) => code`  bytes += aligned(${bytesOfValue(p.value)}UL);\n`))}  net->arena = (unsigned char*)block(bytes);
  if (!net->arena) return ${name}_destroy(net), ${upper}_NO_MEMORY;
  unsigned char* next = net->arena + aligned(net->keep ? ${kept.bytes}UL : ${memory.bytes}UL);
${
  widened.bytes > 0
    ? code`  net->widened = next, next += ${widened.bytes}UL;
${widened.halves.length > 0 ? code`  widen_halves(net->widened);\n` : NOTHING}${widened.integers.length > 0 ? code`  widen_integers(net->widened);\n` : NOTHING}`
    : NOTHING
}  for (int i = 0; i < STEPS; i++) {
    if (steps[i].code < 0) continue;
    net->workspaces[i] = next;
    if (steps[i].workspace < i) {
      net->workspaces[i] = net->workspaces[steps[i].workspace];
      continue;
    }
    const Code& code = codes[steps[i].code];
    next += aligned(code.workspace_bytes());
    /* Constants are packed; arguments of a run are not there yet. */
    void* tensors[MOST] = {};
    collect(net, steps[i], tensors);
    code.prepare(net->workspaces[i], (const void* const*)tensors);
  }
${join(wide.map((p, i) => code`  net->wide[${i}] = (double*)next, next += aligned(${bytesOfValue(p.value)}UL);\n`))}${
  isPooled(parts)
    ? code`  net->pool = new (std::nothrow) Pool;
  if (!net->pool) return ${name}_destroy(net), ${upper}_NO_MEMORY;
  if (!net->pool->start()) return ${name}_destroy(net), ${upper}_NO_THREAD;
`
    : NOTHING
}  *made = net;
  return ${upper}_OK;
}

`;
}

/** The run function. */
function runText(parts: NetworkParts): Code {
  const { copies } = parts;
  const { name, upper } = namesOf(parts.subject);
  const parameters = parametersOf(parts);
  const wide = parameters.filter(isWide);
  return code`extern "C" int ${name}_run(${name}_net* net, ${signatureOf(parts)}) {
  if (!net${lines(parameters.map((p) => code` || !${p.name}`))}) return ${upper}_NULL;
${lines(
  parameters.map((p) => {
    const place = wide.indexOf(p);
    const memory = place < 0 ? code`${p.name}` : code`net->wide[${place}]`;
    const widens =
      place < 0 || p.isOutput
        ? NOTHING
        : code`  if (!widened(${memory}, ${p.name}, ${countOf(p)}UL)) return ${upper}_RANGE;\n`;
    return code`${widens}  net->${p.isOutput ? "outputs" : "inputs"}[${p.number}] = ${memory};`;
  }),
)}
${isPooled(parts) ? code`  net->pool->begin();\n` : NOTHING}  for (int i = 0; i < STEPS; i++) {
    if (steps[i].code < 0) continue;
    const Code& code = codes[steps[i].code];
    void* tensors[MOST];
    collect(net, steps[i], tensors);
    const double started = net->times ? now() : 0;
${
  isPooled(parts)
    ? code`    net->pool->run(code, net->workspaces[i], tensors);
`
    : code`    const int phases = code.phases();
    for (int phase = 0; phase < phases; phase++) code.run(net->workspaces[i], tensors, phase, 0, 1);
`
}    if (net->times) net->seconds[i] += now() - started;
  }
${isPooled(parts) ? code`  net->pool->end();\n` : NOTHING}${lines(copies.map(({ to, from, bytes }) => code`  memmove(net->outputs[${to}], placed(net, Place${placeText(from)}), ${bytes});`))}
${join(wide.flatMap((p, i) => (p.isOutput ? [code`  narrowed(${p.name}, net->wide[${i}], ${countOf(p)}UL);\n`] : [])))}  return ${upper}_OK;
}

extern "C" int ${name}_run_all(${name}_net* net, const void* const* inputs, void* const* outputs) {
  if (!inputs || !outputs) return ${upper}_NULL;
  return ${name}_run(net, ${list(parameters.map((p) => code`(${p.isOutput ? "" : "const "}${borderTypeInC(p.value.type)}*)${p.isOutput ? "outputs" : "inputs"}[${p.number}]`))});
}

`;
}

/** The destroy function, and the functions for inspecting a network. */
function endText(parts: NetworkParts): Code {
  const { name } = namesOf(parts.subject);
  return code`extern "C" void ${name}_destroy(${name}_net* net) {
  if (!net) return;
${isPooled(parts) ? code`  Pool::destroy(net->pool);\n` : NOTHING}  free(net->arena);
  free(net);
}

extern "C" int ${name}_steps(void) { return STEPS; }
extern "C" const char* ${name}_step_name(int step) { return step >= 0 && step < STEPS ? steps[step].name : ""; }
extern "C" unsigned long ${name}_step_bytes(int step) { return step >= 0 && step < STEPS ? steps[step].bytes : 0; }
extern "C" const void* ${name}_step_output(const ${name}_net* net, int step) {
  return net && net->keep && step >= 0 && step < STEPS ? placed(net, steps[step].kept[0]) : nullptr;
}
extern "C" double ${name}_step_seconds(const ${name}_net* net, int step) {
  return net && step >= 0 && step < STEPS ? net->seconds[step] : 0;
}

`;
}

/**
 * A program that runs the network on files: one for each input, then one for each output; behind \`--keep FOLDER\` the output of each step.
 * Behind \`--times N\` it prints the seconds of each of N runs; behind \`--steps N\` those of each step, the least of N runs.
 */
export function networkMain(parts: NetworkParts): SourceText {
  const { subject } = parts;
  const { name, upper } = namesOf(subject);
  const parameters = parametersOf(parts);
  const given = parameters.map(
    (p, i) => code`(${p.isOutput ? "" : "const "}${borderTypeInC(p.value.type)}*)data[${i}]`,
  );
  const text = code`${comment([`Runs ${subject.name} on files: its inputs, then its outputs. --keep FOLDER writes the output of each step there.`])}
#include "${name}.h"

#include <chrono>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const unsigned long sizes[] = {${list(parameters.map((p) => code`${bytesOfValue(p.value)}`))}};
enum { INPUTS = ${subject.program.inputs.length}, ALL = ${parameters.length}, STEPS = ${parts.steps.length} };

static bool move(const char* path, void* bytes, unsigned long size, bool reads) {
  FILE* file = fopen(path, reads ? "rb" : "wb");
  if (!file) return fprintf(stderr, "%s cannot be opened\\n", path), false;
  const unsigned long moved = reads ? fread(bytes, 1, size, file) : fwrite(bytes, 1, size, file);
  if (fclose(file) || moved != size) return fprintf(stderr, "%s: %lu bytes of %lu\\n", path, moved, size), false;
  return true;
}

int main(int count, char** words) {
  const char* folder = nullptr;
  long times = 0, profiled = 0;
  int first = 1;
  for (; first + 1 < count && !strncmp(words[first], "--", 2); first += 2) {
    if (!strcmp(words[first], "--keep")) folder = words[first + 1];
    else if (!strcmp(words[first], "--times")) times = atol(words[first + 1]);
    else if (!strcmp(words[first], "--steps")) profiled = atol(words[first + 1]);
  }
  if (count - first != ALL) return fprintf(stderr, "usage: %s [--keep FOLDER] [--times N] [--steps N] INPUT... OUTPUT...\\n", words[0]), 2;
  void* data[ALL];
  for (int i = 0; i < ALL; i++) {
    data[i] = aligned_alloc(64, (sizes[i] / 64 + 1) * 64);
    if (!data[i] || (i < INPUTS && !move(words[first + i], data[i], sizes[i], true))) return 1;
  }
  ${name}_net* net;
  if (int code = ${name}_create(&net, (folder ? ${upper}_KEEP : 0) | (profiled ? ${upper}_TIMES : 0))) return fprintf(stderr, "create: code %d\\n", code), 1;
  if (int code = ${name}_run(net, ${list(given)})) return fprintf(stderr, "run: code %d\\n", code), 1;
  for (long i = 0; i < times; i++) {
    const auto start = std::chrono::steady_clock::now();
    ${name}_run(net, ${list(given)});
    printf("%.9f\\n", std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  double least[STEPS], before[STEPS];
  for (long i = 0; i < profiled; i++) {
    for (int step = 0; step < STEPS; step++) before[step] = ${name}_step_seconds(net, step);
    ${name}_run(net, ${list(given)});
    for (int step = 0; step < STEPS; step++) {
      const double taken = ${name}_step_seconds(net, step) - before[step];
      if (i == 0 || taken < least[step]) least[step] = taken;
    }
  }
  for (int step = 0; profiled && step < STEPS; step++)
    if (least[step] > 0) printf("%.9f %s\\n", least[step], ${name}_step_name(step));
  for (int i = INPUTS; i < ALL; i++) if (!move(words[first + i], data[i], sizes[i], false)) return 1;
  for (int step = 0; folder && step < ${name}_steps(); step++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/step_%d.bin", folder, step);
    if (!move(path, (void*)${name}_step_output(net, step), ${name}_step_bytes(step), false)) return 1;
  }
  ${name}_destroy(net);
  return 0;
}
`;
  return spell(text, "c++");
}
