/**
 * @file The package as npm installs it, in an empty project and an empty home: strict TypeScript compiles against it, ES modules and `require` load
 * it, its examples run, and its command searches, asks, reports, emits and calls. It wants `npm run build` behind it, so it is a slow test;
 * `.ci/run` runs it on a clean clone.
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { scratchFolder } from "../support/scratch.ts";

const project = scratchFolder();
const installed = join(project, "node_modules/automap");
const home = join(project, "home");

/** What a program prints, in the project; its words on stderr when it fails. */
function printed(program: string, ...words: string[]): string {
  const env = { PATH: process.env["PATH"], HOME: home };
  return execFileSync(program, words, { cwd: project, encoding: "utf8", env, stdio: ["ignore", "pipe", "pipe"] });
}
const automap = (...words: string[]): string =>
  printed(process.execPath, join(installed, "dist/cli/main.js"), ...words);

/** Those that are programs: the other is a declaration, which the command line is given below. */
const EXAMPLES = readdirSync("examples").flatMap((file) => /^(?!vpmaddwd)(.*)\.ts$/.exec(file)?.[1] ?? []);

const MANIFEST = z.object({ dependencies: z.record(z.string(), z.string()) });

describe.runIf(process.env["AUTOMAP_SLOW"] === "1")("the packed package", () => {
  beforeAll(() => {
    const packed = execFileSync("npm", ["pack", "--silent", "--ignore-scripts", "--pack-destination", project], {
      encoding: "utf8",
    });
    mkdirSync(installed, { recursive: true });
    mkdirSync(home);
    execFileSync("tar", [
      "xzf",
      join(project, packed.trim().split("\n").at(-1) ?? ""),
      "--strip-components=1",
      "-C",
      installed,
    ]);
    // Only its declared dependencies, and nothing else of this clone: a link leads to each.
    const { dependencies } = MANIFEST.parse(JSON.parse(readFileSync(join(installed, "package.json"), "utf8")));
    for (const name of Object.keys(dependencies)) {
      const place = join(project, "node_modules", name);
      mkdirSync(join(place, ".."), { recursive: true });
      symlinkSync(resolve("node_modules", name), place);
    }
    writeFileSync(join(project, "package.json"), '{ "type": "module" }');
  });

  it("holds documents and examples, and neither benchmarks nor source maps", () => {
    const files = readdirSync(installed, { recursive: true, encoding: "utf8" });
    expect(files).toEqual(expect.arrayContaining(["README.md", "docs/architecture.md", "dist/examples/mappings.js"]));
    expect(files.filter((file) => /^dist\/(bench|test)\/|\.map$|\.db$/.test(file))).toEqual([]);
    expect(existsSync(join(installed, "dist/automap.d.ts"))).toBe(true);
  });

  it("compiles in a strict project that checks its libraries", () => {
    writeFileSync(
      join(project, "uses.ts"),
      `import { type Candidate, defineIntrinsic, defineStrategy, type IntrinsicSpec, instantiate, openDatabase, operatorNamed } from "automap";
       import { exportLines, type WorkloadRecord } from "automap/db";
       import { interpretNest, type LoopNest } from "automap/internals";
       import { type BoundNetwork, emitNetwork, type Graph, loadNetwork, openGraph, tuneNetwork } from "automap/network";
       import { type Design, lowerDesign } from "automap/systolic";
       import { queryTrials, registerIntrinsic, type Search, STRATEGIES, type Strategy, type TrialFilter, type TrialOf, tune } from "automap";
       import type { Inputs, SearchSpace, TuneEvent, TuneOptions, TuneOutcome } from "automap";
       declare const mine: IntrinsicSpec;
       const first: Strategy = defineStrategy({
         name: "first", summary: "What is drawn first.", options: {}, guided: false,
         *propose<C>({ space, random, batch }: Search<C>) { yield Array.from({ length: batch }, () => space.random(random)); },
       });
       const onEvent = (event: TuneEvent<Candidate>): void => {
         if (event.kind === "trial") { const { candidate }: TrialOf<Candidate> = event.trial; console.log(candidate.intrinsic); }
       };
       const options: TuneOptions = { strategy: STRATEGIES[0] ?? first, onEvent, intrinsics: [registerIntrinsic(defineIntrinsic(mine))] };
       const outcome: TuneOutcome = await tune(instantiate(operatorNamed("matmul")), options);
       if ("best" in outcome) console.log(outcome.best?.measurement.median.toFixed(9));
       const filter: TrialFilter = { operator: "matmul", extents: { m: { min: 16 } }, status: "ok" };
       console.log(queryTrials(openDatabase("automap.db"), filter).length);
       declare const graph: Graph;
       const opened = openGraph(graph, { dims: { batch: 1 } });
       const [tuned] = await tuneNetwork(opened.program, { seconds: 60, signal: AbortSignal.timeout(9) });
       const { proof } = await emitNetwork(opened, { to: "resnet18", verify: true, onStep: (name) => console.log(name) });
       console.log(tuned?.task.steps.length, proof?.status);
       console.log([exportLines, interpretNest, loadNetwork, lowerDesign].length);
       export type { BoundNetwork, Design, Inputs, LoopNest, SearchSpace, WorkloadRecord };`,
    );
    const compilerOptions = {
      strict: true,
      exactOptionalPropertyTypes: true,
      noUncheckedIndexedAccess: true,
      skipLibCheck: false,
      noEmit: true,
      module: "nodenext",
      target: "es2022",
      types: [],
    };
    writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["uses.ts"] }));
    expect(printed(process.execPath, resolve("node_modules/typescript/bin/tsc"), "-p", project)).toBe("");
  });

  it.each([
    ["automap", "tune"],
    ["automap/db", "importLines"],
    ["automap/internals", "lowerMapping"],
    ["automap/network", "emitNetwork"],
    ["automap/systolic", "enumerateDesigns"],
  ])("is imported and required: %s", (entry, name) => {
    const say = `console.log(typeof a.${name})`;
    for (const [type, load] of [
      ["module", `import * as a from "${entry}"`],
      ["commonjs", `const a = require("${entry}")`],
    ] as const)
      expect(printed(process.execPath, `--input-type=${type}`, "-e", `${load}; ${say}`)).toBe("function\n");
  });

  it.each(EXAMPLES)("runs its example %s", (example) => {
    // Of the gallery, all whose kernels gallery.test.ts judges, one is enough.
    const words = example === "gallery" ? ["conv-1d"] : [];
    const said = printed(process.execPath, join(installed, `dist/examples/${example}.js`), ...words);
    expect(said).not.toBe("");
    expect(said).not.toContain("WRONG");
  });

  it("takes an instruction of the user on its command line", () => {
    const file = "node_modules/automap/dist/examples/vpmaddwd.js";
    expect(automap("intrinsic", "check", "mine.vpmaddwd", "--declare", file)).toContain("1 agree with their equation");
  });

  it("searches, asks, reports, emits and calls", () => {
    expect(automap("map", "conv2d", "--intrinsic", "wmma.m16n16k16.f32.f16")).toContain("mappings");
    const tune = ["tune", "matmul", "--m", "16", "--n", "16", "--k", "16", "--dtype", "f32", "--trials", "2"];
    expect(automap(...tune)).toContain("a call");
    const { trials } = z
      .object({ trials: z.array(z.object({ id: z.string() })) })
      .parse(JSON.parse(automap("db", "best", "--json")));
    const [best] = trials;
    if (!best) throw new Error("no trial was recorded");
    automap("report", "-o", "page.html");
    expect(readFileSync(join(project, "page.html"), "utf8")).toMatch(/^<!doctype html>/);
    expect(automap("emit", best.id, "--to", "package", "--prove")).toContain("matmul in package");
    // A row of ones times the numbers 1 to 16 in every column.
    const call = `
      import { load } from "automap";
      const ones = new Float32Array(256).fill(1), numbers = Float32Array.from({ length: 256 }, (_, i) => 1 + Math.floor(i / 16));
      const out = new Float32Array(256), product = await load("package");
      product.run(ones, numbers, out);
      product.close();
      console.log(new Set(out));`;
    expect(printed(process.execPath, "--input-type=module", "-e", call)).toBe("Set(1) { 136 }\n");
  });
});
