/**
 * @file Generates kernels that measure a GPU: issue rate and latency of each instruction, bandwidth and latency of each memory.
 *
 *     // wgmma.m64n64k16.f32.f16: 2 warpgroups, 1 accumulator
 *     static __global__ void __launch_bounds__(256) issue_0(char* memory, long long* cycles, int times) {
 *       ...
 *       const long long begun = clock64();
 *       for (int i = 0; i < times; i++) { wgmma_fence(); wgmma_f32_f16(c0, ...); ... wgmma_commit(); wgmma_wait<1>(); }
 *
 * The text of an instruction comes from its row. A library of probes has this interface; runtime/harness/cuda.cu runs and times it:
 *
 *     extern "C" int automap_probes(void);                                  how many there are
 *     extern "C" unsigned long automap_probe_bytes(void);                   memory they want
 *     extern "C" int automap_probe_form(int probe);                         0, 1: clocks settle under its load, 2: an empty kernel in a graph
 *     extern "C" int automap_probe(int probe, char* memory, long long* cycles, int times, cudaStream_t stream);
 */

import { sortedBy, upTo, volumeOf } from "../abstraction/collections.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import {
  fillTemplate,
  type Intrinsic,
  type Operand,
  operandOf,
  type RowText,
  readsShared,
} from "../abstraction/intrinsic.ts";
import { levelOf, memoryOf, type Target } from "../abstraction/machine.ts";
import { printTile } from "../abstraction/matrix-view.ts";
import { tileRowElements } from "../abstraction/memory-tile.ts";
import {
  apart,
  type Code,
  code,
  commentText,
  indented,
  lines as linesOf,
  NOTHING,
  type SourceText,
  skeleton,
  spell,
} from "../abstraction/source-text.ts";
import { declareRegister } from "../targets/registers.ts";

/** What one probe measures. */
export interface Probe {
  /** `issue wgmma.m64n64k16.f32.f16`, `read l2`, `launch`. */
  readonly label: string;
  /** Issues or bytes of one multiprocessor in each of `times`; for `read`, `write` and `copy` of shared levels, bytes of all multiprocessors. */
  readonly units: number;
}

/** A library of probes and what they measure, in its order. */
export interface ProbeLibrary {
  readonly source: SourceText;
  readonly probes: readonly Probe[];
}

/** Bytes that a probe traverses; powers of two. */
export interface Footprints {
  /** Fits in the last cache. */
  readonly near: number;
  /** Exceeds it. */
  readonly far: number;
}

interface Written extends Probe {
  readonly kernel: Code;
  readonly blocks: number;
  readonly threads: number;
  readonly form: "alone" | "sustained" | "graph";
  /** Runs first and does not count in the probe's cycles. */
  readonly before?: Code;
  readonly text?: Code;
}

/** Instructions in one library. Several libraries are compiled in parallel. */
const ROWS_A_LIBRARY = 6;
/** Four warps for each quarter of a multiprocessor, with four sums each: enough to hide any latency. */
const WARPS = 16;
const ACCUMULATORS = 4;
/** One warpgroup keeps all quarters busy; a second one covers its waits. */
const GROUPS = 2;
const ISSUES_A_GROUP = 8;

/** The instructions that a calibration times. One shuffle represents all. */
export function probedRows(target: Target, rows: readonly Intrinsic[]): readonly Intrinsic[] {
  const usable = rows.filter(
    (row) =>
      row.language === "cuda" &&
      [row.isa, ...row.features].every((f) => target.isa.includes(f)) &&
      row.scope !== "thread",
  );
  const shuffle = usable.find((row) => row.family === "shuffle");
  return usable.filter((row) => row.family !== "shuffle" || row === shuffle);
}

/** An eighth of the last cache's size, and four times its size. */
function footprintsOf(target: Target): Footprints {
  const cache = memoryOf(target, "l2").bytes?.value ?? 32 * 1024 ** 2;
  const power = (bytes: number): number => 2 ** Math.floor(Math.log2(bytes));
  return { near: power(cache / 4), far: 2 * power(4 * cache) };
}

