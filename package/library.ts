/**
 * @file The public face of a package in C: a header, and the source that chooses between the tuned and the portable code.
 *
 *     conv2d_plan* plan;
 *     if (conv2d_create(&plan, CONV2D_BEST)) ...            the CPU is asked here
 *     conv2d_prepare(plan, w);                              constants are packed and copied: w may be freed
 *     conv2d_run(plan, in, out);                            as often as wanted
 *     conv2d_destroy(plan);
 */

import { equationText } from "../abstraction/computation.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  identifier,
  join,
  lines as linesOf,
  list,
  NOTHING,
  quoted,
  replaced,
  type SourceText,
  stringLiteral,
} from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import { extensionNamed } from "../targets/x86.ts";
import { aboutParameter, type EmitSubject, type Parameter, parametersOf, pointerTo } from "./subject.ts";

const MESSAGES = [
  ["OK", "ok"],
  ["NO_MEMORY", "no memory for the workspace"],
  ["UNSUPPORTED", "this CPU, or the system, lacks what the tuned kernel needs"],
  ["NOT_PREPARED", "run before prepare: the constants are not there yet"],
  ["NULL", "a pointer is null"],
  ["NO_THREAD", "a thread could not be started"],
] as const;

/** What run and prepare take, by role. */
function signatures(parameters: readonly Parameter[]): { prepare: Code; run: Code } {
  const behind = (chosen: readonly Parameter[]): Code => join(chosen.map((p) => code`, ${pointerTo(p)}`));
  return {
    prepare: behind(parameters.filter((p) => p.role === "constant")),
    run: behind(parameters.filter((p) => p.role !== "constant")),
  };
}

/** The name of a package, for functions and for macros. */
export function namesOf({ name }: EmitSubject): { name: Code; upper: Code } {
  return { name: identifier(name), upper: identifier(name.toUpperCase()) };
}

/** The header; its parameters are spelled with what else others read of a package (public.ts). */
export function headerText(subject: EmitSubject): Code {
  const { computation, tuned, threads, provenance } = subject;
  const { name, upper } = namesOf(subject);
  const parameters = parametersOf(computation);
  const constants = parameters.filter((p) => p.role === "constant");
  const { prepare, run } = signatures(parameters);
  return code`${comment([
    `${subject.name}: ${equationText(computation)}`,
    "",
    ...parameters.flatMap(aboutParameter),
    "",
    "Pointers need the alignment of their element type; with 64 bytes no load crosses a cache line. The output may not overlap an input. An element",
    "that the storage formula does not reach is neither read for its value nor promised to be kept.",
    "",
    tuned
      ? tuned.features.length === 0
        ? "The tuned kernel is plain C++ too and runs on every CPU."
        : `The tuned kernel needs ${tuned.features.join(", ")} and uses ${tuned.promises ?? "no special instruction"}; elsewhere the portable code runs.`
      : "There is no tuned kernel in this package: the portable code runs everywhere.",
    `A call uses ${threads === 1 ? "the thread that makes it" : `${threads} threads, started by create and ended by destroy`}. A plan serves one call at a time; make one for every thread that calls.`,
    "",
    ...provenance,
  ])}
#ifndef AUTOMAP_${upper}_H
#define AUTOMAP_${upper}_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ${upper}_API __attribute__((visibility("default")))

/* What a function returns; ${name}_message says it in words. */
enum { ${list(MESSAGES.map(([word], value) => code`${upper}_${word} = ${value}`))} };

/* Which code a plan runs: BEST is the tuned one where the CPU has what it needs. */
enum { ${upper}_BEST = 0, ${upper}_TUNED = 1, ${upper}_PORTABLE = 2 };

typedef struct ${name}_plan ${name}_plan;

/* Asks the CPU and allocates the workspace. */
${upper}_API int ${name}_create(${name}_plan** plan, int which);
${
  constants.length > 0
    ? code`/* Before the first run, and again whenever a constant has changed. What it is given is packed or copied and may be freed. */
${upper}_API int ${name}_prepare(${name}_plan* plan${prepare});
`
    : NOTHING
}/* One call of the kernel. */
${upper}_API int ${name}_run(${name}_plan* plan${run});
/* Frees a plan; null is allowed. */
${upper}_API void ${name}_destroy(${name}_plan* plan);

/* ${upper}_TUNED or ${upper}_PORTABLE: what the plan runs. */
${upper}_API int ${name}_chosen(const ${name}_plan* plan);
/* What the tuned kernel needs and this machine lacks, words with spaces between; empty when nothing is missing. */
${upper}_API const char* ${name}_missing(void);
${upper}_API const char* ${name}_message(int code);

#ifdef __cplusplus
}
#endif
#endif
`;
}

