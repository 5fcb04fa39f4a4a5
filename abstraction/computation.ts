/**
 * @file What the user wants computed: an equation whose axes have extents and whose tensors have types and shapes.
 *
 *     defineComputation({
 *       equation: "c[i,j] += f32(a[i,k]) * f32(b[k,j])",
 *       extents: { i: 64, j: 64, k: 128 },
 *       tensors: { a: "f16", b: "f16" },
 *     })
 *
 * The target starts at the identity of its combine (0 for sums): a computation is a function of its inputs.
 * An epilogue, behind a semicolon or by itself, makes the output of the target, element by element (epilogue.ts).
 *
 * Checks what an equation may contain: indices and conditions that are affine in the axes.
 *
 *     c[i,j] += a[i*k]        index of a[i*k] is not affine: it multiplies two axes
 *
 * Border modes, which keep an index inside: `clamp`, `reflect` and `wrap` around the whole index of a dimension.
 *
 *     y[i] += x[clamp(i+r-1)] * w[r]        x[-1] is x[0]
 *     y[i] += x[reflect(i+r-1)] * w[r]      x[-1] is x[1]: the edge is not repeated
 *     y[i] += x[wrap(i+r-1)] * w[r]         x[-1] is x[n-1]
 *     y[i,j] = table[wrap(ids[i]),j]        the index may be an element: whatever it is, what is read lies inside
 *
 * `borderOp` of expression.ts defines them. The extent they use is that of the tensor's dimension and is filled in here.
 */

import {
  affineForm,
  boundsOf,
  type Dimension,
  type Extents,
  extentsBy,
  layoutStorage,
  offendingPart,
  pointsIn,
  rowMajor,
  shapeOf,
  storageFormula,
} from "./affine.ts";
import { hasName, memoised, namesOf, sumOf, upTo } from "./collections.ts";
import { checkDependences, isRecurrent } from "./dependence.ts";
import { DTYPES, type DType, isDType, isInteger } from "./dtype.ts";
import {
  checkEpilogue,
  checkEveryElementOnce,
  type Epilogue,
  elementExtents,
  isElementwise,
  needed,
} from "./epilogue.ts";
import { checkNames, internal, suggestion, UsageError } from "./error.ts";
import {
  type Access,
  accessesIn,
  accessesOf,
  axesOf,
  type Compare,
  comparesElements,
  type Equation,
  type Expr,
  identityOf,
  number,
  printAccess,
  printEquation,
  printExpr,
  readsInIndex,
  rewriteReads,
  spatialAxesOf,
  substitute,
  substituteAxes,
  tensorsOf,
  walk,
} from "./expression.ts";
import { parseEpilogue, parseEquation, problemOfSize, spanOf } from "./parse.ts";
import type { Part, Program } from "./program.ts";
import { constantsOf, constantValue, inTime, type Time, timeOf } from "./time.ts";
import { checkLiterals, type DTypes, dropIdleCasts, typeOf } from "./typing.ts";
import { checkInside, checkWritten, writtenShape } from "./written.ts";

/** A loop of the iteration domain. A reduce axis indexes no output: it is summed away. */
export interface Axis {
  readonly name: string;
  readonly extent: number;
  readonly kind: "spatial" | "reduce";
}

/** A tensor of a computation: its type, its dimensions, and where each element lies. */
export interface Tensor {
  readonly name: string;
  readonly dtype: DType;
  /** Logical dimensions, in the order the equation indexes them. */
  readonly dims: readonly Dimension[];
  /** Element offset in memory of the logical element, over the dimension names. */
  readonly storage: Expr;
  /** Its values are known before the run, as weights are, so it may be packed ahead of time. */
  readonly constant: boolean;
}

/** What is computed: an equation with the extents of its axes, and the type and layout of each tensor. */
export interface Computation {
  /** Used in messages, lists and file names. */
  readonly name: string;
  /** The equation over the axes, with parameters substituted by numbers. */
  readonly equation: Equation;
  /** Kept axes as the target names them, then summed ones. */
  readonly axes: readonly Axis[];
  /** Tensors in memory by name: the output first, then inputs in the order in which the equations read them. */
  readonly tensors: Readonly<Record<string, Tensor>>;
  /** Element-wise equation applied to each element of the target before it is stored. */
  readonly epilogue?: Epilogue;
  /** For an equation that steps through time; its tensors are then planes. */
  readonly time?: Time;
  /** Where one kernel computes several: all of them. The equation is then the last, the tensors are those of all, and there are no axes. */
  readonly program?: Program;
  /** How its loops were rewritten from those of the user's equation; the tensors stay the same. Left out when they were not. */
  readonly rewriting?: Rewriting;
}

