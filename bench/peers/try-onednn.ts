/**
 * @file oneDNN alone on one layer, in all types: the numbers to beat.
 *
 * Node does not read TypeScript before 22: until then, `node --input-type=module -e 'import { runnerImport } from "vite";
 * await runnerImport("./bench/peers/try-onednn.ts")' -- ARGUMENTS`.
 *
 *     node bench/peers/try-onednn.ts                      conv2d C=64 56x56 K=64 3x3, NHWC, one thread
 *     node bench/peers/try-onednn.ts --threads 2
 *     node bench/peers/try-onednn.ts --suite grp,dep      rows of bench/suites/amos-operators.json
 *     node bench/peers/try-onednn.ts --implementation 1   the second in oneDNN's list, with its own layouts
 *     node bench/peers/try-onednn.ts --isa avx512_core_vnni
 */

import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { z } from "zod";
import { type Computation, pointCount } from "../../abstraction/computation.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { createRunner, type Runner } from "../../runtime/measure.ts";
import { describeOnednn, ONEDNN_FLAGS, type OnednnEpilogue, type OnednnOptions, onednnKernel } from "./onednn.ts";
import { afterEpilogue, randomSetOnly, withConstant } from "./reference.ts";

interface Row {
  readonly what: string;
  readonly types: string;
  readonly options: OnednnOptions;
}

const REQUANTISED: OnednnEpilogue = { output: "u8", scale: true, relu: true };
const TYPES: readonly (readonly [what: string, types: string, epilogue?: OnednnEpilogue])[] = [
  ["f32", "f32"],
  ["bf16->f32", "bf16"],
  ["bf16->bf16", "bf16", { output: "bf16" }],
  ["u8s8->s32", "u8s8"],
  ["u8s8->u8", "u8s8", REQUANTISED],
];
const SUITE = z.object({
  configs: z.array(z.object({ id: z.string(), op: z.string(), params: z.record(z.string(), z.number()) })),
});

const { values } = parseArgs({
  options: {
    threads: { type: "string" },
    suite: { type: "string" },
    isa: { type: "string" },
    implementation: { type: "string" },
  },
});
const threads = Number(values.threads ?? 1);
const suite = SUITE.parse(JSON.parse(readFileSync(new URL("../suites/amos-operators.json", import.meta.url), "utf8")));
const words = values.suite?.split(",") ?? ["c2d-1"];
const chosen = suite.configs.filter(({ id, op }) => words.includes(id) || words.includes(op));

const made = await createRunner({ threads, flags: ONEDNN_FLAGS });
if (made.status === "environment") throw new Error(`${made.what}: ${made.remedy}`);
for (const { id, op, params } of chosen) {
  console.log(
    `\n${id}: ${op} ${Object.entries(params)
      .map(([k, v]) => `${k}=${v}`)
      .join(" ")}, ${threads} thread(s)`,
  );
  for (const row of rowsOf(op)) await tryRow(made.runner, row, computationOf(op, params, row.types));
}
await made.runner.close();

function rowsOf(op: string): Row[] {
  const shared = {
    threads,
    implementation: Number(values.implementation ?? 0),
    ...(values.isa === undefined ? {} : { maxIsa: values.isa }),
  };
  const isProduct = op === "gmm" || op === "gmv";
  const algorithms = isProduct ? (["matmul", "inner-product"] as const) : (["direct", "winograd"] as const);
  return TYPES.flatMap(([what, types, epilogue]) =>
    algorithms.flatMap((algorithm) =>
      layoutsFor(algorithm, op, types).map((activations) => ({
        what: `${what} ${algorithm}, ${activations}`,
        types,
        options: { ...shared, algorithm, activations, ...(epilogue ? { epilogue } : {}) },
      })),
    ),
  );
}

/** Matrices are run in one layout. Winograd needs f32 without groups, and does not support NHWC. */
function layoutsFor(algorithm: string, op: string, types: string): readonly ("preferred" | "given")[] {
  if (algorithm === "direct") return ["preferred", "given"];
  return algorithm === "winograd" && (op !== "c2d" || types !== "f32") ? [] : ["preferred"];
}

function computationOf(op: string, params: Readonly<Record<string, number>>, types: string): Computation {
  const isProduct = op === "gmm" || op === "gmv";
  const computation = instantiate(operatorNamed(op), {
    parameters: params,
    types: parseDataTypes(types),
    ...(isProduct ? {} : { layouts: "NHWC" }),
  });
  return isProduct ? withConstant(computation, op === "gmm" ? "b" : "a") : computation;
}

async function tryRow(runner: Runner, { what, options }: Row, computation: Computation): Promise<void> {
  const peer = onednnKernel(computation, options);
  if (peer.status === "refused") {
    console.log(`  ${what.padEnd(32)} refused: ${peer.reason}`);
    return;
  }
  const sums = await runner.reference(computation, 1);
  const kept = options.algorithm === "winograd" ? randomSetOnly(sums) : sums;
  const reference = options.epilogue ? afterEpilogue(kept, options.epilogue, 1) : kept;
  const measured = await runner.measure(peer.kernel, reference, { budgetSeconds: 0.5 });
  const chose = measured.status === "ok" ? await describeOnednn(peer.kernel, runner) : "";
  console.log(`  ${what.padEnd(32)} ${outcome(measured, computation)}  ${chose}`);
}

function outcome(measured: Measurement, computation: Computation): string {
  if (measured.status !== "ok") return `${measured.status}: ${measured.log.split("\n").slice(0, 3).join(" ")}`;
  const { median, interval } = measured;
  const gops = (2 * pointCount(computation)) / median / 1e9;
  const microseconds = (seconds: number): string => (seconds * 1e6).toFixed(1);
  return `${microseconds(median).padStart(8)} us [${interval.map(microseconds).join(", ")}] ${gops.toFixed(0).padStart(5)} G/s`;
}
