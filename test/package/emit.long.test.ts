/** @file Packages that build with a compiler alone, prove themselves, and say when they are wrong. */

import { existsSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import ts from "typescript";
import { describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { packageFiles } from "../../package/index.ts";
import { findProgram, runChild } from "../../runtime/child.ts";
import { type Proof, provePackage } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { subjectFor } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder("automap package ");
const at = (name: string): string => join(root, name);
compileOnce();

const compiler = await compilerHere();

const small = operation("conv2d c=16 k=16 h=6 w=5 n=1 NHWC", "u8s8");

/** Nothing maps it: compiled in no time. */
const largest = defineComputation({ equation: "y[p] max= x[2*p+r]", extents: { p: 9, r: 3 }, tensors: { x: "s8" } });

const triangle = operation("interaction b=3 v=7 k=16", "bf16");

const heat = defineComputation({
  equation: "u[t,i] = u[t-1,i] + c[i]*(u[t-1,i-1] - 2*u[t-1,i] + u[t-1,i+1]) + 0.25*(u[t-1,i+1] - u[t-1,i])",
  extents: { t: 100, i: 30 },
  tensors: { u: "f32", c: "f32" },
});

/** Writes a package, changes it, builds it and runs its test. */
async function proved(
  name: string,
  computation: Computation,
  change: (file: string, text: string) => string = (_, text) => text,
  threads = 1,
): Promise<Proof> {
  const subject = subjectFor(computation, threads);
  const files = new Map([...packageFiles(subject)].map(([file, text]) => [file, change(file, text)] as const));
  writePackage(at(name), files);
  return provePackage(at(name), { name: subject.name, threads, features: subject.tuned?.features }, compiler);
}

describe("a package", () => {
  const tuned = (name: string): string => `${name} tuned: right`;
  it.each([
    ["bytes with a requantised output", operation("conv2d c=16 k=16 h=6 w=5 NHWC", "u8s8", { epilogue: "requantize" })],
    ["16-bit floats rounded at the store", operation("matmul m=9 n=17 k=33", "bf16", { epilogue: "bf16" })],
    [
      "floats of one byte that stop at the largest",
      operation("matmul m=9 n=17 k=33", "e4m3e5m2", { epilogue: "res[m,n] = sat_e4m3(out[m,n] * 64)" }),
    ],
    ["a blocked layout with holes", operation("conv2d c=6 k=16 h=5 w=5 NCHW4c", "f32", { epilogue: "relu" })],
    ["a packed triangle beside an input", triangle],
  ])("proves itself: %s", async (what, computation) => {
    const proof = await proved(what, computation);
    expect(proof).toEqual({
      status: "right",
      said: expect.stringContaining(tuned(computation.name.replaceAll("-", "_"))),
    });
  });

  it.each([
    [
      "a recurrence",
      defineComputation({ equation: "y[i] = y[i-1] + x[i]", extents: { i: 40 }, tensors: { x: "f32", y: "f32" } }),
    ],
    ["a maximum", largest],
    ["a hundred steps in time", heat],
  ])("holds the portable code alone where nothing maps: %s", async (what, computation) => {
    const { said, status } = await proved(what, computation);
    expect(status).toBe("right");
    expect(said).toMatch(/portable: right/);
    expect(said).not.toMatch(/tuned/);
  });

  it("splits a call over threads", async () => {
    const { said, status } = await proved("threads", small, undefined, 2);
    expect({ status, said }).toEqual({ status: "right", said: expect.stringContaining("conv2d tuned: right") });
    expect(readFileSync(join(at("threads"), "conv2d.cpp"), "utf8")).toContain("std::thread");
  });

  const inRun = (statement: string) => (file: string, text: string) =>
    file === "conv2d_tuned.cpp" ? text.replaceAll(/return (phase_\d+\(.*?\));/g, `$1; ${statement} return;`) : text;
  it("fails its own test when one element of the tuned kernel is wrong", async () => {
    const proof = await proved("broken", small, inRun("((int*)tensors[0])[17] ^= 1;"));
    expect(proof.status).toBe("wrong");
    expect(proof.said).toMatch(
      /^conv2d tuned: random data: element n 0, k 1, p 0, q 1 of out is -?\d+, the equation gives -?\d+$/m,
    );
    expect(proof.said).toMatch(/conv2d portable: right/);
  });

  it.each([
    ["the triangle", 16 + 20],
    ["the input beside it", 5],
  ])("fails its own test when an element of %s is wrong", async (what, element) => {
    const wrong = `((short*)tensors[0])[${element}] = 0x3c7f;`;
    const { said, status } = await proved(`wrong ${what}`, triangle, (file, text) =>
      file === "interaction_tuned.cpp" ? text.replaceAll(/return (phase_\d+\(.*?\));/g, `$1; ${wrong} return;`) : text,
    );
    expect({ status, said }).toEqual({
      status: "wrong",
      said: expect.stringMatching(
        new RegExp(`^interaction tuned: exact data: element b 0, \\w+ ${element} of z is`, "m"),
      ),
    });
    expect(said).toMatch(/interaction portable: right/);
  });

  it("fails its own test when the tuned kernel writes one byte beyond the output", async () => {
    const proof = await proved("overstepping", small, inRun("((char*)tensors[0])[6 * 5 * 16 * 4] = 1;"));
    expect(proof).toEqual({ status: "wrong", said: expect.stringContaining("SIGSEGV") });
  });

  it("fails its own test when the portable code makes two time steps too few", async () => {
    const { said, status } = await proved("steps", heat, (file, text) =>
      /portable/.test(file) ? text.replace("Int left = 100;", "Int left = 98;") : text,
    );
    expect(said).toContain("random data: element");
    expect(status).toBe("wrong");
  });

  it("fails its own test when the portable code is wrong", async () => {
    const proof = await proved("broken portable", largest, (file, text) =>
      file === "equation_portable.cpp" ? text.replace("bool any = false;", "bool any = true; sum = 1000;") : text,
    );
    expect(proof.status).toBe("wrong");
    expect(proof.said).toMatch(/equation portable: random data: element/);
  });

  it("prints the compiler's message when it does not build", async () => {
    const proof = await proved("unbuildable", largest, (file, text) =>
      file === "equation.cpp" ? `${text}\nnonsense` : text,
    );
    expect(proof).toEqual({ status: "not built", said: expect.stringContaining("nonsense") });
  });

  it("has a header that a C compiler reads, and names that let two packages share a program", async () => {
    const files = packageFiles(subjectFor(small));
    writePackage(at("header"), files);
    writeFileSync(
      join(at("header"), "user.c"),
      '#include "conv2d.h"\nint (*use)(conv2d_plan**, int) = conv2d_create;\n',
    );
    const flags = ["-x", "c", "-std=c99", "-pedantic-errors", "-Wall", "-Werror", "-fsyntax-only"];
    const run = await runChild([...compiler.command, ...flags, join(at("header"), "user.c")], { timeLimitMs: 900_000 });
    expect(run).toMatchObject({ status: "ok" });
    for (const file of ["conv2d.cpp", "conv2d_tuned.cpp", "conv2d_portable.cpp"]) {
      const text = (files.get(file) ?? "").replaceAll(/__attribute__\(\(.*?\)\) |HIDDEN /g, "");
      const exported = [...text.matchAll(/^extern "C"[^(]*?(\w+)\(/gm)].map(([, name]) => name);
      expect(exported.length).toBeGreaterThan(3);
      expect(exported.filter((name) => !name?.startsWith("conv2d_"))).toEqual([]);
    }
  });

  it("is built, tested and installed by CMake", async ({ skip }) => {
    if (!findProgram("cmake", process.env["PATH"] ?? "")) return skip("cmake is not installed");
    writePackage(at("cmake"), packageFiles(subjectFor(small)));
    const [folder, build, prefix] = [at("cmake"), join(at("cmake"), "build"), join(at("cmake"), "installed")];
    for (const command of [
      ["cmake", "-S", folder, "-B", build],
      ["cmake", "--build", build],
      ["ctest", "--test-dir", build, "--output-on-failure"],
      ["cmake", "--install", build, "--prefix", prefix],
    ])
      expect(await runChild(command, { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
    expect(existsSync(join(prefix, "include", "conv2d.h"))).toBe(true);
    expect(existsSync(join(build, "libconv2d.so"))).toBe(true);
  });

  it("is called from Node, and typed", async () => {
    const folder = at("node");
    writePackage(folder, packageFiles(subjectFor(small)));
    symlinkSync(resolve("node_modules"), join(folder, "node_modules"));
    const program = `import { description, load } from "./index.js";
const kernel = load();
const [a, b, c] = description.parameters.map((p) => new globalThis[p.array](p.elements).fill(1));
kernel.run(a, b, c);
console.log(kernel.implementation, c[2 * 5 * 16 + 2 * 16]);
kernel.close();
`;
    writeFileSync(join(folder, "use.mjs"), program);
    const unbuilt = await runChild([process.execPath, join(folder, "use.mjs")], { timeLimitMs: 900_000 });
    expect(unbuilt.stderr).toContain("build it first: sh build.sh");
    expect(await runChild(["sh", join(folder, "build.sh")], { timeLimitMs: 900_000 })).toMatchObject({ status: "ok" });
    const built = await runChild([process.execPath, join(folder, "use.mjs")], { timeLimitMs: 900_000 });
    expect(built).toMatchObject({ status: "ok", stdout: `tuned ${16 * 9}\n` });

    const file = join(folder, "use.ts");
    const call = (weight: string): string => `kernel.run(new Uint8Array(1), new ${weight}(1), new Int32Array(1));\n`;
    writeFileSync(
      file,
      `import { load } from "./index.js";\nconst kernel = load();\n${call("Int8Array")}${call("Float32Array")}`,
    );
    const types = ts.createProgram([file], {
      strict: true,
      noEmit: true,
      module: ts.ModuleKind.NodeNext,
      target: ts.ScriptTarget.ES2022,
      lib: ["lib.es2022.d.ts"],
      skipDefaultLibCheck: true,
      types: [],
    });
    const told = ts.getPreEmitDiagnostics(types).map((d) => ts.flattenDiagnosticMessageText(d.messageText, "\n"));
    expect(told).toEqual([expect.stringMatching(/'Float32Array.*'Int8Array/)]);
  });
});
