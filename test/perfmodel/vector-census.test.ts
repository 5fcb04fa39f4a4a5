/** @file The census of straight runs on vectors: what a compiler leaves of them, counted by hand. */

import { describe, expect, it } from "vitest";
import type { DesignSchedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, outputOf } from "../../abstraction/computation.ts";
import { type LoopNest, loop, type Statement } from "../../abstraction/loop-nest.ts";
import { parseEquation } from "../../abstraction/parse.ts";
import { finished } from "../../abstraction/steps.ts";
import { sumUnder, tapSums } from "../../mapper/schedule/window-decisions.ts";
import { placeArray } from "../../mapper/space-time/lane-array.ts";
import { lowerPlaced } from "../../mapper/space-time/lower-array.ts";
import { lowerWarpWindow } from "../../mapper/space-time/lower-window.ts";
import { placeWindow, WINDOW_DESIGNS } from "../../mapper/space-time/window.ts";
import { tooLongToWrite, vectorsWritten } from "../../mapper/space-time/written-length.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { type VectorCounts, type VectorRun, vectorRuns } from "../../perfmodel/vector-census.ts";
import { vectorSeconds } from "../../perfmodel/vectors.ts";
import { warpWork } from "../../perfmodel/warps.ts";
import { nativeTarget } from "../../targets/index.ts";
import { arraySpaceOf } from "../../tuner/array-candidates.ts";
import { recordedKernels } from "../support/recorded-trials.ts";
import { stated } from "../support/subjects.ts";

const LANES = 16;
/** Steps over channels, then columns, then rows of a window of (q,s,c,r). */
const STEPS = [
  [0, 0, 1, 0],
  [0, 0, 0, 1],
  [0, 1, 0, 0],
] as const;
const computation: Computation = stated("y[q] += x[q+s-1] * w[s] --q 160 --s 4 --shape x=400");

const set = (text: string): Statement => ({ kind: "scalar", equation: parseEquation(text) });
const lanes = (...texts: string[]): Statement => loop("lane", LANES, texts.map(set), "lanes");

/** Statements on lanes with semicolons between; behind `s 4: ` in each of four steps that are written out. */
function statement(text: string): Statement {
  const [, name = "", steps, inside = text] = /^(\w+) (\d+): (.*)$/.exec(text) ?? [];
  const body = lanes(...inside.split("; "));
  return steps === undefined ? body : loop(name, Number(steps), [body], "unrolled");
}

/** Five steps of `tile` around statements on lanes. */
function nestOf(body: readonly Statement[]): LoopNest {
  const file = (name: string, count: number) => ({ name, dtype: "f32" as const, lanes: LANES, count });
  return {
    scratch: [],
    registers: [],
    prepare: [],
    vectors: [file("X", 2), file("W", 1), file("S", 4)],
    body: [loop("tile", 5, body)],
  };
}

const START = "S[0,lane] = 0";
const STORE = "y[32*tile+lane] = S[0,lane]";
const THREADS = { lineBytes: 128, sectorBytes: 32, constants: new Set(["w"]), arrays: 2 };

/** How often each run is gone through, and its counts that are not 0. */
const told = (runs: readonly VectorRun[]): string[] =>
  runs.map(({ times, parallel, chain, carried, registers, ...counts }) => {
    const some = Object.entries(counts).filter(([, n]) => n !== 0);
    const waits = [chain, carried].map(({ operations, shifts }) => `${operations}+${shifts}`).join(", ");
    return `    ${times.toFixed(3)} times, ${parallel} parallel, chains ${waits}, ${registers} registers: ${JSON.stringify(Object.fromEntries(some))}`;
  });
const onVectors = (body: readonly Statement[], tensors = computation.tensors): string[] =>
  told(vectorRuns(nestOf(body), tensors));
/** Two arrays share each warp, and three steps of `block` are parallel. */
const onThreads = (body: readonly Statement[]): string[] =>
  told(
    vectorRuns(
      { ...nestOf([]), body: [loop("block", 3, nestOf(body).body, "parallel")] },
      computation.tensors,
      THREADS,
    ),
  );

