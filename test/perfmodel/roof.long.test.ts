/**
 * @file Rooflines are lower bounds: no right calibration is contradicted, and a wrong one is, wherever they are shown.
 */

import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { evaluateIndex, pointsOf } from "../../abstraction/affine.ts";
import type { Candidate } from "../../abstraction/candidate.ts";
import { type Computation, extentsOf, inputsOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { accessesIn, printExpr } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Memory } from "../../abstraction/machine.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { best, openDatabase, recordCalibration, recordTrial } from "../../db/index.ts";
import { plainSchedule } from "../../mapper/schedule/mapped.ts";
import type { Calibration } from "../../perfmodel/calibrate.ts";
import { type Bound, boundsOn, brokenBound, neededPoints } from "../../perfmodel/roof.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { boundsOf } from "../../session/calibrate/contradiction.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { commandLine } from "../support/command-line.ts";
import { CONV, measured, newTrial, trial, VNNI, workloadNamed, workshop } from "../support/database.ts";
import { randomComputation, SMALL_INTRINSICS } from "../support/random-computation.ts";
import { inFull } from "../support/slow.ts";
import { mappingsOnto, stated } from "../support/subjects.ts";

const CASES = inFull(6000, 600);

const figure = (median: number) => ({ median, spread: 0 });
const memory = (footprintBytes: number, rate: number) => ({
  footprintBytes,
  readBytesPerCycle: figure(rate),
  writeBytesPerCycle: figure(rate),
  copyBytesPerCycle: figure(rate),
});
/** One cycle a nanosecond; an issue of vpdpbusd a cycle, `slow` times as many when the machine was busy. */
const calibration = (slow = 1): Calibration => ({
  machine: "Testium 9000",
  clockHz: figure(1e9),
  loadsPerCycle: figure(2),
  memory: { l1: memory(1 << 14, 64), l2: memory(1 << 20, 32), dram: memory(1 << 28, 4) },
  intrinsics: {
    "avx512.vpdpbusd": {
      issueCycles: figure(slow),
      latencyCycles: figure(5),
      loadCycles: { a: figure(1), b: figure(1) },
      storeCycles: figure(1),
    },
  },
  scalar: {},
});
const cache = (name: string, bytes: number): Memory => ({
  name,
  kind: "cache",
  at: "core",
  count: 2,
  bytes: { value: bytes, source: "made up" },
  bandwidth: [],
});
const CACHES = {
  memories: [{ ...cache("dram", 2 ** 34), kind: "addressed" as const }, cache("l2", 2 ** 21), cache("l1", 2 ** 15)],
};
const secondsOf = (bounds: readonly Bound[], name: string): number => bounds.find((b) => b.name === name)?.seconds ?? 0;
const vnni = (): Intrinsic => VNNI ?? expect.fail("the table lacks avx512.vpdpbusd");

/** By going through every point. */
function counted(computation: Computation): { points: number; bytes: number } {
  const { equation, axes, tensors } = computation;
  const names = axes.map((a) => a.name);
  const elements = new Map(inputsOf(computation).map((t) => [t.name, new Set<string>()]));
  let points = 0;
  for (const point of pointsOf(names, extentsOf(computation))) {
    if (equation.where !== undefined && evaluateIndex(equation.where, point) === 0) continue;
    let inside = true;
    for (const { tensor, index } of accessesIn(equation.value)) {
      const at = index.map((e) => evaluateIndex(e, point));
      if (at.some((i, d) => i < 0 || i >= (tensors[tensor]?.dims[d]?.extent ?? 0))) inside = false;
      else elements.get(tensor)?.add(at.join());
    }
    if (inside) points++;
  }
  const bytes = inputsOf(computation).reduce((sum, t) => sum + bytesOf(t.dtype) * (elements.get(t.name)?.size ?? 0), 0);
  return { points, bytes };
}

