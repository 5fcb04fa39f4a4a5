/**
 * @file Plans one block of memory for all values that steps pass to one another, and for the scratch of each step. What is not live at the same time
 * shares bytes.
 *
 *     planMemory(program).bytes      1.6 MB, where all values together take 8 MB
 *
 * The largest value comes first, each at the lowest offset where it overlaps no value live at the same time: the greedy order of Pisarchyk and
 * Lee, Efficient Memory Management for Deep Neural Net Inference (2020).
 */

import { sortedBy, sumOf } from "../abstraction/collections.ts";
import { memoryElements, outputOf } from "../abstraction/computation.ts";
import { bytesOf } from "../abstraction/dtype.ts";
import type { StepChain } from "./chains.ts";
import { type Network, returnedBy, rootsRead, type Step } from "./network.ts";
import type { Value } from "./value.ts";

/** Bytes of a cache line, and of the widest vector. */
const ALIGNMENT = 64;

export interface MemoryPlan {
  /** Offsets of values that steps write and later steps read; not of the network's inputs and outputs. */
  readonly offsets: ReadonlyMap<Value, number>;
  /** Offsets of the scratch of the steps that have one. */
  readonly scratch: ReadonlyMap<Step, number>;
  readonly bytes: number;
  /** Bytes without sharing. */
  readonly apart: number;
}

interface Block {
  readonly of: { readonly value: Value } | { readonly step: Step };
  readonly bytes: number;
  /** The step that writes it, and the last step that reads it: of a scratch the same. */
  readonly from: number;
  readonly to: number;
}

/**
 * @param shared whether values may share bytes; otherwise all of them can be inspected after a run. The scratch of steps is shared always
 * @param chains steps that are computed together, of whose values only the stored ones have a place when memory is shared
 * @param scratch bytes that a step wants while it is computed
 */
export function planMemory(
  program: Network,
  shared = true,
  chains: readonly StepChain[] = [],
  scratch: (step: Step) => number = () => 0,
): MemoryPlan {
  const given = returnedBy(program);
  const chainOf = new Map(chains.flatMap((one) => one.steps.map((step) => [step, one] as const)));
  const places = new Map(program.steps.map((step, i) => [step, i] as const));
  /** When a step is computed: in a chain, with its last one. */
  const timeOf = (step: Step): number => places.get(chainOf.get(step)?.steps.at(-1) ?? step) ?? 0;
  const last = new Map<Value, number>();
  for (const step of program.steps)
    for (const value of rootsRead(step)) last.set(value, Math.max(last.get(value) ?? 0, timeOf(step)));
  const blocks = program.steps.flatMap((step): Block[] => {
    const { output, computation } = step;
    const from = timeOf(step);
    const own = { of: { step }, bytes: aligned(scratch(step)), from, to: from };
    const begun = own.bytes > 0 ? [own] : [];
    if (given.has(output) || (shared && chainOf.get(step)?.stored.has(output) === false)) return begun;
    const tensor = outputOf(computation);
    const bytes = aligned(memoryElements(tensor) * bytesOf(tensor.dtype));
    const live = shared ? { from, to: last.get(output) ?? from } : { from: 0, to: program.steps.length };
    return [...begun, { of: { value: output }, bytes, ...live }];
  });
  const placed: (Block & { readonly offset: number })[] = [];
  for (const block of sortedBy(blocks, (a) => -a.bytes)) {
    const beside = sortedBy(
      placed.filter((other) => other.from <= block.to && block.from <= other.to),
      (a) => a.offset,
    );
    let offset = 0;
    for (const other of beside) {
      if (offset + block.bytes <= other.offset) break;
      offset = Math.max(offset, other.offset + other.bytes);
    }
    placed.push({ ...block, offset });
  }
  return {
    offsets: new Map(placed.flatMap(({ of, offset }) => ("value" in of ? [[of.value, offset]] : []))),
    scratch: new Map(placed.flatMap(({ of, offset }) => ("step" in of ? [[of.step, offset]] : []))),
    bytes: Math.max(0, ...placed.map(({ offset, bytes }) => offset + bytes)),
    apart: sumOf(blocks, ({ bytes }) => bytes),
  };
}

const aligned = (bytes: number): number => Math.ceil(bytes / ALIGNMENT) * ALIGNMENT;
