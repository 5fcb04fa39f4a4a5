/**
 * @file A compiler that makes nothing twice: what it made and said of the same words and files, in this run of the tests or an earlier one, is
 * copied and said again.
 *
 *     compileOnce();                                           of all tests of a file
 *     compileOnce(inFull([], ["-O1"]));                        the same, where how the compiler optimises is not looked at
 *     await runChild([keptProgram("g++"), ...words], ...)      of one call
 *
 * A file counts by its text, and with it the headers and weights beside it that it asks for; so does a folder of headers. Where they lie does not count.
 * A compilation that fails is not kept.
 */

import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, renameSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, vi } from "vitest";

const scriptOf = (program: string, more: readonly string[], version: string, kept: string): string => `#!/bin/sh
set -- "$@" ${more.join(" ")}
texts() {
  echo '${version}'
  for word; do
    if [ "$previous" = -o ]; then :
    elif [ -f "$word" ]; then
      cat "$word"
      case $word in */*) beside=\${word%/*} ;; *) beside=. ;; esac
      if grep -q '^ *#include "' "$word"; then cat "$beside"/*.h; fi
      # Weights of a network, which its text includes as bytes.
      if grep -q incbin "$word"; then cat "$beside"/*.weights; fi
    elif [ -d "$word" ]; then cat "$word"/*.h
    else case $word in -I?*) cat "\${word#-I}"/*.h ;; *) echo "$word" ;; esac
    fi
    previous=$word
  done
}
previous= output=
for word; do if [ "$previous" = -o ]; then output=$word; fi; previous=$word; done
previous=
case " $* " in
*" -fsyntax-only "*) output=/dev/null ;;
# What makes more than one file, or a large one, is made each time.
*" -MF "* | *" c++-header "*) output= ;;
esac
hash=$(texts "$@" 2>/dev/null | { sha256sum | cut -c1-32; } 2>/dev/null)
if [ -z "$output" ] || [ -z "$hash" ]; then exec '${program}' "$@"; fi
key=${kept}/$hash
if [ -f "$key.made" ]; then
  cat "$key.said" >&2
  if [ "$output" != /dev/null ]; then cp "$key.made" "$output"; fi
  exit
fi
'${program}' "$@" >"$key.$$" 2>&1
status=$?
cat "$key.$$" >&2
if [ $status = 0 ]; then cp "$output" "$key.$$.made" && mv "$key.$$" "$key.said" && mv "$key.$$.made" "$key.made"; fi
rm -f "$key.$$"
exit $status
`;

/** A script that stands for a compiler; its path has no spaces. @param program the compiler @param more words behind those it is given */
export function keptProgram(program: string, more: readonly string[] = []): string {
  const kept = join(tmpdir(), "automap-test-objects");
  const { stdout } = spawnSync(program, ["--version"], { encoding: "utf8" });
  const version = createHash("sha256").update(stdout).digest("hex");
  const script = scriptOf(program, more, version, kept);
  const file = join(kept, `${createHash("sha256").update(script).digest("hex").slice(0, 16)}.sh`);
  if (!existsSync(file)) {
    mkdirSync(kept, { recursive: true });
    // Two processes may write it at once: each writes its own file, and the last one stays.
    writeFileSync(`${file}.${process.pid}`, script, { mode: 0o755 });
    renameSync(`${file}.${process.pid}`, file);
  }
  return file;
}

/**
 * What the tests of a file compile by the compiler of the environment, a script of a package included, is made once.
 * @param more words behind those that the compiler is given: `-O1` takes a fifth of the time of `-O3`
 */
export function compileOnce(more: readonly string[] = []): void {
  // A caller that names a compiler gets that one.
  if ((process.env["CXX"] ?? "") !== "") return;
  const program = keptProgram("g++", more);
  const name = (): void => void vi.stubEnv("CXX", program);
  beforeAll(name);
  beforeEach(name);
  afterAll(() => void vi.unstubAllEnvs());
}
