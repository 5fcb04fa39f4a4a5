/**
 * @file Nests as text: `printNest` read back, so that a test writes the nest that it is about as a program.
 *
 *     const nest = readNest(`
 *       shared s: f32[i 64]
 *       for at block b in 0..1
 *         for at warp w in 0..2
 *           copy i 64 by 4, async, by block   s[i] = x[i]
 *           commit`);
 *     onWarps(2, "barrier block")         one block `b` of two warps `w`
 *
 * What is not printed may be said: `shared s: f16[i 32, j 64] of 2112 at 66*i + j` leaves holes, of `b{0} and 2 more along 0 <- ...` the further
 * registers lie along the first dimension, and `for u, v of c{0} by instruction   ...` stores by the operand's own store. The copy engine's boxes
 * are whole tensors.
 */

import type { Dimension } from "../../abstraction/affine.ts";
import { type Access, type Expr, number } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation, parseExpr } from "../../abstraction/parse.ts";
import type { TensorView } from "../../abstraction/tensor-view.ts";
import { rowNamed } from "./subjects.ts";

/** What stands in a line where its form has names. */
type Said = Readonly<Record<string, string>>;
type Fields = Readonly<Record<string, unknown>>;

/** A line, and those inside it. */
interface Line {
  readonly text: string;
  readonly inside: readonly Line[];
}

/** Instructions by name, and those whose registers the nest has by family. */
interface Instructions {
  readonly named: (name: string) => Intrinsic;
  readonly ofFamily: (family: string | undefined) => Intrinsic | undefined;
}

/** @param named finds instructions that no table has */
export function readNest(text: string, named: (name: string) => Intrinsic = rowNamed): LoopNest {
  const lines = outline(text.split("\n").filter((line) => line.trim() !== ""));
  const declared = Object.entries(DECLARATIONS).map(([kind, [form, read]]) => [
    kind,
    lines.flatMap((line) => {
      const said = saidIn(form, line.text);
      return said ? [withoutGaps(read(said, named))] : [];
    }),
  ]);
  // As the declarations are typed.
  const { registers, ...others } = Object.fromEntries(declared) as Omit<LoopNest, "prepare" | "body">;
  const instructions: Instructions = {
    named,
    ofFamily: (family) => registers.find(({ intrinsic }) => intrinsic.family === family)?.intrinsic,
  };
  const isDeclared = ({ text: line }: Line): boolean =>
    Object.values(DECLARATIONS).some(([form]) => saidIn(form, line));
  const statements = (of: readonly Line[]): Statement[] => of.map((line) => statement(line, instructions));
  const inside = (part: string): readonly Line[] | undefined => lines.find((line) => line.text === part)?.inside;
  const body = inside("run") ?? lines.filter((line) => !isDeclared(line));
  return { ...others, registers, prepare: statements(inside("prepare") ?? []), body: statements(body) };
}

/** A nest of blocks `b` of warps `w` that run these lines. @param declared its memory and registers */
export function onWarps(warps: number, body: string, declared = "", blocks = 1): LoopNest {
  const onEach = [`for at warp w in 0..${warps}`, ...indented(body.split("\n"))];
  return readNest([declared, `for at block b in 0..${blocks}`, ...indented(onEach)].join("\n"));
}

/** Lines inside another. */
export const indented = (lines: readonly string[]): string[] => lines.map((line) => `  ${line}`);

function outline(lines: readonly string[]): Line[] {
  const depthOf = (line: string): number => line.length - line.trimStart().length;
  const starts = lines.flatMap((line, i) =>
    lines.slice(0, i).every((before) => depthOf(before) >= depthOf(line)) ? [i] : [],
  );
  return starts.map((start, i) => ({
    text: (lines[start] ?? "").trim(),
    inside: outline(lines.slice(start + 1, starts[i + 1])),
  }));
}

/** Forms of lines: a name stands for some text, or for text of its kind; what stands in braces may be missing. */
const DECLARATIONS: Readonly<
  Record<string, readonly [form: string, (said: Said, named: Instructions["named"]) => Fields]>
