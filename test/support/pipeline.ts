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
import type { Group, LoopNest } from "../../abstraction/loop-nest.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";
import { indented, readNest } from "./nest-text.ts";
import { stated } from "./subjects.ts";

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
    if (label.startsWith("wait") || (label.startsWith("barrier block") && crosses))
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

/** The stages of an operand in shared memory. */
function ringOf(name: "a" | "b", form: PipelineForm, tile: Readonly<Record<"m" | "n" | "k", number>>): string {
  const { layout, group, resident } = form[name];
  const [rows, columns] = name === "a" ? (["m", "k"] as const) : (["k", "n"] as const);
  const warps = form.warps[0] * form.warps[1];
  const stages = resident ? form.steps : form.stages;
  const pitch = tile[columns] + (layout === "padded" ? 8 : 0);
  const chunks = tile[columns] / 8;
  const swizzled = layout === "swizzled" && chunks > 1;
  const column = swizzled ? `8*((${columns}/8) ^ (${rows}%${chunks})) + ${columns}%8` : columns;
  const isOfWarp = group === "warp";
  const dims = `stage ${stages}, ${isOfWarp ? `warp ${warps}, ` : ""}${rows} ${tile[rows]}, ${columns} ${tile[columns]}`;
  const size = stages * (isOfWarp ? warps : 1) * tile[rows] * pitch;
  const outer = isOfWarp ? `(stage*${warps} + warp)` : "stage";
  return `shared ${name}_ring: f16[${dims}] of ${size} at ${tile[rows] * pitch}*${outer} + ${pitch}*${rows} + ${column}`;
}

class PipelineBuilder {
  private readonly form: PipelineForm;
  private readonly fault: PipelineFault | undefined;
  private readonly labels: string[] = [];
  /** What one instruction multiplies. */
  private readonly fragment: { readonly m: number; readonly n: number; readonly k: number };
  private readonly tile: { readonly m: number; readonly n: number; readonly k: number };

  constructor(form: PipelineForm, fault: PipelineFault | undefined) {
    this.fragment = { m: 16, n: form.instruction.startsWith("wmma") ? 16 : 8, k: 16 };
    this.form = form;
    this.fault = fault;
    const { warps, fragments, slices } = form;
    this.tile = {
      m: this.fragment.m * warps[0] * fragments[0],
      n: this.fragment.n * warps[1] * fragments[1],
      k: this.fragment.k * slices,
    };
  }

  build(): Pipeline {
    const { instruction, blocks, warps, steps, fragments, epilogue } = this.form;
    const { tile } = this;
    const computation = stated(
      `out[i,j] += f32(x[i,l]) * f32(y[l,j]) --i ${tile.m * blocks[0]} --j ${tile.n * blocks[1]} --l ${tile.k * steps} --dtype f16 --name matmul`,
    );
    const body = [
      ...this.eachSum((sum) => `${sum} <- identity`),
      ...this.main(),
      ...(epilogue === "shared" ? this.staged() : this.drain("out")),
    ];
    const nest = readNest(`
      ${ringOf("a", this.form, tile)}
      ${ringOf("b", this.form, tile)}
      ${epilogue === "shared" ? `shared staging: f32[m ${tile.m}, n ${tile.n}]` : ""}
      registers c: ${fragments[0] * fragments[1]} x ${instruction}.c
      registers a: ${fragments[0]} x ${instruction}.a
      registers b: ${fragments[1]} x ${instruction}.b
      for at block block_m in 0..${blocks[0]}
        for at block block_n in 0..${blocks[1]}
          for at warp warp_m in 0..${warps[0]}
            for at warp warp_n in 0..${warps[1]}
              ${body.join("\n              ")}`);
    return { computation, nest, labels: this.labels };
  }

  /** A barrier, wait or commit, unless it is the fault that it is missing. */
  private sync(kind: "barrier" | "wait" | "commit", of: Group | number | "" = ""): string[] {
    const label = `${kind === "barrier" ? `barrier ${of}` : kind} ${this.labels.length}`;
    this.labels.push(label);
    const { fault } = this;
    if (!fault || !("label" in fault) || fault.label !== label) return [`${kind} ${of}`.trim()];
    if (fault.kind === "without") return [];
    return [kind === "wait" ? `wait ${Number(of) + 1}` : "barrier warp"];
  }

  private is(kind: PipelineFault["kind"]): boolean {
    return this.fault?.kind === kind;
  }

