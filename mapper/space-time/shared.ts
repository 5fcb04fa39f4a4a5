/**
 * @file A buffer of the block for the part of a tensor that one run of the array reads.
 *
 *     for c_tile in 0..4                              for c_tile in 0..4
 *       for lanes lane in 0..16                         for x_shared_0 in 0..16
 *         X[0,lane] = x[12*c_tile+lane]       ->          x_shared[x_shared_0] = x[12*c_tile+x_shared_0]
 *                                                       for lanes lane in 0..16
 *                                                         X[0,lane] = x_shared[lane]
 */

import { affineForm, boundsOf, type Extents, exprOf, fuseRowMajor } from "../../abstraction/affine.ts";
import { volumeOf } from "../../abstraction/collections.ts";
import type { Tensor } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axis,
  type Expr,
  minus,
  number,
  plus,
  printAccess,
  rewrite,
} from "../../abstraction/expression.ts";
import { type LoopNest, loops, type Statement, scalar } from "../../abstraction/loop-nest.ts";
import { simplified } from "./coordinates.ts";

/**
 * @param outsideLoops the number of loops around the array
 * @throws UsageError if the array does not read the tensor, or not at affine positions
 */
export function inShared(nest: LoopNest, tensor: Tensor | undefined, name: string, outsideLoops: number): LoopNest {
  if (!tensor) throw new UsageError(`store_in: no tensor "${name}"`);
  const buffer = `${name}_shared`;
  let elements = 0;
  const stage = (statements: readonly Statement[], loopsLeft: number): readonly Statement[] => {
    const [only] = statements;
    if (loopsLeft > 0 && only?.kind === "loop") return [{ ...only, body: stage(only.body, loopsLeft - 1) }];
    const reads = readsOf(statements, name, {});
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

function readsOf(statements: readonly Statement[], name: string, inner: Extents): { read: Access; inner: Extents }[] {
  return statements.flatMap((s) => {
    if (s.kind === "loop") return readsOf(s.body, name, { ...inner, [s.axis]: s.extent });
    if (s.kind !== "scalar") return [];
    return accessesIn(s.equation.value)
      .filter((a) => a.tensor === name)
      .map((read) => ({ read, inner }));
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
