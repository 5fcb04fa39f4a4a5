/**
 * @file Runs rows of the intrinsics table and compares them with their own equations.
 *
 *     await checkIntrinsics(INTRINSICS, { seed: 1, isa: nativeTarget().isa })
 *       { intrinsic: "avx512.vpdpbusd", status: "ok", how: "this CPU", cases: 10 }
 *       { intrinsic: "amx.tdpbusd", status: "ok", how: "emulation", cases: 10 }
 *
 * Random and extreme operands are packed by the row's `storage`. The row's own `load`, `emit` and `store` text is
 * compiled and run: on this CPU if it has the instructions, otherwise under qemu or with the headers in `emulation/`.
 * The result must be what the interpreter computes for the equation, floats within the tolerance below.
 *
 * Generates the program that runs rows of the intrinsics table: readable C++ or CUDA, and the data it reads.
 *
 *     // avx512.vpdpbusd: c[n] += s32(a[k]) * s32(b[k,n])
 *     static void row_0(unsigned char* frame) {
 *       __m512i c;
 *       __m512i a;
 *       __m512i b;
 *       c = _mm512_loadu_si512(frame + 0);
 *       record(frame + 64, &c, sizeof c);
 *       ...
 *       c = dot_bytes(c, a, b);
 *       _mm512_storeu_si512(frame + 0, c);
 *     }
 *
 * The text between the braces is the row's own `load`, `emit` and `store`. `emulation/conformance.h` contains the rest
 * of the program and describes the data format.
 *
 * Test operands of an instruction, and the results of its equation for them.
 *
 *     casesOf(vpdpbusd, random)      random, small, extreme ... the largest u8 times the largest s8, added to the largest s32
 *
 * Integers must agree bit for bit. The hardware may take float sums in any order and precision, so these must agree
 * within (terms + 1) * (eps * sum of |terms| + tiny), with eps and tiny of the type of the sum. tiny is its smallest
 * normal number if the instruction flushes subnormals, else its smallest subnormal. eps of an instruction that adds with
 * fewer bits is what these cut off. On small integers every sum is exact, so results must be equal.
 */

import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pLimit from "p-limit";
import { z } from "zod";
import { evaluateIndex, pointsOf, rowMajor } from "../abstraction/affine.ts";
import { groupsOf, mapValues, namesOf, product, volumeOf } from "../abstraction/collections.ts";
import { elementCount, extentsOf, summedIn, targetOf } from "../abstraction/computation.ts";
import {
  bytesOf,
  cutOff,
  DTYPES,
  type DType,
  epsilonOf,
  isByteFloat,
  isInteger,
  rangeOf,
  wrap,
} from "../abstraction/dtype.ts";
import { internal } from "../abstraction/error.ts";
import type { Values } from "../abstraction/evaluate.ts";
import { access, axis, printEquation } from "../abstraction/expression.ts";
import { interpret, interpretInPlace } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import {
  fillTemplate,
  type Intrinsic,
  type Language,
  lanesOf,
  type Operand,
  operandTensor,
  readsShared,
  registerElements,
  sizesOf,
} from "../abstraction/intrinsic.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { type LoopNest, loops, scalar } from "../abstraction/loop-nest.ts";
import type { Family } from "../abstraction/machine.ts";
import { printTile } from "../abstraction/matrix-view.ts";
import { dwordRows, tileElements, tileOffset, tilePlaces, tileRowElements } from "../abstraction/memory-tile.ts";
import { pick, type Random, randomInteger, seededRandom } from "../abstraction/random.ts";
import {
  apart,
  type Code,
  code,
  commentText,
  identifier,
  lines,
  NOTHING,
  plainWord,
  type SourceText,
  skeleton,
  spell,
  stringLiteral,
  trustedCode,
} from "../abstraction/source-text.ts";
import { compilerFlags, familyOf, runsOn } from "../targets/features.ts";
import { declareRegister, isNumbered, registerClass, subgroupOf } from "../targets/index.ts";
import { encodeElements } from "./bytes.ts";
import { type ChildRun, explainRun, findProgram, runChild } from "./child.ts";
import { type CoreOptions, coresOf } from "./cores.ts";
import { ARM_COMPILER, ARM_CPU, ARM_EMULATOR } from "./cross.ts";
import { emulationFolder, overflowFlags } from "./emulation.ts";

// ---- the program -------------------------------------------------------------------------------------------------------------------------

/** Bytes of a register image in a frame: `IMAGE_HEADER + IMAGE_BYTES` of conformance.h. */
const IMAGE_FRAME_BYTES = 64 + 4096;

