/**
 * @file Small pipelines of a matrix product on warps, drawn at random, right or with exactly one fault.
 *
 *     const form = randomForm(random);
 *     pipeline(form)                                      right: it runs in every order
 *     faultsOf(form).map((fault) => pipeline(form, fault))        "no barrier 1", "wait 0 too weak", "a ring one stage short" ...
 *
 * Each pipeline has the synchronisation it needs and no more, so that every barrier, wait and commit that is left out is a fault.
 */

import type { Computation } from "../../abstraction/computation.ts";
import { access, axis, binary, compare, type Expr, number } from "../../abstraction/expression.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import {
  type Copy,
  type Group,
  type LoopNest,
  loop,
  type Scratch,
  type Statement,
} from "../../abstraction/loop-nest.ts";
import { parseExpr } from "../../abstraction/parse.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";
import { rowNamed, stated } from "./subjects.ts";

export interface OperandForm {
  readonly transfer: "plain" | "async";
  /** Elements of a piece. */
  readonly width: 2 | 4 | 8;
  readonly fetch: "elements" | "ldmatrix" | "instruction";
  readonly layout: "rows" | "padded" | "swizzled";
  /** By whom it is copied; what a warp copies is its own, and in memory as often as there are warps. */
  readonly group: Group;
  /** All steps are copied ahead of the loop, and stay. */
  readonly resident: boolean;
}

export interface PipelineForm {
  readonly instruction: "mma.m16n8k16.f32.f16" | "wmma.m16n16k16.f32.f16";
  /** Blocks, warps of a block and fragments of a warp along m and n. */
  readonly blocks: readonly [m: number, n: number];
  readonly warps: readonly [m: number, n: number];
  readonly fragments: readonly [m: number, n: number];
  /** Steps along k, of so many instructions each. */
  readonly steps: number;
  readonly slices: number;
  readonly stages: number;
  readonly a: OperandForm;
  readonly b: OperandForm;
  /** Sums are stored from the registers, or staged in shared memory and copied. */
  readonly epilogue: "registers" | "shared";
}

/** The fault of a pipeline. A label names one barrier, wait or commit, in the order of the nest. */
export type PipelineFault =
  | { readonly kind: "without" | "weak"; readonly label: string }
  | { readonly kind: "short ring" | "early copies" | "copies before barrier" | "wait behind barrier" }
  | { readonly kind: "half a copy" | "one place for blocks" | "one place for warps" };

export interface Pipeline {
  readonly computation: Computation;
  readonly nest: LoopNest;
  /** Its barriers, waits and commits. */
  readonly labels: readonly string[];
}

export function randomForm(random: Random): PipelineForm {
  // WMMA does not document its lane layout, and needs rows.
  const instruction = pick(random, ["mma.m16n8k16.f32.f16", "mma.m16n8k16.f32.f16", "wmma.m16n16k16.f32.f16"] as const);
  const secret = instruction.startsWith("wmma");
  const operand = (): OperandForm => ({
    transfer: pick(random, ["plain", "async"]),
    width: pick(random, [2, 4, 8]),
    fetch: secret ? "instruction" : pick(random, ["elements", "ldmatrix"]),
    layout: pick(random, secret ? ["rows", "padded"] : ["rows", "padded", "swizzled"]),
    group: pick(random, ["block", "block", "warp"]),
    resident: false,
  });
  const steps = randomInteger(random, 2, 4);
  return {
    instruction,
    blocks: pick(random, [
      [1, 1],
      [1, 2],
      [2, 1],
    ]),
    warps: pick(random, [
      [1, 1],
      [2, 1],
      [1, 2],
      [2, 2],
    ]),
    fragments: pick(random, [
      [1, 1],
      [1, 2],
      [2, 1],
    ]),
    steps,
    slices: pick(random, [1, 1, 2]),
    stages: randomInteger(random, 1, Math.min(4, steps + 1)),
    a: operand(),
    b: { ...operand(), resident: random() < 0.25 },
    epilogue: pick(random, ["registers", "shared"]),
  };
}

