/**
 * @file The C source of a package, which chooses between the tuned and the portable code. Its header is in header.ts.
 *
 *     conv2d_plan* plan;
 *     if (conv2d_create(&plan, CONV2D_BEST)) ...            the CPU is asked here
 *     conv2d_prepare(plan, w);                              constants are packed and copied: w may be freed
 *     conv2d_run(plan, in, out);                            as often as wanted
 *     conv2d_destroy(plan);
 */

import { sortedBy } from "../abstraction/collections.ts";
import { internal } from "../abstraction/error.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  join,
  lines as linesOf,
  list,
  NOTHING,
  quoted,
  replaced,
  type SourceText,
  spell,
  stringLiteral,
} from "../abstraction/source-text.ts";
import { armExtensionNamed } from "../targets/arm.ts";
import { architectureOf } from "../targets/features.ts";
import { extensionNamed } from "../targets/x86.ts";
import { MESSAGES, signatures } from "./header.ts";
import { POOL } from "./pool.ts";
import { type EmitSubject, namesOf, type Parameter, parametersOf } from "./subject.ts";

/** The tuned kernel with its functions renamed, so that two packages can be linked into one program. */
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

/** Functions of a kernel's C interface (abstraction/kernel.ts), and those of a reference on a device. */
const FUNCTIONS = [
  "workspace_bytes",
  "scratch_bytes",
  "allow",
  "prepare",
  "phases",
  "run",
  "launch",
  "reference",
] as const;

/** Whether a kernel reads tensor `place` at run time, and not only during preparation. */
function readsAtRun({ source }: Kernel, place: number): boolean {
  const prepare = /^extern "C" void automap_prepare\([\s\S]*?^}$/m;
  return source.replace(prepare, "").includes(`tensors[${place}]`);
}

/** The C test for a CPU extension: by name where every compiler knows the name, else by its CPUID bit. */
function testOf(name: string): Code {
  const { cpuid, asked } = extensionNamed(name) ?? {};
  if (cpuid === undefined) return code`__builtin_cpu_supports(${stringLiteral(name)})`;
  const { leaf, subleaf, register, bit } = cpuid;
  const test = code`bit(${leaf}, ${subleaf}, ${register}, ${bit})`;
  return asked === "tiles" ? code`${test} && tiles_allowed()` : test;
}

/** The same for Arm: tests the hardware capabilities that Linux reports to programs, and the vector length it allows. */
function armTestOf(name: string): Code {
  const { hwcap, vectorBytes } = armExtensionNamed(name) ?? {};
  if (hwcap === undefined) internal(`${name} is no extension of Arm`);
  const test = code`getauxval(${hwcap.word === 1 ? "AT_HWCAP" : "AT_HWCAP2"}) >> ${hwcap.bit} & 1`;
  return vectorBytes === undefined ? test : code`(${test}) && vector_bytes() >= ${vectorBytes}`;
}

/**
 * For each architecture: its name, which other systems get as the missing feature; the macro that detects it; what CPU tests need to run first;
 * and its names in CMake.
 */
const ARCHITECTURES = {
  x86: {
    word: "x86-64",
    defined: code`#if defined(__x86_64__)`,
    begin: code`    __builtin_cpu_init();`,
    processors: "x86_64|AMD64|amd64",
  },
  arm: {
    word: "aarch64-linux",
    defined: code`#if defined(__aarch64__) && defined(__linux__)`,
    begin: NOTHING,
    processors: "aarch64|arm64|ARM64",
  },
} as const;

/** The architecture a tuned kernel is for. A kernel that needs no extension counts as x86. */
export const architectureFor = (features: readonly string[]) => ARCHITECTURES[architectureOf(features) ?? "x86"];

