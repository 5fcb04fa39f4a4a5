/**
 * @file Clusters: blocks that run side by side and reach one another's shared memory. The interpreter treats a cluster as one large block, in which
 * each block has its own shared memory and arrivals.
 *
 *     shared a_ring: f16[stage 3, m 64, k 64]             ->     shared a_ring: f16[block 4, stage 3, m 64, k 64]
 *     for at cluster split in 0..4                               a_ring[split, step%3, m, k]
 *       a_ring[step%3, m, k]
 *
 * A block's memory exists only while the block runs. Another block may use it after synchronising with the owner's start, and the owner must
 * synchronise with that use before it ends.
 */

import { namesOf } from "../collections.ts";
import { type Access, axis, type Expr, number, plus, rewrite, times } from "../expression.ts";
import { dimsOf, type LoopNest, type Scratch, type Statement, storageOf } from "../loop-nest.ts";
import { rewriteStatement } from "../rewrite-statement.ts";

/** Alignment, in elements, of each block's shared memory, as instructions that read it directly require. */
const ALIGNMENT = 1024;

/** Blocks of the largest cluster of a nest; 1 where it has none. */
export function clusterOfNest({ prepare, body }: LoopNest): number {
  const within = (s: Statement): number =>
    s.kind !== "loop" ? 1 : Math.max(s.mode === "cluster" ? s.extent : 1, ...s.body.map(within));
  return Math.max(1, ...[...prepare, ...body].map(within));
}

/** The nest with shared memory and arrivals for each block of a cluster; unchanged without clusters. */
export function spreadOverCluster(nest: LoopNest): LoopNest {
  const blocks = clusterOfNest(nest);
  if (blocks === 1) return nest;
  const shared = new Set(namesOf(nest.scratch.filter((s) => s.scope === "shared")));
  const stages = new Map((nest.arrivals ?? []).map((a) => [a.name, a.stages]));
  const spread = (s: Statement, block: Expr): Statement => {
    if (s.kind === "loop" && (s.mode === "block" || s.mode === "cluster")) {
      const inside = s.mode === "cluster" ? axis(s.axis) : block;
      return { ...s, body: s.body.map((inner) => spread(inner, inside)) };
    }
    const element = (a: Access): Access => (shared.has(a.tensor) ? { ...a, index: [block, ...a.index] } : a);
    return rewriteStatement(s, {
      index: (e) => e,
      value: (e) => rewrite(e, (node) => (node.kind === "access" ? element(node) : node)),
      element,
      arrival: (a) => ({
        ...a,
        stage: plus(times(stages.get(a.name) ?? 0, block), a.stage),
      }),
    });
  };
  return {
    ...nest,
    scratch: nest.scratch.map((s) => (s.scope === "shared" ? ofEachBlock(s, blocks) : s)),
    ...(nest.arrivals && { arrivals: nest.arrivals.map((a) => ({ ...a, stages: a.stages * blocks })) }),
    prepare: nest.prepare.map((s) => spread(s, number(0))),
    body: nest.body.map((s) => spread(s, number(0))),
  };
}

function ofEachBlock(scratch: Scratch, blocks: number): Scratch {
  const elements = Math.ceil(scratch.elements / ALIGNMENT) * ALIGNMENT;
  return {
    ...scratch,
    elements: blocks * elements,
    dims: [{ name: "block", extent: blocks }, ...dimsOf(scratch)],
    storage: plus(times(elements, axis("block")), storageOf(scratch)),
  };
}
