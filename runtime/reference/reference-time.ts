/**
 * @file Prints the parts of a program of time steps that surround the single step of reference-source.ts.
 *
 *     u_0 [10,12]: the plane with a border of the reach of a step around it      border(); step; swap(u, u_0);      100 times
 *
 * The plane is padded with its border, which is filled before every step, so that no read is tested.
 */

import { rowMajor } from "../../abstraction/affine.ts";
import { mapValues } from "../../abstraction/collections.ts";
import { type Computation, type Tensor, targetOf } from "../../abstraction/computation.ts";
import { type Expr, number, rewrite } from "../../abstraction/expression.ts";
import { block, type Code, code, list, Name, NOTHING } from "../../abstraction/source-text.ts";
import type { Time } from "../../abstraction/time.ts";
import { dataName, placeName } from "./reference-source.ts";

/** The number of positions that a step reads beyond the plane, along each axis. */
export const reachOf = (time: Time, d: number): number =>
  Math.max(0, ...time.dependences.map((v) => Math.abs(v[d + 1] ?? 0)));

/** A step on planes with a border around them. */
export function bordered({ step, first, ...time }: Time): Computation {
  const reach = targetOf(step).dims.map((_, d) => reachOf({ step, first, ...time }, d));
  const plus = (e: Expr, by: number): Expr => (by === 0 ? e : { kind: "binary", op: "+", left: e, right: number(by) });
  const wide = (tensor: Tensor): Tensor => {
    const dims = tensor.dims.map((dim, d) => ({ ...dim, extent: dim.extent + 2 * (reach[d] ?? 0) }));
    return { ...tensor, dims, storage: rowMajor(dims) };
  };
  const { target, value } = step.equation;
  const moved = rewrite(
    value,
    (e) =>
      e.kind === "access" && e.tensor === first
        ? { ...e, index: e.index.map((i, d) => plus(i.kind === "border" ? i.index : i, reach[d] ?? 0)) }
        : e,
    "value",
  );
  const planes = [first, target.tensor];
  return {
    ...step,
    equation: {
      ...step.equation,
      target: { ...target, index: target.index.map((i, d) => plus(i, reach[d] ?? 0)) },
      value: moved,
    },
    tensors: mapValues(step.tensors, (t) => (planes.includes(t.name) ? wide(t) : t)),
  };
}

/** `border()`: fills the border of the plane that is read next. @param wide a step on planes with a border */
export function borderFunction(wide: Computation, time: Time): Code[] {
  const names = targetOf(wide).dims.map((_, d) => new Name("axis", `i${d}`, `plane ${d}`));
  const filled = time.borders.flatMap((how, d) => (how === "zero" ? [] : borderLines(wide, time, d, how, names)));
  return block(code`static void border() {`, filled);
}

/** Fills the border along one axis, everywhere along the others. */
function borderLines(
  wide: Computation,
  time: Time,
  along: number,
  how: "clamp" | "reflect" | "wrap",
  names: readonly Name[],
): Code[] {
  const reach = reachOf(time, along);
  const dims = wide.tensors[time.first]?.dims ?? [];
  const extent = (dims[along]?.extent ?? 0) - 2 * reach;
  const own = names[along] ?? NOTHING;
  const data = dataName(time.first);
  const place = (index: Code): Code =>
    code`it.${placeName(time.first)}(${list(names.map((name, d) => (d === along ? index : name)))})`;
  return [
    ...dims.map((dim, d) => {
      const name = names[d] ?? NOTHING;
      return code`for (Int ${name} = 0; ${name} < ${d === along ? 2 * reach : dim.extent}; ${name}++)`;
    }),
    code`{
    const Int outside = ${own} < ${reach} ? ${own} - ${reach} : ${own} - ${reach} + ${extent};
    it.${data}.set(${place(code`outside + ${reach}`)}, it.${data}[${place(code`${`${how}_index` as const}(outside, ${extent}) + ${reach}`)}]);
  }`,
  ];
}
