/**
 * @file Generates the program that times a processor: loops over its instructions, memories and scalar copies, from the intrinsics table.
 *
 *     // avx512.vpdpbusd: 14 accumulators, then one
 *     for (long i = 0; i < n; i++) { c0 = dot_bytes(c0, a, b); c1 = dot_bytes(c1, a, b); ... }
 *
 * It prints a line for each figure and round: `issue avx512.vpdpbusd: 3.61 3.60 ...`, in nanoseconds of the thread's processor time, so that other work on
 * the machine disturbs less. calibrate.ts parses it.
 */

import { upTo } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { fillTemplate, type Intrinsic, type Operand, operandOf } from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { tileElements, tileRowElements } from "../abstraction/memory-tile.ts";
import {
  type Code,
  code,
  commentText,
  indented,
  join,
  lines as linesOf,
  NOTHING,
  type SourceText,
  skeleton,
  spell,
  stringLiteral,
} from "../abstraction/source-text.ts";
import { declareRegister, isNumbered, preludeOf, registerClass, widestVector } from "../targets/index.ts";

/** Enough accumulators for two issues a cycle at a latency of seven, with two of 16 registers left for inputs. */
const ACCUMULATORS = 14;
/** Tiles loaded or stored in a row. */
const TILES = 8;
/** So often each figure is measured, the others in between: what slows a machine lasts longer than a figure takes. */
const ROUNDS = 3;