/** The offsets of an operand's tile and register image in the frame of its row. */
interface Place {
  readonly operand: Operand;
  readonly tileAt: number;
  readonly tileBytes: number;
  readonly imageAt: number;
}

/** Words of OpenCL templates. Tiles of a frame are in global memory, aligned to four bytes. */
const OPENCL_WORDS = { space: code`global`, by: code`block`, lane: code`item.get_sub_group().get_local_linear_id()` };

/** Words of CM templates: rows of dwords on a surface over the frame. */
function cmWords(operand: Operand, at: number): Readonly<Record<string, Code>> {
  const { rows, dwords, stride } = dwordRows(operand, tileRowElements(operand) * bytesOf(operand.dtype), true);
  const ptr = code`emulation::surface_over(frame), ${at}`;
  return { ptr, by: NOTHING, rows: code`${rows}, ${dwords}`, stride: code`${stride}` };
}

/** Whether the lanes of a sub-group execute a row, each as a work-item. */
const isOfLanes = ({ language, scope }: Intrinsic): boolean =>
  language === "sycl" || (language === "opencl" && scope === "subgroup");

/** The address of a tile in the frame. SYCL takes pointers to elements. */
const tileAddress = ({ language }: Intrinsic, { dtype }: Operand, at: number): Code =>
  language === "sycl" ? code`(${C_TYPES[dtype]}*)(frame + ${at})` : code`frame + ${at}`;

/** Threads that execute a row. */
function threadsOf(row: Intrinsic): number {
  return isOfLanes(row) ? subgroupOf(row) : row.language === "cuda" ? lanesOf(row) : 1;
}

/** The function of a row. Compilers report its errors under the row's name. */
export function rowFunction(intrinsic: Intrinsic, functionName: Code): Code {
  const places = placesOf(intrinsic);
  const variable = (operand: Operand): Code => identifier(operand.name);
  const register = (operand: Operand): Code =>
    isNumbered(operand.file) ? code`${intrinsic.operands.indexOf(operand)}` : variable(operand);
  const declarations = places.map(({ operand }) => declareRegister(intrinsic, operand, variable(operand)));
  const wordsOf = ({ operand, tileAt }: Place): Readonly<Record<string, Code>> => ({
    reg: register(operand),
    ptr: tileAddress(intrinsic, operand, tileAt),
    stride: strideOf(operand),
    ...OPENCL_WORDS,
    ...(intrinsic.language === "cm" && cmWords(operand, tileAt)),
  });
  const loads = places.flatMap((place) => {
    const { operand, tileAt, imageAt } = place;
    const load =
      operand.load === undefined
        ? code`memcpy((void*)&${variable(operand)}, ${tileAddress(intrinsic, operand, tileAt)}, sizeof ${variable(operand)});`
        : fillTemplate(operand.load, wordsOf(place));
    return [load, recordOf(intrinsic, operand, register(operand), code`frame + ${imageAt}`)];
  });
  const emit = issueOf(
    intrinsic,
    Object.fromEntries(
      intrinsic.operands.map((operand) => [
        operand.name,
        readsShared(operand) ? printTile(intrinsic, operand, variable(operand)) : register(operand),
      ]),
    ),
  );
  const [target = internal(`${intrinsic.name} has no operands`)] = places;
  const result = tileAddress(intrinsic, target.operand, target.tileAt);
  const stored = variable(target.operand);
  const store =
    target.operand.store === undefined
      ? code`memcpy(${result}, (const void*)&${stored}, sizeof ${stored});`
      : fillTemplate(target.operand.store, wordsOf(target));
  const setup = intrinsic.setup === undefined ? [] : [fillTemplate(intrinsic.setup)];
  const ofItem = intrinsic.language === "sycl" ? [code`const sycl::nd_item<1> item;`] : [];
  const body = [...ofItem, ...declarations, ...setup, ...loads, ...emit, store].filter((line) => skeleton(line) !== "");
  return code`// ${commentText(`${intrinsic.name}: ${printEquation(intrinsic.computation.equation)}`)}
#line 1 ${stringLiteral(intrinsic.name)}
${intrinsic.language === "cuda" ? "__global__" : "static"} void ${functionName}(unsigned char* frame) {
  ${body}
}
`;
}

/** One issue, with a wait if it is asynchronous. The threads themselves have written operands in shared memory. */
function issueOf({ emit, asynchronous }: Intrinsic, words: Readonly<Record<string, Code>>): Code[] {
  const issue = fillTemplate(emit, words);
  if (!asynchronous) return [issue];
  const [publish, fence, commit, wait] = (["publish", "fence", "commit", "wait"] as const).map((what) =>
    fillTemplate(asynchronous[what], { pending: code`0` }),
  ) as [Code, Code, Code, Code]; // of four
  return [publish, code`__syncthreads();`, fence, issue, commit, wait];
}

