/**
 * @file Random lane designs and schedules, checked: nests are interpreted, kernels are compiled and emulated, and
 * every element must equal the equation's.
 *
 *     npm run build
 *     node dist/bench/judges/lane-judged.js                                      20,000 candidates of thirteen kinds on one core
 *     node dist/bench/judges/lane-judged.js --count 2000 --seed 7 --jobs 2       on two
 *     node dist/bench/judges/lane-judged.js --out bench/results/lane-judged      also writes the page
 *     node dist/bench/judges/lane-judged.js --only recurrences --from 17 --count 1      repeats one candidate
 *
 * Kinds (test/support/drawn/) have shares of the count. A nest runs as lowered, then twice in a row with its parallel loops
 * reversed; kernels run in adverse thread orders. A kind, seed and place determine a candidate, whatever the jobs.
 * Refused candidates do not count, but their reasons are listed. Wrong ones are printed; the exit code is then 4.
 */

import { fork } from "node:child_process";
import { writeFileSync } from "node:fs";
import { UsageError } from "../../abstraction/error.ts";
import {
  type Drawn,
  type DrawnKernel,
  type DrawnKind,
  wrongKernels,
  wrongNest,
} from "../../test/support/drawn/drawn.ts";
import { DRAWN_KINDS, randomAt } from "../../test/support/drawn/kinds.ts";
import { table } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    count: { type: "string", default: "20000" },
    seed: { type: "string", default: "1" },
    /** Parallel processes. */
    jobs: { type: "string", default: "1" },
    /** Selects kinds whose name contains this. */
    only: { type: "string" },
    /** First place of each kind. */
    from: { type: "string", default: "0" },
    out: { type: "string" },
    /** `2/8`: process 2 of 8. Processes interleave the places. */
    shard: { type: "string", default: "0/1" },
  },
});

const kinds = DRAWN_KINDS.filter((k) => k.name.includes(values.only ?? ""));
if (kinds.length === 0)
  throw new UsageError(`--only ${values.only}: no kind is called so`, DRAWN_KINDS.map((k) => k.name).join("; "));
const shares = kinds.reduce((sum, k) => sum + k.share, 0);

/** Results of a kind. */
interface Tally {
  readonly kind: string;
  right: number;
  seconds: number;
  /** Refusals by reason, with numbers replaced by N. */
  readonly refused: Record<string, number>;
  readonly wrong: string[];
}

const reasonOf = (because: string): string =>
  because
    .replace(/\b[a-zA-Z_]\w*\[[^\]]*\]/g, "an access")
    .replace(/\([-\d, ]+\)/g, "(..)")
    .replace(/-?\d+/g, "N");

/** Kernels are compiled together once this many wait. */
const TOGETHER = 60;

/** Judges candidates of a kind at this shard's places until the count is reached. */
async function judge(kind: DrawnKind, count: number, [shard, shards]: readonly [number, number]): Promise<Tally> {
  const tally: Tally = { kind: kind.name, right: 0, seconds: 0, refused: {}, wrong: [] };
  const begun = performance.now();
  const tell = (place: number, said: string, problem: string): void => {
    tally.wrong.push(`${kind.name}, place ${place}: ${said}\n  ${problem}`);
  };
  let waiting: { readonly place: number; readonly kernel: DrawnKernel }[] = [];
  const compile = async (): Promise<void> => {
    const problems = await wrongKernels(waiting.map((w) => w.kernel));
    for (const [i, { place, kernel }] of waiting.entries()) {
      const problem = problems[i];
      if (problem === undefined) tally.right++;
      else tell(place, kernel.said, problem);
    }
    waiting = [];
  };
  const judged = (): number => tally.right + tally.wrong.length + waiting.length;
  for (let place = Number(values.from) + shard; judged() < count; place += shards) {
    for (const drawn of drawnAt(kind, place, tell)) {
      if (judged() >= count) break;
      if (drawn.status === "refused") {
        const reason = reasonOf(drawn.because);
        tally.refused[reason] = (tally.refused[reason] ?? 0) + 1;
      } else if (drawn.status === "kernel") waiting.push({ place, kernel: drawn });
      else {
        const problem = problemOf(() => wrongNest(drawn));
        if (problem === undefined) tally.right++;
        else tell(place, drawn.said, problem);
      }
    }
    if (waiting.length >= TOGETHER) await compile();
  }
  if (waiting.length > 0) await compile();
  tally.seconds = (performance.now() - begun) / 1000;
  return tally;
}

/** The candidates at a place. A failure while drawing or printing counts as wrong. */
function drawnAt(
  kind: DrawnKind,
  place: number,
  tell: (place: number, said: string, problem: string) => void,
): readonly Drawn[] {
  let drawn: readonly Drawn[] = [];
  const problem = problemOf(() => {
    drawn = kind.draw(randomAt(kind, Number(values.seed), place));
    return undefined;
  });
  if (problem !== undefined) tell(place, "not drawn", problem);
  return drawn;
}