/** Every fault the form can have: left out are those that would do no harm, such as a ring too short for copies that never come. */
export function faultsOf(form: PipelineForm): PipelineFault[] {
  const { steps, stages, warps, blocks, a, b, epilogue } = form;
  const { labels } = pipeline(form);
  const many = warps[0] * warps[1] > 1;
  const faults: PipelineFault[] = labels.map((label) => ({ kind: "without", label }));
  // Where every warp reads just what it copied itself, a barrier of the warp is enough; so it may be of what is staged.
  const crosses = (a.group === "block" && warps[1] > 1) || (b.group === "block" && !b.resident && warps[0] > 1);
  const inLoop = epilogue === "shared" ? labels.slice(0, -1) : labels;
  for (const label of inLoop)
    if (label.startsWith("wait") || (label.startsWith("barrier of the block") && crosses))
      faults.push({ kind: "weak", label });
  if (stages > 1 && steps >= stages) faults.push({ kind: "short ring" });
  if (stages > 1 && steps > stages) faults.push({ kind: "early copies" }, { kind: "copies before barrier" });
  if (a.transfer === "async") faults.push({ kind: "wait behind barrier" });
  faults.push({ kind: "half a copy" });
  if (blocks[0] * blocks[1] > 1) faults.push({ kind: "one place for blocks" });
  if (many) faults.push({ kind: "one place for warps" });
  return faults;
}

export function pipeline(form: PipelineForm, fault?: PipelineFault): Pipeline {
  return new PipelineBuilder(form, fault).build();
}

const add = (left: Expr, right: Expr): Expr => binary("+", left, right);
const times = (factor: number, e: Expr): Expr => binary("*", number(factor), e);

/** The stages of an operand in shared memory. */
function ringOf(name: "a" | "b", form: PipelineForm, tile: Readonly<Record<"m" | "n" | "k", number>>): Scratch {
  const { layout, group, resident } = form[name];
  const [rows, columns] = name === "a" ? (["m", "k"] as const) : (["k", "n"] as const);
  const warps = form.warps[0] * form.warps[1];
  const dims: Dimension[] = [
    { name: "stage", extent: resident ? form.steps : form.stages },
    ...(group === "warp" ? [{ name: "warp", extent: warps }] : []),
    { name: rows, extent: tile[rows] },
    { name: columns, extent: tile[columns] },
  ];
  const pitch = tile[columns] + (layout === "padded" ? 8 : 0);
  const chunks = tile[columns] / 8;
  const swizzled = layout === "swizzled" && chunks > 1;
  const column = swizzled ? `8*((${columns}/8) ^ (${rows}%${chunks})) + ${columns}%8` : columns;
  const outer = group === "warp" ? `(stage*${warps} + warp)` : "stage";
  return {
    name: `${name}_ring`,
    dtype: "f16",
    elements: dims.slice(0, -1).reduce((product, d) => product * d.extent, pitch),
    scope: "shared",
    dims,
    storage: parseExpr(`${tile[rows] * pitch}*${outer} + ${pitch}*${rows} + ${column}`),
  };
}

class PipelineBuilder {
  private readonly form: PipelineForm;
  private readonly fault: PipelineFault | undefined;
  private readonly labels: string[] = [];
  private readonly intrinsic: Intrinsic;
  /** What one instruction multiplies. */
  private readonly fragment: { readonly m: number; readonly n: number; readonly k: number };
  private readonly tile: { readonly m: number; readonly n: number; readonly k: number };
  private readonly warp: Expr;

  constructor(form: PipelineForm, fault: PipelineFault | undefined) {
    const intrinsic = rowNamed(form.instruction);
    this.intrinsic = intrinsic;
    this.fragment = { m: 16, n: form.instruction.startsWith("wmma") ? 16 : 8, k: 16 };
    this.form = form;
    this.fault = fault;
    const { warps, fragments, slices } = form;
    this.tile = {
      m: this.fragment.m * warps[0] * fragments[0],
      n: this.fragment.n * warps[1] * fragments[1],
      k: this.fragment.k * slices,
    };
    this.warp = add(times(warps[1], axis("warp_m")), axis("warp_n"));
  }

  build(): Pipeline {
    const { blocks, warps, steps, fragments, epilogue } = this.form;
    const { intrinsic, tile } = this;
    const computation = stated(
      `out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i ${tile.m * blocks[0]} --j ${tile.n * blocks[1]} --l ${tile.k * steps} --dtype f16 --name matmul`,
    );
    const sums = fragments[0] * fragments[1];
    const body = [
      this.eachSum((index) => [{ kind: "clear", register: { file: "c", index } }]),
      ...this.main(),
      ...(epilogue === "shared" ? this.staged() : [this.drain("out")]),
    ];
    const inWarps = loop("warp_m", warps[0], [loop("warp_n", warps[1], body, "warp")], "warp");
    const inBlocks = loop("block_m", blocks[0], [loop("block_n", blocks[1], [inWarps], "block")], "block");
    const registers = [
      { name: "c", intrinsic, operand: "c", count: sums },
      { name: "a", intrinsic, operand: "a", count: fragments[0] },
      { name: "b", intrinsic, operand: "b", count: fragments[1] },
    ];
    const dims = [
      { name: "m", extent: tile.m },
      { name: "n", extent: tile.n },
    ];
    const staging: Scratch = { name: "staging", dtype: "f32", elements: tile.m * tile.n, scope: "shared", dims };
    const scratch = [
      ringOf("a", this.form, this.tile),
      ringOf("b", this.form, this.tile),
      ...(epilogue === "shared" ? [staging] : []),
    ];
    return { computation, nest: { scratch, registers, prepare: [], body: [inBlocks] }, labels: this.labels };
  }