/** Rewritings of a computation's loops; see mapper/match/phases.ts, and bands.ts for runs of so many results. */
export const REWRITINGS = ["phases", "reversed", "bands-8", "bands-16", "bands-32"] as const;

export interface Rewriting {
  readonly kind: (typeof REWRITINGS)[number];
  /** Each loop of the user's equation in terms of the new loops, `p = p*2+p_phase-1`. */
  readonly places: readonly string[];
  /** Loops over the phases of strides. */
  readonly phases: readonly string[];
}

/** A tensor of a computation as it is written down. */
export interface TensorSpec {
  /** May be left out when it follows from the value that an equation assigns. */
  readonly dtype?: DType;
  /** Names for the dimensions; by default the axis that indexes it alone, else `d0`, `d1` ... */
  readonly dims?: readonly string[];
  /** Sizes; by default the smallest that hold every index the equation reaches. */
  readonly shape?: readonly number[];
  /** A layout name (`NHWC`); row-major by default. */
  readonly layout?: string;
  /** Replaces the layout name: the element offset as a formula over the dimension names, `(l/49)*3136 + c*49 + l%49`. */
  readonly storage?: string;
  /** Its values never change, as those of weights, so it may be packed once ahead of time. */
  readonly constant?: boolean;
}

const TENSOR = { dtype: true, dims: true, shape: true, layout: true, storage: true, constant: true } as const;

/** A computation as it is written down. */
export interface ComputationSpec {
  /** In messages, lists and file names; `equation` by default. */
  readonly name?: string;
  /** As text with its epilogue behind a semicolon, if it has one. */
  readonly equation: string | Equation;
  /** `res[i,j] = max(c[i,j], 0)`: the output is `res`, and `c` is never stored. */
  readonly epilogue?: string | Equation;
  /** Extent of every axis, and values of named integer parameters (`stride`). */
  readonly extents: Extents;
  /** The type of each tensor, or a full description. The target's type defaults to the type of the value. */
  readonly tensors: Readonly<Record<string, DType | TensorSpec>>;
  /** Names in the equation that are constants rather than axes. */
  readonly parameters?: Extents;
}

const SPEC = { name: true, equation: true, epilogue: true, extents: true, tensors: true, parameters: true } as const;

/** The extent of every axis of an equation. @throws UsageError for an axis without an extent, or an extent without an axis */
function axesGiven(
  subject: string,
  extents: Extents,
  names: readonly string[],
  equation: Equation,
): (readonly [name: string, extent: number])[] {
  for (const given of Object.keys(extents))
    if (!names.includes(given))
      throw new UsageError(`${subject}: no axis or parameter "${given}"`, suggestion(given, names));
  return names.map((name) => {
    const extent = extents[name];
    if (extent === undefined)
      throw new UsageError(
        `${subject}: axis "${name}" has no extent`,
        placeOfAxis(equation, name, `give it one, for example --${name} 64`),
      );
    if (!Number.isSafeInteger(extent) || extent < 1)
      throw new UsageError(`${subject}: extent of ${name} must be a positive integer, got ${extent}`);
    return [name, extent] as const;
  });
}

/** The described tensors by name. @throws UsageError for a tensor that no equation mentions, or an unknown property */
function tensorsGiven(
  subject: string,
  { tensors }: ComputationSpec,
  used: readonly string[],
): ReadonlyMap<string, TensorSpec> {
  const specs = Object.entries(tensors).map(([tensor, given]): readonly [string, TensorSpec] => [
    tensor,
    typeof given === "string" ? { dtype: given } : given,
  ]);
  for (const [tensor, about] of specs) {
    if (!used.includes(tensor))
      throw new UsageError(`${subject}: the equation has no tensor "${tensor}"`, suggestion(tensor, used));
    checkNames(about, TENSOR, `${subject}: tensor ${tensor}`);
  }
  return new Map(specs);
}

