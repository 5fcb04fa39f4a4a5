/**
 * @file Small nests of lanes, one for each form a statement on lanes can take: which every generator must print
 * correctly.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { readNest } from "./nest-text.ts";

export interface LaneForm {
  readonly name: string;
  readonly text: string;
  /** Types it makes sense for; all when left out. */
  readonly dtypes?: readonly DType[];
  /** Scratch memory of one warp or thread. */
  readonly scratch?: number;
}

const IMAGE_FORM = "overlapped blocks of an image";

/**
 * Statements on N lanes with semicolons between, after a load of V and before its store where they store nothing themselves; or a nest.
 * `x` has 128 elements, `w` 8, `out` 64, `image` and `picture` are 6 x 20.
 */
const FORMS: Readonly<Record<string, string>> = {
  "shift up by 1": "V[0,lane] = select(lane < 1, w[0], V[0,lane-1])",
  "shift up by 3": "V[0,lane] = select(lane < 3, w[1], V[0,lane-3])",
  "shift down by 1": "V[0,lane] = select(lane == N-1, w[0], V[0,lane+1])",
  "shift down by 2": "V[0,lane] = select(lane >= N-2, w[0], V[0,lane+2])",
  "two shifts of one value": "V[0,lane] = select(lane >= 1 and lane < N-1, V[0,lane-1] - V[0,lane+1], 7)",
  "multiply and add a neighbour":
    "V[1,lane] = V[0,lane] * w[2]; V[0,lane] = select(lane < 1, 0, V[1,lane-1]) + x[lane] * w[3]",
  "products subtracted": "V[0,lane] = V[0,lane] - x[lane] * w[0]; V[0,lane] = x[lane+1] * w[1] - V[0,lane]",
  "broadcast of an element": "V[0,lane] = V[0,lane] * w[1] + w[2]",
  "broadcast of a lane": "V[0,lane] = V[0,lane] + V[0,3]",
  "load beyond both ends": "V[0,lane] = x[lane-3] + x[lane+120]; out[lane] = V[0,lane]",
  "masked store": "V[0,lane] = x[lane]; out[lane] = 5; out[lane] = V[0,lane] where lane >= 2 and lane != 3",
  "masked register": "V[0,lane] = w[4] where lane%2 == 0 or lane == 1",
  "store beyond the end": "out[lane] = 1; out[lane+60] = x[lane]",
  "accumulate in place": "V[0,lane] += x[lane]; V[0,lane] max= x[lane+1]; V[0,lane] min= x[lane+2]",
  "accumulate in memory": "out[lane] = x[lane]; out[lane] += x[lane+1] * w[0]; out[lane] max= x[lane+2]",
  "select by the step": `
    for lanes lane in 0..N
      V[0,lane] = x[lane]
    for t in 0..4
      for lanes lane in 0..N
        V[0,lane] = select(lane == t, w[t], V[0,lane])
        V[0,lane] = select(t < 2, V[0,lane] + x[lane], V[0,lane])
    for lanes lane in 0..N
      out[lane] = V[0,lane]`,
  "select of one lane's load": "V[0,lane] = select(lane == 2, x[7-lane], V[0,lane])",
  "sum of the lanes": "V[0,lane] = x[lane]; out[1] += V[0,lane] * w[2]; out[2] += V[0,lane] where lane < 4",
  "largest and smallest lane": `
    out[1] = 3
    out[2] = 4
    for lanes lane in 0..N
      V[0,lane] = x[lane]
      out[1] max= V[0,lane]
      out[2] min= V[0,lane] where lane != 1`,
  "sum into a lane": "V[1,lane] = w[1]; V[1,2] += V[0,lane]; V[0,lane] = V[1,lane]",
  "one lane leaves": `
    for lanes lane in 0..N
      V[0,lane] = x[lane]
    for t in 0..3
      for lanes lane in 0..N
        out[2*t] = V[0,lane] where lane == t+1
        out[2*t+1] = V[0,lane] * w[t] where lane == 3`,
  "each lane leaves in its turn": `
    for lanes lane in 0..N
      V[0,lane] = x[lane]
    for t in 0..N
      for lanes lane in 0..N
        out[t] = V[0,lane] where lane == t`,
  "one lane leaves by its own index": `
    for lanes lane in 0..N
      V[0,lane] = x[lane]
    for t in 0..4
      for lanes lane in 0..N
        out[t+lane-3] = V[0,lane] where lane == 3
        V[0,lane] = V[0,lane] + 1`,
  "gather with a stride": "V[0,lane] = x[3*lane+1]; out[lane] = V[0,lane]",
  "gather backwards": "V[0,lane] = x[40-lane] + x[5-lane]; out[lane] = V[0,lane]",
  "gather by halves": "V[0,lane] = x[lane/2] - x[lane%3]; out[lane] = V[0,lane]",
  "scatter with a stride": "V[0,lane] = x[lane]; out[3*lane] = V[0,lane] where lane < 9",
  "registers that time shifts": `
    for lanes lane in 0..N
      V[0,lane] = 0
      V[1,lane] = 0
      V[2,lane] = 0
    for t in 0..5
      for lanes lane in 0..N
        V[2,lane] = select(lane < 1, 0, V[1,lane-1])
        V[1,lane] = V[0,lane]
        V[0,lane] = V[2,lane] + x[lane+t]
    for lanes lane in 0..N
      out[lane] = V[0,lane] + V[1,lane]`,
  "registers by an unrolled loop": `
    for unrolled r in 0..3
      for lanes lane in 0..N
        V[r,lane] = x[lane+r]
    for unrolled r in 0..2
      for lanes lane in 0..N
        V[2,lane] = V[2,lane] + V[r,lane] * w[r]
    for lanes lane in 0..N
      out[lane] = V[2,lane]`,
  arithmetic: "V[0,lane] = max(-V[0,lane], min(x[lane], w[0])) + square(x[lane+1]) - abs(x[lane+2])",
  "signs that meet": "V[0,lane] = -(-V[0,lane]) * -2 - -x[lane]",
  "division and rounding": "V[0,lane] = round(V[0,lane] / 4) + x[lane] / w[3]",
  "scalars outside lanes": `
    for lanes lane in 0..N
      V[0,lane] = x[lane]
    V[0,2] = x[9] * w[1]
    for lanes lane in 0..N
      V[1,lane] = V[0,lane] + 1
    out[5] = V[1,2] + V[0,3] * w[2]
    for i in 0..3
      out[i] = x[i] + w[i]`,
  "memory that lanes exchange":
    "s[lane] = x[lane]; V[0,lane] = s[N-1-lane]; s[lane] = V[0,lane] + 1; out[lane] = s[lane] + s[0]",
  [IMAGE_FORM]: `
    for parallel y in 0..6
      for parallel b in 0..BLOCKS
        for lanes lane in 0..N
          V[0,lane] = image[y,N-2*b+lane-1]
          V[1,lane] = V[0,lane] * w[0]
          V[1,lane] = V[0,lane] * w[1] + V[1,lane-1]
          V[1,lane] = V[0,lane] * w[2] + V[1,lane-1]
          picture[y,N-2*b+lane-2] = V[1,lane] where lane >= 2`,
};