/** An error thrown by the lowering or the interpreter counts as a wrong candidate. */
function problemOf(judged: () => string | undefined): string | undefined {
  try {
    return judged();
  } catch (error) {
    return error instanceof Error ? (error.stack ?? error.message) : String(error);
  }
}

const share = (count: number, part: number, parts: number): number =>
  Math.floor((count * (part + 1)) / parts) - Math.floor((count * part) / parts);

async function judgeAll(shard: number, shards: number, onTally: (tally: Tally) => void): Promise<void> {
  let before = 0;
  for (const kind of kinds) {
    const first = Math.round((Number(values.count) * before) / shares);
    before += kind.share;
    const own = Math.round((Number(values.count) * before) / shares) - first;
    onTally(await judge(kind, share(own, shard, shards), [shard, shards]));
  }
}

function joined(tallies: readonly Tally[]): readonly Tally[] {
  return kinds.map(({ name }) => {
    const own = tallies.filter((t) => t.kind === name);
    const refused: Record<string, number> = {};
    for (const [reason, count] of own.flatMap((t) => Object.entries(t.refused)))
      refused[reason] = (refused[reason] ?? 0) + count;
    const total = (of: (t: Tally) => number): number => own.reduce((sum, t) => sum + of(t), 0);
    return {
      kind: name,
      right: total((t) => t.right),
      seconds: total((t) => t.seconds),
      refused,
      wrong: own.flatMap((t) => t.wrong),
    };
  });
}

const sumOf = (counts: Readonly<Record<string, number>>): number => Object.values(counts).reduce((a, b) => a + b, 0);
/** Reasons listed for a kind; most kinds have fewer. */
const MOST_REASONS = 6;

function pageOf(tallies: readonly Tally[]): string {
  const right = tallies.reduce((sum, t) => sum + t.right, 0);
  const wrong = tallies.reduce((sum, t) => sum + t.wrong.length, 0);
  const command = `node dist/bench/judges/lane-judged.js --count ${values.count} --seed ${values.seed}`;
  return [
    "# Random designs and schedules on lanes, judged",
    "",
    `    ${command}          ${new Date().toISOString().slice(0, 10)}`,
    "",
    `${right} of ${right + wrong} candidates equal the equation in every element. Nests are interpreted, forward once and then twice in a row with their parallel`,
    "loops from the end; kernels are compiled and run under emulation in adverse orders of threads. What was drawn and refused counts for nothing.",
    "",
    ...table(
      ["kind", "equal the equation", "wrong", "refused", "seconds"],
      tallies.map((t) => [t.kind, t.right, t.wrong.length, sumOf(t.refused), t.seconds.toFixed(0)]),
    ),
    "",
    "Refused, the most frequent reasons of each kind, N for a number:",
    "",
    ...tallies.flatMap((t) => {
      const reasons = Object.entries(t.refused).toSorted(([, a], [, b]) => b - a);
      const listed = reasons.slice(0, MOST_REASONS).map(([reason, count]) => `* ${t.kind}: ${count} x ${reason}`);
      const rest = reasons.length - listed.length;
      return rest > 0 ? [...listed, `* ${t.kind}: ${rest} other reasons`] : listed;
    }),
    "",
  ].join("\n");
}

/** Runs a shard in a process of its own and passes on its tallies as they arrive. */
function ofProcess(shard: string, onTally: (tally: Tally) => void): Promise<void> {
  const child = fork(process.argv[1] ?? "", [...process.argv.slice(2), "--jobs", "1", "--shard", shard]);
  child.on("message", (tally) => onTally(tally as Tally)); // what this script sends
  return new Promise((resolve, reject) => {
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`shard ${shard} ended with ${code}`))));
  });
}

const [shard = 0, shards = 1] = values.shard.split("/").map(Number);
if (process.send) await judgeAll(shard, shards, (tally) => process.send?.(tally));
else {
  const tallies: Tally[] = [];
  const onTally = (tally: Tally): void => {
    tallies.push(tally);
    console.error(`${tally.kind}: ${tally.right} right, ${tally.wrong.length} wrong, ${tally.seconds.toFixed(0)} s`);
    for (const text of tally.wrong) console.error(text);
  };
  const jobs = Number(values.jobs);
  if (jobs === 1) await judgeAll(shard, shards, onTally);
  else await Promise.all(Array.from({ length: jobs }, (_, i) => ofProcess(`${i}/${jobs}`, onTally)));
  const page = pageOf(joined(tallies));
  console.log(page);
  if (values.out !== undefined) writeFileSync(`${values.out}.md`, page);
  process.exitCode = tallies.some((t) => t.wrong.length > 0) ? 4 : 0;
}
