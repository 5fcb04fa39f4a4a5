/**
 * @file Cuts from `<immintrin.h>` what a source uses: a few functions of six thousand, which g++ reads in a millisecond.
 *
 *     _mm512_storeu_si512(out, sum);    ->    #define _IMMINTRIN_H_INCLUDED                   the source's own #include adds nothing
 *                                             typedef long long __m512i __attribute__ ((...));
 *                                             extern __inline void ... _mm512_storeu_si512 (void *__P, __m512i __A) { ... }
 *
 * The text is the compiler's own, as its preprocessor prints it, so the code that comes out is the same. What is cut wrongly does not
 * compile, and the source is then compiled with the whole header.
 */

import { addTo, unique } from "../abstraction/collections.ts";

/** A function, and the instruction sets that its header asks for around it. */
interface DeclaredFunction {
  readonly at: number;
  readonly text: string;
  readonly target: string | undefined;
}

/** What the intrinsics' headers declare. */
export interface Intrinsics {
  /** Types and enumerations, in order. */
  readonly types: readonly string[];
  readonly functions: ReadonlyMap<string, readonly DeclaredFunction[]>;
  /** The texts of macros behind `#define`. */
  readonly macros: ReadonlyMap<string, string>;
}

const HEADER = "immintrin.h";
/** Defined by g++'s header so that it is read once. */
const GUARD = "_IMMINTRIN_H_INCLUDED";

const ATTRIBUTES = /__attribute__\s*\(\((?:[^()]|\([^()]*\))*\)\)/g;
/** Names in these headers begin with an underscore. */
const WORDS = /\b_\w+/g;

/**
 * Reads the declarations.
 * @param preprocessed what `g++ -E -dD` prints of a source that includes the header
 * @returns undefined for a compiler whose header is another
 */
export function readIntrinsics(preprocessed: string): Intrinsics | undefined {
  const types: string[] = [];
  const functions = new Map<string, DeclaredFunction[]>();
  const macros = new Map<string, string>();
  const targets: (string | undefined)[] = [undefined];
  let folder: string | undefined;
  let isOurs = false;
  let chunk: string[] = [];
  let depth = 0;
  let at = 0;
  for (const line of preprocessed.split("\n")) {
    // 1. Whose file it is, macros, and instruction sets.
    if (line.startsWith("# ")) {
      const path = /^# \d+ "(.*)"/.exec(line)?.[1] ?? "";
      if (path.endsWith(`/${HEADER}`)) folder ??= path.slice(0, -HEADER.length);
      isOurs = folder !== undefined && path.startsWith(folder);
      continue;
    }
    if (!isOurs || line === "") continue;
    const [, directive, name = "", rest = ""] = /^#(define|undef) (\w+)(.*)/.exec(line) ?? [];
    if (directive === "define") macros.set(name, `${name}${rest}`);
    else if (directive === "undef") macros.delete(name);
    if (directive !== undefined) continue;
    if (line.startsWith("#pragma")) {
      if (line.includes("push_options")) targets.push(targets.at(-1));
      else if (line.includes("pop_options")) targets.pop();
      else if (line.includes(" target")) targets[targets.length - 1] = line;
      continue;
    }
    // 2. A declaration ends with `;`, or with the brace that closes a function.
    chunk.push(line);
    for (const character of line) depth += "{(".includes(character) ? 1 : ")}".includes(character) ? -1 : 0;
    if (depth > 0 || !/[;}]\s*$/.test(line)) continue;
    const text = chunk.join("\n");
    if (/^(?:typedef|enum|struct|union|class)\b/.test(text)) {
      if (!/;\s*$/.test(line)) continue;
      types.push(text);
    } else {
      const declared = /(\w+)\s*\(/.exec(text.replaceAll(ATTRIBUTES, ""))?.[1];
      if (declared === undefined) return undefined;
      addTo(functions, declared, { at: at++, text, target: targets.at(-1) });
    }
    chunk = [];
  }
  return macros.has(GUARD) ? { types, functions, macros } : undefined;
}

/** The words of a source that may name intrinsics. Sources with the same words need the same header. */
export function wordsOf(source: string): readonly string[] {
  return unique(source.match(WORDS) ?? []).sort();
}

/** A header with these words, and what they are made of in turn. */
export function headerOf({ types, functions, macros }: Intrinsics, words: readonly string[]): string {
  const taken = new Set<DeclaredFunction>();
  const defined = new Map<string, string>();
  const left = [...words];
  const seen = new Set(left);
  const use = (text: string): void => {
    for (const word of text.match(WORDS) ?? []) {
      if (seen.has(word)) continue;
      seen.add(word);
      left.push(word);
    }
  };
  for (let word = left.pop(); word !== undefined; word = left.pop()) {
    for (const one of functions.get(word) ?? []) {
      taken.add(one);
      use(one.text);
    }
    const macro = macros.get(word);
    if (macro === undefined) continue;
    defined.set(word, `#define ${macro}`);
    use(macro);
  }
  const inOrder = [...taken].sort((a, b) => a.at - b.at);
  const text = ({ target, text }: DeclaredFunction): string =>
    target === undefined ? text : `#pragma GCC push_options\n${target}\n${text}\n#pragma GCC pop_options`;
  return [`#define ${GUARD}`, ...defined.values(), ...types, ...inOrder.map(text), ""].join("\n");
}
