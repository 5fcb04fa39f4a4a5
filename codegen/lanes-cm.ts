/**
 * @file Lanes as vectors of C for Metal: a shift is a shorter select, a condition a mask of ushort, tensors are buffer surfaces.
 *
 *     vector<float, 16> Z0_up1;
 *     Z0_up1.select<15, 1>(1) = Z0.select<15, 1>(0);
 *     Z0 = load_lanes<float, 16>(x, 16 * b) * element<float>(w, q) + Z0_up1;
 *
 * Each step of the parallel loops is a thread, numbered by `cm_group_id(0)`. Reads beyond a buffer give 0. Emulation:
 * runtime/emulation/cm.h, written from the CM language specification.
 */

import { affineForm, boundsOf, type Extents } from "../abstraction/affine.ts";
import type { Computation } from "../abstraction/computation.ts";
import { bytesOf, type DType } from "../abstraction/dtype.ts";
import { type Equation, identityOf } from "../abstraction/equation.ts";
import { UsageError } from "../abstraction/error.ts";
import { type Access, axesIn, axis, binary, type Expr, number, substitute } from "../abstraction/expression.ts";
import type { Launch } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { CExpressions } from "./c-expressions.ts";
import { headOf, type SourceNotes } from "./cpp-frame.ts";
import { helpersFor } from "./cpp-helpers.ts";
import { dealtLoops, laneLoops, tested } from "./lane-statement.ts";
import { type LaneAccess, type LaneContext, type LaneOperation, type LanePlace, LaneVectors } from "./lane-vectors.ts";
import { type Loop, phasesOf, printStatements } from "./walk.ts";

const TYPES: Partial<Record<DType, string>> = { f32: "float", f64: "double", s32: "int" };

/** @throws UsageError when the nest keeps something in scratch memory */
export function cmSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
): { readonly source: string; readonly launches: readonly Launch[] } {
  const [scratch] = nest.scratch;
  if (scratch)
    throw new UsageError(`CM: the program keeps ${scratch.name} in memory besides its tensors`, {
      hint: "choose a design that keeps its values in vectors, or emit another language",
    });
  const c = new CmExpressions(computation, nest);
  const writer = new CmLanes(c, nest);
  const launches: Launch[] = [];
  const kernels = phasesOf(nest.body).flatMap((phase, i) => {
    const { dealt, inner, extents } = dealtLoops(phase);
    const lines = printStatements(inner, writer, extents);
    const words = new Set(lines.join("\n").match(/\w+/g));
    const threads = dealt.reduce((product, d) => product * d.extent, 1);
    const surfaces = Object.keys(computation.tensors).filter((name) => words.has(name));
    const name = `phase_${i}`;
    launches.push({ function: name, threads, arguments: surfaces });
    const indices = dealt.map((d, at) => {
      const below = dealt.slice(at + 1).reduce((product, x) => product * x.extent, 1);
      const whole = below === 1 ? "thread" : `thread / ${below}`;
      return `const int ${d.axis} = ${at === 0 ? whole : `${whole} % ${d.extent}`};`;
    });
    const body = [
      ...(dealt.length > 0 ? ["const int thread = cm_group_id(0);"] : []),
      ...indices,
      ...laneLoops(phase)
        .filter(({ axis: lane, extent }) => words.has(laneName(lane, extent)))
        .map(({ axis: lane, extent }) => laneName(lane, extent))
        .filter((lane, at, all) => all.indexOf(lane) === at)
        .map((lane) => `vector<int, ${lane.split("_").at(-1)}> ${lane}(${lane}_init);`),
      ...writer.declarations(lines),
      ...lines,
    ];
    return [
      `/* ${threads} threads */`,
      `extern "C" _GENX_MAIN_ void ${name}(${surfaces.map((s) => `SurfaceIndex ${s}`).join(", ")}) {`,
      ...body.map((l) => `  ${l}`),
      "}",
      "",
    ];
  });
  const text = kernels.join("\n");
  const lanes = laneLoops(nest.body).map(({ axis: lane, extent }) => ({ name: laneName(lane, extent), extent }));
  const inits = lanes.filter(
    (l, i) => lanes.findIndex((o) => o.name === l.name) === i && text.includes(`${l.name}_init`),
  );
  const source = [
    ...headOf(computation, [...comments, ...notes.lines]),
    "#include <cm/cm.h>",
    "",
    ...helpersIn(text),
    ...helpersFor(text).map((h) => h.replaceAll("static inline", "_GENX_ inline")),
    ...inits.map(
      ({ name, extent }) =>
        `static const int ${name}_init[${extent}] = {${Array.from({ length: extent }, (_, i) => i).join(", ")}};`,
    ),
    "",
    ...kernels,
  ].join("\n");
  return { source, launches };
}

