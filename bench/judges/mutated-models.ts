/**
 * @file Reads corrupted ONNX models: each must give the right answer or a refusal, in bounded time and memory.
 *
 *     npm run build
 *     node dist/bench/judges/mutated-models.js                                          5,000 models on one core
 *     node dist/bench/judges/mutated-models.js --out bench/results/mutated-models       also writes the page
 *     node dist/bench/judges/mutated-models.js --from 812 --count 1                     repeats one model by its number
 *
 * A model (test/support/drawn/models.ts) is mutated in one of 15 ways (model-mutations.ts), read, fused and brought to half
 * precision; small ones are interpreted as read and as fused (judged-model.ts). Its process is ended after ten minutes.
 * More than a minute of processor time or --gigabytes, a crash, a stack trace, a wrong number or an ended process is a
 * failure: exit code 4. Every --command'th model also goes to `automap network show`: if refused, it must exit with 2.
 */

import { type ChildProcess, fork, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pickWeighted, seededRandom } from "../../abstraction/random.ts";
import { type JudgedModel, judgedModel } from "../../test/support/drawn/judged-model.ts";
import { MUTATIONS, mutatedModel } from "../../test/support/drawn/model-mutations.ts";
import { baseModels } from "../../test/support/drawn/models.ts";
import { cpuName, table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    count: { type: "string", default: "5000" },
    seed: { type: "string", default: "1" },
    /** Number of the first model. */
    from: { type: "string", default: "0" },
    /** Limit of a model's memory. Its constants alone may take 4 GiB (network/onnx/read.ts). */
    gigabytes: { type: "string", default: "6" },
    /** One model in this many also goes to the command. */
    command: { type: "string", default: "50" },
    out: { type: "string" },
  },
});

/** Wall-clock limit, generous because other programs share the machine. */
const LIMIT_MS = 600_000;
/** Limit of processor time. */
const MOST_SECONDS = 60;

/** A process's report on a model. */
interface Report {
  readonly place: number;
  readonly base: string;
  readonly kind: string;
  readonly judged: JudgedModel | { readonly status: "failed"; readonly says: string };
  /** Of processor time. */
  readonly seconds: number;
  /** Peak memory of the process over all models so far. */
  readonly bytes: number;
}

/** Judges the models whose numbers it receives. */
function serve(folder: string): void {
  const bases = baseModels(folder);
  process.on("message", async (place: number) => {
    const random = seededRandom(Number(values.seed) * 1_000_003 + place);
    const base = pickWeighted(random, bases, ({ share }) => share);
    const { kind, bytes } = mutatedModel(random, base.bytes());
    writeFileSync(join(folder, "model.onnx"), bytes);
    const begun = process.cpuUsage();
    const judged = await judgedModel(bytes, folder).catch((error: unknown) => ({
      status: "failed" as const,
      says: error instanceof Error ? (error.stack ?? error.message) : String(error),
    }));
    const { user, system } = process.cpuUsage(begun);
    const seconds = (user + system) / 1e6;
    process.send?.({ place, base: base.name, kind, judged, seconds, bytes: process.resourceUsage().maxRSS * 1024 });
  });
}

/** Processes one after another; each serves until a model ends it. */
class Judges {
  private readonly folder: string;
  private child: ChildProcess | undefined;

  constructor(folder: string) {
    this.folder = folder;
  }

  async judge(place: number): Promise<Report> {
    this.child ??= fork(process.argv[1] ?? "", process.argv.slice(2), {
      env: { ...process.env, MUTATED_MODELS_IN: this.folder },
    });
    const { child } = this;
    const timer = setTimeout(() => child.kill("SIGKILL"), LIMIT_MS);
    child.send(place);
    const answered = new AbortController();
    const first = (event: string) => once(child, event, { signal: answered.signal });
    const [said] = (await Promise.race([first("message"), first("exit")])) as [Report | number | null]; // what `serve` sends, or a code
    clearTimeout(timer);
    answered.abort();
    const failed = (says: string): Report => ({
      place,
      base: "",
      kind: "",
      judged: { status: "failed", says },
      seconds: 0,
      bytes: 0,
    });
    if (typeof said !== "object" || said === null) {
      this.child = undefined;
      return failed(`the process ended${child.killed ? ` after ${LIMIT_MS / 1000} s` : ""}`);
    }
    if (said.seconds > MOST_SECONDS)
      return { ...said, judged: { status: "failed", says: `it took ${said.seconds} s` } };
    if (said.bytes <= Number(values.gigabytes) * 2 ** 30) return said;
    await this.close();
    return { ...said, judged: { status: "failed", says: `it took ${(said.bytes / 2 ** 30).toFixed(1)} GiB` } };
  }

  async close(): Promise<void> {
    const ended = this.child && once(this.child, "exit");
    this.child?.kill("SIGKILL");
    this.child = undefined;
    await ended;
  }
}

