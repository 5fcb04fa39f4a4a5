/** @file `automap intrinsic list|show|check`: the instructions, their declarations, and the check that each computes what it declares. */

import { z } from "zod";
import { printEquation } from "../abstraction/expression.ts";
import { type Intrinsic, type IntrinsicSpec, printStorage, registerElements } from "../abstraction/intrinsic.ts";
import { sizesText } from "../abstraction/text.ts";
import { indent } from "../report/text.ts";
import { type CheckResult, checkIntrinsics } from "../runtime/conformance.ts";
import { nativeTarget, runsOn } from "../targets/index.ts";
import type { Cli } from "./command.ts";
import { flag, wholeNumber } from "./options.ts";
import {
  counts,
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  partOf,
  print,
  printJson,
  say,
  style,
  text,
} from "./output.ts";
import { readIntrinsics } from "./subject.ts";
import { fitted, printFitted, worded } from "./terminal.ts";

const options = z.object({
  json: flag,
  seed: wholeNumber.default(1),
});
type Options = z.infer<typeof options>;

const summarised = {
  name: text,
  family: text,
  isa: text.describe("the feature of a machine that it needs"),
  language: text,
  scope: text.describe("which threads issue it together"),
  equation: text,
  extents: counts,
  operands: z.record(text, z.strictObject({ dtype: text, storage: text })),
  source: text.describe("where its manual describes it"),
};
const listSchema = documentOf({
  intrinsics: z.array(z.strictObject({ ...summarised, here: z.boolean().describe("whether this machine has it") })),
});
const showSchema = documentOf({
  intrinsics: z.array(
    z.strictObject({ ...summarised, declaration: partOf<IntrinsicSpec>("as written: docs/intrinsics.md") }),
  ),
});
const checkSchema = documentOf({
  results: z.array(
    z.strictObject({
      intrinsic: text,
      status: z.enum(["ok", "differs", "skipped"]).describe("differs: it does not do what its declaration says"),
      how: z.enum(["this CPU", "qemu", "emulation", "interpreter"]),
      cases: integer.describe("sets of operands that were tried"),
      missing: text.optional().describe("what was not there, when skipped"),
      detail: text.optional().describe("where they disagree"),
    }),
  ),
});

export function register(intrinsic: Cli): void {
  intrinsic.examples(["automap intrinsic list amx", "automap intrinsic check"]);
  intrinsic
    .command("list")
    .json(listSchema)
    .summary("every instruction: family, feature it needs, equation")
    .argument("[name or family]", "only these")
    .examples(["automap intrinsic list", "automap intrinsic list amx"])
    .runs(options, list);
  intrinsic
    .command("show")
    .json(showSchema)
    .summary("one declaration, whole")
    .argument("<name or family>")
    .examples(["automap intrinsic show amx.tdpbusd"])
    .runs(options, show);
  intrinsic
    .command("check")
    .json(checkSchema)
    .summary("run declarations against their own equations, on this CPU or under emulation")
    .argument("[name or family]", "only these")
    .option("--seed <n>", "seed of the operands (default 1)")
    .examples(
      ["automap intrinsic check", "automap intrinsic check vnni --seed 2"],
      "Exit code 4 means that an instruction does not do what its declaration says.",
    )
    .runs(options, check);
}

function list({ json }: Options, _command: Cli, name?: string): ExitCode {
  const intrinsics = readIntrinsics(name);
  const machine = nativeTarget();
  if (json) {
    printJson(listSchema, { intrinsics: intrinsics.map((i) => ({ ...summary(i), here: runsOn(machine, i) })) });
    return EXIT.ok;
  }
  const rows = intrinsics.map((i) => [
    i.name,
    i.computation.axes.map((a) => a.extent).join("x"),
    i.operands.map((o) => o.dtype).join(" "),
    printEquation(i.computation.equation),
    i.family,
    `${i.isa}${runsOn(machine, i) ? "*" : ""}`,
  ]);
  printFitted([["instruction", "extents", "types", "equation", "family", "needs"], ...rows], ["family"]);
  print(style("dim", "\n* this machine has it; one declaration, whole: automap intrinsic show amx.tdpbusd"));
  return EXIT.ok;
}

function show({ json }: Options, _command: Cli, name: string): ExitCode {
  const intrinsics = readIntrinsics(name);
  if (json)
    printJson(showSchema, { intrinsics: intrinsics.map((i) => ({ ...summary(i), declaration: i.declaration })) });
  else print(intrinsics.map(describe).join("\n\n"));
  return EXIT.ok;
}

function describe(i: Intrinsic): string {
  const operands = i.operands.map((o) => [
    o.name,
    o.dtype,
    printStorage(o),
    `${registerElements(i, o)} elements`,
    o.broadcast.length > 0 ? `broadcast along ${o.broadcast.join(", ")}` : "",
  ]);
  const facts = [
    ["needs", `${i.isa} (${i.language}, one ${i.scope})`],
    ...(i.cost
      ? [
          ["cost", `one issue in ${i.cost.issueCycles} cycles, latency ${i.cost.latencyCycles} cycles`],
          ["", i.cost.source],
        ]
      : []),
    ["source", i.source],
  ];
  return [
    worded([[style("bold", i.name), i.summary]]),
    indent(`${printEquation(i.computation.equation)}     ${sizesText(i.computation.axes, "  ")}`),
    indent(fitted(operands, 2)),
    indent(`emits   ${i.emit.replaceAll("\n", `\n${" ".repeat(10)}`)}`),
    indent(worded(facts, 2)),
  ].join("\n");
}

async function check(given: Options, _command: Cli, name?: string): Promise<ExitCode> {
  const intrinsics = readIntrinsics(name);
  say(`checking ${intrinsics.length} instructions ...`);
  const results = await checkIntrinsics(intrinsics, {
    seed: given.seed,
    isa: nativeTarget().isa,
    onWait: say,
  });
  const differing = results.filter((r) => r.status === "differs");
  const skipped = results.filter((r) => r.status === "skipped");
  if (given.json) printJson(checkSchema, { results });
  else {
    const rows = results.map((r) => [
      r.intrinsic,
      statusWord(r),
      r.how,
      `${r.cases} cases`,
      r.status === "skipped" ? `missing: ${r.missing ?? "?"}` : (r.detail ?? ""),
    ]);
    print(worded(rows));
    print(
      `\n${results.length - differing.length - skipped.length} agree with their equation, ${differing.length} differ, ${skipped.length} skipped`,
    );
  }
  if (differing.length > 0) return EXIT.wrong;
  return skipped.length === results.length ? EXIT.environment : EXIT.ok;
}

function statusWord({ status }: CheckResult): string {
  switch (status) {
    case "ok":
      return style("green", "ok");
    case "differs":
      return style("red", "DIFFERS");
    case "skipped":
      return style("dim", "skipped");
    default:
      return status satisfies never;
  }
}

function summary(i: Intrinsic) {
  return {
    name: i.name,
    family: i.family,
    isa: i.isa,
    language: i.language,
    scope: i.scope,
    equation: printEquation(i.computation.equation),
    extents: i.declaration.extents,
    operands: Object.fromEntries(i.operands.map((o) => [o.name, { dtype: o.dtype, storage: printStorage(o) }])),
    source: i.source,
  };
}