/** Runs of a nest, one statement on lanes after another. */
const ON_VECTORS: Readonly<Record<string, readonly (readonly string[])[]>> = {
  "a filter has a load, a broadcast and a multiply-add for each tap, and one store": [
    [
      START,
      "s 4: X[0,lane] = x[16*tile+lane+s]; W[0,lane] = w[s]; S[0,lane] = S[0,lane] + X[0,lane] * W[0,lane]",
      STORE,
    ],
  ],
  "an element is loaded once, and an equal value computed once": [
    ["S[0,lane] = x[16*tile+lane] * w[0]; S[1,lane] = x[16*tile+lane] * w[0]; y[32*tile+lane] = S[0,lane] + S[1,lane]"],
  ],
  "what nothing uses does not count: loads of a product whose condition never holds, a register overwritten": [
    [START, "s 4: X[0,lane] = x[16*tile+lane+s]; S[0,lane] = S[0,lane] + select(s == 1, X[0,lane] * w[s], 0)", STORE],
  ],
  "quotients and remainders of steps that are written out are known, and of loops around whose steps are whole multiples":
    [
      ["s 4: S[s/2,lane] = x[16*tile+lane+2*(s/2)]; y[32*tile+16*(s/2)+lane] = S[s/2,lane]"],
      [`s 4: S[0,lane] = x[16*((4*tile+s)/2)+(4*tile+s)%2+lane]; ${STORE}`],
      [`S[0,lane] = x[16*((3*tile+1)/2)+lane]; ${STORE}`],
    ],
  "values move across lanes, and are waited for in a chain": [
    [`S[0,lane] = S[0,lane-1] + x[16*tile+lane] * w[0]; S[0,lane] = S[0,lane-1] + x[16*tile+lane+1] * w[1]; ${STORE}`],
  ],
  "reads; lanes that may leave the tensor are tested": [
    "x[16*tile+lane]",
    "x[2*lane]",
    "x[3*lane]",
    "x[tile]",
    "x[2*lane-1]",
    "select(lane == 15, x[tile], S[0,lane+1])",
    "select(tile-lane == 0, x[lane], S[0,lane])",
    "select(tile-2*lane < 0, x[lane], S[0,lane])",
  ].map((read) => [`S[0,lane] = ${read}; ${STORE}`]),
  writes: [
    "y[32*tile+2*lane] = S[0,lane]",
    "y[32*tile+lane] += S[0,lane]",
    "y[tile] += S[0,lane]",
    "y[32*tile+lane] = S[0,lane] where lane < 12",
    "y[32*tile+lane] = S[0,lane] where tile < 5",
    "y[32*tile+lane] = S[0,lane] where lane < 12 and tile > 4",
  ].map((write) => [write]),
};
const STORED = "y[16*block+lane] = S[0,lane]";
const ON_THREADS: Readonly<Record<string, readonly string[]>> = {
  "reads: both arrays of a warp read the same line, and a constant is an operand unless its place differs between warps":
    [
      "x[16*block+lane]",
      "x[16*tile+lane]",
      "x[64*block+4*lane]",
      "x[16*block+lane-1]",
      "select(tile-2*lane < 0, x[lane], 0)",
      "w[1]",
      "w[block]",
    ].map((read) => `S[0,lane] = ${read}; ${STORED}`),
  "an element under a test is loaded as often as it is used, since it may be jumped over": [
    `S[0,lane] = x[16*block+lane-1]; S[1,lane] = x[16*block+lane-1]; S[0,lane] += S[1,lane]; ${STORED}`,
    `S[0,lane] = x[16*block+lane]; S[1,lane] = x[16*block+lane]; S[0,lane] += S[1,lane]; ${STORED}`,
  ],
  "writes, one of them in the last of five steps": [
    "y[16*block+lane] += S[0,lane]",
    "y[block] += S[0,lane]",
    `${STORED} where lane < 12-block`,
    `${STORED} where tile == 4`,
  ],
};
/** Parts under a condition, and otherwise: how often each runs. */
const CONDITIONS = [
  "tile >= 3",
  "2*tile > 3",
  "3-tile <= 1",
  "tile == 4",
  "tile != 0",
  "tile < 9",
  "tile < 0",
  "tile >= 1 and tile < 4",
  "tile < 1 or tile >= 3",
];
/** Neighbouring columns of an image, and one column of another image, in layouts of which the last two have blocks of channels and of columns. */
const LAYOUTS = ["NHWC", "NCHW", "NCHW4c", "NWCH2w"];