  /** Copies, waits, products. */
  private main(): string[] {
    const { a, b, stages, steps } = this.form;
    const ringIsAsync = a.transfer === "async" || (b.transfer === "async" && !b.resident);
    const groupOf = (operands: readonly OperandForm[]): Group =>
      operands.every(({ group }) => group === "warp") ? "warp" : "block";
    const barrier = (group = groupOf([a, b])): string[] => this.sync("barrier", group);
    const commit = (): string[] => (ringIsAsync ? this.sync("commit") : []);
    const wait = (pending: number): string[] => (ringIsAsync ? this.sync("wait", pending) : []);
    const head: string[] = [];
    if (b.resident) {
      head.push(this.copyOf("b", "of_step", `of_step ${steps}, `));
      if (b.transfer === "async" && !ringIsAsync) head.push(...this.sync("commit"), ...this.sync("wait", 0));
    }
    const loop = `for step in 0..${steps}`;
    if (stages === 1) {
      const arrived = [commit(), wait(0), barrier()];
      if (this.is("wait behind barrier")) arrived.splice(1, 2, ...arrived.slice(1).reverse());
      const once = [
        ...this.copies("step"),
        ...arrived.flat(),
        ...this.products(),
        ...barrier(groupOf(b.resident ? [a] : [a, b])),
      ];
      return [...head, loop, ...indented(once)];
    }
    for (let s = 0; s < stages - 1; s++) head.push(...(s < steps ? this.copies(String(s)) : []), ...commit());
    const arrived = [wait(stages - 2), barrier()];
    if (this.is("wait behind barrier")) arrived.reverse();
    const ahead = stages - (this.is("early copies") ? 0 : 1);
    const next = [...this.copies(`step+${ahead}`), ...commit()];
    const [before, behind] = this.is("copies before barrier") ? [next, []] : [[], next];
    return [...head, loop, ...indented([...before, ...arrived.flat(), ...behind, ...this.products()])];
  }

  private at(name: "a" | "b", step: string, row: string, column: string): string {
    const { form } = this;
    const { group, resident } = form[name];
    const stages = form.stages - (this.is("short ring") ? 1 : 0);
    const stage = resident ? step : `(${step})%${stages}`;
    const warp = group === "warp" ? `${form.warps[1]}*warp_m+warp_n,` : "";
    return `${name}_ring[${stage},${warp}${row},${column}]`;
  }

  /** The copies of one step of a ring. */
  private copies(step: string): string[] {
    const when = step.startsWith("step") ? ` where ${step} < ${this.form.steps}` : "";
    return (["a", "b"] as const).flatMap((name) =>
      this.form[name].resident ? [] : [this.copyOf(name, step, "", when)],
    );
  }

  /** One step of an operand, or all those that further axes run over. */
  private copyOf(name: "a" | "b", step: string, further: string, when = ""): string {
    const { transfer, width, group } = this.form[name];
    const { m, n, k } = this.tile;
    const [rows, columns] = name === "a" ? [m / (this.is("half a copy") ? 2 : 1), k] : [k, n];
    const source =
      name === "a" ? `x[${m}*block_m+row,${k}*(${step})+column]` : `y[${k}*(${step})+row,${n}*block_n+column]`;
    const how = `by ${width}${transfer === "async" ? ", async" : ""}, by ${group}${when}`;
    return `copy ${further}row ${rows}, column ${columns} ${how}   ${this.at(name, step, "row", "column")} = ${source}`;
  }

  private products(): string[] {
    const { instruction, fragments, slices, a, b } = this.form;
    const [fm, fn] = fragments;
    const k = `${this.fragment.k}*slice+x_k`;
    const ofA = this.at("a", "step", `${this.fragment.m * fm}*warp_m+x_m`, k);
    const ofB = this.at("b", "step", k, `${this.fragment.n * fn}*warp_n+x_n`);
    const more = (count: number, along: number): string => (count > 1 ? ` and ${count - 1} more along ${along}` : "");
    const by = (way: string): string => (way === "elements" ? "" : ` by ${way}`);
    return [
      `for unrolled slice in 0..${slices}`,
      ...indented([
        `a{0}${more(fm, 0)} <- ${ofA} over x_m, x_k${by(a.fetch)}`,
        `b{0}${more(fn, 1)} <- ${ofB} over x_k, x_n${by(b.fetch === "ldmatrix" ? "ldmatrix.trans" : b.fetch)}`,
        ...this.eachSum((sum) => `${sum} <- ${instruction}(a{i}, b{j})`),
      ]),
    ];
  }

  private eachSum(statement: (sum: string) => string): string[] {
    const [fm, fn] = this.form.fragments;
    return [`for unrolled i in 0..${fm}`, `  for unrolled j in 0..${fn}`, `    ${statement(`c{${fn}*i+j}`)}`];
  }

  private drain(tensor: "out" | "staging"): string[] {
    const { form, fragment, tile } = this;
    const along = (d: "m" | "n", count: number, i: string): string => {
      const warp = this.is("one place for warps") ? 0 : `warp_${d}`;
      const block = tensor === "staging" ? 0 : this.block(d);
      return `${tile[d]}*${block}+${fragment[d] * count}*${warp}+${fragment[d]}*${i}+x_${d}`;
    };
    const [fm, fn] = form.fragments;
    const by = form.instruction.startsWith("wmma") ? " by instruction" : "";
    const target = `${tensor}[${along("m", fm, "i")},${along("n", fn, "j")}]`;
    return this.eachSum((sum) => `for x_m, x_n of ${sum}${by}   ${target} = sum[]`);
  }

  private block(d: "m" | "n"): string {
    return this.is("one place for blocks") ? "0" : `block_${d}`;
  }

  private staged(): string[] {
    const { m, n } = this.tile;
    const target = `out[${m}*${this.block("m")}+row,${n}*${this.block("n")}+column]`;
    return [
      ...this.drain("staging"),
      ...this.sync("barrier", "block"),
      `copy row ${m}, column ${n} by 4, by block   ${target} = staging[row,column]`,
    ];
  }
}