/** Libraries of probes for a GPU: memory and launches first, then its instructions. */
export function gpuProbes(
  target: Target,
  rows: readonly Intrinsic[],
  footprints: Footprints = footprintsOf(target),
): readonly ProbeLibrary[] {
  const units = levelOf(target, "block").units;
  const busiest = busiestOf(rows);
  const parts: (readonly Intrinsic[])[] = [];
  for (let at = 0; at < rows.length; at += ROWS_A_LIBRARY) parts.push(rows.slice(at, at + ROWS_A_LIBRARY));
  return [
    library([], memoryProbes(units, footprints), footprints),
    ...parts.map((part) =>
      library(
        part,
        part.flatMap((row, i) => instructionProbes(row, i, units, row === busiest)),
        footprints,
      ),
    ),
  ];
}

/** The instruction with the most work per issue, with 16-bit factors if there is one: it lowers the clock most. */
function busiestOf(rows: readonly Intrinsic[]): Intrinsic | undefined {
  const work = (row: Intrinsic): number =>
    volumeOf(row.computation.axes) *
    (row.operands.some((o) => o.dtype === "f16") && row.operands.some((o) => o.dtype === "f32") ? 1 : 1e-3);
  return sortedBy(rows, (a) => -work(a))[0];
}

function library(rows: readonly Intrinsic[], probes: readonly Written[], { far }: Footprints): ProbeLibrary {
  const preludes = new Map(rows.flatMap((row) => (row.prelude === undefined ? [] : [[row.prelude, row]])));
  const forms = { alone: 0, sustained: 1, graph: 2 } as const;
  const text = linesOf([
    code`#include <stdint.h>`,
    code`#include <string.h>`,
    code`#ifdef __CUDACC__`,
    ...[...preludes.keys()].map((prelude) => apart(fillTemplate(prelude))),
    code`#endif`,
    COMMON,
    ...(rows.length === 0 ? [MEMORY_KERNELS] : []),
    ...probes.flatMap((p) => (p.text ? [p.text] : [])),
    code`struct Probe { void (*kernel)(char*, long long*, int); int blocks, threads, form; void (*before)(char*, long long*, int); };`,
    code`static const Probe probes[] = {`,
    ...probes.map(
      (p) =>
        code`  {${p.kernel}, ${p.blocks}, ${p.threads}, ${forms[p.form]}, ${p.before ?? code`nullptr`}}, /* ${commentText(p.label)} */`,
    ),
    code`};`,
    interfaceText(probes.length, 2 * far),
    NOTHING,
  ]);
  return { source: spell(text, "cuda"), probes: probes.map(({ label, units }) => ({ label, units })) };
}

function interfaceText(count: number, bytes: number): Code {
  return code`extern "C" int automap_probes(void) { return ${count}; }
extern "C" unsigned long automap_probe_bytes(void) { return ${bytes}ul; }
extern "C" int automap_probe_form(int probe) { return probes[probe].form; }
extern "C" int automap_probe(int probe, char* memory, long long* cycles, int times, cudaStream_t stream) {
  const Probe& p = probes[probe];
  void* arguments[] = {(void*)&memory, (void*)&cycles, (void*)&times};
  cudaError_t error = cudaSuccess;
  if (p.before) {
    error = cudaLaunchKernel(p.before, dim3(1), dim3(256), arguments, 0, stream);
    /* Out of the caches: the second half of the memory takes their place. */
    if (error == cudaSuccess) error = cudaMemsetAsync(memory + ${bytes / 2}ul, times & 255, ${bytes / 2}ul, stream);
  }
  if (error != cudaSuccess) return error;
  return cudaLaunchKernel(p.kernel, dim3(p.blocks), dim3(p.threads), arguments, 0, stream);
}`;
}