/** The described types. @throws UsageError for an unknown type, or an input without one */
function typesGiven(
  subject: string,
  specs: ReadonlyMap<string, TensorSpec>,
  inputs: readonly string[],
): Record<string, DType> {
  const dtypes: Record<string, DType> = {};
  for (const [tensor, { dtype }] of specs) {
    if (dtype === undefined) continue;
    if (!isDType(dtype))
      throw new UsageError(
        `${subject}: unknown data type "${String(dtype)}" of ${tensor}`,
        suggestion(String(dtype), DTYPES),
      );
    dtypes[tensor] = dtype;
  }
  for (const tensor of inputs)
    if (!(tensor in dtypes))
      throw new UsageError(`${subject}: tensor "${tensor}" has no data type`, `known types: ${DTYPES.join(", ")}`);
  return dtypes;
}

/**
 * Checks and completes a computation.
 * @throws UsageError when an axis has no extent, an index is not affine, types disagree or a tensor is not described
 */
export function defineComputation(spec: ComputationSpec): Computation {
  const name = spec.name ?? "equation";
  checkNames(spec, SPEC, `${name}: the computation`);
  const [given, ending] = readEquations(name, spec);
  for (const equation of ending ? [given, ending] : [given]) {
    const problem = problemOfSize(equation);
    if (problem !== undefined) throw new UsageError(`${name}: as printed, the equation ${problem}`);
  }
  const parsed = ending ? needed(given, ending) : given;
  const timed = timeOf(name, parsed, ending, spec);
  if (timed) return inTime(timed, defineComputation({ ...spec, ...timed.step }));
  const numbers = constantsOf(parsed).filter((constant) => !Object.hasOwn(spec.parameters ?? {}, constant));
  if (numbers.length > 0) {
    const values = numbers.map((constant) => [constant, constantValue(name, constant, spec.extents)] as const);
    const extents = Object.fromEntries(Object.entries(spec.extents).filter(([axis]) => !numbers.includes(axis)));
    return defineComputation({ ...spec, extents, parameters: { ...spec.parameters, ...Object.fromEntries(values) } });
  }
  const bound = new Map(Object.entries(spec.parameters ?? {}).map(([parameter, value]) => [parameter, number(value)]));

  // 1. Axes: the target's are spatial, the rest are summed.
  checkIndices(name, parsed, bound);
  const equation = bound.size === 0 ? parsed : substituteAxes(parsed, bound);
  const spatial = new Set(spatialAxesOf(equation));
  const axes = axesGiven(name, spec.extents, axesOf(equation), parsed).map(
    ([axisName, extent]): Axis => ({ name: axisName, extent, kind: spatial.has(axisName) ? "spatial" : "reduce" }),
  );

  // 2. Types: every input is described; the target's follows from the value unless given.
  const epilogue = ending && (bound.size === 0 ? ending : substituteAxes(ending, bound));
  if (epilogue) checkEpilogue(name, epilogue, equation);
  const target = equation.target.tensor;
  const used = [...new Set([...tensorsOf(equation), ...(epilogue ? tensorsOf(epilogue) : [])])];
  const assigned = [target, epilogue?.target.tensor];
  const specs = tensorsGiven(name, spec, used);
  const dtypes = typesGiven(
    name,
    specs,
    used.filter((tensor) => !assigned.includes(tensor)),
  );
  const recurrent = isRecurrent(equation);
  checkConditions(name, equation, dtypes);
  if (epilogue) checkConditions(name, epilogue);
  if (recurrent && dtypes[target] === undefined)
    throw new UsageError(`${name}: "${target}" reads itself, so its data type must be given`);
  // Where a parameter indexes a tensor, its value has no place in the text.
  if (recurrent)
    checkDependences(name, [...bound.keys()].every((p) => constantsOf(parsed).includes(p)) ? parsed : equation);
  if (recurrent && epilogue)
    throw new UsageError(`${name}: "${target}" reads itself, so it must be stored; an epilogue cannot take its place`);
  const typed = typeTarget(name, equation, dtypes);

  // 3. Shapes and layouts.
  const extents = extentsBy(axes);
  const complete = (tensor: string, within: Equation, sizes: Extents): Tensor => {
    // A tensor that the equation both reads and assigns is as large as its axes; reads beyond them lie outside.
    const all = accessesOf(within).filter((a) => a.tensor === tensor);
    const accesses = recurrent && tensor === target ? all.slice(0, 1) : all;
    return completeTensor(name, tensor, dtypes[tensor] ?? "f32", specs.get(tensor), accesses, sizes);
  };
  const tensors = Object.fromEntries(tensorsOf(typed).map((tensor) => [tensor, complete(tensor, typed, extents)]));
  const sum = tensors[target];
  const whole = withExtents(typed, tensors);
  checkIndexReads(name, whole, tensors, extents);
  if (!epilogue || !sum) return { name, equation: whole, axes, tensors };

  const made = { name, equation: whole, axes, tensors };
  const held = specs.get(target);
  if (held?.layout !== undefined || held?.storage !== undefined)
    throw new UsageError(`${name}: ${target} is never stored; ${epilogue.target.tensor} has the layout`);
  checkEveryElementOnce(name, typed.target, sum, axes);
  return withEpilogue(made, sum, typeEpilogue(name, epilogue, dtypes), specs, dtypes);
}

