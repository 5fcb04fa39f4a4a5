/**
 * @file Writes results as JUnit XML for build servers (the schema of the Ant task, as documented by Jenkins).
 *
 *     junit("automap check", [{ suite: "conv2d", name: "c 64 u8s8", seconds: 6e-5, outcome: { kind: "passed" } }])
 */

import { unique } from "../abstraction/collections.ts";
import { escapeMarkup } from "./html.ts";

interface TestCase {
  /** Cases are grouped by suite. */
  readonly suite: string;
  readonly name: string;
  readonly seconds: number;
  readonly outcome:
    | { readonly kind: "passed" }
    | { readonly kind: "failed"; readonly message: string }
    | { readonly kind: "skipped"; readonly message: string };
}

export function junit(title: string, cases: readonly TestCase[]): string {
  const suites = unique(cases.map((c) => c.suite));
  const counts = (of: readonly TestCase[]): string => {
    const count = (kind: TestCase["outcome"]["kind"]): number => of.filter((c) => c.outcome.kind === kind).length;
    return `tests="${of.length}" failures="${count("failed")}" errors="0" skipped="${count("skipped")}"`;
  };
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuites name="${attribute(title)}" ${counts(cases)}>`,
    ...suites.flatMap((suite) => {
      const own = cases.filter((c) => c.suite === suite);
      return [
        `  <testsuite name="${attribute(suite)}" ${counts(own)}>`,
        ...own.map((c) => testCase(title, c)),
        "  </testsuite>",
      ];
    }),
    "</testsuites>",
    "",
  ].join("\n");
}

function testCase(title: string, { suite, name, seconds, outcome }: TestCase): string {
  const head = `    <testcase classname="${attribute(`${title}.${suite}`)}" name="${attribute(name)}" time="${seconds.toFixed(9)}"`;
  switch (outcome.kind) {
    case "passed":
      return `${head}/>`;
    case "failed":
      return `${head}><failure message="${attribute(outcome.message)}"/></testcase>`;
    case "skipped":
      return `${head}><skipped message="${attribute(outcome.message)}"/></testcase>`;
    default:
      return outcome satisfies never;
  }
}

function attribute(text: string): string {
  return escapeMarkup(text).replace(/[\n\r\t]/g, " ");
}
