/** @file A batch: written here, measured by a shell script in a world without Node, and imported as claims. */

import { execFileSync, spawn, spawnSync } from "node:child_process";
import {
  appendFileSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openDatabase, queryTrials, type TrialRecord } from "../../db/index.ts";
import { MANIFEST, RESULTS } from "../../fleet/batch/manifest.ts";
import { sha256Of } from "../../fleet/jobs.ts";
import { findProgram } from "../../runtime/child.ts";
import { commandLine, type Ran } from "../support/command-line.ts";
import { fakeCuda } from "../support/fake-cuda.ts";
import { scratchFolder } from "../support/scratch.ts";

const scratch = scratchFolder("automap batch ");
const LAYERS = join(scratch, "layers.yaml");
writeFileSync(
  LAYERS,
  `
- { operator: matmul, name: small, intrinsic: portable, parameters: { m: 8, n: 8, k: 8 }, dtype: s16 }
- { operator: conv2d, intrinsic: portable, parameters: { c: 4, k: 4, h: 5, w: 5 } }
`,
);

/** A folder with the programs that run.sh needs, and no other. */
const BIN = join(scratch, "bin");
const TOOLS = "awk cat cut date env grep head mkfifo mkdir mv nproc paste rm sed sha256sum sleep sort tail tr uname wc";
const withTools = (folder: string, names: string): string => {
  mkdirSync(folder);
  for (const name of names.split(" ")) symlinkSync(findProgram(name) ?? `no ${name} here`, join(folder, name));
  return folder;
};
withTools(BIN, `${TOOLS} g++ as ld objdump`);
const SHELL = findProgram("dash") ?? "/bin/sh";

function measure(folder: string, path = BIN): Ran {
  const { status, stdout, stderr } = spawnSync(SHELL, [join(folder, "run.sh")], {
    env: { PATH: path },
    encoding: "utf8",
  });
  return { code: status ?? -1, out: stdout, err: stderr };
}

const batch = join(scratch, "a batch");
const database = (name: string): string => join(scratch, `${name}.db`);
const importing = (from: string, name: string, ...more: readonly string[]): Promise<Ran> =>
  commandLine(["batch", "import", from, "--db", database(name), ...more]);
const linesOfResults = (): string[] => readFileSync(join(batch, RESULTS), "utf8").trimEnd().split("\n");

function recordsIn(name: string): TrialRecord[] {
  if (!existsSync(database(name))) return [];
  const db = openDatabase(database(name), { readonly: true });
  const found = queryTrials(db);
  db.close();
  return found;
}

const resultSchema = z.looseObject({ kernel: z.string(), at: z.int(), answers: z.array(z.string()) });

beforeAll(async () => {
  const { code, out } = await commandLine([
    "batch",
    "export",
    "--layers",
    LAYERS,
    "--kernels",
    "3",
    "--out",
    batch,
    "--json",
  ]);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ folder: batch, problems: 2, kernels: 6 });
});