  /** A barrier, wait or commit, unless it is the fault that it is missing. */
  private sync(statement: Extract<Statement, { kind: "barrier" | "wait" | "commit" }>): Statement[] {
    const what = statement.kind === "barrier" ? `barrier of the ${statement.group}` : statement.kind;
    const label = `${what} ${this.labels.length}`;
    this.labels.push(label);
    const { fault } = this;
    if (!fault || !("label" in fault) || fault.label !== label) return [statement];
    if (fault.kind === "without") return [];
    if (statement.kind === "wait") return [{ ...statement, pending: statement.pending + 1 }];
    return [{ kind: "barrier", group: "warp" }];
  }

  private is(kind: PipelineFault["kind"]): boolean {
    return this.fault?.kind === kind;
  }

  /** Copies, waits, products. */
  private main(): Statement[] {
    const { a, b, stages, steps } = this.form;
    const ringIsAsync = a.transfer === "async" || (b.transfer === "async" && !b.resident);
    const groupOf = (operands: readonly OperandForm[]): Group =>
      operands.every(({ group }) => group === "warp") ? "warp" : "block";
    const barrier = (group = groupOf([a, b])): Statement[] => this.sync({ kind: "barrier", group });
    const commit = (): Statement[] => (ringIsAsync ? this.sync({ kind: "commit" }) : []);
    const wait = (pending: number): Statement[] => (ringIsAsync ? this.sync({ kind: "wait", pending }) : []);
    const head: Statement[] = [];
    if (b.resident) {
      head.push(this.copyOf("b", axis("of_step"), [{ name: "of_step", extent: steps }]));
      if (b.transfer === "async" && !ringIsAsync)
        head.push(...this.sync({ kind: "commit" }), ...this.sync({ kind: "wait", pending: 0 }));
    }
    const step = axis("step");
    if (stages === 1) {
      const arrived = [commit(), wait(0), barrier()];
      if (this.is("wait behind barrier")) arrived.splice(1, 2, ...arrived.slice(1).reverse());
      const once = [
        ...this.copies(step),
        ...arrived.flat(),
        ...this.products(step),
        ...barrier(groupOf(b.resident ? [a] : [a, b])),
      ];
      return [...head, loop("step", steps, once)];
    }
    for (let s = 0; s < stages - 1; s++) head.push(...(s < steps ? this.copies(number(s)) : []), ...commit());
    const arrived = [wait(stages - 2), barrier()];
    if (this.is("wait behind barrier")) arrived.reverse();
    const ahead = stages - (this.is("early copies") ? 0 : 1);
    const next = [...this.copies(add(step, number(ahead))), ...commit()];
    const [before, behind] = this.is("copies before barrier") ? [next, []] : [[], next];
    return [...head, loop("step", steps, [...before, ...arrived.flat(), ...behind, ...this.products(step)])];
  }

  private at(name: "a" | "b", step: Expr, row: Expr, column: Expr): ReturnType<typeof access> {
    const { form } = this;
    const { group, resident } = form[name];
    const stages = form.stages - (this.is("short ring") ? 1 : 0);
    const stage = resident ? step : binary("%", step, number(stages));
    return access(`${name}_ring`, [stage, ...(group === "warp" ? [this.warp] : []), row, column]);
  }

  /** An element of the inputs at a step, within the tile of this block. */
  private source(name: "a" | "b", step: Expr, row: Expr, column: Expr): Expr {
    const { tile } = this;
    if (name === "a") return access("x", [add(times(tile.m, axis("block_m")), row), add(times(tile.k, step), column)]);
    return access("y", [add(times(tile.k, step), row), add(times(tile.n, axis("block_n")), column)]);
  }

