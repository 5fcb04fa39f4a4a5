/**
 * @file Decision `repack` (layout transform): inputs that a separate kernel copies before the product, with the summed axis innermost.
 *
 *     repack a, b        in NCHW -> NHWC, w KCRS -> KRSC         each read once and written once in every call
 *     stride 2, 1x1      of in every other row and column
 *
 * In the original layout a filter tap shifts a row of pixels by 2 bytes; with channels innermost it shifts by whole
 * pixels. Tiles of the copy therefore move 16 bytes at once, as boxes, walks and windows. The other decisions see the
 * mapping of the same computation with the copies instead of the user's tensors.
 */

import { z } from "zod";
import { affineForm, type Dimension, type Extents, extentsBy, fuseRowMajor } from "../../abstraction/affine.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import {
  mapValues,
  memoisedBy,
  memoisedPair,
  namesOf,
  present,
  sortedBy,
  sumOf,
  withName,
} from "../../abstraction/collections.ts";
import {
  type Axis,
  type Computation,
  extentsOf,
  memoryElements,
  type Tensor,
  tensorOf,
} from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import {
  type Access,
  accessesOf,
  axis,
  type Expr,
  number,
  plus,
  printExpr,
  rewrite,
  times,
} from "../../abstraction/expression.ts";
import type { Binding, Mapping } from "../../abstraction/mapping.ts";
import { identifier } from "../../abstraction/schema.ts";
import { formsIn, mappedLoops, placesAlong } from "./dense-runs.ts";
import { fusedDimension } from "./dimensions.ts";
import {
  type GridContext,
  type GridDecision,
  type GridInput,
  gridContext,
  MOST_BYTES,
  type Picked,
  type RepackedInput,
  runAlong,
} from "./grid-context.ts";

/** Largest size of all copies, the same as for partial sums. */
const MOST_COPY_BYTES = 2 ** 32;

export const repack: GridDecision<"repack"> = {
  summary:
    "Inputs that a separate kernel first copies with the summed axis innermost, so that their tiles are copied 16 bytes at a time. By default every input is read in its own layout.",
  example: "a, b",
  schema: z.array(identifier).min(1).max(2).optional(),
  values: repackings,
  print: (names) => names?.join(", "),
  traits: ({ repack: names }) => (names ? [`repack ${names.length}`] : []),
  problem: repackProblem,
};

/** Sets of inputs to copy: none, each by itself, all. */
export function repackings(context: GridContext): readonly GridSchedule["repack"][] {
  const plain = plainOf(context);
  const names = plain.inputs.flatMap((input) =>
    typeof repackedForm(plain, input) === "string" ? [] : [input.operand.name],
  );
  return [undefined, ...names.map((name) => [name]), ...(names.length > 1 ? [names] : [])];
}

/** The mapping without copies. */
const plainOf = (context: GridContext): GridContext => context.repacked?.plain ?? context;

const repackedForms = memoisedBy<Computation, RepackedInput | string>();

/**
 * How an input could be copied, or one sentence on why a copy would not help. Cached for all instructions of a family,
 * which differ only in their extents.
 */
function repackedForm(plain: GridContext, input: GridInput): RepackedInput | string {
  const { computation, matching } = plain.mapping;
  const { operand, value, contiguous, width, conditions } = input;
  const key = JSON.stringify([
    operand.name,
    operand.dtype,
    printExpr(value),
    contiguous,
    width,
    conditions.length,
    matching,
  ]);
  return repackedForms(computation, key, () => findForm(plain, input));
}

