/**
 * @file Random small equations drawn from the whole notation: every combine, function and cast, epilogues, conditions, strides, gathers, results that
 * refer to themselves and steps in time.
 *
 *     randomEquation(seededRandom(7)).text      s[i,j] max= f32(x[i*2+r]) * y[r,j] where i + r < 9; z[i,j] = u8(abs(s[i,j]))
 */

import { type Computation, defineComputation, type TensorSpec } from "../../abstraction/computation.ts";
import { type DType, isInteger } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";

const TYPES: readonly DType[] = ["f32", "f32", "f32", "f64", "f16", "bf16", "s32", "s8", "u8", "s16", "u32", "tf32"];
const EXTENTS = [1, 2, 3, 5, 8, 16, 17, 33];
const MOST_POINTS = 4000;

export interface RandomEquation {
  /** The equation and its epilogue, extents and types, as a person would report them. */
  readonly text: string;
  /** Why the notation does not accept it; else the computation. */
  readonly computation: Computation | string;
}

interface Axis {
  readonly name: string;
  readonly extent: number;
  readonly isKept: boolean;
}

export function randomEquation(random: Random): RandomEquation {
  return new Drawing(random).drawn();
}

class Drawing {
  private readonly random: Random;
  private readonly tensors: Record<string, TensorSpec & { readonly dtype: DType }> = {};
  private axes: Axis[] = [];
  private names = 0;

  constructor(random: Random) {
    this.random = random;
  }

  drawn(): RandomEquation {
    const dtype = pick(this.random, TYPES);
    const special = this.random();
    const [equation, epilogue] =
      special < 0.06
        ? [this.recurrence(dtype)]
        : special < 0.1
          ? [this.steps(dtype)]
          : special < 0.15
            ? [this.gather(dtype)]
            : this.sum(dtype);
    const extents = Object.fromEntries(this.axes.map((a) => [a.name, a.extent]));
    const { tensors } = this;
    const types = Object.entries(tensors).map(([name, t]) => `${name}=${t.dtype}`);
    const text = `"${equation}${epilogue === undefined ? "" : `; ${epilogue}`}" ${this.axes
      .map((a) => `--${a.name} ${a.extent}`)
      .join(" ")} --dtype ${types.join(",")}`;
    try {
      const spec = { name: "drawn", equation, extents, tensors };
      return { text, computation: defineComputation(epilogue === undefined ? spec : { ...spec, epilogue }) };
    } catch (error) {
      if (error instanceof UsageError) return { text, computation: error.message };
      throw error;
    }
  }

  private chance(probability: number): boolean {
    return this.random() < probability;
  }

  private tensor(dtype: DType): string {
    const known = Object.keys(this.tensors).filter((name) => name !== "s" && this.tensors[name]?.dtype === dtype);
    if (known.length > 0 && this.chance(0.15)) return pick(this.random, known);
    const name = "xyvwabcdefgh"[this.names++] ?? `t${this.names}`;
    this.tensors[name] = { dtype };
    return name;
  }

  private sum(dtype: DType): [string, string?] {
    const op = pick(this.random, ["=", "+=", "+=", "+=", "max=", "min=", "sat+="]);
    const count = randomInteger(this.random, 0, 4);
    let points = 1;
    for (const name of ["i", "j", "k", "l"].slice(0, count)) {
      const extent = pick(this.random, EXTENTS);
      if (points * extent > MOST_POINTS) continue;
      points *= extent;
      this.axes.push({ name, extent, isKept: op === "=" || this.chance(0.55) });
    }
    const kept = this.axes.filter((a) => a.isKept);
    const target = `s[${kept.map((a) => (this.chance(0.06) ? `${a.name}+1` : a.name)).join(",")}]`;
    const value = this.value(dtype, randomInteger(this.random, 1, 3), true);
    const where = this.chance(0.15) && this.axes.length > 0 ? ` where ${this.condition()}` : "";
    this.tensors["s"] = { dtype };
    const isPlain = kept.every((a) => target.includes(`${a.name},`) || target.includes(`${a.name}]`));
    const used = new Set(`${target}${value}${where}`.match(/[a-z]\w*/g));
    this.axes = this.axes.filter((a) => used.has(a.name));
    if (!isPlain || !this.chance(0.25)) return [`${target} ${op} ${value}${where}`];
    const made = pick(this.random, TYPES);
    this.tensors["z"] = { dtype: made };
    const element = `s[${kept.map((a) => a.name).join(",")}]`;
    return [
      `${target} ${op} ${value}${where}`,
      `z[${kept.map((a) => a.name).join(",")}] = ${this.ending(element, dtype, made)}`,
    ];
  }

  private ending(element: string, from: DType, to: DType): string {
    const some = isInteger(from)
      ? `max(${element}, 0)`
      : pick(this.random, [
          `max(${element}, 0)`,
          `sqrt(abs(${element}))`,
          `tanh(${element})`,
          `${element} * 0.5 + 1`,
          `max(${element}, ${element} * 0.125)`,
          element,
        ]);
    if (from === to) return some;
    return `${isInteger(to) && this.chance(0.6) ? "sat_" : ""}${to}(${some})`;
  }

