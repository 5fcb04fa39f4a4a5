/** @file `load`: a kernel as a function on typed arrays, compiled once, with a message for every misuse. */

import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { afterEach, beforeAll, describe, expect, it, vi } from "vitest";
import { type Computation, inputsOf } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { packageFiles } from "../../package/index.ts";
import { decodeElements, encodeElements } from "../../runtime/bytes.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { shareCores } from "../../runtime/cores.ts";
import { allowedCpus } from "../../runtime/processor.ts";
import { fromMemory, toMemory } from "../../runtime/reference/verify.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { type BoundKernel, load } from "../../session/package/load.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { sealedPackage } from "../../session/package/sealed-package.ts";
import type { TunedKernel } from "../../session/tune/finals.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { plainKernel, recordPlain, subjectFor } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { sourceOf } from "../support/source.ts";
import { operation, smallIntegers } from "../support/subjects.ts";

const root = scratchFolder("automap load ");
afterEach(() => vi.unstubAllEnvs());
const cache = join(root, "cache");
const at = (name: string): string => join(root, name);
compileOnce(inFull([], ["-O1"]));

/** What a search would have ended with. */
function tuned(computation: Computation, threads = 1): TunedKernel {
  const plain = plainKernel(computation, threads);
  if (!plain) throw new Error(`nothing maps ${computation.name} here`);
  const measurement = { status: "ok", samples: [1], median: 1, interval: [1, 1], instructions: 1 } as const;
  return { id: "0123456789abcdef", computation, prediction: undefined, measurement, ...plain };
}

type NumberArray = Parameters<BoundKernel["run"]>[number];
const ARRAYS = { Uint8Array, Int8Array, Uint16Array, Int16Array, Uint32Array, Int32Array, Float32Array, Float64Array };

function arrayOf(type: string, source: number | ArrayBuffer): NumberArray {
  const found = Object.entries(ARRAYS).find(([name]) => name === type)?.[1];
  if (!found) throw new Error(`no ${type}`);
  return typeof source === "number" ? new found(source) : new found(source);
}

/** Small integers in every input; the arrays of a call, and what the interpreter makes of them. */
function data(kernel: BoundKernel, computation: Computation): { arrays: NumberArray[]; expected: ArrayLike<number> } {
  const values = smallIntegers(computation);
  const arrays = kernel.parameters.map((p, i) => {
    const tensor = inputsOf(computation)[i];
    if (!tensor) return arrayOf(p.array, p.elements);
    const bytes = encodeElements(tensor.dtype, toMemory(tensor, values[tensor.name] ?? []));
    return arrayOf(p.array, Uint8Array.from(bytes).buffer);
  });
  return { arrays, expected: interpret(computation, values) };
}

function outputOf(kernel: BoundKernel, computation: Computation, arrays: readonly NumberArray[]): number[] {
  const output = arrays.at(-1);
  const tensor = Object.values(computation.tensors)[0];
  if (!output || !tensor) throw new Error(`${kernel.name} has no output`);
  return [...fromMemory(tensor, decodeElements(tensor.dtype, new Uint8Array(output.buffer)))];
}

const conv = operation("conv2d c=16 k=16 h=5 w=5 NHWC", "u8s8");
const threads = Math.min(2, availableParallelism());

describe("compilation for load", () => {
  it("waits while a core is measured on, and stays on the core it was given", async () => {
    const [cpu = 0] = allowedCpus();
    const compiledOn = at("compiled on");
    writeFileSync(
      at("compile"),
      `#!/bin/sh\ngrep Cpus_allowed_list /proc/self/status >> '${compiledOn}'\nexec g++ "$@"\n`,
      {
        mode: 0o755,
      },
    );
    const compiler = { ...(await compilerHere()), command: [at("compile")] };
    const sharing = { cores: [{ name: "core 0", cpus: [cpu], isFastest: true }], realm: `test-load-${process.pid}/` };
    let finish = (): void => undefined;
    const measuring = shareCores(sharing).measuring(1, async () => {
      await new Promise<void>((resolve) => {
        finish = resolve;
      });
      return {};
    });
    const loading = load(tuned(conv), { cache: at("waiting"), compiler, cores: shareCores(sharing) });
    await setTimeout(300);
    expect(existsSync(compiledOn)).toBe(false);
    finish();
    await measuring;
    (await loading).close();
    const lines = readFileSync(compiledOn, "utf8").trim().split("\n");
    expect(lines.length).toBeGreaterThan(2);
    expect(new Set(lines.map((line) => Number(line.split(":")[1])))).toEqual(new Set([cpu]));
  });
});

