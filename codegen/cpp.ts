/**
 * @file A loop nest as C++ with intrinsics: one self-contained source with the C interface of abstraction/kernel.ts.
 *
 *     for (long p_outer = 56 * part / parts; p_outer < 56 * (part + 1) / parts; p_outer++) {
 *       c0 = __m512i{};
 *       for (long r_outer = 0; r_outer < 3; r_outer++) {
 *         b0 = _mm512_loadu_si512(b_tiles + 128 * r_outer);
 *         c0 = dot_bytes(c0, a0, b0);
 */

import { boundsOf, type Extents } from "../abstraction/affine.ts";
import { type Computation, equationText, memoryElements, type Tensor, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { identityOf } from "../abstraction/equation.ts";
import { type Access, compare, type Expr, number, printExpr, substitute } from "../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, operandOf, printStorage } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { LoopNest, RegisterAt } from "../abstraction/loop-nest.ts";
import { declareRegister } from "../abstraction/register.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import {
  type Clear,
  type LanguagePrinter,
  type Loop,
  type Move,
  phasesOf,
  printStatements,
  type RegisterIssue,
  type Scalar,
} from "./walk.ts";

/** What the head of a source tells its reader. */
export interface CppNotes {
  /** One line each: mapping, schedule, the command that remakes it. */
  readonly lines: readonly string[];
}

/** The kernel of a scheduled nest. @throws Error when the instruction is not reached from C++ */
export function generateCpp(computation: Computation, intrinsic: Intrinsic, nest: LoopNest, notes: CppNotes): Kernel {
  if (intrinsic.language !== "c++")
    throw new Error(`${intrinsic.name} is reached from ${intrinsic.language}, not from C++`);
  const writer = new CppWriter(computation, nest);
  return {
    language: "c++",
    source: writer.source(intrinsic, notes),
    features: featuresOf(intrinsic),
    promises: mnemonicOf(intrinsic),
    arguments: Object.values(computation.tensors).map((t) => ({
      tensor: t.name,
      dtype: t.dtype,
      elements: memoryElements(t),
      role: t.name === computation.equation.target.tensor ? "output" : t.constant ? "constant" : "input",
    })),
  };
}

/** ISA features as compiler flags name them. */
const FEATURES: Readonly<Record<string, readonly string[]>> = {
  avx2: ["avx2", "fma"],
  avx2_fma: ["avx2", "fma"],
  fma: ["avx2", "fma"],
  avx_vnni: ["avx2", "fma", "avxvnni"],
  avx512f: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq"],
  avx512_vnni: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512vnni"],
  avx512_bf16: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512bf16"],
  avx512_fp16: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512fp16"],
  amx_int8: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "amx-tile", "amx-int8"],
  amx_bf16: ["avx2", "fma", "avx512f", "avx512bw", "avx512vl", "avx512dq", "amx-tile", "amx-bf16"],
};

function featuresOf(intrinsic: Intrinsic): readonly string[] {
  const features = FEATURES[intrinsic.isa];
  if (!features) throw new Error(`${intrinsic.name}: no compiler flags are known for ${intrinsic.isa}`);
  return features;
}

/** The mnemonic the manual entry names: the disassembly is searched for it. */
function mnemonicOf({ source }: Intrinsic): string {
  const entry = /\b(V?[A-Z]{3,}[A-Z0-9]*)\b(?!.*\bvol\b)/.exec(source.replace(/^.*vol\. \d+[A-Z]?, /, ""));
  if (!entry?.[1]) throw new Error(`internal: no mnemonic in "${source}"`);
  return entry[1].toLowerCase();
}

const C_TYPES: Readonly<Record<DType, string>> = {
  u8: "uint8_t",
  s8: "int8_t",
  u16: "uint16_t",
  s16: "int16_t",
  u32: "uint32_t",
  s32: "int32_t",
  f16: "uint16_t",
  bf16: "uint16_t",
  tf32: "float",
  f32: "float",
  f64: "double",
};

