/**
 * @file Headers that a compilation reads in less time than those its source includes. The code that comes out is the same.
 *
 *     <immintrin.h>       cut to the intrinsics that the source uses: a millisecond
 *     other headers       precompiled, from the second source with the same headers and flags on
 *
 * `immintrin.h` takes longer than most kernels, 0.26 s of 0.34 (g++ 12), and precompiled still 0.016 s and 26 MB each time.
 *
 * A source uses a few of its six thousand functions, which g++ reads in a millisecond.
 *
 *     _mm512_storeu_si512(out, sum);    ->    #define _IMMINTRIN_H_INCLUDED                   the source's own #include adds nothing
 *                                             typedef long long __m512i __attribute__ ((...));
 *                                             extern __inline void ... _mm512_storeu_si512 (void *__P, __m512i __A) { ... }
 *
 * The text is the compiler's own, as its preprocessor prints it, so the code that comes out is the same. What is cut wrongly does not
 * compile, and the source is then compiled with the whole header.
 */

import { rm, writeFile } from "node:fs/promises";
import { addTo, sortedBy, unique } from "../abstraction/collections.ts";
import { type ChildRun, runChild } from "./child.ts";
import { keep, keptName, privatePath, takeKept } from "./kept.ts";

export interface HeaderOptions {
  readonly compiler: { readonly command: readonly string[]; readonly version: string };
  /** Where headers are kept. */
  readonly workdir: string;
  readonly timeLimitMs: number;
  readonly cpus: readonly number[] | undefined;
}

/**
 * Compiles a source behind the headers that suit it.
 * @param compile given the words that include them first
 */
export async function compiledBehindHeaders(
  source: string,
  flags: readonly string[],
  options: HeaderOptions,
  compile: (headers: readonly string[]) => Promise<ChildRun>,
): Promise<ChildRun> {
  const request = requestOf(source, flags);
  if (request === undefined) return compile([]);
  const used = await usedIntrinsics(source, request, options);
  if (used !== undefined) {
    const run = await compile(["-include", used]);
    if (run.status !== "failed") return run;
  }
  const precompiled = await precompiledHeaders(request, options);
  const run = await compile(precompiled === undefined ? [] : ["-include", precompiled]);
  // This compiler's header is cut wrongly: no other source is to be compiled twice.
  if (used !== undefined && run.status === "ok") uncut.add(fileFor([request.flags], options));
  return run;
}

/** The headers of a source and the flags that they are read with. */
interface Request {
  readonly includes: readonly string[];
  readonly flags: readonly string[];
}

/** Undefined for a source that is compiled as it stands. */
function requestOf(source: string, flags: readonly string[]): Request | undefined {
  const includes = leadingIncludes(source);
  // g++ 12 declares scalable vectors while it reads arm_sve.h, and refuses to do so behind a precompiled header.
  if (includes.length === 0 || flags.some((flag) => /^-march=.*\+sve/.test(flag))) return undefined;
  return { includes, flags: flags.filter((flag) => !isOfLinking(flag)) };
}

const isOfLinking = (flag: string): boolean => /^-(shared$|c$|Wl,|nodefaultlibs$|l)|\.o$/.test(flag);

