/**
 * @file Instructions that a user declares: known by their names once registered, refused with what to register where
 * they are not.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { defineIntrinsic, type Intrinsic, type IntrinsicSpec } from "../../abstraction/intrinsic.ts";
import type { Choice } from "../../automap.ts";
import { generate, load, nativeTarget, predict, rankByModel, registerIntrinsic, tune } from "../../automap.ts";
import { conclude } from "../../cli/tune-outcome.ts";
import { beginRun, endRun, openDatabase, recordTrial, showTrial } from "../../db/index.ts";
import { replayRun } from "../../entries/db.ts";
import { vpmaddwd } from "../../examples/vpmaddwd.ts";
import { registerDeclarations } from "../../intrinsics/register.ts";
import { explainTrial } from "../../session/report/explain.ts";
import { recordOf } from "../../targets/index.ts";
import { captured, commandLine } from "../support/command-line.ts";
import { measured, newTrial, trial, WARM, workloadNamed, workshop } from "../support/database.ts";
import { took } from "../support/fake-runner.ts";

const shop = workshop();
afterAll(shop.remove);

const matmul = workloadNamed("matmul", { m: 16, n: 16, k: 16 }, "s16");
const named = (name: string, change: Partial<IntrinsicSpec> = {}): Intrinsic =>
  defineIntrinsic({ ...vpmaddwd, ...change, name });

/** A record of a kernel by an instruction, and of its run. */
function recorded(file: string, intrinsic: Intrinsic, choice: Choice): { readonly id: string; readonly run: string } {
  const db = openDatabase(file);
  const { environment } = newTrial(1);
  const options = {
    strategy: "random",
    threads: 1,
    earlyStop: true,
    kinds: "mappings",
    intrinsics: [intrinsic.name],
    offered: [intrinsic.name],
    target: recordOf(nativeTarget()),
  };
  const run = beginRun(db, { workload: matmul, environment, seed: 1, options, budget: { trials: 1 }, started: 1 });
  const id = recordTrial(db, {
    workload: matmul,
    environment,
    run,
    intrinsic,
    conditions: WARM,
    trial: trial(measured(3), undefined, { ...choice.candidate, intrinsic: intrinsic.name } as Choice["candidate"]), // of its own kind
  });
  endRun(db, run, { status: "done", ended: 2 });
  db.close();
  return { id, run };
}

/** What the model likes of an instruction that is registered nowhere: a mapping needs no register. */
function choiceOf(intrinsic: Intrinsic): Choice {
  const ranked = rankByModel(matmul.computation, { intrinsics: [intrinsic], kinds: "mappings", count: 1 });
  if ("refused" in ranked || !ranked[0]) throw new Error("nothing maps");
  return ranked[0];
}

describe("an instruction that is not registered", () => {
  const ghost = named("ghost.vpmaddwd");
  const file = shop.path("ghost.db");
  const SENTENCE = /no instruction ghost\.vpmaddwd .*is known here: .* not registered/;
  let made = { id: "", run: "" };
  beforeAll(() => {
    made = recorded(file, ghost, choiceOf(ghost));
  });

  it("is not tuned, as nobody could read its records", async () => {
    await expect(tune(matmul.computation, { intrinsics: [ghost], database: ":memory:" })).rejects.toThrow(
      "ghost.vpmaddwd is not registered",
    );
  });

  it("is refused by every reader of its records, with what to register", async () => {
    const choice = { computation: matmul.computation, candidate: choiceOf(ghost).candidate };
    expect(() => generate(choice)).toThrow(SENTENCE);
    expect(() => predict(choice)).toThrow(SENTENCE);
    await expect(load(made.id, { database: file })).rejects.toThrow(SENTENCE);
    const db = openDatabase(file, { readonly: true });
    expect(explainTrial(db, showTrial(db, made.id))).toMatchObject({ because: expect.stringMatching(SENTENCE) });
    await expect(replayRun(db, made.run)).rejects.toThrow(SENTENCE);
    db.close();
    const emitted = await commandLine(["emit", made.id, "--db", file, "--to", shop.path("none")]);
    expect(emitted).toMatchObject({ code: 2, err: expect.stringMatching(SENTENCE) });
    expect(emitted.err).toContain("--declare FILE");
    expect(emitted.err).toMatch(/declaration [0-9a-f]{12}/);
  });

  it("is known to a command that is given its declaration, and to all commands afterwards", async () => {
    const module = shop.path("ghost.mjs");
    writeFileSync(module, `export default ${JSON.stringify(ghost.declaration)};`);
    const to = shop.path("package");
    expect(await commandLine(["emit", made.id, "--db", file, "--declare", module, "--to", to])).toMatchObject({
      code: 0,
    });
    expect(existsSync(`${to}/matmul_tuned.cpp`)).toBe(true);
    const shown = await commandLine(["intrinsic", "show", "ghost.vpmaddwd", "--declare", module]);
    expect(shown.out).toContain("ymm[2*n + k]");
    const mapped = await commandLine(
      ["map", "matmul", "--dtype", "s16", "--intrinsic", "ghost.vpmaddwd", "--declare"].concat(module),
    );
    expect(mapped).toMatchObject({ code: 0, out: expect.stringContaining("2 mappings") });
    // A printed command contains the declaration, so that it works when pasted.
    expect(mapped.out).toMatch(new RegExp(`automap explain matmul .* --declare ${module} --id `));
    expect(readFileSync(`${to}/matmul.h`, "utf8")).toMatch(new RegExp(`remake .* --declare ${module}\n`));
    const { candidate } = choiceOf(ghost);
    const kernel = generate({ computation: matmul.computation, candidate });
    const best = { id: made.id, computation: matmul.computation, candidate, kernel, mapping: undefined };
    const ended = await captured(() =>
      conclude(
        {
          status: "no-gain",
          computation: matmul.computation,
          trials: [],
          failed: {},
          seconds: 1,
          waitedSeconds: 0,
          database: file,
          best: { ...best, prediction: undefined, measurement: took(1e-6) },
        },
        { declare: [module] },
        1,
      ),
    );
    expect(ended.out).toMatch(new RegExp(`use it {3}automap emit .* --to DIR --db ${file} --declare ${module}\n`));
    const db = openDatabase(file, { readonly: true });
    expect(explainTrial(db, showTrial(db, made.id)).status).toBe("explained");
    // The made-up record is not what a search would have drawn, but its space is there again.
    expect((await replayRun(db, made.run)).divergence?.because).toMatch(/^the replay asks for ghost\.vpmaddwd/);
    db.close();
  });
});