/** What is wrong with the way the command ended on the folder's model. */
function wrongEnding(folder: string, { judged }: Report): string | undefined {
  const command = [join(import.meta.dirname, "../../cli/main.js"), "network", "show", join(folder, "model.onnx")];
  const open = readFileSync(join(folder, "model.onnx")).includes("batch") ? ["--dim", "batch=1"] : [];
  const { status, stderr } = spawnSync("node", [...command, ...open], { encoding: "utf8", timeout: LIMIT_MS });
  if (/^ {4}at |internal:/m.test(stderr)) return `a trace: ${stderr}`;
  const wanted = judged.status === "refused" ? 2 : 0;
  // A dimension that no input has is refused before the model is.
  return status === wanted || /no input has a size "batch"/.test(stderr)
    ? undefined
    : `network show ends with ${status} and not ${wanted}: ${stderr}`;
}

async function judgeAll(folder: string): Promise<{ reports: Report[]; failures: string[]; commands: number }> {
  const judges = new Judges(folder);
  const first = Number(values.from);
  const count = Number(values.count);
  const reports: Report[] = [];
  const failures: string[] = [];
  let commands = 0;
  for (let place = first; place < first + count; place++) {
    const report = await judges.judge(place);
    reports.push(report);
    const { judged, base, kind } = report;
    const tell = (says: string): void => {
      failures.push(`${place}, ${base}, ${kind}: ${says}`);
      console.error(failures.at(-1));
    };
    if (judged.status === "wrong" || judged.status === "failed") tell(judged.says);
    else if (place % Number(values.command) === 0 && !/^(?:resnet|mobilenet|shufflenet)/.test(base)) {
      commands++;
      const ending = wrongEnding(folder, report);
      if (ending !== undefined) tell(ending);
    }
    if ((place + 1 - first) % 500 === 0) console.error(`${place + 1 - first} of ${count}`);
  }
  await judges.close();
  return { reports, failures, commands };
}

function pageOf({ reports, failures, commands }: Awaited<ReturnType<typeof judgeAll>>): string {
  const count = (of: readonly Report[], status: string): number => of.filter((r) => r.judged.status === status).length;
  const compared = (of: readonly Report[]): number =>
    of.filter(({ judged }) => judged.status === "read" && judged.compared).length;
  const slowest = reports.toSorted((a, b) => b.seconds - a.seconds)[0];
  const most = Math.max(...reports.map((r) => r.bytes)) / 2 ** 30;
  const row = (name: string, of: readonly Report[]) => [
    name,
    of.length,
    count(of, "refused"),
    count(of, "read"),
    compared(of),
    count(of, "wrong") + count(of, "failed"),
  ];
  const head = ["of them refused", "read", "computed twice", "failed"];
  const ofKind = (kind: string) => reports.filter((r) => r.kind === kind);
  const ofBase = (is: (base: string) => boolean) => reports.filter((r) => is(r.base));
  const bases = [...new Set(reports.map((r) => r.base))];
  // ONNX's own cases number in the hundreds.
  const cases = bases.filter((b) => b.startsWith("test_"));
  const named = bases.filter((b) => !b.startsWith("test_"));
  return [
    "# Models of ONNX, spoilt at random",
    "",
    `    node dist/bench/judges/mutated-models.js --count ${values.count} --seed ${values.seed}          ${new Date().toISOString().slice(0, 10)}, ${cpuName()}`,
    "",
    `Of ${reports.length} spoilt models ${count(reports, "refused")} are refused in a sentence and ${count(reports, "read")} are read; ${failures.length} fail. Of those read`,
    `${compared(reports)} are small enough to be computed twice by the interpreter, as the nodes say and fused: both agree. \`automap network show\` was run`,
    `on ${commands} of the files. The slowest took ${slowest?.seconds.toFixed(1)} s of the processor (${slowest?.base}, ${slowest?.kind}); no process held more than ${most.toFixed(1)} GiB.`,
    "",
    ...table(
      ["what was changed", "models", ...head],
      MUTATIONS.map((kind) => row(kind, ofKind(kind))),
    ),
    "",
    ...table(
      ["model", "spoilt", ...head],
      [
        ...named.toSorted().map((name) =>
          row(
            name,
            ofBase((base) => base === name),
          ),
        ),
        row(
          `${cases.length} cases of ONNX`,
          ofBase((base) => base.startsWith("test_")),
        ),
      ],
    ),
    "",
  ].join("\n");
}

const served = process.env["MUTATED_MODELS_IN"];
if (served !== undefined && process.send) serve(served);
else {
  const folder = mkdtempSync(join(tmpdir(), "automap-mutated-"));
  try {
    const judged = await judgeAll(folder);
    const page = pageOf(judged);
    console.log(page);
    if (values.out !== undefined) writeFileSync(`${values.out}.md`, page);
    process.exitCode = judged.failures.length > 0 ? 4 : 0;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