/** The system headers included before anything but comments. */
export function leadingIncludes(source: string): string[] {
  const [head = ""] = /^(?:\s|\/\/.*|\/\*[\s\S]*?\*\/|#include <[\w./]+>)*/.exec(source) ?? [];
  return head.match(/^#include <[\w./]+>/gm) ?? [];
}

/** The name, without its ending, of a header made from this. */
function fileFor(of: readonly unknown[], { compiler, workdir }: HeaderOptions): string {
  return keptName(workdir, [compiler.command, compiler.version, ...of]);
}

// ---- Intrinsics ---------------------------------------------------------------------------------------------------------------

const INTRINSICS = "#include <immintrin.h>";
const knownIntrinsics = new Map<string, Promise<Intrinsics | undefined>>();
/** Compilers and flags whose header does not compile when it is cut. */
const uncut = new Set<string>();

/** A header with the intrinsics that a source uses; undefined if it includes none, or the compiler's cannot be cut. */
async function usedIntrinsics(
  source: string,
  { includes, flags }: Request,
  options: HeaderOptions,
): Promise<string | undefined> {
  const key = fileFor([flags], options);
  if (!includes.includes(INTRINSICS) || uncut.has(key)) return undefined;
  const words = wordsOf(source);
  const entry = `${fileFor([flags, INTRINSICS, words], options)}.h`;
  const file = await takeKept(entry, "fleeting");
  if (file !== undefined) return file;
  const reading = knownIntrinsics.get(key) ?? declaredIntrinsics(flags, options);
  knownIntrinsics.set(key, reading);
  const declared = await reading;
  if (declared === undefined) return undefined;
  const own = privatePath(entry, ".h");
  await writeFile(own, headerOf(declared, words));
  return keep(own, entry, "fleeting");
}

async function declaredIntrinsics(flags: readonly string[], options: HeaderOptions): Promise<Intrinsics | undefined> {
  const { compiler, timeLimitMs, cpus } = options;
  const command = [...compiler.command, ...flags, "-E", "-dD", "-include", "immintrin.h", "-x", "c++", "/dev/null"];
  const run = await runChild(command, { timeLimitMs, cpus });
  if (run.status === "ok") return readIntrinsics(run.stdout);
  // It may have lacked time or memory, so the next source asks again.
  knownIntrinsics.delete(fileFor([flags], options));
  return undefined;
}

// ---- Precompiled --------------------------------------------------------------------------------------------------------------

/** Headers by what they are compiled from; how often each was asked for. */
const knownHeaders = new Map<string, Asked>();

interface Asked {
  asked: number;
  /** Those that another process made. */
  ready?: Promise<string | undefined>;
  making?: Promise<string | undefined>;
}

/**
 * The headers a source begins with, compiled once.
 * @returns a header to include first; undefined for the first source that asks for it, or if it could not be compiled
 */
async function precompiledHeaders({ includes, flags }: Request, options: HeaderOptions): Promise<string | undefined> {
  const file = `${fileFor([flags, includes], options)}.h`;
  const known = knownHeaders.get(file) ?? { asked: 0 };
  knownHeaders.set(file, known);
  known.asked++;
  known.ready ??= keptHeaders(file);
  const ready = await known.ready;
  if (ready !== undefined || known.asked < 2) return ready;
  known.making ??= compileHeaders(includes, flags, file, options);
  return known.making;
}

/** A header with its precompiled form beside it. */
async function keptHeaders(file: string): Promise<string | undefined> {
  const header = await takeKept(file);
  const precompiled = await takeKept(`${file}.gch`);
  return precompiled === undefined ? undefined : header;
}

async function compileHeaders(
  includes: readonly string[],
  flags: readonly string[],
  file: string,
  { compiler, timeLimitMs, cpus }: HeaderOptions,
): Promise<string | undefined> {
  const draft = privatePath(file, ".h");
  const made = privatePath(file, ".gch");
  try {
    await writeFile(draft, `${includes.join("\n")}\n`);
    const header = await keep(draft, file);
    const command = [...compiler.command, ...flags, "-x", "c++-header", header, "-o", made];
    const run = await runChild(command, { timeLimitMs, cpus });
    if (run.status !== "ok") return undefined;
    await keep(made, `${file}.gch`);
    return header;
  } finally {
    await Promise.all([draft, made].map((left) => rm(left, { force: true })));
  }
}

/** A function, and the instruction sets that its header asks for around it. */
interface DeclaredFunction {
  readonly at: number;
  readonly text: string;
  readonly target: string | undefined;
}

/** What the intrinsics' headers declare. */
interface Intrinsics {
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
function wordsOf(source: string): readonly string[] {
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
  const inOrder = sortedBy(taken, (a) => a.at);
  const text = ({ target, text }: DeclaredFunction): string =>
    target === undefined ? text : `#pragma GCC push_options\n${target}\n${text}\n#pragma GCC pop_options`;
  return [`#define ${GUARD}`, ...defined.values(), ...types, ...inOrder.map(text), ""].join("\n");
}
