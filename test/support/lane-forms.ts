/**
 * @file Small nests of lanes, one for each form a statement on lanes can take: which every generator must print
 * correctly.
 */

import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation } from "../../abstraction/parse.ts";

export const scalar = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text) });

export interface LaneForm {
  readonly name: string;
  /** The body for so many lanes; `x` has 128 elements, `w` 8, `out` 64, `image` and `picture` are 6 x 20. */
  readonly body: (lanes: number) => readonly Statement[];
  /** Types it makes sense for; all when left out. */
  readonly dtypes?: readonly DType[];
  /** Scratch memory of one warp or thread. */
  readonly scratch?: number;
}

const onLanes = (lanes: number, ...texts: readonly string[]): Statement =>
  loop("lane", lanes, texts.map(scalar), "lanes");
/** Loads a register, does something, stores it. */
const through = (...texts: readonly string[]): LaneForm["body"] => {
  return (lanes) => [onLanes(lanes, "V[0,lane] = x[lane+20]", ...texts, "out[lane] = V[0,lane]")];
};
const IMAGE_FORM = "overlapped blocks of an image";
const floats = ["f32", "f64"] as const;

export const LANE_FORMS: readonly LaneForm[] = [
  { name: "shift up by 1", body: through("V[0,lane] = select(lane < 1, w[0], V[0,lane-1])") },
  { name: "shift up by 3", body: through("V[0,lane] = select(lane < 3, w[1], V[0,lane-3])") },
  { name: "shift down by 1", body: (n) => through(`V[0,lane] = select(lane == ${n - 1}, w[0], V[0,lane+1])`)(n) },
  { name: "shift down by 2", body: (n) => through(`V[0,lane] = select(lane >= ${n - 2}, w[0], V[0,lane+2])`)(n) },
  {
    name: "two shifts of one value",
    body: (n) => through(`V[0,lane] = select(lane >= 1 and lane < ${n - 1}, V[0,lane-1] - V[0,lane+1], 7)`)(n),
  },
  {
    name: "multiply and add a neighbour",
    body: through("V[1,lane] = V[0,lane] * w[2]", "V[0,lane] = select(lane < 1, 0, V[1,lane-1]) + x[lane] * w[3]"),
  },
  {
    name: "products subtracted",
    body: through("V[0,lane] = V[0,lane] - x[lane] * w[0]", "V[0,lane] = x[lane+1] * w[1] - V[0,lane]"),
  },
  { name: "broadcast of an element", body: through("V[0,lane] = V[0,lane] * w[1] + w[2]") },
  { name: "broadcast of a lane", body: through("V[0,lane] = V[0,lane] + V[0,3]") },
  {
    name: "load beyond both ends",
    body: (n) => [onLanes(n, "V[0,lane] = x[lane-3] + x[lane+120]", "out[lane] = V[0,lane]")],
  },
  {
    name: "masked store",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]", "out[lane] = 5", "out[lane] = V[0,lane] where lane >= 2 and lane != 3"),
    ],
  },
  { name: "masked register", body: through("V[0,lane] = w[4] where lane%2 == 0 or lane == 1") },
  { name: "store beyond the end", body: (n) => [onLanes(n, "out[lane] = 1", "out[lane+60] = x[lane]")] },
  {
    name: "accumulate in place",
    body: through("V[0,lane] += x[lane]", "V[0,lane] max= x[lane+1]", "V[0,lane] min= x[lane+2]"),
  },
  {
    name: "accumulate in memory",
    body: (n) => [onLanes(n, "out[lane] = x[lane]", "out[lane] += x[lane+1] * w[0]", "out[lane] max= x[lane+2]")],
  },
  {
    name: "select by the step",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]"),
      loop("t", 4, [
        onLanes(
          n,
          "V[0,lane] = select(lane == t, w[t], V[0,lane])",
          "V[0,lane] = select(t < 2, V[0,lane] + x[lane], V[0,lane])",
        ),
      ]),
      onLanes(n, "out[lane] = V[0,lane]"),
    ],
  },
  { name: "select of one lane's load", body: through("V[0,lane] = select(lane == 2, x[7-lane], V[0,lane])") },
  {
    name: "sum of the lanes",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]", "out[1] += V[0,lane] * w[2]", "out[2] += V[0,lane] where lane < 4"),
    ],
  },
  {
    name: "largest and smallest lane",
    body: (n) => [
      scalar("out[1] = 3"),
      scalar("out[2] = 4"),
      onLanes(n, "V[0,lane] = x[lane]", "out[1] max= V[0,lane]", "out[2] min= V[0,lane] where lane != 1"),
    ],
  },
  { name: "sum into a lane", body: through("V[1,lane] = w[1]", "V[1,2] += V[0,lane]", "V[0,lane] = V[1,lane]") },
  {
    name: "one lane leaves",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]"),
      loop("t", 3, [
        onLanes(n, "out[2*t] = V[0,lane] where lane == t+1", "out[2*t+1] = V[0,lane] * w[t] where lane == 3"),
      ]),
    ],
  },
  {
    name: "each lane leaves in its turn",
    body: (n) => [onLanes(n, "V[0,lane] = x[lane]"), loop("t", n, [onLanes(n, "out[t] = V[0,lane] where lane == t")])],
  },
  {
    name: "one lane leaves by its own index",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]"),
      loop("t", 4, [onLanes(n, "out[t+lane-3] = V[0,lane] where lane == 3", "V[0,lane] = V[0,lane] + 1")]),
    ],
  },
  { name: "gather with a stride", body: (n) => [onLanes(n, "V[0,lane] = x[3*lane+1]", "out[lane] = V[0,lane]")] },
  {
    name: "gather backwards",
    body: (n) => [onLanes(n, "V[0,lane] = x[40-lane] + x[5-lane]", "out[lane] = V[0,lane]")],
  },
  { name: "gather by halves", body: (n) => [onLanes(n, "V[0,lane] = x[lane/2] - x[lane%3]", "out[lane] = V[0,lane]")] },
  {
    name: "scatter with a stride",
    body: (n) => [onLanes(n, "V[0,lane] = x[lane]", "out[3*lane] = V[0,lane] where lane < 9")],
  },
  {
    name: "registers that time shifts",
    body: (n) => [
      onLanes(n, "V[0,lane] = 0", "V[1,lane] = 0", "V[2,lane] = 0"),
      loop("t", 5, [
        onLanes(
          n,
          "V[2,lane] = select(lane < 1, 0, V[1,lane-1])",
          "V[1,lane] = V[0,lane]",
          "V[0,lane] = V[2,lane] + x[lane+t]",
        ),
      ]),
      onLanes(n, "out[lane] = V[0,lane] + V[1,lane]"),
    ],
  },
  {
    name: "registers by an unrolled loop",
    body: (n) => [
      loop("r", 3, [onLanes(n, "V[r,lane] = x[lane+r]")], "unrolled"),
      loop("r", 2, [onLanes(n, "V[2,lane] = V[2,lane] + V[r,lane] * w[r]")], "unrolled"),
      onLanes(n, "out[lane] = V[2,lane]"),
    ],
  },
  {
    name: "arithmetic",
    body: through("V[0,lane] = max(-V[0,lane], min(x[lane], w[0])) + square(x[lane+1]) - abs(x[lane+2])"),
  },
  { name: "signs that meet", body: through("V[0,lane] = -(-V[0,lane]) * -2 - -x[lane]") },
  { name: "division and rounding", body: through("V[0,lane] = round(V[0,lane] / 4) + x[lane] / w[3]"), dtypes: floats },
  {
    name: "scalars outside lanes",
    body: (n) => [
      onLanes(n, "V[0,lane] = x[lane]"),
      scalar("V[0,2] = x[9] * w[1]"),
      onLanes(n, "V[1,lane] = V[0,lane] + 1"),
      scalar("out[5] = V[1,2] + V[0,3] * w[2]"),
      loop("i", 3, [scalar("out[i] = x[i] + w[i]")]),
    ],
  },
  {
    name: "memory that lanes exchange",
    scratch: 64,
    body: (n) => [
      onLanes(
        n,
        "s[lane] = x[lane]",
        `V[0,lane] = s[${n - 1}-lane]`,
        "s[lane] = V[0,lane] + 1",
        "out[lane] = s[lane] + s[0]",
      ),
    ],
  },
  {
    name: IMAGE_FORM,
    body: (n) => [
      loop(
        "y",
        6,
        [
          loop(
            "b",
            Math.ceil(20 / (n - 2)),
            [
              onLanes(
                n,
                `V[0,lane] = image[y,${n - 2}*b+lane-1]`,
                "V[1,lane] = V[0,lane] * w[0]",
                "V[1,lane] = V[0,lane] * w[1] + V[1,lane-1]",
                "V[1,lane] = V[0,lane] * w[2] + V[1,lane-1]",
                `picture[y,${n - 2}*b+lane-2] = V[1,lane] where lane >= 2`,
              ),
            ],
            "parallel",
          ),
        ],
        "parallel",
      ),
    ],
  },
];

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
  const clear = form.name === IMAGE_FORM ? [] : [loop("i", 64, [scalar("out[i] = 0")])];
  const nest: LoopNest = {
    scratch: form.scratch === undefined ? [] : [{ name: "s", dtype, elements: form.scratch, scope: "local" }],
    registers: [],
    vectors: [{ name: "V", dtype, lanes, count: 3 }],
    prepare: [],
    body: [...clear, ...form.body(lanes)],
  };
  return { computation: computationOf(form.name, dtype), nest };
}
