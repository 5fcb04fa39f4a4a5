import { describe, expect, it } from "vitest";
import {
  best,
  type Choice,
  defineComputation,
  generate,
  importLines,
  instantiate,
  intrinsicsNamed,
  load,
  mappings,
  nativeTarget,
  openDatabase,
  operatorNamed,
  parseDataTypes,
  predict,
  pruneTrials,
  queryTrials,
  rankByModel,
  tune,
} from "../automap.ts";

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
});
