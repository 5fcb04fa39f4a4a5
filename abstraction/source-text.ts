/**
 * @file Text of a program under construction. Only the tag `code` and the escaping functions below create it. Text from outside enters a source only
 * as a {@link Name}, a number, a comment or a literal, because `code` accepts no `string`.
 *
 *     code`for (long ${k} = 0; ${k} < ${extent}; ${k}++) {`          k: Name, extent: number
 *     comment(["measured on EPYC *\/ int x;"])                       / * measured on EPYC * / int x; * /
 *     code`const char* cpu = ${stringLiteral(cpu)};`                 const char* cpu = "EPYC \"Milan\"\n";
 *     code`y = @least<${type}>(${x}, 0);`                            y = least<float>(x, 0);       and askedIn: least
 *     code`{\n  ${lines}\n}`                                        each of the lines, indented, between the braces
 *
 * A word after `@` is a function that the program needs besides. {@link spell} finishes the text and gives every name a word that nothing else in it
 * uses:
 *
 *     spell(code`float* const ${tensor("part")} = ...; ... part / parts`, "c++")      float* const part_ = ...; ... part / parts
 *
 * A name gets the word it asks for, unless the language, a macro, the fixed text around it or another name uses that word: then a `_` is appended. A
 * leading `_` gets a `v` before it. The words of the fixed text are read from the text itself, so printers keep no lists of their words.
 */

import { type Optional, present } from "./collections.ts";
import { internal, UsageError } from "./error.ts";
import { isReserved, type Language } from "./keywords.ts";

/** The text of a finished program. {@link spell} creates it, and {@link received} admits one that was created elsewhere. */
export type SourceText = string & { readonly [finished]: true };
declare const finished: unique symbol;

/** Namespace of a name. Names of two spaces differ even when they ask for the same word. */
type NameSpace = "tensor" | "axis" | "register" | "local";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** A name in a program, given by a user, a nest or a printer. Names with the same id are the same. */
export class Name {
  readonly wish: string;
  readonly id: string;
  protected readonly kind = "name";

  /**
   * @param wish the word to use if it is free
   * @param key distinguishes names of one space that ask for the same word
   * @throws UsageError when the wish is no identifier
   */
  constructor(space: NameSpace, wish: string, key: string = wish) {
    if (typeof wish !== "string" || !NAME.test(wish))
      throw new UsageError(
        `${shown(wish)} cannot name a ${space} in a program`,
        "a name has letters, digits and _, a letter first",
      );
    this.wish = wish;
    this.id = `${space} ${key}`;
  }

  /** A name derived from this one: `in_row` from `in`. */
  with(suffix: string): Name {
    return new Name("local", this.wish + suffix, `${this.id} ${suffix}`);
  }
}

export const tensorName = (name: string): Name => new Name("tensor", name);
export const axisName = (name: string): Name => new Name("axis", name);

/** A function that a text calls and that the program must define. */
class Asked {
  readonly word: string;

  constructor(word: string) {
    this.word = word;
  }
}

type Piece = string | Name | Asked | Code;

/** Private to this file, so that no other file can create a {@link Code}. */
const MADE_HERE = Symbol("made by source-text.ts");

/** A part of a program: fixed text with names in between. */
export class Code {
  readonly pieces: readonly Piece[];
  /** Whether its words are in scopes of their own (helper functions, our headers), where they cannot clash with names. */
  readonly apart: boolean;
  protected readonly made: typeof MADE_HERE;

  constructor(made: typeof MADE_HERE, pieces: readonly Piece[], apart = false) {
    this.made = made;
    this.pieces = pieces;
    this.apart = apart;
  }

  /** Converting to a string would lose the names. */
  toString(): never {
    internal("code is put into code`...`, not into a string");
  }
}

/** A literal type such as `"+" | "-"`, which may be printed as it stands; `never` for `string`. */
type Closed<T> = T extends string ? (Record<never, never> extends Record<T, 1> ? never : T) : T;
type Hole = Code | Name | number | string | readonly Code[];
type Holes<H extends readonly Hole[]> = { readonly [K in keyof H]: Closed<H[K]> };