/** The lane numbers of a loop of so many lanes. */
function laneName(lane: string, extent: number): string {
  return `${lane}_of_${extent}`;
}

/** In the order they may call one another, the last first. */
const HELPERS: readonly { readonly name: string; readonly text: string }[] = [
  {
    name: "gather_lanes",
    text: `/* An element for each lane. Doubles are pairs of dwords. */
template <typename T, int N> _GENX_ inline vector<T, N> gather_lanes(SurfaceIndex surface, vector<int, N> at) {
  enum { WORDS = sizeof(T) / 4, READS = (N * WORDS + 15) / 16 };
  vector<uint, READS * 16> offsets = 0;
  for (int word = 0; word < WORDS; word++) offsets.template select<N, WORDS>(word) = at * (int)WORDS + word;
  vector<uint, READS * 16> words;
  for (int i = 0; i < READS; i++) {
    const vector<uint, 16> own = offsets.template select<16, 1>(16 * i);
    read(surface, 0, own, words.template select<16, 1>(16 * i));
  }
  vector<T, READS * 16 / WORDS> lanes = words.template format<T>();
  return lanes.template select<N, 1>(0);
}
`,
  },
  {
    name: "scatter_lanes",
    text: `/* Each lane's element, where the mask says so. */
template <typename T, int N> _GENX_ inline void scatter_lanes(SurfaceIndex surface, vector<int, N> at, vector<T, N> value, vector<ushort, N> mask) {
  enum { WORDS = sizeof(T) / 4, WRITES = (N * WORDS + 15) / 16 };
  vector<uint, WRITES * 16> offsets = 0;
  vector<ushort, WRITES * 16> active = 0;
  vector<T, WRITES * 16 / WORDS> lanes = 0;
  for (int word = 0; word < WORDS; word++) {
    offsets.template select<N, WORDS>(word) = at * (int)WORDS + word;
    active.template select<N, WORDS>(word) = mask;
  }
  lanes.template select<N, 1>(0) = value;
  vector<uint, WRITES * 16> words = lanes.template format<uint>();
  for (int i = 0; i < WRITES; i++) {
    const vector<uint, 16> own = offsets.template select<16, 1>(16 * i);
    const vector<uint, 16> written = words.template select<16, 1>(16 * i);
    const vector<ushort, 16> taken = active.template select<16, 1>(16 * i);
    SIMD_IF_BEGIN(taken) {
      write(surface, 0, own, written);
    }
    SIMD_IF_END;
  }
}
`,
  },
  {
    name: "load_lanes",
    text: `/* Lanes side by side from an element on, in blocks of owords. */
template <typename T, int N> _GENX_ inline vector<T, N> load_lanes(SurfaceIndex surface, int first) {
  enum { BYTES = N * sizeof(T), BLOCK = BYTES <= 16 ? 16 : BYTES <= 32 ? 32 : BYTES <= 64 ? 64 : 128 };
  enum { EACH = BLOCK / sizeof(T), READS = (N + EACH - 1) / EACH };
  vector<T, READS * EACH> lanes;
  for (int i = 0; i < READS; i++)
    read(DWALIGNED(surface), (uint)((first + i * EACH) * sizeof(T)), lanes.template select<EACH, 1>(i * EACH));
  return lanes.template select<N, 1>(0);
}
`,
  },
  {
    name: "floor_div",
    text: `template <int N> _GENX_ inline vector<int, N> floor_div(vector<int, N> a, int b) {
  vector<int, N> quotient = a / b;
  quotient.merge(quotient - 1, a - quotient * b < 0);
  return quotient;
}
`,
  },
  {
    name: "floor_mod",
    text: `template <int N> _GENX_ inline vector<int, N> floor_mod(vector<int, N> a, int b) {
  vector<int, N> rest = a % b;
  rest.merge(rest + b, rest < 0);
  return rest;
}
`,
  },
  {
    name: "element",
    text: `template <typename T> _GENX_ inline T element(SurfaceIndex surface, int at) {
  vector<T, 16 / sizeof(T)> words;
  read(DWALIGNED(surface), (uint)(at * sizeof(T)), words);
  return words(0);
}
`,
  },
];