/** Scalar conversions of the 16-bit floats, which are held as their bits. */
const CONVERSIONS: Readonly<Partial<Record<DType, string>>> = {
  bf16: `static inline float from_bf16(uint16_t x) { uint32_t bits = (uint32_t)x << 16; float f; memcpy(&f, &bits, 4); return f; }
static inline uint16_t to_bf16(float f) { /* to nearest, ties to even */
  uint32_t bits; memcpy(&bits, &f, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}`,
  f16: `static inline float from_f16(uint16_t x) { _Float16 h; memcpy(&h, &x, 2); return (float)h; }
static inline uint16_t to_f16(float f) { _Float16 h = (_Float16)f; uint16_t x; memcpy(&x, &h, 2); return x; }`,
};

class CppWriter implements LanguagePrinter {
  private readonly computation: Computation;
  private readonly nest: LoopNest;
  private readonly dtypes: DTypes;
  private readonly buffers: ReadonlySet<string>;

  constructor(computation: Computation, nest: LoopNest) {
    this.computation = computation;
    this.nest = nest;
    this.buffers = new Set(nest.scratch.map((s) => s.name));
    this.dtypes = Object.fromEntries([
      ...Object.values(computation.tensors).map((t) => [t.name, t.dtype] as const),
      ...nest.scratch.map((s) => [s.name, s.dtype] as const),
    ]);
  }

  source(intrinsic: Intrinsic, notes: CppNotes): string {
    const workspace = this.nest.scratch.filter((s) => s.scope === "workspace");
    const phases = phasesOf(this.nest.body);
    const prepare = printStatements(this.nest.prepare, this);
    const bodies = phases.map((p) => printStatements(p, this));
    const used = [...prepare, ...bodies.flat()].join("\n");
    const conversions = Object.entries(CONVERSIONS)
      .filter(([dtype]) => new RegExp(`\\b(from|to)_${dtype}\\(`).test(used))
      .map(([, text]) => text);
    // Offsets in the workspace, each buffer on a cache line.
    let bytes = 0;
    const offsets = workspace.map((s) => {
      const at = bytes;
      bytes += Math.ceil((s.elements * bytesOf(s.dtype) + SLACK_BYTES) / 64) * 64;
      return at;
    });
    const tensors = Object.values(this.computation.tensors);
    const target = this.computation.equation.target.tensor;
    const pointers = (constant: boolean): string[] => [
      ...workspace.map(
        (s, i) => `${C_TYPES[s.dtype]}* const ${s.name} = (${C_TYPES[s.dtype]}*)((char*)workspace + ${offsets[i]});`,
      ),
      ...tensors.map((t, i) =>
        t.name === target && !constant
          ? `${C_TYPES[t.dtype]}* const ${t.name} = (${C_TYPES[t.dtype]}*)tensors[${i}];`
          : `const ${C_TYPES[t.dtype]}* const ${t.name} = (const ${C_TYPES[t.dtype]}*)tensors[${i}];`,
      ),
    ];
    const mentioned = (lines: readonly string[], all: readonly string[]): string[] =>
      all.filter((line) => new RegExp(`\\b${/const (\w+) =/.exec(line)?.[1] ?? "?"}\\b`).test(lines.join("\n")));
    const run = bodies.map((body, i) =>
      phaseFunction(i, this.localsFor(body), [
        ...mentioned(body, pointers(false)),
        ...this.registersFor(body, intrinsic),
        ...body,
      ]),
    );
    return [
      "/*",
      ...[
        `${equationText(this.computation)}`,
        ...tensors.map(describeTensor),
        `${intrinsic.name}: ${intrinsic.operands.map((o) => `${o.name} ${o.dtype} ${printStorage(o)}`).join(", ")}`,
        ...notes.lines,
      ].map((l) => ` * ${l}`),
      " */",
      "#include <stdint.h>",
      "#include <string.h>",
      intrinsic.prelude ?? "#include <immintrin.h>",
      FLOOR_DIVISION,
      ...conversions,
      "",
      `extern "C" unsigned long automap_workspace_bytes(void) { return ${Math.max(64, bytes)}; }`,
      `extern "C" int automap_phases(void) { return ${phases.length}; }`,
      "",
      'extern "C" void automap_prepare(void* workspace, const void* const* tensors) {',
      "  memset(workspace, 0, automap_workspace_bytes());",
      ...(prepare.length > 0 ? ["  const int part = 0, parts = 1;"] : ["  (void)tensors;"]),
      ...[...mentioned(prepare, pointers(true)), ...prepare].map((l) => `  ${l}`),
      "}",
      "",
      ...run,
      'extern "C" void automap_run(void* workspace, void* const* tensors, int phase, int part, int parts) {',
      "  switch (phase) {",
      ...phases.map((_, i) => `    case ${i}: return phase_${i}(workspace, tensors, part, parts);`),
      "  }",
      "}",
      "",
    ].join("\n");
  }

