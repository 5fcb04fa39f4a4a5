/**
 * @file Generates the program that computes the expected plane of a stencil's time steps: one step as in
 * reference-source.ts, run repeatedly.
 *
 *     u_0 [10,12]: the plane with a border of the reach of a step around it      border(); share(); swap(u, u_0);      100 times
 *
 * The plane is padded with its border, which is filled before every step, so that no read is tested.
 */

import { type Computation, elementCount, inputsOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { type Expr, number, rewrite } from "../abstraction/expression.ts";
import { rowMajor } from "../abstraction/layout.ts";
import { apart, type Code, code, lines, list, Name, NOTHING, type SourceText } from "../abstraction/source-text.ts";
import { spell } from "../abstraction/spelling.ts";
import type { Time } from "../abstraction/time.ts";
import {
  dataName,
  type Holding,
  harnessText,
  heldAsNumbers,
  LANES,
  placeName,
  referenceStruct,
  sharedAxis,
  workers,
} from "./reference-source.ts";

/** The number of positions that a step reads beyond the plane, along each axis. */
export const reachOf = (time: Time, d: number): number =>
  Math.max(0, ...time.dependences.map((v) => Math.abs(v[d + 1] ?? 0)));

/** A plane of f32 is held as f32: the values are those of the interpreter, in half the memory. */
function heldShort(tensor: Tensor): Holding {
  const numbers = heldAsNumbers(tensor);
  return tensor.dtype === "f32" ? { ...numbers, type: code`Elements<float>` } : numbers;
}

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
    tensors: Object.fromEntries(
      Object.values(step.tensors).map((t) => [t.name, planes.includes(t.name) ? wide(t) : t]),
    ),
  };
}

/** The program: its arguments are those of `referenceSource`. */
export function timeSource(computation: Computation, time: Time): SourceText {
  const wide = bordered(time);
  const inputs = inputsOf(computation);
  const plane = targetOf(computation);
  const now = dataName(time.first);
  const next = dataName(plane.name);
  const shared = sharedAxis(wide);
  const names = plane.dims.map((_, d) => new Name("axis", `i${d}`, `plane ${d}`));
  const reach = plane.dims.map((_, d) => reachOf(time, d));
  const inside = code`it.${placeName(time.first)}(${list(names.map((name, d) => code`${name} + ${reach[d] ?? 0}`))})`;
  const over = plane.dims.map(
    ({ extent }, d) =>
      code`  for (Int ${names[d] ?? NOTHING} = 0; ${names[d] ?? NOTHING} < ${extent}; ${names[d] ?? NOTHING}++)`,
  );
  const threads = code`atoi(files[${inputs.length + 2}])`;
  const size = elementCount(wide.tensors[plane.name] ?? plane);
  const text = lines([
    apart(harnessText("arithmetic.h")),
    apart(harnessText("elements.h")),
    referenceStruct(code`Reference`, wide, heldShort, LANES),
    code`static Reference it;`,
    ...(shared ? workers(shared.extent, false) : []),
    ...borderFunction(wide, time),
    code`int main(int, char** files) {`,
    ...inputs.map((t, i) =>
      t.name === time.first
        ? code`  decltype(it.${now}) given; given.read(files[${i + 1}], ${elementCount(t)});`
        : code`  it.${dataName(t.name)}.read(files[${i + 1}], ${elementCount(t)});`,
    ),
    code`  it.${now}.fill(${size}, 0), it.${next}.fill(${size}, 0);`,
    code`  Int at = 0;`,
    ...over,
    code`    it.${now}.set(${inside}, given[at++]);`,
    code`  for (Int step = 0; step < ${time.steps}; step++) {`,
    code`    border();`,
    shared ? code`    share(${threads});` : code`    it.compute_part(0, 1);`,
    code`    auto made = it.${next};`,
    code`    it.${next} = it.${now}, it.${now} = made;`,
    code`  }`,
    code`  at = 0;`,
    ...over,
    code`    given.set(at++, it.${now}[${inside}]);`,
    code`  given.write(files[${inputs.length + 1}]);`,
    code`}`,
    NOTHING,
  ]);
  return spell(text, "c++");
}

/** `border()`: fills the border of the plane that is read next. @param wide a step on planes with a border */
export function borderFunction(wide: Computation, time: Time): Code[] {
  const names = targetOf(wide).dims.map((_, d) => new Name("axis", `i${d}`, `plane ${d}`));
  return [
    code`static void border() {`,
    ...time.borders.flatMap((how, d) => (how === "zero" ? [] : borderLines(wide, time, d, how, names))),
    code`}`,
  ];
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
      return code`  for (Int ${name} = 0; ${name} < ${d === along ? 2 * reach : dim.extent}; ${name}++)`;
    }),
    code`  {`,
    code`    const Int outside = ${own} < ${reach} ? ${own} - ${reach} : ${own} - ${reach} + ${extent};`,
    code`    it.${data}.set(${place(code`outside + ${reach}`)}, it.${data}[${place(code`${`${how}_index` as const}(outside, ${extent}) + ${reach}`)}]);`,
    code`  }`,
  ];
}