/** The preludes of rows without duplicates. Compilers report their errors under `preludeLabel`. */
export function preludesOf(rows: readonly Intrinsic[]): Code {
  return lines(rows.flatMap((row) => (preludeLabel(rows, row) === labelOf(row) ? preludeOf(row) : [])));
}

const preludeOf = (row: Intrinsic): Code[] =>
  row.prelude === undefined ? [] : [code`#line 1 ${stringLiteral(labelOf(row))}`, apart(fillTemplate(row.prelude))];

/** The name of the first row with the same prelude. */
function preludeLabel(rows: readonly Intrinsic[], row: Intrinsic): string {
  return labelOf(rows.find((other) => other.prelude === row.prelude) ?? row);
}

function labelOf(row: Intrinsic): string {
  return `prelude of ${row.name}`;
}

/**
 * Rows of OpenCL C, each with its prelude in a namespace, since preludes for different sub-group sizes define the same
 * functions.
 */
function openClRows(rows: readonly Intrinsic[]): Code[] {
  return rows.map(
    (row, i) => code`namespace of_row_${i} {
${preludeOf(row)}
${rowFunction(row, code`row_${i}`)}
}
using of_row_${i}::row_${i};`,
  );
}

/** The table of rows at the end of a program. */
export function rowTable(rows: readonly Intrinsic[]): Code {
  return code`static const Row rows[] = {
  ${rows.map((row, i) => code`{${stringLiteral(row.name)}, row_${i}, ${threadsOf(row)}},`)}
};
static const int row_count = ${rows.length};
`;
}

/**
 * The operands and expected results of rows in the format of `conformance.h`. A row's numbers depend only on the seed
 * and its name.
 */
export function conformanceData(rows: readonly Intrinsic[], seed: number): Uint8Array {
  const bytes = new ByteWriter();
  for (const row of rows) writeRow(bytes, row, casesOf(row, seededRandom(seed ^ hashOf(row.name))));
  return bytes.finish();
}

function writeRow(out: ByteWriter, intrinsic: Intrinsic, cases: readonly ConformanceCase[]): void {
  const places = placesOf(intrinsic);
  const last = places.at(-1);
  const target = intrinsic.operands[0];
  if (!last || !target) internal(`${intrinsic.name} has no operands`);

  // 1. The layout of the row.
  const results = elementCount(operandTensor(intrinsic, target));
  out.int(cases.length);
  out.int(last.imageAt + IMAGE_FRAME_BYTES);
  out.int(DTYPES.indexOf(target.dtype));
  out.int(target.dims.length);
  for (const dim of target.dims) out.int(dim.extent);
  out.int(results);
  out.int(places.length);
  for (const { operand, tileAt, tileBytes, imageAt } of places) {
    const map = imageMap(intrinsic, operand);
    out.text(operand.name, 16);
    out.int(tileAt);
    out.int(tileBytes);
    out.int(imageAt);
    out.int(bytesOf(operand.dtype));
    out.int(map.length);
    for (const from of map) out.int(from);
  }
  for (const place of tilePlaces(intrinsic, target.name)) out.int(place);
  const factors = factorsOfBytes(intrinsic);
  const summed = summedIn(intrinsic.computation.axes);
  out.int(factors.length === 0 ? 0 : volumeOf(summed));
  if (factors.length > 0) out.int(intrinsic.sumBits ?? 0);
  for (const factor of factors) {
    out.int(DTYPES.indexOf(factor.dtype));
    for (const place of tilePlaces(intrinsic, factor.name)) out.int(place);
  }

  // 2. The cases.
  for (const { label, operands, expected, bound } of cases) {
    out.text(label, 32);
    for (const { operand } of places) {
      const tile = new Float64Array(tileElements(operand));
      const at = tilePlaces(intrinsic, operand.name);
      operands[operand.name]?.forEach((value, i) => {
        tile[at[i] ?? 0] = value;
      });
      out.bytes(encodeElements(operand.dtype, tile));
    }
    out.doubles(expected);
    out.int(bound === undefined ? 1 : 0);
    if (bound !== undefined) out.doubles(bound);
  }
}

/** The factors of a matrix product of floats of one byte, of which there are few enough to try all. */
function factorsOfBytes({ operands }: Intrinsic): readonly Operand[] {
  const [target, ...factors] = operands;
  const isProduct = target?.dims.length === 2 && factors.length === 2;
  return isProduct && factors.every(({ dtype }) => isByteFloat(dtype)) ? factors : [];
}

