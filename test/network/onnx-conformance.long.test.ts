/** @file ONNX's own test cases give ONNX's outputs or are refused with a reason, as bench/results/onnx-conformance.md says. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { conformancePage } from "../../bench/networks/onnx-report.ts";
import { networkOperatorNamed } from "../../network/operators/index.ts";
import {
  ONNX_GROUPS,
  type OnnxGroup,
  type Outcome,
  onnxCases,
  outcomeOf,
  TESTDATA_MISSING,
} from "../support/onnx-cases.ts";

describe.skipIf(TESTDATA_MISSING !== undefined)(
  `ONNX's test cases${TESTDATA_MISSING ? ` (${TESTDATA_MISSING})` : ""}`,
  async () => {
    const groups = new Map<OnnxGroup, Outcome[]>();
    for (const group of ONNX_GROUPS) {
      const outcomes: Outcome[] = [];
      for (const onnxCase of onnxCases(group)) outcomes.push(await outcomeOf(onnxCase));
      groups.set(group, outcomes);
    }
    const all = [...groups.values()].flat();

    it("give the expected outputs or are refused", () => {
      expect(all.filter(({ status }) => status === "wrong")).toEqual([]);
    });

    it("are refused as not supported only where no operator has the name", () => {
      const reasons = all.flatMap((o) => (o.status === "refused" ? [o.reason] : []));
      const names = reasons.flatMap((reason) => /^the operator (\w+) is not supported$/.exec(reason)?.[1] ?? []);
      expect(names.length).toBeGreaterThan(0);
      expect(names.filter((name) => networkOperatorNamed(name) !== undefined)).toEqual([]);
    });

    it("are as many as the page and docs/networks.md say", async () => {
      await expect(conformancePage(groups)).toMatchFileSnapshot("../../bench/results/onnx-conformance.md");
      const nodes = groups.get("node") ?? [];
      const right = nodes.filter(({ status }) => status === "right");
      const bound = right.filter((o) => o.status === "right" && o.bound.length > 0);
      expect(readFileSync(new URL("../../docs/networks.md", import.meta.url), "utf8").replaceAll("\n", " ")).toContain(
        `${nodes.length} test cases of single nodes (Debian: \`libonnx-testdata\`). ${right.length - bound.length} of them are right as they stand, ${bound.length} with`,
      );
    });
  },
);
