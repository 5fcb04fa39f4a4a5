/** @file Random recurrences and schedules for them, for the interpreter and for compiled kernels. */

import type { RecurrenceSchedule } from "../../../abstraction/candidate.ts";
import {
  type Computation,
  computationKey,
  defineComputation,
  elementCount,
  inputsOf,
} from "../../../abstraction/computation.ts";
import type { DType } from "../../../abstraction/dtype.ts";
import { pick, type Random, randomInteger } from "../../../abstraction/random.ts";
import { lowerRecurrent } from "../../../mapper/space-time/lower-recurrent.ts";
import {
  isForm,
  isRecurrentForms,
  leastSkew,
  type Recurrent,
  recurrentForms,
  recurrentUnder,
  transformOf,
} from "../../../mapper/space-time/recurrent.ts";
import type { Drawn, DrawnKind } from "./drawn.ts";

export function formsOf(computation: Computation): readonly Recurrent[] {
  const forms = recurrentForms(computation);
  if (!isRecurrentForms(forms)) throw new Error(forms.because);
  return forms;
}

/** The plain schedule of a form. */
export function scheduleOf(form: Recurrent, lanes: number, skew = leastSkew(form)): RecurrenceSchedule {
  return {
    transform: transformOf(form, skew),
    lanes,
    beside: {},
    threads: 1,
  };
}

const at = (name: string, shift: number): string => (shift === 0 ? name : `${name}${shift > 0 ? "+" : ""}${shift}`);

/** A wavefront over two sequences, or over rows that depend on earlier rows and columns. */
function randomWavefront(random: Random): string {
  const reads = Array.from({ length: randomInteger(random, 1, 3) }, () => {
    const di = pick(random, [0, 0, 1, 1, 1, 2]);
    const dj = di === 0 ? pick(random, [1, 1, 2]) : pick(random, [-1, 0, 0, 1, 1, 2]);
    return `h[${pick(random, ["", "p,"])}${at("i", -di)},${at("j", -dj)}]`;
  });
  const batched = random() < 0.3;
  const own = reads.map((r) => r.replace("p,", "").replace("[", batched ? "[p," : "["));
  const others = ["x[i]", "y[j]", "z[i,j]", "2", "g", "select(a[i] == b[j], 3, -2)", "select(b[j] >= 0, 1, x[i+1])"];
  const terms = own.map((r) => `${r} ${pick(random, ["+", "-"])} ${pick(random, others)}`);
  const value = pick(random, [
    `max(0, ${terms.join(", ")})`,
    `max(${[...terms, terms[0]].join(", ")})`,
    `select(i == 0, y[j], ${terms[0]})`,
    `select(i - j < 2 and j > 0, min(${terms[0]}, ${terms.at(-1)}), x[i])`,
    `select(a[i] == b[j] or i == j, ${own[0]} + 1, max(${own[0]}, ${own.at(-1)}))`,
    `${terms.join(" + ")} + x[i]`,
  ]);
  return `h[${batched ? "p," : ""}i,j] = ${value}`;
}

const PLANES = [
  "v[t,j] max= select(t == 0, x[j], v[t-1,i] + z[i,j]) + w[t,j]",
  "v[n,j] = max(v[n-1,j-1], v[n-1,j], v[n-1,j+1]) + w[n,j]",
  "v[p,t,j] min= select(t == 0, x[j], v[p,t-1,i] + z[i,j])",
  "v[t,j] += select(t == 0, x[j], v[t-1,i] + z[i,j])",
  "v[n,i,j] = min(v[n-1,i-1,j], v[n-2,i,j+1]) + w[n,j]",
] as const;

const PREFIXES = [
  "y[i] = y[i-1] + x[i]",
  "y[p,i] = x[i] - g + y[p,i-1]",
  "y[i] = max(y[i-1], x[i])",
  "y[p,i] = min(x[i], y[p,i-1])",
];

/** A random computation of one of the forms. */
export function randomRecurrent(random: Random, most = 19): Computation {
  const equation = pick(random, [
    randomWavefront(random),
    randomWavefront(random),
    pick(random, PLANES),
    pick(random, PREFIXES),
  ]);
  const types: Record<string, DType> = {};
  // Sums of sums exceed the integers that floats represent exactly.
  const dtype = equation.includes("+=") ? "s32" : pick(random, ["s32", "f32", "f64"] as const);
  for (const name of "hvyxzwab")
    if (equation.includes(`${name}[`)) types[name] = name === "a" || name === "b" ? "u8" : dtype;
  const extents: Record<string, number> = {};
  for (const name of ["p", "t", "n", "i", "j"])
    if (new RegExp(`[[,]${name}[\\],+-]`).test(equation))
      extents[name] = randomInteger(random, 1, name === "p" ? 3 : most);
  if (equation.includes("g")) extents["g"] = 2;
  return defineComputation({ equation, extents, tensors: types });
}

export function randomScheduleOf(computation: Computation, random: Random, lanes = [2, 4]): RecurrenceSchedule {
  const form = pick(random, formsOf(computation));
  const last = form.inner.at(-1)?.name ?? "";
  const several = form.form === "planes" && random() < 0.5 ? { [last]: 2 } : {};
  return { ...scheduleOf(form, pick(random, lanes), leastSkew(form) + (random() < 0.3 ? 1 : 0)), beside: several };
}

/** Letters from a small alphabet, so that some match; otherwise small integers, so that sums are exact. */
export function lettersAndNumbers(computation: Computation, random: Random): Record<string, Float64Array> {
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () =>
        t.dtype === "u8" ? randomInteger(random, 0, 2) : randomInteger(random, -9, 9),
      ),
    ]),
  );
}

export function drawRecurrent(random: Random): readonly Drawn[] {
  const computation = randomRecurrent(random);
  const schedule = randomScheduleOf(computation, random);
  const form = recurrentUnder(computation, schedule);
  if (!isForm(form)) return [{ status: "refused", because: form.because }];
  const said = `${form.form} of ${computationKey(computation)} by ${JSON.stringify(schedule)}`;
  const inputs = lettersAndNumbers(computation, random);
  return [{ status: "nest", said, computation, inputs, nest: () => lowerRecurrent(form, schedule) }];
}

export const RECURRENT: DrawnKind = {
  name: "recurrences: wavefronts, planes, prefixes",
  share: 140,
  draw: drawRecurrent,
};