/** For each register element, the tile element it must equal, or -1 if none; empty if the layout is not documented. */
function imageMap(intrinsic: Intrinsic, operand: Operand): Int32Array {
  const { storage } = operand;
  if (storage === undefined || intrinsic.scope === "warpgroup" || registerClass(operand.file)?.sizeless)
    return new Int32Array();
  const map = new Int32Array(registerElements(intrinsic, operand)).fill(-1);
  const places = tilePlaces(intrinsic, operand.name);
  const logical = rowMajor(operand.dims);
  const extents = { ...extentsOf(intrinsic.computation), ...sizesOf(operand) };
  for (const point of pointsOf([...namesOf(operand.dims), ...operand.broadcast], extents))
    map[evaluateIndex(storage, point)] = places[evaluateIndex(logical, point)] ?? -1;
  return map;
}

function placesOf(intrinsic: Intrinsic): Place[] {
  let at = 0;
  return intrinsic.operands.map((operand) => {
    const tileAt = at;
    const tileBytes = tileElements(operand) * bytesOf(operand.dtype);
    const imageAt = tileAt + 64 * Math.ceil(tileBytes / 64);
    at = imageAt + IMAGE_FRAME_BYTES;
    return { operand, tileAt, tileBytes, imageAt };
  });
}

/** Bytes between the rows of a contiguous tile. */
function strideOf(operand: Operand): Code {
  return code`${tileRowElements(operand) * bytesOf(operand.dtype)}`;
}

/** Records the register's contents after its load, if the layout is documented. */
function recordOf(intrinsic: Intrinsic, { file, storage }: Operand, register: Code, image: Code): Code {
  const { scope } = intrinsic;
  // The image of a warpgroup's registers would be too large. The result suffices to check them.
  if (storage === undefined || file === "shared" || scope === "warpgroup") return NOTHING;
  const registers = registerClass(file);
  if (isOfLanes(intrinsic)) {
    const isWhole = intrinsic.language === "sycl" || registers?.perLane;
    return code`record_rows(${image}, &${register}, sizeof ${register}, sizeof ${register}${isWhole ? "" : ".s0"});`;
  }
  if (registers?.sizeless) return NOTHING;
  if (registers?.numbered) return code`record_tile(${image}, ${register});`;
  const record = registers?.perLane ? "record_lane" : "record";
  return code`${record}(${image}, &${register}, sizeof ${register});`;
}

function hashOf(text: string): number {
  let hash = 0;
  for (const character of text) hash = (Math.imul(hash, 31) + character.charCodeAt(0)) | 0;
  return hash;
}

/** A growing buffer of bytes. */
class ByteWriter {
  private readonly parts: Uint8Array[] = [];

  bytes(part: Uint8Array): void {
    this.parts.push(part);
  }

  int(value: number): void {
    this.parts.push(encodeElements("s32", [value]));
  }

  doubles(values: Float64Array): void {
    this.parts.push(encodeElements("f64", values));
  }

  /** Writes text to a field of fixed size, terminated by a zero. */
  text(value: string, size: number): void {
    const part = new Uint8Array(size);
    part.set(new TextEncoder().encode(value).subarray(0, size - 1));
    this.parts.push(part);
  }

  finish(): Uint8Array {
    return Buffer.concat(this.parts);
  }
}

export interface CheckResult {
  readonly intrinsic: string;
  /** `differs`: the row's text disagrees with its equation. `skipped`: nothing here can run it. */
  readonly status: "ok" | "differs" | "skipped";
  readonly how: "this CPU" | "qemu" | "emulation" | "interpreter";
  /** The number of operand sets tried. */
  readonly cases: number;
  /** What was missing, if skipped. */
  readonly missing?: string;
  /** Where they disagree (case, element, both values), or the compiler's error. */
  readonly detail?: string;
}

interface CheckOptions extends CoreOptions {
  readonly seed: number;
  /** Features of this CPU: `nativeTarget().isa`. A row that needs one of these runs on the CPU itself. */
  readonly isa: readonly string[];
  /**
   * Runs every row through the headers in `emulation/`, even if the CPU or qemu could run it. Rows of plain C++ do not
   * need them.
   */
  readonly emulate?: boolean;
  /** Runs rows of plain C++ as AArch64 code under qemu instead of on this CPU. */
  readonly plainOnArm?: boolean;
  /** The folder for the generated programs, which are kept. By default a temporary folder, which is removed. */
  readonly workdir?: string;
  /** Called with each result as it arrives. */
  readonly onProgress?: (result: CheckResult) => void;
  /** The C++ compiler for this CPU and for emulation. */
  readonly compiler?: string;
  /** The limit for one compilation or one run. */
  readonly timeLimitMs?: number;
}