> = {
  scratch: [
    "<scope:shared|cluster|workspace|local> <name>: <dtype>[<shape>]{ of <size>}{ at <at>}",
    ({ shape = "", size, at, ...said }) => {
      const dims = dimensions(shape);
      const elements = dims.reduce((product, d) => product * d.extent, 1);
      const flat = { ...said, elements: Number(size ?? shape) };
      return dims.length === 0 ? flat : { ...said, elements: Number(size ?? elements), dims, storage: expression(at) };
    },
  ],
  registers: [
    "registers <name>: <count> x <instruction>.<operand:\\w+>",
    ({ name, count, instruction = "", operand }, named) => ({
      name,
      intrinsic: named(instruction),
      operand,
      count: Number(count),
    }),
  ],
  arrivals: ["arrivals <name>: <stages>", ({ name, stages }) => ({ name, stages: Number(stages) })],
  vectors: [
    "vectors <name>: <count> x <dtype>[<lanes>]",
    ({ name, count, dtype, lanes }) => ({ name, dtype, lanes: Number(lanes), count: Number(count) }),
  ],
};

/** The first form that fits is meant. */
const STATEMENTS: readonly (readonly [
  form: string,
  read: (said: Said, body: () => readonly Statement[], instructions: Instructions) => Fields,
])[] = [
  [
    "for{ at}{ <mode>} <axis> in 0..<extent>",
    ({ mode = "serial", axis, extent }, body) => ({ kind: "loop", axis, extent: Number(extent), mode, body: body() }),
  ],
  [
    "for <axes> of <register>{ by <by>}   <equation>",
    ({ axes = "", register, by, equation = "" }) => ({
      kind: "drain",
      register: registerAt(register),
      axes: axes.split(", "),
      equation: parseEquation(equation),
      element: "sum",
      by,
    }),
  ],
  [
    "copy <axes>{ by <width:\\d+>}{, <transfer:async|engine>}, by <group>{, as a box of <box>}{ where <when>}   <equation>",
    ({ axes = "", width = 1, transfer = "plain", group, box, when, equation = "" }) => ({
      kind: "copy",
      axes: dimensions(axes),
      equation: parseEquation(equation),
      width: Number(width),
      transfer,
      group,
      view: box && wholeTensor(dimensions(box)),
      when: expression(when),
    }),
  ],
  ["commit{ <family>}", ({ family }, _, { ofFamily }) => ({ kind: "commit", of: ofFamily(family) })],
  [
    "wait{ <family>} <pending>",
    ({ family, pending }, _, { ofFamily }) => ({ kind: "wait", pending: Number(pending), of: ofFamily(family) }),
  ],
  ["fence <family> <on>", ({ family, on }, _, { ofFamily }) => ({ kind: "fence", on, of: ofFamily(family) })],
  ["barrier{ <group:\\w+>}{, of <of>}", (said) => ({ kind: "barrier", ...said })],
  ["send for <arrival>", ({ arrival }, copies) => ({ kind: "send", copies: copies(), arrival: arrivalAt(arrival) })],
  [
    "await <arrival>, use <use>",
    ({ arrival, use }) => ({ kind: "await", arrival: arrivalAt(arrival), use: expression(use) }),
  ],
  ["<register> <- identity", ({ register }) => ({ kind: "clear", register: registerAt(register) })],
  [
    "<register> <- <buffer>[<base> .. by <stride>]",
    ({ register, ...tile }) => ({ kind: "load", register: registerAt(register), memory: memoryTile(tile) }),
  ],
  [
    "<buffer>[<base> .. by <stride>] <- <register>",
    ({ register, ...tile }) => ({ kind: "store", register: registerAt(register), memory: memoryTile(tile) }),
  ],
  [
    "<result> <- <instruction>(<inputs>)",
    ({ result, instruction = "", inputs = "" }, _, { named }) => {
      const intrinsic = named(instruction);
      // Where operands are: those in registers, and those that it reads from memory.
      const places = [result, ...inputs.split(/, (?=\w+[{[])/)].map(
        (text, i) => [intrinsic.operands[i]?.name, text] as const,
      );
      const inMemory = places.filter(([, text]) => text?.includes(" over "));
      return {
        kind: "register-issue",
        intrinsic,
        registers: Object.fromEntries(
          places.filter((place) => !inMemory.includes(place)).map(([name, text]) => [name, registerAt(text)]),
        ),
        ...(inMemory.length > 0 && { tiles: Object.fromEntries(inMemory.map(([name, text]) => [name, tileAt(text)])) }),
      };
    },
  ],
  [
    "<register>{ and <more> more}{ along <along>} <- <access> over <axes>{ by <by>}",
    ({ register, more, along = 1, access, axes, by = "elements" }) => ({
      kind: "fetch",
      register: registerAt(register),
      tile: withoutGaps({
        ...tileAt(`${access} over ${axes}`),
        by,
        several: more && { count: Number(more) + 1, along: Number(along) },
      }),
    }),
  ],
  ["<equation>", ({ equation = "" }) => ({ kind: "scalar", equation: parseEquation(equation) })],
];

function statement({ text, inside }: Line, instructions: Instructions): Statement {
  for (const [form, read] of STATEMENTS) {
    const said = saidIn(form, text);
    const body = (): readonly Statement[] => inside.map((line) => statement(line, instructions));
    // The forms are those that `printHead` prints of each kind.
    if (said) return withoutGaps(read(said, body, instructions)) as unknown as Statement;
  }
  throw new Error(`no statement: ${text}`);
}

/** The texts in place of names, where a line has this form. */
function saidIn(form: string, line: string): Said | undefined {
  const pattern = form
    .replaceAll(/[.[\]()]/g, "\\$&")
    .replaceAll("{", "(?:")
    .replaceAll("}", ")?")
    .replaceAll(/<(\w+):?([^>]*)>/g, (_, name: string, kind: string) => `(?<${name}>${kind || ".+?"})`);
  const found = new RegExp(`^${pattern}$`).exec(line)?.groups;
  return found && (withoutGaps(found) as Said);
}

/** `i 64, j 2` */
function dimensions(text: string): Dimension[] {
  return text.split(", ").flatMap((part) => {
    const [name = "", extent] = part.split(" ");
    return extent === undefined ? [] : [{ name, extent: Number(extent) }];
  });
}

/** @param dims innermost first */
const wholeTensor = (dims: readonly Dimension[]): TensorView => ({
  dims: dims.map(({ name, extent }, i) => ({
    name,
    own: [{ position: dims.length - 1 - i, extent }],
    extent,
    pitch: dims.slice(0, i).reduce((product, d) => product * d.extent, 1),
  })),
  at: dims.map(() => number(0)),
  rows: { kind: "box", extents: dims.map((d) => d.extent) },
});

const expression = (text: string | undefined): Expr | undefined => (text === undefined ? undefined : parseExpr(text));

function accessIn(text = ""): Access {
  const access = parseExpr(text);
  if (access.kind !== "access") throw new Error(`no access: ${text}`);
  return access;
}

/** `a_ring[0,u,v] over u, v`, as an instruction reads it */
function tileAt(text = ""): Fields {
  const [access, axes] = text.split(" over ");
  return { axes: axes?.split(", "), access: accessIn(access), by: "instruction" };
}

function arrivalAt(text: string | undefined): Fields {
  const { tensor, index } = accessIn(text);
  return { name: tensor, stage: index[0] };
}

/** `c{2*i}` */
function registerAt(text = ""): Fields {
  const [file, index] = text.slice(0, -1).split("{");
  return { file, index: expression(index) };
}

const memoryTile = ({ buffer, base, stride }: Said): Fields => ({
  buffer,
  base: expression(base),
  stride: Number(stride),
});

const withoutGaps = (fields: Fields): Fields =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));
