/**
 * @file One entry more in a list is all that a machine, an instruction, a kind of candidates, an operator of ONNX, a command and a language are.
 * Each is made up here and used as a user would. Decisions are in decisions.test.ts, columns in db-column.test.ts.
 */

import { afterAll, describe, expect, it, vi } from "vitest";
import type { Candidate } from "../../abstraction/candidate.ts";
import type { Target } from "../../abstraction/machine.ts";
import type { LanguagePrinter } from "../../codegen/walk.ts";

/** Files whose lists are longer here. Test files share what they import, so all is imported anew here, and for the next file. */
const FILES = {
  machines: "../../targets/arm-cpus.ts",
  instructions: "../../intrinsics/avx512-dot.ts",
  kinds: "../../mapper/schedule/kinds.ts",
  sessionKinds: "../../session/kinds/kinds.ts",
  operators: "../../network/operators/choice.ts",
  commands: "../../cli/program.ts",
} as const;

vi.resetModules();
vi.doMock(FILES.machines, async (original) => {
  const actual = await original<typeof import("../../targets/arm-cpus.ts")>();
  const [first] = actual.ARM_TARGETS;
  if (first) (actual.ARM_TARGETS as Target[]).push({ ...first, name: "made-up-core", summary: "a core of this test" });
  return actual;
});
vi.doMock(FILES.instructions, async (original) => {
  const actual = await original<typeof import("../../intrinsics/avx512-dot.ts")>();
  const [first] = actual.AVX512_DOT;
  return first ? { ...actual, AVX512_DOT: [...actual.AVX512_DOT, { ...first, name: "avx512.made.up" }] } : actual;
});
vi.doMock(FILES.kinds, async (original) => {
  const actual = await original<typeof import("../../mapper/schedule/kinds.ts")>();
  const place = (): string => "as this test says";
  Object.assign(actual.KINDS, { "made-up": { ...actual.KINDS.loops, summary: "loops of this test", place } });
  return actual;
});
vi.doMock(FILES.sessionKinds, async (original) => {
  const actual = await original<typeof import("../../session/kinds/kinds.ts")>();
  const { loops } = actual.SESSION_KINDS;
  const { LOOPS } = await import("../../intrinsics/loops.ts");
  const asLoops = (c: object) => ({ ...c, kind: "loops" }) as Candidate & { readonly kind: "loops" };
  const kind: typeof loops = {
    ...loops,
    kind: "made-up" as "loops",
    family: "mapping",
    *spaceOf(search, before) {
      const found = yield* loops.spaceOf({ ...search, loops: LOOPS }, before);
      if (!("space" in found)) return found;
      const all = [...found.space.all()].map((c) => ({ ...c, kind: "made-up" as "loops" }));
      const space = { ...found.space, all: () => all, random: () => all[0] ?? fail() };
      const kernelOf: typeof found.kernelOf = (c) => found.kernelOf(asLoops(c));
      return { ...found, kind: "made-up" as "loops", space, kernelOf };
    },
    kernelOf: (computation, c, ...on) => loops.kernelOf(computation, asLoops(c), ...on),
    predict: (computation, c, on) => loops.predict(computation, asLoops(c), on),
  };
  Object.assign(actual.SESSION_KINDS, { "made-up": kind });
  return actual;
});
vi.doMock(FILES.operators, async (original) => {
  const actual = await original<typeof import("../../network/operators/choice.ts")>();
  const next: (typeof actual.CHOICES)[string] = (node) => {
    const x = node.input(0);
    return node.equation("y[i] = x[i] + 1", { x });
  };
  return { ...actual, CHOICES: { ...actual.CHOICES, MadeUp: next } };
});
vi.doMock(FILES.commands, async (original) => {
  const actual = await original<typeof import("../../cli/program.ts")>();
  const load: (typeof actual.COMMANDS)[number]["load"] = () =>
    Promise.resolve({ register: (command) => void command.action(() => void process.stdout.write("as made up\n")) });
  (actual.COMMANDS as (typeof actual.COMMANDS)[number][]).push({ name: "made-up", summary: "of this test", load });
  return actual;
});
afterAll(() => {
  for (const file of Object.values(FILES)) vi.doUnmock(file);
  vi.resetModules();
});