/** A way to run some rows as one program. */
interface Environment {
  readonly how: "this CPU" | "qemu" | "emulation";
  readonly family: Family;
  /** Lines before the rows. */
  readonly head: Code;
  /** Whether the rows' preludes are compiled. An emulation header defines the same names itself. */
  readonly preludes: boolean;
  readonly compile: readonly string[];
  readonly run: readonly string[];
}

/**
 * Checks rows, with one program for each machine among them.
 * @returns one result for each row, in order. A wrong row is a result; it never throws
 */
export async function checkIntrinsics(rows: readonly Intrinsic[], options: CheckOptions): Promise<CheckResult[]> {
  const results = new Map<Intrinsic, CheckResult>();
  const report = (row: Intrinsic, result: CheckResult): void => {
    results.set(row, result);
    options.onProgress?.(result);
  };

  // 1. Virtual instructions, which only the interpreter can run.
  const onPaper = rows.filter((row) => familyOf(row).name === "virtual");
  for (const row of onPaper) report(row, interpretRow(row, options.seed));

  // 2. The other rows by program, two programs at a time.
  const groups = groupsOf(
    rows.filter((row) => !onPaper.includes(row)),
    (row) => `${familyOf(row).name} ${row.language} ${howToRun(row, options)}`,
  );
  const folder = options.workdir ?? (await mkdtemp(join(tmpdir(), "automap-check-")));
  await mkdir(folder, { recursive: true });
  const limit = pLimit(2);
  try {
    await Promise.all([...groups.values()].map((group) => limit(() => checkGroup(group, folder, options, report))));
  } finally {
    if (options.workdir === undefined) await rm(folder, { recursive: true, force: true });
  }
  return rows.map((row) => {
    return results.get(row) ?? internal(`${row.name} was not checked`);
  });
}

function howToRun(row: Intrinsic, { isa, emulate, plainOnArm }: CheckOptions): Environment["how"] {
  const family = familyOf(row).name;
  if (family === "portable") return plainOnArm ? "qemu" : "this CPU";
  if (emulate) return "emulation";
  if (row.language === "c++" && runsOn({ isa }, row)) return "this CPU";
  const qemu = family === "arm" && findProgram(ARM_COMPILER) && findProgram(ARM_EMULATOR);
  return qemu ? "qemu" : "emulation";
}

function environmentOf(rows: readonly Intrinsic[], asked: CheckOptions): Environment {
  const [first = internal("an empty group")] = rows;
  const family = familyOf(first);
  const { language } = first;
  const how = howToRun(first, asked);
  const features = compilerFlags(rows.flatMap((row) => row.features));
  const own = family.header === undefined ? NOTHING : trustedCode(family.header);
  const compiler = asked.compiler ?? "g++";
  // With -ffp-contract=off, emulated arithmetic rounds exactly where it says so.
  const overflow = overflowFlags(language);
  // sycl.hpp distinguishes call sites, which optimisation would merge.
  const level = language === "sycl" ? "-O0" : "-O1";
  const options = ["-std=c++17", level, "-w", "-ffp-contract=off", ...overflow, `-I${emulationFolder()}`];
  const common = { how, family, preludes: true, run: [] };
  switch (how) {
    case "this CPU":
      return { ...common, head: own, compile: [compiler, ...options, ...features] };
    case "qemu":
      return {
        ...common,
        head: own,
        compile: [ARM_COMPILER, ...options, ...features, "-static"],
        run: [ARM_EMULATOR, ...ARM_CPU],
      };
    case "emulation": {
      const header = EMULATION[language] ?? family.emulation ?? internal(`nothing emulates ${family.name}`);
      const preludes = EMULATION[language] !== undefined || language === "cm";
      return { ...common, head: code`#include "${plainWord(header)}"`, preludes, compile: [compiler, ...options] };
    }
    default:
      return how satisfies never;
  }
}

/** Headers by which languages are emulated, whatever the family. */
const EMULATION: Readonly<Partial<Record<Language, string>>> = { opencl: "opencl.h", sycl: "sycl/sycl.hpp" };

