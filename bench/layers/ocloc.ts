/**
 * @file Compiles kernels with Intel's matrix products by Intel's offline compiler. Its table has the instruction, its
 * count in text and machine code, registers, and better-ranked kernels dropped because they spill. Times nothing.
 *
 *     node dist/bench/layers/ocloc.js > bench/results/ocloc.md                    every case, some twenty minutes
 *     node dist/bench/layers/ocloc.js --devices dg2 --cases gemm --types s8
 *
 * Needs ocloc (Debian: intel-opencl-icd). Exits with 1 if no kernel of some case compiles as promised.
 */

import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { runChild } from "../../runtime/child.ts";
import { findOcloc, promisedDpas } from "../../runtime/ocloc.ts";
import { type Compiled, firstThatCompiles } from "../../session/judge/offline.ts";
import { rankOf } from "../../session/tune/rank.ts";
import { predictedGpuNamed } from "../../targets/index.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { readOptions, wordOf } from "../support/options.ts";

const TYPES = ["s8", "u8s8", "f16", "bf16", "tf32"] as const;
const DEVICES = ["dg2", "pvc"] as const;
/** Schedules drawn for a case, and the most of them that are tried. */
const DRAWS = 200;
const TRIED = 12;

interface Case {
  readonly name: string;
  readonly operator: string;
  readonly parameters: Readonly<Record<string, number>>;
}

/** Extents that tiles divide, and extents that no tile divides. */
export const CASES: readonly Case[] = [
  { name: "gemm", operator: "matmul", parameters: { m: 1024, n: 1024, k: 1024 } },
  { name: "gemm, tails", operator: "matmul", parameters: { m: 101, n: 77, k: 53 } },
  { name: "batched gemm", operator: "batched-matmul", parameters: { b: 64, m: 128, n: 128, k: 128 } },
  { name: "batched gemm, the talk's", operator: "batched-matmul", parameters: { b: 32768, m: 27, n: 27, k: 128 } },
  { name: "conv1d", operator: "conv1d", parameters: { c: 64, l: 256, k: 64, r: 3, pad: 1 } },
  { name: "conv1d, tails", operator: "conv1d", parameters: { c: 5, l: 23, k: 9, r: 3, pad: 2, dilation: 2 } },
  ...layersNamed("c2d").map(({ id, params }) => ({ name: `conv2d ${id}`, operator: "conv2d", parameters: params })),
];

const computationOf = ({ operator, parameters }: Case, types: string): Computation =>
  instantiate(operatorNamed(operator), {
    parameters,
    types: parseDataTypes(types),
    ...(operator === "conv2d" && { layouts: "NHWC" }),
  });

/** The result of a case: a row of the table. */
export interface Row {
  readonly device: string;
  readonly name: string;
  readonly types: string;
  readonly compiled: Compiled | undefined;
}

/** The best-ranked kernel of a case that compiles as promised; undefined when nothing maps. */
export async function compiledCase(one: Case, types: string, machine: Target): Promise<Row> {
  const computation = computationOf(one, types);
  const intrinsics = INTRINSICS.filter(
    (row) => row.family === "dpas" && row.language === "opencl" && machine.isa.includes(row.isa),
  );
  const ranked = rankOf(computation, { machine, intrinsics, count: TRIED }, DRAWS);
  const compiled = "refused" in ranked ? undefined : await firstThatCompiles(computation, ranked, machine);
  return { device: machine.name, name: one.name, types, compiled };
}

/** A row of the table, for the function with the most products. */
export function rowText({ device, name, types, compiled }: Row): string {
  const { kept, dropped = [] } = compiled ?? {};
  const spilled = dropped.filter(({ why }) => why.startsWith("spilled")).length;
  const cells = [device, name, types];
  if (!kept)
    return `| ${[...cells, compiled ? "none compiles as promised" : "nothing maps", "", "", "", "", spilled].join(" | ")} |`;
  const functions = kept.functions ?? [];
  const most = [...functions].sort((a, b) => b.dpas - a.dpas)[0];
  const promised = [...promisedDpas(kept.kernel).values()].reduce((all, n) => all + n, 0);
  const held = functions.reduce((all, f) => all + f.dpas, 0);
  return `| ${[...cells, kept.expected.candidate.intrinsic, promised, held, most?.registers, most?.instructions, spilled].join(" | ")} |`;
}

/** The version of ocloc, which it writes to a file. */
async function versionOf(ocloc: string): Promise<string> {
  const cwd = mkdtempSync(join(tmpdir(), "automap-ocloc-"));
  try {
    await runChild([ocloc, "query", "OCL_DRIVER_VERSION"], { timeLimitMs: 20_000, cwd });
    return readFileSync(join(cwd, "OCL_DRIVER_VERSION"), "utf8").replaceAll("\0", "").trim();
  } finally {
    rmSync(cwd, { recursive: true });
  }
}

async function main(): Promise<void> {
  const { values } = readOptions({
    options: {
      devices: { type: "string", default: DEVICES.join(",") },
      types: { type: "string", default: TYPES.join(",") },
      cases: { type: "string" },
    },
  });
  const ocloc = findOcloc();
  if (ocloc === undefined) throw new UsageError("no ocloc here", "Debian: intel-opencl-icd");
  const devices = values.devices.split(",").map((word) => wordOf("devices", word, DEVICES));
  const types = values.types.split(",").map((word) => wordOf("types", word, TYPES));
  const cases = CASES.filter(({ name }) => values.cases === undefined || name.includes(values.cases));
  if (cases.length === 0)
    throw new UsageError(`--cases: no case has "${values.cases}" in its name`, CASES.map((c) => c.name).join("; "));
  const version = await versionOf(ocloc);
  console.log(`# Intel's matrix products, compiled by ocloc

ocloc of Intel's compute runtime ${version}, ${new Date().toISOString().slice(0, 10)}. For each case the kernel that the model likes best of those
that compile without a spill and hold as many \`dpas\` as their text issues; *spilled* counts those it liked better, which were dropped. Registers and
instructions are of the function with the most products. Nothing is timed.

    node dist/bench/layers/ocloc.js

| device | case | types | instruction | products in the text | \`dpas\` | registers | instructions | spilled |
|---|---|---|---|---|---|---|---|---|`);
  const failed: string[] = [];
  for (const device of devices) {
    const machine = predictedGpuNamed(device);
    if (!machine) throw new Error(`internal: no target ${device}`);
    for (const one of cases)
      for (const type of types) {
        if (type === "tf32" && device === "dg2") continue; // DG2 has no such products
        const row = await compiledCase(one, type, machine);
        console.log(rowText(row));
        if (!row.compiled?.kept) failed.push(`${device} ${one.name} ${type}`);
      }
  }
  console.log(`\n${failed.length === 0 ? "All compile." : `Without a kernel: ${failed.join("; ")}.`}`);
  if (failed.length > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await main();