/** The tuned kernel with names of its own, so that two packages fit into one program. */
export function tunedSource(
  subject: EmitSubject,
  { source, language }: Pick<Kernel, "source" | "language">,
): SourceText {
  const { name } = namesOf(subject);
  const renamed = FUNCTIONS.reduce(
    (text, word) => replaced(text, new RegExp(`\\bautomap_${word}\\b`, "g"), () => code`${name}_tuned_${word}`),
    source,
  );
  const hidden = replaced(renamed, /^extern "C" /gm, () => code`extern "C" __attribute__((visibility("hidden"))) `);
  if (subject.provenance.length === 0) return hidden;
  return spell(linesOf([comment(subject.provenance), quoted(hidden)]), language);
}

/** Of the C interfaces of kernels (abstraction/kernel.ts), and of a reference on a device. */
const FUNCTIONS = ["workspace_bytes", "allow", "prepare", "phases", "run", "launch", "reference"] as const;

/** Whether a kernel reads tensor `place` when it runs, and not only when it is prepared. */
export function readsAtRun({ source }: Kernel, place: number): boolean {
  const prepare = /^extern "C" void automap_prepare\([\s\S]*?^}$/m;
  return source.replace(prepare, "").includes(`tensors[${place}]`);
}

/** The test for an extension, in C: by name where every compiler knows it, else by the bit of the CPUID leaf. */
function testOf(name: string): Code {
  const { cpuid, asked } = extensionNamed(name) ?? {};
  if (cpuid === undefined) return code`__builtin_cpu_supports(${stringLiteral(name)})`;
  const { leaf, subleaf, register, bit } = cpuid;
  const test = code`bit(${leaf}, ${subleaf}, ${register}, ${bit})`;
  return asked === "tiles" ? code`${test} && tiles_allowed()` : test;
}

function featureTests(features: readonly string[]): Code {
  if (features.length === 0) return code`static const char* missing_words(void) { return ""; }`;
  const tests = features.map((f) => code`    if (!(${testOf(f)})) add(${stringLiteral(f)});`);
  const bits = features.some((f) => extensionNamed(f)?.cpuid !== undefined);
  const tiles = features.some((f) => extensionNamed(f)?.asked === "tiles");
  return linesOf([
    code`#if defined(__x86_64__)`,
    ...(bits ? [CPUID_BITS] : []),
    ...(tiles ? [TILES_ALLOWED] : []),
    code`namespace {
struct Missing {
  char words[256] = "";
  void add(const char* word) {
    if (words[0]) strcat(words, " ");
    strcat(words, word);
  }
  Missing() {
    __builtin_cpu_init();`,
    ...tests,
    code`  }
};
} // namespace
static const char* missing_words(void) {
  static const Missing missing;
  return missing.words;
}
#else
static const char* missing_words(void) { return "x86-64"; }
#endif`,
  ]);
}

const CPUID_BITS = code`#include <cpuid.h>
enum Register { EAX, EBX, ECX, EDX };
static bool bit(unsigned leaf, unsigned subleaf, Register which, int place) {
  unsigned values[4] = {};
  return __get_cpuid_count(leaf, subleaf, &values[0], &values[1], &values[2], &values[3]) && (values[which] >> place & 1);
}`;

const TILES_ALLOWED = code`#include <sys/syscall.h>
#include <unistd.h>
/* The state of tiles must be enabled by the system and asked for: arch_prctl 0x1023 is ARCH_REQ_XCOMP_PERM, 18 the tile data. */
static bool tiles_allowed(void) {
  unsigned low, high;
  if (!bit(1, 0, ECX, 27)) return false;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & 0x60000) == 0x60000 && syscall(SYS_arch_prctl, 0x1023, 18) == 0;
}`;

