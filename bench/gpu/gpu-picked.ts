/**
 * @file Kernels of products picked by hand, which `gpu-search` verifies and times in turns with cuBLAS.
 *
 *     pickedCandidate("128x256x4-bulk", product)     tiles of 128 x 256, four stages, results stored by the copy engine
 */

import type { GridCandidate, GridSchedule } from "../../abstraction/candidate.ts";
import { type Computation, outputOf } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { levelOf, type Target } from "../../abstraction/machine.ts";
import { store } from "../../mapper/schedule/store.ts";
import { mappingNamed, rowNamed } from "../../test/support/subjects.ts";
import type { SuiteCase } from "../../test/support/suite.ts";

/** Bytes of a step along the sum, and rows of a warpgroup. */
const STEP_BYTES = 128;
const ROWS = 64;
/** Rows of tiles that blocks take before the next column. Orders of 4, 8 and 16 lay within 1.3 % of one another on an H200 (2026-11-30). */
const ORDER = 8;

/** @throws UsageError for words that name no kernel */
export function pickedCandidate(
  words: string,
  computation: Computation,
  { dtype, op }: SuiteCase,
  machine: Target,
): GridCandidate {
  const [, m = 0, n = 0, stage = 0] = (/^(\d+)x(\d+)x(\d+)-(\w+)$/.exec(words) ?? []).map(Number);
  const how = store.schema.safeParse(words.split("-")[1]);
  if (m % ROWS !== 0 || !how.success) throw new UsageError(`no kernel "${words}": say 128x256x4-bulk`);
  const elements = STEP_BYTES / (dtype === "e4m3" ? 1 : 2);
  const intrinsic = rowNamed(`wgmma.m64n${n}k${elements / 4}.f32.${dtype}`);
  // Sums of groups are scaled before they are added, and take as many registers again: nine warps have 168 a thread.
  const isScaled = op === "smm";
  const place = isScaled ? "m <- m; n <- u,v; k <- j" : "m <- m; n <- n; k <- k";
  const { matching, binding } = mappingNamed(computation, intrinsic, place);
  const warps = m === 3 * ROWS ? 3 : Math.min(m / ROWS, 2);
  const fits = !isScaled || (warps < 3 && (n * m) / ROWS / warps <= 128);
  const { units } = levelOf(machine, "block");
  const [rows = 1, columns = 1] = outputOf(computation).dims.map((d) => d.extent);
  const tiles = Math.ceil(rows / m) * Math.ceil(columns / n);
  const schedule: GridSchedule = {
    tile: { m, n, k: elements },
    warps: { m: warps, n: 1 },
    stage,
    swizzle: "spans",
    transfer: "engine",
    order: [ORDER, 4, 2, 1].find((order) => Math.ceil(rows / m) % order === 0) ?? 1,
    fragments: isScaled ? "inline" : "across",
    store: how.data,
    ...(fits && { producer: "warp" }),
    ...(tiles > units && { persistent: units }),
  };
  const operands = Object.fromEntries(Object.entries(binding).map(([name, bound]) => [name, printExpr(bound)]));
  return { kind: "grid", intrinsic: intrinsic.name, matching, operands, schedule };
}
