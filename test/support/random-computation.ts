/**
 * @file Random small computations that stand a chance to map onto a given instruction, and small instructions of every shape.
 *
 *     randomComputation(random, vnni)     out[k,p-1] += s32(x[c,p*2+r-1]) * s32(y[r,c,k]) where (p - r) % 2 == 0
 *
 * For each axis of the instruction some loops are drawn that may feed it, then some that may not. The indices of the tensors, the
 * expression over them and its condition are random.
 */

import { type Computation, defineComputation, type TensorSpec, tensorOf } from "../../abstraction/computation.ts";
import { type DType, isDType, isInteger, rangeOf } from "../../abstraction/dtype.ts";
import type { CombineOp } from "../../abstraction/expression.ts";
import { defineIntrinsic, type Intrinsic, type IntrinsicSpec } from "../../abstraction/intrinsic.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";

/**
 * An instruction of a test.
 *
 *     small("rowmax.s32", "c[i] max= a[i,k] over i 2, k 3", "a s32 r[3*i + k]", "c s32 r[i]")
 *
 * @param text its equation and the extents of its axes
 * @param operands names, types and storage formulas
 */
export function small(name: string, text: string, ...operands: readonly string[]): Intrinsic {
  const [compute = "", extents = ""] = text.split(" over ");
  const spec: IntrinsicSpec = {
    name,
    family: "small",
    isa: "virtual",
    language: "none",
    summary: "An instruction small enough to be padded, tiled and misused.",
    compute,
    extents: Object.fromEntries(extents.split(", ").map((axis) => [axis.split(" ")[0], Number(axis.split(" ")[1])])),
    operands: Object.fromEntries(
      operands.map((operand) => {
        const [, word, dtype = "", storage = ""] = /^(\w+) (\w+) (.*)$/.exec(operand) ?? [];
        if (!isDType(dtype)) throw new Error(`no operand: ${operand}`);
        return [word, { dtype, storage }];
      }),
    ),
    emit: "",
    source: "this test",
  };
  return defineIntrinsic(spec);
}

/** One of every kind; extents are small and unequal, so that a few loop steps already tile and pad. */
export const SMALL_INTRINSICS: readonly Intrinsic[] = [
  small(
    "matmul.f32",
    "c[m,n] += a[m,k] * b[k,n] over m 2, n 2, k 2",
    "a f32 unit[2*m + k]",
    "b f32 unit[2*k + n]",
    "c f32 unit[2*m + n]",
  ),
  // Two consecutive k side by side, as VNNI and AMX pack b.
  small(
    "packed.u8s8",
    "c[m,n] += s32(a[m,k]) * s32(b[k,n]) over m 2, n 3, k 4",
    "a u8 tile[4*m + k]",
    "b s8 tile[6*(k/2) + 2*n + k%2]",
    "c s32 tile[3*m + n]",
  ),
  // The layout is the vendor's secret.
  small(
    "secret.f16",
    "c[m,n] += f32(a[m,k]) * f32(b[k,n]) over m 3, n 2, k 2",
    "a f16 fragment_a",
    "b f16 fragment_b",
    "c f32 accumulator",
  ),
  // Each register row starts on a boundary: places 3, 7, ... hold nothing.
  small(
    "holes.s8",
    "c[m,n] += s32(a[m,k]) * s32(b[k,n]) over m 2, n 2, k 3",
    "a s8 tile[4*m + k]",
    "b s8 tile[4*n + k]",
    "c s32 tile[4*m + n]",
  ),
  small("broadcast.f32", "c[n] += a[] * b[n] over n 4", "a f32 zmm[n]", "b f32 zmm[n]", "c f32 zmm[n]"),
  small("lanes.s32", "c[i] += a[i] * b[i] over i 3", "a s32 zmm[i]", "b s32 zmm[i]", "c s32 zmm[i]"),
  small(
    "dot.u8s8",
    "c[n] += s32(a[k]) * s32(b[k,n]) over n 3, k 4",
    "a u8 zmm[4*n + k]",
    "b s8 zmm[4*n + k]",
    "c s32 zmm[n]",
  ),
  small("matvec.f16", "c[i] += a[i,k] * b[k] over i 2, k 3", "a f16 unit[3*i + k]", "b f16 unit[k]", "c f16 unit[i]"),
  // p and q have the same column: the loops that may feed one may feed the other.
  small(
    "conv.s32",
    "c[k,p,q] += a[c,p,q] * b[k,c] over k 2, p 2, q 3, c 2",
    "a s32 unit[6*c + 3*p + q]",
    "b s32 unit[2*k + c]",
    "c s32 unit[6*k + 3*p + q]",
  ),
  small("rowsum.u8", "c[i] += s32(a[i,k]) over i 2, k 3", "a u8 r[3*i + k]", "c s32 r[i]"),
  small("rowmax.s32", "c[i] max= a[i,k] over i 2, k 3", "a s32 r[3*i + k]", "c s32 r[i]"),
  small("rowmax.f32", "c[i] max= a[i,k] over i 3, k 2", "a f32 r[2*i + k]", "c f32 r[i]"),
  small("widemax.s8", "c[i] max= s32(a[i,k]) over i 2, k 2", "a s8 r[2*i + k]", "c s32 r[i]"),
  small("lanemin.u8", "c[i] min= a[i] over i 4", "a u8 r[i]", "c u8 r[i]"),
  small(
    "maxplus.f32",
    "c[m,n] max= a[m,k] + b[k,n] over m 2, n 2, k 2",
    "a f32 unit[2*m + k]",
    "b f32 unit[2*k + n]",
    "c f32 unit[2*m + n]",
  ),
  small(
    "maxplus.s32",
    "c[m,n] max= a[m,k] + b[k,n] over m 2, n 1, k 2",
    "a s32 unit[2*m + k]",
    "b s32 unit[k + n]",
    "c s32 unit[m + n]",
  ),
  // Padding a alone leaves b in the sum.
  small("addup.s32", "c[i] += a[i,k] + b[i] over i 2, k 2", "a s32 r[2*i + k]", "b s32 r[i]", "c s32 r[i]"),
  small(
    "saturating.s32",
    "c[n] sat+= s32(a[k]) * s32(b[k,n]) over n 2, k 4",
    "a u8 zmm[4*n + k]",
    "b s8 zmm[4*n + k]",
    "c s32 zmm[n]",
  ),
  small(
    "saturating.s16",
    "c[i] sat+= s16(a[i,k]) * s16(b[i,k]) over i 3, k 2",
    "a u8 zmm[2*i + k]",
    "b s8 zmm[2*i + k]",
    "c s16 zmm[i]",
  ),
  small("outer.f32", "c[i,j] = a[i] * b[j] over i 2, j 3", "a f32 v[i]", "b f32 v[j]", "c f32 v[3*i + j]"),
];

