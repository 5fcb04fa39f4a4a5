/**
 * @file Time left unused by the default budget of `tune`. Each layer is searched with that budget, then with ten times
 * as many trials and no early stop; the two winners are measured in alternating batches.
 *
 *     npm run build
 *     node dist/bench/budget.js                         twelve ResNet-18 layers, u8s8, one thread
 *     node dist/bench/budget.js --ops c2d-1,c2d-8 --types f32 --factor 10 --out bench/results/budget
 *
 * `times` is default time / longer time: 1.10 means that ten times the budget found a kernel 10 % faster.
 */

import { appendFileSync, writeFileSync } from "node:fs";
import { cpus } from "node:os";
import { EnvironmentError } from "../abstraction/error.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { createRunner } from "../runtime/measure.ts";
import { summariseRatio } from "../runtime/statistics.ts";
import { type TuneOutcome, tuneComputation } from "../session/tune.ts";
import { readOptions } from "./options.ts";
import { layersNamed } from "./suite.ts";

const { values } = readOptions({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "u8s8" },
    factor: { type: "string", default: "10" },
    threads: { type: "string", default: "1" },
    out: { type: "string", default: "budget" },
  },
});
const threads = Number(values.threads);
const factor = Number(values.factor);
/** Seconds of `tune`'s default budget. The longer search multiplies these, and the trials the default search made. */
const DEFAULT_SECONDS = 40;
const jsonl = `${values.out}.jsonl`;
writeFileSync(jsonl, "");
const lines = [
  `# The default budget against ${factor} times as many trials and seconds`,
  "",
  `${cpus()[0]?.model.trim()}, ${cpus().length} processors, ${threads} thread${threads === 1 ? "" : "s"}. Microseconds a call, the two winners in one process, batches in turns.`,
  "",
  `    node dist/bench/budget.js ${process.argv.slice(2).join(" ")}`,
  "",
  "| layer | types | default: seconds | trials | us | longer: seconds | trials | us | times |",
  "|---|---|---|---|---|---|---|---|---|",
];

for (const types of values.types.split(",")) {
  for (const { id, op, params } of layersNamed(values.ops)) {
    const computation = instantiate(operatorNamed(op), {
      parameters: params,
      types: parseDataTypes(types),
      layouts: "NHWC",
    });
    const short = wonBy(await tuneComputation({ computation }, { threads, database: ":memory:" }));
    const longer = wonBy(
      await tuneComputation(
        { computation },
        {
          threads,
          database: ":memory:",
          trials: factor * short.trials,
          seconds: factor * DEFAULT_SECONDS,
          earlyStop: false,
        },
      ),
    );
    const made = await createRunner({ threads });
    if (made.status === "environment") throw new EnvironmentError(made);
    const reference = await made.runner.reference(computation, 1);
    const [a, b] = await made.runner.compareKernels([short.kernel, longer.kernel], reference, { budgetSeconds: 1 });
    await made.runner.close();
    if (a?.status !== "ok" || b?.status !== "ok") throw new Error(`${id}: a winner failed when run again`);
    const times = summariseRatio(a.samples, b.samples, 1).median;
    const { kernel: _, ...first } = short;
    const { kernel: __, ...second } = longer;
    appendFileSync(
      jsonl,
      `${JSON.stringify({ id, types, threads, default: { ...first, us: a.median * 1e6 }, longer: { ...second, us: b.median * 1e6 }, times })}\n`,
    );
    lines.push(
      `| ${[id, types, short.seconds.toFixed(1), short.trials, (a.median * 1e6).toFixed(1), longer.seconds.toFixed(1), longer.trials, (b.median * 1e6).toFixed(1), times.toFixed(3)].join(" | ")} |`,
    );
    console.error(lines.at(-1));
    writeFileSync(`${values.out}.md`, `${lines.join("\n")}\n`);
  }
}

function wonBy(outcome: TuneOutcome) {
  if (!("best" in outcome) || !outcome.best) throw new Error(`tuning ended without a kernel: ${outcome.status}`);
  return { seconds: outcome.seconds, trials: outcome.trials.length, kernel: outcome.best.kernel };
}
