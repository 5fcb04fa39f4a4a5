import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import * as root from "../../automap.ts";
import {
  best,
  type Choice,
  defineComputation,
  generate,
  instantiate,
  intrinsicsNamed,
  load,
  mappings,
  nativeTarget,
  openDatabase,
  operatorNamed,
  parseDataTypes,
  predict,
  queryTrials,
  rankByModel,
  tune,
} from "../../automap.ts";
import * as records from "../../entries/db.ts";
import { importLines, pruneTrials } from "../../entries/db.ts";
import * as internals from "../../entries/internals.ts";
import * as network from "../../entries/network.ts";
import * as systolic from "../../entries/systolic.ts";

/** The entries of the package, by the word behind its name. */
const ENTRIES = { ".": root, "./db": records, "./systolic": systolic, "./network": network, "./internals": internals };

describe("the entries of the package", () => {
  const { exports } = JSON.parse(readFileSync("package.json", "utf8")) as { exports: Record<string, unknown> }; // ours

  it("are those that package.json names, with their types", () => {
    const files = Object.keys(ENTRIES).map((entry): [string, unknown] => {
      const file = entry === "." ? "./dist/automap" : entry.replace("./", "./dist/entries/");
      return [entry, { types: `${file}.d.ts`, default: `${file}.js` }];
    });
    expect(exports).toEqual({ ...Object.fromEntries(files), "./package.json": "./package.json" });
  });

  it("have what is needed first at the root, at most 45 values, and the rest of the public names elsewhere", () => {
    expect(Object.keys(root).length).toBeLessThanOrEqual(45);
    const all: string[] = Object.values(ENTRIES).flatMap((entry) => Object.keys(entry));
    // What is read from a database is asked for by everyone; its entry has everything.
    const twice = all.filter((name, i) => all.indexOf(name) !== i);
    expect(twice.sort()).toEqual(["best", "openDatabase", "queryTrials", "showTrial"]);
    expect(all.length - twice.length).toBe(90);
  });
});

const matmul = defineComputation({
  name: "matmul",
  equation: "c[i,j] += f32(a[i,k]) * f32(b[k,j])",
  extents: { i: 32, j: 32, k: 64 },
  tensors: { a: "f32", b: { dtype: "f32", constant: true } },
});
const star = instantiate(operatorNamed("2d5pt"), { parameters: { h: 64, w: 64 }, types: parseDataTypes("f32") });

/** What the model likes best, nothing measured: needs neither a compiler nor the CPU's feature. */
function choice(of: typeof matmul, instruction: string, kinds: "mappings" | "lanes"): Choice {
  const ranked = rankByModel(of, { intrinsics: intrinsicsNamed(instruction), kinds, count: 1 });
  if ("refused" in ranked || !ranked[0]) throw new Error("nothing maps");
  return ranked[0];
}

describe("the verbs of the API", () => {
  const mapped = choice(matmul, "avx2.fma.f32.broadcast", "mappings");
  const lanes = choice(star, "avx512.fma.f32", "lanes");

  it("generate the source of a mapping and of a design on lanes", () => {
    expect(generate(mapped).source).toMatch(/mapping {3}.*\n.*order/);
    expect(generate(lanes).source).toMatch(/design {4}.* on 16 lanes/);
    expect(generate(lanes).promises).toMatch(/^vfmadd/);
  });

  it("predict both, as the ranking did", () => {
    expect(predict(mapped)?.seconds).toBeGreaterThan(0);
    expect(predict(mapped)?.levels.length).toBeGreaterThan(1);
    expect(predict(lanes)?.seconds).toBeGreaterThan(0);
  });

  it("refuse a candidate that does not fit its computation", () => {
    expect(() => generate({ ...mapped, computation: star })).toThrow(/does not bind/);
    expect(() => generate({ ...lanes, computation: { ...matmul, name: "product" } })).toThrow(
      /product does not run on lanes/,
    );
  });

  it("refuse to tune for a target that this machine is not", async () => {
    const other = { ...nativeTarget(), name: "a warp", isa: ["sm_90"] };
    await expect(tune(matmul, { machine: other })).rejects.toThrow("this machine lacks sm_90 of a warp");
  });
});

describe("an option that nobody knows is refused, with the nearest that is known, by", () => {
  const [fma] = intrinsicsNamed("avx2.fma.f32");
  if (!fma) throw new Error("the table has changed");
  const db = openDatabase(":memory:");
  /** As JavaScript would. */
  const wrong = <T>(options: object): T => options as T;
  const spec = { equation: "c[i] += a[i]", extents: { i: 4 }, tensors: { a: "f32" } } as const;

  it.each<readonly [string, () => unknown, string]>([
    ["mappings", () => mappings(matmul, fma, wrong({ rul: "amos" })), "rule"],
    ["rankByModel", () => rankByModel(matmul, wrong({ cuont: 1 })), "count"],
    ["instantiate", () => instantiate(operatorNamed("matmul"), wrong({ parameter: {} })), "parameters"],
    ["defineComputation", () => defineComputation(wrong({ ...spec, epilog: "" })), "epilogue"],
    ["a tensor", () => defineComputation(wrong({ ...spec, tensors: { a: { dtyp: "f32" } } })), "dtype"],
    ["openDatabase", () => openDatabase(":memory:", wrong({ readOnly: true })), "readonly"],
    ["queryTrials", () => queryTrials(db, wrong({ intrinsics: "amx" })), "intrinsic"],
    ["a range", () => queryTrials(db, { extents: { m: wrong({ mim: 3 }) } }), "min"],
    ["best", () => best(db, {}, wrong({ kind: "lanes" })), "kinds"],
    ["pruneTrials, which would delete everything", () => pruneTrials(db, wrong({ sinze: 3 }), { reason: "" }), "since"],
    ["importLines", () => importLines(db, [], wrong({ strickt: true })), "strict"],
  ])("%s", (_, call, near) => {
    expect(call).toThrow(
      expect.objectContaining({
        message: expect.stringContaining("has no option"),
        hint: `did you mean "${near}"?`,
      }),
    );
  });

  it("load", async () => {
    await expect(load("3f9a1c77", wrong({ trust: true }))).rejects.toThrow('load has no option "trust"');
  });

  it("openGraph, tuneNetwork, emitNetwork and loadNetwork", async () => {
    const { emitNetwork, loadNetwork, openGraph, tuneNetwork } = network;
    const graph = { name: "sums", opset: 17, inputs: [], outputs: [], constants: new Map(), nodes: [] };
    expect(() => openGraph(graph, wrong({ dim: {} }))).toThrow('openGraph has no option "dim"');
    const opened = openGraph(graph);
    const tuned = tuneNetwork(opened.program, wrong({ seconds: 1, db: "automap.db" }));
    await expect(tuned).rejects.toThrow('tuneNetwork has no option "db"');
    const emitted = emitNetwork(opened, wrong({ to: "sums", prove: true }));
    await expect(emitted).rejects.toThrow('emitNetwork has no option "prove"');
    await expect(loadNetwork("sums", wrong({ trust: true }))).rejects.toThrow('loadNetwork has no option "trust"');
  });
});