function helpersIn(text: string): string[] {
  return HELPERS.filter(({ name }) => new RegExp(`\\b${name}[<(]`).test(text)).map((h) => h.text);
}

/** Scalars: elements of buffers, and lanes of registers. */
class CmExpressions extends CExpressions {
  private readonly vectors: LoopNest["vectors"];

  constructor(computation: Computation, nest: LoopNest) {
    super(computation, nest);
    this.vectors = nest.vectors;
  }

  protected override element(e: Access, dtype: DType, extents: Extents): string {
    const file = this.vectors?.find((v) => v.name === e.tensor);
    const [register, lane] = e.index;
    if (file) {
      if (register?.kind !== "number" || !lane) throw new Error(`internal: register of ${e.tensor} is not known`);
      return `${file.name}${register.value}(${this.index(lane, extents)})`;
    }
    const { at, guards } = this.place(e, extents);
    const element = `element<${typeName(this.dtypes[e.tensor] ?? dtype)}>(${e.tensor}, ${at})`;
    return guards.length === 0 ? element : `(${guards.join(" && ")} ? ${element} : ${this.outside(e.tensor, dtype)})`;
  }
}

class CmLanes extends LaneVectors {
  declarations(body: readonly string[]): string[] {
    return this.registersIn(body).map(({ name, file }) => `${vectorType(file.dtype, file.lanes)} ${name};`);
  }

  openLoop({ axis: name, extent }: Loop): string {
    return `for (int ${name} = 0; ${name} < ${extent}; ${name}++) {`;
  }

  protected width(_: DType, lanes: number): number {
    return lanes;
  }

  protected splat(text: string): string {
    return text;
  }

  protected numbers(e: Expr, context: LaneContext): string {
    return this.index(e, context);
  }

  /** An index of lanes as CM writes it: the lane axis is a vector of numbers. */
  private index(e: Expr, { axis: lane, extents }: LaneContext): string {
    const name = laneName(lane, extents[lane] ?? 0);
    const renamed = substitute(e, new Map([[lane, axis(name)]]), "index");
    return this.c.index(renamed, { ...extents, [name]: extents[lane] ?? 0 });
  }

  protected shifted(at: LaneAccess, by: number, context: LaneContext): string {
    const lanes = this.lanesOf(at, context);
    const name = this.registerName(at.file.name, at.register, 0, 1);
    if (by === 0) return name;
    const moved = `${name}_${by < 0 ? "up" : "down"}${Math.abs(by)}`;
    const left = lanes - Math.abs(by);
    const [to, from] = by < 0 ? [-by, 0] : [0, by];
    const lines = [
      `${vectorType(at.file.dtype, lanes)} ${moved};`,
      ...(left > 0 ? [`${moved}.select<${left}, 1>(${to}) = ${name}.select<${left}, 1>(${from});`] : []),
    ];
    for (const line of lines) if (!context.before.includes(line)) context.before.push(line);
    return moved;
  }