interface Loop {
  readonly name: string;
  readonly kind: "spatial" | "reduce";
  readonly operands: readonly string[];
  extent: number;
}

const EXTENTS = [1, 1, 2, 2, 3, 3, 4, 5, 7];
/** f16 counts exactly to 2048 only. */
const MOST_POINTS = { f16: 100, other: 1200 };

const chance = (random: Random, probability: number): boolean => random() < probability;

/** A computation with the arithmetic of the instruction, most of the time one that maps. */
export function randomComputation(random: Random, intrinsic: Intrinsic): Computation {
  const { equation } = intrinsic.computation;
  const loops = randomLoops(random, intrinsic);
  const inputs = intrinsic.operands.slice(1);
  const target = intrinsic.operands[0];
  if (!target) throw new Error("internal: an instruction without operands");

  // 1. What each operand stands for.
  const tensors: Record<string, TensorSpec> = { out: { dtype: target.dtype } };
  const isCast = new Set(
    [...intrinsic.declaration.compute.matchAll(/[a-z]+\d+\((\w+)\[/g)].map(([, name]) => name ?? ""),
  );
  const texts = new Map<string, string>();
  for (const [position, { name, dtype }] of inputs.entries()) {
    const own = loops.filter((l) => l.operands.includes(name));
    texts.set(name, randomOperand(random, dtype, own, "xyz"[position] ?? "v", tensors, equation.op, isCast.has(name)));
  }

  // 2. The instruction's formula with the operands put in; a product may come with its factors swapped, and with one more.
  const [, formula = ""] = intrinsic.declaration.compute.replace(/ where .*/, "").split(/ \S*= /);
  let value = formula.replaceAll(/(\w+)\[[^\]]*\]/g, (_, operand: string) => texts.get(operand) ?? operand);
  const factors = formula.includes(" * ") ? splitProduct(value) : undefined;
  if (factors) {
    if (chance(random, 0.3)) factors.reverse();
    if (isCast.size === 0 && chance(random, 0.25)) {
      const own = loops.filter(() => chance(random, 0.5));
      const [first] = inputs;
      tensors["w"] = { dtype: first?.dtype ?? target.dtype };
      factors.splice(randomInteger(random, 0, 2), 0, randomAccess(random, "w", own));
    }
    value = factors.join(" * ");
  }

  // 3. Where it goes, and under which condition.
  const op = randomCombine(random, equation.op);
  const kept = loops.filter((l) => l.kind === "spatial");
  const condition = chance(random, 0.25) ? randomCondition(random, loops) : undefined;
  const text = `${randomTarget(random, kept, op)} ${op} ${value}${condition === undefined ? "" : ` where ${condition}`}`;
  const mentioned = new Set(text.match(/[A-Za-z_]\w*/g));
  const spec = {
    name: "random",
    equation: text,
    extents: Object.fromEntries(loops.filter((l) => mentioned.has(l.name)).map((l) => [l.name, l.extent])),
  };
  const computation = defineComputation({ ...spec, tensors });
  if (!chance(random, 0.2)) return computation;

  // 4. Now and then a tensor is smaller than what is read of it.
  const [name, cut] = pick(random, Object.entries(tensors));
  const shape = tensorOf(computation, name).dims.map((d) =>
    chance(random, 0.5) ? Math.max(1, d.extent - 1) : d.extent,
  );
  return defineComputation({ ...spec, tensors: { ...tensors, [name]: { ...cut, shape } } });
}

function randomLoops(random: Random, intrinsic: Intrinsic): Loop[] {
  const { axes, equation } = intrinsic.computation;
  const inputs = intrinsic.operands.slice(1).map((o) => o.name);
  const free = { spatial: ["n", "k", "p", "q", "g", "h"], reduce: equation.op === "=" ? [] : ["c", "r", "s"] };
  const loops: Loop[] = [];
  const draw = (kind: Loop["kind"], operands: readonly string[]): void => {
    const name = free[kind].shift();
    if (name !== undefined && loops.length < 6) loops.push({ name, kind, operands, extent: pick(random, EXTENTS) });
  };
  for (const axis of shuffled(random, axes)) {
    const indexed = intrinsic.operands.filter((o) => o.dims.some((d) => d.name === axis.name)).map((o) => o.name);
    for (let count = pick(random, [0, 1, 1, 1, 2, 2]); count > 0; count--) draw(axis.kind, indexed);
  }
  for (let more = pick(random, [0, 0, 1, 1, 2]); more > 0; more--) {
    const operands = inputs.filter(() => chance(random, 0.6));
    draw(chance(random, 0.6) || operands.length === 0 ? "spatial" : "reduce", operands);
  }
  if (!loops.some((l) => l.kind === "spatial")) draw("spatial", inputs.slice(0, 1));
  const most = intrinsic.operands[0]?.dtype === "f16" ? MOST_POINTS.f16 : MOST_POINTS.other;
  while (loops.reduce((points, l) => points * l.extent, 1) > most) {
    const [largest] = loops.toSorted((a, b) => b.extent - a.extent);
    if (largest) largest.extent--;
  }
  return shuffled(random, loops);
}

/** A tensor element, or something computed from one or two. */
function randomOperand(
  random: Random,
  dtype: DType,
  loops: readonly Loop[],
  tensor: string,
  tensors: Record<string, TensorSpec>,
  op: CombineOp,
  isCast: boolean,
): string {
  if (chance(random, 0.05)) return String(randomInteger(random, 0, isCast && chance(random, 0.3) ? 200 : 3));
  const narrower = dtype === "f32" && chance(random, 0.1) ? "f16" : undefined;
  tensors[tensor] = { dtype: narrower ?? dtype };
  const read = randomAccess(random, tensor, loops);
  const plain = narrower === undefined ? read : `f32(${read})`;
  if (!chance(random, 0.3)) return plain;
  const second = `${tensor}m`;
  const other = (): string => {
    tensors[second] = { dtype };
    return randomAccess(
      random,
      second,
      loops.filter(() => chance(random, 0.5)),
    );
  };
  const forms = [
    () => `(${plain} + ${other()})`,
    () => `(${plain} + 1)`,
    () => `max(${plain}, 0)`,
    () => (loops[0] ? `select(${loops[0].name} < 2, ${plain}, ${other()})` : plain),
  ];
  // Reads outside give minus infinity to a maximum: its square is the largest value, and two of them have no difference.
  const forSums = [
    () => `(${plain} - ${other()})`,
    () => `square(${plain} - ${other()})`,
    () => `abs(${plain})`,
    () => `(-${plain})`,
  ];
  return pick(random, op === "max=" || op === "min=" ? forms : [...forms, ...forSums])();
}

/** `x[c,p*2+r-1]`: windows, groups, shifts, and plain loops in any order. */
function randomAccess(random: Random, tensor: string, loops: readonly Loop[]): string {
  const left = shuffled(random, loops);
  const dimensions: string[] = [];
  for (let loop = left.shift(); loop; loop = left.shift()) {
    const { name, kind, extent } = loop;
    const partner = left.findIndex((l) => l.kind !== kind);
    const [other] = partner < 0 || !chance(random, 0.4) ? [] : left.splice(partner, 1);
    if (other) {
      const stride = randomInteger(random, 1, 3);
      const dilation = randomInteger(random, 1, 2);
      const pad = randomInteger(random, 0, 2);
      dimensions.push(`${name}*${stride}${chance(random, 0.15) ? "-" : "+"}${other.name}*${dilation}-${pad}`);
    } else if (left[0] && chance(random, 0.1)) {
      const inside = left.shift();
      dimensions.push(`${name}*${inside?.extent ?? 1}+${inside?.name ?? 0}`);
    } else {
      const forms = [`${name}-1`, `${name}*2+1`, `${extent - 1}-${name}`, `${name}/2`, `${name}%2`, `(${name}-1)/2`];
      dimensions.push(chance(random, 0.25) ? pick(random, forms) : name);
    }
  }
  if (loops[0] && chance(random, 0.04)) dimensions.push(loops[0].name);
  return `${tensor}[${dimensions.join(",")}]`;
}

function randomTarget(random: Random, kept: readonly Loop[], op: CombineOp): string {
  const left = shuffled(random, kept);
  const dimensions: string[] = [];
  for (let loop = left.shift(); loop; loop = left.shift()) {
    const { name, extent } = loop;
    if (left[0] && chance(random, 0.15)) {
      const inside = left.shift();
      dimensions.push(`${name}*${inside?.extent ?? 1}+${inside?.name ?? 0}`);
      continue;
    }
    // The last of several values assigned to one element would depend on the order.
    const forms = [`${name}+1`, `${name}-1`, `${extent - 1}-${name}`, ...(op === "=" ? [] : [`${name}/2`])];
    dimensions.push(chance(random, 0.15) ? pick(random, forms) : name);
  }
  return `out[${dimensions.join(",")}]`;
}

function randomCondition(random: Random, loops: readonly Loop[]): string {
  const part = (): string => {
    const a = pick(random, loops).name;
    const b = pick(random, loops).name;
    const some = randomInteger(random, 0, 2);
    const forms = [`(${a} + ${b} + ${some}) % 2 == 0`, `${a} <= ${b} + ${some}`, `${a} != ${some}`];
    return pick(random, [...forms, `(${a} < ${some} or ${b} >= ${some})`, `(${a} - ${b}) % 3 != 1`]);
  };
  return chance(random, 0.3) ? `${part()} and ${part()}` : part();
}

function randomCombine(random: Random, op: CombineOp): CombineOp {
  if (op !== "+=" && op !== "sat+=") return op;
  if (chance(random, 0.9)) return "+=";
  return "sat+=";
}

/** The two sides of a product of two texts, each perhaps a cast. */
function splitProduct(text: string): string[] | undefined {
  let depth = 0;
  for (const [i, character] of [...text].entries()) {
    if ("([".includes(character)) depth++;
    else if (")]".includes(character)) depth--;
    else if (depth === 0 && text.startsWith(" * ", i)) return [text.slice(0, i), text.slice(i + 3)];
  }
  return undefined;
}

export function shuffled<T>(random: Random, items: readonly T[]): T[] {
  const keyed = items.map((item) => ({ item, key: random() }));
  return keyed.sort((a, b) => a.key - b.key).map(({ item }) => item);
}

/** Integers over the whole range of their type; floats hold small integers, whose sums are exact. */
export function randomInputs(random: Random, computation: Computation): Record<string, Float64Array> {
  const { equation, tensors } = computation;
  const target = tensorOf(computation, equation.target.tensor);
  const largest = target.dtype === "f16" ? 1 : 6;
  const inputs: Record<string, Float64Array> = {};
  for (const { name, dtype, dims } of Object.values(tensors)) {
    if (name === target.name) continue;
    const [min, max] = isInteger(dtype) ? rangeOf(dtype) : [-largest, largest];
    const values = Float64Array.from({ length: dims.reduce((count, d) => count * d.extent, 1) }, () =>
      chance(random, 0.1) ? pick(random, [min, max]) : randomInteger(random, min, max),
    );
    inputs[name] = values;
  }
  return inputs;
}