  // ---- leaves of the walk -----------------------------------------------------------------------------------------------------

  openLoop({ axis, extent, mode }: Loop): string {
    if (mode === "parallel")
      return `for (long ${axis} = ${extent}L * part / parts; ${axis} < ${extent}L * (part + 1) / parts; ${axis}++) {`;
    return `for (long ${axis} = 0; ${axis} < ${extent}; ${axis}++) {`;
  }

  closeLoop(): string {
    return "}";
  }

  clear({ register }: Clear): string[] {
    const { intrinsic, operand } = this.registerFile(register);
    const declared = operandOf(intrinsic, operand);
    const name = this.register(register);
    if (identityOf(intrinsic.computation.equation.op, declared.dtype) !== 0)
      throw new Error(`internal: ${intrinsic.name} does not start from zero`);
    // Assigned, not filled by address: g++ would keep a register whose address was taken in memory.
    return [declared.file === "tile" ? `_tile_zero(${name});` : `${name} = decltype(${name}){};`];
  }

  move({ kind, register, memory }: Move, extents: Extents): string[] {
    const { intrinsic, operand } = this.registerFile(register);
    const declared = operandOf(intrinsic, operand);
    const pointer = `(${memory.buffer} + ${this.index(memory.base, extents)})`;
    const words = {
      reg: this.register(register),
      ptr: pointer,
      stride: String(memory.stride * bytesOf(declared.dtype)),
    };
    const template = kind === "load" ? declared.load : declared.store;
    if (template !== undefined) return [fillTemplate(template, words)];
    return kind === "load"
      ? [`memcpy(&${words.reg}, ${pointer}, sizeof ${words.reg});`]
      : [`memcpy(${pointer}, &${words.reg}, sizeof ${words.reg});`];
  }

  issue({ intrinsic, registers }: RegisterIssue): string[] {
    const names = Object.fromEntries(Object.entries(registers).map(([o, r]) => [o, this.register(r)]));
    return [fillTemplate(intrinsic.emit, names)];
  }

  scalar({ equation }: Scalar, extents: Extents): string[] {
    const { target, op, value, where } = equation;
    const dtype = this.dtypes[target.tensor] ?? "f32";
    const place = this.place(target, extents);
    const text = this.value(value, dtype, extents);
    if (op !== "=") throw new Error(`internal: a scheduled nest assigns, it does not ${op}`);
    const statement = `${target.tensor}[${place.at}] = ${text};`;
    const guards = [...(where === undefined ? [] : [this.condition(where, extents)]), ...place.guards];
    return [guards.length === 0 ? statement : `if (${guards.join(" && ")}) ${statement}`];
  }

  // ---- expressions ------------------------------------------------------------------------------------------------------------

  /** An index as C: `/` and `%` round down, which C does only for what is not negative. */
  private index(e: Expr, extents: Extents): string {
    switch (e.kind) {
      case "number":
        return String(e.value);
      case "axis":
        return e.name;
      case "negate":
        return `-(${this.index(e.value, extents)})`;
      case "binary": {
        const [left, right] = [this.index(e.left, extents), this.index(e.right, extents)];
        if (e.op === "+" || e.op === "-") return `${left} ${e.op} ${e.right.kind === "binary" ? `(${right})` : right}`;
        const wrapped = (text: string, part: Expr): string =>
          part.kind === "binary" || part.kind === "negate" ? `(${text})` : text;
        if (e.op === "*" || boundsOf(e.left, extents)[0] >= 0)
          return `${wrapped(left, e.left)} ${e.op} ${wrapped(right, e.right)}`;
        return `${e.op === "/" ? "floor_div" : "floor_mod"}(${left}, ${right})`;
      }
      default:
        throw new Error(`internal: "${e.kind}" cannot stand in an index`);
    }
  }

