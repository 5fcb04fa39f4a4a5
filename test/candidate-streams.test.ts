/**
 * What a seed draws: the same candidates as ever, told by the hash of their keys. A search that is replayed, and a record that is found
 * again by its candidate, rest on both. Where a decision is drawn otherwise on purpose, the snapshot says which stream changed.
 */
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { candidateKey, canonicalJson } from "../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../abstraction/computation.ts";
import { seededRandom } from "../abstraction/random.ts";
import { finished } from "../abstraction/steps.ts";
import { idOf, openDatabase, queryTrials } from "../db/index.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { gridLimits } from "../mapper/schedule/grid-context.ts";

import { nvidiaTarget } from "../targets/index.ts";
import { candidateSpace } from "../tuner/candidates.ts";
import { gridSpace } from "../tuner/grid-candidates.ts";
import type { SearchSpace } from "../tuner/space.ts";
import { workshop } from "./support/database.ts";
import { operation } from "./support/subjects.ts";

const NEAR_BYTES = 48 * 1024;
const DRAWN = 60;

const matmul = (types: string, m: number, n: number, k: number): Computation =>
  operation(`matmul m=${m} n=${n} k=${k}`, types);

const SUBJECTS: Readonly<Record<string, { computation: Computation; on: readonly string[] }>> = {
  "conv2d u8s8 on VNNI": {
    computation: operation("conv2d c=64 k=64 h=14 w=14 r=3 s=3 pad=1", "u8s8"),
    on: ["avx512.vpdpbusd"],
  },
  "conv2d u8s8 NHWC of 7x7 on AMX, spread": {
    computation: operation("conv2d c=64 k=64 h=7 w=7 r=3 s=3 pad=1 NHWC", "u8s8"),
    on: ["amx.tdpbusd"],
  },
  "grouped conv2d f32, copied within": {
    computation: operation("grouped-conv2d c=128 k=128 groups=32 h=28 w=28 r=3 s=3 pad=1"),
    on: ["avx512.fma.f32.groups4", "avx512.fma.f32.broadcast"],
  },
  "matmul u8s8 beyond the near cache, tiled": {
    computation: matmul("u8s8", 384, 512, 512),
    on: ["avx512.vpdpbusd", "amx.tdpbusd"],
  },
  "lower triangle": {
    computation: defineComputation({
      name: "triangle",
      equation: "s[h,i,j] += q[h,i,k] * p[h,j,k] where j <= i",
      extents: { h: 4, i: 64, j: 64, k: 32 },
      tensors: { s: "f32", q: "f32", p: "f32" },
    }),
    on: ["avx512.fma.f32.broadcast"],
  },
};

/** Hashes of random candidates of a space, of a chain of mutations, and of crossovers of neighbours. */
function streams<C>(space: SearchSpace<C>): Readonly<Record<string, string>> {
  const hash = (drawn: readonly C[]): string => idOf(drawn.map((c) => space.key(c))).slice(0, 12);
  let random = seededRandom(11);
  const drawn = Array.from({ length: DRAWN }, () => space.random(random));
  random = seededRandom(12);
  const mutated: C[] = [];
  for (const first of drawn.slice(0, DRAWN / 6)) {
    let last = first;
    for (let i = 0; i < 6; i++) {
      last = space.mutate(last, random);
      mutated.push(last);
    }
  }
  random = seededRandom(13);
  const crossed = drawn.flatMap((a, i) => {
    const b = drawn[i + 1];
    return b === undefined ? [] : [space.crossover(a, b, random)];
  });
  return { random: hash(drawn), mutation: hash(mutated), crossover: hash(crossed) };
}

/** Mappings in the order of an expectation that only counts, so that no change of the model shows here. */
let turn = 0;
const inTurn = (): number => 1 + (turn++ % 7) / 7;

test("a seed draws, mutates and crosses the same schedules of loops", () => {
  const used = new Set<string>();
  const found = Object.entries(SUBJECTS).map(([name, { computation, on }]) => {
    turn = 0;
    const space = finished(candidateSpace(computation, on.flatMap(intrinsicsNamed), inTurn, 2, 1, NEAR_BYTES));
    if (!("random" in space)) throw new Error(`${name}: ${space[0]?.because}`);
    const random = seededRandom(11);
    for (let i = 0; i < DRAWN; i++) {
      const { schedule } = space.random(random);
      for (const [key, value] of Object.entries(schedule)) if (Object.keys(Object(value)).length > 0) used.add(key);
      if (schedule.order.some((loop) => loop.includes("/"))) used.add("tiles");
    }
    return `${name}: ${space.ranked.length} mappings ${canonicalJson(streams(space))}`;
  });
  expect([...used].sort().join(" "), "decisions that the subjects use").toBe(
    "block order placement spread tiles within",
  );
  expect(found.join("\n")).toMatchInlineSnapshot(`
    "conv2d u8s8 on VNNI: 7 mappings {"crossover":"0a93404d9a97","mutation":"52e1ec9a5b2d","random":"08d5f8b9adbc"}
    conv2d u8s8 NHWC of 7x7 on AMX, spread: 48 mappings {"crossover":"5d011e621d7e","mutation":"b4213f67b196","random":"78c95347a3a4"}
    grouped conv2d f32, copied within: 16 mappings {"crossover":"29a49e78f9df","mutation":"f4e6ef4f3911","random":"425671401f16"}
    matmul u8s8 beyond the near cache, tiled: 2 mappings {"crossover":"d47c28857447","mutation":"b327bc4bb679","random":"8c6d6542990a"}
    lower triangle: 2 mappings {"crossover":"330568f3e5c4","mutation":"076978230fc0","random":"b62f4951b1d1"}"
  `);
});

test("a seed draws, mutates and crosses the same schedules of blocks and warps", () => {
  const found = ["mma.m16n8k16.f32.f16", "wmma.m16n16k16.f32.f16"].map((name) => {
    turn = 0;
    const space = finished(
      gridSpace(matmul("f16", 512, 512, 512), intrinsicsNamed(name), gridLimits(nvidiaTarget("h100")), inTurn, 1),
    );
    if (!("random" in space)) throw new Error(`${name}: ${space[0]?.because}`);
    return `${name}: ${space.ranked.length} mappings ${canonicalJson(streams(space))}`;
  });
  expect(found.join("\n")).toMatchInlineSnapshot(`
    "mma.m16n8k16.f32.f16: 2 mappings {"crossover":"4ccd59e7b981","mutation":"bafe29954ac2","random":"8b2bec0c159e"}
    wmma.m16n16k16.f32.f16: 2 mappings {"crossover":"598bb9e4e924","mutation":"3c93d28aebf2","random":"12d1a2b10886"}"
  `);
});

test("records of every decision are found by the keys they were stored under", () => {
  const shop = workshop();
  const path = shop.path("frozen.db");
  copyFileSync(join(import.meta.dirname, "fixtures/schema-1.sqlite"), path);
  const db = openDatabase(path);
  const trials = queryTrials(db);
  const held = db.sqlite.prepare("SELECT candidate FROM trials WHERE id = ?").pluck();
  for (const { id, candidate } of trials) {
    expect(canonicalJson(candidate)).toBe(held.get(id));
    // A block of one step says what no block says.
    expect(candidateKey(candidate)).toBe(String(held.get(id)).replace('{"q":1}', "{}"));
  }
  const used = new Set(trials.flatMap((t) => Object.keys(t.candidate.schedule)));
  db.close();
  shop.remove();
  expect([...used].sort().join(" ")).toBe(
    "block dataflow lanes order placement prefetchBytes rolled rows spread streaming strip threads vectors weights within",
  );
});
