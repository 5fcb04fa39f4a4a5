/**
 * @file A library compiled from the sources of a package, kept in the cache under a hash of them and of the compiler.
 *
 *     await builtLibrary({ name: "conv2d", build, sources }, { cache, compiler, cores })      a path that koffi can load
 *
 * It is compiled in a folder of this process and kept as other compiled files are (runtime/kept.ts), so that what is loaded is what was compiled here.
 */

import { createHash } from "node:crypto";
import { mkdirSync, rmSync, writeFileSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { UsageError } from "../../abstraction/error.ts";
import type { Build } from "../../package/index.ts";
import { cacheLimits, trimCache } from "../../runtime/cache.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import type { Cores } from "../../runtime/cores.ts";
import { keep, keepBytes, privatePath, takeKept } from "../../runtime/kept.ts";
import { compileInFolder } from "./emit.ts";
import type { PackageFiles } from "./sealed-package.ts";

/** What a library is compiled from, and how. */
export interface LibrarySubject {
  readonly name: string;
  readonly build: Pick<Build, "objects" | "library">;
  readonly sources: PackageFiles;
}

type CompilerWords = Pick<Compiler, "command" | "version">;

/** @throws UsageError when the sources do not compile */
export async function builtLibrary(
  subject: LibrarySubject,
  { cache, compiler, cores }: { readonly cache: string; readonly compiler: CompilerWords; readonly cores: Cores },
): Promise<string> {
  const entry = entryOf(subject, cache, compiler);
  const kept = await takeKept(entry);
  if (kept !== undefined) return kept;
  const { name, build, sources } = subject;
  await mkdir(cache, { recursive: true });
  await trimCache(cache, cacheLimits());
  const own = privatePath(entry, ".build");
  try {
    mkdirSync(join(own, dirname(build.library.output)), { recursive: true });
    for (const [file, content] of sources) writeFileSync(join(own, file), content);
    for (const steps of [build.objects, [build.library]]) {
      const problem = await compileInFolder(own, steps, compiler, cores);
      if (problem !== undefined) throw new UsageError(`${name} does not compile with ${compiler.version}\n${problem}`);
    }
    return await keep(join(own, build.library.output), entry);
  } finally {
    rmSync(own, { recursive: true, force: true });
  }
}

/** Keeps a library that was compiled of these sources elsewhere, so that it need not be compiled again. */
export async function keepLibrary(
  subject: LibrarySubject,
  file: string,
  { cache, compiler }: { readonly cache: string; readonly compiler: CompilerWords },
): Promise<void> {
  await keepBytes(await readFile(file), entryOf(subject, cache, compiler));
}

function entryOf(
  { build: { objects, library }, sources }: LibrarySubject,
  cache: string,
  compiler: CompilerWords,
): string {
  const hash = createHash("sha256").update(JSON.stringify([compiler.command, compiler.version, objects, library]));
  for (const [file, content] of sources) hash.update(`\n${file} ${content.length}\n`).update(content);
  return join(cache, `${hash.digest("hex").slice(0, 32)}.so`);
}
