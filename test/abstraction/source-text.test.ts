/** @file Text of programs: the values the tag takes, the escapes on hostile text, and the spelling of names. */

import { describe, expect, it } from "vitest";
import { isReserved, RESERVED } from "../../abstraction/keywords.ts";
import {
  apart,
  askedIn,
  axisName,
  bare,
  block,
  type Code,
  code,
  comment,
  commentText,
  formatText,
  hexadecimal,
  identifier,
  jsonText,
  lines,
  list,
  Name,
  namesIn,
  plainWord,
  quoted,
  replaced,
  spell,
  spellingOf,
  stringLiteral,
  tensorName,
} from "../../abstraction/source-text.ts";
import { readSource, sourceFiles } from "../support/imports.ts";
import fc from "../support/property.ts";
import { sourceOf, textOf } from "../support/source.ts";

const EVIL = 'x"; */ int evil = system("touch planted"); /* \\\n */';

describe("code`...`", () => {
  it("takes code, names, numbers and words of closed sets", () => {
    const op: "+" | "-" = Math.random() < 2 ? "+" : "-";
    const text = code`${tensorName("a")}[${axisName("i")}] ${op} ${-0.5} * ${list([code`f(${1})`, tensorName("b")])}`;
    expect(textOf(text)).toBe("a[i] + -0.5 * f(1), b");
    expect([...namesIn(text)]).toEqual(["tensor a", "axis i", "tensor b"]);
  });

  it("takes lists of lines: each is indented as its hole is, and of none the line is left out", () => {
    const some = [code`x = ${axisName("i")};`, code`y = 2;`];
    expect(textOf(code`for (;;) {\n    ${some}\n  ${[]}\n}`)).toBe("for (;;) {\n    x = i;\n    y = 2;\n}");
    expect(textOf(lines(block(code`for (;;) {`, some)))).toBe("for (;;) {\n  x = i;\n  y = 2;\n}");
    // @ts-expect-error: lines are code
    expect(() => code`{\n${["x /* y"]}\n}`).toThrow("cannot stand in a program");
  });

  it("takes no string: the compiler of TypeScript refuses it", () => {
    const outside: string = "x";
    const maybe: string | Code = outside;
    const word: "x" | undefined = outside === "x" ? "x" : undefined;
    // @ts-expect-error: any text is refused
    expect(textOf(code`${outside}`)).toBe("x");
    // @ts-expect-error: text put together is refused
    expect(textOf(code`${`${outside}y`}`)).toBe("xy");
    // @ts-expect-error: what may be text is refused
    expect(textOf(code`${maybe}`)).toBe("x");
    // @ts-expect-error: a finished source is quoted, or not at all
    expect(textOf(code`${sourceOf("x")}`)).toBe("x");
    // @ts-expect-error: perhaps nothing
    expect(textOf(code`${word}`)).toBe("x");
    // @ts-expect-error: neither
    expect(() => code`${{ pieces: ["x"] }}`).toThrow("cannot stand in a program");
  });

  it("checks its values at run time, since those of a record may have other types", () => {
    const claims = (hole: unknown): (() => Code) => {
      const number = hole as number; // what a record claims
      return () => code`${number}`;
    };
    for (const hole of [
      EVIL,
      "4; evil()",
      "a\nb",
      "a/*b",
      "a*/b",
      "a//b",
      "(x)",
      "'",
      "\\",
      "`",
      Number.NaN,
      Infinity,
      null,
      {},
      ["x /* y"],
    ])
      expect(claims(hole)).toThrow("cannot stand in a program");
  });

  it("is no string by accident", () => {
    expect(() => `${code`x`}`).toThrow("code is put into code`...`");
  });

  it("takes names that are identifiers, and refuses others with the name", () => {
    for (const wish of [EVIL, "", "1a", "a b", "a-b", "ä", "a\n", "a\u0000", "constructor()"])
      expect(() => new Name("tensor", wish)).toThrow(
        expect.objectContaining({ name: "UsageError", message: expect.stringMatching(/cannot name a tensor/) }),
      );
    expect(() => tensorName(["a"] as unknown as string)).toThrow("cannot name a tensor");
  });

  it("prints a word after @ and asks for it, with words and numbers in it, but not what stands in names and comments", () => {
    const dtype: "f16" | "bf16" = Math.random() < 2 ? "f16" : "bf16";
    const inner = code`@most<float>(@load_${2}_rows(${tensorName("x")}), 0)`;
    const text = code`(@to_${dtype}(${inner}))${comment(["to someone@example.org"])} @`;
    expect(textOf(text)).toBe("(to_f16(most<float>(load_2_rows(x), 0)))/*\n * to someone@example.org\n */ @");
    expect([...askedIn([text, bare(code`(@least(1))`)])]).toEqual(["to_f16", "most", "load_2_rows", "least"]);
  });

  it("drops the parentheses around everything, and no others", () => {
    const [a, b] = [tensorName("a"), tensorName("b")];
    const cases = [
      code`(${a} * ${b})`,
      code`(${a}) * (${b})`,
      code`${code`(`}${a}${code`)`}`,
      code`f(${a})`,
      code`(${a}`,
    ];
    expect(cases.map((c) => textOf(bare(c)))).toEqual(["a * b", "(a) * (b)", "a", "f(a)", "(a"]);
  });
});

