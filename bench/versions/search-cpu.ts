/**
 * @file Processor time of a search besides compiling and measuring: building the space, proposing under the model,
 * printing kernels. Takes one or several builds, in turns.
 *
 *     node dist/bench/versions/search-cpu.js                             one configuration of every operator, both layouts
 *     node dist/bench/versions/search-cpu.js --builds ../before/dist,dist --rounds 5     two builds in turns, median of five
 *     node dist/bench/versions/search-cpu.js --builds ../before/dist,dist --seeds 8     do searches propose the same?
 *     node dist/bench/versions/search-cpu.js --cases c2d-1,gmm-4 --target native         searches for this machine's cores
 *
 * CPU time is less sensitive to other load than wall-clock time. Each configuration has its own process, like a search
 * on the command line. Nothing is compiled: a kernel's "time" is the model's prediction times a factor drawn from its
 * text. Digests of candidates, predictions and kernel texts show whether two builds answer alike.
 */

import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { z } from "zod";
import type { Candidate } from "../../abstraction/candidate.ts";
import { UsageError } from "../../abstraction/error.ts";
import { finished } from "../../abstraction/steps.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import { median } from "../../runtime/statistics.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { nativeTarget } from "../../targets/index.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { CHANNELS_LAST, layersNamed, suiteComputation } from "../../test/support/suite.ts";
import { search } from "../../tuner/search.ts";
import { STRATEGIES } from "../../tuner/strategies.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    cases: {
      type: "string",
      default: "c1d-1,c2d-1,c3d-1,t2d-1,grp-1,dil-1,dep-1,cap-1,bcv-1,gmm-4,gmv-4,gfc-1,men-1,var-1,scn-1",
    },
    /** Folders of built files, separated by commas. */
    builds: { type: "string" },
    rounds: { type: "string", default: "1" },
    trials: { type: "string", default: "64" },
    /** How many seeds each configuration is searched with. */
    seeds: { type: "string", default: "1" },
    /** A GPU of the table, or `native`. */
    target: { type: "string", default: "h100" },
    /** A single configuration for this process: an id and a layout. */
    one: { type: "string" },
    seed: { type: "string", default: "1" },
  },
});
/** Batch size of a machine with 16 cores. */
const BATCH = 16;

const told = z.object({
  enumerateMs: z.number(),
  searchMs: z.number(),
  predictions: z.number(),
  predictionsASecond: z.number(),
  kernels: z.number(),
  kernelMs: z.number(),
  candidates: z.string(),
  expectations: z.string(),
  texts: z.string(),
});
type Told = z.infer<typeof told>;

const machine = values.target === "native" ? nativeTarget() : nvidiaTarget(values.target);

if (values.one === undefined) compareBuilds();
else console.log(JSON.stringify(await timed(values.one)));

/** Milliseconds of CPU time used by this process. */
function spentMs(): number {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1000;
}