const COMMON = code`#define BEGIN __syncthreads(); const long long begun = clock64()
#define END __syncthreads(); if (blockIdx.x == 0 && threadIdx.x == 0) *cycles = clock64() - begun
`;

// ---- instructions ---------------------------------------------------------------------------------------------------------------

function instructionProbes(row: Intrinsic, i: number, units: number, isBusiest: boolean): Written[] {
  const group = row.scope === "warpgroup";
  const issue = code`issue_${i}`;
  const latency = code`latency_${i}`;
  const teams = group ? GROUPS : WARPS;
  const lanes = group ? 128 : 32;
  const issues = teams * (group ? ISSUES_A_GROUP : ACCUMULATORS);
  const note = code`// ${commentText(row.name)}`;
  const busy = { kernel: issue, blocks: units, threads: teams * lanes, units: issues, form: "alone" } as const;
  return [
    {
      ...busy,
      label: `issue ${row.name}`,
      text: linesOf([note, issueKernel(row, issue, ACCUMULATORS, teams * lanes)]),
    },
    {
      label: `latency ${row.name}`,
      units: 1,
      kernel: latency,
      blocks: 1,
      threads: lanes,
      form: "alone",
      text: issueKernel(row, latency, 1, lanes),
    },
    ...(isBusiest ? [{ ...busy, label: "loaded clock", form: "sustained" } as const] : []),
  ];
}

/** Issues independent sums in turn; with a single one, each issue waits for the one before. */
function issueKernel(row: Intrinsic, name: Code, accumulators: number, threads: number): Code {
  const target = operandOf(row, row.computation.equation.target.tensor);
  const inputs = row.operands.filter((o) => o !== target);
  const group = row.scope === "warpgroup";
  const sums = upTo(group ? 1 : accumulators).map((i) => code`c${i}`);
  // The compiler would compute identical sums once.
  const memory = (variable: Code, operand: Operand, at: number): Record<"reg" | "ptr" | "stride", Code> => ({
    reg: variable,
    ptr: code`memory + ${4096 * at}`,
    stride: code`${tileRowElements(operand) * bytesOf(operand.dtype)}`,
  });
  const isSum = row.computation.equation.op !== "=";
  // An instruction that replaces its target chains through an input: each sum has its own.
  const sources = inputs.map((_, o) => sums.map((_s, s) => (isSum ? code`x${o}` : code`x${o}_${s}`)));
  const emit = (s: number): Code =>
    fillTemplate(row.emit, {
      [target.name]: sums[s] ?? NOTHING,
      ...Object.fromEntries(
        inputs.map((o, i) => {
          const variable = sources[i]?.[s] ?? NOTHING;
          return [o.name, readsShared(o) ? printTile(row, o, variable) : variable];
        }),
      ),
    });
  const passed = (s: number): Code[] => (isSum ? [] : [code`${sources[0]?.[s] ?? NOTHING} = ${sums[s] ?? NOTHING};`]);
  const filled = inputs.flatMap(
    (o, i) =>
      (isSum ? sources[i]?.slice(0, 1) : sources[i])?.flatMap((variable, at) => [
        declareRegister(row, o, variable),
        readsShared(o)
          ? code`for (unsigned i = threadIdx.x; i < sizeof ${variable} / 4; i += blockDim.x) ((unsigned*)${variable})[i] = ((const unsigned*)memory)[i];`
          : filledIn(o.load, memory(variable, o, 4 * i + at)),
      ]) ?? [],
  );
  const loop = row.asynchronous
    ? asynchronousLoop(row, row.asynchronous, emit(0), accumulators > 1)
    : sums.flatMap((_, s) => [emit(s), ...passed(s)]);
  const after = row.asynchronous
    ? [
        fillTemplate(row.asynchronous.wait, { pending: code`0` }),
        fillTemplate(row.asynchronous.arrived, { reg: sums[0] ?? NOTHING }),
      ]
    : [];
  const body = [
    ...filled,
    ...sums.flatMap((c, at) => [declareRegister(row, target, c), filledIn(target.load, memory(c, target, at))]),
    ...(row.asynchronous ? [fillTemplate(row.asynchronous.publish)] : []),
    code`BEGIN;`,
    code`for (int i = 0; i < times; i++) {`,
    ...indented(loop),
    code`}`,
    ...after,
    code`END;`,
    // Never true, but the compiler does not know that.
    code`if (times < 0) {`,
    ...indented(sums.map((c, at) => filledIn(target.store, memory(c, target, at)))),
    code`}`,
  ];
  return linesOf([
    code`static __global__ void __launch_bounds__(${threads}) ${name}(char* memory, long long* cycles, int times) {`,
    ...indented(body.filter((line) => skeleton(line) !== "")),
    code`}`,
  ]);
}