function findForm(plain: GridContext, input: GridInput): RepackedInput | string {
  const { operand, value, conditions, width } = input;
  const { computation } = plain.mapping;
  const { name } = operand;
  if (value.kind !== "access" || conditions.length > 0)
    return `${name} is computed, and a copy of it would be no tensor's`;
  const source = tensorOf(computation, value.tensor);
  if (width * bytesOf(source.dtype) >= MOST_BYTES) return `${source.name} already moves ${MOST_BYTES} bytes at once`;
  if (accessesOf(computation.equation).filter((a) => a.tensor === source.name).length > 1)
    return `${source.name} is read in several places`;

  // 1. Dimensions along the sum, in the order of its loops; of the others, those that are innermost.
  const forms = formsIn(value);
  const loops = plain.sum.dimension?.loops ?? [];
  const summed = loops.flatMap((l) => source.dims.filter((_, i) => forms[i]?.terms.has(l.name) ?? false));
  const byPitch = dimsByPitch(source);
  const last = byPitch.findLastIndex((d) => summed.includes(d));
  const along = byPitch.slice(last + 1).filter((d) => d.extent > 1);
  if (summed.length === 0 || along.length === 0 || new Set(summed).size < summed.length)
    return `${source.name} has its neighbours along ${plain.sum.axis} side by side`;

  // 2. The copy must help: more neighbours can move at once.
  const { access, copy, picked } = copyOf(computation, value, summed);
  const most = MOST_BYTES / bytesOf(copy.dtype);
  const moved = runAlong(access, plain.sum.dimension, () => copy, most, mappedLoops(plain.mapping));
  if (moved <= width) return `a copy of ${source.name} would move no more of it at once`;
  const inCopy = (all: readonly Dimension[]): Dimension[] =>
    all.flatMap((d) => copy.dims.filter((c) => c.name === d.name));
  const outer = byPitch.filter((d) => !summed.includes(d) && !along.includes(d));
  return {
    operand: name,
    source,
    copy,
    access,
    picked,
    summed: inCopy(summed),
    along: inCopy(along),
    outer: inCopy(outer),
  };
}

type Copied = Pick<RepackedInput, "copy" | "access" | "picked">;

const copies = memoisedBy<Computation, Copied>();

/** A tensor with some of its dimensions innermost, and its access; shared by all mappings that sum along them. */
function copyOf(computation: Computation, value: Access, summed: readonly Dimension[]): Copied {
  const key = JSON.stringify([value.tensor, namesOf(summed)]);
  return copies(computation, key, () => makeCopy(computation, value, summed));
}

function makeCopy(computation: Computation, value: Access, summed: readonly Dimension[]): Copied {
  const source = tensorOf(computation, value.tensor);
  // Of each dimension, only positions that strides reach.
  const kept = value.index.map((e, i) => reached(e, source.dims[i]?.extent ?? 1, extentsOf(computation)));
  const dims = source.dims.map((d, i) => ({ name: d.name, extent: kept[i]?.extent ?? d.extent }));
  const inOrder = [...dimsByPitch(source).filter((d) => !summed.includes(d)), ...summed];
  const digits = inOrder.map(({ name }) => ({
    index: axis(name),
    extent: withName(dims, name)?.extent ?? 1,
  }));
  let name = `${source.name}_packed`;
  while (name in computation.tensors) name += "_";
  return {
    copy: { ...source, name, dims, storage: fuseRowMajor(digits), constant: false },
    access: { ...value, tensor: name, index: kept.map((k) => k.index) },
    picked: Object.fromEntries(dims.map((d, i) => [d.name, kept[i] ?? { first: 0, step: 1 }])),
  };
}

/**
 * The positions of a dimension that an index reaches, where its steps have a common divisor, and the index that numbers
 * them.
 *
 *     2*p - 1, p in 0..28, of 56        places 1, 3, .. 55: p - 1
 */
function reached(e: Expr, extent: number, loops: Extents): Picked & { readonly index: Expr; readonly extent: number } {
  const form = affineForm(e);
  const terms = [...(form?.terms ?? [])].filter(([name]) => loops[name] !== 1);
  const step = terms.reduce((all, [, by]) => divisor(all, by), 0);
  if (!form || step < 2) return { index: e, extent, first: 0, step: 1 };
  const first = ((form.constant % step) + step) % step;
  const index = terms.reduce<Expr>(
    (sum, [name, by]) => plus(times(by / step, axis(name)), sum),
    number((form.constant - first) / step),
  );
  return { index, extent: Math.max(1, Math.ceil((extent - first) / step)), first, step };
}

const divisor = (a: number, b: number): number => (b === 0 ? Math.abs(a) : divisor(b, a % b));

/**
 * Distance between neighbours along a dimension, in elements; for a dimension of one position, larger than the tensor.
 */
function pitchOf(tensor: Tensor, { name }: Dimension): number {
  const [first = 0, next] = placesAlong(tensor, name);
  return next === undefined ? Number.POSITIVE_INFINITY : next - first;
}

/** The dimensions of a tensor, the innermost last. */
const dimsByPitch = (tensor: Tensor): Dimension[] => sortedBy(tensor.dims, (a) => -pitchOf(tensor, a));