/** Emits `missing_words()`, which returns the extensions of `features` that the CPU lacks as a C string. */
export function featureTests(features: readonly string[]): Code {
  if (features.length === 0) return code`static const char* missing_words(void) { return ""; }`;
  const isArm = architectureOf(features) === "arm";
  const { word, defined, begin } = architectureFor(features);
  const tests = features.map((f) => code`    if (!(${isArm ? armTestOf(f) : testOf(f)})) add(${stringLiteral(f)});`);
  const bits = features.some((f) => extensionNamed(f)?.cpuid !== undefined);
  const tiles = features.some((f) => extensionNamed(f)?.asked === "tiles");
  const vectors = features.some((f) => armExtensionNamed(f)?.vectorBytes !== undefined);
  return linesOf([
    defined,
    bits && CPUID_BITS,
    tiles && TILES_ALLOWED,
    isArm && code`#include <sys/auxv.h>`,
    vectors && VECTOR_BYTES,
    code`namespace {
struct Missing {
  char words[256] = "";
  void add(const char* word) {
    if (words[0]) strcat(words, " ");
    strcat(words, word);
  }
  Missing() {`,
    isArm ? undefined : begin,
    ...tests,
    code`  }
};
} // namespace
static const char* missing_words(void) {
  static const Missing missing;
  return missing.words;
}
#else
static const char* missing_words(void) { return ${stringLiteral(word)}; }
#endif`,
  ]);
}

/** 51 is PR_SVE_GET_VL. The low 16 bits of its result hold the vector length in bytes. */
const VECTOR_BYTES = code`#include <sys/prctl.h>
static int vector_bytes(void) {
  const int answer = prctl(51);
  return answer < 0 ? 0 : answer & 0xffff;
}`;

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

/** What the library's functions are generated from. */
interface Library {
  readonly subject: EmitSubject;
  readonly name: Code;
  readonly upper: Code;
  /** The parameters in the order of the function's arguments, and in the order of the kernel's tensors. */
  readonly parameters: readonly Parameter[];
  readonly places: readonly Parameter[];
  readonly constants: readonly Parameter[];
  readonly pooled: boolean;
  /** Whether a plan keeps a copy of a constant whichever code it runs, and not only in the portable code. */
  readonly kept: (p: Parameter) => boolean;
}

export function librarySource(subject: EmitSubject): SourceText {
  const { computation, tuned, threads } = subject;
  const parameters = parametersOf(computation);
  const library: Library = {
    subject,
    ...namesOf(subject),
    parameters,
    places: sortedBy(parameters, (a) => a.place),
    constants: parameters.filter((p) => p.role === "constant"),
    pooled: threads > 1,
    kept: (p) => tuned === undefined || readsAtRun(tuned, p.place),
  };
  const parts = [kernelsText, planText, createText, prepareText, runText, endText];
  return spell(join(parts.map((part) => part(library))), "c++");
}

/** The head of the file, and the kernels' names. */
function kernelsText({ subject, name, upper, pooled }: Library): Code {
  const { tuned, threads } = subject;
  const declared = (
    kind: "tuned" | "portable",
  ): Code => code`extern "C" unsigned long ${name}_${kind}_workspace_bytes(void);
extern "C" unsigned long ${name}_${kind}_scratch_bytes(void);
extern "C" void ${name}_${kind}_prepare(void* workspace, const void* const* tensors);
extern "C" int ${name}_${kind}_phases(void);
extern "C" void ${name}_${kind}_run(void* workspace, void* const* tensors, int phase, int part, int parts);
static const Code ${kind} = {${name}_${kind}_workspace_bytes, ${name}_${kind}_scratch_bytes, ${name}_${kind}_prepare, ${name}_${kind}_phases, ${name}_${kind}_run};`;
  return code`${comment([
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
  unsigned long (*scratch_bytes)(void);
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
static const char* missing_words(void) { return ${stringLiteral(architectureFor(tuned.features).word)}; }
#endif
`
    : code`static const Code tuned = portable;
static const char* missing_words(void) { return "a-tuned-kernel"; }
`
}
enum { THREADS = ${threads}, ALIGNMENT = 64 };
${pooled ? apart(POOL) : NOTHING}
`;
}

function planText({ name, constants, pooled, kept }: Library): Code {
  return code`struct ${name}_plan {
  Code code;
  int chosen;
  void *workspace, *scratch;
${join(constants.map((p) => code`  void* ${p.name}; /* a copy${kept(p) ? "" : ", for the portable code: the tuned kernel has it packed"} */\n`))}  bool prepared;
${pooled ? code`  Pool* pool;\n` : NOTHING}};

