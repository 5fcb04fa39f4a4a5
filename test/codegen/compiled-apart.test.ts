/** @file Kernels whose copies are compiled by themselves: the same code, and once for all kernels that copy alike. */

import { mkdtempSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import type { SourceText } from "../../abstraction/source-text.ts";
import { operatorNamed } from "../../operators/index.ts";
import { instantiate } from "../../operators/operator.ts";
import { type CompileOptions, codeFlags, compileKernel, compileSource, findCompiler } from "../../runtime/compiler.ts";
import { scratchFolder } from "../support/scratch.ts";
import { sourceOf } from "../support/source.ts";
import { mappedKernel, mappingsOnto, rowNamed } from "../support/subjects.ts";

const folder = scratchFolder();
let options: CompileOptions;
beforeAll(async () => {
  const compiler = await findCompiler({ ...process.env, CXX: "g++" });
  if (compiler.status !== "found") throw new Error(compiler.what);
  options = { compiler, workdir: folder };
});

/** A convolution whose input is padded, for blocks of `q` columns. */
function convolution(q: number): Kernel {
  const parameters = { c: 8, k: 32, h: 6, w: 6, r: 3, s: 3 };
  const types = { inputs: ["u8", "s8"], sum: "s32" } as const;
  const computation = instantiate(operatorNamed("conv2d"), { parameters, types });
  const intrinsic = rowNamed("avx512.vpdpbusd");
  const valid = mappingsOnto(computation, intrinsic);
  const mapping = valid.find((m) => printMatching(m.matching) === "n <- k   k <- c");
  if (!mapping) throw new Error("no mapping");
  const schedule = {
    order: ["n", "k", "p", "q", "r", "s", "c"],
    block: { k: 2, q },
    threads: 1,
    placement: { a: "padded", b: "tiled" } as const,
  };
  return mappedKernel(mapping, schedule);
}

describe.skipIf(process.arch !== "x64")("a kernel compiled apart", () => {
  it("has the code of the kernel in one text", async () => {
    const kernel = convolution(3);
    const { apart } = kernel;
    const [unit, ...others] = apart?.units ?? [];
    if (!apart || !unit) throw new Error("one text only");
    expect(others).toEqual([]);
    const flags = [...codeFlags(kernel), "-S"];
    /** The functions that g++ makes of a text, without the numbers of labels and lines. */
    const functions = async (text: SourceText): Promise<Map<string, string>> => {
      const made = await compileSource(text, flags, ".o", options);
      if (made.status !== "compiled") throw new Error(made.log);
      const assembly = readFileSync(made.file, "utf8")
        .replaceAll(/_ZL\d+(phase_\d+)\w+/g, "$1")
        .replaceAll(/\.L\w+/g, ".L")
        .replaceAll(/^# \d+ ".*\n/gm, "")
        // Only functions that other files can see begin with it, where a compiler protects jumps by default.
        .replaceAll("\tendbr64\n", "");
      return new Map(
        [...assembly.matchAll(/^([a-z_][\w.]*):\n([\s\S]*?)\n\s*\.size\s/gim)].map(([, name = "", body = ""]) => [
          name,
          body,
        ]),
      );
    };
    const whole = await functions(kernel.source);
    const main = await functions(apart.main);
    const copies = await functions(unit);
    expect([...whole.keys()].sort()).toEqual([...main.keys(), ...copies.keys()].sort());
    expect([...copies.keys()]).toEqual(["phase_0"]);
    expect([...main.values()].join("\n").match(/vpdpbusd/g)?.length).toBeGreaterThanOrEqual(6);
    for (const [name, body] of [...main, ...copies]) expect(whole.get(name)).toBe(body);
  });

  it("shares its copies with others", async () => {
    const workdir = mkdtempSync(join(folder, "shared-"));
    const objects = (): string[] => readdirSync(workdir).filter((name) => name.endsWith(".o"));
    for (const q of [2, 3, 4]) {
      expect(await compileKernel(convolution(q), { ...options, workdir })).toMatchObject({ status: "compiled" });
      expect(objects()).toHaveLength(1);
    }
    expect(readdirSync(workdir).filter((name) => name.endsWith(".so"))).toHaveLength(3);
  });

  it("is compiled in one text where that is another", async () => {
    const wrong = { ...convolution(3), source: sourceOf("int x = nonsense;") };
    expect(await compileKernel(wrong, options)).toMatchObject({ status: "compile-failed" });
  });
});
