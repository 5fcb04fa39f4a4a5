/**
 * @file Finishes the text of a program: gives every name a word that nothing else in it uses.
 *
 *     spell(code`float* const ${tensor("part")} = ...; ... part / parts`, "c++")      float* const part_ = ...; ... part / parts
 *
 * A name gets the word it asks for, unless the language, a macro, the fixed text around it or another name uses that word: then a `_` is appended. A
 * leading `_` gets a `v` before it. The words of the fixed text are read from the text itself, so printers keep no lists of their words.
 */

import { internal } from "./error.ts";
import { isReserved, type Language } from "./keywords.ts";
import { type Code, Name, type SourceText, visit } from "./source-text.ts";

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
  return { word, finish: (text) => finished(text, word) };
}

function finished(text: Code, word: (name: Name) => string): SourceText {
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
