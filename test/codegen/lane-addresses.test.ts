/** @file Addresses of a block on lanes: counted from one pointer for each tensor, or written out. */

import { describe, expect, it } from "vitest";
import { type Access, accessesIn, axis, binary, number } from "../../abstraction/expression.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import { type Code, code, spell } from "../../abstraction/source-text.ts";
import { CExpressions } from "../../codegen/c-expressions.ts";
import { masksOf } from "../../codegen/cpp/copy-loops.ts";
import { LaneAddresses } from "../../codegen/cpp/lanes-x86.ts";
import type { Loop } from "../../codegen/walk.ts";
import { stated } from "../support/subjects.ts";

const computation = stated("out[i,j] = in[i,j] --i 20 --j 320");
const nest: LoopNest = {
  scratch: [],
  registers: [],
  prepare: [],
  body: [],
  vectors: [{ name: "X", dtype: "f32", lanes: 16, count: 1 }],
};
const c = new CExpressions(computation, nest);
const extents = { b: 20, lane: 16 };

const accessed = (text: string): Access => {
  const [found] = accessesIn(parseEquation(`x[b] = ${text}`).value);
  if (!found) throw new Error(`no access: ${text}`);
  return found;
};
const load = (from: string): Statement => ({ kind: "scalar", equation: parseEquation(`X[0,lane] = ${from}`) });
const lanes = (...body: readonly Statement[]): Loop => {
  const made = loop("lane", 16, body, "lanes");
  if (made.kind !== "loop") throw new Error("no loop");
  return made;
};
/** Nine vectors of a row, from this column on. */
const row = (first: number, more = ""): string[] =>
  Array.from({ length: 9 }, (_, v) => `in[b,lane + ${first + 16 * v}${more}]`);

/** The text of the addresses of lane 0 in a loop, after the pointers that are declared before it. */
function printed(body: readonly Statement[], addresses: readonly string[]): string[] {
  const counting = new LaneAddresses(c, ({ tensor }) => tensor === "X");
  const lines = counting.around(lanes(...body), extents, () => addresses.map((text) => addressOf(counting, text)));
  return lines.map(textOf);
}

function addressOf(counting: LaneAddresses, text: string): Code {
  const { tensor, index } = accessed(text);
  const at = index.reduce((flat, e) => binary("+", binary("*", flat, number(320)), e), number(0));
  return counting.at(tensor, at, extents);
}

const textOf = (line: Code): string => spell(line, "c++").trim();

describe("addresses of a block on lanes", () => {
  it("are counted from one pointer, which points to the first access", () => {
    expect(
      printed(row(32).map(load), ["in[b,32]", "in[b,48]", "in[b,31]", "in[b+2,32]", "in[b-1,32]"]),
    ).toMatchInlineSnapshot(`
      [
        "auto* const in_at1 = in + b * 320 + 32;",
        "in_at1",
        "in_at1 + 16",
        "in_at1 - 1",
        "in_at1 + 640",
        "in_at1 - 320",
      ]
    `);
  });

  it("are written out where a block has few accesses, or where its loop does not move them", () => {
    expect(printed(row(32).slice(0, 7).map(load), ["in[b,48]"])).toEqual([textOf(code`in + b * 320 + 48`)]);
    expect(
      printed(
        Array.from({ length: 9 }, () => load("in[b,3]")),
        ["in[b,48]"],
      ),
    ).toHaveLength(1);
  });

  it("have a pointer for each tensor, and for accesses that other loops move differently", () => {
    const stores = row(0).map(
      (from): Statement => ({
        kind: "scalar",
        equation: parseEquation(`${from.replace("in", "out")} = X[0,lane]`),
      }),
    );
    const turned = row(0).map((from) => load(from.replace("[b,", "[2*b,")));
    const lines = printed([...row(0).map(load), ...stores, ...turned], ["in[b,16]", "out[b,16]", "in[2*b,16]"]);
    expect(lines).toMatchInlineSnapshot(`
      [
        "auto* const in_at1 = in + b * 320;",
        "auto* const out_at2 = out + b * 320;",
        "auto* const in_at3 = in + (2 * b) * 320;",
        "in_at1 + 16",
        "out_at2 + 16",
        "in_at3 + 16",
      ]
    `);
  });

  it("count registers in no pointer, and prefetches in those of their tensor", () => {
    const moves: Statement[] = Array.from({ length: 9 }, () => load("X[0,lane]"));
    expect(printed(moves, ["in[b,16]"])).toHaveLength(1);
    const ahead = (s: Statement): Statement => (s.kind === "scalar" ? { ...s, prefetch: accessed("in[b,99]") } : s);
    expect(printed(row(0).slice(0, 4).map(load).map(ahead), ["in[b,16]"])).toHaveLength(2);
  });

  it("are written out again behind the loop", () => {
    const counting = new LaneAddresses(c, ({ tensor }) => tensor === "X");
    const inside: string[] = [];
    counting.around(lanes(...row(32).map(load)), extents, () => {
      inside.push(textOf(addressOf(counting, "in[b,48]")));
      return [];
    });
    expect([...inside, textOf(addressOf(counting, "in[b,48]"))]).toMatchInlineSnapshot(`
      [
        "in_at1 + 16",
        "in + b * 320 + 48",
      ]
    `);
    expect(textOf(counting.parts("in", axis("b"), extents).base)).toBe("in");
  });
});

it("lanes before a bound are a mask, on whichever side of the comparison they stand", () => {
  const mask = (test: string): string | undefined => {
    const text = masksOf([parseExpr(test)], "lane", c, extents);
    return text && textOf(text);
  };
  expect([mask("lane < 5"), mask("5 > lane"), mask("lane <= 4"), mask("4 >= lane")]).toEqual(
    Array.from({ length: 4 }, () => "row_below(5)"),
  );
  expect([mask("lane >= 3"), mask("3 <= lane"), mask("lane > 2")]).toEqual(
    Array.from({ length: 3 }, () => "~row_below(3)"),
  );
  expect([mask("2*lane < 5"), mask("lane == 5")]).toEqual([undefined, undefined]);
});
