/**
 * @file Kernels of threads: every random schedule of every operator lowers to a nest that the interpreter finds free of races and equal to the
 * equation, and prints as CUDA that gives the same on the emulated device.
 */

import { describe, expect, it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { ThreadSchedule } from "../../abstraction/candidate.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { THREADS } from "../../intrinsics/cuda-threads.ts";
import { lowerThreads } from "../../mapper/lower/threads.ts";
import { gridLimits } from "../../mapper/schedule/grid-context.ts";
import { crossSchedules, drawSchedule, mutateSchedule, problemIn } from "../../mapper/schedule/schedules.ts";
import { type ThreadContext, threadContext } from "../../mapper/schedule/thread/context.ts";
import { dealtLoops, printThreadSchedule, productOf, THREAD_KIND } from "../../mapper/schedule/thread/schedule.ts";
import { threadCosts } from "../../perfmodel/threads.ts";
import { ADVERSE_ORDERS as DEVICE_ORDERS, runEmulated } from "../../runtime/emulated-kernel.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { inFull } from "../support/slow.ts";
import { inMemory, mappingsOnto, operation, smallIntegers, stated } from "../support/subjects.ts";

const TARGET = nvidiaTarget("h100");
const LIMITS = gridLimits(TARGET);
/** Schedules of each computation: interpreted, and printed. */
const DRAWN = inFull(40, 4);
const PRINTED = inFull(20, 1);
/** Products that a nest runs, padding included, that are interpreted. */
const MOST_WORK = 60_000;

const PIXELS = { epilogue: "y[n,k,p,q] = f16(out[n,k,p,q])" };

/** The fifteen operators of the suite, in sizes of which some divide and some do not. */
const COMPUTATIONS: readonly (readonly [string, Computation])[] = [
  ["gmv", operation("gmv m=20 k=64", "f16", { epilogue: "y[m] = f16(out[m])" })],
  ["gmm", operation("gmm m=12 n=8 k=16", "f16", { epilogue: "c[m,n] = f16(out[m,n])" })],
  ["c1d", operation("c1d n=1 c=4 l=11 k=6 r=3 pad=2 dilation=2", "f16", { epilogue: "y[n,k,p] = f16(out[n,k,p])" })],
  ["c2d", operation("c2d n=1 c=3 h=7 w=7 k=4 r=3 s=3 stride=2", "f16", PIXELS)],
  [
    "c3d",
    operation("c3d n=1 c=2 d=3 h=4 w=4 k=3 t=2 r=3 s=3", "f16", { epilogue: "y[n,k,o,p,q] = f16(out[n,k,o,p,q])" }),
  ],
  ["t2d", operation("t2d n=1 c=3 h=4 w=4 k=2 r=3 s=3 stride=2 pad=1", "f16", PIXELS)],
  ["grp", operation("grp n=1 c=8 h=5 w=8 k=8 r=1 s=1 pad=0 groups=2", "f16", PIXELS)],
  ["dil", operation("dil n=1 c=4 h=6 w=8 k=4 r=3 s=3 pad=2 dilation=2", "f16", PIXELS)],
  ["dep", operation("dep n=2 c=4 h=7 w=7 m=1 r=3 s=3", "f16", PIXELS)],
  [
    "cap",
    operation("cap n=1 c=2 h=4 w=4 k=3 r=3 s=3 caps=4", "f16", { epilogue: "y[n,k,p,q,u] = f16(out[n,k,p,q,u])" }),
  ],
  ["bcv", operation("bcv n=2 c=3 h=4 w=4 k=3 r=3 s=3", "f16", PIXELS)],
  ["gfc", operation("gfc n=4 i=8 o=24 groups=4", "f16", { epilogue: "y[n,o] = f16(out[n,o])" })],
  ["men", operation("men n=2 c=3 h=8 w=32", "f16", { epilogue: "y[c] = f16(out[c])" })],
  ["var", operation("var n=2 c=3 h=8 w=8", "f16", { epilogue: "y[c] = f16(out[c])" })],
  ["scn", operation("scn m=5 n=16", "f16", { epilogue: "y[i,j] = f16(out[i,j])" })],
  ["many terms, few sums", operation("men n=4 c=2 h=32 w=64", "bf16")],
  ["gmv f32", operation("gmv m=9 k=37")],
  ["half bytes", operation("matmul-4bit m=3 n=8 k=64 group=32")],
  [
    "half bytes in f16",
    stated(
      "y[m,n] += f32(x[m,2*b+h]) * f32((f16(select(h == 0, w[n,b] % 16, w[n,b] / 16)) - 8) * s[n]) --m 2 --n 6 --b 8 --h 2 --dtype x=f16,w=u8,s=f16",
    ),
  ],
  ["gmm s8", operation("gmm m=9 n=8 k=16", "s8")],
  [
    "triangle f16",
    stated(
      "c[i,j] += f32(a[i,k]) * f32(b[k,j]) where j <= i + 3 and k <= i; y[i,j] = f16(c[i,j] + 1) --i 9 --j 12 --k 16 --dtype f16",
    ),
  ],
  ["a packed triangle beside an input, f32", operation("interaction b=2 v=6 k=9")],
];

function contextOf(computation: Computation): ThreadContext {
  const [mapping] = THREADS.flatMap((intrinsic) => mappingsOnto(computation, intrinsic));
  if (!mapping) throw new Error(`${computation.name} has no instruction of one thread`);
  const context = threadContext(mapping, LIMITS);
  if (typeof context === "string") throw new Error(context);
  return context;
}

function workOf(context: ThreadContext, schedule: ThreadSchedule): number {
  return dealtLoops(context, schedule).reduce(
    (n, l) => n * l.lanes * l.warps * l.each * l.blocks * l.steps * l.split,
    1,
  );
}

describe("a kernel of threads", () => {
  for (const [name, computation] of COMPUTATIONS) {
    it(`is free of races and equals the equation: ${name}`, () => {
      const context = contextOf(computation);
      const random = seededRandom(5);
      const inputs = smallIntegers(computation, seededRandom(3), 2);
      const want = interpret(computation, inputs);
      let done = 0;
      let schedule = drawSchedule(THREAD_KIND, context, random);
      for (let tries = 0; done < DRAWN && tries < 50 * DRAWN; tries++) {
        const next = drawSchedule(THREAD_KIND, context, random);
        if (!schedule || !next) throw new Error("no schedule");
        schedule = mutateSchedule(
          THREAD_KIND,
          context,
          crossSchedules(THREAD_KIND, context, next, schedule, random),
          random,
        );
        if (workOf(context, schedule) > MOST_WORK) schedule = next;
        if (workOf(context, schedule) > MOST_WORK) continue;
        const nest = lowerThreads(context, schedule);
        const order = ADVERSE_ORDERS[done++ % ADVERSE_ORDERS.length] ?? {};
        const got = interpretNest(nest, computation, inputs, 1, order);
        expect([...got], `${printThreadSchedule(schedule)}\n${printNest(nest)}`).toEqual([...want]);
        expect(threadCosts(context, schedule, TARGET)?.bounds[0]).toBeGreaterThan(0);
      }
      expect(done).toBeGreaterThan(0);
    });
  }

  it("is predicted to wait for whole waves of blocks", () => {
    const context = contextOf(operation("gmm m=64 n=64 k=16", "f16"));
    const schedule = drawSchedule(THREAD_KIND, context, seededRandom(2));
    if (!schedule) throw new Error("no schedule");
    const blocks = productOf(dealtLoops(context, schedule), (l) => l.blocks * l.split);
    /** The same machine with so few processors that one has three blocks, of which it runs so many at once. */
    const latency = (resident: number): number => {
      const levels = TARGET.levels.map((l) =>
        l.name === "block" ? { ...l, units: Math.ceil(blocks / 3), resident } : l,
      );
      const terms = threadCosts(context, schedule, { ...TARGET, levels })?.terms ?? [];
      return terms.find(({ name }) => name === "latency")?.seconds ?? Number.NaN;
    };
    expect(Math.ceil(blocks / Math.ceil(blocks / 3))).toBe(3);
    expect([1, 2, 3].map((resident) => latency(resident) / latency(3))).toEqual([3, 2, 1]);
  });

  it("is predicted to wait where two warps of a block meet for a sum", () => {
    const context = contextOf(operation("gmv m=20 k=32", "f16"));
    const cyclesOf = (warps: number): number => {
      const schedule = { lanes: { k: 32 }, warps: { k: warps }, each: {}, split: 1 };
      const terms = threadCosts(context, schedule, TARGET)?.terms ?? [];
      return (
        (terms.find(({ name }) => name === "latency")?.seconds ?? Number.NaN) * (TARGET.clockHz?.value ?? Number.NaN)
      );
    };
    // The barrier alone takes longer.
    expect(cyclesOf(2) - cyclesOf(1)).toBeGreaterThan(60);
  });

  it(`equals the equation on the emulated device: ${PRINTED} of every operator`, async () => {
    const jobs = COMPUTATIONS.flatMap(([name, computation]) => {
      const context = contextOf(computation);
      const random = seededRandom(9);
      const inputs = smallIntegers(computation, seededRandom(4), 2);
      const want = [...interpret(computation, inputs)];
      return Array.from({ length: PRINTED }, (_, i) => {
        const schedule = drawSchedule(THREAD_KIND, context, random);
        if (!schedule) throw new Error("no schedule");
        const nest = lowerThreads(context, schedule);
        const kernel = generateCuda(computation, context.mapping.intrinsic, nest, { lines: [] });
        const order = DEVICE_ORDERS[i % DEVICE_ORDERS.length];
        return {
          want,
          name: `${name} ${printThreadSchedule(schedule)}`,
          job: { kernel, inputs: inMemory(computation, inputs), ...(order && { order }) },
        };
      });
    });
    const runs = await runEmulated(jobs.map(({ job }) => job));
    for (const [i, run] of runs.entries())
      expect(run.status === "ok" ? [...run.output] : run.log, jobs[i]?.name).toEqual(jobs[i]?.want);
  });

  it("makes numbers of half a byte of their bits, since conversions are slow", () => {
    const computation = operation("matmul-4bit m=1 n=8 k=64 group=32");
    const context = contextOf(computation);
    const nest = lowerThreads(context, { lanes: { n: 8, b: 4 }, warps: {}, each: { b: 4, h: 2 }, split: 1 });
    const { source } = generateCuda(computation, context.mapping.intrinsic, nest, { lines: [] });
    expect(source).toMatch(/\(float_of_bits\(0x4b000000u \| .*\) - 8388616\.0f\)/);
  });

  it("adds up parts that are no multiple of a warp, and refuses more than a GPU has memory for", async () => {
    const sums = (m: number, k: number): Computation =>
      stated(`y[m] += f32(a[m,k]) * f32(b[k]) --m ${m} --k ${k} --dtype f16`);
    const launches = [undefined, "early", "early"] as const;
    const jobs = [33, 48, 128].map((split, i) => {
      const computation = sums(3, 32 * split);
      const context = contextOf(computation);
      const schedule: ThreadSchedule = { lanes: { k: 32 }, warps: {}, each: {}, split, launch: launches[i] };
      expect(problemIn(THREAD_KIND, context, schedule)).toBeUndefined();
      const inputs = smallIntegers(computation, seededRandom(split), 2);
      const nest = lowerThreads(context, schedule);
      const want = [...interpret(computation, inputs)];
      expect([...interpretNest(nest, computation, inputs)]).toEqual(want);
      return {
        want,
        job: { kernel: generateCuda(computation, context.mapping.intrinsic, nest, { lines: [] }), inputs },
      };
    });
    const runs = await runEmulated(jobs.map(({ job }) => job));
    expect(runs.map((run) => (run.status === "ok" ? [...run.output] : run.log))).toEqual(jobs.map(({ want }) => want));
    const told = jobs.map(({ job }) => job.kernel.source.includes("launch_with(phase_1, 1, 1"));
    expect(told).toEqual([false, true, true]);
    const large = stated("y[m,n] += f32(a[m,k]) * f32(b[k,n]) --m 4096 --n 4096 --k 128 --dtype f16");
    const many: ThreadSchedule = { lanes: { n: 32 }, warps: {}, each: {}, split: 128 };
    expect(problemIn(THREAD_KIND, contextOf(large), many)).toMatch(/^parts of sums take 8589934592 bytes/);
    const whole: ThreadSchedule = { ...many, split: 1, launch: "early" };
    expect(problemIn(THREAD_KIND, contextOf(large), whole)).toBe("the call is one kernel, which awaits no other");
  });
});
