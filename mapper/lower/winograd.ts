/**
 * @file Lowers a convolution by Winograd's transforms (abstraction/winograd.ts) to one nest. Blocks of windows are transformed, multiplied and
 * transformed back, so that what lies between stays in a core's caches.
 *
 *     prepare   filters = G w G^T                        packed as the products read them
 *     for parallel slot, for image_block, row_block      a slot is the memory of one thread's block
 *       image = in                                       the block's rows with their border, channels innermost
 *       tiles = B image B^T
 *       sums[z] += tiles[z] * filters[z]                 register tiles of windows x channels
 *       result = A sums A^T                              and what is made of the sums of the convolution
 *       out = result                                     where channels are not innermost
 *
 * One block is the whole. Then threads share each of the steps, with a barrier behind it.
 */

import { addressOf, type Dimension, extentOf, rowMajor, shapeOf } from "../../abstraction/affine.ts";
import type { WinogradSchedule } from "../../abstraction/candidate.ts";
import { groupsOf, sortedBy } from "../../abstraction/collections.ts";
import {
  type Computation,
  extentsOf,
  memoryElements,
  outputOf,
  type Tensor,
  tensorOf,
} from "../../abstraction/computation.ts";
import { allOf } from "../../abstraction/condition.ts";
import { elementAxes } from "../../abstraction/epilogue.ts";
import { internal } from "../../abstraction/error.ts";
import {
  type Access,
  access,
  accessesIn,
  axesIn,
  axis,
  compare,
  type Expr,
  minus,
  number,
  plus,
  rewriteReads,
  substituteEach,
  times,
} from "../../abstraction/expression.ts";
import { assign, type LoopNest, loop, loops, type Scratch, type Statement } from "../../abstraction/loop-nest.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { rewriteStatement } from "../../abstraction/rewrite-statement.ts";
import { storingEquation } from "../../abstraction/row-chain.ts";
import type { Convolution, WinogradParts } from "../../abstraction/winograd.ts";
import { when } from "../match/conditions.ts";
import { strideAlong } from "../schedule/dense-runs.ts";
import type { PlainLoops } from "./loops.ts";
import { lowerSchedule } from "./scheduled.ts";
import { type Chosen, lowerTransform } from "./winograd-transform.ts";

/** What is lowered: the steps, and the mapping of the products of a block. */
export interface WinogradForm {
  readonly computation: Computation;
  readonly convolution: Convolution;
  readonly parts: WinogradParts;
  readonly mapping: Mapping;
}

/** The schedule of the products of a block: the windows of a register tile meet the filters that it holds. */
export const scheduleOfProducts = (
  { windows, vectors }: Pick<WinogradSchedule, "windows" | "vectors">,
  { binding, intrinsic }: Mapping,
) => ({
  order: ["z", "t", "j", "k", "c"],
  block: { ...(vectors > 1 && { k: vectors }), ...(windows > 1 && { t: windows }) },
  placement: Object.fromEntries(
    Object.keys(binding)
      .filter((operand) => operand !== intrinsic.computation.equation.target.tensor)
      .map((operand) => [operand, "in-place" as const]),
  ),
  threads: 1,
});

export function lowerWinograd(form: WinogradForm, schedule: WinogradSchedule): PlainLoops {
  return new Lowering(form, schedule).lower();
}

const IMAGES = "image_block";
const ROWS = "row_block";
const SLOT = "slot";
const FIRST_BLOCK = new Map([IMAGES, ROWS].map((name) => [name, number(0)]));

/** A buffer that holds elements of a tensor: those of one block, if loops over blocks stand around. */
interface Held extends Pick<Tensor, "dims" | "storage"> {
  readonly buffer: string;
}

const held = (buffer: string, { dims, storage }: Pick<Tensor, "dims" | "storage">): Held => ({ buffer, dims, storage });
const heldRowMajor = (buffer: string, dims: readonly Dimension[]): Held => ({ buffer, dims, storage: rowMajor(dims) });

class Lowering {
  private readonly form: WinogradForm;
  private readonly schedule: WinogradSchedule;
  private readonly blocks: { readonly images: number; readonly rows: number };
  private readonly isWhole: boolean;
  /** Blocks that lie in memory at once. */
  private readonly slots: number;
  private readonly images: Chosen;
  private readonly rows: Chosen;
  private readonly image: Held;
  /** Outputs of a block with channels innermost; undefined where they are innermost in the output. */
  private readonly result: Held | undefined;
  private readonly inside = new Set<Access>();

