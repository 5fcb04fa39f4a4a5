/**
 * @file A sample of bench/judges/mutated-models.ts: models with random damage are refused in a sentence, or read and computed.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import { pickWeighted, seededRandom } from "../../abstraction/random.ts";
import { judgedModel, outputCompared } from "../support/drawn/judged-model.ts";
import { MUTATIONS, mutatedModel } from "../support/drawn/model-mutations.ts";
import { baseModels } from "../support/drawn/models.ts";
import { inFull } from "../support/slow.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-mutated-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Their weights are most of the time. */
const LARGE = /^(?:resnet18|mobilenet|shufflenet)/;

describe("a model with random damage", () => {
  const bases = baseModels(folder).filter(({ name }) => !LARGE.test(name));

  it("is refused, or read and computed as its nodes say", async () => {
    const kinds = new Set<string>();
    const found = { refused: 0, read: 0, wrong: [] as string[] };
    for (let seed = 0; seed < inFull(1000, 100); seed++) {
      const random = seededRandom(seed);
      const base = pickWeighted(random, bases, ({ share }) => share);
      const { kind, bytes } = mutatedModel(random, base.bytes());
      kinds.add(kind);
      const judged = await judgedModel(bytes, folder);
      if (judged.status === "wrong") found.wrong.push(`${seed} ${base.name}, ${kind}: ${judged.says}`);
      else found[judged.status]++;
    }
    expect(found.wrong).toEqual([]);
    expect(found.refused).toBeGreaterThan(20);
    expect(found.read).toBeGreaterThan(10);
    expect([...kinds].toSorted()).toEqual([...MUTATIONS].toSorted());
  });

  it("is read without the damage", async () => {
    for (const { name, bytes } of bases.slice(0, 4))
      expect(await judgedModel(bytes(), folder), name).toEqual({ status: "read", compared: true });
  });
});

describe("an output computed twice", () => {
  const differs = (...given: Parameters<typeof outputCompared>): boolean => outputCompared(...given).says !== undefined;

  it("is compared within the rounding of its type", () => {
    expect([differs("bool", [0, 1], [1, 1]), differs("s64", [3, 1000], [3, 999])]).toEqual([true, true]);
    expect([differs("u8", [3, 250], [4, 250]), differs("u8", [3, 250], [5, 250])]).toEqual([false, true]);
    expect([differs("bf16", [1, 0.5], [1.0078125, 0.5]), differs("bf16", [1, 0.5], [1, 0])]).toEqual([false, true]);
  });

  it("is compared where it is finite, with the number of compared elements", () => {
    expect(outputCompared("f32", [Number.NaN, 1], [Number.NaN, 1])).toEqual({ compared: 1 });
    expect(differs("f32", [Number.NaN, 1], [Number.NaN, 2])).toBe(true);
    expect(outputCompared("f32", [Number.NaN], [1])).toEqual({ compared: 0 });
  });
});
