/**
 * @file `automap intrinsic list|show|check`: the instructions, their declarations, and the proof that each does what it says.
 */

import type { Command } from "commander";
import { z } from "zod";
import { printEquation } from "../abstraction/equation.ts";
import { type Intrinsic, printStorage, registerElements } from "../abstraction/intrinsic.ts";
import { indent, table, WIDTH } from "../report/text.ts";
import { type CheckResult, checkIntrinsics } from "../runtime/conformance.ts";
import { nativeTarget, runsOn } from "../targets/index.ts";
import { parseOptions } from "./options.ts";
import { EXIT, type ExitCode, print, printJson, say, style } from "./output.ts";
import { readIntrinsics } from "./subject.ts";

const options = z.object({
  json: z.boolean().optional(),
  seed: z.string().regex(/^\d+$/, "--seed must be a non-negative integer").optional(),
});

export function registerIntrinsic(intrinsic: Command, finish: (code: ExitCode) => void): void {
  intrinsic
    .command("list")
    .summary("every instruction: family, feature it needs, equation")
    .argument("[name or family]", "only these")
    .option("--json", "print a JSON document")
    .action((name: string | undefined, raw: unknown) =>
      finish(list(readIntrinsics(name), parseOptions(options, raw).json ?? false)),
    );
  intrinsic
    .command("show")
    .summary("one declaration, whole")
    .argument("<name or family>")
    .option("--json", "print a JSON document")
    .action((name: string, raw: unknown) =>
      finish(show(readIntrinsics(name), parseOptions(options, raw).json ?? false)),
    );
  intrinsic
    .command("check")
    .summary("run declarations against their own equations, on this CPU or under emulation")
    .argument("[name or family]", "only these")
    .option("--seed <n>", "seed of the operands", "1")
    .option("--json", "print a JSON document")
    .addHelpText("after", "\nExit code 4 means that an instruction does not do what its declaration says.")
    .action(async (name: string | undefined, raw: unknown) =>
      finish(await check(readIntrinsics(name), parseOptions(options, raw))),
    );
}

function list(intrinsics: readonly Intrinsic[], json: boolean): ExitCode {
  const machine = nativeTarget();
  if (json) {
    printJson({ intrinsics: intrinsics.map((i) => ({ ...summary(i), here: runsOn(machine, i) })) });
    return EXIT.ok;
  }
  const rows = intrinsics.map((i) => [
    i.name,
    i.computation.axes.map((a) => a.extent).join("x"),
    printEquation(i.computation.equation),
    i.family,
    `${i.isa}${runsOn(machine, i) ? "*" : ""}`,
  ]);
  print(table([["instruction", "extents", "equation", "family", "needs"], ...rows]));
  print(style("dim", "\n* this machine has it; one declaration, whole: automap intrinsic show amx.tdpbusd"));
  return EXIT.ok;
}

function show(intrinsics: readonly Intrinsic[], json: boolean): ExitCode {
  if (json) printJson({ intrinsics: intrinsics.map((i) => ({ ...summary(i), declaration: i.declaration })) });
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
    table([[style("bold", i.name), i.summary]], WIDTH),
    indent(`${printEquation(i.computation.equation)}     ${sizes(i)}`),
    indent(table(operands)),
    indent(`emits   ${i.emit.replaceAll("\n", `\n${" ".repeat(10)}`)}`),
    indent(table(facts, WIDTH - 2)),
  ].join("\n");
}

async function check(intrinsics: readonly Intrinsic[], given: z.infer<typeof options>): Promise<ExitCode> {
  say(`checking ${intrinsics.length} instructions ...`);
  const results = await checkIntrinsics(intrinsics, {
    seed: Number(given.seed ?? 1),
    isa: nativeTarget().isa,
    onWait: say,
  });
  const differing = results.filter((r) => r.status === "differs");
  const skipped = results.filter((r) => r.status === "skipped");
  if (given.json) printJson({ results });
  else {
    const rows = results.map((r) => [
      r.intrinsic,
      statusWord(r),
      r.how,
      `${r.cases} cases`,
      r.status === "skipped" ? `missing: ${r.missing ?? "?"}` : (r.detail ?? ""),
    ]);
    print(table(rows, WIDTH));
    print(
      `\n${results.length - differing.length - skipped.length} agree with their equation, ${differing.length} differ, ${skipped.length} skipped`,
    );
  }
  if (differing.length > 0) return EXIT.verification;
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

function sizes(i: Intrinsic): string {
  return i.computation.axes.map((a) => `${a.name} ${a.extent}`).join("  ");
}

function summary(i: Intrinsic): Record<string, unknown> {
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
