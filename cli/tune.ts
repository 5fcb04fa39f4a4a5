/**
 * @file `automap tune`: searches mappings and schedules on this machine, measures them, keeps every trial, ends with the fastest.
 *
 *     automap tune conv2d --c 64 --k 64 --h 56 --w 56 --r 3 --s 3 --pad 1 --dtype u8s8
 *     automap tune matmul --m 512 --n 512 --k 512 --dtype f32 --trials 200 --threads 2
 *     automap tune matmul --m 4096 --n 4096 --k 4096 --target cuda
 */

import type { Command } from "commander";
import { z } from "zod";
import { type Candidate, isMapped } from "../abstraction/candidate.ts";
import { type Computation, targetOf } from "../abstraction/computation.ts";
import { suggestion, UsageError } from "../abstraction/error.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Target } from "../abstraction/machine.ts";
import { WORKLOAD_NAME } from "../db/index.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { describeWorkload, workloadLabel } from "../operators/describe.ts";
import { operatorNamed } from "../operators/index.ts";
import { constantValues, instantiate } from "../operators/operator.ts";
import { candidateRows, candidateText, placeText, scheduleRows } from "../report/describe-candidate.ts";
import { indent, percent, table } from "../report/text.ts";
import type { TunedKernel } from "../session/finals.ts";
import { kernelFor } from "../session/kernel.ts";
import { rankByModel } from "../session/rank.ts";
import { CANDIDATE_KINDS } from "../session/space.ts";
import { isPlain, operationsOf, type TuneOutcome, tuneComputation, usableIntrinsics } from "../session/tune.ts";
import { isGpu } from "../targets/index.ts";
import type { TuneEvent, TuneStatus } from "../tuner/search.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import { checkWritable, writeOutput } from "./files.ts";
import { parseOptions, positiveInteger, readParameters } from "./options.ts";
import { EXIT, type ExitCode, print, printJson, say, shellWord, style } from "./output.ts";
import { addSubjectOptions, readComputation, subjectOptions } from "./subject.ts";
import { readTarget, TARGET_OPTION } from "./target.ts";

const options = subjectOptions.extend({
  trials: positiveInteger("--trials").optional(),
  time: positiveInteger("--time").optional(),
  seed: z.string().regex(/^\d+$/, "--seed must be a non-negative integer").transform(Number).optional(),
  threads: positiveInteger("--threads").optional(),
  strategy: z.string().optional(),
  target: z.string().min(1).optional(),
  kinds: z
    .enum(CANDIDATE_KINDS, {
      error: ({ input }) => `--kinds must be ${CANDIDATE_KINDS.join(", ")}, got "${String(input)}"`,
    })
    .optional(),
  db: z.string().min(1).optional(),
  name: z
    .string()
    .regex(WORKLOAD_NAME, {
      error: "--name must be letters, digits and . _ - + / :, no more than 80, for example --name resnet18/layer2.0",
    })
    .optional(),
  to: z.string().min(1).optional(),
  modelOnly: z.boolean().optional(),
  json: z.boolean().optional(),
});
type Options = z.infer<typeof options>;

export function registerTune(command: Command, finish: (code: ExitCode) => void): void {
  addSubjectOptions(command)
    .option(...TARGET_OPTION)
    .option("--trials <n>", "kernels to measure at most (default 160)")
    .option("--time <seconds>", "seconds to search at most (default 40)")
    .option("--seed <n>", "seed of the search (default 1)")
    .option("--threads <n>", "threads of a kernel (default 1)")
    .option("--strategy <name>", `${STRATEGIES.map((s) => s.name).join(", ")} (default ${STRATEGIES[0]?.name})`)
    .option(
      "--kinds <which>",
      "what to choose from: mappings onto instructions, designs on vector lanes, or all (default all)",
    )
    .option("--db <file>", "database of trials (default automap.db)")
    .option("--name <name>", "what to call it in tables, reports and `automap db --name`")
    .option("--to <file>", "write the source of the fastest kernel there")
    .option("--model-only", "rank candidates by the model and measure nothing: needs no compiler and no device")
    .option("--json", "print a JSON document at the end")
    .addHelpText(
      "after",
      [
        "",
        "Examples:",
        "  automap tune conv2d",
        "  automap tune conv2d --c 64 --k 64 --h 56 --w 56 --r 3 --s 3 --pad 1 --dtype u8s8 --layout NHWC",
        "  automap tune matmul --m 512 --n 512 --k 512 --dtype f32 --trials 200 --to matmul.cpp",
        "",
        "Ctrl-C once: finish the kernel under way and print the best so far. Twice: stop.",
        "A search that was stopped goes on where it was when the same command is given again.",
      ].join("\n"),
    )
    .action(async (subject: string, raw: unknown, command: Command) => {
      finish(await runTune(subject, command, parseOptions(options, raw)));
    });
}