describe("a batch on a CPU", () => {
  it("is measured without Node, goes on where it was stopped, and is imported once", async () => {
    // 1. It is stopped after its first result.
    const first = spawn(SHELL, [join(batch, "run.sh")], { env: { PATH: BIN } });
    const ended = new Promise((resolve) => first.on("exit", resolve));
    let said = "";
    first.stderr.on("data", (text: Buffer) => {
      said += text.toString();
      if (said.includes("kernel 1 of 6")) first.kill("SIGTERM");
    });
    expect(await ended).toBe(143);
    expect(said).toContain("interrupted: sh run.sh goes on from here");
    const before = linesOfResults();
    expect(before.length).toBeLessThan(7);

    // 2. It goes on. A result that was cut off is measured again.
    appendFileSync(join(batch, RESULTS), '{"kind":"result","problem":');
    expect(measure(batch)).toMatchObject({
      code: 0,
      err: expect.stringContaining("all 6 kernels are in results.jsonl"),
    });
    const lines = linesOfResults();
    expect(lines).toHaveLength(7);
    expect(lines.slice(0, before.length)).toEqual(before);

    // 3. The records hold what was measured.
    expect(await importing(batch, "once")).toMatchObject({
      code: 0,
      out: `${database("once")}: 1 environment, 2 workloads, 6 trials; 0 known already\n`,
    });
    const records = recordsIn("once");
    const measured = lines.slice(1).map((line) => resultSchema.parse(JSON.parse(line)));
    const samples = measured.map(({ answers }) =>
      answers.flatMap((text) => /^samples 0 (.*)$/.exec(text)?.[1] ?? []).join(),
    );
    const kept = records.map(({ measurement }) => (measurement.status === "ok" ? measurement.samples : []));
    expect(kept.map((all) => all.join(" ")).sort()).toEqual(
      samples.map((text) => text.split(" ").map(Number).join(" ")).sort(),
    );
    for (const record of records)
      expect(record).toMatchObject({
        provenance: "imported",
        environment: { compiler: { path: join(BIN, "g++") }, node: "none" },
        conditions: { threads: 1, cache: "warm", worker: expect.any(String) },
      });
    expect(records.map(({ at }) => at).sort()).toEqual(measured.map(({ at }) => at).sort());

    // 4. Once; and it is found where it is asked for.
    expect(await importing(join(batch, RESULTS), "once")).toMatchObject({
      out: expect.stringContaining("nothing new"),
    });
    expect(recordsIn("once")).toHaveLength(6);
    const { out } = await commandLine([
      "db",
      "best",
      "--trust",
      "any",
      "--name",
      "small",
      "--json",
      "--db",
      database("once"),
    ]);
    const smalls = records.filter(({ workload }) => workload.name === "small");
    const [fastest] = smalls.sort((a, b) => timeOf(a) - timeOf(b));
    expect(JSON.parse(out)).toMatchObject({ trials: [{ id: fastest?.id }] });
  });

  it("says what is missing or not as it was, and measures nothing", () => {
    const poor = withTools(join(scratch, "poor"), TOOLS);
    expect(measure(batch, poor)).toMatchObject({
      code: 1,
      err: expect.stringMatching(
        /^run\.sh: no C\+\+ compiler: g\+\+ is not on the PATH\n {2}install g\+\+ \(apt-get install g\+\+\)/,
      ),
    });
    const words = spawnSync(SHELL, [join(batch, "run.sh"), "--help"], { env: { PATH: BIN }, encoding: "utf8" });
    expect(words).toMatchObject({
      status: 1,
      stderr: expect.stringMatching(/^run\.sh: run\.sh takes no words, got --help\n/),
    });
    const [other = "", altered = ""] = ["other", "altered"].map((name) => {
      const folder = join(scratch, name);
      cpSync(batch, folder, { recursive: true });
      return folder;
    });
    const results = readFileSync(join(other, RESULTS), "utf8");
    writeFileSync(join(other, RESULTS), results.replace(/"name":"[^"]*"/, '"name":"elsewhere"'));
    expect(measure(other)).toMatchObject({
      code: 1,
      err: expect.stringContaining("of another machine, compiler or batch"),
    });
    const [kernel = ""] = readdirSync(join(altered, "kernels"));
    appendFileSync(join(altered, "kernels", kernel), "\n");
    expect(measure(altered)).toMatchObject({
      code: 1,
      err: `run.sh: kernels/${kernel} is not as it was exported\n  copy the folder again\n`,
    });
  });

  it("stores nothing where a result, its batch or a source was altered, and says why in a sentence", async () => {
    const [machine = "", first = "", ...others] = linesOfResults();
    const with1 = (line: string): string[] => [machine, line, ...others];
    const samples = (text: string): string[] => with1(first.replace(/samples 0 [^"]*/, `samples 0 ${text}`));
    const hostile: Readonly<Record<string, readonly string[]>> = {
      "no number": samples("NaN 1e-5"),
      "a time no machine has": samples("1e-10 1e-10"),
      "a time of years": samples("1e9 1e9"),
      "no samples": samples(""),
      "a kernel that is not of the batch": with1(
        first.replace(/"kernel":"[0-9a-f]{12}/, `"kernel":"${"0".repeat(12)}`),
      ),
      "another problem": with1(first.replace('"problem":0', '"problem":1')),
      "no problem": with1(first.replace('"problem":0', '"problem":-1')),
      "two results of a kernel": [machine, first, first],
      "more results than kernels": [machine, first, ...others, first],
      "no verdict": with1(first.replace(/samples 0/, "samples 1")),
      "a fault of the machine": with1(first.replace(/samples 0 [^"]*/, "fault 0 environment no disk")),
      "a field of its own": with1(first.replace("{", '{"status":"ok",')),
      "deep data": with1(`${"[".repeat(1e5)}${"]".repeat(1e5)}`),
      "a line without end": with1(`{"kind":"result","answers":["${"a".repeat(5e6)}"]}`),
      "half a line": with1(first.slice(0, 100)),
      "no results": [machine],
      "no machine": [first, ...others],
      "another batch": [machine.replace(/"batch":"[0-9a-f]{12}/, `"batch":"${"0".repeat(12)}`), first],
      "a machine of no features": [machine.replace(/"name":"[^"]*"/, '"name":"A b"'), first],
    };
    const told: string[] = [];
    for (const [what, lines] of Object.entries(hostile)) {
      const file = join(scratch, "hostile.jsonl");
      writeFileSync(file, `${lines.join("\n")}\n`);
      const { code, err } = await importing(file, "hostile", "--batch", batch);
      expect([what, code]).not.toEqual([what, 0]);
      expect(recordsIn("hostile")).toEqual([]);
      // A time that no machine has is found by the database, which is there then.
      if (what === "no number") expect(existsSync(database("hostile"))).toBe(false);
      const [sentence = ""] = err.split("\n", 1);
      told.push(`${what}: ${sentence.replaceAll(scratch, "@").replaceAll(/\b[0-9a-f]{12}\b/g, "HASH")}`);
    }
    expect(told).toMatchInlineSnapshot(`
      [
        "no number: automap: @/hostile.jsonl:2: its samples are no times of a kernel: 1 to 10000 numbers of seconds",
        "a time no machine has: automap: @/hostile.jsonl:2: its median of 1.00e-10 s is shorter than any call: 5 cycles at 10 GHz are 5.00e-10 s",
        "a time of years: automap: @/hostile.jsonl:2: its samples are no times of a kernel: 1 to 10000 numbers of seconds",
        "no samples: automap: @/hostile.jsonl:2: its samples are no times of a kernel: 1 to 10000 numbers of seconds",
        "a kernel that is not of the batch: automap: @/hostile.jsonl:2: its kernel HASH is none of problem 0 of this batch",
        "another problem: automap: @/hostile.jsonl:2: its kernel HASH is none of problem 1 of this batch",
        "no problem: automap: @/hostile.jsonl:2: it is no result: problem: Too small: expected number to be >=0",
        "two results of a kernel: automap: @/hostile.jsonl:3: it is the second result of its kernel",
        "more results than kernels: automap: @/hostile.jsonl is refused: it has more results than its batch has kernels",
        "no verdict: automap: @/hostile.jsonl:2: its answers hold no verdict",
        "a fault of the machine: automap: @/hostile.jsonl:2: its answers are none of a kernel: no disk",
        "a field of its own: automap: @/hostile.jsonl:2: it is no result: the line: Unrecognized key: "status"",
        "deep data: automap: @/hostile.jsonl:2: it is no result: the line: Invalid input: expected object, received array",
        "a line without end: automap: @/hostile.jsonl:2: it is not JSON, or too long",
        "half a line: automap: @/hostile.jsonl:2: it is not JSON, or too long",
        "no results: automap: @/hostile.jsonl holds no results yet",
        "no machine: automap: @/hostile.jsonl is refused: its first line tells of no machine",
        "another batch: automap: @/hostile.jsonl is of another batch",
        "a machine of no features: automap: @/hostile.jsonl is refused: its first line tells of no machine",
      ]
    `);
    const empty = join(scratch, "no results");
    cpSync(batch, empty, { recursive: true, filter: (path) => !/build$|results\.jsonl$/.test(path) });
    expect(await importing(empty, "hostile")).toMatchObject({
      code: 3,
      err: `automap: ${empty} has no results yet\n  run sh run.sh in it, on the machine that measures\n`,
    });
    for (const [from, where] of [
      [join(batch, "kernels"), join(batch, "kernels")],
      [join(scratch, "hostile.jsonl"), scratch],
    ] as const)
      expect(await importing(from, "hostile")).toMatchObject({
        code: 3,
        err: expect.stringContaining(`automap: there is no batch in ${where}\n`),
      });
    const altered = join(scratch, "altered");
    expect(await importing(altered, "hostile")).toMatchObject({
      code: 2,
      err: expect.stringMatching(/manifest\.json is refused: kernels\/[0-9a-f]{64}\.cpp is not as it was exported/),
    });
    const manifest = readFileSync(join(batch, MANIFEST), "utf8");
    cpSync(batch, altered, { recursive: true });
    writeFileSync(join(altered, MANIFEST), manifest.replace(/"portable\.[\w.]+"/g, '"avx512.fma.f32.broadcast"'));
    expect(await importing(altered, "hostile")).toMatchObject({
      code: 2,
      err: expect.stringContaining("is of another batch"),
    });
    writeFileSync(join(altered, MANIFEST), manifest.replace(/"kernels\/[0-9a-f]{12}/, '"../kernels/x'));
    expect(await importing(altered, "hostile")).toMatchObject({
      code: 2,
      err: expect.stringContaining("manifest.json is refused: files"),
    });
    expect(existsSync(database("hostile")) && recordsIn("hostile")).toEqual([]);
  });
});

/** A batch like this whose kernels begin with other statements. */
function withKernels(name: string, statements: readonly string[]): string {
  const folder = join(scratch, name);
  cpSync(batch, folder, { recursive: true, filter: (path) => !/build$|results\.jsonl$/.test(path) });
  const at = (file: string): string => join(folder, file);
  const edit = (file: string, change: (text: string) => string): void =>
    writeFileSync(at(file), change(readFileSync(at(file), "utf8")));
  for (const [i, statement] of statements.entries()) {
    const [, hash = ""] = readFileSync(at("jobs"), "utf8").split("\n")[i]?.split(" ") ?? [];
    edit(`kernels/${hash}.cpp`, (text) => text.replace(/^extern "C" void automap_run\(.*\{$/m, `$&\n${statement}`));
    const made = sha256Of(readFileSync(at(`kernels/${hash}.cpp`)));
    renameSync(at(`kernels/${hash}.cpp`), at(`kernels/${made}.cpp`));
    for (const file of ["jobs", "builds", MANIFEST]) edit(file, (text) => text.replaceAll(hash, made));
  }
  edit("settings.sh", (text) => text.replace(/silence="\d+"/, 'silence="1"'));
  const { files, ...manifest } = JSON.parse(readFileSync(at(MANIFEST), "utf8"));
  const names = Object.keys(files);
  const sums = Object.fromEntries(names.map((file) => [file, sha256Of(readFileSync(at(file)))]));
  writeFileSync(at(MANIFEST), JSON.stringify({ ...manifest, files: sums }));
  const all = [...names, MANIFEST].map((file) => `${sha256Of(readFileSync(at(file)))}  ${file}\n`);
  writeFileSync(at("SHA256SUMS"), all.join(""));
  return folder;
}

it("takes for a result that a kernel hangs, dies, answers wrongly or does not compile", async () => {
  const folder = withKernels("wrong ones", [
    "for (volatile int hangs = 1; hangs;) {}",
    "*(volatile int*)8 = 1;",
    "return;",
    "no_statement",
  ]);
  const { code, err } = measure(folder);
  const told = err.match(/(?<=^kernel \d of 6: \w+ )[^:\n]*/gm)?.map((text) => text.replace(/^\S+ us$/, "N us"));
  expect({ code, told }).toEqual({
    code: 0,
    told: [
      "fault timed-out no sign of life for 1 s",
      "fault crashed wrote address 0x8",
      "wrong call 1 on random inputs",
      "does not compile",
      "N us",
      "N us",
    ],
  });
  expect(await importing(folder, "wrong ones")).toMatchObject({ code: 0 });
  const statuses = recordsIn("wrong ones").map(({ measurement }) => measurement.status);
  expect(statuses.sort()).toEqual(["compile-failed", "crashed", "ok", "ok", "timed-out", "wrong"]);
});

describe("a batch for another CPU", () => {
  const exported = async (name: string, ...words: readonly string[]): Promise<string> => {
    const folder = join(scratch, name);
    const ran = await commandLine(["batch", "export", "matmul", ...words, "--kernels", "2", "--out", folder]);
    expect(ran, ran.err).toMatchObject({ code: 0 });
    return readFileSync(join(folder, "builds"), "utf8");
  };

  it("has the instructions that its /proc/cpuinfo names", async () => {
    const file = join(scratch, "cpuinfo");
    writeFileSync(file, "processor : 0\nmodel name : Some CPU\nflags : sse2 avx2 fma\nprocessor : 1\n");
    const builds = await exported("avx2", "--cpuinfo", file);
    expect(builds.match(/-mavx\S*|-mfma/g)).toEqual(["-mavx2", "-mfma", "-mavx2", "-mfma"]);
    expect(readFileSync(join(scratch, "avx2", "settings.sh"), "utf8")).toContain('features="avx2 fma"');
  });

  it("has those of an Arm CPU by its name", async () => {
    expect(await exported("arm", "--target", "neoverse-n1")).toMatch(/ -march=armv8/);
  });
});

describe("a batch on a GPU", () => {
  it("is built by nvcc, measured, and named after the GPU", async () => {
    const folder = join(scratch, "gpu batch");
    const machine = fakeCuda(join(scratch, "fake"));
    const made = await commandLine([
      ...["batch", "export", "matmul", "--m", "16", "--n", "16", "--k", "16", "--dtype", "f16"],
      ...["--target", "h100", "--kernels", "2", "--out", folder],
    ]);
    expect(made).toMatchObject({ code: 0 });
    const text = await machine.here(async () =>
      execFileSync(SHELL, [join(folder, "run.sh")], { encoding: "utf8", stdio: ["ignore", "pipe", "pipe"] }),
    );
    expect(text).toBe("");
    expect(await importing(folder, "gpu")).toMatchObject({ code: 0 });
    expect(recordsIn("gpu")).toMatchObject(
      Array(2).fill({
        measurement: { status: "ok" },
        environment: { target: "h100", cpu: expect.stringContaining("H100"), driver: "580.159.03 (CUDA 13.0)" },
      }),
    );
  });
});

const timeOf = ({ measurement }: TrialRecord): number =>
  measurement.status === "ok" ? measurement.median : Number.POSITIVE_INFINITY;
