/**
 * @file Lanes as vectors in C for Metal: a shift is a shorter select, a condition is a mask of ushort, and tensors are
 * buffer surfaces.
 *
 *     vector<float, 16> Z0_up1;
 *     Z0_up1.select<15, 1>(1) = Z0.select<15, 1>(0);
 *     Z0 = load_lanes<float, 16>(x, 16 * b) * element<float>(w, q) + Z0_up1;
 *
 * Each step of the parallel loops is a thread group with one thread, numbered by `cm_group_id(0)`; the source states
 * how a host launches them. Reads beyond a buffer give 0. Lengths are `uint`, as in Intel's headers: `template <uint
 * N>` would not be deduced. The emulation, runtime/emulation/cm.h, follows the CM language specification and is as
 * strict as those headers.
 */

import { affineForm, boundsOf, type Extents } from "../../abstraction/affine.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { bytesOf, type DType } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import { type Access, axesIn, type Expr, identityOf, times } from "../../abstraction/expression.ts";
import type { Launch } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import {
  axisName,
  type Code,
  code,
  join,
  keyOf,
  list,
  Name,
  NOTHING,
  namesIn,
  type SourceText,
  skeleton,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { CExpressions } from "../c-expressions.ts";
import { headOf, type SourceNotes } from "../cpp/cpp-frame.ts";
import { calledIn, helpersOf } from "../cpp/cpp-helpers.ts";
import {
  dealtIndices,
  dealtLoops,
  type LaneAccess,
  type LaneContext,
  laneLoops,
  type Part,
  registerIn,
  registerName,
  tested,
} from "../lane-printer.ts";
import { type LaneOperation, type LanePlace, VectorExpressions } from "../vector-expressions.ts";
import { type Named, namedIn, phasesOf, printStatements, stepsOf } from "../walk.ts";
import { checkSizes } from "./cm.ts";
import { CM_HELPERS } from "./cm-helpers.ts";

const TYPES: Partial<Record<DType, "float" | "double" | "int">> = { f32: "float", f64: "double", s32: "int" };

/** @throws UsageError when the nest keeps something in scratch memory, or a tensor is larger than a surface */
export function cmSource(
  computation: Computation,
  nest: LoopNest,
  notes: SourceNotes,
  comments: readonly string[],
): { readonly source: SourceText; readonly launches: readonly Launch[] } {
  const [scratch] = nest.scratch;
  if (scratch)
    throw new UsageError(
      `CM: the program keeps ${scratch.name} in memory besides its tensors`,
      "choose a design that keeps its values in vectors, or emit another language",
    );
  checkSizes(computation, nest);
  const writer = new CmLanes(new CmExpressions(computation, nest));
  const tensors = Object.keys(computation.tensors);
  const kernels = phasesOf(nest.body).map((phase, i) => kernelOf(nest, phase, i, writer, tensors));
  const text = kernels.map((k) => k.text);
  const mentioned = namesIn(text);
  const inits = laneVectors(nest.body)
    .filter(({ name }) => mentioned.has(initial(name).id))
    .map(({ name, extent }) => {
      const numbers = Array.from({ length: extent }, (_, lane) => code`${lane}`);
      return code`static const int ${initial(name)}[${extent}] = {${list(numbers)}};`;
    });
  const source = code`${headOf(computation, [...comments, ...notes.lines])}
#include <cm/cm.h>

${calledIn(text, CM_HELPERS)}
${calledIn(text, helpersOf("_GENX_ inline"))}
${inits}

${text}`;
  return { source: spell(source, "cm"), launches: kernels.map((k) => k.launch) };
}

function kernelOf(
  nest: LoopNest,
  phase: readonly Statement[],
  number: number,
  writer: CmLanes,
  tensors: readonly string[],
): { readonly text: Code; readonly launch: Launch } {
  const { dealt, inner, extents } = dealtLoops(phase);
  const lines = printStatements(inner, writer, extents);
  const mentioned = namesIn(lines);
  const groups = stepsOf(dealt);
  const named = namedIn(inner, nest);
  const surfaces = tensors.filter((name) => named.memory.has(name));
  const body = [
    ...(dealt.length > 0 ? [code`const int thread = cm_group_id(0);`] : []),
    ...dealtIndices(dealt, code`thread`).map((d) => d.line),
    ...laneVectors(phase)
      .filter(({ name }) => mentioned.has(name.id))
      .map(({ name, extent }) => code`vector<int, ${extent}> ${name}(${initial(name)});`),
    ...writer.declarations(named),
    ...lines,
  ];
  const parameters = surfaces.map((name) => code`SurfaceIndex ${tensorName(name)}`);
  const text = code`/* ${groups} thread groups of one thread. CM runtime: CreateThreadGroupSpace(1, 1, ${groups}, 1, ...), EnqueueWithGroup.
   Level Zero: group size 1, 1, 1 and group count {${groups}, 1, 1}. */
extern "C" _GENX_MAIN_ void phase_${number}(${list(parameters)}) {
  ${body}
}
`;
  return { text, launch: { function: `phase_${number}`, groups, arguments: surfaces } };
}

/** The numbers of the lanes of a loop, as a vector. */
interface LaneVector {
  readonly name: Name;
  readonly extent: number;
}

/** One for each lane axis and number of lanes. */
function laneVectors(body: readonly Statement[]): LaneVector[] {
  const all = laneLoops(body).map(({ axis: lane, extent }) => ({ name: laneNumbers(lane, extent), extent }));
  return all.filter((l, i) => all.findIndex((o) => o.name.id === l.name.id) === i);
}

function laneNumbers(lane: string, extent: number): Name {
  return axisName(lane).with(`_of_${extent}`);
}

function initial(numbers: Name): Name {
  return numbers.with("_init");
}

/** Scalars: elements of buffers, and lanes of registers. */
class CmExpressions extends CExpressions {
  /** While an index of lanes is printed: the lane axis, and the vector that stands for it. */
  numbered: { readonly axis: string; readonly vector: Name } | undefined;

  override axis(name: string): Name {
    return name === this.numbered?.axis ? this.numbered.vector : super.axis(name);
  }

  protected override element(e: Access, dtype: DType, extents: Extents): Code {
    const register = registerIn(this.nest, e);
    if (register)
      return code`${registerName(register.file.name, register.register)}(${this.index(register.lane, extents)})`;
    return super.element(e, dtype, extents);
  }

  protected override elementAt({ tensor }: Access, at: Code): Code {
    return code`@element<${typeName(this.dtypes[tensor] ?? "f32")}>(${this.tensor(tensor)}, ${at})`;
  }
}

class CmLanes extends VectorExpressions {
  override readonly c: CmExpressions;

  constructor(c: CmExpressions) {
    super(c);
    this.c = c;
  }

  declarations(named: Named): Code[] {
    return this.registersIn(named).map(({ name, file }) => code`${vectorType(file.dtype, file.lanes)} ${name};`);
  }

  protected width(_: DType, lanes: number): number {
    return lanes;
  }

  protected splat(text: Code): Code {
    return text;
  }

  protected numbers(e: Expr, context: LaneContext): Code {
    return this.index(e, context);
  }

  /** An index of lanes as CM writes it: the lane axis is a vector of numbers. */
  private index(e: Expr, { axis: lane, extents }: LaneContext): Code {
    this.c.numbered = { axis: lane, vector: laneNumbers(lane, extents[lane] ?? 0) };
    try {
      return this.c.index(e, extents);
    } finally {
      this.c.numbered = undefined;
    }
  }

  protected shifted(at: LaneAccess, by: number, context: LaneContext): Code {
    const lanes = this.lanesOf(at, context);
    const name = registerName(at.file.name, at.register);
    if (by === 0) return code`${name}`;
    const moved = name.with(`_${by < 0 ? "up" : "down"}${Math.abs(by)}`);
    const left = lanes - Math.abs(by);
    const [to, from] = by < 0 ? [-by, 0] : [0, by];
    const lines = [
      code`${vectorType(at.file.dtype, lanes)} ${moved};`,
      ...(left > 0 ? [code`${moved}.select<${left}, 1>(${to}) = ${name}.select<${left}, 1>(${from});`] : []),
    ];
    const known = new Set(context.before.map(keyOf));
    context.before.push(...lines.filter((line) => !known.has(keyOf(line))));
    return code`${moved}`;
  }

  protected broadcast({ file, register, lane }: LaneAccess, context: LaneContext): Code {
    return code`${registerName(file.name, register)}(${this.c.index(lane, context.extents)})`;
  }

  protected permuted(at: LaneAccess, context: LaneContext): Code {
    this.lanesOf(at, context);
    return code`${registerName(at.file.name, at.register)}.iselect(${this.index(at.lane, context)})`;
  }

  protected load(place: LanePlace, context: LaneContext): Code {
    const { dtype } = context;
    const lanes = used(context);
    const type = code`<${typeName(dtype)}, ${lanes}>`;
    const inside = boundsOf(place.first, context.extents)[0] >= 0;
    const loaded =
      place.stride === 1 && inside
        ? code`@load_lanes${type}(${this.c.tensor(place.tensor)}, ${this.c.index(place.first, context.extents)})`
        : code`@gather_lanes${type}(${this.c.tensor(place.tensor)}, ${this.index(place.at, context)})`;
    const mask = this.mask(place.varying, context);
    if (mask === undefined) return loaded;
    return this.merged(
      tensorName(place.tensor).with("_lanes"),
      mask,
      loaded,
      this.c.outside(place.tensor, dtype),
      context,
    );
  }

  protected store(place: LanePlace, where: readonly Expr[], value: Code, context: LaneContext): Code {
    const lanes = used(context);
    const { dtype, extents } = context;
    const bytes = bytesOf(dtype) * lanes;
    const mask = this.mask([...where, ...place.varying], context);
    const guard = this.guard(place.uniform, context);
    const offset = times(place.first, bytesOf(dtype));
    const aligned = place.stride === 1 && multipleOf(offset, 16) && [16, 32, 64, 128].includes(bytes);
    if (aligned && mask === undefined)
      return code`${guard}write(${this.c.tensor(place.tensor)}, ${this.c.index(offset, extents)}, ${vectorType(dtype, lanes)}(${value}));`;
    const type = code`<${typeName(dtype)}, ${lanes}>`;
    const whole = code`vector<ushort, ${lanes}>(${mask ?? 1})`;
    return code`${guard}@scatter_lanes${type}(${this.c.tensor(place.tensor)}, ${this.index(place.at, context)}, ${value}, ${whole});`;
  }

  protected blend(mask: readonly Expr[], whenTrue: Code, whenFalse: Code, context: LaneContext): Code {
    const text = this.mask(mask, context);
    return text === undefined ? whenTrue : this.merged(new Name("local", "merged"), text, whenTrue, whenFalse, context);
  }

  /** A vector of its own, made by a merge ahead of the statement. */
  private merged(name: Name, mask: Code, whenTrue: Code, whenFalse: Code, context: LaneContext): Code {
    const { before, dtype } = context;
    const own = name.with(`_${before.filter((l) => skeleton(l).includes(".merge(")).length}`);
    before.push(
      code`${vectorType(dtype, used(context))} ${own};`,
      code`${own}.merge(${whenTrue}, ${whenFalse}, ${mask});`,
    );
    return code`${own}`;
  }

  protected override chosen(tests: Code, whenTrue: Code, whenFalse: Code, context: LaneContext): Code {
    const { before, dtype } = context;
    const own = code`chosen_${before.length}`;
    before.push(
      code`${vectorType(dtype, used(context))} ${own} = ${whenFalse};`,
      code`if (${tests}) ${own} = ${whenTrue};`,
    );
    return own;
  }

  protected reduced({ equation: { op, value: e }, mask: where, context }: Part): Code {
    const { dtype } = context;
    const value = this.vector(e, context);
    const mask = this.mask(where, context);
    const start = this.c.literal(identityOf(op, dtype), dtype);
    const taken = mask === undefined ? value : this.merged(new Name("local", "taken"), mask, value, start, context);
    const name = op === "+=" ? "cm_sum" : op === "max=" ? "cm_reduced_max" : "cm_reduced_min";
    return code`${name}<${typeName(dtype)}>(${vectorType(dtype, used(context))}(${taken}))`;
  }

  protected insert({ file, register, lane }: LaneAccess, scalar: Code, context: LaneContext): Code[] {
    return [code`${registerName(file.name, register)}(${this.c.index(lane, context.extents)}) = ${scalar};`];
  }

  protected override assignElement(tensor: string, at: Code, scalar: Code, dtype: DType): Code {
    const type = typeName(dtype);
    return code`@scatter_lanes<${type}, 1>(${this.c.tensor(tensor)}, vector<int, 1>((int)(${at})), vector<${type}, 1>((${type})(${scalar})), vector<ushort, 1>(1));`;
  }

  protected operation(op: LaneOperation, args: readonly Code[], dtype: DType, context: LaneContext): Code {
    const [a = NOTHING, b = NOTHING, c = NOTHING] = args;
    const whole = (text: Code): Code => code`${vectorType(dtype, used(context))}(${text})`;
    switch (op) {
      case "+":
      case "-":
      case "*":
      case "/":
        return code`(${a} ${op} ${b})`;
      case "a*b+c":
        return code`(${a} * ${b} + ${c})`;
      case "c-a*b":
        return code`(${c} - ${a} * ${b})`;
      case "a*b-c":
        return code`(${a} * ${b} - ${c})`;
      case "negate":
        return code`(-${a})`;
      case "max":
      case "min":
        return code`cm_${op}<${typeName(dtype)}>(${whole(a)}, ${whole(b)})`;
      case "square":
        return code`(${a} * ${a})`;
      case "abs":
        return code`cm_abs<${typeName(dtype)}>(${whole(a)})`;
      case "round":
        return dtype === "s32" ? a : code`cm_rnde<${typeName(dtype)}>(${whole(a)})`;
      default:
        return op satisfies never;
    }
  }

  protected convert(text: Code, _: DType, to: DType, context: LaneContext): Code {
    return code`${vectorType(to, used(context))}(${text})`;
  }

  /** Vectors of different length do not meet. */
  private lanesOf({ file }: LaneAccess, context: LaneContext): number {
    const lanes = used(context);
    if (file.lanes !== lanes) internal(`${file.name} has ${file.lanes} lanes in a loop of ${lanes}`);
    return lanes;
  }

  /** Where all conditions hold, as a vector of ushort; undefined for every lane. */
  private mask(conditions: readonly Expr[], context: LaneContext): Code | undefined {
    const { axis: lane, extents } = context;
    const terms = tested(conditions, lane, extents).map((e) => this.condition(e, context));
    return terms.length === 0 ? undefined : join(terms, code` & `);
  }

  private condition(e: Expr, context: LaneContext): Code {
    if (e.kind === "logic")
      return code`(${this.condition(e.left, context)} ${e.op === "and" ? "&" : "|"} ${this.condition(e.right, context)})`;
    if (e.kind !== "compare") internal(`"${e.kind}" is no condition`);
    const sides = code`${this.index(e.left, context)} ${e.op} ${this.index(e.right, context)}`;
    const varies = axesIn(e).includes(context.axis);
    return varies ? code`(${sides})` : code`vector<ushort, ${used(context)}>((ushort)(${sides}))`;
  }
}

function used({ axis: lane, extents }: LaneContext): number {
  return extents[lane] ?? 1;
}

function typeName(dtype: DType): "float" | "double" | "int" {
  return TYPES[dtype] ?? internal(`no CM lanes of ${dtype}`);
}

function vectorType(dtype: DType, lanes: number): Code {
  return code`vector<${typeName(dtype)}, ${lanes}>`;
}

/** Whether an offset is known to be a multiple of `unit` wherever the loops go. */
function multipleOf(offset: Expr, unit: number): boolean {
  const form = affineForm(offset);
  return form !== undefined && [form.constant, ...form.terms.values()].every((c) => c % unit === 0);
}
