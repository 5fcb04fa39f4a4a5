/**
 * @file Predicts the time of a recurrence on lanes: what a step issues, what it waits for, and the bytes that move.
 *
 *     wavefront     steps of all strips, each as long as its operations or as the chain through a shift of lanes
 *     planes        operations of a vector of each plane and each summed point
 *     prefix        shifts and joins of a vector, one for each doubling; nearly always the bytes
 */

import type { RecurrenceSchedule } from "../abstraction/candidate.ts";
import { elementCount, inputsOf, outputOf } from "../abstraction/computation.ts";
import { bytesOf, isInteger } from "../abstraction/dtype.ts";
import { accessesIn, type Expr, walk } from "../abstraction/expression.ts";
import { arrayDependences, type Recurrent } from "../mapper/space-time/recurrent.ts";
import { laneCosts } from "../targets/lanes.ts";
import { REFERENCE_CPU, ZMM } from "../targets/x86.ts";
import { NOT_OVERLAPPED } from "./lanes.ts";
import type { ModelTarget } from "./target.ts";

const { multiplyAdd: FMA, shift: SHIFT } = laneCosts(REFERENCE_CPU);
/** Vector operations per cycle: ports 0 and 5. */
const PER_CYCLE = 2;
/** Operations of a float maximum that propagates NaN. */
const FLOAT_MAXIMUM = 2;
/** Latency of an integer operation in cycles. */
const INTEGER_LATENCY = 1;
/** Cycles of the shuffles that transpose a register's share of a tile, and of its way through memory. */
const TURNED_CYCLES = 6;
/** Factor for a block at the edge of the matrix, whose lanes are masked and whose rows are stored under masks. */
const MASKED = 2.5;

/** Seconds of a call. */
export function recurrentSeconds(recurrent: Recurrent, s: RecurrenceSchedule, target: ModelTarget): number {
  const { computation, outer, inner, between, summed, dtype } = recurrent;
  const register = ZMM.bytes / bytesOf(dtype);
  const outside = outer.reduce((n, a) => n * a.extent, 1);
  const [rows = 1, columns = 1] = inner.map((a) => a.extent);
  const issued = operations(computation.equation.value, isInteger(dtype)) / PER_CYCLE;
  const latency = isInteger(dtype) ? INTEGER_LATENCY : FMA.latencyCycles;
  let cycles: number;
  switch (recurrent.form) {
    case "wavefront": {
      const skew = s.transform.schedule[0]?.[0] ?? 1;
      const parts = Math.ceil(s.lanes / register);
      const side = Math.min(s.lanes, register);
      const above = new Set(arrayDependences(recurrent).map(([di]) => di)).size;
      const chain = SHIFT.latencyCycles + 1 + 3 * latency;
      const step = Math.max(parts * (issued + above * (SHIFT.issueCycles + 1)), chain) + parts * TURNED_CYCLES;
      const masked = (2 * skew * s.lanes) / side;
      const blocks = Math.ceil((columns + skew * s.lanes) / side);
      const strips = Math.ceil(rows / s.lanes);
      cycles = strips * side * step * (blocks + Math.min(blocks, masked) * (MASKED - 1));
      break;
    }
    case "planes": {
      const several = s.beside[inner.at(-1)?.name ?? ""] ?? 1;
      const points = [...between, ...summed].reduce((n, a) => n * a.extent, rows);
      const vectors = Math.ceil(columns / s.lanes);
      const loads = accessesIn(computation.equation.value).length / target.loadsPerCycle.value;
      cycles = points * vectors * Math.max(issued, loads, latency / several);
      break;
    }
    case "prefix": {
      const doublings = Math.log2(s.lanes);
      const vectors = (rows * columns) / columns / s.lanes;
      cycles = vectors * (doublings * (SHIFT.issueCycles + 1) + 2 + latency);
      break;
    }
    default:
      return recurrent.form satisfies never;
  }
  const compute = cycles * outside;
  const output = outputOf(computation);
  const written = elementCount(output) * bytesOf(output.dtype);
  const read = inputsOf(computation).reduce((n, t) => n + elementCount(t) * bytesOf(t.dtype), 0);
  const level = target.memory.find((m) => m.bytes !== undefined && m.bytes >= written + read) ?? target.memory.at(-1);
  const memory = read / (level?.readBytesPerCycle.value ?? 1) + written / (level?.writeBytesPerCycle.value ?? 1);
  return (Math.max(compute, memory) + NOT_OVERLAPPED * Math.min(compute, memory)) / target.clockHz.value / s.threads;
}

/** Vector operations of a value. The cost of indices is negligible. */
function operations(value: Expr, integer: boolean): number {
  return [...walk(value)].reduce((n, e) => {
    if (e.kind === "binary") return n + (accessesIn(e).length > 0 ? 1 : 0);
    if (e.kind === "call") return n + (integer ? 1 : FLOAT_MAXIMUM);
    return n + (e.kind === "select" ? 2 : 0);
  }, 0);
}
