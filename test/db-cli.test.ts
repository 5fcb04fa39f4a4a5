/** @file `automap db`: what it prints, what it refuses, and with which exit code. */

import { writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it, vi } from "vitest";
import type { Measurement } from "../abstraction/trial.ts";
import { Cli } from "../cli/command.ts";
import { register } from "../cli/db.ts";
import { reportError } from "../cli/output.ts";
import { openDatabase, recordTrial, type World } from "../db/index.ts";
import { INTRINSICS } from "../intrinsics/index.ts";
import { commandLine } from "./support/command-line.ts";
import { candidate, MACHINE, measured, newTrial, tamper, trial, workloadNamed, workshop } from "./support/database.ts";

const shop = workshop();
const FILE = shop.path("automap.db");
/** Ids in the order recorded. */
const ids: string[] = [];

/** A trial at some hour of a day. */
const on = (hour: number): number => Date.UTC(2026, 10, 21, hour);

beforeAll(() => {
  const db = openDatabase(FILE);
  const prediction = {
    seconds: 55e-6,
    uncorrectedSeconds: 50e-6,
    levels: [{ level: "l1", trips: 4, inner: 10, read: 3, write: 1, bound: "inner" as const }],
  };
  const tuned = newTrial(61.25, { trial: { ...trial(measured(61.25), on(9)), prediction } });
  const wide = workloadNamed("conv2d", { c: 256, k: 64, h: 14, w: 14 }, "u8s8");
  const matmul = workloadNamed("matmul", { m: 128, n: 64, k: 256 }, "f16->f16");
  const { intrinsic: _, ...without } = newTrial(1);
  ids.push(
    recordTrial(db, tuned),
    recordTrial(db, newTrial(70, { trial: trial({ status: "crashed", log: 'signal 11\n"here", twice' }, on(10)) })),
    recordTrial(db, newTrial(500, { workload: wide, trial: trial(measured(500), on(11)) })),
    recordTrial(db, { ...without, workload: matmul, trial: trial(measured(8), on(12), candidate(1, "amx.tdpbusd")) }),
  );
  db.close();
});
afterAll(() => shop.remove());

const HERE: World = { environment: MACHINE, intrinsics: INTRINSICS };

/** What a command prints on stdout and stderr, and its exit code. */
async function automap(
  line: string,
  file = FILE,
  world: World = HERE,
): Promise<{ out: string; err: string; code: number }> {
  const said = { out: "", err: "", code: 0 };
  const keep =
    (stream: "out" | "err") =>
    (text: unknown): boolean => {
      said[stream] += String(text);
      return true;
    };
  const spies = [
    vi.spyOn(process.stdout, "write").mockImplementation(keep("out")),
    vi.spyOn(process.stderr, "write").mockImplementation(keep("err")),
  ];
  try {
    const program = new Cli("automap").exitOverride();
    register(program.command("db"), async () => world);
    await program.parseAsync([...line.split(" "), "--db", file], { from: "user" });
    said.code = program.code;
  } catch (error) {
    said.code = reportError(error);
  } finally {
    for (const spy of spies) spy.mockRestore();
  }
  const tidy = (text: string): string =>
    ids
      .reduce((all, id, i) => all.replaceAll(id, `ID${i}`).replaceAll(id.slice(0, 12), `ID${i}`), text)
      .replaceAll(shop.path(""), "");
  return { out: tidy(said.out), err: tidy(said.err), code: said.code };
}

/** The trials of a JSON document, by the number in their stand-in id. */
async function found(line: string): Promise<string[]> {
  const { out, code } = await automap(`db query ${line} --json`);
  expect(code).toBe(0);
  return (JSON.parse(out) as { trials: { id: string }[] }).trials.map((t) => t.id);
}

