/**
 * @file Random small instructions: any axes, any operands over them, any arithmetic a declaration may have.
 *
 *     randomIntrinsic(random)     drawn.17    c[i,j] += s32(a[k,i]) * s32(b[j,k])    i 2  j 3  k 2
 *
 * Now and then an operand is read through a window, shifted, or under a condition: which the mapper must refuse.
 */

import type { DType } from "../../abstraction/dtype.ts";
import { defineIntrinsic, type Intrinsic } from "../../abstraction/intrinsic.ts";
import { pick, type Random, randomInteger } from "../../abstraction/random.ts";
import { shuffled } from "./random-computation.ts";

interface Form {
  readonly op: string;
  /** Of the operands' accesses. */
  readonly value: (...reads: readonly string[]) => string;
  readonly types: readonly [c: DType, ...inputs: DType[]];
}

const product = (a = "", b = ""): string => `${a} * ${b}`;
const widened = (a = "", b = ""): string => `s32(${a}) * s32(${b})`;

const FORMS: readonly Form[] = [
  { op: "+=", value: product, types: ["f32", "f32", "f32"] },
  { op: "+=", value: product, types: ["s32", "s32", "s32"] },
  { op: "+=", value: product, types: ["f16", "f16", "f16"] },
  { op: "+=", value: widened, types: ["s32", "u8", "s8"] },
  { op: "+=", value: widened, types: ["s32", "s8", "s8"] },
  { op: "sat+=", value: widened, types: ["s32", "u8", "s8"] },
  { op: "+=", value: (a, b) => `f32(${a}) * f32(${b})`, types: ["f32", "f16", "f16"] },
  { op: "+=", value: (a) => `s32(${a})`, types: ["s32", "u8"] },
  { op: "max=", value: (a = "") => a, types: ["s32", "s32"] },
  { op: "max=", value: (a = "") => a, types: ["f32", "f32"] },
  { op: "min=", value: (a = "") => a, types: ["u8", "u8"] },
  { op: "max=", value: (a, b) => `${a} + ${b}`, types: ["f32", "f32", "f32"] },
  { op: "min=", value: (a, b) => `${a} + ${b}`, types: ["s32", "s32", "s32"] },
  { op: "+=", value: (a, b) => `${a} + ${b}`, types: ["s32", "s32", "s32"] },
  { op: "=", value: product, types: ["f32", "f32", "f32"] },
  { op: "=", value: product, types: ["s32", "s32", "s32"] },
];

const SPATIAL = ["i", "j", "l"];
const REDUCE = ["k", "m"];

export function randomIntrinsic(random: Random, number: number): Intrinsic {
  const form = pick(random, FORMS);
  const [dtype, ...inputs] = form.types;
  const kept = SPATIAL.slice(0, pick(random, [1, 1, 2, 2, 2, 3]));
  const summed = form.op === "=" ? [] : REDUCE.slice(0, pick(random, [0, 1, 1, 1, 2]));
  const extents = Object.fromEntries([...kept, ...summed].map((name) => [name, randomInteger(random, 1, 4)]));

  // 1. Each axis indexes one input at least; whether it indexes the others is drawn.
  const own = inputs.map((): string[] => []);
  for (const axis of [...kept, ...summed]) {
    const sure = randomInteger(random, 0, inputs.length - 1);
    for (const [i, axes] of own.entries()) if (i === sure || random() < 0.4) axes.push(axis);
  }
  const names = ["a", "b"].slice(0, inputs.length);
  const indices = own.map((axes) => crooked(random, shuffled(random, axes)));
  const reads = names.map((name, i) => `${name}[${indices[i]?.text.join(",")}]`);
  const where = random() < 0.03 && kept[1] !== undefined ? ` where ${kept[1]} <= ${kept[0]}` : "";
  const target = shuffled(random, kept);
  const compute = `c[${target.join(",")}] ${form.op} ${form.value(...reads)}${where}`;

  // 2. Registers hold their elements row-major; the vendor of one in five keeps the layout secret.
  const operand = (type: DType | undefined, dims: readonly Dim[]): { dtype: DType; storage: string } => ({
    dtype: type ?? "f32",
    storage: random() < 0.2 ? "secret" : `v[${rowMajorText(dims)}]`,
  });
  return defineIntrinsic({
    name: `drawn.${number}`,
    family: "drawn",
    isa: "virtual",
    language: "none",
    summary: "An instruction drawn at random.",
    compute,
    extents,
    operands: Object.fromEntries([
      [
        "c",
        operand(
          dtype,
          target.map((name) => ({ name, extent: extents[name] ?? 1 })),
        ),
      ],
      ...names.map(
        (name, i) =>
          [
            name,
            operand(
              inputs[i],
              (indices[i]?.dims ?? []).map((d) => d(extents)),
            ),
          ] as const,
      ),
    ]),
    emit: "",
    source: "this test",
  });
}

interface Dim {
  readonly name: string;
  readonly extent: number;
}

type Sized = (extents: Readonly<Record<string, number>>) => Dim;

/** Plain indices, one in twenty times with a window over two of them. */
function crooked(random: Random, axes: readonly string[]): { readonly text: string[]; readonly dims: Sized[] } {
  const [first, second, ...rest] = axes;
  const plain =
    (name: string): Sized =>
    (extents) => ({ name, extent: extents[name] ?? 1 });
  if (first !== undefined && second !== undefined && random() < 0.05)
    return {
      text: [`${first}+${second}`, ...rest],
      dims: [
        (extents) => ({ name: "d0", extent: (extents[first] ?? 1) + (extents[second] ?? 1) - 1 }),
        ...rest.map(plain),
      ],
    };
  return { text: [...axes], dims: axes.map(plain) };
}

function rowMajorText(dims: readonly Dim[]): string {
  const terms: string[] = [];
  let stride = 1;
  for (const { name, extent } of [...dims].reverse()) {
    terms.unshift(`${stride}*${name}`);
    stride *= extent;
  }
  return terms.length === 0 ? "0" : terms.join(" + ");
}