  private copies(step: Expr): Statement[] {
    const when = step.kind === "number" ? {} : { when: compare("<", step, number(this.form.steps)) };
    return (["a", "b"] as const).flatMap((name) =>
      this.form[name].resident ? [] : [{ ...this.copyOf(name, step, []), ...when }],
    );
  }

  /** One step of an operand, or all those that further axes run over. */
  private copyOf(name: "a" | "b", step: Expr, further: readonly Dimension[]): Copy {
    const { transfer, width, group } = this.form[name];
    const { m, n, k } = this.tile;
    const [rows, columns] = name === "a" ? [m / (this.is("half a copy") ? 2 : 1), k] : [k, n];
    const [row, column] = [axis("row"), axis("column")];
    const equation = {
      target: this.at(name, step, row, column),
      op: "=",
      value: this.source(name, step, row, column),
    } as const;
    const axes = [...further, { name: "row", extent: rows }, { name: "column", extent: columns }];
    return { kind: "copy", axes, equation, width, transfer, group };
  }

  private products(step: Expr): Statement[] {
    const { form } = this;
    const [fm, fn] = form.fragments;
    const slice = times(this.fragment.k, axis("slice"));
    const row = add(times(this.fragment.m * fm, axis("warp_m")), axis("x_m"));
    const column = add(times(this.fragment.n * fn, axis("warp_n")), axis("x_n"));
    const k = add(slice, axis("x_k"));
    const fetches: Statement[] = [
      {
        kind: "fetch",
        register: { file: "a", index: number(0) },
        tile: {
          axes: ["x_m", "x_k"],
          access: this.at("a", step, row, k),
          by: form.a.fetch,
          ...(fm > 1 ? { several: { count: fm, along: 0 } } : {}),
        },
      },
      {
        kind: "fetch",
        register: { file: "b", index: number(0) },
        tile: {
          axes: ["x_k", "x_n"],
          access: this.at("b", step, k, column),
          by: form.b.fetch === "ldmatrix" ? "ldmatrix.trans" : form.b.fetch,
          ...(fn > 1 ? { several: { count: fn, along: 1 } } : {}),
        },
      },
    ];
    const issue = this.eachSum((index) => [
      {
        kind: "register-issue",
        intrinsic: this.intrinsic,
        registers: {
          c: { file: "c", index },
          a: { file: "a", index: axis("i") },
          b: { file: "b", index: axis("j") },
        },
      },
    ]);
    return [loop("slice", form.slices, [...fetches, issue], "unrolled")];
  }

  private eachSum(body: (index: Expr) => Statement[]): Statement {
    const [fm, fn] = this.form.fragments;
    const index = add(times(fn, axis("i")), axis("j"));
    return loop("i", fm, [loop("j", fn, body(index), "unrolled")], "unrolled");
  }

  private drain(tensor: "out" | "staging"): Statement {
    const { form, tile } = this;
    const [fm, fn] = form.fragments;
    const warp = (name: string): Expr => (this.is("one place for warps") ? number(0) : axis(name));
    const block = (name: string): Expr =>
      this.is("one place for blocks") || tensor === "staging" ? number(0) : axis(name);
    const along = (d: "m" | "n", count: number, i: string): Expr => {
      const inTile = add(
        times(this.fragment[d] * count, warp(`warp_${d}`)),
        add(times(this.fragment[d], axis(i)), axis(`x_${d}`)),
      );
      return add(times(tile[d], block(`block_${d}`)), inTile);
    };
    const target = access(tensor, [along("m", fm, "i"), along("n", fn, "j")]);
    return this.eachSum((index) => [
      {
        kind: "drain",
        register: { file: "c", index },
        axes: ["x_m", "x_n"],
        element: "sum",
        equation: { target, op: "=", value: access("sum", []) },
        ...(form.instruction.startsWith("wmma") ? { by: "instruction" } : {}),
      },
    ]);
  }

  private staged(): Statement[] {
    const { tile } = this;
    const block = (name: string): Expr => (this.is("one place for blocks") ? number(0) : axis(name));
    const [row, column] = [axis("row"), axis("column")];
    const target = access("out", [
      add(times(tile.m, block("block_m")), row),
      add(times(tile.n, block("block_n")), column),
    ]);
    return [
      this.drain("staging"),
      ...this.sync({ kind: "barrier", group: "block" }),
      {
        kind: "copy",
        axes: [
          { name: "row", extent: tile.m },
          { name: "column", extent: tile.n },
        ],
        equation: { target, op: "=", value: access("staging", [row, column]) },
        width: 4,
        transfer: "plain",
        group: "block",
      },
    ];
  }
}
