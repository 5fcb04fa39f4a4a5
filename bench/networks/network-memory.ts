/**
 * @file The memory that a network takes while it is compared with ONNX Runtime, estimated before it is built.
 *
 *     memoryProblem(program)      "it needs about 31.2 GB beside ONNX Runtime, and 21.5 GB are free"
 */

import { freemem } from "node:os";
import { bytesOf } from "../../abstraction/dtype.ts";
import { planMemory } from "../../network/memory.ts";
import { type Network, rootOf } from "../../network/network.ts";
import { heldAs, type Value } from "../../network/value.ts";
import { sizeText } from "../../session/tune/memory.ts";

/**
 * How often the weights are in memory: in the graph and the program, in two models as bytes, in both libraries and packed for either. Values between
 * steps are in both libraries, and once more where a kernel copies its input with a border.
 */
const COPIES = { weights: 8, values: 3 } as const;
/** Of Node, ONNX Runtime and the compilers. */
const BASE_BYTES = 1e9;

/** Bytes of all processes together at their most. */
export function memoryNeeded(program: Network): number {
  const constants = new Set(
    program.steps
      .flatMap(({ reads }) => Object.values(reads))
      .map(rootOf)
      .filter(({ constant }) => constant !== undefined),
  );
  const weights = [...constants].reduce((sum, value) => sum + bytesIn(value), 0);
  return BASE_BYTES + COPIES.weights * weights + COPIES.values * planMemory(program).bytes;
}

const bytesIn = ({ type, shape }: Value): number =>
  shape.reduce((product, size) => product * size, bytesOf(heldAs(type)));

/** Why a network cannot be compared here; undefined when it can. @param free bytes of memory that programs may still take */
export function memoryProblem(program: Network, free = freemem()): string | undefined {
  const needed = memoryNeeded(program);
  if (needed <= free) return undefined;
  return `it needs about ${sizeText(needed)} beside ONNX Runtime, and ${sizeText(free)} are free`;
}