  constructor(form: WinogradForm, schedule: WinogradSchedule) {
    const { parts } = form;
    this.form = form;
    this.schedule = schedule;
    this.blocks = { images: parts.images / schedule.images, rows: parts.high / schedule.rows };
    this.isWhole = this.blocks.images * this.blocks.rows === 1;
    this.slots = this.isWhole ? 1 : schedule.threads;
    const chosen = (name: string, count: number, of: number): Chosen => ({
      first: this.isWhole ? number(0) : times(axis(name), count),
      count,
      of,
    });
    this.images = chosen(IMAGES, schedule.images, parts.images);
    this.rows = chosen(ROWS, schedule.rows, parts.high);
    this.image = held("image", tensorOf(parts.windows.computation, "image"));
    this.result = this.turnedResult();
  }

  lower(): PlainLoops {
    const { convolution, parts, mapping, computation } = this.form;
    const { n, p } = convolution.axes;
    const summed = lowerSchedule(mapping, scheduleOfProducts(this.schedule, mapping));
    const lanes = extentOf("k", extentsOf(parts.products)) / this.schedule.vectors;
    const windows = lowerTransform(parts.windows, lanes);
    const filters = lowerTransform(parts.filters, lanes);
    const back = lowerTransform(
      parts.back,
      lanes,
      new Map([
        [n, this.images],
        [p, this.rows],
      ]),
    );
    const tensorIn = (made: Computation, name: string): [string, Held] => [name, held(name, tensorOf(made, name))];
    const ofProducts = ["tiles", "filters", "sums"].map((name) => tensorIn(parts.products, name));
    const sizes = tensorOf(parts.back.computation, "sums").dims.map(({ extent }, d) =>
      d === 2 ? this.images.count : d === 3 ? this.rows.count : extent,
    );
    const sums = tensorOf(parts.back.computation, "sums").dims.map((dim, d) => ({ ...dim, extent: sizes[d] ?? 1 }));
    const output = outputOf(computation).name;
    const steps = [
      [...(this.isWhole ? this.borderCleared() : []), ...this.imageLoaded()],
      this.placed(windows, windows.nest.body, [
        tensorIn(parts.windows.computation, "image"),
        tensorIn(parts.windows.computation, "tiles"),
      ]),
      this.placed({ nest: summed, inside: new Set() }, summed.body, ofProducts),
      this.placed(back, back.nest.body, [
        ["sums", heldRowMajor("sums", sums)],
        ...(this.result ? [[output, this.result] as [string, Held]] : []),
      ]),
      this.resultStored(),
    ].filter((step) => step.length > 0);
    const buffers = [...ofProducts.map(([, one]) => one), this.image, ...(this.result ? [this.result] : [])];
    return {
      nest: {
        scratch: [
          ...buffers.map(
            ({ buffer, ...memory }): Scratch => ({
              name: buffer,
              dtype: buffer === "result" ? outputOf(computation).dtype : "f32",
              elements: elementsOf(memory) * this.slotsOf(buffer),
              scope: buffer === "filters" ? "workspace" : "scratch",
            }),
          ),
          ...together([windows.nest, filters.nest, summed, back.nest]),
        ],
        registers: summed.registers,
        prepare: this.placed(filters, filters.nest.body, [tensorIn(parts.filters.computation, "filters")], true),
        body: this.isWhole
          ? steps.flatMap((step, i) => (i === 0 ? step : [{ kind: "barrier" as const }, ...step]))
          : this.dealt(steps.flat()),
      },
      inside: this.inside,
    };
  }

  /** All blocks, in order. A slot takes as many as each of the others. */
  private dealt(body: readonly Statement[]): readonly Statement[] {
    const { blocks, slots } = this;
    const each = Math.ceil((blocks.images * blocks.rows) / slots);
    // The number of a slot's first block, counted from the first one of these images.
    const first = minus(times(axis(SLOT), each), times(axis(IMAGES), blocks.rows));
    const range = slots === 1 ? {} : { range: { from: [first], to: [plus(first, each)] } };
    const inRows = { ...loop(ROWS, blocks.rows, body), ...range };
    return [loop(SLOT, slots, [...this.borderCleared(), loop(IMAGES, blocks.images, [inRows])], "parallel")];
  }

  // ---- input and output -------------------------------------------------------------------------------------------------------

  /** Columns of a block's image: those of the border before the input's, and the input's. */
  private columns(): { readonly leading: number; readonly inner: number } {
    const { computation, convolution } = this.form;
    const leading = convolution.begins[1];
    const width = this.image.dims[2]?.extent ?? 1;
    const of = tensorOf(computation, convolution.image.tensor).dims[3]?.extent ?? 1;
    return { leading, inner: Math.min(of, width - leading) };
  }

