/**
 * @file Records of tests as text, of the invented machine and in a file of a scratch folder.
 *
 *     record trials.db us 61.25; at 9; predicted 55                      the convolution of test/support/database.ts
 *     record trials.db crashed signal 11; block 3; run a                 begins run a
 *     record trials.db us 8; of matmul m=128 n=64 k=256 f16->f16; on amx.tdpbusd; name net/head
 *     record trials.db us 9; spread 0.06; threads 2; machine cpu=another automap=9.9.9; finals a 1; offers amx.tdpbusd
 *     record trials.db us 10; imported                                 made on another machine, and imported
 *     record trials.db us 7; of conv2d c=64 u8s8 epilogue=relu layout=NHWC
 *     record trials.db us 7; of c[m,n] += s32(a[m,k]) * s32(b[k,n]) with m=64 n=32 k=16 u8s8
 */

import { join } from "node:path";
import { defineComputation } from "../../abstraction/computation.ts";
import type { Measurement } from "../../abstraction/trial.ts";
import {
  beginRun,
  type Database,
  type Environment,
  exportLines,
  importLines,
  openDatabase,
  recordTrial,
  STATUSES,
  type Workload,
} from "../../db/index.ts";
import { intrinsicNamed } from "../../intrinsics/index.ts";
import { CONV, candidate, MACHINE, measured, newTrial, trial, VNNI, workloadNamed } from "./database.ts";

const PREDICTED = { level: "l1", trips: 4, inner: 10, read: 3, write: 1, bound: "inner" as const };

function splitOnce(word: string): readonly [name: string, value: string] {
  const at = word.indexOf("=");
  return [word.slice(0, at), word.slice(at + 1)];
}

const numbersIn = (words: readonly string[]): Record<string, number> =>
  Object.fromEntries(words.map((word) => word.split("=")).map(([name = "", value]) => [name, Number(value)]));

function measurementOf(given: ReadonlyMap<string, string>): Measurement {
  for (const status of STATUSES) {
    const log = given.get(status);
    if (status !== "ok" && log !== undefined) return { status, log: log.replaceAll("\\n", "\n") };
  }
  const microseconds = Number(given.get("us"));
  const spread = given.get("spread");
  if (spread === undefined) return measured(microseconds);
  const median = microseconds * 1e-6;
  const interval = [median * (1 - Number(spread)), median * (1 + Number(spread))] as const;
  return { status: "ok", samples: [interval[0], median, interval[1]], median, interval, instructions: 1 };
}

/** An operator or an equation of a and b: `conv2d c=64 u8s8 epilogue=relu`, `c[m,n] += a[m,k] * b[k,n] with m=8 n=8 k=8 f32`. */
function workloadOf(text: string | undefined, name: string | undefined): Workload {
  if (text === undefined) return name === undefined ? CONV : { ...CONV, name };
  const [subject = "", more] = text.split(" with ");
  const [operator = "", ...inline] = subject.split(" ");
  const words = more === undefined ? inline : more.split(" ");
  const said = new Map(words.filter((word) => /^(?:epilogue|layout)=/.test(word)).map((word) => splitOnce(word)));
  const sizes = numbersIn(words.filter((word) => /^\w+=\d+$/.test(word)));
  const types = words.find((word) => !word.includes("="));
  const epilogue = said.get("epilogue");
  const layout = said.get("layout");
  const layouts = layout?.includes("=") ? Object.fromEntries([splitOnce(layout)]) : layout;
  const options = { ...(epilogue !== undefined && { epilogue }), ...(layouts !== undefined && { layouts }) };
  const workload =
    more === undefined
      ? workloadNamed(operator, sizes, types, options)
      : {
          computation: defineComputation({
            equation: subject,
            extents: sizes,
            tensors: { a: "u8", b: "s8" },
            ...(epilogue !== undefined && { epilogue }),
          }),
        };
  return name === undefined ? workload : { ...workload, name };
}