describe("automap db query", () => {
  it("prints a table, fastest first and failures last", async () => {
    const { out, err, code } = await automap("db query");
    expect({ err, code }).toEqual({ err: "", code: 0 });
    expect(out).toMatchInlineSnapshot(`
      "id            workload  shape                                     types      target  threads  instruction      time      predicted  at (UTC)
      ID3  matmul    m 128  n 64  k 256                        f16->f16   native  1        amx.tdpbusd      8 us                 2026-11-21T12:00
      ID0  conv2d    c 64  h 56  w 56  k 64  r 3  s 3  pad 1   u8s8->s32  native  1        avx512.vpdpbusd  61.25 us  55 us      2026-11-21T09:00
      ID2  conv2d    c 256  h 14  w 14  k 64  r 3  s 3  pad 1  u8s8->s32  native  1        avx512.vpdpbusd  500 us               2026-11-21T11:00
      ID1  conv2d    c 64  h 56  w 56  k 64  r 3  s 3  pad 1   u8s8->s32  native  1        avx512.vpdpbusd  crashed              2026-11-21T10:00
      "
    `);
  });

  it("prints a JSON document", async () => {
    const { out } = await automap("db query --c 64 --status ok --json");
    expect(JSON.parse(out)).toMatchInlineSnapshot(`
      {
        "schemaVersion": 1,
        "trials": [
          {
            "at": "2026-11-21T09:00:00.000Z",
            "cache": "warm",
            "dtype": "u8s8",
            "epilogue": null,
            "id": "ID0",
            "interval": [
              58.1875,
              64.3125,
            ],
            "intrinsic": "avx512.vpdpbusd",
            "layout": null,
            "microseconds": 61.25,
            "name": null,
            "operator": "conv2d",
            "predictedMicroseconds": 55,
            "provenance": "here",
            "run": null,
            "shape": {
              "c": 64,
              "dilation": 1,
              "groups": 1,
              "h": 56,
              "k": 64,
              "n": 1,
              "p": 56,
              "pad": 1,
              "q": 56,
              "r": 3,
              "s": 3,
              "stride": 1,
              "w": 56,
            },
            "status": "ok",
            "target": "native",
            "threads": 1,
            "types": "u8s8->s32",
            "workload": "conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32",
          },
        ],
      }
    `);
  });

  it("prints comma-separated values", async () => {
    expect((await automap("db query --csv")).out).toMatchInlineSnapshot(`
      "id,run,name,workload,operator,k,m,n,c,p,q,r,s,dilation,groups,h,pad,stride,w,dtype,types,layout,epilogue,threads,cache,target,provenance,intrinsic,status,microseconds,low,high,predictedMicroseconds,at
      ID3,,,"matmul m 128 n 64 k 256, f16->f16",matmul,256,128,64,,,,,,,,,,,,f16->f16,f16->f16,,,1,warm,native,here,amx.tdpbusd,ok,8,7.6,8.4,,2026-11-21T12:00:00.000Z
      ID0,,,"conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32",conv2d,64,,1,64,56,56,3,3,1,1,56,1,1,56,u8s8,u8s8->s32,,,1,warm,native,here,avx512.vpdpbusd,ok,61.25,58.1875,64.3125,55,2026-11-21T09:00:00.000Z
      ID2,,,"conv2d c 256 h 14 w 14 k 64 r 3 s 3 pad 1, u8s8->s32",conv2d,64,,1,256,14,14,3,3,1,1,14,1,1,14,u8s8,u8s8->s32,,,1,warm,native,here,avx512.vpdpbusd,ok,500,475,525,,2026-11-21T11:00:00.000Z
      ID1,,,"conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32",conv2d,64,,1,64,56,56,3,3,1,1,56,1,1,56,u8s8,u8s8->s32,,,1,warm,native,here,avx512.vpdpbusd,crashed,,,,,2026-11-21T10:00:00.000Z
      "
    `);
  });

  it.each<[string, string[]]>([
    ["--op c2d", ["ID0", "ID2", "ID1"]],
    ["--op matmul", ["ID3"]],
    ["--op depthwise-conv2d", []],
    ["--stride 1 --pad 1..", ["ID0", "ID2", "ID1"]],
    ["--groups 2", []],
    ["--dtype u8s8 --c 64..256", ["ID0", "ID2", "ID1"]],
    ["--c=65..", ["ID2"]],
    ["--c ..65 --limit 1", ["ID0"]],
    ["--h 14", ["ID2"]],
    ["--dtype f16", ["ID3"]],
    ["--dtype f16->f32", []],
    ["--intrinsic vnni", ["ID0", "ID2", "ID1"]],
    ["--intrinsic amx.tdpbusd", ["ID3"]],
    ["--status crashed", ["ID1"]],
    ["--since 2026-11-21T11:00", ["ID3", "ID2"]],
    ["--until 2026-11-21T10:00Z", ["ID0", "ID1"]],
    ["--until 2026-11-21 --sort at", ["ID3", "ID2", "ID1", "ID0"]],
    ["--until 2026-11-20", []],
    ["--sort predicted --limit 1", ["ID0"]],
    ["--top 1", ["ID3", "ID0", "ID2"]],
    ["--target native --limit 1", ["ID3"]],
  ])("filters by %s", async (line, expected) => {
    expect(await found(line)).toEqual(expected);
  });

  it("says on stderr that nothing matches, and exits with 0", async () => {
    expect(await automap("db query --until 2026-11-20")).toEqual({
      out: "",
      err: "automap: no trial matches\n",
      code: 0,
    });
    expect((await automap("db query --until 2026-11-20 --json")).out).toBe(
      '{\n  "schemaVersion": 1,\n  "trials": []\n}\n',
    );
  });

  it.each([
    ["--status broken", "unknown --status\n  known: ok, wrong, compile-failed"],
    ["--sort speed", "unknown --sort; it is one of time, predicted, at"],
    ["--top 0", "--top must be a positive integer"],
    ["--limit x", "--limit must be a positive integer"],
    ["--target h200", 'no record is of a target "h200"'],
    ["--c x", '--c must be an extent or a range, got "x"'],
    ["--c 9..3", "--c: the range 9..3 is empty\n  --c 3..9"],
    ["--c", "--c needs a value, for example --c 64 or --c 64..256"],
    ["--c 1 --c 2", "--c is given twice"],
    ["--tpo 5", '--tpo is no option, and no record has an axis or parameter of that name\n  did you mean "--top"?'],
    ["--op matmull", 'unknown operator "matmull"\n  did you mean "matmul"?'],
    ["--dtype u9", 'unknown data types "u9"\n  did you mean "u8"?'],
    ["--intrinsic nope", 'no intrinsic, family or feature "nope"'],
    ["--since yesterday", '--since: "yesterday" is no time\n  for example 2026-11-21'],
    ["--since 2026-11-21 --until 2026-11-01", "--since 2026-11-21 is not before --until 2026-11-01"],
    ["--json --csv", "--json and --csv exclude each other"],
    ["conv2d", 'unexpected argument "conv2d"\n  extents are given as --c 64'],
  ])("refuses %s as wrong usage", async (line, message) => {
    const { out, err, code } = await automap(`db query ${line}`);
    expect({ out, code }).toEqual({ out: "", code: 2 });
    expect(err).toContain(`automap: ${message}`);
  });

  it("says how to make a missing database", async () => {
    const { err, code } = await automap("db query", shop.path("missing.db"));
    expect({ err, code }).toMatchInlineSnapshot(`
      {
        "code": 2,
        "err": "automap: there is no database at /missing.db
        automap tune makes one: automap tune conv2d --dtype u8s8 --db /missing.db; or name yours
      ",
      }
    `);
    writeFileSync(shop.path("page.html"), "<html>".repeat(200));
    expect((await automap("db best", shop.path("page.html"))).code).toBe(2);
  });
});