async function checkGroup(
  rows: readonly Intrinsic[],
  folder: string,
  options: CheckOptions,
  report: (row: Intrinsic, result: CheckResult) => void,
): Promise<void> {
  const environment = environmentOf(rows, options);
  const { how, family } = environment;
  const timeLimitMs = options.timeLimitMs ?? 120_000;
  // Intel's rows form one program for each of three languages.
  const language = rows[0]?.language;
  const second = family.name === "intel" && language !== undefined ? `-${language}` : "";
  const path = join(folder, `${family.name}${second}-${how.replace(" ", "-")}`);
  const cores = coresOf(options);
  /** Runs a command on cores that nobody measures on. */
  const elsewhere = (command: readonly string[]): Promise<ChildRun> =>
    cores.working((cpus) => runChild(command, { timeLimitMs, cpus }));
  const skip = (left: readonly Intrinsic[], missing: string): void => {
    for (const row of left) report(row, { intrinsic: row.name, status: "skipped", how, cases: 0, missing });
  };

  // 1. Compile. Rows with errors are reported as wrong, and the others are compiled again without them.
  const compiler = environment.compile[0] ?? "";
  if (findProgram(compiler) === undefined) return skip(rows, `no compiler: ${compiler}`);
  let left = rows;
  for (;;) {
    await writeFile(`${path}.cpp`, programText(left, environment));
    const compiled = await elsewhere([...environment.compile, "-o", path, `${path}.cpp`]);
    if (compiled.status === "ok") break;
    const refused = new Map<Intrinsic, string>();
    for (const row of left) {
      const error = errorOf(compiled, left, row);
      if (error !== undefined) refused.set(row, error);
    }
    if (refused.size === 0) return skip(left, `${explainRun(compiled)}: ${firstError(compiled.stderr)}`);
    for (const [row, detail] of refused) report(row, { intrinsic: row.name, status: "differs", how, cases: 0, detail });
    left = left.filter((row) => !refused.has(row));
    if (left.length === 0) return;
  }

  // 2. Run. A row that ends the program (an illegal instruction, a hang) is wrong, and the next run begins after it.
  await writeFile(`${path}.data`, conformanceData(left, options.seed));
  for (let first = 0; first < left.length; ) {
    const command = [...environment.run, path, `${path}.data`, String(first)];
    const run = await elsewhere(command);
    for (const line of readLines(run.stdout)) {
      const row = left[first];
      if (row?.name !== line.intrinsic) internal(`${line.intrinsic} reported out of turn`);
      report(row, { ...line, how });
      first++;
    }
    const row = left[first];
    if (run.status === "ok" || row === undefined) break;
    report(row, { intrinsic: row.name, status: "differs", how, cases: 0, detail: explainRun(run) });
    first++;
  }
}

const SYCL_CALL = code`emulation::required_lanes = row.threads;
  sycl::queue().submit([&](sycl::handler& handler) {
    handler.parallel_for(sycl::nd_range<1>(row.threads, row.threads), [=](sycl::nd_item<1>) { row.run(frame); });
  }).wait()`;

function programText(rows: readonly Intrinsic[], { head, preludes, family }: Environment): SourceText {
  const isOpenCl = rows[0]?.language === "opencl";
  const isCm = rows[0]?.language === "cm";
  const call =
    family.name === "nvidia"
      ? code`launch(row.run, 1, row.threads, frame)`
      : isOpenCl
        ? code`emulation::run_groups(1, row.threads, false, [&] { row.run(frame); })`
        : rows[0]?.language === "sycl"
          ? SYCL_CALL
          : isCm
            ? code`emulation::run_groups(1, [&] { row.run(frame); })`
            : code`row.run(frame)`;
  const text = code`// Runs rows of the intrinsics table against their equations. Made by: automap intrinsic check
${head}
#include "conformance.h"
${
  isOpenCl
    ? openClRows(rows)
    : [preludes ? preludesOf(rows) : NOTHING, ...rows.map((row, i) => rowFunction(row, code`row_${i}`))]
}
#line 1 "program"
${rowTable(rows)}
static const char* run_row(const Row& row, unsigned char* frame, unsigned) {
  ${call};
  return nullptr;
}
int main(int, char** argv) { return check_rows(rows, row_count, read_file(argv[1]), atoi(argv[2])); }
`;
  return spell(text, "c++");
}

/** The first compiler error in a row's text, in its prelude, or in a header that the row's text called. */
function errorOf({ stderr }: ChildRun, rows: readonly Intrinsic[], row: Intrinsic): string | undefined {
  const lines = stderr.split("\n");
  const labels = [`${row.name}:`, ...(row.prelude === undefined ? [] : [`${preludeLabel(rows, row)}:`])];
  const mentions = (line: string): boolean => labels.some((label) => line.startsWith(label));
  const own = lines.find((line) => mentions(line) && line.includes("error:"));
  if (own !== undefined) return own;
  // "header.h:12: error: target specific option mismatch", then "avx512.fma.f32:7: note: called from here".
  const at = lines.findIndex(mentions);
  return at < 0 ? undefined : (lines.slice(0, at).findLast((line) => line.includes("error:")) ?? lines[at]);
}

