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
import { type Computation, memoryElements, outputOf, type Tensor, tensorOf } from "../abstraction/computation.ts";
import { bytesOf, type DType, isInteger, rangeOf } from "../abstraction/dtype.ts";
import { identityOf, printEquation } from "../abstraction/equation.ts";
import { type Access, compare, type Expr, number, printExpr, substitute } from "../abstraction/expression.ts";
import { fillTemplate, type Intrinsic, operandOf, printStorage } from "../abstraction/intrinsic.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { LoopNest, RegisterAt } from "../abstraction/loop-nest.ts";
import { declareRegister } from "../abstraction/register.ts";
import { type DTypes, typeOf } from "../abstraction/typing.ts";
import { helpersFor } from "./cpp-helpers.ts";
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
      role: t.name === outputOf(computation).name ? "output" : t.constant ? "constant" : "input",
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

/** Compiler flags' names for what a machine has, as the intrinsics table names it; what has none is left out. */
export function compilerFeatures(isa: readonly string[]): string[] {
  return [...new Set(isa.flatMap((feature) => FEATURES[feature] ?? []))];
}

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
    const { epilogue } = this.computation;
    const phases = phasesOf(this.nest.body);
    const prepare = printStatements(this.nest.prepare, this);
    const bodies = phases.map((p) => printStatements(p, this));
    const used = [...prepare, ...bodies.flat()].join("\n");
    // Offsets in the workspace, each buffer on a cache line.
    let bytes = 0;
    const offsets = workspace.map((s) => {
      const at = bytes;
      bytes += Math.ceil((s.elements * bytesOf(s.dtype) + SLACK_BYTES) / 64) * 64;
      return at;
    });
    const tensors = Object.values(this.computation.tensors);
    const output = outputOf(this.computation).name;
    const pointers = (constant: boolean): string[] => [
      ...workspace.map(
        (s, i) => `${C_TYPES[s.dtype]}* const ${s.name} = (${C_TYPES[s.dtype]}*)((char*)workspace + ${offsets[i]});`,
      ),
      ...tensors.map((t, i) =>
        t.name === output && !constant
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
        ...[this.computation.equation, ...(epilogue ? [epilogue.equation] : [])].map(printEquation),
        ...tensors.map(describeTensor),
        `${intrinsic.name}: ${intrinsic.operands.map((o) => `${o.name} ${o.dtype} ${printStorage(o)}`).join(", ")}`,
        ...notes.lines,
      ].map((l) => ` * ${l}`),
      " */",
      "#include <stdint.h>",
      "#include <string.h>",
      intrinsic.prelude ?? "#include <immintrin.h>",
      ...helpersFor(used),
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
      case "axis":
        return `(int32_t)${e.name}`;
      case "access": {
        const { at, guards } = this.place(e, extents);
        const element = `${e.tensor}[${at}]`;
        const outside = this.literal(identityOf(this.computation.equation.op, this.dtypes[e.tensor] ?? dtype), dtype);
        return guards.length === 0 ? element : `(${guards.join(" && ")} ? ${element} : ${outside})`;
      }
      case "select":
        return `(${this.condition(e.condition, extents)} ? ${this.value(e.whenTrue, dtype, extents)} : ${this.value(e.whenFalse, dtype, extents)})`;
      case "cast": {
        // A literal without a typed neighbour is what it says: `sat_s8(200)` is 127.
        const from = typeOf(e.value, this.dtypes) ?? "f64";
        // s32(sat_u8(x)) is clamped and never narrowed: a loop of it stays in vectors of 32 bits.
        if (e.dtype === "s32" && e.value.kind === "cast" && e.value.saturate && isInteger(from) && bytesOf(from) < 4) {
          const wide = typeOf(e.value.value, this.dtypes) ?? "f64";
          return this.saturated(this.value(e.value.value, wide, extents), wide, from, "s32");
        }
        return this.convert(this.value(e.value, from, extents), from, e.dtype, e.saturate);
      }
      case "negate":
        return this.computed(`-${this.number(e.value, dtype, extents)}`, dtype);
      case "binary":
        return this.arithmetic(e, dtype, extents);
      case "call": {
        const [first, second] = e.args.map((arg) => this.number(arg, dtype, extents));
        const type = calculationType(dtype);
        switch (e.fn) {
          case "square":
            return this.computed(`${first} * ${first}`, dtype);
          case "min":
          case "max": {
            const [bound, either] = e.fn === "max" ? ["at_least", "most"] : ["at_most", "least"];
            // A constant is a number: one comparison, which is one instruction.
            if (e.args[1]?.kind === "number") return this.computed(`${bound}<${type}>(${first}, ${second})`, dtype);
            if (e.args[0]?.kind === "number") return this.computed(`${bound}<${type}>(${second}, ${first})`, dtype);
            return this.computed(`${either}<${type}>(${first}, ${second})`, dtype);
          }
          case "abs":
            if (!isInteger(dtype))
              return this.computed(`${dtype === "f64" ? "__builtin_fabs" : "__builtin_fabsf"}(${first})`, dtype);
            return this.computed(`${first} < 0 ? -${first} : ${first}`, dtype);
          case "round":
            if (isInteger(dtype)) return this.computed(`${first}`, dtype);
            return this.computed(`${dtype === "f64" ? "__builtin_rint" : "__builtin_rintf"}(${first})`, dtype);
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

  private arithmetic({ op, left, right }: Extract<Expr, { kind: "binary" }>, dtype: DType, extents: Extents): string {
    const [a, b] = [this.number(left, dtype, extents), this.number(right, dtype, extents)];
    if (isInteger(dtype) && (op === "/" || op === "%")) {
      if (right.kind === "number" && right.value > 0) return this.computed(`${a} ${op} ${b}`, dtype);
      return `${op === "/" ? "quotient" : "remainder"}<${C_TYPES[dtype]}>(${a}, ${b})`;
    }
    if (op === "%")
      return this.computed(`${dtype === "f64" ? "__builtin_fmod" : "__builtin_fmodf"}(${a}, ${b})`, dtype);
    return this.computed(`${a} ${op} ${b}`, dtype);
  }

  /** A calculated number brought back to its type. */
  private computed(text: string, dtype: DType): string {
    return ROUNDED.has(dtype) ? `to_${dtype}(${text})` : `(${C_TYPES[dtype]})(${text})`;
  }

  private convert(text: string, from: DType, to: DType, saturate: boolean): string {
    if (from === to) return text;
    const plain = from === "bf16" || from === "f16" ? `from_${from}(${text})` : text;
    if (ROUNDED.has(to)) {
      // Through a float, which does not hold every double and every integer of 32 bits.
      const wide = from === "f64" || (isInteger(from) && bytesOf(from) === 4);
      return wide ? `to_${to}(to_odd(${plain}))` : `to_${to}((float)(${plain}))`;
    }
    if (!isInteger(to)) return `(${C_TYPES[to]})(${plain})`;
    if (saturate) return this.saturated(text, from, to, to);
    // A float by way of a wider integer, whose low bits are the answer.
    return isInteger(from) ? `(${C_TYPES[to]})(${plain})` : `(${C_TYPES[to]})(int64_t)(${plain})`;
  }

  /** A number clamped to the range of an integer type, held in `held`. */
  private saturated(text: string, from: DType, to: DType, held: DType): string {
    const [min, max] = rangeOf(to);
    if (isInteger(from)) {
      const between = from === "u32" || to === "u32" ? "int64_t" : "int32_t";
      return `(${C_TYPES[held]})clamp<${between}>(${text}, ${min}, ${max})`;
    }
    const plain = from === "bf16" || from === "f16" ? `from_${from}(${text})` : text;
    // A float does not hold the ends of 32 bits.
    const wide = bytesOf(to) === 4 || from === "f64" ? "f64" : "f32";
    const ends = [this.literal(min, wide), this.literal(max, wide)];
    const types = [C_TYPES[held], to === "u32" ? "int64_t" : "int32_t", C_TYPES[wide]];
    return `saturate<${types.join(", ")}>(${[plain, ...ends].join(", ")})`;
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
    return [...(intrinsic.setup !== undefined && issues ? [intrinsic.setup] : []), ...declared];
  }

  private localsFor(body: readonly string[]): string[] {
    const text = body.join("\n");
    return this.nest.scratch
      .filter((s) => s.scope === "local" && new RegExp(`\\b${s.name}\\b`).test(text))
      .map((s) => `alignas(64) ${C_TYPES[s.dtype]} ${s.name}[${s.elements}];`);
  }
}

/** Types that C has no arithmetic of: results are rounded to them. */
const ROUNDED: ReadonlySet<DType> = new Set(["bf16", "f16", "tf32"]);

/** What C calculates in. */
function calculationType(dtype: DType): string {
  return ROUNDED.has(dtype) ? "float" : C_TYPES[dtype];
}

/** Vector loads of the last tile of a buffer may read beyond it. */
const SLACK_BYTES = 64;

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