describe("automap db best", () => {
  it("prints the fastest trial of each computation", async () => {
    const { out } = await automap("db best --json");
    expect((JSON.parse(out) as { trials: { id: string }[] }).trials.map((t) => t.id)).toEqual(["ID3", "ID0", "ID2"]);
    expect((await automap("db best --op conv2d --c 256")).out).toMatchInlineSnapshot(`
      "id            workload  shape                                     types      target  threads  instruction      time    predicted  at (UTC)
      ID2  conv2d    c 256  h 14  w 14  k 64  r 3  s 3  pad 1  u8s8->s32  native  1        avx512.vpdpbusd  500 us             2026-11-21T11:00
      "
    `);
  });
});

describe("automap db show", () => {
  it("prints one record whole", async () => {
    const { out, code } = await automap(`db show ${ids[0]?.slice(0, 8)}`);
    expect(code).toBe(0);
    expect(out.replace(/declaration \w+/, "declaration HASH")).toMatchInlineSnapshot(`
      "trial ID0   2026-11-21T09:00:00.000Z

      workload
        label       conv2d c 64 h 56 w 56 k 64 r 3 s 3 pad 1, u8s8->s32
        operator    conv2d
        equation    out[n,k,p,q] += s32(in[n,c,p+r-1,q+s-1]) * s32(w[k,c,r,s])
        extents     c 64  k 64  n 1  p 56  q 56  r 3  s 3
        parameters  c 64  dilation 1  groups 1  h 56  k 64  n 1  pad 1  r 3  s 3  stride 1  w 56
        types       u8s8->s32

      candidate
        instruction  avx512.vpdpbusd (declaration HASH)
        mapping      k <- c  n <- k
        operands     a in, b w, c out
        order        p q k
        block        q 1
        placement    in padded, w tiled
        threads      1

      environment
        target            native
        CPU               Testium 9000, 2 cores
        instruction sets  amx_int8 avx512_vnni avx512f
        compiler          /usr/bin/g++ 12.2.0
        flags             -O3 -march=native
        kernel            Linux 6.1.0 x64
        Node              v20.20.2
        automap           0.1.0

      conditions
        threads  1
        cache    warm

      measured
        status   ok
        median   61.25 us   95 % within 58.19 us to 64.31 us
        samples  3, 55.13 us to 67.38 us

      predicted
        time         55 us   0.90 of the measured
        uncorrected  50 us
        l1           4 trips   cycles of one: inner 10   read 3   write 1   bound by inner

      proof
        origin       measured here
        record       its id is the hash of its facts
        output       checked against the equation in every element, on random and on extreme data, before it was timed
        instruction  12 in the disassembly
        declaration  as it is declared now
        here         this machine is the record's world

      mapping
        cannot be drawn: conv2d does not bind to avx512.vpdpbusd as a = in, b = w, c = out

      every sample: automap db show ID0 --json --db /automap.db
      "
    `);
  });

  it("prints the log of a failure", async () => {
    expect((await automap(`db show ${ids[1]}`)).out).toContain('  log     signal 11\n          "here", twice');
  });

  it("prints every sample as JSON", async () => {
    const { out } = await automap(`db show ${ids[0]} --json`);
    const { schemaVersion, trials } = JSON.parse(out) as { schemaVersion: number; trials: unknown[] };
    expect(schemaVersion).toBe(1);
    expect(trials).toHaveLength(1);
    expect(trials[0]).toMatchObject({
      id: "ID0",
      shape: { c: 64, p: 56 },
      environment: { cpu: MACHINE.cpu },
      measurement: measured(61.25),
      prediction: { uncorrectedSeconds: 50e-6 },
    });
  });

  it("says when there is no such record", async () => {
    expect(await automap("db show 00000000")).toMatchInlineSnapshot(`
      {
        "code": 2,
        "err": "automap: /automap.db holds no trial 00000000
        automap db query --db /automap.db lists them
      ",
        "out": "",
      }
    `);
  });
});

