/** @file A record is found again by its candidate. What a seed draws, on which a replayed search rests, is in golden-spaces.test.ts. */
import { copyFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { candidateKey, canonicalJson } from "../../abstraction/candidate.ts";
import { openDatabase, queryTrials } from "../../db/index.ts";
import { workshop } from "../support/database.ts";

test("records of every decision are found by the keys they were stored under", () => {
  const shop = workshop();
  const path = shop.path("frozen.db");
  copyFileSync(join(import.meta.dirname, "../fixtures/schema-1.sqlite"), path);
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
