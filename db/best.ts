/**
 * @file The question asked most: which kernel to use.
 *
 *     best(db, { computation, trusted: { environment, intrinsics: INTRINSICS, policy: "exact" } })
 */

import { type Database, read } from "./open.ts";
import { type Filter, trialsOfRows, trialsWhere } from "./query.ts";
import type { TrialRecord } from "./record.ts";

/**
 * For each computation, environment, thread count and cache state one trial among those that match, fastest first: the winner of the
 * newest finals. Finals decide over all that was measured before them with an instruction the search was offered: kernels are compared
 * by batches taken in turns, not by times of different minutes. Where there are none, or where several searches were offered different
 * instructions, the smallest median of what is left; of equal ones the earliest.
 */
export function best(db: Database, filter: Filter = {}): TrialRecord[] {
  return read(db, () => {
    const { sql, values } = trialsWhere(db, { ...filter, status: "ok" });
    const rows = db.sqlite
      .prepare(
        `WITH matching AS (
           SELECT trials.*, computation, ${db.version < WITH_FINALS ? "NULL AS comparison, NULL AS place," : ""}
             CASE candidate ->> '$.kind' WHEN 'lanes' THEN 'lanes' ELSE 'mappings' END AS kind
           FROM trials JOIN workloads ON workloads.id = workload WHERE ${sql}
         ), leaders AS (
           -- The winner, or who came nearest to it of those that match.
           SELECT *, min(place) FROM matching WHERE place IS NOT NULL GROUP BY comparison
         ), decided AS (
           SELECT computation, leaders.environment, threads, cache, offered.value AS instruction, kinds.value AS kind,
             leaders.id AS winner, max(at) AS until
           FROM leaders JOIN runs ON runs.id = run, json_each(options, '$.offered') AS offered, json_each(?) AS kinds
           WHERE coalesce(options ->> '$.kinds', 'all') IN ('all', kinds.value)
           GROUP BY computation, leaders.environment, threads, cache, instruction, kinds.value
         )
         SELECT trials.* FROM trials JOIN (
           SELECT id, row_number() OVER (
             PARTITION BY matching.computation, matching.environment, matching.threads, matching.cache ORDER BY median, at, id
           ) AS rank
           FROM matching LEFT JOIN decided
           ON decided.computation = matching.computation AND decided.environment = matching.environment
             AND decided.threads = matching.threads AND decided.cache = matching.cache
             AND decided.kind = matching.kind AND instruction = intrinsic
           WHERE winner IS NULL OR winner = id OR at > until
         ) AS chosen ON chosen.id = trials.id WHERE rank = 1 ORDER BY median, at, trials.id LIMIT ?`,
      )
      .all(...values, JSON.stringify(["mappings", "lanes"]), filter.limit ?? -1);
    return trialsOfRows(db, rows);
  });
}

/** The schema from which on trials say which finals they were measured in. */
const WITH_FINALS = 4;
