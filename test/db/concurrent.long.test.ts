/**
 * @file Two searches at once, each in a process of its own, compiling and measuring for real: they share the cores, and say what they wait
 * for. How good the numbers are that they take stands in bench/results/concurrent-xeon-amx.md.
 */

import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, it } from "vitest";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { shareCores } from "../../runtime/cores.ts";
import { coresHere } from "../../runtime/processor.ts";
import { withCalibration } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { compileProgram } from "../support/program.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

/** A search as the command makes it, on some cores, that writes down when it is on which: `measures 1 1712.5 1930.1`. */
const SEARCH = `
  import { appendFileSync } from "node:fs";
  import { parseDataTypes } from "./operators/data-types.js";
  import { instantiate, operatorNamed } from "./operators/index.js";
  import { shareCores } from "./runtime/cores.js";
  import { createRunner } from "./runtime/measure.js";
  import { tuneComputation } from "./session/tune/tune.js";
  import { random } from "./tuner/random.js";

  const { cores, realm, database, log } = JSON.parse(process.argv[2]);
  const onWait = (text) => console.log(text);
  const shared = shareCores({ cores, realm, onWait });
  const noted = (what, work) => async (cpus) => {
    const begun = Date.now();
    try {
      return await work(cpus);
    } finally {
      for (const cpu of cpus) appendFileSync(log, [what, process.pid, cpu, begun, Date.now()].join(" ") + "\\n");
    }
  };
  const made = await createRunner({
    budgetSeconds: 0.05,
    cores: {
      processors: shared.processors,
      waited: () => shared.waited(),
      measuring: (threads, work) => shared.measuring(threads, noted("measures", work)),
      working: (work, most) => shared.working(noted("works", work), most),
    },
  });
  if (made.status !== "ready") throw new Error(made.what);
  const computation = instantiate(operatorNamed("matmul"), { parameters: { m: 16, n: 16, k: 16 }, types: parseDataTypes("f32") });
  const outcome = await tuneComputation({ computation }, { database, runner: made.runner, strategy: random, trials: 3, seconds: 120, earlyStop: false });
  console.log("ended", outcome.status);
`;

interface Search {
  readonly database: string;
  readonly said: () => string;
  readonly ended: Promise<unknown>;
}

it("two searches at once take turns on every core, say whom they wait for, and record their core", async () => {
  compileProgram(folder, ["session/tune/tune.ts", "tuner/random.ts"]);
  writeFileSync(join(folder, "search.js"), SEARCH);
  const cores = coresHere().slice(0, 2);
  const realm = `test-concurrent-${process.pid}/`;
  const log = join(folder, "log");
  const compiler = await compilerHere();
  const start = (name: string): Search => {
    const database = withCalibration(join(folder, `${name}.db`), compiler);
    const given = JSON.stringify({ cores, realm, database, log });
    const child = spawn(process.execPath, [join(folder, "search.js"), given]);
    let said = "";
    for (const pipe of [child.stdout, child.stderr])
      pipe.setEncoding("utf8").on("data", (text: string) => {
        said += text;
      });
    return { database, said: () => said, ended: once(child, "close") };
  };

  // 1. A third has all cores when they begin, until both have said so.
  const searches = await shareCores({ cores, realm }).measuring(cores.length, async () => {
    const both = ["one", "other"].map(start);
    const waiting = new RegExp(`^waiting for a free core: process ${process.pid} measures on core \\d+`, "m");
    for (const { said } of both) await expect.poll(said).toMatch(waiting);
    return both;
  });
  await Promise.all(searches.map(({ ended }) => ended));
  for (const { said } of searches) expect(said()).toMatch(/^ended trials-spent$/m);

  // 2. Nobody was on a core that another measured on.
  const spells = readFileSync(log, "utf8")
    .trim()
    .split("\n")
    .map((line) => {
      const [what, process = 0, cpu = 0, begun = 0, ended = 0] = line
        .split(" ")
        .map((word, i) => (i === 0 ? word : Number(word)));
      return { what, process, core: cores.findIndex(({ cpus }) => cpus.includes(Number(cpu))), begun, ended };
    });
  const measured = spells.filter(({ what }) => what === "measures");
  expect(new Set(measured.map(({ process }) => process)).size).toBe(2);
  const clashes = measured.flatMap((one) =>
    spells.filter(
      (other) => other !== one && other.core === one.core && other.begun < one.ended && one.begun < other.ended,
    ),
  );
  expect(clashes).toEqual([]);

  // 3. Every trial, one that failed too, says where it was measured and what went on besides.
  for (const { database } of searches) {
    const db = openDatabase(database, { readonly: true });
    const trials = queryTrials(db).filter(({ measurement }) => measurement.status !== "compile-failed");
    db.close();
    expect(trials.length).toBeGreaterThan(3);
    for (const { conditions } of trials) {
      expect(cores.flatMap(({ cpus }) => cpus)).toContain(conditions.affinity?.[0]);
      expect(conditions.affinity).toHaveLength(1);
      expect(conditions.load).toBeGreaterThanOrEqual(0);
    }
  }
});