describe("a loaded kernel", () => {
  it.each([
    ["bytes", conv, 1],
    ["16-bit floats as bits", operation("matmul m=5 n=16 k=8", "bf16", { epilogue: "bf16" }), 1],
    ["three inputs", operation("conv2d c=4 k=16 h=4 w=4", "f32", { epilogue: "bias" }), 1],
    ["two threads", conv, threads],
  ] as const)("equals the interpreter, tuned and portable: %s", async (_, computation, parts) => {
    for (const implementation of ["tuned", "portable"] as const) {
      const kernel = await load(tuned(computation, parts), { cache, implementation });
      expect(kernel.implementation).toBe(implementation);
      const { arrays, expected } = data(kernel, computation);
      for (let call = 0; call < (parts > 1 ? 300 : 2); call++) kernel.run(...arrays);
      expect(outputOf(kernel, computation, arrays)).toEqual([...Array.from(expected)]);
      kernel.close();
    }
  });

  describe("given unusable arguments", () => {
    let kernel: BoundKernel;
    let arrays: NumberArray[];
    beforeAll(async () => {
      kernel = await load(tuned(conv), { cache });
      ({ arrays } = data(kernel, conv));
    });
    const run = (...given: unknown[]): void => Reflect.apply(kernel.run, kernel, given);
    const shared = new ArrayBuffer(16 * 25 * 4);

    it.each([
      ["too few arrays", () => run(arrays[0], arrays[1]), /conv2d: out is undefined; it must be an Int32Array/],
      ["too many arrays", () => run(...arrays, arrays[0]), /conv2d\.run takes 3 arrays, got 4/],
      ["a plain array", () => run([1, 2], arrays[1], arrays[2]), /conv2d: input is an Array; it must be a Uint8Array/],
      ["nothing", () => run(null, arrays[1], arrays[2]), /input is null; it must be a Uint8Array/],
      [
        "another type of number",
        () => run(arrays[0], new Uint8Array(16 * 16 * 9), arrays[2]),
        /w is a Uint8Array; it must be an Int8Array/,
      ],
      [
        "one element too few",
        () => run(arrays[0]?.subarray(1), arrays[1], arrays[2]),
        /input has 399 elements; it must have 400\n {2}n 1, c 16, h 5, w 5, element at/,
      ],
      [
        "an output one too long",
        () => run(arrays[0], arrays[1], new Int32Array(401)),
        /out has 401 elements; it must have 400/,
      ],
      [
        "an input inside the output",
        () => run(new Uint8Array(shared, 4, 400), arrays[1], new Int32Array(shared)),
        /input shares memory with out\n/,
      ],
      [
        "a transferred array",
        () => run(transferred(400), arrays[1], arrays[2]),
        /input has no memory: its buffer was transferred/,
      ],
    ])("names the mistake, its reason and the remedy: %s", (_, misuse, message) => {
      expect(misuse).toThrow(message);
      // The kernel is none the worse for it.
      expect(() => run(...arrays)).not.toThrow();
    });

    it("notices an array that was transferred away between calls", () => {
      const fleeting = new Uint8Array(400);
      run(fleeting, arrays[1], arrays[2]);
      structuredClone(fleeting.buffer, { transfer: [fleeting.buffer] });
      expect(() => run(fleeting, arrays[1], arrays[2])).toThrow(/input has no memory/);
    });

    it("may be given memory shared between threads, and parts of larger arrays", () => {
      run(...arrays);
      const right = [...(arrays[2] ?? [])];
      const [from = new Uint8Array()] = arrays;
      const wide = new Uint8Array(new SharedArrayBuffer(500), 13, 400);
      wide.set(from);
      run(wide, arrays[1], arrays[2]?.fill(0));
      expect([...(arrays[2] ?? [])]).toEqual(right);
    });

    it("cannot run when it is closed, and may be closed twice", async () => {
      const other = await load(tuned(conv), { cache });
      other.close();
      other.close();
      expect(() => other.run(...arrays)).toThrow("conv2d is closed\n  load it again");
    });
  });

  it("packs constants at the first call, for another array, and on request", async () => {
    const kernel = await load(tuned(conv), { cache });
    const input = new Uint8Array(400).fill(1);
    const weight = new Int8Array(16 * 16 * 9).fill(1);
    const out = new Int32Array(400);
    const centre = (w: Int8Array): number | undefined => {
      kernel.run(input, w, out);
      return out[(2 * 5 + 2) * 16];
    };
    expect(centre(weight)).toBe(16 * 9);
    weight.fill(2);
    expect(centre(weight)).toBe(16 * 9);
    kernel.repack();
    expect(centre(weight)).toBe(2 * 16 * 9);
    expect(centre(weight.slice().fill(3))).toBe(3 * 16 * 9);
    expect(centre(weight)).toBe(2 * 16 * 9);
    kernel.close();
  });

  it("falls back to the portable code on a CPU that lacks a feature, with a warning, and refuses when tuned is asked for", async () => {
    // Four-operand FMA: AMD made it until 2014, nobody else ever did.
    const best = tuned(conv);
    const foreign = { ...best, kernel: { ...best.kernel, features: [...best.kernel.features, "fma4"] } };
    const warning = vi.spyOn(process, "emitWarning").mockImplementation(() => undefined);
    const kernel = await load(foreign, { cache });
    expect(warning).toHaveBeenCalledWith(expect.stringContaining("lacks fma4: the portable code runs"));
    warning.mockRestore();
    expect(kernel).toMatchObject({ implementation: "portable", missing: ["fma4"] });
    const { arrays, expected } = data(kernel, conv);
    kernel.run(...arrays);
    expect(outputOf(kernel, conv, arrays)).toEqual([...Array.from(expected)]);
    await expect(load(foreign, { cache, implementation: "tuned" })).rejects.toThrow(
      /lacks what the tuned kernel needs: fma4/,
    );
  });
});

