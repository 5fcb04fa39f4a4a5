/**
 * @file Lowers a specification to a loop nest: tiling and loop order first, then the transform of the loops left to the
 * array.
 *
 *     tile(c, c_tile, c_in, 12)  reorder(c_tile, c_in, q)  space_time_transform([c_in, q], ...)
 *
 *     for parallel c_tile in 0..4
 *       for unrolled t in 0..5
 *         for lanes lane in 0..16
 */

import { UsageError } from "../../abstraction/error.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { type SpaceTimeTransform, type Specification, spaceTimeOf } from "../../abstraction/specification.ts";
import { type Flows, flowsOf } from "./flow.ts";
import { reorderFlows, tileFlows } from "./interchange.ts";
import { type LowerOptions, lowerFlows } from "./lower.ts";
import { inShared } from "./shared.ts";

/** A specification with its loops tiled and in order. */
interface Arranged {
  readonly flows: Flows;
  readonly transform: SpaceTimeTransform;
  readonly parallel: readonly string[];
  readonly shared: readonly string[];
}

/** @throws UsageError when no transform is given, or a loop cannot be tiled */
export function arrange({ recurrence, steps }: Specification): Arranged {
  let flows = flowsOf(recurrence);
  let transform: SpaceTimeTransform | undefined;
  const parallel: string[] = [];
  const shared: string[] = [];
  for (const step of steps) {
    switch (step.kind) {
      case "merge_ures":
        break;
      case "tile":
        flows = tileFlows(flows, step);
        break;
      case "reorder":
        flows = reorderFlows(flows, step.loops);
        break;
      case "gpu_blocks":
      case "gpu_threads":
        parallel.push(...step.loops);
        break;
      case "store_in":
        if (step.store === "shared") shared.push(step.name);
        break;
      case "space_time_transform":
        transform = step;
        break;
      default:
        step satisfies never;
    }
  }
  if (!transform)
    throw new UsageError(
      `${recurrence.name}: no space_time_transform says where and when points run`,
      "for example: space_time_transform([c, q], [k, t], [[1,1],[0,1]])",
    );
  return { flows, transform, parallel, shared };
}

/**
 * The loop nest of a specification.
 * @param options choices that the text leaves open: coalesced registers, lanes, unrolling of time
 * @throws UsageError if no transform is given, or the transform cannot be used
 */
export function lowerSpecification(
  specification: Specification,
  options: Pick<LowerOptions, "checkTime" | "coalesced" | "lanes" | "unroll"> = {},
): LoopNest {
  const { flows, transform, parallel, shared } = arrange(specification);
  const { source, reverse } = transform;
  const destination = [...transform.destination].sort((a, b) => Number(a.startsWith("t")) - Number(b.startsWith("t")));
  const nest = lowerFlows(flows, spaceTimeOf(transform), {
    ...options,
    source,
    destination,
    parallel,
    checkTime: transform.checkTime || (options.checkTime ?? false),
    ...(reverse ? { reverse } : {}),
  });
  const outside = flows.loops.length - source.length;
  const { tensors } = specification.recurrence;
  return shared.reduce((staged, name) => inShared(staged, tensors[name], name, outside), nest);
}