  protected broadcast({ file, register, lane }: LaneAccess, context: LaneContext): string {
    return `${file.name}${register}(${this.c.index(lane, context.extents)})`;
  }

  protected permuted(at: LaneAccess, context: LaneContext): string {
    this.lanesOf(at, context);
    return `${at.file.name}${at.register}.iselect(${this.index(at.lane, context)})`;
  }

  protected load(place: LanePlace, context: LaneContext): string {
    const { dtype } = context;
    const lanes = used(context);
    const type = `<${typeName(dtype)}, ${lanes}>`;
    const inside = boundsOf(place.first, context.extents)[0] >= 0;
    const loaded =
      place.stride === 1 && inside
        ? `load_lanes${type}(${place.tensor}, ${this.c.index(place.first, context.extents)})`
        : `gather_lanes${type}(${place.tensor}, ${this.index(place.at, context)})`;
    const mask = this.mask(place.varying, context);
    if (mask === undefined) return loaded;
    return this.merged(`${place.tensor}_lanes`, mask, loaded, this.c.outside(place.tensor, dtype), context);
  }

  protected store(place: LanePlace, where: readonly Expr[], value: string, context: LaneContext): string {
    const lanes = used(context);
    const { dtype, extents } = context;
    const bytes = bytesOf(dtype) * lanes;
    const mask = this.mask([...where, ...place.varying], context);
    const test = place.uniform.map((g) => this.c.condition(g, extents)).join(" && ");
    const guard = test === "" ? "" : `if (${test}) `;
    const offset = binary("*", place.first, number(bytesOf(dtype)));
    const aligned = place.stride === 1 && multipleOf(offset, 16) && [16, 32, 64, 128].includes(bytes);
    if (aligned && mask === undefined)
      return `${guard}write(${place.tensor}, ${this.c.index(offset, extents)}, ${vectorType(dtype, lanes)}(${value}));`;
    const type = `<${typeName(dtype)}, ${lanes}>`;
    const whole = `vector<ushort, ${lanes}>(${mask ?? "1"})`;
    return `${guard}scatter_lanes${type}(${place.tensor}, ${this.index(place.at, context)}, ${value}, ${whole});`;
  }

  protected blend(mask: readonly Expr[], whenTrue: string, whenFalse: string, context: LaneContext): string {
    const text = this.mask(mask, context);
    return text === undefined ? whenTrue : this.merged("merged", text, whenTrue, whenFalse, context);
  }

  /** A vector of its own, made by a merge ahead of the statement. */
  private merged(name: string, mask: string, whenTrue: string, whenFalse: string, context: LaneContext): string {
    const { before, dtype } = context;
    const own = `${name}_${before.filter((l) => l.includes(".merge(")).length}`;
    before.push(`${vectorType(dtype, used(context))} ${own};`, `${own}.merge(${whenTrue}, ${whenFalse}, ${mask});`);
    return own;
  }

  protected override chosen(tests: string, whenTrue: string, whenFalse: string, context: LaneContext): string {
    const { before, dtype } = context;
    const own = `chosen_${before.length}`;
    before.push(`${vectorType(dtype, used(context))} ${own} = ${whenFalse};`, `if (${tests}) ${own} = ${whenTrue};`);
    return own;
  }

  protected reduced(op: Equation["op"], value: string, where: readonly Expr[], context: LaneContext): string {
    const { dtype } = context;
    const mask = this.mask(where, context);
    const start = this.c.literal(identityOf(op, dtype), dtype);
    const taken = mask === undefined ? value : this.merged("taken", mask, value, start, context);
    const name = op === "+=" ? "cm_sum" : op === "max=" ? "cm_reduced_max" : "cm_reduced_min";
    return `${name}<${typeName(dtype)}>(${vectorType(dtype, used(context))}(${taken}))`;
  }

