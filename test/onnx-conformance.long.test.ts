/** @file ONNX's own test cases: every supported node gives ONNX's outputs, and every other is refused with a reason. */

import { describe, expect, it } from "vitest";
import { UsageError } from "../abstraction/error.ts";
import { networkOperatorNamed } from "../network/operators/index.ts";
import { conform, onnxCases, TESTDATA_MISSING } from "./support/onnx-cases.ts";

interface Sweep {
  readonly right: string[];
  readonly wrong: string[];
  /** By the reason, without the node it is said of. */
  readonly refused: Map<string, string[]>;
}

async function sweep(group: Parameters<typeof onnxCases>[0]): Promise<Sweep> {
  const found: Sweep = { right: [], wrong: [], refused: new Map() };
  for (const onnxCase of onnxCases(group)) {
    try {
      const difference = await conform(onnxCase);
      if (difference === undefined) found.right.push(onnxCase.name);
      else found.wrong.push(`${onnxCase.name}: ${difference}`);
    } catch (error) {
      if (!(error instanceof UsageError))
        throw new Error(`${onnxCase.name} is not refused but fails`, { cause: error });
      const reason = error.message.replace(/^(?:node \d+|test_\w+|input "\w+")(?: \(\w+\))?:? /, "");
      found.refused.set(reason, [...(found.refused.get(reason) ?? []), onnxCase.name]);
    }
  }
  return found;
}

/** Cases of supported operators that are refused, by the reason: nothing becomes unsupported unseen. */
const UNSUPPORTED = /^the operator (\w+) is not supported$/;

describe.skipIf(TESTDATA_MISSING !== undefined)(
  `ONNX's test cases${TESTDATA_MISSING ? ` (${TESTDATA_MISSING})` : ""}`,
  () => {
    it("of single nodes give the expected outputs or are refused", async () => {
      const { right, wrong, refused } = await sweep("node");
      expect(wrong).toEqual([]);
      expect(right.length).toBeGreaterThanOrEqual(776);
      const known = [...refused].filter(([reason]) => !UNSUPPORTED.test(reason));
      expect(Object.fromEntries(known.map(([reason, names]) => [reason, names.length]))).toMatchInlineSnapshot(`
        {
          "a cast to type 8 is not supported": 1,
          "attribute type is of a kind that is not supported: TYPE_PROTO": 1,
          "does not say which version of ONNX's operators it uses": 7,
          "elements of type STRING are not supported": 11,
          "elements of type UINT64 are not supported": 6,
          "f16 is not supported; integers are": 1,
          "f32 is not supported; integers are": 1,
          "f64 is not supported; integers are": 1,
          "input "in_seq" is sequenceType; tensors are supported": 2,
          "input "opt_in" is optionalType; tensors are supported": 1,
          "input "opt_seq" is optionalType; tensors are supported": 1,
          "input "optional_input" is optionalType; tensors are supported": 4,
          "input "seq_empty" is sequenceType; tensors are supported": 1,
          "input "sequence" is sequenceType; tensors are supported": 2,
          "input "x" is sequenceType; tensors are supported": 3,
          "input "x0" is sequenceType; tensors are supported": 8,
          "input data is f32[0,3,4]: it has no elements": 1,
          "input input is f32[0]: it has no elements": 1,
          "its input comes from x, which is known only when the network runs": 4,
          "its output [20,0,5] has no elements, which is not supported": 1,
          "reduction "add" is not supported": 2,
          "reduction "mul" is not supported": 1,
          "sequences of different lengths are not supported": 1,
          "training is not supported": 6,
          "z would hold s64 elements beyond 2^53, or a quotient by what may be 0, which is not supported": 2,
        }
      `);
      for (const [reason] of refused) {
        const [, name = ""] = UNSUPPORTED.exec(reason) ?? [];
        expect(networkOperatorNamed(name)).toBeUndefined();
      }
    });

    it("exported by PyTorch give the outputs of PyTorch", async () => {
      const { right, wrong, refused } = await sweep("pytorch-converted");
      expect(wrong).toEqual([]);
      expect(right.length).toBeGreaterThanOrEqual(77);
      expect(Object.fromEntries([...refused].map(([reason, names]) => [reason, names.length]))).toMatchInlineSnapshot(`
        {
          "shapes [2,3,4,5,6] and [3] cannot be brought together": 1,
          "shapes [2,3,4,5] and [3] cannot be brought together": 1,
          "shapes [2,3,4] and [3] cannot be brought together": 1,
          "the attribute broadcast is not supported in opset 7": 2,
        }
      `);
    });
  },
);
