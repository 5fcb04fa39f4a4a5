/**
 * @file Kernels of products picked by hand, which `gpu-search` verifies and times in turns with cuBLAS.
 *
 *     pickedCandidate("128x256x4-bulk", product)     tiles of 128 x 256, four stages, results stored by the copy engine
 */

import type { GridCandidate, GridSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
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
  { dtype }: SuiteCase,
  machine: Target,
): GridCandidate {
  const [, m = 0, n = 0, stage = 0] = (/^(\d+)x(\d+)x(\d+)-(\w+)$/.exec(words) ?? []).map(Number);
  const how = store.schema.safeParse(words.split("-")[1]);
  if (m % ROWS !== 0 || !how.success) throw new UsageError(`no kernel "${words}": say 128x256x4-bulk`);
  const elements = STEP_BYTES / (dtype === "e4m3" ? 1 : 2);
  const intrinsic = rowNamed(`wgmma.m64n${n}k${elements / 4}.f32.${dtype}`);
  const { matching, binding } = mappingNamed(computation, intrinsic, "m <- m; n <- n; k <- k");
  const { units } = levelOf(machine, "block");
  const tiles = Math.ceil((computation.axes[0]?.extent ?? 1) / m) * Math.ceil((computation.axes[1]?.extent ?? 1) / n);
  const schedule: GridSchedule = {
    tile: { m, n, k: elements },
    warps: { m: Math.min(m / ROWS, 2), n: 1 },
    stage,
    swizzle: "spans",
    transfer: "engine",
    order: ORDER,
    fragments: "across",
    store: how.data,
    producer: "warp",
    ...(tiles > units && { persistent: units }),
  };
  const operands = Object.fromEntries(Object.entries(binding).map(([name, bound]) => [name, printExpr(bound)]));
  return { kind: "grid", intrinsic: intrinsic.name, matching, operands, schedule };
}