/** Threads that wait for the parts of a phase; they spin for a moment before they sleep. */
const POOL = code`
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace {
struct Pool {
  std::thread helpers[THREADS - 1];
  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<long> turn{0};
  std::atomic<int> left{0};
  std::atomic<bool> ending{false};
  const Code* code = nullptr;
  void* workspace = nullptr;
  void* const* tensors = nullptr;
  int phase = 0;

  void help(int part) {
    for (long seen = 0;; seen++) {
      for (int spin = 0; turn.load(std::memory_order_acquire) == seen && spin < 20000; spin++) {}
      if (turn.load(std::memory_order_acquire) == seen) {
        std::unique_lock<std::mutex> lock(mutex);
        wake.wait(lock, [&] { return turn.load(std::memory_order_acquire) != seen; });
      }
      if (ending) return;
      code->run(workspace, tensors, phase, part, THREADS);
      left.fetch_sub(1, std::memory_order_release);
    }
  }
  void next() {
    { std::lock_guard<std::mutex> lock(mutex); turn.fetch_add(1, std::memory_order_release); }
    wake.notify_all();
  }
  void run(int which) {
    phase = which;
    left.store(THREADS - 1, std::memory_order_relaxed);
    next();
    code->run(workspace, tensors, phase, 0, THREADS);
    while (left.load(std::memory_order_acquire) > 0) std::this_thread::yield();
  }
  bool start() {
    try {
      for (int i = 0; i < THREADS - 1; i++) helpers[i] = std::thread([this, i] { help(i + 1); });
      return true;
    } catch (const std::system_error&) {
      return false;
    }
  }
  ~Pool() {
    ending = true;
    next();
    for (std::thread& helper : helpers) if (helper.joinable()) helper.join();
  }
};
} // namespace
`;

