/** @file From source to shared object: precompiled headers. */

import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { type CompileOptions, compileSource, findCompiler } from "../runtime/compiler.ts";
import { sourceOf } from "./support/source.ts";

const workdir = mkdtempSync(join(tmpdir(), "automap-compiler-"));
afterAll(() => rmSync(workdir, { recursive: true, force: true }));

const source = (value: number, before = ""): string => `// a comment\n${before}#include <stdint.h>\n#include <vector>\n
extern "C" int32_t value() { return std::vector<int32_t>(1, ${value})[0]; }\n`;

const precompiled = (): string[] => readdirSync(workdir).filter((name) => name.endsWith(".gch"));

it("headers of similar sources are precompiled from the second on, and only leading system headers", async () => {
  const compiler = await findCompiler();
  if (compiler.status !== "found") throw new Error(compiler.what);
  const options: CompileOptions = { compiler, workdir };
  const flags = ["-O1", "-shared", "-fPIC"];
  const compile = async (text: string): Promise<string> =>
    (await compileSource(sourceOf(text), flags, ".so", options)).status;
  expect([await compile(source(1)), precompiled()]).toEqual(["compiled", []]);
  expect([await compile(source(2)), precompiled().length]).toEqual(["compiled", 1]);
  expect(await Promise.all([compile(source(3)), compile(source(4)), compile("int unlike;\n")])).toEqual(
    Array.from({ length: 3 }, () => "compiled"),
  );
  // Code before the headers may change their meaning.
  for (const value of [5, 6, 7]) expect(await compile(source(value, "#define NDEBUG\n"))).toBe("compiled");
  expect(precompiled()).toHaveLength(1);
});