  private condition(e: Expr, extents: Extents): string {
    if (e.kind === "logic")
      return `(${this.condition(e.left, extents)} ${e.op === "and" ? "&&" : "||"} ${this.condition(e.right, extents)})`;
    if (e.kind === "compare") return `${this.index(e.left, extents)} ${e.op} ${this.index(e.right, extents)}`;
    throw new Error(`internal: "${e.kind}" is no condition`);
  }

  /** Where an element lies, and what must hold for it to be inside its tensor (nothing when the bounds prove it). */
  private place({ tensor, index }: Access, extents: Extents): { at: string; guards: string[] } {
    if (this.buffers.has(tensor)) return { at: this.index(index[0] ?? number(0), extents), guards: [] };
    const described = tensorOf(this.computation, tensor);
    const guards = index.flatMap((e, d) => {
      const [min, max] = boundsOf(e, extents);
      const extent = described.dims[d]?.extent ?? 0;
      const tests: Expr[] = [];
      if (min < 0) tests.push(compare(">=", e, number(0)));
      if (max >= extent) tests.push(compare("<", e, number(extent)));
      return tests.map((t) => this.condition(t, extents));
    });
    const replacements = new Map(described.dims.map((d, i) => [d.name, index[i] ?? number(0)]));
    return { at: this.index(substitute(described.storage, replacements, "index"), extents), guards };
  }

  /** A value of the given type; 16-bit floats as their bits. */
  private value(e: Expr, dtype: DType, extents: Extents): string {
    switch (e.kind) {
      case "number":
        return this.literal(e.value, dtype);
      case "access": {
        const { at, guards } = this.place(e, extents);
        const element = `${e.tensor}[${at}]`;
        const outside = this.literal(identityOf(this.computation.equation.op, this.dtypes[e.tensor] ?? dtype), dtype);
        return guards.length === 0 ? element : `(${guards.join(" && ")} ? ${element} : ${outside})`;
      }
      case "select":
        return `(${this.condition(e.condition, extents)} ? ${this.value(e.whenTrue, dtype, extents)} : ${this.value(e.whenFalse, dtype, extents)})`;
      case "cast": {
        const from = typeOf(e.value, this.dtypes) ?? dtype;
        return this.convert(this.value(e.value, from, extents), from, e.dtype, e.saturate);
      }
      case "negate":
        return this.computed(`-${this.number(e.value, dtype, extents)}`, dtype);
      case "binary":
        return this.computed(
          `${this.number(e.left, dtype, extents)} ${e.op} ${this.number(e.right, dtype, extents)}`,
          dtype,
        );
      case "call": {
        const [first, second] = e.args.map((arg) => this.number(arg, dtype, extents));
        switch (e.fn) {
          case "square":
            return this.computed(`${first} * ${first}`, dtype);
          case "min":
            return this.computed(`${first} < ${second} ? ${first} : ${second}`, dtype);
          case "max":
            return this.computed(`${first} > ${second} ? ${first} : ${second}`, dtype);
          case "abs":
            return this.computed(`${first} < 0 ? -${first} : ${first}`, dtype);
          case "round":
            return this.computed(`__builtin_rintf(${first})`, dtype);
          default:
            return e.fn satisfies never;
        }
      }
      default:
        throw new Error(`internal: "${e.kind}" is no value: ${printExpr(e)}`);
    }
  }

  /** The same as something C can calculate with: 16-bit floats as float. */
  private number(e: Expr, dtype: DType, extents: Extents): string {
    const own = typeOf(e, this.dtypes) ?? dtype;
    const text = this.value(e, own, extents);
    return own === "bf16" || own === "f16" ? `from_${own}(${text})` : `(${text})`;
  }

  /** A calculated number brought back to its type. */
  private computed(text: string, dtype: DType): string {
    return dtype === "bf16" || dtype === "f16" ? `to_${dtype}(${text})` : `(${C_TYPES[dtype]})(${text})`;
  }

