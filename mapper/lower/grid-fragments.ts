/**
 * @file Lowers the products of a step: fragments of both inputs are fetched from shared memory, and the instruction is
 * issued on all pairs of them.
 *
 *     for unrolled k_part
 *       a{0..3} <- a_ring[step%3, 64*m_warp + 16*m_fragment + m_in, 16*k_part + k_in] by ldmatrix
 *       b{0..7} <- b_ring[...]
 *       c{8*m_fragment + n_fragment} <- mma(a{m_fragment}, b{n_fragment})
 */

import { conditionOf, somewhere } from "../../abstraction/condition.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { kept } from "../../abstraction/epilogue.ts";
import { and, axis, type Expr, number, plus, remainder, times } from "../../abstraction/expression.ts";
import type { Statement, TileAccess } from "../../abstraction/loop-nest.ts";
import { when } from "../match/conditions.ts";
import { partsOf, setsOf } from "../schedule/fragments.ts";
import type { GridInput } from "../schedule/grid-context.ts";
import { rolledOf } from "../schedule/rolled.ts";
import { fragmentsAlong } from "../schedule/tile.ts";
import { ringAt, tapAccess } from "./grid-copies.ts";
import { boxAccess } from "./grid-gather.ts";
import { type GridPlaces, unrolled } from "./grid-places.ts";

/** The products of a step by an instruction that reads shared memory itself (wgmma), committed as one group. */
export function sendOff(places: GridPlaces, step: Expr): readonly Statement[] {
  const { sum, intrinsic, inputs, target } = places.context;
  const name = places.name(sum, "part");
  const tiles = Object.fromEntries(
    inputs.map((input) => {
      const inSum = inPart(places, axis(name));
      const inKept = places.elementAt(input.kept);
      const tile: TileAccess = {
        axes: tileAxes(places, input),
        access:
          places.window && input === places.window.input
            ? tapAccess(places, places.window, step, inKept, inSum)
            : ringAt(places, input, step, [inKept, inSum]),
        by: "instruction",
      };
      return [input.operand.name, tile];
    }),
  );
  const registers = { [target.name]: places.sum() };
  return [
    { kind: "fence", on: "registers", of: intrinsic },
    ...unrolled(
      name,
      partsOf(places.context, places.size),
      places.eachSum([{ kind: "register-issue", intrinsic, registers, tiles }]),
    ),
    { kind: "commit", of: intrinsic },
  ];
}

/**
 * All products of a step. Fragments are fetched either just before their part is multiplied, or during the part before.
 */
export function multiply(places: GridPlaces, step: Expr): readonly Statement[] {
  const { sum } = places.context;
  const parts = partsOf(places.context, places.size);
  const name = places.name(sum, "part");
  const part = axis(name);
  const fetches = (at: Expr): readonly Statement[] => fetchesOf(places, step, at);
  const issues = (at: Expr): readonly Statement[] => issuesOf(places, at);
  if (places.schedule.fragments === "rolled") return multiplyRolled(places, step, name);
  if (places.schedule.fragments === "inline" || parts === 1)
    return unrolled(name, parts, [...fetches(part), ...issues(part)]);
  return [
    ...fetches(number(0)),
    ...unrolled(name, parts - 1, [...fetches(plus(part, 1)), ...issues(part)]),
    ...issues(number(parts - 1)),
  ];
}

/**
 * The products of a step whose first fragments have already been fetched.
 * @param freed issued after the step's last fetches but one; the stage of the previous step is free by then
 * @param next issued before the last products: the barrier that admits the next step, and the fetch of its first
 * fragments
 */
export function multiplyAcross(
  places: GridPlaces,
  step: Expr,
  freed: readonly Statement[],
  next: readonly Statement[],
): readonly Statement[] {
  const parts = partsOf(places.context, places.size);
  const name = places.name(places.context.sum, "part");
  const part = axis(name);
  const ahead = (at: Expr): readonly Statement[] => [...fetchesOf(places, step, plus(at, 1)), ...issuesOf(places, at)];
  return [
    ...fetchesOf(places, step, number(1)),
    ...freed,
    ...issuesOf(places, number(0)),
    ...(parts > 2 ? unrolled(name, parts - 2, ahead(plus(part, 1))) : []),
    ...next,
    ...issuesOf(places, number(parts - 1)),
  ];
}

/** Kept elements of a tile (8 rows, one matrix) of which two tiles share one `ldmatrix` of four matrices. */
const PAIRED_EXTENT = 8;

/**
 * The products of the only step, row of taps by row of taps. Fragments of the image stay in registers for the next row, which reads the same
 * rows of the image and one below.
 */