static void* aligned(unsigned long bytes) {
  return aligned_alloc(ALIGNMENT, (bytes / ALIGNMENT + 1) * ALIGNMENT);
}

`;
}

function createText({ name, upper, constants, pooled, kept }: Library): Code {
  return code`extern "C" int ${name}_create(${name}_plan** made, int which) {
  if (!made) return ${upper}_NULL;
  *made = nullptr;
  bool able = !*missing_words();
  if (which == ${upper}_TUNED && !able) return ${upper}_UNSUPPORTED;
  ${name}_plan* plan = (${name}_plan*)calloc(1, sizeof(${name}_plan));
  if (!plan) return ${upper}_NO_MEMORY;
  plan->chosen = which == ${upper}_PORTABLE || !able ? ${upper}_PORTABLE : ${upper}_TUNED;
  plan->code = plan->chosen == ${upper}_TUNED ? tuned : portable;
  plan->workspace = aligned(plan->code.workspace_bytes());
  plan->scratch = aligned(plan->code.scratch_bytes());
  bool complete = plan->workspace && plan->scratch;
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
`;
}

function prepareText({ name, upper, parameters, constants, places }: Library): Code {
  if (constants.length === 0) return code`\n`;
  return code`
extern "C" int ${name}_prepare(${name}_plan* plan${signatures(parameters).prepare}) {
  if (${nulls(constants)}) return ${upper}_NULL;
${join(constants.map((p) => code`  if (plan->${p.name}) memcpy(plan->${p.name}, ${p.name}, ${p.bytes});\n`))}  const void* const tensors[] = {${list(places.map((p) => (p.role === "constant" ? p.name : code`nullptr`)))}};
  plan->code.prepare(plan->workspace, tensors);
  plan->prepared = true;
  return ${upper}_OK;
}

`;
}

function runText({ name, upper, parameters, places, pooled }: Library): Code {
  return code`extern "C" int ${name}_run(${name}_plan* plan${signatures(parameters).run}) {
  if (${nulls(parameters.filter((p) => p.role !== "constant"))}) return ${upper}_NULL;
  if (!plan->prepared) return ${upper}_NOT_PREPARED;
  void* const tensors[] = {${list(places.map((p) => (p.role === "constant" ? code`plan->${p.name}` : code`(void*)${p.name}`)))}, plan->scratch};
${
  pooled
    ? code`  if (plan->pool) {
    plan->pool->begin();
    plan->pool->run(plan->code, plan->workspace, tensors);
    plan->pool->end();
    return ${upper}_OK;
  }
`
    : NOTHING
}  const int phases = plan->code.phases();
  for (int phase = 0; phase < phases; phase++) plan->code.run(plan->workspace, tensors, phase, 0, 1);
  return ${upper}_OK;
}

`;
}

function endText({ name, upper, constants, pooled }: Library): Code {
  return code`extern "C" void ${name}_destroy(${name}_plan* plan) {
  if (!plan) return;
${pooled ? code`  Pool::destroy(plan->pool);\n` : NOTHING}${join(constants.map((p) => code`  free(plan->${p.name});\n`))}  free(plan->scratch);
  free(plan->workspace);
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
}

/** A C condition that is true when one of the given pointers is null. */
function nulls(chosen: readonly Parameter[]): Code {
  return join([code`!plan`, ...chosen.map((p) => code`!${p.name}`)], code` || `);
}
