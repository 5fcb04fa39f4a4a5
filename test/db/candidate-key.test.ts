/** @file A kernel has one key, whether its schedule spells out a default or leaves it out. */

import fc from "fast-check";
import { describe, expect, it } from "vitest";
import {
  type Candidate,
  candidateKey,
  canonicalJson,
  isOnGpu,
  type MappedCandidate,
  type WarpWindowCandidate,
  type WindowCandidate,
} from "../../abstraction/candidate.ts";
import { type Computation, defineComputation, withConstants } from "../../abstraction/computation.ts";
import type { Target } from "../../abstraction/machine.ts";
import { parseDataTypes } from "../../operators/data-types.ts";
import { instantiate, operatorNamed } from "../../operators/index.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { SESSION_KINDS } from "../../session/kinds/kinds.ts";
import type { SessionKind } from "../../session/kinds/session-space.ts";
import { nativeTarget, nvidiaTarget } from "../../targets/index.ts";
import { windowSchedule } from "../support/window.ts";

const types = parseDataTypes("f32");
const matmul = instantiate(operatorNamed("matmul"), { parameters: { m: 32, n: 32, k: 32 }, types });
const line = instantiate(operatorNamed("conv1d-single"), { parameters: { l: 100, r: 3 }, types });

const mapped: MappedCandidate = {
  kind: "mapping",
  intrinsic: "avx512.fma.f32.broadcast",
  matching: { n: ["n"] },
  operands: { a: "a[m,k]", b: "b[k,n]", c: "out[m,n]" },
  schedule: { order: ["m", "n", "k"], block: { m: 2 }, placement: { a: "in-place", b: "in-place" }, threads: 1 },
};
const lanes: WindowCandidate = {
  kind: "window",
  intrinsic: "avx512.fma.f32",
  schedule: windowSchedule({ vectors: 2 }),
};
const warps: WarpWindowCandidate = {
  kind: "warp-window",
  intrinsic: "cuda.fma.f32",
  schedule: { dataflow: "FBS-load", lanes: 32, rows: 1, vectors: 1, rolled: [] },
};
const said: readonly (readonly [string, Candidate, Candidate])[] = [
  ["block k 1", mapped, { ...mapped, schedule: { ...mapped.schedule, block: { m: 2, k: 1 } } }],
  ["no gaps and no copies within", mapped, { ...mapped, schedule: { ...mapped.schedule, spread: [], within: {} } }],
  ["each 1", warps, { ...warps, schedule: { ...warps.schedule, each: 1 } }],
  ["ahead 1", warps, { ...warps, schedule: { ...warps.schedule, ahead: 1 } }],
];

describe("a schedule that spells out a default", () => {
  it.each(said)("has the same key and the same code: %s", (_, brief, full) => {
    expect(candidateKey(full)).toBe(candidateKey(brief));
    const computation = brief === warps ? line : matmul;
    const code = (candidate: Candidate): string => kernelFor(computation, candidate).source.replace(/^ \*.*\n/gm, "");
    expect(code(full)).toBe(code(brief));
  });

  it("has the same key for threads with one neighbour", () => {
    const threads = { lanes: { i: 32 }, warps: {}, each: {}, split: 1 };
    const named = { intrinsic: "thread.fma", matching: {}, operands: {} };
    expect(candidateKey({ kind: "threads", ...named, schedule: { ...threads, each: { i: 1 }, warps: { i: 1 } } })).toBe(
      candidateKey({ kind: "threads", ...named, schedule: threads }),
    );
  });

  it("differs where the value is no default: one lane, one thread, one row, a block of two", () => {
    expect(candidateKey(lanes)).toContain('"rows":1');
    expect(candidateKey(lanes)).toContain('"threads":1');
    expect(candidateKey(mapped)).toContain('"block":{"m":2}');
    expect(candidateKey({ ...warps, schedule: { ...warps.schedule, each: 2 } })).not.toBe(candidateKey(warps));
  });
});

describe("canonical JSON", () => {
  /** The definition: every object is made again from its fields in order. */
  const inOrder = (data: unknown): unknown => {
    if (Array.isArray(data)) return data.map(inOrder);
    if (typeof data !== "object" || data === null) return data;
    const fields = Object.entries(data).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    return Object.fromEntries(fields.map(([name, value]) => [name, inOrder(value)]));
  };

  it("is JSON with ordered keys, and the same for any order of them", () => {
    const numbered = fc.dictionary(fc.constantFrom("10", "9", "a", "01", "1.5", "-1", "é"), fc.integer());
    fc.assert(
      fc.property(fc.oneof(fc.jsonValue(), numbered), (data) => {
        expect(canonicalJson(data)).toBe(JSON.stringify(inOrder(data)));
      }),
    );
    expect(canonicalJson({ b: [1, undefined], a: { d: undefined, c: 2 } })).toBe('{"a":{"c":2},"b":[1,null]}');
  });
});

describe("a kind", () => {
  const equation = (text: string, extents: Readonly<Record<string, number>>, names: readonly string[]): Computation =>
    defineComputation({ equation: text, extents, tensors: Object.fromEntries(names.map((name) => [name, "f32"])) });
  const subjects = [
    line,
    equation("u[t,i] = u[t-1,i-1] + u[t-1,i+1]", { t: 4, i: 64 }, ["u"]),
    equation("y[i] = y[i-1] + x[i]", { i: 64 }, ["x", "y"]),
    equation("y[i,j] += select(i == k, 1, 2) * x[k,j]", { i: 3, j: 64, k: 4 }, ["x", "y"]),
    withConstants(
      equation("out[n,k,p,q] += in[n,c,p+r,q+s] * w[k,c,r,s]", { n: 1, k: 16, p: 4, q: 4, c: 16, r: 3, s: 3 }, [
        "in",
        "w",
      ]),
      ["w"],
    ),
  ];

  it.each(Object.values<SessionKind>(SESSION_KINDS))("$kind is on a GPU where searches of a GPU look for it", (own) => {
    const isSought = (machine: Target): boolean => subjects.some((subject) => own.isFor(subject, machine));
    const onGpu = isOnGpu({ ...mapped, kind: own.kind } as Candidate); // only the kind decides
    expect([isSought(nvidiaTarget("h100")), isSought(nativeTarget())]).toEqual([onGpu, !onGpu]);
  });
});