function filledIn(text: RowText | undefined, words: Readonly<Record<string, Code>>): Code {
  return text === undefined ? NOTHING : fillTemplate(text, words);
}

/** Issues one group while the previous one runs; or issues one and waits for it. */
function asynchronousLoop(
  row: Intrinsic,
  { fence, commit, wait }: NonNullable<Intrinsic["asynchronous"]>,
  issue: Code,
  busy: boolean,
): Code[] {
  if (row.scope !== "warpgroup") internal(`${row.name} is asynchronous, but not of a warpgroup`);
  return [
    fillTemplate(fence),
    ...upTo(busy ? ISSUES_A_GROUP : 1).map(() => issue),
    fillTemplate(commit),
    fillTemplate(wait, { pending: code`${busy ? 1 : 0}` }),
  ];
}

// ---- memory ---------------------------------------------------------------------------------------------------------------------

const STREAM_THREADS = 512;
/** Pieces of 16 bytes that a thread has in flight. */
const IN_FLIGHT = 4;
/** Distance in bytes between elements of a chain, chosen to hit other lines, banks and channels. */
const CHAIN_STEP = 8192 + 160;

/** Every index is a template constant, so that the loops do nothing but move data. */
const MEMORY_KERNELS = code`struct __align__(16) Words { unsigned x, y, z, w; };
#ifdef __CUDACC__
static __device__ inline Words far_words(const Words* at) {
  const uint4 v = __ldcg((const uint4*)at); /* past the cache of the multiprocessor */
  return {v.x, v.y, v.z, v.w};
}
static __device__ inline unsigned far_word(const unsigned* at) { return __ldcg(at); }
#else
static inline Words far_words(const Words* at) { return *at; }
static inline unsigned far_word(const unsigned* at) { return *at; }
#endif
#define STREAM const size_t all = (size_t)gridDim.x * blockDim.x, own = (size_t)blockIdx.x * blockDim.x + threadIdx.x
#define PLACE(j) ((own + ((size_t)${IN_FLIGHT} * i + j) * all) % (BYTES / 16))
template <size_t BYTES> static __global__ void __launch_bounds__(${STREAM_THREADS}) read_all(char* memory, long long* cycles, int times) {
  STREAM;
  const Words* const from = (const Words*)memory;
  unsigned sum = 0;
  BEGIN;
  for (int i = 0; i < times; i++) {
    Words v[${IN_FLIGHT}];
    for (int j = 0; j < ${IN_FLIGHT}; j++) v[j] = far_words(from + PLACE(j));
    for (int j = 0; j < ${IN_FLIGHT}; j++) sum ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  END;
  if (times < 0) ((unsigned*)memory)[own] = sum;
}
template <size_t BYTES> static __global__ void __launch_bounds__(${STREAM_THREADS}) write_all(char* memory, long long* cycles, int times) {
  STREAM;
  Words* const to = (Words*)memory;
  BEGIN;
  for (int i = 0; i < times; i++)
    for (int j = 0; j < ${IN_FLIGHT}; j++) to[PLACE(j)] = {(unsigned)i, 0x30003000u, 0x31003100u, 0x30803080u};
  END;
}
template <size_t BYTES> static __global__ void __launch_bounds__(${STREAM_THREADS}) copy_all(char* memory, long long* cycles, int times) {
  STREAM;
  const Words* const from = (const Words*)memory;
  Words* const to = (Words*)(memory + BYTES);
  BEGIN;
  for (int i = 0; i < times; i++) {
    Words v[${IN_FLIGHT}];
    for (int j = 0; j < ${IN_FLIGHT}; j++) v[j] = far_words(from + PLACE(j));
    for (int j = 0; j < ${IN_FLIGHT}; j++) to[PLACE(j)] = v[j];
  }
  END;
}
template <size_t BYTES> static __global__ void write_chain(char* memory, long long* cycles, int times) {
  (void)cycles, (void)times;
  const unsigned links = BYTES / ${CHAIN_STEP};
  for (unsigned e = threadIdx.x; e < links; e += blockDim.x)
    *(unsigned*)(memory + (size_t)e * ${CHAIN_STEP}) = (e + 1) % links * (${CHAIN_STEP} / 4);
}
template <int WARM> static __global__ void follow_chain(char* memory, long long* cycles, int times) {
  unsigned at = 0;
  for (int i = 0; i < WARM; i++) at = far_word((const unsigned*)memory + at);
  BEGIN;
  for (int i = 0; i < times; i++) at = far_word((const unsigned*)memory + at);
  END;
  if (times < 0) *(unsigned*)memory = at;
}
static __global__ void __launch_bounds__(${32 * WARPS}) read_shared(char* memory, long long* cycles, int times) {
  __shared__ Words tile[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) tile[i] = ((const Words*)memory)[i];
  unsigned sum = 0;
  BEGIN;
  for (int i = 0; i < times; i++)
    for (int j = 0; j < ${IN_FLIGHT}; j++) {
      const Words v = tile[(threadIdx.x + 32 * (${IN_FLIGHT} * i + j)) % 1024];
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  END;
  if (times < 0) ((unsigned*)memory)[threadIdx.x] = sum;
}
static __global__ void follow_shared(char* memory, long long* cycles, int times) {
  __shared__ unsigned chain[1024];
  for (unsigned i = threadIdx.x; i < 1024; i += blockDim.x) chain[i] = (i + 33) % 1024;
  __syncthreads();
  unsigned at = threadIdx.x;
  BEGIN;
  for (int i = 0; i < times; i++) at = chain[at];
  END;
  if (times < 0) *(unsigned*)memory = at;
}
static __global__ void nothing(char*, long long*, int) {}
`;