  private convert(text: string, from: DType, to: DType, saturate: boolean): string {
    if (from === to) return text;
    const plain = from === "bf16" || from === "f16" ? `from_${from}(${text})` : text;
    if (to === "bf16" || to === "f16") return `to_${to}((float)(${plain}))`;
    if (!saturate || !isInteger(to)) return `(${C_TYPES[to]})(${plain})`;
    const [min, max] = rangeOf(to);
    const wide = isInteger(from) ? "int64_t" : "float";
    return `(${C_TYPES[to]})clamp<${wide}>(${plain}, ${min}, ${max})`;
  }

  private literal(value: number, dtype: DType): string {
    if (dtype === "bf16" || dtype === "f16") return value === 0 ? "(uint16_t)0" : `to_${dtype}(${value}f)`;
    if (!Number.isFinite(value)) return value > 0 ? "__builtin_inff()" : "-__builtin_inff()";
    if (isInteger(dtype)) return String(value);
    const text = Number.isInteger(value) ? `${value}.0` : String(value);
    return dtype === "f64" ? text : `${text}f`;
  }

  // ---- registers ------------------------------------------------------------------------------------------------------------

  private registerFile({ file }: RegisterAt): LoopNest["registers"][number] {
    const found = this.nest.registers.find((r) => r.name === file);
    if (!found) throw new Error(`internal: no registers "${file}"`);
    return found;
  }

  /** `c3`, or for AMX the number of the tile: files follow one another. */
  private register(at: RegisterAt): string {
    const file = this.registerFile(at);
    if (at.index.kind !== "number")
      throw new Error(`internal: register ${printExpr(at.index)} is not known while printing`);
    if (operandOf(file.intrinsic, file.operand).file !== "tile") return `${file.operand}${at.index.value}`;
    const before = this.nest.registers.slice(0, this.nest.registers.indexOf(file)).reduce((sum, r) => sum + r.count, 0);
    return String(before + at.index.value);
  }

  private registersFor(body: readonly string[], intrinsic: Intrinsic): string[] {
    const text = body.join("\n");
    const declared = this.nest.registers.flatMap((file) => {
      const operand = operandOf(file.intrinsic, file.operand);
      if (operand.file === "tile") return [];
      const names = Array.from({ length: file.count }, (_, i) => `${file.operand}${i}`).filter((n) =>
        new RegExp(`\\b${n}\\b`).test(text),
      );
      return names.map((n) => declareRegister(file.intrinsic, operand, n));
    });
    const issues = text.includes("_tile_");
    return [...(intrinsic.setup !== undefined && issues ? [setupOnce(intrinsic.setup)] : []), ...declared];
  }

  private localsFor(body: readonly string[]): string[] {
    const text = body.join("\n");
    return this.nest.scratch
      .filter((s) => s.scope === "local" && new RegExp(`\\b${s.name}\\b`).test(text))
      .map((s) => `alignas(64) ${C_TYPES[s.dtype]} ${s.name}[${s.elements}];`);
  }
}

/** Vector loads of the last tile of a buffer may read beyond it. */
const SLACK_BYTES = 64;

const FLOOR_DIVISION = `static inline long floor_div(long a, long b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }
static inline long floor_mod(long a, long b) { return a - b * floor_div(a, b); }
template <class T> static inline T clamp(T x, T least, T most) { return x < least ? least : x > most ? most : x; }`;

/** AMX state belongs to a thread: asked for and configured at its first call. */
function setupOnce(setup: string): string {
  return `static thread_local bool ready = false; if (!ready) { ${setup} ready = true; }`;
}

function phaseFunction(number: number, locals: readonly string[], body: readonly string[]): string {
  const lines = [...locals, ...body].map((l) => `  ${l}`);
  return [
    `static void phase_${number}(void* workspace, void* const* tensors, int part, int parts) {`,
    "  (void)workspace, (void)tensors, (void)part, (void)parts;",
    ...lines,
    "}",
    "",
  ].join("\n");
}

function describeTensor(t: Tensor): string {
  return `${t.name}: ${t.dtype}[${t.dims.map((d) => `${d.name} ${d.extent}`).join(", ")}], element at ${printExpr(t.storage, "formula")}${t.constant ? ", packed ahead of time" : ""}`;
}
