/**
 * @file Plans one block of memory for all values that steps pass to one another. Values that are not live at the same time share bytes.
 *
 *     planMemory(program).bytes      1.6 MB, where all values together take 8 MB
 *
 * The largest value comes first, each at the lowest offset where it overlaps no value live at the same time: the greedy order of Pisarchyk and
 * Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
 */

import { memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import { type Program, rootOf } from "./program.ts";
import type { Value } from "./value.ts";

/** Bytes of a cache line, and of the widest vector. */
const ALIGNMENT = 64;

export interface MemoryPlan {
  /** Offsets of values that steps write and later steps read; not of the network's inputs and outputs. */
  readonly offsets: ReadonlyMap<Value, number>;
  readonly bytes: number;
  /** Bytes without sharing. */
  readonly apart: number;
}

interface Block {
  readonly value: Value;
  readonly bytes: number;
  /** The step that writes it, and the last step that reads it. */
  readonly from: number;
  readonly to: number;
}

/** @param shared whether values may share bytes; otherwise all of them can be inspected after a run */
export function planMemory(program: Program, shared = true): MemoryPlan {
  const given = new Set(program.outputs.map(({ value }) => rootOf(value)));
  const last = new Map<Value, number>();
  for (const [i, step] of program.steps.entries())
    for (const value of Object.values(step.reads)) last.set(rootOf(value), i);
  const blocks = program.steps.flatMap(({ output, computation }, from): Block[] => {
    if (given.has(output)) return [];
    const tensor = outputOf(computation);
    const bytes = Math.ceil((memoryElements(tensor) * bytesOf(tensor.dtype)) / ALIGNMENT) * ALIGNMENT;
    return [{ value: output, bytes, from, to: last.get(output) ?? from }];
  });
  const placed: (Block & { readonly offset: number })[] = [];
  for (const block of blocks.toSorted((a, b) => b.bytes - a.bytes || a.from - b.from)) {
    const beside = placed
      .filter((other) => !shared || (other.from <= block.to && block.from <= other.to))
      .sort((a, b) => a.offset - b.offset);
    let offset = 0;
    for (const other of beside) {
      if (offset + block.bytes <= other.offset) break;
      offset = Math.max(offset, other.offset + other.bytes);
    }
    placed.push({ ...block, offset });
  }
  return {
    offsets: new Map(placed.map(({ value, offset }) => [value, offset])),
    bytes: Math.max(0, ...placed.map(({ offset, bytes }) => offset + bytes)),
    apart: blocks.reduce((sum, { bytes }) => sum + bytes, 0),
  };
}