describe("a registered instruction", () => {
  it("is found by its name, its family, and by a choice", () => {
    const own = registerIntrinsic(named("mine.found"));
    const choice = choiceOf(own);
    expect(generate(choice).source).toContain("_mm256_madd_epi16");
    expect(predict(choice)?.seconds).toBeGreaterThan(0);
    expect(registerIntrinsic(named("mine.found"))).toBe(own);
  });

  it("has a name that nothing else has", () => {
    registerIntrinsic(named("mine.once"));
    expect(() => registerIntrinsic(named("mine.once", { summary: "Another." }))).toThrow(
      "mine.once stands for another declaration already",
    );
    expect(() => registerIntrinsic(named("avx2.fma.f32"))).toThrow(
      "avx2.fma.f32 stands for another declaration already",
    );
  });

  it("declared otherwise than in a record is refused, as its kernel would differ", async () => {
    const own = registerIntrinsic(named("mine.changed"));
    const file = shop.path("changed.db");
    const emit = "{c} = _mm256_add_epi32(_mm256_madd_epi16({a}, {b}), {c});";
    const { id } = recorded(file, named("mine.changed", { emit }), choiceOf(own));
    await expect(load(id, { database: file })).rejects.toThrow(
      /mine\.changed is registered with the declaration [0-9a-f]{12}, and the record was made with [0-9a-f]{12}/,
    );
  });

  it.each([
    ["an unknown field", { mnemonics: "vpmaddwd" }, 'has no field "mnemonics"', 'did you mean "mnemonic"?'],
    [
      "an unknown field of an operand",
      { operands: { ...vpmaddwd.operands, a: { ...vpmaddwd.operands["a"], lod: "x" } } },
      'mine.bad: operands.a has no field "lod"',
      'did you mean "load"?',
    ],
    ["a name that no record may hold", { name: "mine bad" }, "is no word of letters", ""],
    ["a feature of no family", { isa: "mine" }, "a feature of no machine family", "avx2"],
  ])("is refused with %s", (_, change, sentence, hint) => {
    const declaration = { ...vpmaddwd, name: "mine.bad", ...change } as IntrinsicSpec; // as JavaScript would
    try {
      registerIntrinsic(defineIntrinsic(declaration));
    } catch (error) {
      expect(String(error)).toContain(sentence);
      expect(error).toMatchObject({ hint: hint === "" ? undefined : expect.stringContaining(hint) });
      return;
    }
    throw new Error("was registered");
  });
});

describe("a module of declarations", () => {
  it("may export several, and lists of them", () => {
    const exports = { one: named("mine.one").declaration, default: [named("mine.two")] };
    expect(registerDeclarations(exports, "mine.mjs").map((i) => i.name)).toEqual(["mine.one", "mine.two"]);
  });

  it.each([
    ["nothing", "", "exports no declaration"],
    ["something else", "export const answer = 42;", "answer: expected object, received number"],
    ["half a declaration", 'export default { name: "mine.half" };', "default: family: expected string"],
    ["what does not parse", "export default {", "cannot be loaded"],
    ["storage that names no axis", storageOfNoAxis(), "storage of c names"],
  ])("is refused when it exports %s", async (what, text, sentence) => {
    const file = shop.path(`${what.replaceAll(" ", "-")}.mjs`);
    writeFileSync(file, text);
    const { code, err } = await commandLine(["intrinsic", "list", "--declare", file]);
    expect({ code, err }).toEqual({ code: 2, err: expect.stringContaining(sentence) });
    expect(err).not.toContain("    at ");
  });

  it("must exist", async () => {
    expect(await commandLine(["tune", "matmul", "--declare", "vnni"])).toMatchObject({
      code: 3,
      err: expect.stringContaining("there is no file vnni"),
    });
  });
});

function storageOfNoAxis(): string {
  const operands = { ...vpmaddwd.operands, c: { dtype: "s32", storage: "ymm[z]" } };
  return `export default ${JSON.stringify({ ...vpmaddwd, name: "mine.axis", operands })};`;
}

describe("tune", () => {
  it.each([
    [{ trails: 3 }, 'tune has no option "trails"', 'did you mean "trials"?'],
    [{ trials: "10" }, "tune: trials: must be a whole number", undefined],
    [{ seconds: -1 }, "tune: seconds: must be positive", undefined],
    [{ kinds: "lane" }, "tune: kinds: must be all, exact, instructions, mappings, lanes", undefined],
    [{ onEvent: 3 }, "tune: onEvent: must be a function", undefined],
  ])("refuses %j", async (options, sentence, hint) => {
    const wrong = options as object; // as JavaScript would
    await expect(tune(matmul.computation, wrong)).rejects.toMatchObject({
      message: expect.stringContaining(sentence),
      hint,
    });
  });
});