function* censusText(): Generator<string> {
  for (const [title, nests] of Object.entries(ON_VECTORS)) {
    yield title;
    for (const texts of nests) yield* [`  ${texts.join("; ")}`, ...onVectors(texts.map(statement))];
  }
  for (const [title, nests] of Object.entries(ON_THREADS)) {
    yield `on the threads of a warp: ${title}`;
    for (const text of nests) yield* [`  ${text}`, ...onThreads([statement(text)])];
  }
  for (const condition of CONDITIONS) {
    const { where } = parseEquation(`y[0] = 0 where ${condition}`);
    if (!where) throw new Error("no condition");
    yield* [
      condition,
      ...onVectors([{ kind: "when", condition: where, body: [lanes(STORE)], otherwise: [lanes(STORE)] }]),
    ];
  }
  const columns =
    "S[0,lane] = x[0,1,0,16*tile+lane]; S[1,lane] = x[0,1,0,tile]; S[0,lane] += S[1,lane]; y[0,0,0,16*tile+lane] = S[0,lane]";
  for (const layout of LAYOUTS) {
    const image = stated(`y[n,c,h,w] = x[n,c,h,w] --n 1 --c 8 --h 1 --w 80 --layout x=${layout}`);
    yield* [layout, ...onVectors([statement(columns)], image.tensors)];
  }
  const bytes = stated("y[q] = x[q] --q 160 --dtype s8");
  yield* ["narrow elements", ...onVectors([statement(`S[0,lane] = x[16*tile+lane]; ${STORE}`)], bytes.tensors)];
  const prefetch = { kind: "access", tensor: "x", index: [{ kind: "number", value: 64 }] } as const;
  const ahead: Statement = { kind: "scalar", equation: parseEquation(STORE), prefetch };
  yield* [
    "a line fetched ahead",
    ...onVectors([loop("lane", LANES, [set("S[0,lane] = x[16*tile+lane]"), ahead], "lanes")]),
  ];
  const part = { kind: "loop", axis: "i", extent: 10, mode: "serial", body: [lanes(STORE)] } as const;
  const from = [{ kind: "number", value: 2 } as const];
  // `tile` is 2 on average, so that the range from 2 up to it is empty; without an end it has 8 steps.
  for (const to of [[], [{ kind: "axis", name: "tile" } as const]])
    yield* [`from 2, with ${to.length} ends`, ...onVectors([{ ...part, range: { from, to } }])];
  const together = (text: string): Statement => ({
    kind: "scalar",
    equation: parseEquation(text),
    together: { name: "n", extent: 4 },
  });
  const doubled = [0, 1, 2, 3].map((n) => set(`S[${n},lane] = S[${n},lane] + S[${n},lane]`));
  const four = [together("S[n,lane] = x[64*block+4*lane+n]"), ...doubled, together("y[4*lane+n] = S[n,lane]")];
  yield* [
    "four elements of a lane at once, each in its own register",
    ...onThreads([loop("lane", LANES, four, "lanes")]),
  ];
}

it("straight runs are counted as the golden file says, each by hand once", async () => {
  await expect(`${[...censusText()].join("\n")}\n`).toMatchFileSnapshot("../golden/vector-census.txt");
});

