/**
 * @file Kernels for GPUs that this machine lacks: ranked by the model, run under emulation, recorded without a time.
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { best, openDatabase, queryTrials } from "../../db/index.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { emulatedVerdict } from "../../runtime/emulated-verdict.ts";
import { referenceFor } from "../../runtime/reference/verify.ts";
import { commandLine } from "../support/command-line.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { kernelsOf, rowsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

const scratch = scratchFolder();

const MATMUL = "tune matmul --m 9 --n 18 --k 20".split(" ");
/** Types, machine and language, a file for the winner, and a word that its text holds. */
const WAYS = [
  ["u8s8", "dg2", "cm", "k.cm", "cm_dp4a"],
  ["bf16", "pvc", "sycl", "k.sycl.cpp", "sycl::"],
  ["f16", "h100", "cuda", "k.cu", "__global__"],
  ["e4m3", "h200", "cuda", "k8.cu", "__global__"],
] as const;

describe("--emulate", () => {
  it.each(WAYS)(
    "keeps kernels of %s for %s in %s as emulated, never among the best",
    async (dtype, machine, language, file, word) => {
      const database = join(scratch, `${machine}.db`);
      const to = join(scratch, file);
      const words = ["--dtype", dtype, "--target", machine, "--language", language, "--emulate", "--trials", "1"];
      const ran = await commandLine([...MATMUL, ...words, "--db", database, "--to", to, "--json"]);
      expect(ran, ran.err).toMatchObject({ code: 0 });
      expect(JSON.parse(ran.out)).toMatchObject({
        measured: false,
        target: machine,
        emulator: expect.stringContaining(`emulation of ${language}`),
        candidates: [{ status: "emulated" }],
      });
      expect(readFileSync(to, "utf8")).toContain(word);
      expect(ran.err).toContain("not timed");
      const db = openDatabase(database);
      try {
        expect(best(db)).toEqual([]);
        const [trial] = queryTrials(db, { status: "emulated" });
        expect(trial?.environment).toMatchObject({ target: machine, cpu: expect.stringContaining("emulation of") });
        expect(trial?.measurement).not.toHaveProperty("median");
      } finally {
        db.close();
      }
    },
  );

  it("is refused for this machine, for a ranking and for a search", async () => {
    expect(await commandLine([...MATMUL, "--emulate"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("run on this machine"),
    });
    expect(await commandLine([...MATMUL, "--target", "dg2", "--emulate", "--model-only"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("exclude each other"),
    });
    expect(await commandLine([...MATMUL, "--target", "dg2", "--emulate", "--strategy", "random"])).toMatchObject({
      code: 2,
      err: expect.stringContaining("--strategy is for a search that measures"),
    });
  });

  it("is suggested where the target cannot be measured here", async () => {
    expect(await commandLine([...MATMUL, "--target", "dg2"])).toMatchObject({
      code: 6,
      err: expect.stringContaining("--emulate runs the best under emulation"),
    });
  });
});

describe("the verdict of an emulation", () => {
  const computation = operation("matmul m=9 n=10 k=12", "f16");

  it("is wrong where one element is wrong, and names it", async () => {
    const compiler = await compilerHere();
    const [made] = kernelsOf(computation, rowsOf("xe_hpg", "cm"), 1);
    if (!made) throw new Error("no kernel");
    const reference = await referenceFor(computation, 1, { compiler, workdir: cacheFolder("runtime") });
    const sets = reference.sets.map((set, i) =>
      i === 1 ? { ...set, expected: set.expected.with(17, (set.expected[17] ?? 0) + 1) } : set,
    );
    expect(await emulatedVerdict(made.kernel, { ...reference, sets })).toMatchObject({
      status: "wrong",
      log: expect.stringMatching(/^random inputs, element 17: got /),
    });
    expect(await emulatedVerdict(made.kernel, reference)).toMatchObject({
      status: "emulated",
      log: expect.stringContaining("in 2 orders of threads; not timed"),
    });
  });
});