describe("automap db best with --trust", () => {
  const ELSEWHERE: World = {
    environment: { ...MACHINE, kernel: "Linux 7.0", node: "v24.1.0" },
    intrinsics: INTRINSICS,
  };

  it("leaves out records of another environment, says which fields differ and how to use them", async () => {
    expect(await automap("db best --op conv2d", FILE, ELSEWHERE)).toMatchInlineSnapshot(`
      {
        "code": 0,
        "err": "automap: no trial matches
      automap: 2 stale trials were left out, they differ in kernel, node; automap db stale --db /automap.db lists them, --trust isa or --trust any uses them
      ",
        "out": "",
      }
    `);
    const { out } = await automap("db best --op conv2d --json", FILE, ELSEWHERE);
    expect(JSON.parse(out)).toEqual({ schemaVersion: 1, trust: "exact", trials: [], stale: [], leftOut: 2 });
  });

  it("names the fields that differ when such records are used", async () => {
    expect((await automap("db best --op conv2d --trust isa", FILE, ELSEWHERE)).out).toMatchInlineSnapshot(`
      "id            workload  shape                                     types      target  threads  instruction      time      predicted  at (UTC)          differs
      ID0  conv2d    c 64  h 56  w 56  k 64  r 3  s 3  pad 1   u8s8->s32  native  1        avx512.vpdpbusd  61.25 us  55 us      2026-11-21T09:00  kernel, node
      ID2  conv2d    c 256  h 14  w 14  k 64  r 3  s 3  pad 1  u8s8->s32  native  1        avx512.vpdpbusd  500 us               2026-11-21T11:00  kernel, node
      "
    `);
    const { out } = await automap("db best --op conv2d --c 256 --trust any --json", FILE, ELSEWHERE);
    expect(JSON.parse(out)).toMatchObject({
      trials: [{ id: "ID2" }],
      stale: [
        {
          id: "ID2",
          differs: [
            { field: "kernel", recorded: "Linux 6.1.0 x64", here: "Linux 7.0" },
            { field: "node", recorded: "v20.20.2", here: "v24.1.0" },
          ],
        },
      ],
      leftOut: 0,
    });
    expect((await automap("db best --trust me")).err).toContain('unknown --trust "me"\n  it is one of exact, isa, any');
  });

  it("lists stale records, field by field", async () => {
    expect((await automap("db stale --op matmul", FILE, ELSEWHERE)).out).toMatchInlineSnapshot(`
      "id            workload  shape               types     target  threads  instruction  time  predicted  at (UTC)          differs
      ID3  matmul    m 128  n 64  k 256  f16->f16  native  1        amx.tdpbusd  8 us             2026-11-21T12:00  kernel: Linux 6.1.0 x64 there, Linux 7.0 here; node: v20.20.2 there, v24.1.0 here
      "
    `);
    expect(await automap("db stale")).toEqual({ out: "", err: "automap: no trial matches\n", code: 0 });
    const { out } = await automap("db stale --json", FILE, ELSEWHERE);
    const { trials } = JSON.parse(out) as { trials: { differs: unknown[] }[] };
    expect(trials.map((t) => t.differs.length)).toEqual([2, 2, 2, 2]);
  });
});