/**
 * The computation with some inputs marked as constant: their values never change, so they are packed once ahead of time.
 * @throws UsageError for a name that is no input
 */
export function withConstants(computation: Computation, names: readonly string[]): Computation {
  const inputs = namesOf(inputsOf(computation));
  const stray = names.find((tensor) => !inputs.includes(tensor));
  if (stray !== undefined) {
    const isMade = [outputOf(computation).name, targetOf(computation).name].includes(stray);
    throw new UsageError(
      isMade
        ? `${computation.name}: ${stray} is computed, so it cannot be constant`
        : `${computation.name}: there is no tensor "${stray}" that could be constant`,
      isMade ? `inputs are ${inputs.join(", ")}` : suggestion(stray, inputs),
    );
  }
  const tensors = Object.entries(computation.tensors).map(([tensor, about]) => [
    tensor,
    names.includes(tensor) ? { ...about, constant: true } : about,
  ]);
  return { ...computation, tensors: Object.fromEntries(tensors) };
}

/** Adds the tensors of an epilogue, whose output replaces the sum. */
function withEpilogue(
  made: Computation,
  sum: Tensor,
  epilogue: Equation,
  specs: ReadonlyMap<string, TensorSpec>,
  dtypes: Readonly<Record<string, DType>>,
): Computation {
  const { name, tensors } = made;

  // 1. The output: elements of the sum at their own or other places, and elements assigned beside them.
  const extents = extentsOf(made);
  const elements = elementExtents(epilogue, sum);
  const equations = [
    { equation: epilogue, extents: elements },
    ...(epilogue.beside ?? []).map((equation) => ({ equation, extents })),
  ];
  const output = epilogue.target.tensor;
  const about = specs.get(output);
  const shape = isElementwise(epilogue) ? about?.shape : writtenShape(name, equations, about?.shape);

  // 2. The output first, then inputs as the equations read them.
  const completed = (tensor: string): Tensor => {
    const own = tensor === output && shape ? { ...about, shape } : specs.get(tensor);
    const accesses = equations.flatMap((e) => accessesOf(e.equation)).filter((a) => a.tensor === tensor);
    return completeTensor(name, tensor, dtypes[tensor] ?? "f32", own, accesses, { ...extents, ...elements });
  };
  const { [sum.name]: _, ...inputs } = tensors;
  const added = tensorsOf(epilogue).filter((tensor) => !(tensor in tensors));
  const all: Record<string, Tensor> = {};
  for (const tensor of [...added.slice(0, 1), ...Object.keys(inputs), ...added.slice(1)])
    all[tensor] = inputs[tensor] ?? completed(tensor);
  const placed = isElementwise(epilogue) ? accessesOf(epilogue) : accessesIn(epilogue.value);
  for (const each of placed) checkInside(`${name}: epilogue`, each, all[each.tensor] ?? sum, elements);
  for (const each of (epilogue.beside ?? []).flatMap((e) => accessesIn(e.value)))
    checkInside(`${name}: epilogue`, each, all[each.tensor] ?? sum, extents);
  if (isElementwise(epilogue)) checkWritten(name, epilogue.target, all[output] ?? sum, elements);
  return { ...made, tensors: all, epilogue: { equation: epilogue, sum } };
}

