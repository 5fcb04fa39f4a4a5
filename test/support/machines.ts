/** @file Machines of whose candidates golden files tell: a Xeon with every extension, and others of the tables. */

import { createHash } from "node:crypto";
import type { Target } from "../../abstraction/machine.ts";
import { armTargetNamed, machineFrom, nvidiaTarget, predictedGpuNamed, targetOf } from "../../targets/index.ts";
import { parseCpuInfo } from "../../targets/native.ts";

const FLAGS = "fma avx avx2 f16c avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16";
const XEON = targetOf(
  machineFrom(parseCpuInfo(`model name : Testium\nflags : ${FLAGS}\nprocessor : 0\n`), [
    { level: 1, bytes: 48 << 10, sharedBy: 1 },
    { level: 2, bytes: 2 << 20, sharedBy: 1 },
    { level: 3, bytes: 32 << 20, sharedBy: 2 },
  ]),
);
const MACHINES: Readonly<Record<string, Target | undefined>> = {
  xeon: XEON,
  h100: nvidiaTarget("h100"),
  dg2: predictedGpuNamed("dg2"),
  mali: predictedGpuNamed("mali-g76"),
  v1: armTargetNamed("neoverse-v1"),
};
export function machineNamed(name: string): Target {
  const found = MACHINES[name];
  if (!found) throw new Error(`no machine ${name}`);
  return found;
}

/** Eight digits that tell a text from others, whatever version made it. */
export function hashOf(text: string): string {
  return createHash("sha256")
    .update(text.replace(/(made by +automap) .*/, "$1"))
    .digest("hex")
    .slice(0, 8);
}
