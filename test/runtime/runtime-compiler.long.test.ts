/** @file From source to shared object: headers that are precompiled, or cut to what a source uses. */

import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { type CompileOptions, compileSource, findCompiler } from "../../runtime/compiler.ts";
import { headerOf, readIntrinsics } from "../../runtime/headers.ts";
import { Builder, type Toolchain } from "../../runtime/run/cuda-build.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";

const workdir = scratchFolder();

const source = (value: number, before = ""): string => `// a comment\n${before}#include <stdint.h>\n#include <vector>\n
extern "C" int32_t value() { return std::vector<int32_t>(1, ${value})[0]; }\n`;

const precompiled = (): string[] => readdirSync(workdir).filter((name) => name.endsWith(".gch"));

it("headers of similar sources are precompiled from the second on, and only leading system headers", async () => {
  const compiler = await compilerHere();
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

it.each([
  ["no file", ":"],
  ["an empty file", 'while [ "$1" != -o ]; do shift; done; : > "$2"'],
])("a compiler that writes %s is at fault, and nothing is kept of it", async (_, does) => {
  const own = mkdtempSync(join(workdir, "nothing-"));
  const wrapper = join(own, "g++");
  writeFileSync(wrapper, `#!/bin/sh\n${does}\n`, { mode: 0o755 });
  const options: CompileOptions = {
    compiler: { status: "found", command: [wrapper], path: wrapper, version: "1" },
    workdir: own,
  };
  for (const extension of [".so", ".out"] as const)
    await expect(compileSource(sourceOf("int i;\n"), [], extension, options)).rejects.toThrow(
      /^compiling: \S+g\+\+ says that it compiled, and wrote no file or an empty one\n/,
    );
  expect(readdirSync(own)).toEqual(["g++"]);
});

it("a listing of CUDA code that fails says nothing about the kernel", async () => {
  const toolchain: Toolchain = {
    identity: "a compiler that copies",
    command: (text, output) => ["cp", text, output],
    adapted: (text) => text,
    disassemble: () => ["sh", "-c", "echo HMMA; exit 3"],
  };
  const builder = new Builder(toolchain, workdir, 1, { working: (work) => work([0]) });
  const kernel: Kernel = {
    source: sourceOf("int i;"),
    promises: "HMMA",
    language: "cuda",
    features: [],
    arguments: [],
  };
  await expect(builder.kernel(kernel).examined).rejects.toThrow(/^sh exited with 3/);
});

describe("intrinsics", () => {
  const printed = `# 1 "/lib/include/immintrin.h" 1 3 4
#define _IMMINTRIN_H_INCLUDED 
# 1 "/lib/include/vectors.h" 1 3 4
typedef int __v4 __attribute__ ((__vector_size__ (16)));
typedef enum
{
  _ONE = 1
} _NUMBERS;
#define _mm_twice(A) _mm_add (A, A)
extern __inline __v4
__attribute__ ((__gnu_inline__, __always_inline__))
_mm_add (__v4 __A, __v4 __B)
{
  return __A + __B;
}
#pragma GCC push_options
#pragma GCC target("wide")
extern __inline __v4 _mm_sub (__v4 __A, __v4 __B)
{
  return __A - __B;
}
#pragma GCC pop_options
# 1 "/lib/other.h" 1 3 4
int _mm_other(void);
`;

  it("are declared with what they are made of, in order, and with their instruction sets", () => {
    const declared = readIntrinsics(printed);
    if (!declared) throw new Error("nothing was read");
    expect(headerOf(declared, ["_mm_twice", "_mm_other", "__v4"])).toMatchInlineSnapshot(`
      "#define _IMMINTRIN_H_INCLUDED
      #define _mm_twice(A) _mm_add (A, A)
      typedef int __v4 __attribute__ ((__vector_size__ (16)));
      typedef enum
      {
        _ONE = 1
      } _NUMBERS;
      extern __inline __v4
      __attribute__ ((__gnu_inline__, __always_inline__))
      _mm_add (__v4 __A, __v4 __B)
      {
        return __A + __B;
      }
      "
    `);
    expect(headerOf(declared, ["_mm_sub"])).toContain(`#pragma GCC target("wide")\nextern __inline __v4 _mm_sub`);
    expect(headerOf(declared, ["_mm_sub"])).not.toContain("_mm_add");
  });

  it("of a header with another guard are not cut", () => {
    expect(readIntrinsics(printed.replace("_IMMINTRIN_H_INCLUDED", "__IMMINTRIN_H"))).toBeUndefined();
  });

  const kernel = (before = ""): string => `${before}#include <immintrin.h>\n
extern "C" void add(int* to, const int* from) {
  const __m512i one = _mm512_set1_epi32(1);
  _mm512_mask_storeu_epi32(to, 0x0fff, _mm512_add_epi32(one, _mm512_loadu_si512(from)));
}\n`;

  it.skipIf(process.arch !== "x64")(
    "cut to those that a source uses give the code that the whole header gives",
    async () => {
      const compiler = await findCompiler({ ...process.env, CXX: "g++" });
      if (compiler.status !== "found") throw new Error(compiler.what);
      const options: CompileOptions = { compiler, workdir: mkdtempSync(join(workdir, "cut-")) };
      const headers = (): string[] => readdirSync(options.workdir).filter((name) => /\.h(\.gch)?$/.test(name));
      const assembly = async (text: string): Promise<string> => {
        const compiled = await compileSource(sourceOf(text), ["-O3", "-mavx512f", "-S"], ".so", options);
        if (compiled.status !== "compiled") throw new Error(compiled.log);
        // The name of the file and the numbers of functions differ.
        return readFileSync(compiled.file, "utf8").replaceAll(/\.file.*|\.LF[BE]\d+/g, "");
      };
      const cut = await assembly(kernel());
      const [header = ""] = headers();
      expect(headers()).toHaveLength(1);
      const text = readFileSync(join(options.workdir, header), "utf8");
      expect(text).toContain("_mm512_add_epi32");
      expect(text).not.toContain("_mm512_sub_epi32");
      expect(await assembly(kernel("#define WHOLE\n"))).toBe(cut);
      expect(headers()).toHaveLength(1);
    },
  );

  it.skipIf(process.arch !== "x64")("are read whole where a source needs more of their header", async () => {
    const compiler = await findCompiler({ ...process.env, CXX: "g++" });
    if (compiler.status !== "found") throw new Error(compiler.what);
    const text = `#include <immintrin.h>\nextern "C" void* room(void) { return malloc(64); }\n`;
    const compiled = await compileSource(sourceOf(text), ["-O1", "-shared", "-fPIC"], ".so", { compiler, workdir });
    expect(compiled.status).toBe("compiled");
  });

  it.skipIf(process.arch !== "x64")("of a compiler whose header is cut wrongly are not cut again", async () => {
    const compiler = await findCompiler({ ...process.env, CXX: "g++" });
    if (compiler.status !== "found") throw new Error(compiler.what);
    const own = mkdtempSync(join(workdir, "wrong-"));
    const [log, wrapper] = [join(own, "log"), join(own, "g++")];
    // It prints a header in which a function has another name, and tells what it compiles.
    writeFileSync(
      wrapper,
      `#!/bin/sh
case " $* " in
  *" -dD "*) g++ "$@" | sed 's/_mm512_add_epi32 (/_mm512_add_gone (/' ;;
  *) echo "$*" >> ${log}; exec g++ "$@" ;;
esac
`,
      { mode: 0o755 },
    );
    const options: CompileOptions = { compiler: { ...compiler, command: [wrapper] }, workdir: own };
    const timesCompiled = async (text: string): Promise<number> => {
      writeFileSync(log, "");
      const { status } = await compileSource(sourceOf(text), ["-O1", "-mavx512f", "-S"], ".so", options);
      expect(status).toBe("compiled");
      // Precompiling a header is no compilation of the source.
      return readFileSync(log, "utf8")
        .split("\n")
        .filter((line) => / -S /.test(` ${line} `) && !line.includes(".gch")).length;
    };
    expect(await timesCompiled(kernel())).toBe(2);
    expect(await timesCompiled(kernel("// another\n"))).toBe(1);
  });
});