/** The epilogue and the equations beside it, without casts to the type a value already has. */
function typeEpilogue(subject: string, epilogue: Equation, dtypes: Record<string, DType>): Equation {
  const typed = typeTarget(subject, epilogue, dtypes);
  return typed.beside ? { ...typed, beside: typed.beside.map((e) => typeTarget(subject, e, dtypes)) } : typed;
}

/** The equation and its epilogue, from one text or two. */
function readEquations(subject: string, { equation, epilogue }: ComputationSpec): [Equation, Equation | undefined] {
  const read = (given: string | Equation): Equation => (typeof given === "string" ? parseEpilogue(given) : given);
  if (typeof equation !== "string") return [equation, epilogue === undefined ? undefined : read(epilogue)];
  const [text = "", ...behind] = equation.split(";");
  const ending = epilogue ?? behind[0];
  if (behind.length + (epilogue === undefined ? 0 : 1) > 1)
    throw new UsageError(
      `${subject}: there can be one epilogue, got ${behind.length + (epilogue === undefined ? 0 : 1)}`,
    );
  return [parseEquation(text), ending === undefined ? undefined : read(ending)];
}

/** The equation without idle casts; records the target's type in `dtypes`. @throws UsageError when that type and the value's disagree */
function typeTarget(subject: string, equation: Equation, dtypes: Record<string, DType>): Equation {
  const target = equation.target.tensor;
  const valueType = typeOf(equation.value, dtypes);
  const targetType = dtypes[target] ?? valueType ?? "f32";
  dtypes[target] = targetType;
  if (valueType === undefined) checkLiterals(equation.value, targetType);
  if (valueType !== undefined && valueType !== targetType) {
    throw new UsageError(
      `${subject}: ${target} is ${targetType} but the value is ${valueType}`,
      `cast the value: ${targetType}(...)`,
    );
  }
  return { ...equation, value: dropIdleCasts(equation.value, dtypes) };
}

/** The equations in order, each with its epilogue behind it; those of a program under its names of tensors. */
export function equationsOf({ equation, epilogue, program }: Computation): Equation[] {
  return program ? program.parts.flatMap(namedEquations) : [equation, ...(epilogue ? [epilogue.equation] : [])];
}

function namedEquations({ computation, names }: Part): Equation[] {
  const { equation, epilogue } = computation;
  const sum = equation.target.tensor;
  const held = epilogue ? `${names[outputOf(computation).name]}_sum` : names[sum];
  const named = (e: Access): Access => ({ ...e, tensor: (e.tensor === sum ? held : names[e.tensor]) ?? e.tensor });
  return [equation, ...(epilogue ? [epilogue.equation] : [])].map((one) => ({
    ...one,
    target: named(one.target),
    value: rewriteReads(one.value, named),
  }));
}

/** The canonical text of the equations, parameters bound and idle casts dropped, with semicolons between them. */
export function equationText(computation: Computation): string {
  return equationsOf(computation).map(printEquation).join("; ");
}

/** The tensor that the equation assigns. With an epilogue it is held in registers and not stored. */
export function targetOf(computation: Computation): Tensor {
  return tensorOf(computation, computation.equation.target.tensor);
}

/** What is stored: the target of the epilogue, or of the equation where there is none. */
export function outputOf(computation: Computation): Tensor {
  return tensorOf(computation, (computation.epilogue?.equation ?? computation.equation).target.tensor);
}

/** Names of the tensors that a kernel may write: the output, and what each computation of a program makes. */
export function writtenBy(computation: Computation): ReadonlySet<string> {
  const { parts } = computation.program ?? {};
  const written = parts?.map((part) => part.names[outputOf(part.computation).name] ?? "");
  return new Set(written ?? [outputOf(computation).name]);
}

/** Input tensors in the order the equations read them. */
export function inputsOf(computation: Computation): Tensor[] {
  const output = outputOf(computation).name;
  return Object.values(computation.tensors).filter((t) => t.name !== output);
}

export function tensorOf(computation: Computation, name: string): Tensor {
  const { sum } = computation.epilogue ?? {};
  const tensor = sum?.name === name ? sum : computation.tensors[name];
  return tensor ?? internal(`no tensor "${name}" in ${computation.name}`);
}

const extentsOfAxes = memoised((axes: Computation["axes"]): Extents => extentsBy(axes));

