/** @file A declaration is consistent or is refused with a sentence that names the row and the rule. */

import { describe, expect, it } from "vitest";
import { bytesOf } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { printExpr } from "../../abstraction/expression.ts";
import {
  defineIntrinsic,
  fillTemplate,
  type IntrinsicSpec,
  operandOf,
  printStorage,
  registerElements,
  tableRow,
} from "../../abstraction/intrinsic.ts";
import { tileElements, tileOffset, tilePlaces, tileRowElements } from "../../abstraction/memory-tile.ts";
import { code } from "../../abstraction/source-text.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { searchedWgmma, wgmmaNamed, wgmmaWidths } from "../../intrinsics/wgmma.ts";
import { textOf } from "../support/source.ts";

const EQUATION = "c[m,n] += s32(a[m,k]) * s32(b[k,n])";
type Toy = IntrinsicSpec<typeof EQUATION>;

const toy: Toy = {
  name: "toy.dot",
  family: "toy",
  isa: "virtual",
  language: "c++",
  summary: "One row of a matrix product; `b` holds two consecutive k side by side, `a` is copied to every n.",
  compute: EQUATION,
  extents: { m: 1, n: 4, k: 2 },
  operands: {
    a: { dtype: "u8", storage: "reg[2*n + k]", load: "{reg} = broadcast({ptr});" },
    b: { dtype: "s8", storage: "reg[2*n + k]", load: "{reg} = load({ptr});" },
    c: { dtype: "s32", storage: "reg[n]", load: "{reg} = load({ptr});", store: "store({ptr}, {reg});" },
  },
  emit: "{c} = toy_dot({c}, {a}, {b});",
  source: "invented for this test",
};

describe("a declaration", () => {
  const dot = defineIntrinsic(toy);

  it("prints its storage as declared and knows its broadcasts", () => {
    expect(dot.operands.map((o) => `${o.name}: ${printStorage(o)} ${o.broadcast.join(",")}`)).toEqual([
      "c: reg[n] ",
      "a: reg[2*n + k] n",
      "b: reg[2*n + k] ",
    ]);
  });

  it("holds a broadcast several times in the register and once in memory", () => {
    const a = operandOf(dot, "a");
    expect([registerElements(dot, a), tileElements(a), printExpr(tileOffset(a), "formula")]).toEqual([8, 2, "k"]);
    const b = operandOf(dot, "b");
    expect([registerElements(dot, b), tileElements(b)]).toEqual([8, 8]);
    // Row-major b[k,n]: the first row of b lies in every second place.
    expect([...tilePlaces(dot, "b")]).toEqual([0, 2, 4, 6, 1, 3, 5, 7]);
  });

  it("has rows as long as the longest step of its storage, where its load takes a stride", () => {
    const rowOf = (storage: string, dtype: "s8" | "bf16", load: string): number =>
      tileRowElements(
        operandOf(defineIntrinsic({ ...toy, operands: { ...toy.operands, b: { dtype, storage, load } } }), "b"),
      );
    const strided = "{reg} = rows({ptr}, {stride});";
    expect(rowOf("reg[8*(k/2) + 2*n + k%2]", "s8", strided)).toBe(8);
    expect(rowOf("reg[4*k + n]", "s8", strided)).toBe(4);
    expect(rowOf("secret", "s8", strided)).toBe(4);
    expect(rowOf("reg[8*(k/2) + 2*n + k%2]", "s8", "{reg} = load({ptr});")).toBe(8);
    const amx = INTRINSICS.filter((row) => row.family === "amx").flatMap((row) => row.operands);
    expect(amx.map((o) => tileRowElements(o) * bytesOf(o.dtype))).toEqual(amx.map(() => 64));
  });

  it("whose layout is the vendor's secret lies row-major in memory", () => {
    const secret = defineIntrinsic({
      ...toy,
      operands: { ...toy.operands, b: { dtype: "s8", storage: "wmma::matrix_b" } },
    });
    const b = operandOf(secret, "b");
    expect([printStorage(b), printExpr(tileOffset(b), "formula"), tileElements(b)]).toEqual([
      "wmma::matrix_b",
      "k*4 + n",
      8,
    ]);
  });

  it("whose layout is the vendor's secret lies by columns where it says so", () => {
    const load = "{reg} = columns({ptr}, {stride});";
    const operands = {
      ...toy.operands,
      b: { dtype: "s8", storage: "wmma::matrix_b", layout: "column", load },
    } as const;
    const b = operandOf(defineIntrinsic({ ...toy, operands }), "b");
    expect([printExpr(tileOffset(b), "formula"), tileElements(b), tileRowElements(b)]).toEqual(["n*2 + k", 8, 2]);
  });

  it("fills its template and leaves other braces alone", () => {
    const words = { a: code`x0`, b: code`x1`, c: code`x2` };
    expect(textOf(fillTemplate(dot.emit, words))).toBe("x2 = toy_dot(x2, x0, x1);");
    const braces = defineIntrinsic({ ...toy, emit: "{ {c} = (V){b}; } {{a}}" });
    expect(textOf(fillTemplate(braces.emit, { c: code`x` }))).toBe("{ x = (V){b}; } {{a}}");
  });
});