describe("load", () => {
  it("compiles equal sources once, and others again", async () => {
    await load(tuned(conv), { cache });
    const before = readdirSync(cache);
    await load(tuned(conv), { cache });
    expect(readdirSync(cache)).toEqual(before);
    const best = tuned(conv);
    await load(
      { ...best, kernel: { ...best.kernel, source: sourceOf(`${best.kernel.source}// another\n`) } },
      { cache },
    );
    expect(readdirSync(cache)).toHaveLength(before.length + 1);
  });

  it("takes a record by its id, and a folder that was emitted", async () => {
    const id = recordPlain(at("t.db"), conv, environmentOf({ compiler: await compilerHere() }));
    const recorded = await load(id.slice(0, 8), { database: at("t.db"), cache });
    writePackage(at("package"), sealedPackage(packageFiles(subjectFor(conv))));
    const emitted = await load(at("package"), { cache });
    const { arrays, expected } = data(recorded, conv);
    for (const kernel of [recorded, emitted]) {
      arrays[2]?.fill(0);
      kernel.run(...arrays);
      expect(outputOf(kernel, conv, arrays)).toEqual([...Array.from(expected)]);
    }
  });

  it.each([
    ["a record that is not there", () => load("00ff00ff", { database: at("t.db") }), /t\.db holds no trial 00ff00ff/],
    ["a database that is not there", () => load("00ff00ff", { database: at("none.db") }), /there is no database at/],
    ["a folder without a package", () => load(root), /is no package: it has no kernel\.json/],
    [
      "a damaged description",
      () => damaged("kernel.json", '{"schemaVersion": 1, "name": "../x"}'),
      /kernel\.json does not describe a package: name/,
    ],
    ["a description that is not JSON", () => damaged("kernel.json", "{"), /kernel\.json does not describe a package/],
    [
      "a description of a later version",
      () => damaged("kernel.json", '{"schemaVersion": 2}'),
      /is of another version than 1/,
    ],
    ["a package with a file missing", () => damaged("conv2d.h", undefined), /lacks conv2d\.h/],
    [
      "sources that do not compile",
      () => damaged("conv2d.cpp", "nonsense"),
      /conv2d does not compile with .*\n[\s\S]*nonsense/,
    ],
    [
      "an implementation that does not exist",
      () => Reflect.apply(load, undefined, [tuned(conv), { cache, implementation: "fastest" }]),
      /no implementation "fastest"/,
    ],
  ])("refuses %s", async (_, attempt, message) => {
    writePackage(at("package"), sealedPackage(packageFiles(subjectFor(conv))), true);
    await expect(attempt()).rejects.toThrow(message);
  });

  it("names what to install where there is no compiler", async () => {
    vi.stubEnv("CXX", "no-such-compiler");
    expect(await findCompiler()).toMatchObject({ status: "environment" });
    await expect(load(tuned(conv), { cache })).rejects.toThrow(/no-such-compiler is not on the PATH\n.*\n {2}set CXX/);
  });
});

function transferred(length: number): Uint8Array {
  const array = new Uint8Array(length);
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

/** Loads the package with one file changed, or gone. */
async function damaged(file: string, text: string | undefined): Promise<BoundKernel> {
  const folder = mkdtempSync(at("damaged "));
  mkdirSync(folder, { recursive: true });
  cpSync(at("package"), folder, { recursive: true });
  if (text === undefined) rmSync(join(folder, file));
  else writeFileSync(join(folder, file), text);
  return load(folder, { cache, trustImported: true });
}