function firstError(stderr: string): string {
  return stderr.split("\n").find((line) => line.includes("error")) ?? stderr.slice(0, 200);
}

const LINE = z.object({
  intrinsic: z.string(),
  status: z.enum(["ok", "differs"]),
  cases: z.number(),
  detail: z.string().optional(),
});

/** Parses the output of a `conformance.h` program. A line cut short by a crash is dropped. */
function readLines(stdout: string): { intrinsic: string; status: "ok" | "differs"; cases: number; detail?: string }[] {
  const whole = stdout.slice(0, stdout.lastIndexOf("\n") + 1);
  return whole
    .split("\n")
    .filter((line) => line !== "")
    .map((line) => {
      const { detail, ...rest } = LINE.parse(JSON.parse(line));
      return detail === undefined ? rest : { ...rest, detail };
    });
}

// ---- rows without hardware -----------------------------------------------------------------------------------------------------

/** Compares the lowered program (packed by `storage` into tiles, issued, unpacked) with the equation itself. */
function interpretRow(row: Intrinsic, seed: number): CheckResult {
  const nest = packIssueUnpack(row);
  const { computation } = row;
  const target = computation.equation.target.tensor;
  const cases = casesOf(row, seededRandom(seed));
  for (const { label, operands } of cases) {
    const inputs = Object.fromEntries(Object.entries(operands).filter(([name]) => name !== target));
    const direct = interpret(computation, inputs);
    const packed = interpretNest(nest, computation, inputs);
    const at = direct.findIndex((value, i) => value !== packed[i]);
    if (at >= 0) {
      const detail = `${label}: element ${at} is ${packed[at]} by way of its tiles, its equation gives ${direct[at]}`;
      return { intrinsic: row.name, status: "differs", how: "interpreter", cases: cases.length, detail };
    }
  }
  return { intrinsic: row.name, status: "ok", how: "interpreter", cases: cases.length };
}

/** Packs the inputs by `a_tile[storage] = a[m,k]`, issues once, and unpacks by `c[m,n] = c_tile[storage]`. */
function packIssueUnpack(row: Intrinsic): LoopNest {
  const tile = (name: string): string => `${name}_tile`;
  const move = (operand: Intrinsic["operands"][number], into: "tile" | "tensor") => {
    const inTile = access(tile(operand.name), [tileOffset(operand)]);
    const inTensor = access(
      operand.name,
      operand.dims.map((d) => axis(d.name)),
    );
    const [to, from] = into === "tile" ? [inTile, inTensor] : [inTensor, inTile];
    return loops(operand.dims, [scalar({ target: to, op: "=", value: from })]);
  };
  const [target = internal(`${row.name} has no operands`), ...inputs] = row.operands;
  const tiles = Object.fromEntries(
    row.operands.map((o) => [o.name, { buffer: tile(o.name), base: { kind: "number", value: 0 } as const }]),
  );
  return {
    scratch: row.operands.map((o) => ({
      name: tile(o.name),
      dtype: o.dtype,
      elements: tileElements(o),
      scope: "local",
    })),
    registers: [],
    prepare: [],
    body: [
      ...inputs.flatMap((o) => move(o, "tile")),
      { kind: "issue", intrinsic: row, tiles },
      ...move(target, "tensor"),
    ],
  };
}

interface ConformanceCase {
  readonly label: string;
  /** The values of all operands before the instruction, including the target, in row-major order. */
  readonly operands: Readonly<Record<string, Values>>;
  /** The target afterwards, according to the interpreter. */
  readonly expected: Values;
  /** The largest difference allowed for each result; undefined if results must be equal. */
  readonly bound: Values | undefined;
}

/** A way to fill the operands of a case. */
interface Recipe {
  readonly label: string;
  /** The value of an operand: input 0, input 1 ... or the target. */
  readonly fill: (dtype: DType, operand: number | "target", random: Random) => number;
  /** Whether every sum is exact, so that no difference is allowed. */
  readonly exact?: boolean;
}