describe("each place in a source has one escape", () => {
  /** Everything that a comment of C, C++ or a shell might end at, and characters that show otherwise than they are. */
  const HOSTILE = [
    EVIL,
    "*/",
    "/*",
    "*\\\n/",
    "*\\",
    "\\",
    "\\\\\\ ",
    "??/",
    "a\r\nb",
    "a\u2028b",
    "\u202eb",
    "\u0000\u001b[2J",
    ..."\ud800 \udc00 **/ */*/ /*/".split(" "),
  ];

  it("in a comment, that nothing ends early and nothing continues", () => {
    for (const text of HOSTILE) {
      const said = textOf(comment([text, text]));
      expect(said.split("\n")).toHaveLength(4);
      expect(said.slice(2, -2)).not.toMatch(/\*\/|\/\*/);
      // biome-ignore lint/suspicious/noControlCharactersInRegex: these are the ones.
      expect(said).not.toMatch(/\\\s*\n|\?\?\/|[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e]/);
      expect(said).not.toMatch(/\p{Surrogate}/u);
    }
    expect(textOf(comment(["plain: a/b, 'x' \"y\" 100 %", ""]))).toBe("/*\n * plain: a/b, 'x' \"y\" 100 %\n *\n */");
  });

  it("in a comment, for any text at all", () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom("*", "/", "\\", "?", "\n", " ", "a", "\r", "\ud800") }), (text) => {
        const said = textOf(commentText(text));
        expect(said).not.toMatch(/[\n\r]|\*\/|\/\*|\?\?\/|\\\s*$/);
      }),
      { numRuns: 2000 },
    );
  });

  it("in a string of C, that it is read as it was given", () => {
    expect(textOf(stringLiteral('a"b\\c\nd?%ä'))).toBe('"a\\042b\\134c\\012d\\077%\\303\\244"');
    for (const text of HOSTILE) expect(textOf(stringLiteral(text))).toMatch(/^"(?:[ !#-.0-[\]-~/]|\\[0-7]{3})*"$/);
    expect(textOf(formatText("100 %n"))).toBe("100 %%n");
  });

  it("in JSON, that JavaScript reads it too", () => {
    for (const text of HOSTILE) {
      const json = textOf(jsonText({ [text]: [text] }));
      expect(json).not.toMatch(/[\u2028\u2029\n]/);
      expect(JSON.parse(json)).toEqual({ [text]: [text] });
      expect(new Function(`return (${json})`)()).toEqual({ [text]: [text] });
    }
  });

  it("in a command, that it is one word", () => {
    for (const text of [
      ...HOSTILE,
      "a b",
      "$(x)",
      "`x`",
      "a;b",
      "a|b",
      "a&b",
      "a>b",
      "'",
      '"',
      "$" + "{x}",
      "a\tb",
      "",
    ])
      expect(() => plainWord(text)).toThrow("no plain word");
    expect(textOf(plainWord("-std=c++17"))).toBe("-std=c++17");
    for (const text of [...HOSTILE, "a b", "1a", ""]) expect(() => identifier(text)).toThrow("no identifier");
    expect(() => hexadecimal(-1)).toThrow("hexadecimal");
  });
});

