/** @file A round of kernels on the CPU's workplace: what its time leaves of it, and what is done beside it. */

import { afterAll, beforeAll, expect, it } from "vitest";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Compiled, Compiler } from "../../runtime/compiler.ts";
import type { Runner } from "../../runtime/measure.ts";
import { coresHere } from "../../runtime/processor.ts";
import { type Bench, openWorkplace } from "../../session/tune/workplace.ts";
import { nativeTarget } from "../../targets/index.ts";
import { fakeRunner, took } from "../support/fake-runner.ts";
import { compilerHere } from "../support/here.ts";
import { stated } from "../support/subjects.ts";

const matmul = stated("c[i,j] += a[i,k] * b[k,j] --i 16 --j 16 --k 16");
const DONE: Compiled = { status: "compiled", file: "/nowhere/kernel.so", seconds: 0, cached: true };
const never = new AbortController().signal;
const quiet = { soon: never, time: never, stop: never, needsOne: false };

let compiler: Compiler;
const closing: (() => Promise<void>)[] = [];
beforeAll(async () => {
  compiler = await compilerHere();
});
afterAll(() => Promise.all(closing.map((close) => close())));

/** Kernels that are told apart by their text; the fake machine reads nothing else of them. */
const kernels = [1, 2, 3, 4].map((n) => ({ source: `${n}`, promises: undefined })) as unknown as Kernel[];

async function benchOf(changed: Partial<Runner>): Promise<Bench> {
  const fake = fakeRunner(compiler, { alone: ({ source }) => took(Number(source)), inTurns: () => [] });
  const place = await openWorkplace(nativeTarget(), { threads: 1, runner: { ...fake, ...changed } });
  if (place.status === "environment") throw new Error(place.what);
  closing.push(place.close);
  return place.bench(matmul, { announce: () => undefined });
}

async function mediansOf(answers: ReturnType<Bench["measure"]>): Promise<(number | undefined)[]> {
  const medians: (number | undefined)[] = [];
  for await (const answer of await answers) medians.push(answer?.status === "ok" ? answer.median : undefined);
  return medians;
}

it("what is compiled when the time is nearly up is measured, and nothing else is compiled", async () => {
  const soon = new AbortController();
  const stopped: string[] = [];
  const compile: Runner["compile"] = ({ source }, signal) => {
    if (source === "2" || source === "4") return Promise.resolve(DONE);
    return new Promise((_, reject) =>
      signal?.addEventListener("abort", () => {
        stopped.push(source);
        reject(new Error("stopped"));
      }),
    );
  };
  const bench = await benchOf({ compile });
  setImmediate(() => soon.abort());
  const answers = bench.measure(kernels, { ...quiet, soon: soon.signal });
  expect(await mediansOf(answers)).toEqual([undefined, 2, undefined, 4]);
  expect(stopped).toEqual(["1", "3"]);
});

it("nothing is measured when nothing is compiled by then, unless a first answer is needed", async () => {
  const soon = AbortSignal.abort();
  const compile: Runner["compile"] = ({ source }) =>
    new Promise((resolve) => {
      if (source === "1") setImmediate(() => resolve(DONE));
    });
  const bench = await benchOf({ compile });
  expect(await mediansOf(bench.measure(kernels, { ...quiet, soon }))).toEqual([
    undefined,
    undefined,
    undefined,
    undefined,
  ]);
  expect(await mediansOf(bench.measure(kernels, { ...quiet, soon, needsOne: true }))).toEqual([
    1,
    undefined,
    undefined,
    undefined,
  ]);
});

it.each([
  [
    "beside the kernels where they leave a core idle",
    coresHere().length - 1,
    ["compiled", "started", "meanwhile", "measured"],
  ],
  ["beside the compilers where they do not", coresHere().length, ["meanwhile", "compiled", "started", "measured"]],
])("other work is done %s", async (_, threads, expected) => {
  const happened: string[] = [];
  const compile: Runner["compile"] = async () => {
    await Promise.resolve();
    if (!happened.includes("compiled")) happened.push("compiled");
    return DONE;
  };
  const race: Runner["race"] = async function* (_kernels, _reference, { onStart } = {}) {
    happened.push("started");
    onStart?.();
    await Promise.resolve();
    happened.push("measured");
    yield took(1);
  };
  const conditions = { ...fakeRunner(compiler, { alone: () => took(1), inTurns: () => [] }).conditions, threads };
  const bench = await benchOf({ compile, race, conditions });
  await mediansOf(bench.measure(kernels.slice(0, 1), quiet, () => happened.push("meanwhile")));
  expect(happened).toEqual(expected);
});
