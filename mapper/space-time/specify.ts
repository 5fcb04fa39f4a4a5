/**
 * @file Lowers a specification to a loop nest: tiling and loop order first, then the transform of the loops left to the
 * array.
 *
 *     tile(c, c_tile, c_in, 12)  reorder(c_tile, c_in, q)  space_time_transform([c_in, q], ...)
 *
 *     for parallel c_tile in 0..4
 *       for unrolled t in 0..5
 *         for lanes lane in 0..16
 *
 * A buffer of the block for the part of a tensor that one run of the array reads.
 *
 *     for c_tile in 0..4                              for c_tile in 0..4
 *       for lanes lane in 0..16                         for x_shared_0 in 0..16
 *         X[0,lane] = x[12*c_tile+lane]       ->          x_shared[x_shared_0] = x[12*c_tile+x_shared_0]
 *                                                       for lanes lane in 0..16
 *                                                         X[0,lane] = x_shared[lane]
 */

import { affineForm, boundsOf, type Extents, exprOf, fuseRowMajor } from "../../abstraction/affine.ts";
import { sortedBy, volumeOf } from "../../abstraction/collections.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  axis,
  type Expr,
  minus,
  number,
  plus,
  printAccess,
  readsOf,
  rewrite,
} from "../../abstraction/expression.ts";
import { type LoopNest, loops, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { type SpaceTimeTransform, type Specification, spaceTimeOf } from "../../abstraction/specification.ts";
import { type Flows, flowsOf } from "./flow.ts";
import { reorderFlows, tileFlows } from "./interchange.ts";
import { type LowerOptions, lowerFlows } from "./lower.ts";
import { simplified } from "./place.ts";

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
  const destination = sortedBy(transform.destination, (a) => Number(a.startsWith("t")));
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

// ---- a buffer of the block ----------------------------------------------------------------------------------------------------------------

/**
 * @param outsideLoops the number of loops around the array
 * @throws UsageError if the array does not read the tensor, or not at affine positions
 */
function inShared(nest: LoopNest, tensor: Tensor | undefined, name: string, outsideLoops: number): LoopNest {
  if (!tensor) throw new UsageError(`store_in: no tensor "${name}"`);
  const buffer = `${name}_shared`;
  let elements = 0;
  const stage = (statements: readonly Statement[], loopsLeft: number): readonly Statement[] => {
    const [only] = statements;
    if (loopsLeft > 0 && only?.kind === "loop") return [{ ...only, body: stage(only.body, loopsLeft - 1) }];
    const reads = readsIn(statements, name, {});
    if (reads.length === 0) throw new UsageError(`store_in: the array does not read ${name}`);
    // 1. The box that is read. Its corner moves with the loops outside.
    const box = tensor.dims.map((_, d) => {
      const parts = reads.map(({ read, inner }) => splitIndex(read, d, inner));
      const [first] = parts;
      const corner = first?.corner ?? number(0);
      const apart = parts.find((p) => p.text !== first?.text);
      if (apart) throw new UsageError(`store_in: ${name} is read at places that move apart`);
      const least = Math.min(...parts.map((p) => p.least));
      return { corner: plus(corner, least), extent: Math.max(...parts.map((p) => p.most)) - least + 1 };
    });
    elements = volumeOf(box);
    // 2. Copy it in, then read from there.
    const copies = box.map((b, d) => ({ name: `${buffer}_${d}`, extent: b.extent }));
    const flat = (index: readonly Expr[]): Access =>
      access(buffer, [fuseRowMajor(index.map((e, d) => ({ index: e, extent: box[d]?.extent ?? 1 })))]);
    const copy: Statement = scalar({
      target: flat(copies.map((c) => axis(c.name))),
      op: "=",
      value: access(
        name,
        box.map((b, d) => plus(b.corner, axis(copies[d]?.name ?? ""))),
      ),
    });
    const there = (e: Expr): Expr =>
      rewrite(
        e,
        (node) =>
          node.kind === "access" && node.tensor === name
            ? flat(node.index.map((index, d) => simplified(minus(index, box[d]?.corner ?? number(0)))))
            : node,
        "value",
      );
    return [...loops(copies, [copy]), ...statements.map((s) => changed(s, there))];
  };
  const body = stage(nest.body, outsideLoops);
  return { ...nest, scratch: [...nest.scratch, { name: buffer, dtype: tensor.dtype, elements, scope: "local" }], body };
}

function readsIn(statements: readonly Statement[], name: string, inner: Extents): { read: Access; inner: Extents }[] {
  return statements.flatMap((s) => {
    if (s.kind === "loop") return readsIn(s.body, name, { ...inner, [s.axis]: s.extent });
    if (s.kind !== "scalar") return [];
    return readsOf(s.equation.value, name).map((read) => ({ read, inner }));
  });
}

/** The part of an index that depends on the outside loops, and the bounds of the rest. */
function splitIndex(
  read: Access,
  d: number,
  inner: Extents,
): { corner: Expr; text: string; least: number; most: number } {
  const form = affineForm(read.index[d] ?? number(0));
  if (!form)
    throw new UsageError(`store_in: ${printAccess(read)} is not affine, so its part of the tensor is not known`);
  const outer = [...form.terms].filter(([name]) => !Object.hasOwn(inner, name)).toSorted();
  const within = [...form.terms].filter(([name]) => Object.hasOwn(inner, name));
  const [least, most] = boundsOf(exprOf({ constant: form.constant, terms: new Map(within) }), inner);
  return { corner: exprOf({ constant: 0, terms: new Map(outer) }), text: outer.join(";"), least, most };
}

function changed(s: Statement, change: (e: Expr) => Expr): Statement {
  if (s.kind === "loop") return { ...s, body: s.body.map((inner) => changed(inner, change)) };
  if (s.kind !== "scalar") return s;
  return { ...s, equation: { ...s.equation, value: change(s.equation.value) } };
}