/** Extents of the loops. */
export const extentsOf = ({ axes }: Computation): Extents => extentsOfAxes(axes);

/** Loops that are summed over. */
export const summedIn = <L extends Pick<Axis, "kind">>(loops: readonly L[]): L[] =>
  loops.filter(({ kind }) => kind === "reduce");

/** Loops that index results. */
export const keptIn = <L extends Pick<Axis, "kind">>(loops: readonly L[]): L[] =>
  loops.filter(({ kind }) => kind === "spatial");

/** The value of a sum before anything is added. */
export const identityIn = (computation: Computation): number =>
  identityOf(computation.equation.op, targetOf(computation).dtype);

/** Points of the iteration domain, ignoring conditions; in a contraction each point is one multiply-add. */
export function pointCount(computation: Computation): number {
  if (computation.program) return sumOf(computation.program.parts, (part) => pointCount(part.computation));
  return pointsIn(computation.axes);
}

/** Number of logical elements. */
export function elementCount(tensor: Tensor): number {
  return pointsIn(tensor.dims);
}

/** Elements of memory the tensor takes, holes of a blocked layout included. */
export const memoryElements = memoised(({ dims, storage }: Tensor): number => {
  const extents = extentsBy(dims);
  return boundsOf(storage, extents)[1] + 1;
});

/** Whether elements lie in the order of their dimensions without gaps. Decided from the storage formula, without visiting the elements. */
export function liesRowMajor({ dims, storage }: Pick<Tensor, "dims" | "storage">): boolean {
  const affine = affineForm(storage);
  if (affine === undefined || affine.constant !== 0) return false;
  let step = 1;
  for (const { name, extent } of [...dims].reverse()) {
    if (extent > 1 && affine.terms.get(name) !== step) return false;
    step *= extent;
  }
  return true;
}

/** Equal for equal computations: covers equation, epilogue, extents, types, shapes and layouts. */
export function computationKey(computation: Computation): string {
  const { program } = computation;
  if (program) {
    const parts = program.parts.map(({ computation: one, names }) => {
      const tensors = Object.keys(one.tensors).map((tensor) => `${tensor}=${names[tensor]}`);
      return `${computationKey(one)}; ${tensors.join(",")}`;
    });
    return [...parts, `stored ${program.stored.join(",")}`].join("; ");
  }
  const axes = computation.axes.map((a) => `${a.name}=${a.extent}`).join(",");
  const tensors = Object.values(computation.tensors).map(
    (t) =>
      `${t.name}:${t.dtype}[${shapeOf(t).join(",")}]@${printExpr(t.storage, "formula")}${t.constant ? " constant" : ""}`,
  );
  const held =
    computation.epilogue === undefined ? [] : [`${computation.epilogue.sum.name}:${targetOf(computation).dtype}`];
  return [equationText(computation), axes, ...held, ...tensors].join("; ");
}

/** A tensor with the dimensions that accesses index. @throws UsageError when they disagree with one another or with what is given */
export function completeTensor(
  subject: string,
  name: string,
  dtype: DType,
  spec: TensorSpec | undefined,
  accesses: readonly Access[],
  extents: Extents,
): Tensor {
  const rank = accesses[0]?.index.length ?? 0;
  const other = accesses.find((a) => a.index.length !== rank);
  if (other)
    throw new UsageError(
      `${subject}: ${printAccess(other)} has rank ${other.index.length}, elsewhere ${name} has rank ${rank}`,
      spanOf(other),
    );
  if (spec?.shape && spec.shape.length !== rank)
    throw new UsageError(`${subject}: ${name} has rank ${rank} but a shape of rank ${spec.shape.length}`);
  if (spec?.dims && spec.dims.length !== rank)
    throw new UsageError(`${subject}: ${name} has rank ${rank} but names for rank ${spec.dims.length}`);
  for (const size of spec?.shape ?? [])
    if (!Number.isSafeInteger(size) || size < 1)
      throw new UsageError(`${subject}: the shape of ${name} must hold positive integers, got ${size}`);
  const dims = upTo(rank).map((d): Dimension => {
    const index = accesses.map((a) => a.index[d]).filter((e) => e !== undefined);
    const plain = index.find((e) => e.kind === "axis");
    const alone = plain?.kind === "axis" ? plain.name : `d${d}`;
    return { name: spec?.dims?.[d] ?? alone, extent: spec?.shape?.[d] ?? reachOf(index, extents) };
  });
  // Two dimensions indexed by the same axis need names of their own.
  const taken = new Set<string>();
  const unique = dims.map((dim, d) => {
    let free = dim.name;
    for (let i = d; taken.has(free) || (free !== dim.name && hasName(dims, free)); i++) free = `d${i}`;
    taken.add(free);
    return { ...dim, name: free };
  });
  if (spec?.layout !== undefined && spec.storage !== undefined)
    throw new UsageError(`${subject}: ${name} has a layout and a storage formula; give one`);
  const storage =
    spec?.layout !== undefined
      ? layoutStorage(spec.layout, unique, `${subject}: layout of ${name}`)
      : spec?.storage !== undefined
        ? storageFormula(spec.storage, unique, `${subject}: storage of ${name}`)
        : rowMajor(unique);
  return { name, dtype, dims: unique, storage, constant: spec?.constant ?? false };
}