export const LANE_FORMS: readonly LaneForm[] = Object.entries(FORMS).map(([name, text]) => ({
  name,
  text,
  ...(name === "division and rounding" && { dtypes: ["f32", "f64"] }),
  ...(name === "memory that lanes exchange" && { scratch: 64 }),
}));

/** What a form's nest belongs to: the interpreter runs the nest, so the equation only says which tensors there are. */
function computationOf(name: string, dtype: DType): Computation {
  const w = { dtype, shape: [8], constant: true };
  if (name === IMAGE_FORM)
    return defineComputation({
      equation: "picture[y,c] += image[y,c+q-1] * w[q]",
      extents: { y: 6, c: 20, q: 3 },
      tensors: { image: { dtype, shape: [6, 20] }, w },
    });
  return defineComputation({
    equation: "out[i] += x[i] * w[j]",
    extents: { i: 64, j: 8 },
    tensors: { x: { dtype, shape: [128] }, w },
  });
}

/** A form for one type and number of lanes. Every element of the output is written. */
export function laneNest(form: LaneForm, dtype: DType, lanes: number): { computation: Computation; nest: LoopNest } {
  const statements = form.text.includes("out[")
    ? form.text
    : `V[0,lane] = x[lane+20]; ${form.text}; out[lane] = V[0,lane]`;
  const body = form.text.startsWith("\n")
    ? form.text.replaceAll("\n    ", "\n")
    : `for lanes lane in 0..N\n  ${statements.replaceAll("; ", "\n  ")}`;
  const text = [
    `vectors V: 3 x ${dtype}[${lanes}]`,
    ...(form.scratch === undefined ? [] : [`local s: ${dtype}[${form.scratch}]`]),
    ...(form.name === IMAGE_FORM ? [] : ["for i in 0..64", "  out[i] = 0"]),
    body
      .replaceAll("BLOCKS", String(Math.ceil(20 / (lanes - 2))))
      .replaceAll(/\bN(?:-(\d+))?\b/g, (_, less = 0) => String(lanes - Number(less))),
  ].join("\n");
  return { computation: computationOf(form.name, dtype), nest: readNest(text) };
}