/** Number of neighbours along some fused dimensions of a tensor that move at once. */
export function widthAlong(tensor: Tensor, dims: readonly Dimension[]): number {
  const loops = dims.map(({ name, extent }): Axis => ({ name, extent, kind: "spatial" }));
  const dimension = fusedDimension(loops);
  const whole: Access = { kind: "access", tensor: tensor.name, index: tensor.dims.map((d) => axis(d.name)) };
  const extents = extentsBy(tensor.dims);
  const most = MOST_BYTES / bytesOf(tensor.dtype);
  return Math.max(
    1,
    runAlong(whole, dimension, () => tensor, most, { extents, fed: new Set(), past: new Set() }),
  );
}

/** The context of the same mapping with copies instead of the tensors. */
function derive(plain: GridContext, inputs: readonly RepackedInput[]): GridContext | string {
  const { computation, binding } = plain.mapping;
  const key = inputs.map(({ copy }) => `${copy.name} ${printExpr(copy.storage)}`).join();
  const mapping: Mapping = {
    ...plain.mapping,
    computation: computations(computation, key, () => withCopies(computation, inputs)),
    binding: bindings(binding, key, () => mapValues(binding, (bound) => inCopies(bound, inputs))),
  };
  const context = gridContext(mapping, plain.limits);
  return typeof context === "string" ? context : { ...context, repacked: { plain, inputs } };
}

/** Cached by computation, so that mappings with the same copies share everything derived from it. */
const computations = memoisedBy<Computation, Computation>();
const bindings = memoisedBy<Binding, Binding>();

/** Replaces reads of tensors by reads of their copies. */
function inCopies(e: Expr, inputs: readonly RepackedInput[]): Expr {
  return rewrite(e, (node) => {
    const form = node.kind === "access" ? inputs.find((i) => i.source.name === node.tensor) : undefined;
    return form ? form.access : node;
  });
}

function withCopies(computation: Computation, inputs: readonly RepackedInput[]): Computation {
  const { epilogue, equation } = computation;
  const isStillRead = (name: string): boolean =>
    epilogue !== undefined && accessesOf(epilogue.equation).some((a) => a.tensor === name);
  const tensors = Object.values(computation.tensors).flatMap((t) => {
    const form = inputs.find((i) => i.source === t);
    return present([form?.copy, (!form || isStillRead(t.name)) && t]);
  });
  return {
    ...computation,
    equation: { ...equation, value: inCopies(equation.value, inputs) },
    tensors: Object.fromEntries(tensors.map((t) => [t.name, t])),
  };
}

/** The context for the remaining decisions once the copied inputs are known, or why they cannot be copied. */
function seen(context: GridContext, { repack: names }: Pick<GridSchedule, "repack">): GridContext | string {
  const plain = plainOf(context);
  return names === undefined ? plain : copying(plain, names.join());
}

const copying = memoisedPair((plain: GridContext, names: string): GridContext | string => {
  const all = plain.inputs.map((i) => i.operand.name);
  const listed = names.split(",");
  const found = plain.inputs.filter((i) => listed.includes(i.operand.name));
  if (found.map((i) => i.operand.name).join() !== names)
    return `inputs that are copied are some of ${all.join(", ")}, in this order, and not ${names}`;
  const forms = found.map((input) => repackedForm(plain, input));
  const refused = forms.find((f) => typeof f === "string");
  return (
    refused ??
    derive(
      plain,
      forms.filter((f) => typeof f !== "string"),
    )
  );
});

/**
 * The context of a schedule, with copies instead of the tensors that it repacks; unchanged when they cannot be
 * repacked.
 */
export function repackedContext(context: GridContext, schedule: Pick<GridSchedule, "repack">): GridContext {
  const found = seen(context, schedule);
  return typeof found === "string" ? plainOf(context) : found;
}

/** Why inputs cannot be copied first; undefined when they can. */
function repackProblem(context: GridContext, schedule: Pick<GridSchedule, "repack">): string | undefined {
  const found = seen(context, schedule);
  if (typeof found === "string") return found;
  const bytes = copiedBytes(found);
  return bytes > MOST_COPY_BYTES ? `copies of inputs take ${bytes} bytes, more than ${MOST_COPY_BYTES}` : undefined;
}

/** Bytes of all copies of a context. */
export function copiedBytes({ repacked }: GridContext): number {
  return sumOf(repacked?.inputs ?? [], ({ copy }) => memoryElements(copy) * bytesOf(copy.dtype));
}
