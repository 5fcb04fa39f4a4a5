/**
 * @file Every operator of the suite as a package: written to a clean folder, built by a compiler alone, and tested.
 *
 *     npm run emit:suite
 *     npm run emit:suite -- --ops c2d,dep --types u8s8 --keep packages
 *
 * Shapes are small versions of the suite's. Each package has the kernel that the model ranks first, or the portable
 * code if nothing maps. The build's environment is only a PATH, without automap or Node. Exit code 4: a wrong package.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Computation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { packageFiles, packageName } from "../../package/index.ts";
import { indent, table } from "../../report/text.ts";
import { runChild } from "../../runtime/child.ts";
import { portableSubject } from "../../session/emit.ts";
import { kernelFor } from "../../session/kernel.ts";
import { writePackage } from "../../session/package-folder.ts";
import { rankByModel } from "../../session/rank.ts";
import { suiteLayers } from "../../test/support/suite.ts";
import { readOptions, wordOf } from "../support/options.ts";

const { values } = readOptions({
  options: { ops: { type: "string" }, types: { type: "string", default: "u8s8,bf16,f32" }, keep: { type: "string" } },
});
const everyOperator = [...new Set(suiteLayers().map((c) => c.op))];
const operators = values.ops?.split(",").map((op) => wordOf("ops", op, everyOperator)) ?? everyOperator;
const types = values.types.split(",");
for (const word of types) parseDataTypes(word);

/** Largest sizes. Strides, padding, groups and windows stay as in the suite. */
const SMALL: Readonly<Record<string, number>> = {
  c: 24,
  k: 20,
  h: 9,
  w: 10,
  d: 5,
  l: 40,
  m: 33,
  n: 48,
  i: 24,
  o: 40,
  caps: 4,
};
/** Operators of matrices, in which `n` is an extent and no batch. */
const MATRICES = ["gmm", "gmv", "scn"];

const root = values.keep ?? mkdtempSync(join(tmpdir(), "automap-suite-"));
const rows: string[][] = [];
let wrong = 0;
for (const op of operators) {
  for (const dtype of types) {
    const row = await tryOne(op, dtype);
    console.error(row.join("   "));
    rows.push(row);
  }
}
console.log(indent(table([["operator", "types", "kernel", "build", "its own test"], ...rows])));
console.log(`\n${rows.length} packages, ${wrong} wrong`);
if (values.keep === undefined) rmSync(root, { recursive: true, force: true });
process.exitCode = wrong > 0 ? 4 : 0;

async function tryOne(op: string, dtype: string): Promise<string[]> {
  const computation = smallComputation(op, dtype);
  if (typeof computation === "string") return [op, dtype, "none", "", computation];
  const ranked = rankByModel(computation, { count: 1 });
  const best = "refused" in ranked ? undefined : ranked[0];
  const name = packageName(computation.name);
  const subject = best
    ? {
        name,
        computation,
        tuned: kernelFor(computation, best.candidate),
        threads: 1,
        provenance: ["the model's choice"],
      }
    : portableSubject(computation);
  const folder = join(root, `${op}-${dtype}`);
  writePackage(folder, packageFiles(subject), true);
  const clean = (...command: string[]): ReturnType<typeof runChild> =>
    runChild(["env", "-i", `PATH=${process.env["PATH"] ?? "/usr/bin:/bin"}`, ...command], { timeLimitMs: 300_000 });
  const begun = performance.now();
  const build = await clean("sh", join(folder, "build.sh"));
  const seconds = `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  const test = build.status === "ok" ? await clean(join(folder, "build", `${name}_test`)) : build;
  const tuned = test.stdout.includes(`${name} tuned: right`);
  const right = test.status === "ok" && (best === undefined || tuned);
  if (!right) wrong++;
  const said = right ? `right${best ? "" : ", portable only"}` : `${test.status}: ${test.stdout}${test.stderr}`;
  return [computation.name, dtype, best?.candidate.intrinsic ?? "portable", seconds, said.trim()];
}

/** The operator's first row of the suite at a small size, or the reason there is none of these types. */
function smallComputation(op: string, dtype: string): Computation | string {
  const params = suiteLayers().find((c) => c.op === op)?.params ?? {};
  const small = Object.fromEntries(
    Object.entries(params).map(([name, value]) => {
      const most = name === "n" && !MATRICES.includes(op) ? 2 : (SMALL[name] ?? value);
      return [name, Math.min(value, most)];
    }),
  );
  // Groups divide the channels.
  const groups = params["groups"];
  const divided =
    groups === undefined
      ? {}
      : Object.fromEntries(
          ["c", "k", "i", "o"]
            .filter((p) => small[p] !== undefined)
            .map((p) => [p, Math.max(1, Math.floor((small[p] ?? 1) / groups)) * groups]),
        );
  try {
    return instantiate(operatorNamed(op), { parameters: { ...small, ...divided }, types: parseDataTypes(dtype) });
  } catch (error) {
    if (error instanceof UsageError) return error.message;
    throw error;
  }
}
