/**
 * @file ONNX's own test cases (Debian: libonnx-testdata), each computed or refused, as a page.
 *
 *     npm run build
 *     node dist/bench/networks/onnx-conformance.js --out bench/results/onnx-conformance
 *     node dist/bench/networks/onnx-conformance.js --only resize                              cases with this in their names
 *
 * Every model is read, run by the interpreter on the inputs that come with it, and its outputs are compared with those that come with it. A wrong
 * output is a failure: exit code 4.
 */

import { writeFileSync } from "node:fs";
import { EnvironmentError, UsageError } from "../../abstraction/error.ts";
import {
  ONNX_GROUPS,
  type OnnxGroup,
  type Outcome,
  onnxCases,
  outcomeOf,
  TESTDATA_MISSING,
} from "../../test/support/onnx-cases.ts";
import { readOptions } from "../support/options.ts";
import { conformancePage } from "./onnx-report.ts";

const { values } = readOptions({
  options: {
    only: { type: "string", default: "" },
    out: { type: "string" },
  },
});

if (TESTDATA_MISSING !== undefined)
  throw new EnvironmentError({
    what: TESTDATA_MISSING,
    why: "the cases are read from its folder",
    remedy: "apt-get install libonnx-testdata, on Debian or Ubuntu",
  });

const groups = new Map<OnnxGroup, Outcome[]>();
for (const group of ONNX_GROUPS) {
  const outcomes: Outcome[] = [];
  for (const onnxCase of onnxCases(group))
    if (onnxCase.name.includes(values.only)) outcomes.push(await outcomeOf(onnxCase));
  groups.set(group, outcomes);
}
if ([...groups.values()].every((outcomes) => outcomes.length === 0))
  throw new UsageError(`--only: no case has "${values.only}" in its name`);
const page = conformancePage(groups);
if (values.out === undefined) process.stdout.write(page);
else {
  writeFileSync(`${values.out}.md`, page);
  process.stderr.write(`written: ${values.out}.md\n`);
}
const wrong = [...groups.values()].flat().filter((o) => o.status === "wrong");
for (const { onnxCase, difference } of wrong) process.stderr.write(`${onnxCase.name}: ${difference}\n`);
if (wrong.length > 0) process.exitCode = 4;
