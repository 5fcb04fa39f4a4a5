/**
 * @file The page of ONNX's own test cases: how many are right and how, and why the others are refused.
 *
 *     conformancePage(new Map([["node", outcomes]]))      "# ONNX's own test cases ..."
 */

import type { OnnxGroup, Outcome } from "../../test/support/onnx-cases.ts";

const KINDS = [
  ["right as they stand", (o: Outcome) => o.status === "right" && o.bound.length === 0],
  ["right, with inputs bound as constants", (o: Outcome) => o.status === "right" && o.bound.length > 0],
  ["refused", (o: Outcome) => o.status === "refused"],
  ["wrong", (o: Outcome) => o.status === "wrong"],
  ["all", () => true],
] as const;

const row = (cells: readonly (string | number)[]): string =>
  `| ${cells.map((cell) => String(cell).replaceAll("|", "\\|")).join(" | ")} |`;

/** Rows of equal cells as one, with their number behind; the most frequent first. */
function counted(rows: readonly string[]): string {
  const numbers = new Map<string, number>();
  for (const text of rows) numbers.set(text, (numbers.get(text) ?? 0) + 1);
  const sorted = [...numbers].sort(([a, m], [b, n]) => n - m || (a < b ? -1 : 1));
  return sorted.map(([text, n]) => `${text} ${n} |`).join("\n");
}

export function conformancePage(groups: ReadonlyMap<OnnxGroup, readonly Outcome[]>): string {
  const all = [...groups.values()].flat();
  const counts = KINDS.map(([what, isOne]) =>
    row([what, ...[...groups.values()].map((group) => group.filter(isOne).length)]),
  );
  const bound = all.flatMap((o) =>
    o.status === "right" && o.bound.length > 0 ? [row([o.ops.join(" "), o.bound.join(" ")])] : [],
  );
  const refused = all.flatMap((o) => (o.status === "refused" ? [row([o.ops.join(" "), o.opset, o.reason])] : []));
  return `# ONNX's own test cases

    node dist/bench/networks/onnx-conformance.js

The cases of ONNX 1.12 (Debian: libonnx-testdata): models with inputs and the outputs that they must give. Each is run by the interpreter; its
outputs are compared with these. Cases of \`node\` are single operators, others were exported by PyTorch or are small graphs.

${row(["outcome", ...groups.keys()])}
|${"---|".repeat(groups.size + 1)}
${counts.join("\n")}

*As they stand*: the file is read as it is, in the opset it names, and all its inputs are given when it runs.

*Bound*: shapes are fixed before a network runs, so inputs such as a shape, axes or a number of repeats must be constants (\`--constant NAME=FILE\`).
Only those inputs are bound for whose sake the case as it stands was refused. They are listed below.

Floats may differ by 1e-6 and 1e-5 of the value, 16-bit floats by 1e-2 of it, integers not at all. ONNX's own tests take 1e-7 and 1e-3. Cases of
windows may differ by 1e-3: their graphs hold pi with six digits, and their outputs were made with all; so may RoiAlign's, whose outputs have four digits.
For the second input of CastLike, which lends only its type, the cases have one element instead of the declared shape; it is repeated.

## Refused

| operators of the case | opset | reason | cases |
|---|---|---|---|
${counted(refused)}

## Bound

| operators of the case | inputs | cases |
|---|---|---|
${counted(bound)}
`;
}