function memoryProbes(units: number, { near, far }: Footprints): Written[] {
  const blocks = 2 * units;
  const bytes = blocks * STREAM_THREADS * IN_FLIGHT * 16;
  const stream = { blocks, threads: STREAM_THREADS, form: "alone", units: bytes } as const;
  const one = { blocks: 1, threads: 32, form: "alone", units: 1 } as const;
  // A near chain is traversed once first; a far one is read for the first time.
  const links = Math.floor(near / CHAIN_STEP);
  return [
    { ...stream, label: "read l2", kernel: code`read_all<${near}>` },
    { ...stream, label: "write l2", kernel: code`write_all<${near}>` },
    { ...stream, label: "read dram", kernel: code`read_all<${far}>` },
    { ...stream, label: "copy dram", kernel: code`copy_all<${far}>`, units: 2 * bytes },
    { ...one, label: "latency l2", kernel: code`follow_chain<${links}>`, before: code`write_chain<${near}>` },
    { ...one, label: "latency dram", kernel: code`follow_chain<0>`, before: code`write_chain<${far}>` },
    {
      label: "read shared",
      kernel: code`read_shared`,
      blocks: units,
      threads: 32 * WARPS,
      form: "alone",
      units: 32 * WARPS * IN_FLIGHT * 16,
    },
    { ...one, label: "latency shared", kernel: code`follow_shared` },
    { label: "launch", units: 1, kernel: code`nothing`, blocks: units, threads: 128, form: "graph" },
  ];
}