/** The invented machine, but for fields: `cpu=another version=14.0`. */
export function machineOf(text = ""): Environment {
  const changed = Object.fromEntries(
    [...text.matchAll(/(\w+)=(.*?)(?= \w+=|$)/g)].map(([, field, value]) => [field, value]),
  );
  const { version = MACHINE.compiler?.version, ...fields } = changed;
  return {
    ...MACHINE,
    ...fields,
    ...(MACHINE.compiler && { compiler: { ...MACHINE.compiler, version } }),
  } as Environment;
}

/** The records of a transcript, each called by a stand-in of as many characters as a short id: `trial-000001`, `run-0000000a`. */
export class RecordedText {
  private readonly folder: string;
  private readonly ids = new Map<string, string>();

  constructor(folder: string) {
    this.folder = folder;
  }

  record(line: string): void {
    const [file = "", ...words] = line.split(" ");
    const fields = words.join(" ").split("; ");
    const given = new Map(fields.map((field) => [field.split(" ")[0] ?? "", field.slice(field.indexOf(" ") + 1)]));
    const hour = given.get("at");
    const at = hour === undefined ? 1_700_000_000_000 : Date.UTC(2026, 10, 21, Number(hour));
    const environment = machineOf(given.get("machine"));
    const workload = workloadOf(given.get("of"), given.get("name"));
    const threads = Number(given.get("threads") ?? 1);
    const on = given.get("on");
    const tried = trial(
      measurementOf(given),
      at,
      candidate(Number(given.get("block") ?? 1), on ?? VNNI?.name, threads),
    );
    const microseconds = given.get("predicted");
    const seconds = Number(microseconds) * 1e-6;
    const prediction = { seconds, uncorrectedSeconds: seconds * 0.9, levels: [PREDICTED] };
    const intrinsic = intrinsicNamed(on ?? VNNI?.name ?? "");
    const offered = given.get("offers")?.split(" ") ?? [VNNI?.name, "amx.tdpbusd"];
    const options = { offered, kinds: "all", strategy: "genetic", threads };
    const [comparison, place] = given.get("finals")?.split(" ") ?? [];
    const imported = given.has("imported");
    const theirs = join(this.folder, `theirs ${this.ids.size}`);
    const db = imported
      ? openDatabase(`${theirs}.db`, { key: `${theirs}.key` })
      : openDatabase(join(this.folder, file));
    try {
      const run = this.runOf(given.get("run"), () =>
        beginRun(db, { workload, environment, seed: this.ids.size, options, budget: {}, started: at, process: 1 }),
      );
      const id = recordTrial(db, {
        ...newTrial(1, {
          workload,
          environment,
          conditions: { threads, cache: given.has("flushed") ? "flushed" : "warm" },
        }),
        trial: microseconds === undefined ? tried : { ...tried, prediction },
        ...(intrinsic && { intrinsic }),
        ...(run !== undefined && { run }),
        ...(comparison !== undefined && { finals: { comparison, place: Number(place) } }),
      });
      const count = [...this.ids.keys()].filter((name) => name.startsWith("trial")).length + 1;
      this.ids.set(`trial-${`${count}`.padStart(6, "0")}`, id);
      if (imported) this.import(file, db);
    } finally {
      db.close();
    }
  }

  private import(file: string, from: Database): void {
    const db = openDatabase(join(this.folder, file));
    importLines(db, exportLines(from));
    db.close();
  }

  private runOf(name: string | undefined, begin: () => string): string | undefined {
    if (name === undefined) return undefined;
    const standIn = `run-${name.padStart(8, "0")}`;
    const known = this.ids.get(standIn) ?? begin();
    this.ids.set(standIn, known);
    return known;
  }

  /** A line with the ids and the folder that it stands for. */
  meant(line: string): string {
    return [...this.ids].reduce(
      (text, [name, id]) => text.replaceAll(name, id),
      line.replaceAll("@/", `${this.folder}/`),
    );
  }

  /** A text with stand-ins for ids and the folder. */
  told(text: string): string {
    return [...this.ids]
      .reduce((all, [name, id]) => all.replaceAll(id, name).replaceAll(id.slice(0, 12), name), text)
      .replaceAll(`${this.folder}/`, "@/");
  }
}