  private value(dtype: DType, depth: number, isWhole = false): string {
    if (depth === 0) return this.read(dtype);
    const part = (): string => this.value(dtype, depth - 1);
    const forms: (() => string)[] = [
      () => this.read(dtype),
      () => `${part()} * ${part()}`,
      () => `${part()} * ${part()}`,
      () => `(${part()} + ${part()})`,
      () => `(${part()} - ${part()})`,
      () => `max(${part()}, ${part()})`,
      () => `min(${part()}, 3)`,
      () => `square(${part()})`,
      () => `abs(${part()})`,
      () => (this.axes.length > 0 ? `select(${this.condition()}, ${part()}, ${part()})` : part()),
      () => `select(${this.read(dtype)} < ${this.read(dtype)}, ${part()}, ${part()})`,
      () => this.cast(dtype, depth),
      () => this.cast(dtype, depth),
    ];
    const ofFloats: (() => string)[] = [
      () => `${pick(this.random, ["exp", "tanh", "erf", "sin", "atan", "floor", "ceil", "round"])}(${part()})`,
      () => `sqrt(abs(${part()}))`,
      () => `log(abs(${part()}) + 1)`,
      () => `${part()} / (abs(${part()}) + 1)`,
      () => `${part()} * 0.25`,
    ];
    const formed = pick(this.random, isInteger(dtype) ? forms : [...forms, ...ofFloats])();
    return isWhole && this.chance(0.1) && !dtype.startsWith("u") ? `-${formed}` : formed;
  }

  private cast(dtype: DType, depth: number): string {
    const from = pick(
      this.random,
      TYPES.filter((t) => t !== dtype),
    );
    const saturates = isInteger(dtype) && this.chance(0.5);
    return `${saturates ? "sat_" : ""}${dtype}(${this.value(from, depth - 1)})`;
  }

  private read(dtype: DType): string {
    const own = this.axes.filter(() => this.chance(0.65));
    const name = this.tensor(dtype);
    const index: string[] = [];
    for (let left = own; left.length > 0; ) {
      const [first, second, ...others] = left;
      if (first && second && this.chance(0.25)) {
        index.push(
          `${first.name}*${randomInteger(this.random, 1, 2)}+${second.name}-${randomInteger(this.random, 0, 1)}`,
        );
        left = others;
        continue;
      }
      if (first) index.push(this.index(first));
      left = left.slice(1);
    }
    // One rank for all reads of a tensor.
    const before = this.tensors[name];
    const rank = before?.dims?.length;
    if (rank !== undefined && rank !== index.length) return this.fresh(dtype, index);
    this.tensors[name] = { dtype, dims: index.map((_, d) => `${name}_${d}`) };
    return `${name}[${index.join(",")}]`;
  }

  private fresh(dtype: DType, index: readonly string[]): string {
    const name = "xyvwabcdefgh"[this.names++] ?? `t${this.names}`;
    this.tensors[name] = { dtype, dims: index.map((_, d) => `${name}_${d}`) };
    return `${name}[${index.join(",")}]`;
  }

  private index({ name, extent }: Axis): string {
    if (this.chance(0.7)) return name;
    return pick(this.random, [
      `${name}-1`,
      `${name}*2`,
      `${extent - 1}-${name}`,
      `${name}/2`,
      `${name}%2`,
      `clamp(${name}-1)`,
      `wrap(${name}+1)`,
    ]);
  }

  private condition(): string {
    const a = pick(this.random, this.axes).name;
    const b = pick(this.random, this.axes).name;
    return pick(this.random, [`${a} < 2`, `${a} <= ${b} + 1`, `(${a} + ${b}) % 2 == 0`, `${a} != 0`]);
  }

  private recurrence(dtype: DType): string {
    this.tensors["s"] = { dtype };
    this.tensors["x"] = { dtype };
    const half = isInteger(dtype) ? "" : "0.75*";
    this.axes = [
      { name: "i", extent: pick(this.random, EXTENTS), isKept: true },
      { name: "j", extent: pick(this.random, EXTENTS), isKept: true },
    ];
    const forms = [
      `s[i,j] = ${half}s[i,j-1] + x[i,j]`,
      "s[i,j] = max(s[i-1,j], s[i,j-1], x[i,j])",
      "s[i,j] = min(s[i-1,j-1], 2) + x[i,j]",
      `s[i,j] = select(i == 0, x[i,j], ${half}s[i-1,j])`,
    ];
    if (this.chance(0.5)) return pick(this.random, forms);
    this.axes = this.axes.slice(0, 1);
    return pick(this.random, [`s[i] = ${half}s[i-1] + x[i]`, "s[i] = max(s[i-1], x[i])", "s[i] = s[i-2] + x[i]"]);
  }

  private steps(dtype: DType): string {
    this.tensors["s"] = { dtype };
    this.axes = [
      { name: "t", extent: randomInteger(this.random, 1, 5), isKept: true },
      { name: "i", extent: pick(this.random, EXTENTS), isKept: true },
    ];
    const ofFloats = ["s[t,i] = 0.5*s[t-1,i] + 0.25*s[t-1,i-1]", "s[t,i] = tanh(s[t-1,i]) + s[t-1,i+1]"];
    return pick(this.random, isInteger(dtype) ? ["s[t,i] = s[t-1,i] + s[t-1,i-1]"] : ofFloats);
  }

  private gather(dtype: DType): string {
    this.tensors["s"] = { dtype };
    this.tensors["x"] = { dtype, shape: [7, 16] };
    this.tensors["ids"] = { dtype: pick(this.random, ["s32", "u8", "s8"] as const) };
    this.axes = [
      { name: "i", extent: pick(this.random, EXTENTS), isKept: true },
      { name: "j", extent: 16, isKept: true },
    ];
    return pick(this.random, [
      "s[i,j] = x[wrap(ids[i]),j]",
      "s[j] += x[clamp(ids[i]),j]",
      "s[i,j] = abs(x[wrap(ids[i]),j])",
    ]);
  }
}
