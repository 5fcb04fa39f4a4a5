/** @file A network called from Node: by `loadNetwork`, and by the module that its package holds. */

import { execFileSync } from "node:child_process";
import { cpSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, expect, it } from "vitest";
import { type BoundNetwork, loadNetwork } from "../../entries/network.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { shareCores } from "../../runtime/cores.ts";
import { networkSubject, openGraph } from "../../session/network/network.ts";
import { buildNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { sealedPackage } from "../../session/package/sealed-package.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const at = join(folder, "twice");
/** A name that is none in C, and no string of C in TypeScript. */
const X = 'größe?"';

beforeAll(async () => {
  const net = new GraphBuilder("twice");
  const x = net.input(X, [2, 3]);
  const doubled = net.node("Mul", [x, net.constant("two", [1], Float32Array.of(2))]);
  net.output(doubled);
  net.output(net.node("ReduceSum", [doubled], { keepdims: 0 }));
  const { program } = openGraph({ ...net.graph, opset: 12 });
  const subject = networkSubject(program, new Map());
  writePackage(at, sealedPackage(networkFiles(subject)));
  const compiler = await compilerHere();
  expect(await buildNetwork(at, partsOfNetwork(subject), compiler, shareCores())).toBeUndefined();
});

const numbers = Float32Array.of(1, 2, 3, 4, 5, 6);
const values = (net: BoundNetwork, given: Parameters<BoundNetwork["run"]>[0]) =>
  Object.values(net.run(given)).map((array) => [...array]);

describe("loadNetwork", () => {
  it("runs a network on arrays named like its inputs, any number of times", async () => {
    const net = await loadNetwork(at);
    expect(net.inputs).toEqual([{ name: X, dtype: "f32", array: "Float32Array", shape: [2, 3], elements: 6 }]);
    expect(values(net, { [X]: numbers })).toEqual([[2, 4, 6, 8, 10, 12], [42]]);
    const into = Object.fromEntries(net.outputs.map(({ name, elements }) => [name, new Float32Array(elements)]));
    expect(net.run({ [X]: numbers.map((n) => -n) }, into)).toBe(into);
    expect(Object.values(into).map((array) => [...array])).toEqual([[-2, -4, -6, -8, -10, -12], [-42]]);
    expect(net.steps().map(({ seconds }) => seconds)).toEqual(net.steps().map(() => 0));
    net.close();
    expect(() => net.run({ [X]: numbers })).toThrow("twice is closed");
  });

  it("runs a network of more inputs and outputs than a call of C from Node may have parameters", async () => {
    const many = new GraphBuilder("many");
    const words = Array.from({ length: 40 }, (_, i) => `x${i}`);
    for (const word of words) many.output(many.node("Neg", [many.input(word, [2])]));
    const subject = networkSubject(openGraph({ ...many.graph, opset: 12 }).program, new Map());
    const there = join(folder, "many");
    writePackage(there, sealedPackage(networkFiles(subject)));
    expect(await buildNetwork(there, partsOfNetwork(subject), await compilerHere(), shareCores())).toBeUndefined();
    const net = await loadNetwork(there);
    const given = Object.fromEntries(words.map((word, i) => [word, Float32Array.of(i, 2 * i + 1)]));
    expect(values(net, given)).toEqual(words.map((_, i) => [i === 0 ? -0 : -i, -2 * i - 1]));
    net.close();
  });

  it("keeps the time of each step when asked to", async () => {
    const net = await loadNetwork(at, { times: true });
    net.run({ [X]: numbers });
    const once = net.steps();
    net.run({ [X]: numbers });
    expect(net.steps().every(({ seconds }, i) => seconds > (once[i]?.seconds ?? 0))).toBe(true);
    net.close();
  });

  it("refuses arrays that do not fit with a sentence", async () => {
    const net = await loadNetwork(at);
    const [output = ""] = net.outputs.map(({ name }) => name);
    const both = new Float32Array(8);
    const told = (run: () => unknown): string => {
      try {
        run();
        return "nothing";
      } catch (error) {
        return String(error).replaceAll(output, "OUTPUT");
      }
    };
    const rest = Object.fromEntries(net.outputs.map(({ name, elements }) => [name, new Float32Array(elements)]));
    expect([
      told(() => net.run({})),
      told(() => net.run({ [X]: new Float64Array(6) })),
      told(() => net.run({ [X]: numbers.subarray(1) })),
      told(() => net.run({ [X]: numbers, y: numbers })),
      told(() => net.run({ [X]: both.subarray(2) }, { ...rest, [output]: both.subarray(0, 6) })),
    ]).toMatchInlineSnapshot(`
      [
        "KernelError: twice: größe?" is undefined
        give Float32Array of 6 elements, [2,3] row-major",
        "KernelError: twice: größe?" is Float64Array
        give Float32Array of 6 elements, [2,3] row-major",
        "KernelError: twice: größe?" has 5 elements
        give Float32Array of 6 elements, [2,3] row-major",
        "KernelError: twice has no "y"
        there is größe?"",
        "KernelError: twice: OUTPUT shares memory with another array
        give it its own",
      ]
    `);
    net.close();
  });

  it("refuses a folder that is no network, and one that is not built", async () => {
    await expect(loadNetwork(folder)).rejects.toThrow("is no package of a network: it has no network.json");
    const bare = join(folder, "bare");
    writePackage(bare, new Map([["network.json", "{}"]]));
    await expect(loadNetwork(bare)).rejects.toThrow("network.json does not describe a network");
    writePackage(bare, new Map([["network.json", "{"]]), true);
    await expect(loadNetwork(bare)).rejects.toThrow("network.json does not describe a network");
  });

  it("runs what it compiled of sealed sources, whatever lies in the build folder", async () => {
    const foreign = join(folder, "foreign");
    cpSync(at, foreign, { recursive: true });
    writeFileSync(join(foreign, "build", "libtwice.so"), "no library");
    const cache = join(folder, "cache");
    const net = await loadNetwork(foreign, { cache });
    expect(values(net, { [X]: numbers })).toEqual([[2, 4, 6, 8, 10, 12], [42]]);
    net.close();
    const kept = readdirSync(cache);
    expect(kept).toHaveLength(1);
    (await loadNetwork(foreign, { cache })).close();
    expect(readdirSync(cache)).toEqual(kept);
  });

  it("takes the built library of a package from elsewhere where that is trusted, by a name of its own", async () => {
    const foreign = join(folder, "elsewhere");
    cpSync(at, foreign, { recursive: true });
    const file = join(foreign, "network.json");
    const facts: object = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...facts, library: "../evil.so", provenance: ["of somebody"] }));
    await expect(loadNetwork(foreign)).rejects.toThrow("was not written here, or its network.json was changed since");
    const net = await loadNetwork(foreign, { trustImported: true });
    expect(values(net, { [X]: numbers })).toEqual([[2, 4, 6, 8, 10, 12], [42]]);
    net.close();
  });

  it("refuses options that it does not have", async () => {
    const misspelt: object = { trustimported: true };
    await expect(loadNetwork(at, misspelt)).rejects.toThrow('loadNetwork has no option "trustimported"');
  });
});