function multiplyRolled(places: GridPlaces, step: Expr, name: string): readonly Statement[] {
  const rolled = rolledOf(places.context, places.schedule);
  if (typeof rolled === "string") throw new Error(`internal: ${rolled}`);
  const { input, count, taps, parts } = rolled;
  const others = places.context.inputs.filter((i) => i !== input);
  const held = axis(name);
  const fragment = places.counter(input.kept, "fragment");
  const turned = (first: Expr, row: Expr): Expr => plus(times(count, held), remainder(plus(first, row), count));
  const issues = (row: Expr): readonly Statement[] => {
    const part = plus(times(parts, row), held);
    const fetched = others.flatMap((other) => fetchesOfInput(places, other, step, part));
    return [...fetched, ...issuesOf(places, part, (i) => (i === input ? turned(fragment, row) : undefined))];
  };
  const ahead = fetchesOfInput(places, input, step, held, { register: (first) => plus(times(count, held), first) });
  const row = plus(axis(places.fresh("tap_row")), 1);
  const below = fetchesOfInput(places, input, step, plus(times(parts, row), held), {
    register: (first) => turned(first, row),
    only: count - 1,
  });
  return [
    ...unrolled(name, parts, ahead),
    ...unrolled(name, parts, issues(number(0))),
    ...unrolled(places.fresh("tap_row"), taps - 1, unrolled(name, parts, [...below, ...issues(row)])),
  ];
}

/** A position in a part of a step's sum. */
const inPart = (places: GridPlaces, part: Expr): Expr => {
  const { sum } = places.context;
  return plus(times(sum.extent, part), places.counter(sum, "in"));
};

/** The counters within a tile of an input. */
const tileAxes = (places: GridPlaces, { operand, kept }: GridInput): readonly string[] =>
  operand.dims.map((d) => places.name(d.name === kept.axis ? kept : places.context.sum, "in"));

/** Fetches the fragments of one part of a step into the register set for that part. */
export function fetchesOf(places: GridPlaces, step: Expr, part: Expr): readonly Statement[] {
  return places.context.inputs.flatMap((input) => fetchesOfInput(places, input, step, part));
}

/** @param how the register of a fragment, if not that of its set; the only fragment to fetch, if not all */
function fetchesOfInput(
  places: GridPlaces,
  input: GridInput,
  step: Expr,
  part: Expr,
  how: { readonly register?: (first: Expr) => Expr; readonly only?: number } = {},
): readonly Statement[] {
  const { operand, kept } = input;
  const count = fragmentsAlong(kept, places.schedule);
  const box = places.box?.input === input ? places.box : undefined;
  const by = box && !box.inRows ? "elements" : fetchBy(input);
  const paired =
    how.only === undefined && by.startsWith("ldmatrix") && count % 2 === 0 && kept.extent === PAIRED_EXTENT;
  const name = places.name(kept, "fragment");
  const first = how.only === undefined ? (paired ? times(2, axis(name)) : axis(name)) : number(how.only);
  const place = plus(plus(places.warpAt(kept), times(kept.extent, first)), places.counter(kept, "in"));
  const inSum = inPart(places, part);
  const along = operand.dims.findIndex((d) => d.name === kept.axis);
  const fetch: Statement = {
    kind: "fetch",
    register: { file: operand.name, index: how.register?.(first) ?? plus(setOf(places, input, part), first) },
    tile: {
      axes: tileAxes(places, input),
      ...(box ? boxAccess(places, box, step, place, inSum) : { access: ringAt(places, input, step, [place, inSum]) }),
      by,
      ...(paired && { several: { count: 2, along } }),
    },
  };
  return how.only === undefined ? unrolled(name, paired ? count / 2 : count, [fetch]) : [fetch];
}

/** @param registerOf the register of an input's fragment, if not that of its set */
function issuesOf(
  places: GridPlaces,
  part: Expr,
  registerOf: (input: GridInput) => Expr | undefined = () => undefined,
): readonly Statement[] {
  const { target, intrinsic, inputs } = places.context;
  const registers = Object.fromEntries(
    inputs.map((input) => {
      const index = registerOf(input) ?? plus(setOf(places, input, part), places.counter(input.kept, "fragment"));
      return [input.operand.name, { file: input.operand.name, index }];
    }),
  );
  const sums = { [target.name]: places.sum() };
  const issue: Statement = { kind: "register-issue", intrinsic, registers: { ...sums, ...registers } };
  return places.eachSum(whereStored(places, [issue]));
}

/** Work on a tile of sums, tested where an epilogue stores only some of the tiles. */
function whereStored(places: GridPlaces, work: readonly Statement[]): readonly Statement[] {
  const { equation, epilogue } = places.context.mapping.computation;
  const asked = epilogue ? kept(equation, epilogue.equation) : [];
  if (asked.length === 0) return work;
  const ofFragment = places.spansOf((along) => {
    const low = plus(times(places.extent(along), places.tileAt(along)), places.fragmentAt(along));
    return { low, elements: along.extent, grain: along.extent };
  });
  return when(somewhere(conditionOf(asked.reduce(and)), ofFragment), work);
}

/** The first register of the fragment set that a part of the sum uses. */
function setOf({ schedule }: GridPlaces, input: GridInput, part: Expr): Expr {
  return times(fragmentsAlong(input.kept, schedule), remainder(part, setsOf(schedule)));
}

/** Element size in bytes that `ldmatrix.trans` can transpose. */
const TURNED_BYTES = 2;

/**
 * How fragments are fetched. Elements of other sizes can be fetched only if they are contiguous along the sum, or one
 * by one.
 */
function fetchBy({ operand, contiguous }: GridInput): TileAccess["by"] {
  if (operand.storage === undefined) return "instruction";
  if (contiguous === "sum") return "ldmatrix";
  return bytesOf(operand.dtype) === TURNED_BYTES ? "ldmatrix.trans" : "elements";
}
