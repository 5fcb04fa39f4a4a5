/**
 * @file The oracle: runs equations exactly as they are written. Slow, obvious, never the fast path.
 *
 *     interpret(conv2d, { in: [...], w: [...] })      the output, row-major, as numbers
 *
 * Integers wrap or saturate as declared. Floats round to nearest even after every operation; the sum over the reduce axes is
 * kept in double precision and rounded once, when it joins the target. An epilogue starts from that rounded element.
 * Loop nests that were lowered from an equation are run by interpret-nest.ts.
 */

import { pointsIn, shapeOf } from "./affine.ts";
import { memoised } from "./collections.ts";
import {
  type Axis,
  type Computation,
  elementCount,
  inputsOf,
  keptIn,
  summedIn,
  type Tensor,
  targetOf,
} from "./computation.ts";
import { partsOf, together } from "./epilogue.ts";
import { type Buffer, compileEquation, compilePlace, type Environment, Scope, type Values } from "./evaluate.ts";
import { type Access, accessesIn, identityOf, number, readsIndices, rewriteReads, walk } from "./expression.ts";

/** Values of each input by name, in logical row-major order whatever the tensor's layout. */
export type Inputs = Readonly<Record<string, ArrayLike<number>>>;

/**
 * The output of a computation.
 * @param inputs one array per input tensor, row-major, holding values its type can hold
 * @throws Error when an input is missing or has the wrong number of elements
 */
export function interpret(computation: Computation, inputs: Inputs): Values {
  const target = targetOf(computation);
  const { time } = computation;
  if (time) {
    let plane = bufferOf(computation.name, target, inputs[time.first]).values;
    for (let step = 0; step < time.steps; step++) plane = interpret(time.step, { ...inputs, [time.first]: plane });
    return plane;
  }
  const { sum, epilogue, beside } = partsOf(computation);
  if (epilogue) {
    const finished = interpret(epilogue, { ...inputs, [target.name]: interpret(sum, inputs) });
    return together(
      finished,
      beside.map((other) => interpret(other, inputs)),
    );
  }
  const buffers = buffersFor(computation.name, inputsOf(computation), inputs);
  const output = new Float64Array(elementCount(target)).fill(identityOf(computation.equation.op, target.dtype));
  buffers.set(target.name, { values: output, shape: shapeOf(target), dtype: target.dtype });
  prepare(computation, buffers)();
  return output;
}

/** Runs an equation on buffers in place. The target keeps its previous contents, as an accumulator register does. */
export function interpretInPlace(computation: Computation, values: Readonly<Record<string, Values>>): void {
  prepare(computation, buffersFor(computation.name, Object.values(computation.tensors), values))();
}

/** Compiles the work of {@link interpretInPlace} once; each call runs it on the same arrays. */
export function prepareInPlace(computation: Computation, values: Readonly<Record<string, Values>>): () => void {
  const buffers = buffersFor(computation.name, Object.values(computation.tensors), values);
  const tables = tablesOf(computation);
  return tables ? prepareByTable(computation, buffers, tables) : prepare(computation, buffers);
}

const buffersFor = (subject: string, tensors: readonly Tensor[], values: Inputs): Map<string, Buffer> =>
  new Map(tensors.map((tensor) => [tensor.name, bufferOf(subject, tensor, values[tensor.name])]));

/** Place of every access at every point, spatial axes outside and reduce axes inside. For the target, at every spatial point. */
interface Tables {
  readonly target: Int32Array;
  readonly reads: ReadonlyMap<Access, Int32Array>;
  readonly reducePoints: number;
}