export function casesOf(intrinsic: Intrinsic, random: Random): ConformanceCase[] {
  const { computation } = intrinsic;
  const sums = targetOf(computation).dtype;
  const terms = volumeOf(summedIn(computation.axes));
  const moves = computation.equation.op === "=";
  const recipes = isInteger(sums)
    ? INTEGER_RECIPES
    : floatRecipes(intrinsic, sums, terms).filter((r) => r.label !== "subnormals" || intrinsic.subnormals === "kept");
  const epsilon = intrinsic.sumBits === undefined ? epsilonOf(sums) : cutOff(intrinsic.sumBits);
  const tiny = smallestNormal(sums) * (intrinsic.subnormals === "kept" ? epsilonOf(sums) : 1);

  return recipes.map(({ label, fill, exact }) => {
    const operands: Record<string, Values> = {};
    for (const [i, operand] of intrinsic.operands.entries()) {
      const values = new Float64Array(elementCount(operandTensor(intrinsic, operand)));
      operands[operand.name] = values.map(() =>
        wrap(operand.dtype, fill(operand.dtype, i === 0 ? "target" : i - 1, random)),
      );
    }
    const expected = runEquation(intrinsic, operands, (x) => x);
    if (isInteger(sums) || moves || exact) return { label, operands, expected, bound: undefined };
    // The equation on absolute values gives the sum of the terms' absolute values, including the old target.
    const bound = runEquation(intrinsic, operands, Math.abs).map((sum) => (terms + 1) * (epsilon * sum + tiny));
    return { label, operands, expected, bound };
  });
}

function runEquation(
  intrinsic: Intrinsic,
  operands: Readonly<Record<string, Values>>,
  change: (x: number) => number,
): Values {
  const values = mapValues(operands, (v) => v.map(change));
  interpretInPlace(intrinsic.computation, values);
  return values[targetOf(intrinsic.computation).name] ?? internal(`${intrinsic.name} has no result`);
}

/** The target takes the type's extremes together with the inputs, so that sums wrap or saturate in both directions. */
const INTEGER_RECIPES: readonly Recipe[] = [
  { label: "random", fill: anyInteger },
  { label: "random again", fill: anyInteger },
  { label: "small", fill: (dtype, _, random) => Math.max(randomInteger(random, -4, 4), rangeOf(dtype)[0]) },
  { label: "extremes", fill: extremeInteger },
  { label: "extremes again", fill: extremeInteger },
  { label: "zeros", fill: (dtype, operand, random) => (operand === "target" ? anyInteger(dtype, operand, random) : 0) },
  { label: "largest", fill: (dtype) => rangeOf(dtype)[1] },
  { label: "smallest", fill: (dtype, operand) => rangeOf(dtype)[operand === "target" ? 1 : 0] },
  { label: "largest by smallest", fill: (dtype, operand) => rangeOf(dtype)[operand === 0 ? 1 : 0] },
  { label: "smallest by largest", fill: (dtype, operand) => rangeOf(dtype)[operand === 1 ? 1 : 0] },
];

function anyInteger(dtype: DType, _: number | "target", random: Random): number {
  const [min, max] = rangeOf(dtype);
  return randomInteger(random, min, max);
}

function extremeInteger(dtype: DType, _: number | "target", random: Random): number {
  const [min, max] = rangeOf(dtype);
  return pick(random, [min, min + 1, Math.min(127, max), max - 1, max, 0, 1]);
}

function floatRecipes({ operands }: Intrinsic, sums: DType, terms: number): readonly Recipe[] {
  const sign = (random: Random): number => (random() < 0.5 ? -1 : 1);
  // Products of such values, summed with the target, stay within the type of the sum.
  const roof = rangeOf(sums)[1];
  const inputs = operands.slice(1).map(({ dtype }) => dtype);
  const whole = product(inputs.filter(isInteger).map((dtype) => rangeOf(dtype)[1] + 1));
  const most = roof / (2 * (terms + 1) * whole);
  const floats = inputs.filter((dtype) => !isInteger(dtype)).length;
  const large = (dtype: DType, operand: number | "target"): number =>
    operand === "target" ? roof / 4 : Math.min(rangeOf(dtype)[1], floats > 2 ? most ** (1 / floats) : Math.sqrt(most));
  return [
    { label: "small integers", fill: (_, __, random) => randomInteger(random, -4, 4), exact: true },
    { label: "signed zeros", fill: (_, __, random) => pick(random, [0, -0, 1, -1, 0.5]), exact: true },
    { label: "random", fill: (_, __, random) => 2 * random() - 1 },
    {
      label: "magnitudes",
      fill: (_, __, random) => sign(random) * (1 + random()) * 2 ** randomInteger(random, -6, 3),
    },
    { label: "large", fill: (dtype, operand, random) => sign(random) * large(dtype, operand) * (1 - random() / 8) },
    {
      label: "subnormals",
      fill: (dtype, _, random) =>
        sign(random) * (random() < 0.5 ? smallestNormal(dtype) * random() : 1 + Math.floor(4 * random())),
    },
  ];
}

/** 2^(1 - e), for a type whose largest value is just below 2^(e + 1). */
function smallestNormal(dtype: DType): number {
  const [, max] = rangeOf(dtype);
  return 2 ** (1 - Math.round(Math.log2(max / (2 - epsilonOf(dtype)))));
}