async function runTune(subject: string, command: Command, given: Options): Promise<ExitCode> {
  // 1. What, for which machine, with which instructions.
  const parameters = readParameters(command);
  const machine = await readTarget(given.target);
  const intrinsics = chooseIntrinsics(given.intrinsic, machine);
  const chosen = chooseTypes(subject, parameters, given, intrinsics, machine);
  const strategy = given.strategy === undefined ? undefined : STRATEGIES.find((s) => s.name === given.strategy);
  if (given.strategy !== undefined && !strategy) {
    throw new UsageError(`unknown strategy "${given.strategy}"`, {
      hint: suggestion(
        given.strategy ?? "",
        STRATEGIES.map((s) => s.name),
      ),
    });
  }
  if (given.to !== undefined) checkWritable("--to", given.to);
  if (given.modelOnly) return rank(chosen.computation, { intrinsics, machine }, given);
  const instructions = intrinsics.filter((i) => !isPlain(i)).length;
  const choice = instructions > 0 ? `${instructions} instructions` : `${intrinsics.length} rows of plain C++`;
  const label = workloadLabel(describeWorkload(chosen), given.name);
  say(`${label} on ${machine.name}: ${choice} to choose from`);
  if (chosen.assumed.length > 0) say(style("dim", `by default: ${chosen.assumed.join(" ")}`));

  // 2. The search, which a first Ctrl-C ends and a second one kills.
  const controller = new AbortController();
  let interrupts = 0;
  const onInterrupt = (): void => {
    if (++interrupts > 1) process.exit(EXIT.interrupted);
    say("finishing the kernel under way; Ctrl-C again stops at once");
    controller.abort();
  };
  process.on("SIGINT", onInterrupt);
  const progress = progressOf(operationsOf(chosen.computation));
  const outcome = await tuneComputation(
    { computation: chosen.computation, parameters: chosen.parameters, fixed: chosen.fixed, name: given.name },
    {
      intrinsics,
      machine,
      signal: controller.signal,
      onEvent: progress,
      onNotice: say,
      ...(given.trials === undefined ? {} : { trials: given.trials }),
      ...(given.time === undefined ? {} : { seconds: given.time }),
      ...(given.seed === undefined ? {} : { seed: given.seed }),
      ...(given.threads === undefined ? {} : { threads: given.threads }),
      ...(given.kinds === undefined ? {} : { kinds: given.kinds }),
      ...(given.db === undefined ? {} : { database: given.db }),
      ...(strategy ? { strategy } : {}),
    },
  ).finally(() => process.off("SIGINT", onInterrupt));

  // 3. What came of it.
  return conclude(outcome, given);
}

/** The candidates the model likes best, nothing measured. */
function rank(
  computation: Computation,
  choice: { readonly intrinsics: readonly Intrinsic[]; readonly machine: Target },
  given: Options,
): ExitCode {
  const ranked = rankByModel(computation, {
    ...choice,
    ...(given.seed === undefined ? {} : { seed: given.seed }),
    ...(given.threads === undefined ? {} : { threads: given.threads }),
    ...(given.kinds === undefined ? {} : { kinds: given.kinds }),
  });
  if ("refused" in ranked) return conclude({ status: "nothing-maps", refused: ranked.refused }, given);
  const [first] = ranked;
  if (first && given.to !== undefined) {
    writeOutput("--to", given.to, kernelFor(computation, first.candidate, choice.machine).source);
    say(`written: ${given.to}, predicted to take ${microseconds(first.prediction.seconds)}; nothing was measured`);
  }
  if (given.json) {
    printJson({
      measured: false,
      target: choice.machine.name,
      candidates: ranked.map((r) => ({ ...r.candidate, predictedMicroseconds: r.prediction.seconds * 1e6 })),
    });
    return EXIT.ok;
  }
  const rows = ranked.map(({ candidate, prediction }) => [
    microseconds(prediction.seconds),
    candidate.intrinsic,
    placeText(candidate),
    ...scheduleRows(candidate)
      .slice(0, 2)
      .map(([name, text]) => `${name} ${text}`),
  ]);
  const rates = isGpu(choice.machine) ? choice.machine.name : "the reference machine";
  print([`predicted by the model with the rates of ${rates}, nothing measured`, "", indent(table(rows))].join("\n"));
  return EXIT.ok;
}