  protected insert({ file, register, lane }: LaneAccess, scalar: string, context: LaneContext): string {
    return `${file.name}${register}(${this.c.index(lane, context.extents)}) = ${scalar};`;
  }

  protected override assignElement(tensor: string, at: string, scalar: string, dtype: DType): string {
    const type = typeName(dtype);
    return `scatter_lanes<${type}, 1>(${tensor}, vector<int, 1>((int)(${at})), vector<${type}, 1>((${type})(${scalar})), vector<ushort, 1>(1));`;
  }

  protected operation(op: LaneOperation, args: readonly string[], dtype: DType, context: LaneContext): string {
    const [a = "", b = "", c = ""] = args;
    const whole = (text: string): string => `${vectorType(dtype, used(context))}(${text})`;
    switch (op) {
      case "+":
      case "-":
      case "*":
      case "/":
        return `(${a} ${op} ${b})`;
      case "a*b+c":
        return `(${a} * ${b} + ${c})`;
      case "c-a*b":
        return `(${c} - ${a} * ${b})`;
      case "a*b-c":
        return `(${a} * ${b} - ${c})`;
      case "negate":
        return `(-${a})`;
      case "max":
      case "min":
        return `cm_${op}<${typeName(dtype)}>(${whole(a)}, ${whole(b)})`;
      case "square":
        return `(${a} * ${a})`;
      case "abs":
        return `cm_abs<${typeName(dtype)}>(${whole(a)})`;
      case "round":
        return dtype === "s32" ? a : `cm_rnde<${typeName(dtype)}>(${whole(a)})`;
      default:
        return op satisfies never;
    }
  }

  protected convert(text: string, _: DType, to: DType, context: LaneContext): string {
    return `${vectorType(to, used(context))}(${text})`;
  }

  /** Vectors of different length do not meet. */
  private lanesOf({ file }: LaneAccess, context: LaneContext): number {
    const lanes = used(context);
    if (file.lanes !== lanes) throw new Error(`internal: ${file.name} has ${file.lanes} lanes in a loop of ${lanes}`);
    return lanes;
  }

  /** Where all conditions hold, as a vector of ushort; undefined for every lane. */
  private mask(conditions: readonly Expr[], context: LaneContext): string | undefined {
    const { axis: lane, extents } = context;
    const terms = tested(conditions, lane, extents).map((e) => this.condition(e, context));
    return terms.length === 0 ? undefined : terms.join(" & ");
  }

  private condition(e: Expr, context: LaneContext): string {
    if (e.kind === "logic")
      return `(${this.condition(e.left, context)} ${e.op === "and" ? "&" : "|"} ${this.condition(e.right, context)})`;
    if (e.kind !== "compare") throw new Error(`internal: "${e.kind}" is no condition`);
    const sides = `${this.index(e.left, context)} ${e.op} ${this.index(e.right, context)}`;
    const varies = axesIn(e).includes(context.axis);
    return varies ? `(${sides})` : `vector<ushort, ${used(context)}>((ushort)(${sides}))`;
  }
}

function used({ axis: lane, extents }: LaneContext): number {
  return extents[lane] ?? 1;
}

function typeName(dtype: DType): string {
  const type = TYPES[dtype];
  if (type === undefined) throw new Error(`internal: no CM lanes of ${dtype}`);
  return type;
}

function vectorType(dtype: DType, lanes: number): string {
  return `vector<${typeName(dtype)}, ${lanes}>`;
}

/** Whether an offset is known to be a multiple of `unit` wherever the loops go. */
function multipleOf(offset: Expr, unit: number): boolean {
  const form = affineForm(offset);
  return form !== undefined && [form.constant, ...form.terms.values()].every((c) => c % unit === 0);
}