describe("the least time for a computation", () => {
  it("counts the points that no kernel can skip, and no more bytes than are read", () => {
    let padded = 0;
    let exact = 0;
    for (let seed = 1; seed <= CASES; seed++) {
      const random = seededRandom(seed);
      const intrinsic = SMALL_INTRINSICS[seed % SMALL_INTRINSICS.length] ?? expect.fail("no small instruction");
      const computation = randomComputation(random, intrinsic);
      const { points, bytes } = counted(computation);
      expect([seed, neededPoints(computation)]).toEqual([seed, points]);
      const bounds = boundsOn(computation, { intrinsic: undefined, threads: 1 }, calibration(), CACHES);
      const read = Math.round(secondsOf(bounds, "l1") * 64e9);
      expect(read, `seed ${seed}`).toBeLessThanOrEqual(bytes);
      if (points < computation.axes.reduce((product, a) => product * a.extent, 1)) padded++;
      if (read === bytes) exact++;
    }
    expect(padded).toBeGreaterThan(100);
    expect(exact).toBeGreaterThan(200);
  });

  it("is that of the issues, or of the data that caches cannot keep", () => {
    const on = (name: string, given: Record<string, number>, threads = 1): readonly Bound[] =>
      boundsOn(workloadNamed(name, given, "u8s8").computation, { intrinsic: vnni(), threads }, calibration(), CACHES);
    const product = on("matmul", { m: 512, n: 512, k: 512 });
    expect(product[0]).toEqual({ name: "avx512.vpdpbusd", kind: "instruction", seconds: 512 ** 3 / 64 / 1e9 });
    // 16 MiB and a little of weights, of which the caches keep 2 MiB and 32 KiB.
    const vector = on("matvec", { m: 4096, k: 4096 });
    expect(vector[0]).toMatchObject({ name: "dram", kind: "memory" });
    expect(vector[0]?.seconds).toBeCloseTo((2 ** 24 + 4096 - 2 ** 21 - 2 ** 15) / 4e9, 9);
    // Two threads have two of each cache and twice the rates.
    const both = on("matvec", { m: 4096, k: 4096 }, 2);
    expect(both[0]?.seconds).toBeCloseTo((2 ** 24 + 4096 - 2 ** 22 - 2 ** 16) / 8e9, 9);
    // Every other row and column of a strided window of one element is never read.
    const strided = on("conv2d", { c: 64, k: 1, h: 56, w: 56, r: 1, s: 1, pad: 0, stride: 2 });
    expect(secondsOf(strided, "l1")).toBeCloseTo((64 * 28 * 28 + 64) / 64e9, 12);
    // Three of four products of an upsampling by two are with nothing.
    const upsampled = workloadNamed("transposed-conv2d", { c: 8, k: 8, h: 8, w: 8, r: 2, s: 2, stride: 2, pad: 0 });
    expect(neededPoints(upsampled.computation)).toBe((8 * 8 * 16 * 16 * 2 * 2) / 4);
    const triangle = stated("c[i,j] += a[i,k] * b[k,j] where j <= i --i 4096 --j 4096 --k 64");
    expect(neededPoints(triangle)).toBe(((4096 * 4097) / 2) * 64);
  });

  it("is broken by a time that no noise explains", () => {
    const bounds: Bound[] = [
      { name: "amx", kind: "instruction", seconds: 1 },
      { name: "l2", kind: "memory", seconds: 1.2 },
    ];
    expect(brokenBound(bounds, 1.01)).toBeUndefined();
    expect(brokenBound(bounds, 0.98)?.name).toBe("l2");
    expect(brokenBound(bounds.slice(0, 1), 0.96)).toBeUndefined();
    expect(brokenBound(bounds.slice(0, 1), 0.95)?.name).toBe("amx");
  });
});