/** The whole program: prints a line of samples, nanoseconds a unit, for each figure. */
export function calibrationSource(target: Target, rows: readonly Intrinsic[]): SourceText {
  const preludes = new Map(rows.map((row) => [row.prelude, preludeOf(row)]));
  const vector = widestVector(target);
  const lanes = target.isa.includes("avx512f");
  const functions = rows.flatMap((row, i) => [
    code`// ${commentText(row.name)}`,
    issueLoop(row, code`issue_${i}`, accumulatorsOf(row)),
    issueLoop(row, code`latency_${i}`, 1),
    ...row.operands.slice(1).map((o, k) => loadLoop(row, o, code`load_${i}_${k}`)),
    storeLoop(row, code`store_${i}`),
  ]);
  const calls = rows.flatMap((row, i) => [
    ...(row.setup === undefined ? [] : [fillTemplate(row.setup)]),
    measureCall(`issue ${row.name}`, accumulatorsOf(row), code`issue_${i}`),
    measureCall(`latency ${row.name}`, 1, code`latency_${i}`),
    ...row.operands.slice(1).map((o, k) => measureCall(`load ${row.name} ${o.name}`, TILES, code`load_${i}_${k}`)),
    measureCall(`store ${row.name}`, TILES, code`store_${i}`),
  ]);
  const memory = footprints(target).flatMap(({ name, bytes }) =>
    (["read", "write", "copy"] as const).map((kind) =>
      measureCall(`${kind} ${name}`, bytes, code`[](long n) { ${kind}_bytes(n, ${bytes}); }`),
    ),
  );
  const largest = Math.max(...footprints(target).map((f) => f.bytes));
  const clock = measureCall("clock", 64, code`add_chain`);
  const text = linesOf([
    ...preludes.values(),
    HARNESS,
    code`typedef float vec __attribute__((vector_size(${vector.bytes ?? 16}), may_alias));`,
    code`#define KEEP(x) asm volatile("" : "+${vector.constraint ?? "x"}"(x))`,
    MEMORY_LOOPS,
    SCALAR_LOOPS,
    ...(lanes ? [LANE_LOOPS] : []),
    ...functions,
    code`int main() {`,
    code`  far = (char*)aligned_alloc(4096, ${largest + 4096}); memset(far, 1, ${largest + 4096}); memset(near, 0, sizeof near);`,
    code`  for (int round = 0; round < ${ROUNDS}; round++) {`,
    ...indented(
      indented([
        clock,
        ...calls,
        measureCall("loads", 8, EIGHT_LOADS),
        ...memory,
        ...SCALAR_CALLS,
        ...(lanes ? LANE_CALLS : []),
        clock,
      ]),
    ),
    code`  }`,
    code`  return 0;`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "c++");
}

const EIGHT_LOADS = code`[](long n) { for (long i = 0; i < n; i++) { vec* p = (vec*)near; asm volatile("" : "+r"(p)); ${join(
  upTo(8).map((k) => code`{ vec v = p[${k}]; KEEP(v); }`),
  code` `,
)} } }`;

const HARNESS = code`#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
alignas(4096) static char near[32768];
static char* far;

static double now(void) {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return t.tv_sec * 1e9 + t.tv_nsec;
}

/* Three samples of at least half a millisecond, nanoseconds a unit; one call of f does n times so many units. */
template <class F> static void measure(const char* label, double units, F f) {
  long n = 1;
  for (;;) {
    double begun = now();
    f(n);
    double taken = now() - begun;
    if (taken >= 5e5 || n >= 1L << 40) break;
    n = taken < 1e4 ? n * 8 : (long)(n * 6e5 / taken) + 1;
  }
  printf("%s:", label);
  for (int i = 0; i < 3; i++) {
    double begun = now();
    f(n);
    printf(" %.6g", (now() - begun) / (n * units));
  }
  printf("\\n");
}

/* One cycle each: the time of a cycle. */
__attribute__((noinline)) static void add_chain(long n) {
  long x = n;
  for (long i = 0; i < n; i++) {
#define ADD asm volatile("" : "+r"(x)); x += n;
#define ADD8 ADD ADD ADD ADD ADD ADD ADD ADD
    ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8 ADD8
  }
  asm volatile("" :: "r"(x));
}
`;

/** Four vectors an iteration, each opaque to the compiler, which would otherwise call memcpy or drop the loop. */
const MEMORY_LOOPS = code`
__attribute__((noinline)) static void read_bytes(long n, long bytes) {
  for (; n > 0; n--)
    for (vec *p = (vec*)far, *end = (vec*)(far + bytes); p < end; p += 4) {
      vec a = p[0], b = p[1], c = p[2], d = p[3];
      KEEP(a); KEEP(b); KEEP(c); KEEP(d);
    }
}
__attribute__((noinline)) static void write_bytes(long n, long bytes) {
  vec v = {};
  for (; n > 0; n--)
    for (vec *p = (vec*)far, *end = (vec*)(far + bytes); p < end; p += 4) {
      KEEP(v);
      p[0] = v; p[1] = v; p[2] = v; p[3] = v;
    }
}
__attribute__((noinline)) static void copy_bytes(long n, long bytes) {
  long half = bytes / 2;
  for (; n > 0; n--)
    for (vec *p = (vec*)far, *q = (vec*)(far + half), *end = q; p < end; p += 4, q += 4) {
      vec a = p[0], b = p[1], c = p[2], d = p[3];
      KEEP(a); KEEP(b); KEEP(c); KEEP(d);
      q[0] = a; q[1] = b; q[2] = c; q[3] = d;
    }
}`;

/**
 * Small versions of the scalar loops that lowering puts around an instruction (mapper/lower/scheduled.ts): a padded copy, tiles, a scratch
 * block. As in a kernel, the compiler does not know whether the two sides overlap.
 */
const SCALAR_LOOPS = code`
static inline void fence(void) { asm volatile("" ::: "memory"); }
template <class T> static inline T* unknown(T* p) { asm volatile("" : "+r"(p)); return p; }
#define SIDES(T) const T* const from = unknown((const T*)near); T* const to = unknown((T*)(near + 16384))
template <int RUN> static void copy_runs(long n) {
  SIDES(uint8_t);
  for (; n > 0; n--, fence())
    for (long h = 0; h < 8; h++)
      for (long c = 0; c < RUN; c++) to[(h + 1) * (RUN + 32) + c] = from[h * RUN + c];
}
__attribute__((noinline)) static void strided_copy(long n) {
  SIDES(uint8_t);
  for (; n > 0; n--, fence())
    for (long h = 0; h < 8; h++)
      for (long w = 0; w < 14; w++)
        for (long c = 0; c < 64; c++) to[(h * 16 + w) * 64 + c] = from[(c * 8 + h) * 14 + w];
}
/* Tiles of four: k from the innermost dimension; from two fused, two digits; from one that is guarded on both sides. */
#define TILES(INDEX, GUARD, FUSED) \\
  for (; n > 0; n--, fence()) \\
    for (long p = 0; p < 6; p++) \\
      for (long q = 0; q < 14; q++) \\
        for (long c = 0; c < FUSED / 4; c++) \\
          for (long k = 0; k < 4; k++) to[4 * (q % 6) + 24 * (q / 6) + 72 * c + 1728 * p + k] = GUARD ? from[INDEX] : (uint8_t)0
__attribute__((noinline)) static void indexed_copy(long n) {
  SIDES(uint8_t);
  TILES((p * 16 + q) * 48 + 4 * c + k, true, 48);
}
__attribute__((noinline)) static void digit_copy(long n) {
  SIDES(uint8_t);
  TILES((p * 16 + q + (4 * c + k) % 3) * 16 + (4 * c + k) / 3, true, 48);
}
__attribute__((noinline)) static void guard_copy(long n) {
  SIDES(uint8_t);
  TILES((p * 16 + q) * 48 + 4 * c + k - 1, (4 * c + k - 1 >= 0 && 4 * c + k - 1 < 46), 48);
}
__attribute__((noinline)) static void scattered_copy(long n) {
  SIDES(int32_t);
  for (; n > 0; n--, fence())
    for (long q = 0; q < 12; q++)
      for (long k = 0; k < 2; k++)
        for (long i = 0; i < 16; i++) to[(16 * k + i) * 64 + q] = from[16 * (2 * q + k) + i];
}`;

export const COPY_RUNS = [64, 1024] as const;
const SCALAR_CALLS = [
  ...COPY_RUNS.map((run) => measureCall(`run ${run}`, 8, code`copy_runs<${run}>`)),
  measureCall("strided", 8 * 14 * 64, code`strided_copy`),
  ...(["indexed", "digit", "guard"] as const).map((kind) => measureCall(kind, 6 * 14 * 48, code`${kind}_copy`)),
  measureCall("scattered", 12 * 2 * 16, code`scattered_copy`),
];

/** With AVX-512, sixteen lanes, each in a line of its own of the first-level cache. */
const LANE_LOOPS = code`
#include <immintrin.h>
static const __m512i apart = _mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15), _mm512_set1_epi32(80));
__attribute__((noinline)) static void gather_lanes(long n) {
  for (__m512i at = apart; n > 0; n--) { asm volatile("" : "+v"(at)); __m512 v = _mm512_i32gather_ps(at, near, 4); asm volatile("" : "+v"(v)); }
}
__attribute__((noinline)) static void scatter_lanes(long n) {
  __m512 v = _mm512_setzero_ps();
  for (__m512i at = apart; n > 0; n--, fence()) { asm volatile("" : "+v"(at), "+v"(v)); _mm512_i32scatter_ps(near, at, v, 4); }
}`;
const LANE_CALLS = [
  measureCall("gathered lane", 16, code`gather_lanes`),
  measureCall("scattered lane", 16, code`scatter_lanes`),
];

function measureCall(label: string, units: number, measured: Code): Code {
  return code`measure(${stringLiteral(label)}, ${units}, ${measured});`;
}

function accumulatorsOf(row: Intrinsic): number {
  const { file } = targetOperand(row);
  return isNumbered(file) ? firstInput(file) : ACCUMULATORS;
}

/** For register files addressed by number, the last two registers are inputs. */
function firstInput(file: string): number {
  return (registerClass(file)?.count ?? 0) - 2;
}

function targetOperand(row: Intrinsic): Operand {
  return operandOf(row, row.computation.equation.target.tensor);
}

/** Issues independent accumulators in turn; with a single one the loop measures the latency of the chain. */
function issueLoop(row: Intrinsic, name: Code, accumulators: number): Code {
  const target = targetOperand(row);
  const inputs = row.operands.filter((o) => o !== target);
  const results = upTo(accumulators).map((i) => registerIn(target, code`c${i}`, i));
  const sources = inputs.map((o, i) => registerIn(o, code`x${i}`, firstInput(o.file) + i));
  const declarations = [
    ...results.map((_, i) => declareRegister(row, target, code`c${i}`)),
    ...inputs.map((o, i) => declareRegister(row, o, code`x${i}`)),
  ];
  const issues = results.map((c) =>
    fillTemplate(row.emit, {
      [target.name]: c,
      ...Object.fromEntries(inputs.map((o, i) => [o.name, sources[i] ?? NOTHING])),
    }),
  );
  const firstChanges = opaque(inputs[0], sources[0] ?? NOTHING);
  return functionText(name, [
    ...declarations,
    ...inputs.map((o, i) => loadText(o, sources[i] ?? NOTHING, 0)),
    // Made opaque one by one: equal accumulators would be computed once.
    ...results.map((c) => code`${loadText(target, c, 0)} ${opaque(target, c)}`),
    code`for (long i = 0; i < n; i++) {`,
    // The compiler must not treat an input as known: neither from one iteration to the next, nor, where an instruction of the table is several of the
    // machine, what two issues would compute from it alike. Blocks of a kernel share one factor, so one is changed.
    ...indented(issues.flatMap((issue, i) => (i === 0 ? [issue] : [firstChanges, issue]))),
    ...indented(sources.map((x, i) => opaque(inputs[i], x))),
    code`}`,
    ...results.map((c) => opaque(target, c)),
  ]);
}

function loadLoop(row: Intrinsic, operand: Operand, name: Code): Code {
  const register = registerIn(operand, code`x`, firstInput(operand.file));
  const loads = upTo(TILES).map((i) => code`  ${loadText(operand, register, i)} ${opaque(operand, register)}`);
  return functionText(name, [
    declareRegister(row, operand, code`x`),
    code`for (long i = 0; i < n; i++) {`,
    ...loads,
    code`  fence();`,
    code`}`,
  ]);
}

function storeLoop(row: Intrinsic, name: Code): Code {
  const target = targetOperand(row);
  const register = registerIn(target, code`c`, 0);
  const stores = upTo(TILES).map((i) => code`  ${storeText(target, register, i)}`);
  return functionText(name, [
    declareRegister(row, target, code`c`),
    loadText(target, register, 0),
    code`for (long i = 0; i < n; i++) {`,
    code`  ${opaque(target, register)}`,
    ...stores,
    code`  fence();`,
    code`}`,
  ]);
}

function functionText(name: Code, lines: readonly Code[]): Code {
  const body = indented(lines.filter((line) => skeleton(line) !== ""));
  return linesOf([code`__attribute__((noinline)) static void ${name}(long n) {`, ...body, code`}`]);
}

/** The variable, or the number. */
function registerIn(operand: Operand, variable: Code, number: number): Code {
  return isNumbered(operand.file) ? code`${number}` : variable;
}

function loadText(operand: Operand, register: Code, tile: number): Code {
  const words = memoryWords(operand, register, tile);
  return operand.load === undefined
    ? code`memcpy(&${register}, ${words.ptr}, sizeof ${register});`
    : fillTemplate(operand.load, words);
}

function storeText(operand: Operand, register: Code, tile: number): Code {
  const words = memoryWords(operand, register, tile);
  return operand.store === undefined
    ? code`memcpy(${words.ptr}, &${register}, sizeof ${register});`
    : fillTemplate(operand.store, words);
}

/** The given tile of the near buffer, which holds eight tiles of any kind. */
function memoryWords(operand: Operand, register: Code, tile: number): Record<"reg" | "ptr" | "stride", Code> {
  const bytes = bytesOf(operand.dtype);
  const at = tile * tileElements(operand) * bytes;
  return {
    reg: register,
    ptr: code`((${C_TYPES[operand.dtype]}*)(near + ${at}))`,
    stride: code`${tileRowElements(operand) * bytes}`,
  };
}

/** Hides a register's value from the compiler. A register addressed by number needs no hiding. */
function opaque(operand: Operand | undefined, register: Code): Code {
  const constraint = operand && registerClass(operand.file)?.constraint;
  return constraint === undefined ? NOTHING : code`asm volatile("" : "+${constraint}"(${register}));`;
}

/**
 * Half of each cache, but for the last cache at most eight times the one inside it; and four times the last cache for main memory.
 *
 * A shared cache is reported as a whole: 480 MiB in a machine of which we have two processors. The data that a kernel keeps there has just
 * outgrown the cache inside, and half of the whole would measure main memory.
 */
export function footprints(target: Target): readonly { name: string; bytes: number }[] {
  const caches = target.memories.flatMap(({ name, bytes }) => (bytes ? [{ name, bytes: bytes.value }] : [])).reverse();
  const last = caches.at(-1)?.bytes ?? 32 * 1024 ** 2;
  const rounded = (bytes: number): number => Math.floor(bytes / 512) * 512;
  return [
    ...caches.map(({ name, bytes }, i) => {
      const inside = i === caches.length - 1 ? caches[i - 1]?.bytes : undefined;
      return { name, bytes: rounded(Math.min(bytes / 2, inside === undefined ? bytes : OUTGROWN * inside)) };
    }),
    { name: "dram", bytes: rounded(Math.min(4 * last, MOST_BYTES)) },
  ];
}

/** In multiples of the cache inside. */
const OUTGROWN = 8;
const MOST_BYTES = 256 * 1024 ** 2;