/** @throws UsageError for an index that is not affine once parameters are substituted */
function checkIndices(subject: string, equation: Equation, parameters: ReadonlyMap<string, Expr>): void {
  for (const node of accessesOf(equation)) {
    for (const index of node.index) {
      if (index.kind === "border" && node === equation.target)
        throw new UsageError(
          `${subject}: ${printAccess(node)} is assigned, and only a read has a border`,
          spanOf(index),
        );
      const inner = index.kind === "border" ? index.index : index;
      // What is read has a turn of its own.
      if (index.kind === "border" && inner.kind === "access") {
        checkIndexRead(subject, inner);
        continue;
      }
      const offending = offendingPart(substitute(inner, parameters, "index"));
      if (offending) {
        const place = spanOf(offending.part) ?? spanOf(index);
        throw new UsageError(`${subject}: index of ${printAccess(node)} is not affine: ${offending.because}`, place);
      }
    }
  }
}

/** An index that is read must keep to its dimension, and its own indices are affine. */
function checkIndexRead(subject: string, read: Access): void {
  if (readsInIndex(read).length > 0)
    throw new UsageError(
      `${subject}: ${printAccess(read)} is an index and has an index that is read; one may be, not both`,
      spanOf(read),
    );
}

/**
 * Checks indices that are read from a tensor, and elements that a `where` compares: integers of at most 32 bits, of
 * elements that the tensor has. Outside it an index would be the number of no element.
 * @throws UsageError
 */
function checkIndexReads(
  subject: string,
  equation: Equation,
  tensors: Readonly<Record<string, Tensor>>,
  extents: Extents,
): void {
  const indices = accessesIn(equation.value).flatMap(readsInIndex);
  for (const read of indices) checkRead(subject, equation, read, "an index", tensors, extents);
  for (const read of equation.where ? accessesIn(equation.where) : []) {
    const [bordered] = read.index.filter((e) => e.kind === "border");
    if (bordered)
      throw new UsageError(
        `${subject}: ${printAccess(read)} is in a condition, where indices have no border`,
        spanOf(bordered),
      );
    checkRead(subject, equation, read, "in a condition", tensors, extents);
  }
}

/** @param stands where the element stands */
function checkRead(
  subject: string,
  equation: Equation,
  read: Access,
  stands: "an index" | "in a condition",
  tensors: Readonly<Record<string, Tensor>>,
  extents: Extents,
): void {
  const place = spanOf(read);
  if (isRecurrent(equation))
    throw new UsageError(
      `${subject}: "${equation.target.tensor}" reads itself, so its ${stands === "an index" ? "indices" : "conditions"} cannot be read from a tensor`,
      place,
    );
  const held = tensors[read.tensor] ?? internal(`no tensor ${read.tensor}`);
  if (!isInteger(held.dtype) || held.dtype === "u32")
    throw new UsageError(
      `${subject}: ${printAccess(read)} is ${stands}, and ${read.tensor} holds ${held.dtype}; integers up to s32 ${stands === "an index" ? "are indices" : "can be compared there"}`,
      place,
    );
  checkInside(subject, read, held, extents);
}

