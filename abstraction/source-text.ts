/**
 * @file Text of a program while it is written. Only the tag `code` and the escaping functions below make it: what comes from outside
 * reaches a source as a {@link Name}, a number, a comment or a literal, and in no other way, since `code` takes no `string`.
 *
 *     code`for (long ${k} = 0; ${k} < ${extent}; ${k}++) {`          k: Name, extent: number
 *     comment(["measured on EPYC *\/ int x;"])                       / * measured on EPYC * / int x; * /
 *     code`const char* cpu = ${stringLiteral(cpu)};`                 const char* cpu = "EPYC \"Milan\"\n";
 *
 * Names are spelled when the text is finished (spelling.ts), in words that nothing else in the program uses.
 */

import { UsageError } from "./error.ts";

/** The text of a finished program, which {@link spell} alone makes. */
export type SourceText = string & { readonly [finished]: true };
declare const finished: unique symbol;

/** Whose name it is: those of two spaces are different, even if they are wished alike. */
export type NameSpace = "tensor" | "axis" | "register" | "local";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** A word of a program that stands for something a user, a nest or a printer has named. Names with the same id are the same. */
export class Name {
  readonly wish: string;
  readonly id: string;
  protected readonly kind = "name";

  /**
   * @param wish the word it is to be, if it is free
   * @param key tells apart what is wished alike within a space
   * @throws UsageError when the wish is no identifier
   */
  constructor(space: NameSpace, wish: string, key: string = wish) {
    if (typeof wish !== "string" || !NAME.test(wish))
      throw new UsageError(`${shown(wish)} cannot name a ${space} in a program`, {
        hint: "a name has letters, digits and _, a letter first",
      });
    this.wish = wish;
    this.id = `${space} ${key}`;
  }

  /** What is made of it: `in_row` of `in`. */
  with(suffix: string): Name {
    return new Name("local", this.wish + suffix, `${this.id} ${suffix}`);
  }
}

export const tensorName = (name: string): Name => new Name("tensor", name);
export const axisName = (name: string): Name => new Name("axis", name);

type Piece = string | Name | Code;

/** Known to this file alone, so that no other makes a {@link Code}. */
const MADE_HERE = Symbol("made by source-text.ts");

/** A part of a program: fixed text, and names between. */
export class Code {
  readonly pieces: readonly Piece[];
  /** Scopes of its own (helper functions, headers of ours): their words meet no name. */
  readonly apart: boolean;
  protected readonly made: typeof MADE_HERE;

  constructor(made: typeof MADE_HERE, pieces: readonly Piece[], apart = false) {
    this.made = made;
    this.pieces = pieces;
    this.apart = apart;
  }

  /** Text of another kind would lose the names. */
  toString(): never {
    throw new Error("internal: code is put into code`...`, not into a string");
  }
}

/** What stands for itself: a literal type such as `"+" | "-"`, never `string`. */
type Closed<T> = T extends string ? (Record<never, never> extends Record<T, 1> ? never : T) : T;
type Hole = Code | Name | number | string;
type Holes<H extends readonly Hole[]> = { readonly [K in keyof H]: Closed<H[K]> };

