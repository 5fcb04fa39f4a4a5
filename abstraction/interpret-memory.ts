/**
 * @file Memory of a nest while it is interpreted: the user's tensors in their layouts, and scratch where its storage formulas put it.
 */

import { type Dimension, pointsIn, rowMajor, shapeOf } from "./affine.ts";
import { describeElement, NestFault } from "./blocks/fault.ts";
import { type Judge, type WatchedBuffer, WatchedMemory } from "./blocks/watched-memory.ts";
import { type Computation, elementCount, inputsOf, memoryElements, outputOf, type Tensor } from "./computation.ts";
import { type Buffer, type Values, valuesOver } from "./evaluate.ts";
import { type Expr, printExpr } from "./expression.ts";
import { bufferOf, type Inputs } from "./interpret.ts";
import { dimsOf, isShared, type LoopNest, type Scratch, storageOf } from "./loop-nest.ts";

export interface NestMemory {
  readonly buffers: Map<string, Buffer>;
  readonly output: Buffer;
  /** Names of the elements of each buffer, for messages. */
  readonly names: ReadonlyMap<string, WatchedBuffer>;
}

/**
 * Buffers of all tensors and all scratch of a nest.
 * @param judge watches accesses by the threads of a GPU; none are watched when left out
 * @throws NestFault when a storage formula puts two elements in one place, or one outside its buffer
 */
export function bindMemory(nest: LoopNest, computation: Computation, inputs: Inputs, judge?: Judge): NestMemory {
  const buffers = new Map<string, Buffer>();
  const names = new Map<string, WatchedBuffer>();
  const name = (buffer: WatchedBuffer): WatchedBuffer => {
    names.set(buffer.name, buffer);
    return buffer;
  };
  const watch = (buffer: WatchedBuffer): Pick<Buffer, "watch"> =>
    judge ? { watch: new WatchedMemory(judge, buffer) } : {};
  const ofTensor = (tensor: Tensor, { values, places }: Buffer): WatchedBuffer =>
    name({ name: tensor.name, dims: tensor.dims, elements: values.length, places, shared: false });

  for (const tensor of inputsOf(computation)) {
    const buffer = storedBuffer(tensor, bufferOf(computation.name, tensor, inputs[tensor.name]).values);
    ofTensor(tensor, buffer);
    buffers.set(tensor.name, buffer);
  }
  const stored = outputOf(computation);
  const unwatched = storedBuffer(stored, new Float64Array(elementCount(stored)));
  const output = { ...unwatched, ...watch(ofTensor(stored, unwatched)) };
  buffers.set(stored.name, output);
  for (const scratch of nest.scratch) {
    const dims = dimsOf(scratch);
    const places = scratchPlaces(scratch);
    const { dtype, elements, outside } = scratch;
    const named = name({ name: scratch.name, dims, elements, places, shared: isShared(scratch), outside });
    const values = new Float64Array(elements);
    buffers.set(scratch.name, { values, shape: shapeOf({ dims }), dtype, ...(places && { places }), ...watch(named) });
  }
  return { buffers, output, names };
}

/** A tensor's elements in storage order, with the place of each logical element. */
function storedBuffer(tensor: Tensor, logical: Values): Buffer {
  const shape = shapeOf(tensor);
  const places = placesOf(tensor.dims, tensor.storage);
  if (!places) return { values: Float64Array.from(logical), shape, dtype: tensor.dtype };
  const values = new Float64Array(memoryElements(tensor));
  for (let i = 0; i < places.length; i++) values[places[i] ?? 0] = logical[i] ?? Number.NaN;
  return { values, shape, dtype: tensor.dtype, places };
}

/** Place in memory of each logical element, in row-major order; undefined when the storage is row-major. */
function placesOf(dims: readonly Dimension[], storage: Expr): Int32Array | undefined {
  return printExpr(storage) === printExpr(rowMajor(dims)) ? undefined : Int32Array.from(valuesOver(storage, dims));
}

function scratchPlaces(scratch: Scratch): Int32Array | undefined {
  const { name, elements } = scratch;
  const dims = dimsOf(scratch);
  const places = placesOf(dims, storageOf(scratch));
  if (!places) {
    const size = pointsIn(dims);
    if (size > elements)
      throw new NestFault("malformed", [`${name} has ${size} elements and memory for ${elements}: give it as much`]);
    return undefined;
  }
  const holder = new Int32Array(elements).fill(-1);
  for (const [element, place] of places.entries()) {
    const described = (at: number): string => describeElement({ name, dims }, at);
    if (place < 0 || place >= elements)
      throw new NestFault("malformed", [
        `${described(element)} lies at place ${place} of ${elements}: the storage formula leaves its buffer`,
      ]);
    const before = holder[place] ?? -1;
    if (before >= 0)
      throw new NestFault("malformed", [
        `${described(before)} and ${described(element)} lie in one place, ${place}: the storage formula must keep them apart`,
      ]);
    holder[place] = element;
  }
  return places;
}