/**
 * @param dtypes types of the inputs, whose elements a select may compare: `select(a[i] == b[j], 2, -1)`. Left out for an epilogue, which may
 * compare no elements, because its sums are rounded.
 * @throws UsageError for a condition that compares neither affine indices nor elements
 */
function checkConditions(subject: string, { target, value, where }: Equation, dtypes?: DTypes): void {
  const inputs = dtypes && Object.fromEntries(Object.entries(dtypes).filter(([name]) => name !== target.tensor));
  if (where !== undefined) checkCondition(subject, where, inputs);
  for (const node of walk(value)) if (node.kind === "select") checkCondition(subject, node.condition, inputs);
}

/** Conditions must compare indices, so that lowering can cut a program to the points where they hold. */
function checkCondition(subject: string, condition: Expr, inputs?: DTypes): void {
  if (condition.kind === "logic") {
    checkCondition(subject, condition.left, inputs);
    checkCondition(subject, condition.right, inputs);
    return;
  }
  if (condition.kind !== "compare")
    throw new UsageError(`${subject}: "${printExpr(condition)}" is not a condition`, spanOf(condition));
  if (inputs && comparesElements(condition)) {
    checkElements(subject, condition, inputs);
    return;
  }
  for (const side of [condition.left, condition.right]) {
    const offending = offendingPart(side);
    if (offending)
      throw new UsageError(
        `${subject}: condition ${printExpr(condition)} is not affine: ${offending.because}`,
        spanOf(offending.part),
      );
  }
}

/**
 * Elements may be compared with one another or with a number, and s32 elements with an axis; never the results of
 * arithmetic, which are rounded.
 */
function checkElements(subject: string, condition: Compare, inputs: DTypes): void {
  const sides = [condition.left, condition.right];
  const odd = sides.find(
    (e) => e.kind !== "number" && e.kind !== "axis" && !(e.kind === "access" && Object.hasOwn(inputs, e.tensor)),
  );
  if (odd)
    throw new UsageError(
      `${subject}: condition ${printExpr(condition)} compares ${printExpr(odd)}; elements of inputs are compared as they are, with one another or with a number`,
      spanOf(odd),
    );
  typeOf({ kind: "call", fn: "max", args: sides }, inputs);
}

/** Where an axis first stands in the text of an equation. */
function placeOfAxis(
  equation: Equation,
  name: string,
  hint: string,
): { source?: string; span?: { start: number; end: number }; hint: string } {
  const roots = [equation.target, equation.value, ...(equation.where === undefined ? [] : [equation.where])];
  for (const root of roots)
    for (const node of walk(root)) if (node.kind === "axis" && node.name === name) return { ...spanOf(node), hint };
  return { hint };
}

/**
 * The extent of a dimension, from the indices that read it. Plain indices decide it where there are any. Otherwise the
 * reads are taken to cross both borders by the same distance: `clamp(i+r-1)` of 8 outputs and 3 taps runs from -1 to 8,
 * so the extent is 8.
 */
function reachOf(indices: readonly Expr[], extents: Extents): number {
  const plain = indices.filter((e) => e.kind !== "border");
  if (plain.length > 0) return Math.max(...plain.map((e) => boundsOf(e, extents)[1] + 1), 1);
  const inner = indices.map((e) => (e.kind === "border" ? e.index : e));
  const read = inner.find((e) => e.kind === "access");
  if (read)
    throw new UsageError(
      `an index is read from a tensor, ${printExpr(read)}: give the shape of what it is an index of`,
      "as `shape` of the tensor, or --shape table=1000x16 on the command line",
    );
  const bounds = inner.map((e) => boundsOf(e, extents));
  const least = Math.min(0, ...bounds.map(([min]) => min));
  return Math.max(1, ...bounds.map(([, max]) => max + 1 + least));
}

/** The equation with the dimension's extent written into every border index. */
function withExtents(
  equation: Equation,
  tensors: Readonly<Record<string, { readonly dims: readonly { readonly extent: number }[] }>>,
): Equation {
  if (accessesIn(equation.value).every((a) => a.index.every((i) => i.kind !== "border"))) return equation;
  const value = rewriteReads(equation.value, (read) => {
    const dims = tensors[read.tensor]?.dims;
    const index = read.index.map((i, d) => (i.kind === "border" ? { ...i, extent: dims?.[d]?.extent } : i));
    return { ...read, index };
  });
  return { ...equation, value };
}