  /** An assignment to the columns of a block's image from one on, at each channel. */
  private overColumns(
    first: number,
    count: number,
    [image, row]: readonly [string, string],
    value: Expr,
  ): readonly Statement[] {
    const column = plus(axis("column"), first);
    const place = this.address(this.image, [axis(image), axis(row), column, axis("channel")]);
    const channels = this.image.dims[3]?.extent ?? 1;
    return loops(
      [
        { name: "column", extent: count },
        { name: "channel", extent: channels },
      ],
      [assign(access("image", [place]), value)],
    );
  }

  /** Columns of the border, in each call: other kernels may have written there. No block writes them. */
  private borderCleared(): readonly Statement[] {
    const [, height = 1, width = 1] = shapeOf(this.image);
    const { leading, inner } = this.columns();
    const sides = [
      [0, leading],
      [leading + inner, width - leading - inner],
    ] as const;
    return sides
      .filter(([, count]) => count > 0)
      .flatMap(([first, count]) =>
        this.overRows("border", height, this.overColumns(first, count, ["border_number", "border_row"], number(0))),
      );
  }

  /** Rows of the input with zeros for those of the border, channels innermost. */
  private imageLoaded(): readonly Statement[] {
    const { computation, convolution } = this.form;
    const { image, begins } = convolution;
    const tensor = tensorOf(computation, image.tensor);
    const height = this.image.dims[1]?.extent ?? 1;
    const { leading, inner } = this.columns();
    const row = minus(plus(times(this.rows.first, this.schedule.outputs), axis("image_row")), begins[0]);
    const read = access(image.tensor, [
      plus(this.images.first, axis("image_number")),
      axis("channel"),
      row,
      axis("column"),
    ]);
    this.inside.add(read);
    const over = (value: Expr) => this.overColumns(leading, inner, ["image_number", "image_row"], value);
    const isRow = allOf([compare(">=", row, 0), compare("<", row, tensor.dims[2]?.extent ?? 1)]);
    return this.overRows("image", height, when(isRow, over(read), over(number(0))));
  }

  private turnedResult(): Held | undefined {
    const { computation, convolution, parts } = this.form;
    const { target } = storingEquation(computation);
    const k = this.outputAxes().get("k");
    if (k === undefined || strideAlong(target, outputOf(computation), k) === 1) return undefined;
    const made = tensorOf(parts.back.computation, "sums").dims.at(-1)?.extent ?? 1;
    const { outputs, images, rows } = this.schedule;
    const extents = { n: images, p: rows * outputs, q: parts.wide * outputs, k: made };
    const roles = new Map([...this.outputAxes()].map(([role, name]) => [name, role]));
    const dims = target.index.map((e, d) => {
      const role = roles.get(axesIn(e)[0] ?? "") ?? internal(`${convolution.image.tensor}: no plain output`);
      return { name: `${role}${d}`, role, extent: extents[role] };
    });
    const inOrder = (["n", "p", "q", "k"] as const).flatMap((role) => dims.find((d) => d.role === role) ?? []);
    return { buffer: "result", dims: dims.map(({ name, extent }) => ({ name, extent })), storage: rowMajor(inOrder) };
  }

  /** Names of the axes of the equation that stores, by what they are in the convolution. */
  private outputAxes(): ReadonlyMap<"n" | "k" | "p" | "q", string> {
    const { computation, convolution } = this.form;
    const { n, k, p, q } = convolution.axes;
    const { epilogue } = computation;
    const [a = n, b = k, c = p, d = q] = epilogue ? elementAxes(epilogue.equation, epilogue.sum.name) : [];
    return new Map([
      ["n", a],
      ["k", b],
      ["p", c],
      ["q", d],
    ]);
  }