describe("the module of a package", () => {
  it("runs the network with koffi alone, and its types check a program", () => {
    symlinkSync(resolve("node_modules"), join(at, "node_modules"));
    const program = `import { load } from ${JSON.stringify(pathToFileURL(join(at, "index.js")).href)};
      console.log(JSON.stringify(Object.values(load().run({ ${JSON.stringify(X)}: Float32Array.of(1, 2, 3, 4, 5, 6) })).map((a) => [...a])));`;
    writeFileSync(join(at, "use.mjs"), program);
    expect(execFileSync(process.execPath, [join(at, "use.mjs")], { encoding: "utf8" })).toBe(
      "[[2,4,6,8,10,12],[42]]\n",
    );
    const uses = [
      `net.run({ ${JSON.stringify(X)}: new Float32Array(6) });`,
      "// @ts-expect-error",
      `net.run({ ${JSON.stringify(X)}: new Int8Array(6) });`,
    ];
    writeFileSync(
      join(at, "use.ts"),
      ['import { load } from "./index.js";', "const net = load();", ...uses].join("\n"),
    );
    const flags = ["--noEmit", "--strict", "--module", "nodenext", "--target", "es2022", "--skipLibCheck"];
    execFileSync(process.execPath, ["node_modules/typescript/bin/tsc", ...flags, join(at, "use.ts")]);
  });
});
