/**
 * @file CUDA packages on a real GPU: tuned, emitted, built by their scripts, tested, and called from PyTorch.
 *
 *     npm run build
 *     node dist/bench/gpu/cuda-packages.js --time 5 --out cuda-packages.txt
 *
 * Each subject gives its fastest kernel; the convolution also its fastest kernel in two launches, with the sum split
 * through the workspace. The PyTorch extension is built with ninja, and once without. Prints a line a step, and the end
 * of the log of a failed one. Exits with 4 when a package is wrong, with 1 when one cannot be built or run.
 */

import { appendFileSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { openDatabase, queryTrials, shortId, type TrialRecord } from "../../db/index.ts";
import { explainRun, findProgram, runChild } from "../../runtime/child.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    /** Seconds of each search. */
    time: { type: "string", default: "5" },
    out: { type: "string" },
    /** Folder in which packages are written and kept. */
    keep: { type: "string" },
    python: { type: "string", default: "python3" },
  },
});

const CLI = fileURLToPath(new URL("../../cli/main.js", import.meta.url));
const STEP_LIMIT_MS = 400_000;
const LOG_CHARACTERS = 4000;

const PIXELS = "y[n,k,p,q] = f16(out[n,k,p,q])";
/** Name, arguments of `tune`, and the epilogue that rounds the sum as PyTorch does. */
const SUBJECTS: readonly (readonly [name: string, words: string, epilogue: string])[] = [
  ["matmul", "matmul --m 512 --n 512 --k 512", "c[m,n] = f16(out[m,n])"],
  ["conv", "conv2d --c 512 --k 512 --h 7 --w 7 --layout NHWC", PIXELS],
  ["depthwise", "depthwise-conv2d --c 64 --h 56 --w 56", PIXELS],
  ["mean", "mean --n 4 --c 64 --h 28 --w 28", "y[c] = f16(out[c])"],
];

const root = values.keep ?? mkdtempSync(join(tmpdir(), "automap-cuda-packages-"));
mkdirSync(root, { recursive: true });
const database = join(root, "packages.db");
let failed = 0;
let wrong = 0;

function tell(line: string): void {
  console.log(line);
  if (values.out !== undefined) appendFileSync(values.out, `${line}\n`);
}

/** Runs a step of a package. Returns false when it failed, after printing the end of its output. */
async function step(name: string, what: string, command: readonly string[], cwd = root): Promise<boolean> {
  const begun = performance.now();
  const run = await runChild(command, { timeLimitMs: STEP_LIMIT_MS, cwd });
  const seconds = `${((performance.now() - begun) / 1000).toFixed(1)} s`;
  const said = run.stdout.trim();
  const right = run.status === "ok";
  const shown = what === "tune" || what.startsWith("build") ? "" : `   ${said.split("\n").at(-1)}`;
  tell(`${name.padEnd(12)} ${what.padEnd(22)} ${seconds.padStart(8)}   ${right ? `ok${shown}` : explainRun(run)}`);
  if (right) return true;
  failed++;
  if (run.status === "failed" && run.exitCode === 4) wrong++;
  tell(`${said}\n${run.stderr.trim()}`.slice(-LOG_CHARACTERS));
  return false;
}

/** Runs a crashed program again under cuda-gdb, if there is one, for its C++ frames. */
async function traced(command: readonly string[], cwd: string): Promise<void> {
  const gdb = findProgram("cuda-gdb");
  if (gdb === undefined) return;
  const run = await runChild([gdb, "-batch", "-ex", "run", "-ex", "backtrace 40", "--args", ...command], {
    timeLimitMs: STEP_LIMIT_MS,
    cwd,
  });
  tell(run.stdout.trim().slice(-2 * LOG_CHARACTERS));
}

/** The trials of a subject to emit, each with the name of its package. */
function chosenOf(name: string, words: string): [string, TrialRecord][] {
  const db = openDatabase(database, { readonly: true });
  // The fastest first.
  const sorted = queryTrials(db, { operator: words.split(" ")[0] ?? "", status: "ok" });
  db.close();
  const [best] = sorted;
  const split = sorted.find(({ candidate: c }) => c.kind === "grid" && c.schedule.split?.through === "memory");
  return [
    ...(best ? [[name, best] as [string, TrialRecord]] : []),
    ...(name === "conv" && split && split !== best ? [[`${name}_split`, split] as [string, TrialRecord]] : []),
  ];
}

/** Hides ninja: the check for it answers that there is none. */
const WITHOUT_NINJA =
  "import torch.utils.cpp_extension as c; c.is_ninja_available = lambda: False; import torch_ext; print(torch_ext.operator)";

async function main(): Promise<void> {
  // 1. Searches run one at a time, since each needs the whole GPU.
  const packages: string[] = [];
  for (const [name, words, epilogue] of SUBJECTS) {
    const tune = [
      "tune",
      ...words.split(" "),
      "--dtype",
      "f16",
      "--epilogue",
      epilogue,
      "--target",
      "cuda",
      "--time",
      values.time,
      "--db",
      database,
    ];
    if (!(await step(name, "tune", [process.execPath, CLI, ...tune]))) continue;
    for (const [chosen, { id }] of chosenOf(name, words)) {
      const emit = ["emit", shortId(id), "--to", join(root, chosen), "--name", chosen, "--db", database];
      if (await step(chosen, "emit", [process.execPath, CLI, ...emit])) packages.push(chosen);
    }
  }

  // 2. Builds run side by side.
  const importing = (name: string): Promise<boolean> =>
    step(name, "build for PyTorch", [values.python, "-c", "import torch_ext"], join(root, name));
  const built = await Promise.all(
    packages.map(async (name) => ({
      name,
      library: await step(name, "build.sh", ["sh", join(root, name, "build.sh")]),
      torch: await importing(name),
    })),
  );

  // 3. Tests of the packages, and calls from PyTorch.
  for (const { name, library, torch } of built) {
    if (library) await step(name, "its own test", [join(root, name, "build", `${name}_test`)]);
    const example = [values.python, "torch_example.py"];
    if (torch && !(await step(name, "torch_example.py", example, join(root, name))))
      await traced(example, join(root, name));
  }

  // 4. The other ways to build, for one package.
  const [first] = built;
  if (first?.torch) {
    const at = join(root, first.name);
    rmSync(join(at, "build", "torch"), { recursive: true, force: true });
    if (await step(first.name, "build without ninja", [values.python, "-c", WITHOUT_NINJA], at))
      rmSync(join(at, "build", "torch"), { recursive: true, force: true });
  }
  if (first && findProgram("cmake") !== undefined) {
    const at = join(root, first.name);
    const made = join(at, "made");
    if (await step(first.name, "build: cmake", ["cmake", "-S", at, "-B", made]))
      if (await step(first.name, "build: cmake --build", ["cmake", "--build", made]))
        await step(first.name, "ctest", ["ctest", "--test-dir", made, "--output-on-failure"]);
  }
  // One command from tuning to a checked package.
  const [record] = packages.includes("matmul") ? chosenOf("matmul", "matmul") : [];
  if (record) {
    const prove = ["emit", shortId(record[1].id), "--to", join(root, "proved"), "--prove", "--db", database];
    await step("matmul", "emit --prove", [process.execPath, CLI, ...prove]);
  }
}

await main();
tell(`${failed} steps failed, ${wrong} of them wrong; packages in ${root}`);
if (values.keep === undefined && failed === 0) rmSync(root, { recursive: true, force: true });
process.exitCode = wrong > 0 ? 4 : failed > 0 ? 1 : 0;