/** Types do not exist at run time, so words from records are checked here. */
const WORD = /^[\w+*/%<>=!&|^~.:, -]*$/;
const COMMENT_MARK = /\/[/*]|\*\//;

/**
 * Fills the holes of a template with code, names, finite numbers, and words of a closed set. A word after `@` may hold words and numbers itself:
 * `@to_${dtype}(x)`. A list of lines fills a line of its own, below the first: each is indented as its hole is, and of none the line is left out.
 * @throws Error for a number that is not finite, and for a value of another type
 */
export function code<const H extends readonly Hole[]>(texts: TemplateStringsArray, ...holes: H & Holes<H>): Code {
  const pieces: Piece[] = [];
  let own = "";
  const end = (): void => {
    if (!own.includes("@")) add(own, pieces);
    else for (const [i, part] of own.split(ASKED).entries()) add(i % 2 === 0 ? part : new Asked(part), pieces);
    own = "";
  };
  const put = (hole: unknown): void => {
    const piece = pieceOf(hole);
    if (typeof piece === "string") own += piece;
    else {
      end();
      add(piece, pieces);
    }
  };
  for (const [i, text] of texts.entries()) {
    own += text;
    const hole: unknown = holes[i];
    if (Array.isArray(hole)) {
      const margin = /\n *$/.exec(own)?.[0] ?? "\n";
      if (hole.length === 0) own = own.slice(0, -margin.length);
      for (const [n, line] of hole.entries()) {
        if (n > 0) own += margin;
        put(line);
      }
    } else if (i < holes.length) put(hole);
  }
  end();
  return new Code(MADE_HERE, pieces);
}

/** Splitting a text by this gives a word that it asks for as every other piece. */
const ASKED = /@(\w+)/;

/** Parts of at most this many pieces are copied in. Longer ones are kept as they are, because a line is walked several times before it is text. */
const FEW = 64;

/** Appends a piece: text joins the text before it, and the pieces of a short part are appended one by one. */
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
  internal(`${shown(hole)} cannot stand in a program`);
}

/** Parts joined by a separator; of those with a condition the ones whose condition holds. */
export function join(parts: readonly Optional<Code | Name>[], separator: Code = NOTHING): Code {
  return new Code(
    MADE_HERE,
    present(parts).flatMap((part, i): Piece[] => (i === 0 ? [part] : [separator, part])),
  );
}

/** `a, b, c` */
export function list(parts: readonly Optional<Code | Name>[]): Code {
  return join(parts, COMMA);
}

/** Lines of text, one after another. */
export function lines(parts: readonly Optional<Code>[]): Code {
  return join(parts, NEW_LINE);
}

export const NOTHING: Code = code``;
const NEW_LINE = code`\n`;
const COMMA = code`, `;

/** `0xfff0` */
export function hexadecimal(value: number): Code {
  if (!Number.isSafeInteger(value) || value < 0) internal(`${shown(value)} has no hexadecimal digits`);
  return trustedCode(`0x${value.toString(16)}`);
}

export function indented(parts: readonly Optional<Code>[]): Code[] {
  return present(parts).map((part) => code`  ${part}`);
}

/** Lines in braces: `for (...) {`, the lines indented, `}`. */
export function block(head: Code, body: readonly Optional<Code>[]): Code[] {
  return [head, ...indented(body), code`}`];
}

/** `(a * b)` without its outer parentheses. */
export function bare(text: Code): Code {
  const flat = flatPieces(text);
  const whole = skeleton(text);
  if (!whole.startsWith("(") || !whole.endsWith(")")) return text;
  let depth = 0;
  for (const character of whole.slice(0, -1)) {
    depth += character === "(" ? 1 : character === ")" ? -1 : 0;
    if (depth === 0) return text;
  }
  const cut = flat.map((piece, i) => {
    if (typeof piece !== "string") return piece;
    const end = i === flat.length - 1 ? piece.slice(0, -1) : piece;
    return i === 0 ? end.slice(1) : end;
  });
  return new Code(MADE_HERE, cut);
}

const flatPieces = (text: Code): Exclude<Piece, Code>[] =>
  text.pieces.flatMap((piece) => (piece instanceof Code ? flatPieces(piece) : [piece]));

/** Marks functions and declarations whose words are in scopes of their own, so that names need not avoid them. */
export function apart(text: Code): Code {
  return new Code(MADE_HERE, [text], true);
}

/** Admits text from our own files and tables: harness headers, the table of instructions. Never use it on text of a user or a record. */
export function trustedCode(text: string): Code {
  return new Code(MADE_HERE, [text]);
}

/** Replaces `{words}` in braces; a word without a value stays. */
export function filled(template: Code, values: Readonly<Record<string, Code | Name>>): Code {
  const fill = (text: string): Piece[] =>
    text.split(BRACES).map((piece, i): Piece => (i % 2 === 0 ? piece : (values[piece] ?? `{${piece}}`)));
  return new Code(
    MADE_HERE,
    template.pieces.flatMap((piece) => (typeof piece === "string" ? fill(piece) : [piece])),
    template.apart,
  );
}