function conclude(outcome: TuneOutcome, given: Options): ExitCode {
  switch (outcome.status) {
    case "nothing-maps": {
      say("nothing maps; the reasons, most hopeful first");
      say(indent(table(outcome.refused.map((r) => [r.rule, r.because, r.hint === undefined ? "" : `(${r.hint})`]))));
      return EXIT.nothingMaps;
    }
    case "environment": {
      say(`automap: ${outcome.problem.what}\n  ${outcome.problem.why}\n  ${outcome.problem.remedy}`);
      say("  what was measured is kept, and the same command goes on from there; --model-only needs none of this");
      return EXIT.environment;
    }
    default: {
      const { best } = outcome;
      if (best && given.to !== undefined) {
        writeOutput("--to", given.to, best.kernel.source);
        say(`written: ${given.to}`);
      }
      for (const line of surroundings(outcome)) say(line);
      if (given.json) printJson(tuneDocument(outcome));
      else if (best) print(describeBest(best, outcome));
      else say(whyNone(outcome));
      if (outcome.status === "interrupted") {
        say(`go on with   ${["automap", ...process.argv.slice(2)].map(shellWord).join(" ")}`);
        return EXIT.interrupted;
      }
      return best ? EXIT.ok : EXIT.failed;
    }
  }
}

/** What to do where no kernel was found. */
function whyNone({ failed, trials }: Extract<TuneOutcome, { best: unknown }>): string {
  if (trials.length === 0)
    return "no kernel was tried: the time was up before the first was measured; give more of it with --time";
  const counts = Object.entries(failed).map(([status, count]) => `${count} ${status}`);
  return `no kernel worked: ${counts.join(", ")}; AUTOMAP_DEBUG=1 shows their logs`;
}

/** The instructions named; by default, and of a family, those that the machine has; plain C++ among them. */
function chooseIntrinsics(name: string | undefined, machine: Target): readonly Intrinsic[] {
  const here = usableIntrinsics(machine);
  if (name === undefined || name === "all") return here;
  const named = intrinsicsNamed(name);
  const usable = named.filter((i) => here.includes(i));
  if (usable.length === 0) {
    throw new UsageError(
      `${machine.name} cannot run ${name}: it needs ${[...new Set(named.map((i) => i.isa))].join(" or ")}`,
      {
        hint: "`automap intrinsic list` marks what is here; `automap map` works without the instruction; --target names another machine",
      },
    );
  }
  return usable;
}

interface Chosen {
  readonly computation: Computation;
  /** Values of tensors that the operator fixes. */
  readonly fixed: Inputs;
  readonly parameters: Readonly<Record<string, number>>;
  /** Options that the user left out, as they were taken: `--dtype u8s8`, `--c 64`. */
  readonly assumed: readonly string[];
}

/** Types as given; else the fastest the machine multiplies: bytes, then 16-bit floats, then f32, which is what plain C++ is best at. */
const PREFERRED_TYPES = { cpu: ["u8s8", "bf16", "f32"], gpu: ["f16"] };

function chooseTypes(
  subject: string,
  parameters: Readonly<Record<string, number>>,
  given: Options,
  intrinsics: readonly Intrinsic[],
  machine: Target,
): Chosen {
  const isEquation = subject.includes("[");
  const wanted =
    given.dtype !== undefined || isEquation || fixesValues(subject)
      ? [given.dtype]
      : PREFERRED_TYPES[isGpu(machine) ? "gpu" : "cpu"];
  const takes = (computation: Computation): boolean => {
    const types = new Set([targetOf(computation), ...Object.values(computation.tensors)].map((t) => t.dtype));
    return intrinsics.some((i) => !isPlain(i) && i.operands.every((o) => types.has(o.dtype)));
  };
  const made = wanted.map((dtype) =>
    readComputation(subject, parameters, { ...given, ...(dtype === undefined ? {} : { dtype }) }),
  );
  const computation = made.find(takes) ?? made.at(-1);
  if (!computation) throw new Error("internal: no types to try");
  if (isEquation) return { computation, fixed: {}, parameters: {}, assumed: [] };
  const operator = operatorNamed(subject);
  const complete = Object.fromEntries(
    Object.entries(operator.parameters).map(([name, p]) => [name, parameters[name] ?? p.default]),
  );
  const types = wanted[made.indexOf(computation)];
  const assumed = [
    ...(given.dtype === undefined && types !== undefined ? [`--dtype ${types}`] : []),
    ...Object.keys(complete).flatMap((name) => (parameters[name] === undefined ? [`--${name} ${complete[name]}`] : [])),
  ];
  return { computation, fixed: constantValues(operator, computation), parameters: complete, assumed };
}

/** Weights that an operator fixes are fractions: it is tuned in its own types. */
function fixesValues(subject: string): boolean {
  const operator = operatorNamed(subject);
  return Object.keys(constantValues(operator, instantiate(operator))).length > 0;
}

/** Why a search ended, as its last line begins. */
const ENDINGS: Readonly<Record<TuneStatus, string>> = {
  "trials-spent": "all trials made",
  "time-spent": "time is up",
  interrupted: "interrupted",
  exhausted: "nothing left to try",
  "no-gain": "nothing faster is expected",
};