describe("a calibration that a kernel outran", () => {
  const shop = workshop();
  afterAll(() => shop.remove());
  let compiler: Compiler | undefined;
  beforeAll(async () => {
    const found = await findCompiler();
    compiler = found.status === "found" ? found : undefined;
  });

  // 112,869,376 products, 64 an issue: 1764 us at an issue a cycle, 2434 us as it was calibrated.
  const MICROSECONDS = 1764;
  let id = "";
  /** A mapping that the model can explain. */
  function candidate(): Candidate {
    const [mapping] = mappingsOnto(CONV.computation, vnni());
    if (!mapping) expect.fail("the convolution does not map");
    const operands = Object.entries(mapping.binding).map(([o, bound]) => [o, printExpr(bound)]);
    const schedule = plainSchedule(mapping);
    return {
      kind: "mapping",
      intrinsic: vnni().name,
      matching: mapping.matching,
      operands: Object.fromEntries(operands),
      schedule,
    };
  }
  /** A database of this very machine. */
  function database(name: string, slow: number, found: Compiler): string {
    const file = shop.path(name);
    const db = openDatabase(file);
    const environment = environmentOf({ compiler: found });
    recordCalibration(db, { environment, data: calibration(slow), at: Date.UTC(2026, 10, 21) });
    id = recordTrial(db, newTrial(1, { environment, trial: trial(measured(MICROSECONDS), 1, candidate()) }));
    recordTrial(db, newTrial(1, { environment, trial: trial(measured(9e9)), workload: workloadNamed("matmul") }));
    db.close();
    return file;
  }
  const SAID =
    /the calibration of 2026-11-21 is contradicted by 1 of 2 kernels: conv2d c 64 .*? \(trial (\w{12})\) ran 1\.38 times as fast as the rate of avx512\.vpdpbusd in it allows; automap calibrate --force --db (.*?) measures it again/;

  it.each(["report", "explain", "calibrate", "doctor"])(
    "is reported by automap %s, with the command that calibrates again",
    async (command) => {
      if (!compiler) return;
      const [wrong, right] = [database("wrong.db", 1.38, compiler), database("right.db", 1, compiler)];
      const line = (file: string): string[] => {
        if (command === "report") return ["report", "--db", file, "-o", "-"];
        if (command === "explain") return ["explain", id, "--db", file];
        return [command, "--db", file];
      };
      const told = async (file: string): Promise<string> => {
        const { out, err } = await commandLine(line(file));
        return `${out}\n${err}`.replaceAll(/\s+/g, " ");
      };
      const [, trialId, file] = SAID.exec(await told(wrong)) ?? [];
      expect([trialId, file]).toEqual([id.slice(0, 12), wrong]);
      expect(await told(right)).not.toMatch(/contradicted by/);
    },
  );

  it("is not seen in a kernel of Winograd's transforms, which issues fewer products than its equation has", () => {
    if (!compiler) return;
    const db = openDatabase(database("forms.db", 1.38, compiler), { readonly: true });
    const record = best(db).find((found) => found.id === id) ?? expect.fail("the trial is gone");
    db.close();
    const form: Candidate = {
      kind: "winograd",
      intrinsic: record.candidate.intrinsic,
      schedule: { outputs: 4, images: 1, rows: 4, windows: 6, vectors: 4, threads: 1 },
    };
    const kinds = (candidate: Candidate) =>
      boundsOf({ ...record, candidate }, calibration(), CACHES).map(({ kind }) => kind);
    expect(kinds(record.candidate)).toContain("instruction");
    expect(kinds(form)).toEqual(Object.keys(calibration().memory).map(() => "memory"));
  });

  it("is part of the JSON documents", async () => {
    if (!compiler) return;
    const file = database("document.db", 1.38, compiler);
    const found = { kernels: 1, of: 2, bound: "avx512.vpdpbusd", kind: "instruction", trial: id };
    const document = async (...line: string[]) =>
      JSON.parse((await commandLine([...line, "--json", "--db", file])).out);
    expect((await document("calibrate")).contradicted).toMatchObject(found);
    expect((await document("explain", id)).calibrationContradicted).toMatchObject(found);
    const { findings } = await document("doctor");
    expect(findings.find((f: { subject: string }) => f.subject === "calibration")).toMatchObject({
      status: "doubtful",
      remedy: `automap calibrate --force --db ${file}`,
    });
  });

  it("is reported by a search that would use it", async () => {
    if (!compiler) return;
    const file = database("tuned.db", 1.38, compiler);
    const notices: string[] = [];
    await tuneComputation(
      { computation: workloadNamed("matmul", { m: 16, n: 16, k: 16 }).computation },
      { database: file, trials: 1, seconds: 5, onNotice: (text) => notices.push(text) },
    );
    expect(notices.filter((text) => SAID.test(text))).toHaveLength(1);
  });
});