/** Undefined when a value depends on loop counters other than through the elements it reads. */
const tablesOf = memoised((computation: Computation): Tables | undefined => {
  const { equation } = computation;
  const withoutReads = rewriteReads(equation.value, () => number(0));
  const direct = [...walk(withoutReads)].every((e) => e.kind !== "axis" && e.kind !== "select");
  if (equation.where !== undefined || !direct || readsIndices(equation.value)) return undefined;
  const buffers = new Map<string, Buffer>();
  for (const tensor of Object.values(computation.tensors))
    buffers.set(tensor.name, { values: new Float64Array(0), shape: shapeOf(tensor), dtype: tensor.dtype });
  const scope = new Scope(buffers, 0);
  const { spatial, reduce } = axesInOrder(computation, scope);
  const placesOf = (read: Access, axes: readonly Axis[]): Int32Array => {
    const place = compilePlace(read, scope);
    const env = scope.environment();
    const places = new Int32Array(pointsIn(axes));
    let point = 0;
    nestOf(
      axes,
      scope,
      env,
    )(() => {
      places[point++] = place(env);
    });
    return places;
  };
  return {
    target: placesOf(equation.target, spatial),
    reads: new Map(accessesIn(equation.value).map((read) => [read, placesOf(read, [...spatial, ...reduce])])),
    reducePoints: pointsIn(reduce),
  };
});

/** {@link prepare} with precomputed places; the number of the point is the only loop counter. */
function prepareByTable(
  { equation, tensors }: Computation,
  buffers: ReadonlyMap<string, Buffer>,
  { target, reads, reducePoints }: Tables,
): () => void {
  const { op } = equation;
  const dtype = tensors[equation.target.tensor]?.dtype ?? "f32";
  const scope = new Scope(buffers, identityOf(op, dtype), reads);
  const { values: output, evaluate: value, join, fold } = compileEquation(equation, scope);
  const env = new Int32Array(1);
  return () => {
    for (let i = 0; i < target.length; i++) {
      const at = target[i] ?? -1;
      if (at < 0) continue;
      const first = i * reducePoints;
      env[0] = first;
      let sum = value(env);
      for (let point = first + 1; point < first + reducePoints; point++) {
        env[0] = point;
        sum = fold(sum, value(env));
      }
      output[at] = join(output[at] ?? scope.identity, sum);
    }
  };
}

/** Slots are assigned in loop order: spatial axes outside, reduce axes inside. */
function axesInOrder({ axes }: Computation, scope: Scope): { spatial: readonly Axis[]; reduce: readonly Axis[] } {
  const spatial = keptIn(axes);
  const reduce = summedIn(axes);
  for (const a of [...spatial, ...reduce]) scope.slot(a.name);
  return { spatial, reduce };
}

function prepare(computation: Computation, buffers: ReadonlyMap<string, Buffer>): () => void {
  const { equation } = computation;
  const target = targetOf(computation);
  const scope = new Scope(buffers, identityOf(equation.op, target.dtype));
  const { spatial, reduce } = axesInOrder(computation, scope);
  const { values: output, evaluate: value, place, holds, join, fold } = compileEquation(equation, scope);
  const env = scope.environment();

  const overReduce = nestOf(reduce, scope, env);
  const overSpatial = nestOf(spatial, scope, env);
  return () =>
    overSpatial(() => {
      const at = place(env);
      if (at < 0) return;
      let sum = scope.identity;
      let any = false;
      overReduce(() => {
        if (holds?.(env) === 0) return;
        sum = any ? fold(sum, value(env)) : value(env);
        any = true;
      });
      if (any) output[at] = join(output[at] ?? scope.identity, sum);
    });
}

/** Runs a body at every point of a box, last axis fastest, counters in `env`. */
function nestOf(
  axes: readonly { name: string; extent: number }[],
  scope: Scope,
  env: Environment,
): (body: () => void) => void {
  const levels = axes.map((a) => ({ slot: scope.slot(a.name), extent: a.extent }));
  return (body) => {
    const at = (level: number): void => {
      const here = levels[level];
      if (here) {
        for (let i = 0; i < here.extent; i++) {
          env[here.slot] = i;
          at(level + 1);
        }
      } else body();
    };
    at(0);
  };
}

/** A tensor's elements in row-major order. @throws Error when they are missing or their number is wrong */
export function bufferOf(subject: string, tensor: Tensor, values: ArrayLike<number> | undefined): Buffer {
  const expected = elementCount(tensor);
  if (values === undefined) throw new Error(`${subject}: no values for tensor "${tensor.name}"`);
  if (values.length !== expected)
    throw new Error(`${subject}: ${tensor.name} has ${expected} elements, got ${values.length}`);
  return {
    values: values instanceof Float64Array ? values : Float64Array.from(values),
    shape: shapeOf(tensor),
    dtype: tensor.dtype,
  };
}