describe("a declaration is refused", () => {
  function complaint(change: Partial<Toy>): string {
    try {
      defineIntrinsic({ ...toy, ...change });
    } catch (error) {
      if (error instanceof UsageError) return error.explain();
      if (error instanceof Error) return error.message;
      throw error;
    }
    return "no complaint";
  }
  const withB = (b: Partial<Toy["operands"]["b"]>): string =>
    complaint({ operands: { ...toy.operands, b: { ...toy.operands.b, ...b } } });

  it("when an axis has no extent, or an extent no axis", () => {
    expect(complaint({ extents: { m: 1, n: 4 } })).toMatchInlineSnapshot(`
      "toy.dot: axis "k" has no extent
        c[m,n] += s32(a[m,k]) * s32(b[k,n])
                          ^
        give it one, for example --k 64"
    `);
    expect(complaint({ extents: { m: 1, n: 4, k: 2, kk: 2 } })).toMatchInlineSnapshot(`
      "toy.dot: no axis or parameter "kk"
        did you mean "k"?"
    `);
  });

  it("when two elements share a place", () => {
    expect(withB({ storage: "reg[n + k]" })).toMatchInlineSnapshot(
      `"toy.dot: storage reg[n + k] of b puts elements 1 and 4 in place 1"`,
    );
    expect(withB({ storage: "reg[0]" })).toMatchInlineSnapshot(
      `"toy.dot: storage reg[0] of b puts elements 0 and 1 in place 0"`,
    );
  });

  it("when it has more elements than anything would hold", () => {
    expect(complaint({ extents: { m: 1, n: 2 ** 16, k: 2 ** 9 } })).toMatch(
      /^toy\.dot: \w has 33554432 elements with its copies, more than the 16777216 whose storage is checked$/,
    );
  });

  it("when an element lies further on than any register reaches", () => {
    expect(withB({ storage: "reg[100000000*n + k]" })).toBe(
      "toy.dot: storage reg[100000000*n + k] of b puts an element in place 300000001; the last place that is checked is 16777215",
    );
  });

  it("when a copy of a broadcast lands on another element", () => {
    const a = { dtype: "u8", storage: "reg[n + k]" } as const;
    expect(complaint({ operands: { ...toy.operands, a } })).toMatchInlineSnapshot(
      `"toy.dot: storage reg[n + k] of a puts elements 0 and 1 in place 1"`,
    );
  });

  it("when an element would lie before the register", () => {
    expect(withB({ storage: "reg[2*n + k - 1]" })).toMatchInlineSnapshot(
      `"toy.dot: storage reg[2*n + k - 1] of b puts element 0 in place -1"`,
    );
  });

  it("when storage names no axis of the instruction", () => {
    expect(withB({ storage: "reg[2*n + lane]" })).toMatchInlineSnapshot(
      `"toy.dot: storage of b names "lane", which is no axis"`,
    );
  });

  it("when storage is no formula", () => {
    expect(withB({ storage: "reg[2*n + 10" })).toMatchInlineSnapshot(
      `"toy.dot: storage of b must read file[formula], as in "zmm[4*n + k]", got "reg[2*n + 10""`,
    );
    expect(withB({ storage: "reg[2*n + k] twice" })).toMatchInlineSnapshot(
      `"toy.dot: storage of b must read file[formula], as in "zmm[4*n + k]", got "reg[2*n + k] twice""`,
    );
    expect(withB({ storage: "reg[2*n +]" })).toMatchInlineSnapshot(`
      "toy.dot: storage of b: ends where a value was expected
        2*n +
             ^"
    `);
    expect(withB({ storage: "reg[n*k]" })).toMatchInlineSnapshot(`
      "toy.dot: storage of b: it multiplies two axes; an index may multiply an axis by a constant only
        n*k
        ^^^"
    `);
  });

  it("when a template names what it is not given", () => {
    expect(complaint({ emit: "{c} = toy_dot({acc}, {a}, {b});" })).toMatchInlineSnapshot(
      `"toy.dot: emit names {acc}, which is none of c, a, b"`,
    );
    expect(withB({ load: "{reg} = load({address});" })).toMatchInlineSnapshot(
      `"toy.dot: load of b names {address}, which is none of reg, ptr, stride, space, by, lane, rows"`,
    );
  });

  it("when types disagree", () => {
    const text: string = "c[m,n] += a[m,k] * s32(b[k,n])";
    expect(complaint({ compute: text as typeof EQUATION })).toMatchInlineSnapshot(`
      "type of a[m,k] * s32(b[k,n]): operands have types u8 and s32; cast one, for example f32(...)
        c[m,n] += a[m,k] * s32(b[k,n])
                  ^^^^^^^^^^^^^^^^^^^^"
    `);
  });
});

