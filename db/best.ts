/**
 * @file The best kernel of each computation.
 *
 *     best(db, { computation, trusted: { environment, intrinsics: INTRINSICS, policy: "exact" } })
 */

import { type CandidateKinds, SORTS_OF } from "../abstraction/candidate.ts";
import { checkNames } from "../abstraction/error.ts";
import type { Row } from "./facts.ts";
import { type Database, read } from "./open.ts";
import { checkFilter, type Filter, trialsWhere } from "./query.ts";
import type { TrialRecord } from "./record.ts";
import { provenanceOf, trialsOfRows } from "./rows.ts";

/** Which trials to consider. */
export interface BestOptions {
  /** What a search could have chosen from; all by default. */
  readonly kinds?: CandidateKinds;
  /** Only kernels that took part in finals. */
  readonly decided?: boolean;
  /**
   * Whether a computation of which nothing was measured here may be represented by an imported record, a claim of whoever wrote it. Its
   * `provenance` says so. False by default: what is only claimed decides nothing.
   */
  readonly imported?: boolean;
}

/**
 * For each computation, environment, thread count and cache state, the best of the matching trials, fastest first: the winner of the newest finals.
 * Finals compare kernels in interleaved batches, so they decide over every earlier trial with an instruction that the search was offered. Without
 * finals, or when several searches were offered different instructions, the smallest median wins, and among equal ones the earliest.
 *
 * Every command that needs the record of a computation chooses it here. Imported records are left out unless they are asked for. Then those
 * measured here come before them, whatever they claim, and imported finals decide over imported trials only.
 */
export function best(db: Database, filter: Filter = {}, options: BestOptions = {}): TrialRecord[] {
  checkFilter(filter);
  checkNames(options, { kinds: true, decided: true, imported: true }, "best");
  return read(db, () => {
    const found = bestRows(db, filter, options, []);
    // SQL cannot check seals. The trials that decide are checked against the key; all others only if one of those is forged.
    const lies = [...found, ...sealedRows(db, filter, "place IS NOT NULL")].some((row) => isMadeUp(db, row));
    if (!lies) return trialsOfRows(db, found);
    const madeUp = sealedRows(db, filter, "TRUE").filter((row) => isMadeUp(db, row));
    return trialsOfRows(
      db,
      bestRows(
        db,
        filter,
        options,
        madeUp.map((row) => String(row["id"])),
      ),
    );
  });
}

function isMadeUp(db: Database, row: Row): boolean {
  return (row["seal"] ?? null) !== null && provenanceOf(db, "trials", row) === "imported";
}

/** Matching rows that claim to have been measured here. */
function sealedRows(db: Database, filter: Filter, condition: string): Row[] {
  const { sql, values } = trialsWhere(db, { ...filter, status: "ok" });
  return db.sqlite
    .prepare<unknown[], Row>(
      `SELECT trials.* FROM trials JOIN workloads ON workloads.id = workload
       WHERE ${sql} AND seal IS NOT NULL AND ${condition}`,
    )
    .all(...values);
}

/** @param madeUp ids of trials whose seal is not this machine's */
function bestRows(
  db: Database,
  filter: Filter,
  { kinds = "all", decided = false, imported = false }: BestOptions,
  madeUp: readonly string[],
): Row[] {
  const { sql, values } = trialsWhere(db, { ...filter, status: "ok" });
  return db.sqlite
    .prepare<unknown[], Row>(
      `WITH sorted AS (
           SELECT trials.*, computation, seal IS NULL OR trials.id IN (SELECT value FROM json_each(?)) AS imported,
             CASE WHEN candidate ->> '$.kind' = 'winograd' THEN 'forms'
               WHEN candidate ->> '$.matching' IS NULL AND candidate ->> '$.kind' <> 'loops' THEN 'lanes' ELSE 'mappings' END AS kind
           FROM trials JOIN workloads ON workloads.id = workload WHERE ${sql}
         ), matching AS (
           SELECT * FROM sorted WHERE kind IN (SELECT value FROM json_each(?)) ${decided ? "AND place IS NOT NULL" : ""} ${imported ? "" : "AND NOT imported"}
         ), leaders AS (
           -- The winner, or who came nearest to it of those that match.
           SELECT *, min(place) FROM matching WHERE place IS NOT NULL GROUP BY comparison, computation, imported
         ), decided AS (
           SELECT computation, leaders.environment, threads, cache, imported, offered.value AS instruction,
             kinds.value AS kind, leaders.id AS winner, max(at) AS until
           FROM leaders JOIN runs ON runs.id = run, json_each(options, '$.offered') AS offered, 
             json_each(?, '$.' || coalesce(options ->> '$.kinds', 'all')) AS kinds
           GROUP BY computation, leaders.environment, threads, cache, imported, instruction, kinds.value
         )
         SELECT trials.* FROM trials JOIN (
           SELECT id, matching.imported AS imported, row_number() OVER (
             PARTITION BY matching.computation, matching.environment, matching.threads, matching.cache
             ORDER BY matching.imported, median, at, id
           ) AS rank
           FROM matching LEFT JOIN decided
           ON decided.computation = matching.computation AND decided.environment = matching.environment
             AND decided.threads = matching.threads AND decided.cache = matching.cache
             AND decided.imported = matching.imported AND decided.kind = matching.kind AND instruction = intrinsic
           WHERE winner IS NULL OR winner = id OR at > until
         ) AS chosen ON chosen.id = trials.id WHERE rank = 1 ORDER BY imported, median, at, trials.id LIMIT ?`,
    )
    .all(
      JSON.stringify(madeUp),
      ...values,
      JSON.stringify(SORTS_OF[kinds]),
      JSON.stringify(SORTS_OF),
      filter.limit ?? -1,
    );
}