describe("automap db compare", () => {
  const file = shop.path("pairs.db");
  const pair: string[] = [];
  beforeAll(() => {
    const db = openDatabase(file);
    const samples = (median: number): Measurement => ({
      status: "ok",
      samples: Array.from({ length: 9 }, (_, i) => median * (1 + (i - 4) / 1000)),
      median,
      interval: [median * 0.999, median * 1.001],
      instructions: 3,
    });
    pair.push(
      recordTrial(db, newTrial(1, { trial: trial(samples(50e-6), 1) })),
      recordTrial(db, newTrial(1, { trial: trial(samples(60e-6), 2) })),
      recordTrial(
        db,
        newTrial(1, {
          trial: trial(samples(50.02e-6), 3, candidate(1, "avx512.vpdpbusd", 2)),
          conditions: { threads: 2, cache: "warm" },
        }),
      ),
      recordTrial(db, newTrial(1, { trial: trial({ status: "crashed", log: "" }, 4) })),
      recordTrial(db, newTrial(1, { workload: workloadNamed("matmul"), trial: trial(measured(1000), 5) })),
    );
    db.close();
  });
  const compare = async (a: number, b: number, more = ""): Promise<{ out: string; err: string; code: number }> => {
    const said = await automap(`db compare ${pair[a]} ${pair[b]}${more}`, file);
    const tidy = (text: string): string =>
      pair.reduce((all, id, i) => all.replaceAll(id.slice(0, 12), `PAIR${i}`), text);
    return { ...said, out: tidy(said.out), err: tidy(said.err) };
  };

  it("gives the difference with its interval", async () => {
    expect((await compare(0, 1)).out).toMatchInlineSnapshot(`
      "a  PAIR0  avx512.vpdpbusd  50 us  95 % within 49.95 us to 50.05 us
      b  PAIR1  avx512.vpdpbusd  60 us  95 % within 59.94 us to 60.06 us

      b is 10 us (20.0 %) slower than a
      b - a is 10 us, 95 % within 9.78 us to 10.22 us
      "
    `);
    const { out } = await compare(1, 0, " --json");
    const { verdict, difference } = JSON.parse(out) as {
      verdict: string;
      difference: { microseconds: number; interval: [number, number]; ratio: number };
    };
    expect(verdict).toBe("b");
    expect(difference.microseconds).toBeCloseTo(-10, 6);
    expect(difference.interval[0]).toBeLessThan(-10);
    expect(difference.interval[1]).toBeGreaterThan(-10);
  });

  it("calls overlapping intervals a tie, and names the conditions that differ", async () => {
    const { out, err } = await compare(0, 2);
    expect(out).toContain("tie: the intervals overlap");
    expect(err).toBe("automap: not under the same conditions: threads 1 and 2\n");
  });

  it("refuses a trial without a time and one of another computation", async () => {
    expect(await compare(0, 3)).toMatchObject({
      code: 2,
      err: expect.stringContaining("has no time: it ended as crashed"),
    });
    expect(await compare(0, 4)).toMatchObject({ code: 2, err: expect.stringContaining("of different computations") });
  });
});

