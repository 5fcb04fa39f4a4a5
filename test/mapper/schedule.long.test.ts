/** Lowering under schedules: whatever the schedule, the program computes the equation. */
import { expect, test } from "vitest";
import { pointCount } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { bindOperands } from "../../mapper/match/bind.ts";
import { defineProblem } from "../../mapper/match/problem.ts";
import { validate } from "../../mapper/match/validate.ts";
import { randomSchedule, scheduleProblem } from "../../mapper/schedule/mapped.ts";
import { placementsOf } from "../../mapper/schedule/place.ts";
import { CUTTING } from "../support/random-triangle.ts";
import { inFull } from "../support/slow.ts";
import { mappingsOnto, operation, rowNamed, smallIntegers } from "../support/subjects.ts";

const CASES = [
  "conv2d c=5 k=18 h=5 w=7 r=3 s=3 NHWC",
  "conv2d c=4 k=16 h=6 w=5 r=3 s=3 stride=2 pad=2 dilation=2 NCHW",
  "conv2d c=20 k=33 h=3 w=5 r=1 s=1 pad=0 NHWC",
  "grouped-conv2d c=12 k=6 h=5 w=4 r=3 s=3 groups=3 pad=1 NHWC",
  "depthwise-conv2d c=17 h=5 w=6 m=1 r=3 s=3 NHWC",
  "transposed-conv2d c=4 k=3 h=3 w=4 r=3 s=3 stride=2 pad=1 NCHW",
  "matmul m=5 n=37 k=9",
  "matvec m=19 k=10",
  "variance n=2 c=5 h=3 w=3",
  "stencil2d-star h=5 w=20 radius=1",
];
test("every schedule of every mapping computes the equation, twice in a row", () => {
  const random = seededRandom(7);
  let ran = 0;
  for (const words of CASES) {
    for (const name of CUTTING) {
      const intrinsic = rowNamed(name);
      const computation = operation(words, intrinsic);
      const valid = mappingsOnto(computation, intrinsic);
      if (valid.length === 0) continue;
      const inputs = smallIntegers(computation, random);
      const expected = interpret(computation, inputs);
      // A tile product is many points: fewer of those.
      const draws = pointCount(intrinsic.computation) > 1000 ? inFull(2, 1) : inFull(6, 1);
      for (let i = 0; i < draws; i++) {
        const mapping = pick(random, valid);
        const schedule = randomSchedule(mapping, random);
        const nest = lowerSchedule(mapping, schedule);
        const got = interpretNest(nest, computation, inputs, 2);
        const wrong = got.findIndex((x, at) => x !== expected[at]);
        if (wrong >= 0) {
          throw new Error(
            `${words} on ${name}: ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}: element ${wrong} is ${got[wrong]}, not ${expected[wrong]}\n${printNest(nest)}`,
          );
        }
        ran++;
      }
    }
  }
  expect(ran).toBeGreaterThan(inFull(200, 40));
});

test("fused loops may overrun a padded copy of integers, but floats get windowed copies", () => {
  const random = seededRandom(3);
  const stem = "conv2d c=3 k=17 h=9 w=8 r=3 s=5 stride=2 pad=1 NHWC";
  const fusions = [
    ["s", "c"],
    ["r", "s", "c"],
    ["r", "c"],
    ["c", "r"],
  ];
  const opened: string[] = [];
  for (const name of ["avx512.vpdpbusd", "amx.tdpbusd", "avx512.vdpbf16ps", "amx.tdpbf16ps"]) {
    const intrinsic = rowNamed(name);
    const computation = operation(stem, intrinsic);
    const { bindings } = bindOperands(computation, intrinsic, false);
    const [binding] = bindings;
    if (!binding) throw new Error("no binding");
    const inputs = smallIntegers(computation, random);
    const expected = interpret(computation, inputs);
    for (const k of fusions) {
      const matching = { ...(name.startsWith("amx") ? { m: k.length > 2 ? ["p", "q"] : ["q"] } : {}), n: ["k"], k };
      const verdict = validate(defineProblem(computation, intrinsic, binding), matching, {
        rule: "gather",
        strict: false,
      });
      if (!verdict.ok) throw new Error(verdict.refusal.because);
      const choice = placementsOf(verdict.mapping).find((p) => p.operand === "a");
      opened.push(`${name} k <- ${k.join()}: ${choice?.open.join()}`);
      for (const a of choice?.open ?? []) {
        const drawn = randomSchedule(verdict.mapping, random);
        const schedule = { ...drawn, placement: { ...drawn.placement, a, b: "tiled" as const } };
        if (scheduleProblem(verdict.mapping, schedule) !== undefined) continue;
        const nest = lowerSchedule(verdict.mapping, schedule);
        expect(interpretNest(nest, computation, inputs, 2), `${opened.at(-1)} ${JSON.stringify(schedule)}`).toEqual(
          expected,
        );
      }
    }
  }
  expect(opened).toMatchInlineSnapshot(`
    [
      "avx512.vpdpbusd k <- s,c: padded,windowed,tiled",
      "avx512.vpdpbusd k <- r,s,c: windowed,tiled",
      "avx512.vpdpbusd k <- r,c: padded,windowed,tiled",
      "avx512.vpdpbusd k <- c,r: windowed,tiled",
      "amx.tdpbusd k <- s,c: padded,windowed,tiled",
      "amx.tdpbusd k <- r,s,c: windowed,tiled",
      "amx.tdpbusd k <- r,c: padded,windowed,tiled",
      "amx.tdpbusd k <- c,r: windowed,tiled",
      "avx512.vdpbf16ps k <- s,c: windowed,tiled",
      "avx512.vdpbf16ps k <- r,s,c: windowed,tiled",
      "avx512.vdpbf16ps k <- r,c: windowed,tiled",
      "avx512.vdpbf16ps k <- c,r: windowed,tiled",
      "amx.tdpbf16ps k <- s,c: windowed,tiled",
      "amx.tdpbf16ps k <- r,s,c: windowed,tiled",
      "amx.tdpbf16ps k <- r,c: windowed,tiled",
      "amx.tdpbf16ps k <- c,r: windowed,tiled",
    ]
  `);
});