/** Splitting a text by this gives a word in braces as every other piece. */
export const BRACES = /\{(\w+)\}/g;

/** A finished source as part of another text. */
export function quoted(source: SourceText): Code {
  return apart(trustedCode(source));
}

/** A finished source that another automap wrote and signed. It is compiled as it stands, and no part of it enters another text. */
export function received(source: string): SourceText {
  return source as SourceText;
}

/** A finished source with every match of a pattern replaced; `made` computes the replacement from the groups. */
export function replaced(
  source: SourceText,
  pattern: RegExp,
  made: (...groups: readonly string[]) => Code,
): SourceText {
  const text = source.replace(pattern, (...found) =>
    skeleton(made(...found.filter((part) => typeof part === "string"))),
  );
  // The text was finished and every replacement is code.
  return text as SourceText;
}

/**
 * A text in whose own fixed text every match is replaced. Names stay, and so does what stands apart.
 * @param pattern with one group, the whole match
 */
export function replacedIn(text: Code, pattern: RegExp, made: (match: string) => Code): Code {
  if (text.apart) return text;
  const changed = (piece: Piece): Piece[] =>
    piece instanceof Code
      ? [replacedIn(piece, pattern, made)]
      : typeof piece === "string"
        ? piece.split(pattern).map((part, i) => (i % 2 === 0 ? part : made(part)))
        : [piece];
  return new Code(MADE_HERE, text.pieces.flatMap(changed));
}

/** Calls `see` with every piece of a text in order, and with whether it stands apart. */
export function visit(text: Code, see: (piece: string | Name, apart: boolean) => void, isApart = false): void {
  const within = isApart || text.apart;
  for (const piece of text.pieces)
    if (piece instanceof Code) visit(piece, see, within);
    else see(piece instanceof Asked ? piece.word : piece, within);
}

/** The functions that texts call and that the program must define. */
export function askedIn(texts: readonly Code[]): ReadonlySet<string> {
  return new Set(texts.flatMap(flatPieces).flatMap((piece) => (piece instanceof Asked ? [piece.word] : [])));
}

/** The text with a mark instead of every name, to search for our own words. */
export function skeleton(text: Code | readonly Code[]): string {
  const parts: string[] = [];
  for (const part of text instanceof Code ? [text] : text) {
    visit(part, (piece) => parts.push(piece instanceof Name ? NAME_MARK : piece));
    if (part !== text) parts.push("\n");
  }
  return parts.join("");
}

/** Stands for a name in a {@link skeleton}. */
const NAME_MARK = "\u0001";

/** A key that is equal for equal texts. */
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

/** Characters that move the cursor, end a line, or do not read as written: controls, separators, direction marks, lone surrogates. */
const UNPRINTABLE =
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
  /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** One line of a comment in any language. */
export function commentText(text: string): Code {
  const plain = String(text)
    .replace(UNPRINTABLE, " ")
    .replace(/\*(?=\/)/g, "* ")
    .replace(/\/(?=\*)/g, "/ ")
    // In C and in shells a backslash at the end of a line joins it to the next; `??/` is a backslash to old compilers.
    .replace(/\?\?(?=\/)/g, "? ?")
    .replace(/\\+\s*$/, (slashes) => `${slashes.trimEnd()}.`);
  return trustedCode(plain);
}

/** Lines as a comment of C. */
export function comment(texts: readonly Optional<string | Code>[]): Code {
  const line = (text: string | Code): Code => {
    const part = text instanceof Code ? text : commentText(text);
    return skeleton(part) === "" ? code` *` : code` * ${part}`;
  };
  return lines([code`/*`, ...present(texts).map(line), code` */`]);
}

/** A word printed as it is, such as the name of a package that other code calls. @throws Error when it is no identifier */
export function identifier(text: string): Code {
  if (!NAME.test(text)) internal(`${shown(text)} is no identifier`);
  return trustedCode(text);
}

/** A word of a command line that is special to neither shells nor CMake: a flag, a file in the package. @throws Error for any other */
export function plainWord(text: string): Code {
  if (!/^[\w.+=,/:-]+$/.test(text)) internal(`${shown(text)} is no plain word of a command`);
  return trustedCode(text);
}

/** A string literal of C or C++, in UTF-8. Bytes beyond ASCII and special characters are written in octal. */
export function stringLiteral(text: string): Code {
  const bytes = new TextEncoder().encode(text);
  const plain = (byte: number): boolean => byte >= 0x20 && byte < 0x7f && !'"\\?'.includes(String.fromCharCode(byte));
  const one = (byte: number): string =>
    plain(byte) ? String.fromCharCode(byte) : `\\${byte.toString(8).padStart(3, "0")}`;
  return trustedCode(`"${Array.from(bytes, one).join("")}"`);
}

