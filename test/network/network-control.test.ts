/** @file If in files of models. What it and Loop mean stands in test/golden/networks/control.txt. */

import { expect, it } from "vitest";
import type { Body } from "../../network/graph.ts";
import { parseOnnx } from "../../network/onnx/read.ts";
import { bodyOf, made, onnx } from "../support/networks.ts";
import { onnxBytes } from "../support/onnx-bytes.ts";

const control = (text: string, bodies: Readonly<Record<string, Body>>) => onnx(text, 17, bodies);

it("If is read from a file, branches within branches, after nodes that only they read", async () => {
  const branches = { twice: bodyOf("r = Add(x, x); return r"), minus: bodyOf("r = Neg(x); return r") };
  const chosen = bodyOf("y = If<then_branch=twice, else_branch=minus>(c); return y", [], branches);
  const late = bodyOf("q = Abs(late); return q");
  const outer = `
    x[2]
    c = bool[]{1}
    z = If<then_branch=chosen, else_branch=late>(c)
    late = Exp(x)
    return z
  `;
  const again = parseOnnx(onnxBytes(control(outer, { chosen, late })), "m.onnx", ".");
  expect(await made(again, [3, 4])).toEqual([6, 8]);
});

it("If is refused in a file that nests graphs without end", () => {
  let nested = bodyOf("q = Abs(x); return q");
  for (let depth = 0; depth < 40; depth++)
    nested = bodyOf(`r${depth} = If<then_branch=nested>(c); return r${depth}`, [], { nested });
  const graph = control("x[2]; If<then_branch=nested>(c)", { nested });
  expect(() => parseOnnx(onnxBytes(graph), "m.onnx", ".")).toThrow(
    /^m.onnx is no ONNX model: .*maximum recursion depth/,
  );
});