  private resultStored(): readonly Statement[] {
    const { result } = this;
    if (!result) return [];
    const { computation } = this.form;
    const { target } = storingEquation(computation);
    const { outputs } = this.schedule;
    const { dims } = outputOf(computation);
    const axes = this.outputAxes();
    const placeOf = (role: "n" | "k" | "p" | "q"): number =>
      target.index.findIndex((e) => axesIn(e)[0] === axes.get(role));
    const extentOf = (role: "n" | "k" | "p" | "q"): number => dims[placeOf(role)]?.extent ?? 1;
    const row = plus(times(this.rows.first, outputs), axis("result_row"));
    const places: readonly (readonly [number, Expr])[] = [
      [placeOf("n"), plus(this.images.first, axis("result_number"))],
      [placeOf("p"), row],
      [placeOf("q"), axis("column")],
      [placeOf("k"), axis("channel")],
    ];
    const index = places.toSorted(([a], [b]) => a - b).map(([, e]) => e);
    const stored = access(target.tensor, index);
    this.inside.add(stored);
    const copied = assign(stored, access("result", [this.address(result, index)]));
    const body = loops(
      [
        { name: "channel", extent: extentOf("k") },
        { name: "column", extent: extentOf("q") },
      ],
      [copied],
    );
    const isCut = this.rows.of * outputs > extentOf("p");
    const height = this.rows.count * outputs;
    const whole = isCut ? when(allOf([compare("<", row, extentOf("p"))]), body, []) : body;
    return this.overRows("result", height, whole);
  }

  /** Over the rows of a block, which threads share where there is only one. */
  private overRows(name: string, height: number, body: readonly Statement[]): readonly Statement[] {
    const { images } = this.schedule;
    const over = [
      { name: `${name}_number`, extent: images },
      { name: `${name}_row`, extent: height },
    ];
    const shared = images > 1 ? 0 : 1;
    return loops(over, body, (_, at) => (this.isWhole && at === shared ? "parallel" : "serial"));
  }

  // ---- what lies between ------------------------------------------------------------------------------------------------------

  private slotsOf = (buffer: string): number => (buffer === "filters" ? 1 : this.slots);

  /** Where an element lies in the memory of its slot. */
  private address({ buffer, ...memory }: Held, index: readonly Expr[]): Expr {
    const local = substituteEach(index, FIRST_BLOCK);
    return this.inSlot(buffer, addressOf(memory, local), elementsOf(memory));
  }

  private inSlot(buffer: string, address: Expr, size: number): Expr {
    return this.slotsOf(buffer) === 1 ? address : plus(times(axis(SLOT), size), address);
  }

  /**
   * Statements of a step, with the memory of a block for its tensors.
   * @param isAlone whether one thread runs it
   */
  private placed(
    { inside: known }: PlainLoops,
    statements: readonly Statement[],
    tensors: readonly (readonly [string, Held])[],
    isAlone = !this.isWhole,
  ): readonly Statement[] {
    const places = new Map(tensors);
    const element = (e: Access): Access => {
      const place = places.get(e.tensor);
      return place ? access(place.buffer, [this.address(place, e.index)]) : e;
    };
    // What is known to be inside stays so.
    const kept = (before: Access, after: Access): Access => {
      if (known.has(before)) this.inside.add(after);
      return after;
    };
    const moved = (s: Statement): Statement => {
      const made = rewriteStatement(s, {
        index: (e) => e,
        value: (e) => {
          const value = rewriteReads(e, element);
          const reads = accessesIn(value);
          for (const [i, read] of accessesIn(e).entries()) kept(read, reads[i] ?? internal("a read was lost"));
          return value;
        },
        element: (e) => kept(e, element(e)),
        arrival: (a) => a,
      });
      return ofThread(made);
    };
    // Registers are loaded from the slot too, and one thread runs all steps of a block.
    const ofThread = (s: Statement): Statement => {
      if (s.kind === "loop") {
        const mode = s.mode === "parallel" && isAlone ? "serial" : s.mode;
        return { ...s, mode, body: s.body.map(ofThread) };
      }
      if (s.kind === "when") return { ...s, body: s.body.map(ofThread), otherwise: s.otherwise.map(ofThread) };
      const place = s.kind === "load" || s.kind === "store" ? places.get(s.memory.buffer) : undefined;
      if (!place || (s.kind !== "load" && s.kind !== "store")) return s;
      return { ...s, memory: { ...s.memory, base: this.inSlot(place.buffer, s.memory.base, elementsOf(place)) } };
    };
    return statements.map(moved);
  }
}

const elementsOf = ({ dims, storage }: Pick<Tensor, "dims" | "storage">): number =>
  memoryElements({ name: "", dtype: "f32", constant: false, dims, storage });

/** Buffers of several steps. Those of one thread are filled anew by each, so that they may be the same. */
function together(nests: readonly LoopNest[]): readonly Scratch[] {
  const named = groupsOf(
    nests.flatMap(({ scratch }) => scratch),
    ({ name }) => name,
  );
  return [...named.values()].flatMap((same) => sortedBy(same, (a) => -a.elements).slice(0, 1));
}