const { lowerLoops } = await import("../../mapper/lower/loops.ts");
const { printStatements } = await import("../../codegen/walk.ts");
const { axisName, code, lines, stringLiteral } = await import("../../abstraction/source-text.ts");
const { spell } = await import("../../abstraction/source-text.ts");
const { printEquation } = await import("../../abstraction/expression.ts");
const { candidateRows } = await import("../../report/describe-candidate.ts");
const { chooseSpace, usableIntrinsics } = await import("../../session/kinds/choose.ts");
const { kernelFor } = await import("../../session/kinds/kernel.ts");
const { finished } = await import("../../abstraction/steps.ts");
const { targetOf } = await import("../../targets/index.ts");
const { exportLines, importLines, openDatabase, queryTrials, recordTrial } = await import("../../db/index.ts");
const { commandLine } = await import("../support/command-line.ts");
const { measured, newTrial, trial, workloadNamed, workshop } = await import("../support/database.ts");
const { onnx, made } = await import("../support/networks.ts");

function fail(): never {
  throw new Error("nothing was found");
}

describe("one entry more is", () => {
  it("a machine, which kernels are predicted and written for", async () => {
    expect((await commandLine("tune --help")).out).toContain("made-up-core");
    const ran = await commandLine("tune matmul --m 8 --n 16 --k 16 --dtype u8s8 --target made-up-core --model-only");
    expect(ran).toMatchObject({ code: 0, out: expect.stringContaining("with the rates of made-up-core") });
  });

  it("an instruction, which is listed, mapped and has a kernel", async () => {
    expect((await commandLine("intrinsic list vnni")).out).toContain("avx512.made.up");
    const words = "map matmul --m 16 --n 64 --k 64 --dtype u8s8 --intrinsic avx512.made.up";
    expect(await commandLine(words)).toMatchObject({ code: 0, out: expect.stringContaining("n <- n   k <- k") });
  });

  it("a kind of candidates, which is searched, printed, explained, stored and read back", () => {
    const workload = workloadNamed("mean", { n: 4, c: 8, h: 4, w: 4 }, "f32");
    const levels = [
      { name: "dram", units: 1 },
      { name: "registers", units: 1 },
    ];
    const machine = targetOf({ name: "a plain CPU", isa: [], levels, source: "made up" });
    const options = { machine, threads: 1, seed: 1 } as const;
    const chosen = finished(chooseSpace(workload.computation, usableIntrinsics(machine), options));
    if (!("space" in chosen)) throw new Error(chosen.refused[0]?.because);
    const own = [...chosen.space.all()].find(({ kind }) => (kind as string) === "made-up") ?? fail();
    expect(chosen.space.predict(own)?.seconds).toBeGreaterThan(0);
    expect(kernelFor(workload.computation, own).source).toContain("plain loops");
    expect(candidateRows(own).flat()).toContain("as this test says");

    const shop = workshop();
    const db = openDatabase(shop.path("a.db"));
    const other = openDatabase(shop.path("b.db"));
    const intrinsic = chosen.space.intrinsicOf(own);
    recordTrial(db, newTrial(5, { workload, intrinsic, trial: trial(measured(5), 1, own) }));
    expect(importLines(other, exportLines(db)).rejected).toEqual([]);
    expect(queryTrials(other).map((t) => t.candidate)).toEqual([own]);
    db.close();
    other.close();
    shop.remove();
  });

  it("an operator of ONNX, which is listed and runs", async () => {
    expect((await commandLine("network operators")).out).toContain("MadeUp");
    expect(await made(onnx("MadeUp(x[3])"), [1, 2, 3])).toEqual([2, 3, 4]);
  });

  it("a command, which is listed and runs", async () => {
    expect((await commandLine("--help")).out).toMatch(/made-up +of this test/);
    expect(await commandLine("made-up")).toMatchObject({ code: 0, out: "as made up\n" });
  });
});

it("a language is how its leaves read; what it has no words for is refused", () => {
  const { computation } = workloadNamed("matmul", { m: 4, n: 4, k: 4 }, "f32");
  const language: LanguagePrinter = {
    openLoop: ({ axis, extent }) => code`repeat ${extent} times ${axisName(axis)} {`,
    scalar: ({ equation }) => [code`say ${stringLiteral(printEquation(equation))}`],
  };
  const { body } = lowerLoops(computation).nest;
  expect(spell(lines(printStatements(body, language, {})), "c++")).toMatchInlineSnapshot(`
    "repeat 4 times rest {
      repeat 4 times n {
        say "sums[n] = 0"
      }
      repeat 4 times k {
        repeat 4 times n {
          say "sums[n] = sums[n] + a[rest,k] * b[k,n]"
        }
      }
      repeat 4 times n {
        say "out[rest,n] = sums[n]"
      }
    }"
  `);
  const { openLoop } = language;
  expect(() => printStatements(body, { openLoop }, {})).toThrow("no words of this language for ");
});