describe("the table of instructions", () => {
  it("is read row by row, when a formula is first asked for", () => {
    const wrong = tableRow({ ...toy, operands: { ...toy.operands, b: { dtype: "s8", storage: "reg[n + k]" } } });
    expect(wrong.summary).toBe(toy.summary);
    expect(() => wrong.operands).toThrow("puts elements 1 and 4 in place 1");
    const row = tableRow(toy);
    expect(row).toEqual(defineIntrinsic(toy));
    expect(row.operands).toBe(row.operands);
  });

  it("has consistent rows, also of widths that it does not list", () => {
    for (const { operands } of [...INTRINSICS, ...searchedWgmma()]) expect(operands.length).toBeGreaterThan(1);
    // Only widths that the hardware has are found by name.
    for (const row of searchedWgmma()) expect(wgmmaNamed(row.name)).toBe(row);
  });

  it("counts the cycles of an accumulator in words", () => {
    const told = INTRINSICS.flatMap(({ cost }) => /after (\d+ cycles?);/.exec(cost?.source ?? "")?.[1] ?? []);
    expect([...new Set(told)].sort()).toEqual(["1 cycle", "2 cycles", "3 cycles"]);
  });

  it("has the widths of wgmma that the manual lists", () => {
    const floats = wgmmaWidths({ sums: "f32", factors: "f16" });
    expect([floats.length, floats[0], floats.at(-1)]).toEqual([32, 8, 256]);
    expect(wgmmaWidths({ sums: "s32", factors: "s8" })).toEqual([
      ...[8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256],
    ]);
  });

  it("gives mma the registers that hold its operands: 32 lanes of 4 bytes each", () => {
    for (const row of INTRINSICS.filter(({ family }) => family === "mma")) {
      const registers = row.operands.map((o) => (registerElements(row, o) * bytesOf(o.dtype)) / 128);
      const declared = ["c", "a", "b"].map((name) =>
        Number(new RegExp(`&${name}\\)\\[(\\d)\\]`).exec(row.prelude ?? "")?.[1]),
      );
      expect(declared, row.name).toEqual(registers);
    }
  });

  it("has rows of lanes whose factor is common to all lanes where their name says so", () => {
    const rows = INTRINSICS.filter(({ family, language }) => family === "lanes" && language === "opencl");
    expect(rows.length).toBeGreaterThan(4);
    for (const { name, summary, operands } of rows) {
      const isShared = name.endsWith(".broadcast");
      const factor = operands.find((o) => o.name === "a");
      expect(summary.endsWith(", one factor common to all lanes."), name).toBe(isShared);
      expect(
        factor?.dims.some((d) => d.name === "n"),
        name,
      ).toBe(!isShared);
    }
  });
});