describe("automap db export, import, merge, verify and prune", () => {
  it("carry records from file to file", async () => {
    const [lines, copy] = [shop.path("all.jsonl"), shop.path("copy.db")];
    expect(await automap(`db export -o ${lines}`)).toEqual({ out: "", err: "9 lines written: /all.jsonl\n", code: 0 });
    expect((await automap(`db export -o ${lines}`)).code).toBe(2);
    expect((await automap("db export --op matmul")).out.split("\n")).toHaveLength(5);
    expect(await automap(`db import ${lines}`, copy)).toEqual({
      out: "/copy.db: 1 environment, 3 workloads, 4 trials; 0 known already\n",
      err: "",
      code: 0,
    });
    expect((await automap(`db merge ${FILE}`, copy)).out).toBe("/copy.db: nothing new; 8 known already\n");
    expect(await automap("db verify", copy)).toEqual({
      out: "/copy.db: 1 environment, 3 workloads, 0 runs, 4 trials, 0 calibrations; whole\n",
      err: "",
      code: 0,
    });
    expect((await automap("db query --json", copy)).out).toBe((await automap("db query --json")).out);
  });

  it("name each rejected line, and exit with 1", async () => {
    const lines = shop.path("bad.jsonl");
    writeFileSync(lines, '{"kind":"header","format":"automap-records","version":1}\n{"kind":"trial"}\nnonsense\n');
    expect(await automap(`db import ${lines}`, shop.path("none.db"))).toMatchInlineSnapshot(`
      {
        "code": 1,
        "err": "automap: /bad.jsonl:2: its field id is missing
      automap: /bad.jsonl:3: it is not a JSON object
      ",
        "out": "/none.db: nothing new; 0 known already; 2 lines rejected
      ",
      }
    `);
  });

  it("find a changed number, and exit with 4", async () => {
    const path = shop.path("changed.db");
    const db = openDatabase(path);
    recordTrial(db, newTrial(60));
    tamper(db.sqlite, "UPDATE trials SET median = 1e-9");
    db.close();
    const { out, code } = await automap("db verify", path);
    expect(code).toBe(4);
    expect(out).toMatch(/^trial \w{12} {2}its facts make the id \w{12}: something changed it\n.*1 problem\n$/);
  });

  it("delete only with --yes, and only the records a filter selects", async () => {
    const path = shop.path("pruned.db");
    await automap(`db merge ${FILE}`, path);
    expect(await automap("db prune", path)).toMatchObject({ code: 2, err: expect.stringContaining("a filter names") });
    const counted = await automap("db prune --status crashed", path);
    expect(counted.out).toBe("/pruned.db: 1 trial, 0 runs, 0 workloads, 0 environments would go; --yes deletes them\n");
    expect(await automap("db prune --status crashed --yes", path)).toMatchObject({ code: 0 });
    expect(JSON.parse((await automap("db query --json", path)).out)).toMatchObject({
      trials: [{ id: "ID3" }, { id: "ID0" }, { id: "ID2" }],
    });
  });
});

it("lists the columns that SQL finds, each with its type", async () => {
  const all = await commandLine("db columns --json");
  const { columns } = JSON.parse(all.out) as { columns: { table: string; column: string; type: string }[] };
  const db = openDatabase(shop.path("columns.db"));
  for (const { table, column, type } of columns) {
    const declared = db.sqlite.prepare(`SELECT type FROM pragma_table_info('${table}') WHERE name = ?`).get(column);
    expect({ table, column, ...(declared as object) }).toEqual({
      table,
      column,
      type: type === "JSON" ? "TEXT" : type,
    });
  }
  db.close();
  expect((await commandLine("db columns runs")).out).toContain("runs   seed");
  expect(await commandLine("db columns run")).toMatchObject({
    code: 2,
    err: expect.stringContaining('did you mean "runs"'),
  });
});
