/**
 * @file GPUs as equal engines (execution units): a `core` of the target is one engine, which issues its own vector instructions. Bandwidths are what
 * one engine gets while all are as busy.
 *
 *     gpuOfEngines({ name: "dg2", engines: 512 engines, clockHz: 2.1 GHz, lanes: 8, ... })
 */

import type { DType } from "../abstraction/dtype.ts";
import type { Figure, Memory, Target } from "../abstraction/machine.ts";
import { assumed, cited } from "./figures.ts";

interface EngineFacts {
  readonly name: string;
  readonly summary: string;
  /** Features that instructions require. */
  readonly isa: readonly string[];
  readonly engines: Figure;
  readonly clockHz: Figure;
  /** Lanes on which an engine begins an instruction of f32 in a cycle. */
  readonly lanes: 8 | 16;
  /** Threads, or warps, that an engine holds at once. */
  readonly threads: number;
  /** Cycles until a loaded value can be used. */
  readonly loadLatency: Figure;
  /** Operations that an engine begins in a cycle, a multiply-add as two. */
  readonly vector: Partial<Record<DType, number>>;
  readonly matrix: Partial<Record<DType, number>>;
  /** Engines that share a first level of memory. */
  readonly sharing: number;
  readonly l1Bytes: Figure;
  /** Bytes a cycle from a first level to those that share it, and from the second to the whole GPU. */
  readonly l1: Figure;
  readonly l2Bytes: Figure;
  readonly l2: Figure;
  /** Bytes a second. */
  readonly dram: Figure;
  /** Source of `vector` and `matrix`. */
  readonly rates: string;
}

export function gpuOfEngines(f: EngineFacts): Target {
  const hertz = f.clockHz.value;
  const each = ({ value, source }: Figure, by: number): Figure => cited(value / by, `${source}; of ${by} engines`);
  const memory = (name: string, bytes: Figure | undefined, { value, source }: Figure): Memory => ({
    name,
    kind: bytes === undefined ? "addressed" : "cache",
    at: name === "l1" ? "core" : "grid",
    ...(bytes && { bytes }),
    bandwidth: (["read", "write"] as const).map((direction) => ({
      value,
      per: "cycle",
      direction,
      of: "core",
      source,
    })),
  });
  const perCycle = ({ value, source }: Figure): Figure => ({ value: value / hertz, source });
  const perElement = (instructions: number, because: string): Figure =>
    assumed(instructions / f.lanes, `${because}, ${f.lanes} lanes at once`);
  return {
    name: f.name,
    summary: f.summary,
    isa: f.isa,
    compilerFlags: [],
    clockHz: f.clockHz,
    levels: [
      {
        name: "grid",
        units: 1,
        barrier: { cycles: assumed(5e-6 * hertz, "a kernel ends and the next begins: five microseconds") },
      },
      { name: "core", units: f.engines.value },
      { name: "thread", units: f.threads },
      { name: "lane", units: f.lanes },
    ],
    memories: [
      memory("dram", undefined, each(perCycle(f.dram), f.engines.value)),
      memory("l2", f.l2Bytes, each(f.l2, f.engines.value)),
      memory("l1", each(f.l1Bytes, f.sharing), each(f.l1, f.sharing)),
    ],
    units: [
      { name: "load", at: "core", issueCycles: 2, latencyCycles: f.loadLatency.value, source: f.loadLatency.source },
      { name: "store", at: "core", issueCycles: 2, source: "assumed: as a load" },
      { name: "vector", at: "core", operationsPerCycle: f.vector, source: f.rates },
      { name: "matrix", at: "core", operationsPerCycle: f.matrix, source: f.rates },
    ],
    rates: [],
    fixed: { block: { ...assumed(20, "a branch takes 23 cycles, most of them of other threads"), per: "cycle" } },
    pipeline: {
      instructionsPerCycle: assumed(1, "one thread of an engine issues in a cycle"),
      loopInstructions: assumed(4, "a counter, a comparison, a branch, an address"),
      window: assumed(32 * f.threads, `${f.threads} threads of an engine, some 32 instructions each`),
    },
    scalar: {
      copyByte: perElement(1, "a load and a store of four bytes"),
      copyRun: assumed(8, "addresses of a row"),
      strided: perElement(6, "a gather, a scatter and their addresses"),
      indexed: perElement(6, "as strided"),
      scattered: perElement(6, "as strided"),
      sideBySide: perElement(4, "a load, a store and an address"),
      operation: perElement(1, "one instruction"),
      vectorOperation: perElement(1, "one instruction"),
      digit: perElement(8, "a multiplication of 32 by 32 bits, shifts and a subtraction"),
      guard: perElement(1, "a comparison"),
      gatheredLane: perElement(1, "one of the elements that a message gathers"),
      scatteredLane: perElement(1, "one of the elements that a message scatters"),
    },
  };
}
