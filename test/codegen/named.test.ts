/** A kernel declares exactly the registers and buffers that its statements name. */
import { describe, expect, it } from "vitest";

import { axis, binary, number } from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { namedIn } from "../../codegen/walk.ts";
import { rowNamed } from "../support/subjects.ts";

const intrinsic = rowNamed("avx512.vpdpbusd");

const empty: LoopNest = { scratch: [], registers: [], prepare: [], body: [] };
const named = (statements: readonly Statement[], nest = empty): Record<string, unknown> => {
  const { memory, registers } = namedIn(statements, nest);
  return { memory: [...memory].sort(), registers: Object.fromEntries(registers) };
};
const i = axis("i");
const twice = binary("*", number(2), i);

describe("the registers and buffers that statements name", () => {
  it("include each register of an unrolled loop", () => {
    const body: Statement[] = [
      { kind: "load", register: { file: "b", index: i }, memory: { buffer: "b_tiles", base: i, stride: 16 } },
      {
        kind: "register-issue",
        intrinsic,
        registers: {
          c: { file: "c", index: twice },
          a: { file: "a", index: number(0) },
          b: { file: "b", index: i },
        },
      },
    ];
    expect(named([loop("i", 2, body, "unrolled")])).toEqual({
      memory: ["b_tiles"],
      registers: { a: [0], b: [0, 1], c: [0, 2] },
    });
  });

  it("include a vector of lanes as registers, not as memory", () => {
    const nest: LoopNest = { ...empty, vectors: [{ name: "Z", dtype: "f32", lanes: 16, count: 2 }] };
    const equation = parseEquation("Z[1,l] = Z[0,l-1] + x[l]");
    expect(named([loop("l", 16, [{ kind: "scalar", equation }], "lanes")], nest)).toEqual({
      memory: ["x"],
      registers: { Z: [0, 1] },
    });
  });

  it("leave out a tensor that the copy engine reads, since the host describes it", () => {
    const equation = parseEquation("ring[0,m] = x[m]");
    const copy = { kind: "copy", axes: [], equation, width: 1, transfer: "engine", group: "block" } as const;
    expect(named([{ kind: "send", copies: [copy], arrival: { name: "there", stage: number(0) } }])).toEqual({
      memory: ["ring", "there"],
      registers: {},
    });
  });
});