async function timed(one: string): Promise<Told> {
  const [id = "", layout = "first"] = one.split(" ");
  const [layer] = layersNamed(id);
  if (!layer || (layout !== "first" && layout !== "last"))
    throw new UsageError(`no configuration "${one}"`, 'an id and a layout, for example "c2d-1 last"');
  const computation = suiteComputation({ ...layer, layout });
  const digests = { candidates: createHash("sha256"), expectations: createHash("sha256"), texts: createHash("sha256") };

  const seed = Number(values.seed);

  // 1. The space.
  const begun = spentMs();
  const found = finished(chooseSpace(computation, usableIntrinsics(machine), { machine, threads: 1, seed }));
  const enumerateMs = spentMs() - begun;
  if ("refused" in found) throw new Error(`${one}: ${found.refused[0]?.because}`);
  const { space } = found;

  // 2. A search that measures nothing.
  const asked = new Map<string, Candidate>();
  let predictions = 0;
  const strategy = STRATEGIES[0];
  if (!strategy) throw new Error("internal: no strategies");
  let printingMs = 0;
  const searching = spentMs();
  const { trials } = await search<Candidate>({
    space,
    strategy,
    batch: BATCH,
    seed,
    now: () => 0,
    earlyStop: false,
    budget: { trials: Number(values.trials) },
    store: { known: () => undefined, record: () => undefined, recorded: () => [] },
    predict: (candidate) => {
      predictions++;
      asked.set(space.key(candidate), candidate);
      return space.predict(candidate);
    },
    learn: space.learn,
    measure: (batch) => Promise.resolve(batch.map((candidate) => supposed(candidate))),
  });
  const searchMs = spentMs() - searching - printingMs;

  // 3. The model alone, on the candidates the search asked about.
  const again = spentMs();
  for (const [key, candidate] of asked) digests.expectations.update(`${key} ${space.predict(candidate)?.seconds}\n`);
  const predictionsASecond = (1000 * asked.size) / (spentMs() - again);

  // 4. The texts of the proposed kernels.
  const writing = spentMs();
  for (const { candidate } of trials) digests.texts.update(withoutComments(space.kernelOf(candidate).source));
  const kernelMs = (spentMs() - writing) / Math.max(1, trials.length);
  for (const { key } of trials) digests.candidates.update(`${key}\n`);
  const digest = (of: keyof typeof digests): string => digests[of].digest("hex").slice(0, 12);
  return {
    enumerateMs,
    searchMs,
    predictions,
    predictionsASecond,
    kernels: trials.length,
    kernelMs,
    candidates: digest("candidates"),
    expectations: digest("expectations"),
    texts: digest("texts"),
  };

  function supposed(candidate: Candidate): Measurement {
    const begun = spentMs();
    const text = withoutComments(space.kernelOf(candidate).source); // keys may change with the version
    const draw = createHash("sha256").update(text).digest().readUInt16BE(0) / 2 ** 16;
    printingMs += spentMs() - begun;
    const median = (space.predict(candidate)?.uncorrectedSeconds ?? 1e-3) * (0.7 + 0.6 * draw);
    return { status: "ok", samples: [median], median, interval: [median, median], instructions: 1 };
  }
}

/** A kernel's text without comments, which name the version and may be reworded. */
function withoutComments(text: string): string {
  return text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, "");
}

function compareBuilds(): void {
  const own = fileURLToPath(new URL("../..", import.meta.url));
  const builds = values.builds?.split(",") ?? [own];
  const configurations = values.cases.split(",").flatMap((id) => {
    const [layer] = layersNamed(id);
    return !layer ? [] : layer.op in CHANNELS_LAST ? [`${id} first`, `${id} last`] : [`${id} first`];
  });
  const print = (cells: readonly string[]): void => console.log(`| ${cells.join(" | ")} |`);
  print(["configuration", "build", "space, ms", "search, ms", "predictions", "predictions/s", "kernel, ms", "digests"]);
  print(Array.from({ length: 8 }, () => "---"));
  let searches = 0;
  let alike = 0;
  for (const one of configurations) {
    const runs = builds.map((): Told[] => []);
    for (let seed = 1; seed <= Number(values.seeds); seed++)
      for (let round = 0; round < Number(values.rounds); round++)
        for (const [i, build] of builds.entries()) {
          const file = resolve(build, "bench/versions/search-cpu.js");
          const given = ["--one", one, "--trials", values.trials, "--target", values.target, "--seed", `${seed}`];
          const said = execFileSync(process.execPath, [file, ...given], { encoding: "utf8" });
          runs[i]?.push(told.parse(JSON.parse(said)));
        }
    searches += runs[0]?.length ?? 0;
    alike += runs[0]?.filter(({ texts }, n) => runs.every((run) => run[n]?.texts === texts)).length ?? 0;
    for (const [i, all] of runs.entries()) {
      const middle = (of: (t: Told) => number, digits: number): string => median(all.map(of)).toFixed(digits);
      const digests = [...new Set(all.map((t) => `${t.candidates} ${t.expectations} ${t.texts}`))].join(" or ");
      print([
        one,
        `${builds[i]}`,
        middle((t) => t.enumerateMs, 0),
        middle((t) => t.searchMs, 0),
        middle((t) => t.predictions, 0),
        middle((t) => t.predictionsASecond, 0),
        middle((t) => t.kernelMs, 2),
        digests,
      ]);
    }
  }
  console.log(`\nSearches whose kernels are the same, in the same order, in all builds: ${alike} of ${searches}.`);
}