/** A line when a kernel is the fastest so far, and one a round otherwise. */
function progressOf(operations: number): (event: TuneEvent<Candidate>) => void {
  let failures = 0;
  return (event) => {
    switch (event.kind) {
      case "round":
        if (event.secondsLeft !== undefined)
          say(
            style(
              "dim",
              `round ${event.round}: ${event.proposed} kernels, about ${Math.ceil(event.secondsLeft)} s left`,
            ),
          );
        break;
      case "trial":
        if (event.trial.measurement.status !== "ok") {
          failures++;
          if ((process.env["AUTOMAP_DEBUG"] ?? "") !== "")
            say(`trial ${event.number}: ${event.trial.measurement.status}: ${event.trial.measurement.log}`);
        }
        break;
      case "best": {
        const { measurement, candidate } = event.trial;
        if (measurement.status === "ok") {
          say(
            `trial ${event.number}: ${microseconds(measurement.median)}  ${(operations / measurement.median / 1e9).toFixed(0)} G operations/s  ${candidateText(candidate)}`,
          );
        }
        break;
      }
      case "stop":
        say(
          `${ENDINGS[event.status]} after ${event.seconds.toFixed(1)} s: ${event.trials} kernels tried, ${event.measured} of them now, ${failures} failed`,
        );
        break;
      default:
        event satisfies never;
    }
  };
}

function describeBest(best: TunedKernel, outcome: Extract<TuneOutcome, { best: unknown }>): string {
  const { measurement, candidate, mapping } = best;
  const [low, high] = measurement.interval;
  return [
    `${style("bold", microseconds(measurement.median))} a call (95 % interval ${microseconds(low)} to ${microseconds(high)}), ${(operationsOf(outcome.computation) / measurement.median / 1e9).toFixed(0)} G operations/s`,
    "",
    table([
      ...candidateRows(candidate),
      ...(mapping ? [["waste", `${(100 * mapping.waste).toFixed(1)} %   (mapping ${mapping.id})`]] : []),
      [
        "in the code",
        best.kernel.promises === undefined
          ? `${best.kernel.language === "c++" ? "plain C++, " : ""}no instruction promised`
          : `${measurement.instructions} x ${best.kernel.promises}`,
      ],
    ]),
    "",
    `record   automap db show ${best.id.slice(0, 12)} --db ${shellWord(outcome.database)}`,
    `use it   automap emit ${best.id.slice(0, 12)} --to ${best.kernel.language === "cuda" ? `${best.computation.name}.cu` : "DIR"} --db ${shellWord(outcome.database)}`,
  ].join("\n");
}

/** Below this the share of other programs is that of the system itself. */
const QUIET_LOAD = 0.03;

/** What else went on on the machine, where that matters to the numbers. */
function surroundings({ best, trials, waitedSeconds }: Extract<TuneOutcome, { best: unknown }>): string[] {
  const loads = trials.flatMap(({ measurement }) => measurement.ran?.load ?? []);
  const disturbed = loads.filter((load) => load > QUIET_LOAD);
  const ran = best?.measurement.ran;
  const where = ran && `finals on processor${ran.cpus.length > 1 ? "s" : ""} ${ran.cpus.join(", ")}`;
  const final = ran?.load === undefined ? "" : `, of which other programs took ${percent(ran.load)}`;
  return [
    ...(waitedSeconds >= 1 ? [`waited ${waitedSeconds.toFixed(1)} s for other searches to let go of a core`] : []),
    ...(disturbed.length > 0
      ? [
          `other programs took up to ${percent(Math.max(...disturbed))} of the processor while ${disturbed.length} of ${loads.length} kernels were timed: those times say less`,
        ]
      : []),
    ...(where === undefined ? [] : [`${where}${final}`]),
  ];
}

function tuneDocument(outcome: Extract<TuneOutcome, { best: unknown }>): Record<string, unknown> {
  const { best, trials, failed, seconds, waitedSeconds, database } = outcome;
  return {
    status: outcome.status,
    best: best && {
      id: best.id,
      microseconds: best.measurement.median * 1e6,
      interval: best.measurement.interval.map((s) => s * 1e6),
      processors: best.measurement.ran?.cpus ?? null,
      load: best.measurement.ran?.load ?? null,
      gops: operationsOf(outcome.computation) / best.measurement.median / 1e9,
      intrinsic: best.candidate.intrinsic,
      mapping: isMapped(best.candidate) ? best.candidate.matching : { design: placeText(best.candidate) },
      schedule: best.candidate.schedule,
      predictedMicroseconds: best.prediction && best.prediction.seconds * 1e6,
    },
    trials: trials.length,
    failed,
    seconds,
    waitedSeconds,
    database,
  };
}

function microseconds(seconds: number): string {
  const us = seconds * 1e6;
  return us >= 10_000 ? `${(us / 1000).toFixed(1)} ms` : `${us.toFixed(us < 100 ? 2 : 1)} us`;
}