describe("a name is spelled", () => {
  const spelled = (text: Code): string => spell(text, "c++");

  it("unchanged, unless the language, a macro or the text around it has the word", () => {
    const text = (wish: string): string =>
      spelled(code`float* ${tensorName(wish)} = tensors[part]; /* of parts, in x */`);
    expect(["x", "in", "parts", "of", "a0"].map(text).map((t) => t.split(" ")[1])).toEqual([
      "x",
      "in",
      "parts",
      "of",
      "a0",
    ]);
    expect(
      ["new", "part", "tensors", "NULL", "errno", "M_PI", "_x", "__x86_64__", "_", "float"].map(
        (w) => text(w).split(" ")[1],
      ),
    ).toEqual(["new_", "part_", "tensors_", "NULL_", "errno_", "M_PI_", "v_x", "v__x86_64__", "v_", "float_"]);
  });

  it("apart from every other name: tensors, axes, registers and names derived from them", () => {
    const [c, axis, register] = [tensorName("c"), axisName("c"), new Name("register", "c", "file 0")];
    expect(spelled(code`${c} ${axis} ${register} ${c} ${c.with("_")} ${tensorName("c_")}`)).toBe(
      "c c_ c__ c c___ c____",
    );
  });

  it("apart from words of the text after it, but not from comments, strings, members and numbers", () => {
    expect(spelled(code`${tensorName("b")}; b`)).toBe("b_; b");
    expect(spelled(code`${tensorName("u")} = 1u + threadIdx.u + p->u + std::u; // u\n"u" /* u */ '\"'`)).toMatch(
      /^u = /,
    );
    expect(spelled(code`#include <u/h>\n${tensorName("u")} ${tensorName("h")}`)).toMatch(/u h$/);
  });

  it("apart from macros of helpers, but not from local names in their functions", () => {
    const helper = apart(code`#define SIDE 2\nstatic int twice(int x) { return SIDE * x; }`);
    const text = lines([helper, code`${tensorName("x")} = twice(${tensorName("Side")}) + ${tensorName("SIDE")};`]);
    expect(spelled(text).split("\n").at(-1)).toBe("x = twice(Side) + SIDE_;");
    expect(() => spelled(apart(code`${tensorName("x")}`))).toThrow("stands in text that is kept apart");
  });

  it("and never joined to the text beside it", () => {
    expect(() => spelled(code`data_${tensorName("x")}`)).toThrow("runs into");
    expect(() => spelled(code`${tensorName("x")}${0}`)).toThrow("runs into");
    expect(() => spelled(code`${tensorName("x")}${tensorName("y")}`)).toThrow("runs into");
  });

  it("only once for several texts about the same computation", () => {
    const header = code`int f(int ${tensorName("type")});`;
    const types = code`f(${tensorName("type")}: number)`;
    const words = spellingOf([header, types], ["c++", "typescript"]);
    expect([words.finish(header), words.finish(types)]).toEqual(["int f(int type_);", "f(type_: number)"]);
    expect(() => words.word(tensorName("other"))).toThrow("stands in no text");
  });

  it("as a word that is free, whatever other names there are", () => {
    const wish = fc.constantFrom(
      "a",
      "a_",
      "a__",
      "new",
      "new_",
      "NULL",
      "NULL_",
      "_a",
      "v_a",
      "int",
      "t",
      "X0",
      "i_j",
    );
    const space = fc.constantFrom("tensor", "axis", "register", "local");
    fc.assert(
      fc.property(fc.uniqueArray(fc.tuple(space, wish), { selector: String }), (wishes) => {
        const names = wishes.map(([where, word]) => new Name(where, word));
        const words = spelled(code`int t; ${list(names)}`)
          .slice("int t; ".length)
          .split(", ")
          .filter(Boolean);
        expect(new Set(words).size).toBe(names.length);
        for (const word of words)
          expect([word, ["int", "t"].includes(word) || isReserved(word, ["c++"])]).toEqual([word, false]);
      }),
      { numRuns: 500 },
    );
  });

  it("never as a keyword of its language", () => {
    for (const language of ["c++", "cuda", "cm", "python", "typescript"] as const)
      for (const word of RESERVED[language]) expect(spell(code`${tensorName(word)}`, language)).toBe(`${word}_`);
  });
});

describe("a finished source", () => {
  it("is quoted whole, and changed only by code", () => {
    const source = sourceOf('extern "C" int run();\nrun;');
    const changed = replaced(source, /\brun\b/g, () => code`${identifier("k")}_run`);
    expect(changed).toBe('extern "C" int k_run();\nk_run;');
    expect(textOf(code`namespace k { ${quoted(changed)} } ${tensorName("k_run")}`)).toMatch(/ k_run$/);
  });
});

describe("no other way into a source", () => {
  /** Files of ours whose text is printed as it is: what they hand on, and why that is safe. */
  const TRUSTING: Readonly<Record<string, string>> = {
    "abstraction/intrinsic.ts": "rows of the table, typed RowText",
    "targets/registers.ts": "registers in the tables of the families",
    "runtime/reference/reference-source.ts": "headers of the harness",
    "runtime/harness/run.ts": "the harness",
    "runtime/conformance.ts": "a header of the emulation",
    "codegen/subgroup/opencl-helpers.ts": "helpers of C++ with types of a closed list put in",
    "package/portable.ts": "files of a package",
    "bench/peers/loops.ts": "a bench's own file",
    "bench/peers/onednn.ts": "a bench's own file",
  };
  const files = sourceFiles();

  it("is used: only our own files and tables are trusted as text", () => {
    const importers = files.filter(
      (file) => file !== "abstraction/source-text.ts" && /\btrustedCode\b/.test(readSource(file)),
    );
    expect(importers.sort()).toEqual(Object.keys(TRUSTING).sort());
  });

  it("is used: no text is cast to a source, code or a row of the table", () => {
    const claim = /\bas (?:unknown as )?(?:SourceText|Code|Name|RowText)\b/;
    const claiming = files.filter((file) => claim.test(readSource(file)));
    expect(claiming).toEqual(["abstraction/intrinsic.ts", "abstraction/source-text.ts"]);
  });
});