/** The same inside a printf format, without quotes: it prints unchanged. */
export function formatText(text: string): Code {
  return trustedCode(skeleton(stringLiteral(text.replaceAll("%", "%%"))).slice(1, -1));
}

/** A value as JSON, which is also JavaScript. */
export function jsonText(value: unknown, indent = 0): Code {
  const text = JSON.stringify(value, undefined, indent);
  return trustedCode(
    text.replace(/[\u007f-\u009f\u2028\u2029]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`),
  );
}

/** A line of a verbatim block of Markdown. */
export function markdownVerbatim(text: string): Code {
  return trustedCode(String(text).replace(UNPRINTABLE, " "));
}

/** A given value, shortened for a message. */
function shown(value: unknown): string {
  const text = typeof value === "string" ? JSON.stringify(value) : String(value);
  return text.length > 60 ? `${text.slice(0, 60)} ...` : text;
}

// ---- spelling: the finished text --------------------------------------------------------------------------------------------

/** The words assigned to names. */
export interface Spelling {
  /** @throws Error for a name of another text */
  readonly word: (name: Name) => string;
  /** The finished text. */
  readonly finish: (text: Code) => SourceText;
}

/** The finished text of one program. */
export function spell(text: Code, language: Language): SourceText {
  return spellingOf([text], [language]).finish(text);
}

/** One spelling for texts that share names, as a header and its documentation do. */
export function spellingOf(texts: readonly Code[], languages: readonly Language[]): Spelling {
  const taken = new Set(texts.flatMap((text) => [...fixedWords(text)]));
  const words = new Map<string, string>();
  const give = ({ id, wish }: Name): void => {
    if (words.has(id)) return;
    // Names with a leading _ are reserved for compilers and their headers.
    let word = wish.startsWith("_") ? `v${wish}` : wish;
    while (taken.has(word) || isReserved(word, languages)) word += "_";
    taken.add(word);
    words.set(id, word);
  };
  for (const text of texts)
    visit(text, (piece, apart) => {
      if (!(piece instanceof Name)) return;
      if (apart) internal(`${piece.id} stands in text that is kept apart`);
      give(piece);
    });
  const word = ({ id }: Name): string => words.get(id) ?? internal(`${id} stands in no text that was spelled`);
  return { word, finish: (text) => spelled(text, word) };
}

function spelled(text: Code, word: (name: Name) => string): SourceText {
  const parts: string[] = [];
  let last = "";
  let named = false;
  visit(text, (piece) => {
    const isName = piece instanceof Name;
    const part = isName ? word(piece) : piece;
    if (part === "") return;
    if ((isName || named) && isWordAt(last, last.length - 1) && isWordAt(part, 0))
      internal(`the name in "${last.slice(-20)}${part.slice(0, 20)}" runs into what is beside it`);
    parts.push(part);
    [last, named] = [part, isName];
  });
  // Every part is code or a word chosen here.
  return parts.join("") as SourceText;
}

/** Whether the character at a position is a letter, a digit or _. */
function isWordAt(text: string, at: number): boolean {
  const c = text.charCodeAt(at);
  return (c >= 97 && c <= 122) || (c >= 65 && c <= 90) || (c >= 48 && c <= 57) || c === 95;
}

/** Matches comments, literals, include lines, numbers with their suffixes and members (`threadIdx.x`), and then words. */
const TOKEN =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|"(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*'|^[ \t]*#[ \t]*include[^\n]*|\.?\d[\w.]*|(?:\.|->|::)[A-Za-z_]\w*|([A-Za-z_]\w*)/gm;
const DEFINED = /^[ \t]*#[ \t]*define[ \t]+(\w+)/gm;

/** The words a text uses besides names. Text that stands apart contributes only the macros it defines, which are visible everywhere. */
function fixedWords(text: Code): ReadonlySet<string> {
  const own: string[] = [];
  const others: string[] = [];
  visit(text, (piece, apart) => {
    if (apart) others.push(piece instanceof Name ? "" : piece);
    else own.push(piece instanceof Name ? "\u0001" : piece);
  });
  const found = new Set<string>();
  for (const [, word] of own.join("").matchAll(TOKEN)) if (word !== undefined) found.add(word);
  for (const [, word] of others.join("").matchAll(DEFINED)) if (word !== undefined) found.add(word);
  return found;
}