describe("the work of windows on warps", () => {
  const KERNELS = [
    ...recordedKernels("bench/trials/cuda-picked-lanes-h200.jsonl.gz", "warp-window").filter((_, i) => i % 40 === 0),
    ...recordedKernels("bench/trials/cuda-stencils-h100.jsonl.gz", "warp-window").filter(
      ({ schedule: s }, i) => s.dataflow === "FBS-shift" || (s.sweep === 16 && s.ahead === 4) || i % 96 === 0,
    ),
  ];

  it("is in a closed form what the census of their nests counts", () => {
    const ratios = KERNELS.flatMap(({ computation, schedule }) => {
      const context = tapSums(computation);
      if ("rule" in context) return [];
      const sum = sumUnder(context, schedule);
      const placed = placeWindow(WINDOW_DESIGNS[schedule.dataflow], schedule.lanes, sum.columns);
      if (!placed.ok) return [];
      const work = warpWork(sum, schedule, placed.placement);
      const blocks = Math.ceil(elementCount(outputOf(computation)) / work.outputs);
      const constant = Object.values(computation.tensors).filter((t) => t.constant);
      const constants = new Set(constant.map((t) => t.name));
      const threads = { lineBytes: 128, sectorBytes: 32, constants, arrays: 1 };
      const runs = vectorRuns(lowerWarpWindow(computation, schedule), computation.tensors, threads);
      const counted = (...names: readonly (keyof VectorCounts)[]): number =>
        runs.reduce((n, run) => names.reduce((m, name) => m + run.times * run[name], n), 0);
      return [
        (work.multiplyAdds * blocks) / counted("multiplyAdds", "arithmetic"),
        (work.loads * blocks) / counted("loads"),
        ...(work.shuffles > 0 ? [(work.shuffles * blocks) / counted("shifts")] : []),
      ];
    });
    expect(ratios.length).toBeGreaterThan(40);
    // Blocks at borders are whole ones in the nest.
    expect(Math.min(...ratios)).toBeGreaterThan(0.9);
    expect(Math.max(...ratios)).toBeLessThan(1.15);
    expect(ratios.toSorted((a, b) => a - b)[ratios.length >> 1]).toBeCloseTo(1, 2);
  });
});

describe("designs of a convolution at stride 2", () => {
  const parameters = { c: 3, h: 56, w: 56, k: 64, r: 7, s: 7, stride: 2, pad: 3 };
  const strided = instantiate(operatorNamed("conv2d"), { parameters, types: parseDataTypes("f32") });
  const space = finished(arraySpaceOf(strided, { threads: 1, target: modelTarget(nativeTarget()) }));
  if ("rule" in space) throw new Error(space.because);
  const found = (inputs: string): DesignSchedule => {
    const one = space.ranked.find(({ schedule }) => schedule.inputs === inputs && schedule.beside.k === 4);
    if (!one) throw new Error("no such design");
    return one.schedule;
  };

  it("are listed in the order of what their nests tell, where the estimate promises most", () => {
    const first: number[] = [];
    for (const schedule of space.all()) if (first.push(space.expectedSeconds(schedule)) === 32) break;
    expect(first).toEqual(first.toSorted((a, b) => a - b));
    expect(first[0]).toBeLessThan(space.expectedSeconds(found("passed")));
  });

  it("know that steps which stay a loop are shorter than those written out", () => {
    const sizeOf = (inputs: string): number => space.codeSize?.(found(inputs)) ?? 0;
    expect(sizeOf("passed")).toBeGreaterThan(0);
    expect(sizeOf("loaded")).toBeGreaterThan(10 * sizeOf("passed"));
  });
});

describe("a design of a convolution", () => {
  it("is expected to take twice as long with channels last, where neighbouring columns lie apart", () => {
    const target = modelTarget(nativeTarget());
    const parameters = { c: 32, h: 28, w: 28, k: 32, r: 3, s: 3, pad: 1 };
    const [first = 0, last = 0] = ["NCHW", "NHWC"].map((layouts) => {
      const image = instantiate(operatorNamed("conv2d"), { parameters, layouts, types: parseDataTypes("f32") });
      const transform = { loops: ["q", "s", "c", "r"], allocation: [1, 0, 0, 0], schedule: STEPS } as const;
      const schedule = { lanes: 16, transform, tile: { q: 16 }, beside: { k: 4, p: 2 }, inputs: "loaded" } as const;
      const placed = placeArray(image, schedule);
      if (!placed.ok) throw new Error(placed.refusal.because);
      const nest = lowerPlaced(image, placed.array, schedule.inputs);
      return vectorSeconds(nest, image, { target, threads: 1 });
    });
    expect(last).toBeGreaterThan(2 * first);
  });
});

describe("the length of a nest", () => {
  it("counts the statements on vectors of unrolled loops in each step", () => {
    const reading = (mode: "serial" | "unrolled"): LoopNest => nestOf([loop("t", 3, [lanes(START)], mode)]);
    expect([vectorsWritten(reading("serial").body), vectorsWritten(reading("unrolled").body)]).toEqual([1, 3]);
    expect(tooLongToWrite(reading("serial"))).toBeUndefined();
  });
});