/** Types are gone when the program runs: a word may still be anything that a record said. */
const WORD = /^[\w+*/%<>=!&|^~.:, -]*$/;
const COMMENT_MARK = /\/[/*]|\*\//;

/**
 * Text with its holes filled by code, names, finite numbers, and words of a closed set.
 * @throws Error for a number that is none, and for what only claims to be one of these
 */
export function code<const H extends readonly Hole[]>(texts: TemplateStringsArray, ...holes: H & Holes<H>): Code {
  const pieces: Piece[] = [];
  for (const [i, text] of texts.entries()) {
    add(text, pieces);
    if (i < holes.length) add(pieceOf(holes[i]), pieces);
  }
  return new Code(MADE_HERE, pieces);
}

/** Pieces of a part that is put in as they are: a line is gone through several times before it is text. */
const FEW = 64;

/** Adds a piece behind others: text to text before it, and the pieces of a short part one by one. */
function add(piece: Piece, pieces: Piece[]): void {
  const last = pieces.length - 1;
  const before = pieces[last];
  if (piece instanceof Code && !piece.apart && piece.pieces.length <= FEW) for (const p of piece.pieces) add(p, pieces);
  else if (typeof piece === "string" && typeof before === "string") pieces[last] = before + piece;
  else if (piece !== "") pieces.push(piece);
}

function pieceOf(hole: unknown): Piece {
  if (hole instanceof Code || hole instanceof Name) return hole;
  if (typeof hole === "number" && Number.isFinite(hole)) return Object.is(hole, -0) ? "-0" : String(hole);
  if (typeof hole === "string" && WORD.test(hole) && !COMMENT_MARK.test(hole)) return hole;
  throw new Error(`internal: ${shown(hole)} cannot stand in a program`);
}

/** Parts with a separator between. */
export function join(parts: readonly (Code | Name)[], separator: Code = NOTHING): Code {
  return new Code(
    MADE_HERE,
    parts.flatMap((part, i): Piece[] => (i === 0 ? [part] : [separator, part])),
  );
}

/** `a, b, c` */
export function list(parts: readonly (Code | Name)[]): Code {
  return join(parts, COMMA);
}

/** Lines of text, one behind the other. */
export function lines(parts: readonly Code[]): Code {
  return join(parts, NEW_LINE);
}

export const NOTHING: Code = code``;
const NEW_LINE = code`\n`;
const COMMA = code`, `;

/** `0xfff0` */
export function hexadecimal(value: number): Code {
  if (!Number.isSafeInteger(value) || value < 0) throw new Error(`internal: ${shown(value)} has no hexadecimal digits`);
  return trustedCode(`0x${value.toString(16)}`);
}

export function indented(parts: readonly Code[]): Code[] {
  return parts.map((part) => code`  ${part}`);
}

/** `(a * b)` without the parentheses around everything. */
export function bare(text: Code): Code {
  const flat: (string | Name)[] = [];
  visit(text, (piece) => flat.push(piece));
  const whole = skeleton(text);
  if (!whole.startsWith("(") || !whole.endsWith(")")) return text;
  let depth = 0;
  for (const character of whole.slice(0, -1)) {
    depth += character === "(" ? 1 : character === ")" ? -1 : 0;
    if (depth === 0) return text;
  }
  const cut = flat.map((piece, i) => {
    if (piece instanceof Name) return piece;
    const end = i === flat.length - 1 ? piece.slice(0, -1) : piece;
    return i === 0 ? end.slice(1) : end;
  });
  return new Code(MADE_HERE, cut);
}

/** Functions and declarations whose words are in scopes of their own: names need not keep away from them. */
export function apart(text: Code): Code {
  return new Code(MADE_HERE, [text], true);
}

/** Text of our own files and tables: headers of the harness, the table of instructions. Never text of a user or of a record. */
export function trustedCode(text: string): Code {
  return new Code(MADE_HERE, [text]);
}

/** Text with `{words}` in braces filled; a word without a value stays as it stands. */
export function filled(template: Code, values: Readonly<Record<string, Code | Name>>): Code {
  const fill = (text: string): Piece[] =>
    text.split(BRACES).map((piece, i): Piece => (i % 2 === 0 ? piece : (values[piece] ?? `{${piece}}`)));
  return new Code(
    MADE_HERE,
    template.pieces.flatMap((piece) => (typeof piece === "string" ? fill(piece) : [piece])),
    template.apart,
  );
}

/** Every other piece of a text split by it is the word within braces. */
export const BRACES = /\{(\w+)\}/g;

/** A finished source within another, or what is made of it word by word. */
export function quoted(source: SourceText): Code {
  return apart(trustedCode(source));
}

/** A finished source with what matches a pattern replaced; `made` says by what, of the groups. */
export function replaced(
  source: SourceText,
  pattern: RegExp,
  made: (...groups: readonly string[]) => Code,
): SourceText {
  const text = source.replace(pattern, (...found) =>
    skeleton(made(...found.filter((part) => typeof part === "string"))),
  );
  // The parts that are new are code.
  return text as SourceText;
}

/** Calls `see` with every piece of a text in order, and whether it stands apart. */
export function visit(text: Code, see: (piece: string | Name, apart: boolean) => void, isApart = false): void {
  const within = isApart || text.apart;
  for (const piece of text.pieces)
    if (piece instanceof Code) visit(piece, see, within);
    else see(piece, within);
}

/** The text with a mark in place of every name: what is looked through for words of ours. */
export function skeleton(text: Code | readonly Code[]): string {
  const parts: string[] = [];
  for (const part of text instanceof Code ? [text] : text) {
    visit(part, (piece) => parts.push(piece instanceof Name ? NAME_MARK : piece));
    if (part !== text) parts.push("\n");
  }
  return parts.join("");
}

/** Stands in a {@link skeleton} for a name. */
const NAME_MARK = "\u0001";

/** Equal for equal texts. */
export function keyOf(text: Code): string {
  const parts: string[] = [];
  visit(text, (piece) => parts.push(piece instanceof Name ? `${NAME_MARK}${piece.id}${NAME_MARK}` : piece));
  return parts.join("");
}

/** The ids of the names a text mentions. */
export function namesIn(text: Code | readonly Code[]): ReadonlySet<string> {
  const found = new Set<string>();
  for (const part of text instanceof Code ? [text] : text)
    visit(part, (piece) => {
      if (piece instanceof Name) found.add(piece.id);
    });
  return found;
}

// ---- escaping: one function a place ---------------------------------------------------------------------------------------------

/** What moves the cursor, ends a line, or reads otherwise than it is written: controls, separators, marks of direction, halves of characters. */
const UNPRINTABLE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** One line of a comment, whatever the language marks it by. */
export function commentText(text: string): Code {
  const plain = String(text)
    .replace(UNPRINTABLE, " ")
    .replace(/\*(?=\/)/g, "* ")
    .replace(/\/(?=\*)/g, "/ ")
    // A backslash at the end of a line joins it to the next, in C and in shells; `??/` is one to old compilers.
    .replace(/\?\?(?=\/)/g, "? ?")
    .replace(/\\+\s*$/, (slashes) => `${slashes.trimEnd()}.`);
  return trustedCode(plain);
}

/** Lines as a comment of C. */
export function comment(texts: readonly (string | Code)[]): Code {
  const line = (text: string | Code): Code => {
    const part = text instanceof Code ? text : commentText(text);
    return skeleton(part) === "" ? code` *` : code` * ${part}`;
  };
  return lines([code`/*`, ...texts.map(line), code` */`]);
}

/** A word that is printed as it is: the name of a package, of which others know the functions. @throws Error when it is no identifier */
export function identifier(text: string): Code {
  if (!NAME.test(text)) throw new Error(`internal: ${shown(text)} is no identifier`);
  return trustedCode(text);
}

/** A word of a command line that no shell and no CMake takes for more: a flag, a file in the package. @throws Error for any other */
export function plainWord(text: string): Code {
  if (!/^[\w.+=,/:-]+$/.test(text)) throw new Error(`internal: ${shown(text)} is no plain word of a command`);
  return trustedCode(text);
}

/** A string of C or C++: bytes of UTF-8, those beyond ASCII and those with a meaning in octal. */
export function stringLiteral(text: string): Code {
  const bytes = new TextEncoder().encode(text);
  const plain = (byte: number): boolean => byte >= 0x20 && byte < 0x7f && !'"\\?'.includes(String.fromCharCode(byte));
  const one = (byte: number): string =>
    plain(byte) ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, "0")}`;
  return trustedCode(`"${Array.from(bytes, one).join("")}"`);
}

/** The same within the format of a printf, without the quotes around it: it prints as it is. */
export function formatText(text: string): Code {
  return trustedCode(skeleton(stringLiteral(text.replaceAll("%", "%%"))).slice(1, -1));
}

/** A value as JSON, which is JavaScript too. */
export function jsonText(value: unknown, indent = 0): Code {
  const text = JSON.stringify(value, undefined, indent);
  return trustedCode(
    text.replace(/[\u007f-\u009f\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

/** A line of a block of Markdown that is shown as it is. */
export function markdownVerbatim(text: string): Code {
  return trustedCode(String(text).replace(UNPRINTABLE, " "));
}

/** What was given, short enough for a message. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 60)} ...` : text;
}
