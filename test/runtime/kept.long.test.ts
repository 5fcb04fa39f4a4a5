/** @file Compiled files that are kept between processes: what others wrote into the cache is not run, loaded or included. */

import { copyFileSync, cpSync, mkdtempSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { type Compiler, compileSource } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { hashed, takeKept } from "../../runtime/kept.ts";
import { interpretCompiled } from "../../runtime/reference/reference-program.ts";
import { Builder, emulatedToolchain, type SourceKind } from "../../runtime/run/cuda-build.ts";
import { emulatedDevice } from "../../runtime/run/cuda-device.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { sourceOf } from "../support/source.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder();
const folder = (name: string): string => mkdtempSync(join(root, `${name}-`));

const EVIL = "written by somebody else";
let compiler: Compiler;
beforeAll(async () => {
  compiler = await compilerHere();
  const at = folder("other");
  await made(`extern "C" const char* evil() { return "${EVIL}"; }\n`, SHARED, ".so", at);
  const [name = ""] = readdirSync(at).filter((one) => one.endsWith(".so"));
  foreign = join(at, name);
});
/** An entry that this user sealed, under its own name. */
let foreign = "";

const SHARED = ["-O1", "-shared", "-fPIC"];
const made = async (text: string, flags: readonly string[], extension: ".so" | ".o" | ".out", workdir: string) => {
  const compiled = await compileSource(sourceOf(text), flags, extension, { compiler, workdir });
  if (compiled.status !== "compiled") throw new Error(compiled.log);
  return compiled;
};
const intrinsics = (value: number): string =>
  `#include <immintrin.h>\nextern "C" int value() { return _mm_cvtsi128_si32(_mm_set1_epi32(${value})); }\n`;
const vectors = (value: number): string =>
  `#include <vector>\nextern "C" int value() { return std::vector<int>(1, ${value})[0]; }\n`;

/** Builds of one kind of file each; a file that it makes is what its text says only if nothing foreign was used. */
const KINDS: Readonly<
  Record<string, { readonly ending: RegExp; readonly build: (workdir: string) => Promise<unknown> }>
> = {
  "a kernel": { ending: /\.so$/, build: (at) => made('extern "C" int value() { return 1; }\n', SHARED, ".so", at) },
  "a unit of a kernel": {
    ending: /\.o$/,
    build: (at) => made('extern "C" int unit() { return 1; }\n', ["-O1", "-fPIC", "-c"], ".o", at),
  },
  "a program": { ending: /\.out$/, build: (at) => made("int main() { return 0; }\n", ["-O1"], ".out", at) },
  "a reference": {
    ending: /\.out$/,
    build: (at) =>
      interpretCompiled(
        operation("matmul m=2 n=2 k=2"),
        { a: Float64Array.of(1, 2, 3, 4), b: Float64Array.of(1, 2, 3, 4) },
        { compiler, workdir: at },
      ),
  },
  "a cut header": { ending: /\.h$/, build: (at) => made(intrinsics(1), SHARED, ".so", at) },
  "a precompiled header": {
    ending: /\.gch$/,
    build: async (at) => {
      await made(vectors(1), SHARED, ".so", at);
      await made(vectors(2), SHARED, ".so", at);
    },
  },
  ...Object.fromEntries(
    inFull<readonly SourceKind[]>(["kernel", "reference", "probe", "program"], ["kernel"]).map((kind) => [
      `a ${kind} of a GPU and what its compiler said`,
      { ending: /\.(so|out|log)$/, build: (at: string) => builtForGpu(kind, at) },
    ]),
  ),
};

async function builtForGpu(kind: SourceKind, workdir: string): Promise<void> {
  const device = await emulatedDevice();
  if ("status" in device) throw new Error(device.what);
  const builder = new Builder(emulatedToolchain(device), workdir, 1, shareCores());
  const text = kind === "program" ? "int main() { return 0; }\n" : 'extern "C" int value() { return 1; }\n';
  expect(await builder.build(text, kind)).toMatchObject({ status: "built" });
}

/** Ways to put a file of one's own in the place of a kept one. */
const FORGERIES: Readonly<Record<string, (file: string, other: string) => void>> = {
  "with other bytes before its seal": (file) => {
    const bytes = readFileSync(file);
    writeFileSync(file, Buffer.concat([Buffer.from(EVIL), bytes]));
  },
  "with bytes behind its seal": (file) => writeFileSync(file, Buffer.concat([readFileSync(file), Buffer.from(EVIL)])),
  "without a seal": (file) => writeFileSync(file, EVIL.repeat(20)),
  "that is another's, with the seal of that": (file, other) => copyFileSync(other, file),
};

describe.each(Object.entries(KINDS))("%s in the cache", (kind, { ending, build }) => {
  it("is found where nobody replaced it, and made anew where somebody did", async () => {
    const [first, second, third] = [folder("first"), folder("second"), folder("third")];
    await build(first);
    const held = readdirSync(first).filter((name) => ending.test(name));
    expect(held).not.toEqual([]);

    cpSync(first, second, { recursive: true });
    const before = held.map((name) => statSync(join(second, name)).ino);
    await build(second);
    expect(held.map((name) => statSync(join(second, name)).ino)).toEqual(before);

    const forgeries = Object.entries(FORGERIES);
    for (const [place, [how, forge]] of forgeries.entries()) {
      const at = folder("forged");
      for (const name of held) copyFileSync(join(first, name), join(at, name));
      for (const name of held) forge(join(at, name), foreign);
      for (const name of held) expect(await takeKept(join(at, name)), how).toBeUndefined();
      // Each kind is made anew after one of them.
      if (place === Object.keys(KINDS).indexOf(kind) % forgeries.length) cpSync(at, third, { recursive: true });
    }
    await build(third);
    for (const name of held) expect(readFileSync(join(third, name)).includes(EVIL)).toBe(false);
  });
});

describe("a kept file", () => {
  const text = 'extern "C" int hashed_once() { return 1; }\n';

  it("is used from a copy that later writers of the cache do not reach", async () => {
    const workdir = folder("later");
    const { file } = await made(text, SHARED, ".so", workdir);
    expect(file.startsWith(workdir)).toBe(false);
    expect(statSync(join(file, "..", "..")).mode & 0o077).toBe(0);
    const [entry = ""] = readdirSync(workdir).filter((name) => name.endsWith(".so"));
    writeFileSync(join(workdir, entry), EVIL);
    expect(await made(text, SHARED, ".so", workdir)).toMatchObject({ file, cached: true });
    expect(readFileSync(file).includes(EVIL)).toBe(false);
  });

  it("is hashed once when it is made, once in each process that takes it, and never again", async () => {
    const [workdir, copied] = [folder("once"), folder("copied")];
    const bytesOf = async (work: () => Promise<unknown>): Promise<number> => {
      const before = hashed.bytes;
      await work();
      return hashed.bytes - before;
    };
    const build = (at: string) => () => made(text, SHARED, ".so", at);
    const size = await bytesOf(build(workdir));
    cpSync(workdir, copied, { recursive: true });
    const { file } = await made(text, SHARED, ".so", copied);
    expect([size, await bytesOf(build(workdir)), await bytesOf(build(copied))]).toEqual([statSync(file).size, 0, 0]);
  });
});
