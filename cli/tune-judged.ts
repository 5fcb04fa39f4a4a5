/**
 * @file Output of `automap tune` for a machine that is not available: the kernels that the model ranks highest, and those that an emulator finds
 * right.
 */

import type { Extents } from "../abstraction/affine.ts";
import { isMapped } from "../abstraction/candidate.ts";
import { defined } from "../abstraction/collections.ts";
import { automapCommand } from "../abstraction/command-line.ts";
import type { Computation } from "../abstraction/computation.ts";
import type { Inputs } from "../abstraction/interpret.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { LANGUAGES } from "../abstraction/kernel.ts";
import type { Target } from "../abstraction/machine.ts";
import { DEFAULT_DATABASE, databaseWords, shortId } from "../db/index.ts";
import { placeText, scheduleText } from "../report/describe-candidate.ts";
import { counted, indent, printTime } from "../report/text.ts";
import { type JudgedKernel, judgeByModel } from "../session/judge/judge.ts";
import { writeKernel } from "./files.ts";
import { EXIT, type ExitCode, printJson, say, style } from "./output.ts";
import { fitted } from "./terminal.ts";
import type { TuneWords } from "./tune.ts";
import { conclude, judgedSchema, tellerOf, whyUnanswered } from "./tune-outcome.ts";

/** Ranks candidates by the model, runs the best under an emulator, and records each without a time. */
export async function judge(
  subject: {
    readonly computation: Computation;
    readonly parameters: Extents;
    readonly fixed: Inputs;
  },
  { intrinsics, machine }: { readonly intrinsics: readonly Intrinsic[]; readonly machine: Target },
  given: TuneWords,
  signal: AbortSignal,
): Promise<ExitCode> {
  const outcome = await judgeByModel(
    { ...subject, name: given.name },
    {
      intrinsics,
      machine,
      signal,
      database: given.db ?? DEFAULT_DATABASE,
      ...defined({
        seconds: given.time,
        count: given.trials,
        seed: given.seed,
        threads: given.threads,
        kinds: given.kinds,
      }),
      onDropped: (why) => say(`dropped: ${why}`),
      onJudged: ({ measurement, prediction }) => {
        if (!given.quiet) say(style("dim", `predicted ${printTime(prediction.seconds)}: ${measurement.status}`));
      },
    },
  );
  if ("refused" in outcome) return conclude({ status: "nothing-maps", refused: outcome.refused }, given, 0);
  if ("problem" in outcome) return conclude({ status: "environment", problem: outcome.problem }, given, 0);
  const { judged, database, emulator, unanswered } = outcome;
  const right = judged.find(({ measurement }) => measurement.status === "emulated");
  if (unanswered) say(whyUnanswered(unanswered));
  const ended = signal.aborted ? "stopped" : outcome.late ? "the time was up" : undefined;
  if (ended) say(`${ended} after ${counted(judged.length, "kernel")}; none of the others was judged`);
  if (given.json)
    printJson(judgedSchema, {
      measured: false,
      target: machine.name,
      emulator,
      database,
      late: outcome.late === true,
      candidates: judged.map(({ id, candidate, prediction, measurement }) => ({
        id,
        status: measurement.status,
        intrinsic: candidate.intrinsic,
        mapping: isMapped(candidate) ? candidate.matching : { design: placeText(candidate) },
        schedule: candidate.schedule,
        predictedMicroseconds: prediction.seconds * 1e6,
      })),
    });
  else if (judged.length > 0) tellerOf(given)(judgedText(judged, machine, emulator));
  if (!right) {
    for (const { id, measurement } of judged)
      if (measurement.status !== "ok") say(`${shortId(id)} ${measurement.status}: ${measurement.log}`);
    if (signal.aborted) return EXIT.interrupted;
    return judged.some(({ measurement }) => measurement.status === "wrong") ? EXIT.wrong : EXIT.failed;
  }
  if (given.to !== undefined) {
    const written = writeKernel(given.to, right.kernel);
    say(
      `written: ${written}, predicted to take ${printTime(right.prediction.seconds)}; right under ${emulator}, not timed`,
    );
  }
  if (!given.quiet) {
    const { language } = right.kernel;
    const [does, to] = language === "c++" ? ["package it", "DIR"] : ["write it", `kernel${LANGUAGES[language].ending}`];
    say(`${does}   ${automapCommand("emit", shortId(right.id), "--to", to, databaseWords(database))}`);
  }
  return signal.aborted ? EXIT.interrupted : EXIT.ok;
}

function judgedText(judged: readonly JudgedKernel[], machine: Target, emulator: string): string {
  const rows = judged.map(({ id, candidate, prediction, measurement }) => [
    printTime(prediction.seconds),
    measurement.status,
    shortId(id),
    candidate.intrinsic,
    placeText(candidate),
    scheduleText(candidate),
  ]);
  return [
    `predicted by the model with the rates of ${machine.name}, run under ${emulator}; nothing was timed`,
    "",
    indent(fitted(rows, 2)),
  ].join("\n");
}
