/** @file Programs of several computations: their key, their text, and a reference that finds wrong kernels and passes right ones. */

import { describe, expect, it } from "vitest";
import {
  type Computation,
  computationKey,
  elementCount,
  equationText,
  inputsOf,
  outputOf,
  pointCount,
} from "../../abstraction/computation.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { joined } from "../../abstraction/program.ts";
import { beginRun, computationOf, openDatabase, recordTrial, showRun, showTrial } from "../../db/index.ts";
import { LOOPS } from "../../intrinsics/loops.ts";
import { lowerRowChain } from "../../mapper/lower/row-chain.ts";
import { describeWorkload, workloadLabel } from "../../operators/describe.ts";
import { decodeElements } from "../../runtime/bytes.ts";
import { referenceOfParts, unboundedIn } from "../../runtime/reference/reference-of-parts.ts";
import { fromMemory, type Reference } from "../../runtime/reference/verify.ts";
import { subjectOf } from "../../session/package/emit.ts";
import { CHAIN_GRAPHS, masked, programIn, rowsIn, STORING_GRAPHS } from "../support/chain-graphs.ts";
import { MACHINE, measured, trial, WARM } from "../support/database.ts";
import { onnx } from "../support/networks.ts";

const compiler = { status: "found", path: "none", version: "none", command: ["none"] } as const;
const referenceOf = (computation: Computation): Promise<Reference> =>
  referenceOfParts(computation, 1, { compiler, workdir: "/none" } as unknown as Parameters<typeof referenceOfParts>[2]); // nothing is compiled

/** What the rows of a program give, in the order in which a kernel adds them up, for each set of inputs. */
async function comparedWith(computation: Computation, run = computation): Promise<readonly (readonly boolean[])[]> {
  const { sets } = await referenceOf(computation);
  return sets.map(({ inputs, expected, tolerance }) => {
    const read = inputsOf(computation).map((tensor): [string, Float64Array] => [
      tensor.name,
      fromMemory(tensor, decodeElements(tensor.dtype, inputs[tensor.name] ?? new Uint8Array())),
    ]);
    const got = interpretNest(lowerRowChain(rowsIn({ computation: run })).nest, run, Object.fromEntries(read));
    return [...got].map((value, i) => Math.abs(value - (expected[i] ?? 0)) <= (tolerance[i] ?? 0));
  });
}

/** The same with other constants, which a kernel may have wrong. */
function changed(computation: Computation, from: string, to: string): Computation {
  const text = JSON.stringify(computation);
  if (!text.includes(from)) throw new Error(`no ${from}`);
  return JSON.parse(text.replaceAll(from, to));
}

describe("a program", () => {
  it("has the points of its computations, a text of all its equations, and a key that covers names and what is stored", () => {
    const computation = programIn(masked);
    const { program } = computation;
    if (!program) throw new Error("no program");
    expect(pointCount(computation)).toBe(4 * 2100 + 2100);
    expect(equationText(computation).split("; ").length).toBe(5);
    const key = computationKey(computation);
    expect(computationKey(joined(program))).toBe(key);
    expect(computationKey(joined({ ...program, stored: ["y2", ...program.stored] }))).not.toBe(key);
    expect(computationKey(changed(computation, "0.125", "0.25"))).not.toBe(key);
  });

  it.each(CHAIN_GRAPHS)("is recorded and read back: %s", (_, graph) => {
    const computation = programIn(graph);
    const db = openDatabase(":memory:");
    try {
      const workload = { computation };
      const run = beginRun(db, { workload, environment: MACHINE, seed: 1, options: {}, budget: {}, started: 1 });
      const read = showRun(db, run).workload;
      expect(read.program?.parts.length).toBe(computation.program?.parts.length);
      expect(computationKey(computationOf(read))).toBe(computationKey(computation));
      expect(lowerRowChain(rowsIn({ computation: computationOf(read) }))).toEqual(
        lowerRowChain(rowsIn({ computation })),
      );
    } finally {
      db.close();
    }
  });

  it("is labelled by all its equations, and its records make no package of their own", () => {
    const computation = programIn(masked);
    expect(workloadLabel(describeWorkload({ computation }))).toContain("y1[i0,i1,i2] max= y0[i0,i1,i2,i3]; y2");
    const db = openDatabase(":memory:");
    try {
      const candidate = { kind: "chain", intrinsic: "loops", schedule: { columns: 4, threads: 1 } } as const;
      const [intrinsic] = LOOPS;
      const about = {
        workload: { computation },
        environment: MACHINE,
        conditions: WARM,
        ...(intrinsic && { intrinsic }),
      };
      const id = recordTrial(db, { ...about, trial: trial(measured(50), 5, candidate) });
      expect(() => subjectOf(showTrial(db, id))).toThrow(/computes 5 steps of a network in one kernel/);
    } finally {
      db.close();
    }
  });

  it.each(CHAIN_GRAPHS)("has a reference that a kernel row by row agrees with: %s", async (_, graph) => {
    for (const isHalf of [false, true]) {
      const sets = await comparedWith(programIn(graph, isHalf));
      expect(sets.length).toBeGreaterThan(0);
      for (const right of sets) expect(right.every(Boolean)).toBe(true);
    }
  });

  it("has a reference that finds wrong kernels", async () => {
    const softmax = programIn(masked);
    for (const [from, to] of [
      ["0.125", "0.1251"],
      ['"op":"+="', '"op":"max="'],
      ['"fn":"exp"', '"fn":"tanh"'],
    ] as const)
      for (const right of await comparedWith(softmax, changed(softmax, from, to)))
        expect(right.filter(Boolean).length, `${from} as ${to}`).toBeLessThan(right.length / 4);
  });

  it.each(STORING_GRAPHS)("has a reference of each value that it stores: %s", async (_, graph) => {
    const computation = programIn(graph);
    const { sets } = await referenceOf(computation);
    const stored = computation.program?.stored ?? [];
    expect(stored.length).toBeGreaterThan(1);
    const output = outputOf(computation).name;
    expect(new Set(sets.map(({ of }) => of?.name ?? output))).toEqual(new Set(stored));
    for (const { of, expected, tolerance } of sets) {
      const elements = elementCount(of ?? outputOf(computation));
      expect([expected.length, tolerance.length]).toEqual([elements, elements]);
      expect(new Set(expected).size).toBeGreaterThan(1);
      expect(tolerance.some((off) => off > 0)).toBe(true);
    }
  });

  it("has no reference where it tests what it has rounded", async () => {
    const tested = programIn(onnx("m = ReduceMean(x[4,8], s64{-1})\nWhere(Less(x, m), x, m)"));
    expect(unboundedIn(tested)).toMatch(/tests what it has rounded before/);
    await expect(referenceOf(tested)).rejects.toThrow(/tests what it has rounded before/);
  });
});