export function librarySource(subject: EmitSubject): SourceText {
  const { computation, tuned, threads } = subject;
  const { name, upper } = namesOf(subject);
  const parameters = parametersOf(computation);
  const constants = parameters.filter((p) => p.role === "constant");
  const { prepare, run } = signatures(parameters);
  const pooled = threads > 1;
  const kept = (p: Parameter): boolean => tuned === undefined || readsAtRun(tuned, p.place);
  const declared = (
    kind: "tuned" | "portable",
  ): Code => code`extern "C" unsigned long ${name}_${kind}_workspace_bytes(void);
extern "C" void ${name}_${kind}_prepare(void* workspace, const void* const* tensors);
extern "C" int ${name}_${kind}_phases(void);
extern "C" void ${name}_${kind}_run(void* workspace, void* const* tensors, int phase, int part, int parts);
static const Code ${kind} = {${name}_${kind}_workspace_bytes, ${name}_${kind}_prepare, ${name}_${kind}_phases, ${name}_${kind}_run};`;
  const nulls = (chosen: readonly Parameter[]): Code =>
    join([code`!plan`, ...chosen.map((p) => code`!${p.name}`)], code` || `);
  const places = [...parameters].sort((a, b) => a.place - b.place);
  const text = code`${comment([
    `${subject.name}: chooses the code for this CPU, and keeps what calls share.`,
    "",
    `The kernels are in ${tuned ? `${subject.name}_tuned.cpp and ` : ""}${subject.name}_portable.cpp; only the first is compiled for more than the plainest CPU.`,
  ])}
#include "${name}.h"

#include <stdlib.h>
#include <string.h>

/* A kernel: see ${name}_${tuned ? "tuned" : "portable"}.cpp. */
namespace {
struct Code {
  unsigned long (*workspace_bytes)(void);
  void (*prepare)(void* workspace, const void* const* tensors);
  int (*phases)(void);
  void (*run)(void* workspace, void* const* tensors, int phase, int part, int parts);
};
} // namespace
${declared("portable")}
${
  tuned
    ? code`#if !defined(${upper}_NO_TUNED)
${declared("tuned")}
${featureTests(tuned.features)}
#else
static const Code tuned = portable;
static const char* missing_words(void) { return "x86-64"; }
#endif
`
    : code`static const Code tuned = portable;
static const char* missing_words(void) { return "a-tuned-kernel"; }
`
}
enum { THREADS = ${threads}, ALIGNMENT = 64 };
${pooled ? apart(POOL) : NOTHING}
struct ${name}_plan {
  Code code;
  int chosen;
  void* workspace;
${join(constants.map((p) => code`  void* ${p.name}; /* a copy${kept(p) ? "" : ", for the portable code: the tuned kernel has it packed"} */\n`))}  bool prepared;
${pooled ? code`  Pool* pool;\n` : NOTHING}};

static void* aligned(unsigned long bytes) {
  return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

extern "C" int ${name}_create(${name}_plan** made, int which) {
  if (!made) return ${upper}_NULL;
  *made = nullptr;
  bool able = !*missing_words();
  if (which == ${upper}_TUNED && !able) return ${upper}_UNSUPPORTED;
  ${name}_plan* plan = (${name}_plan*)calloc(1, sizeof(${name}_plan));
  if (!plan) return ${upper}_NO_MEMORY;
  plan->chosen = which == ${upper}_PORTABLE || !able ? ${upper}_PORTABLE : ${upper}_TUNED;
  plan->code = plan->chosen == ${upper}_TUNED ? tuned : portable;
  plan->workspace = aligned(plan->code.workspace_bytes());
  bool complete = plan->workspace;
${join(
  constants.map((p) =>
    kept(p)
      ? code`  complete = complete && (plan->${p.name} = aligned(${p.bytes}));\n`
      : code`  if (plan->chosen == ${upper}_PORTABLE) complete = complete && (plan->${p.name} = aligned(${p.bytes}));\n`,
  ),
)}  if (!complete) return ${name}_destroy(plan), ${upper}_NO_MEMORY;
${
  pooled
    ? code`  if (plan->chosen == ${upper}_TUNED) {
    plan->pool = new (std::nothrow) Pool;
    if (!plan->pool) return ${name}_destroy(plan), ${upper}_NO_MEMORY;
    plan->pool->code = &plan->code;
    plan->pool->workspace = plan->workspace;
    if (!plan->pool->start()) return ${name}_destroy(plan), ${upper}_NO_THREAD;
  }
`
    : NOTHING
}${
  constants.length === 0
    ? code`  plan->code.prepare(plan->workspace, nullptr);
  plan->prepared = true;
`
    : NOTHING
}  *made = plan;
  return ${upper}_OK;
}
${
  constants.length > 0
    ? code`
extern "C" int ${name}_prepare(${name}_plan* plan${prepare}) {
  if (${nulls(constants)}) return ${upper}_NULL;
${join(constants.map((p) => code`  if (plan->${p.name}) memcpy(plan->${p.name}, ${p.name}, ${p.bytes});\n`))}  const void* const tensors[] = {${list(places.map((p) => (p.role === "constant" ? p.name : code`nullptr`)))}};
  plan->code.prepare(plan->workspace, tensors);
  plan->prepared = true;
  return ${upper}_OK;
}
`
    : NOTHING
}
extern "C" int ${name}_run(${name}_plan* plan${run}) {
  if (${nulls(parameters.filter((p) => p.role !== "constant"))}) return ${upper}_NULL;
  if (!plan->prepared) return ${upper}_NOT_PREPARED;
  void* const tensors[] = {${list(places.map((p) => (p.role === "constant" ? code`plan->${p.name}` : code`(void*)${p.name}`)))}};
  const int phases = plan->code.phases();
${
  pooled
    ? code`  if (plan->pool) {
    plan->pool->tensors = tensors;
    for (int phase = 0; phase < phases; phase++) plan->pool->run(phase);
    return ${upper}_OK;
  }
`
    : NOTHING
}  for (int phase = 0; phase < phases; phase++) plan->code.run(plan->workspace, tensors, phase, 0, 1);
  return ${upper}_OK;
}

extern "C" void ${name}_destroy(${name}_plan* plan) {
  if (!plan) return;
${pooled ? code`  delete plan->pool;\n` : NOTHING}${join(constants.map((p) => code`  free(plan->${p.name});\n`))}  free(plan->workspace);
  free(plan);
}

extern "C" int ${name}_chosen(const ${name}_plan* plan) { return plan ? plan->chosen : ${upper}_NULL; }

extern "C" const char* ${name}_missing(void) { return missing_words(); }

extern "C" const char* ${name}_message(int code) {
  static const char* const messages[] = {
${join(MESSAGES.map(([, message]) => code`    ${stringLiteral(message)},\n`))}  };
  return code >= 0 && code < ${MESSAGES.length} ? messages[code] : "an unknown code";
}
`;
  return spell(text, "c++");
}
