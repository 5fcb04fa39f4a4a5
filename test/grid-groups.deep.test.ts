/**
 * @file Schedules of warpgroups: random ones lower to nests that the judge finds free of races in adverse orders, and print as kernels that
 * are right on the emulated device; nvcc takes the best of a large product without a warning, a spill or serialised instructions.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { NestFault } from "../abstraction/blocks/fault.ts";
import { ADVERSE_ORDERS } from "../abstraction/blocks/run.ts";
import type { GridSchedule } from "../abstraction/candidate.ts";
import { type Computation, inputsOf, outputOf } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import { interpretNest } from "../abstraction/interpret-nest.ts";
import type { Statement } from "../abstraction/loop-nest.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { pick, seededRandom } from "../abstraction/random.ts";
import { generateCuda } from "../codegen/cuda.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { lowerGrid } from "../mapper/lower/grid.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { GRID, gridProblem, printGridSchedule } from "../mapper/schedule/grid.ts";
import { type GridContext, gridContext, gridLimits } from "../mapper/schedule/grid-context.ts";
import { drawSchedule } from "../mapper/schedule/schedules.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { predictGrid } from "../perfmodel/grid.ts";
import { findProgram, runChild } from "../runtime/child.ts";
import { ADVERSE_ORDERS as EMULATED_ORDERS, runEmulated } from "../runtime/emulated-kernel.ts";
import { toMemory } from "../runtime/verify.ts";
import { nvidiaTarget } from "../targets/nvidia.ts";
import { smallIntegers } from "./support/grid-kernels.ts";
import { inFull } from "./support/slow.ts";

const TARGET = nvidiaTarget("h100");

function contextsOf(computation: Computation, names: readonly string[]): GridContext[] {
  return names.flatMap(intrinsicsNamed).flatMap((intrinsic) =>
    mappings(computation, intrinsic, { reasons: false }).valid.flatMap((mapping) => {
      const context = gridContext(mapping, gridLimits(TARGET));
      return typeof context === "string" ? [] : [context];
    }),
  );
}

const product = (m: number, n: number, k: number, types = "f16"): Computation =>
  instantiate(operatorNamed("matmul"), {
    parameters: { m, n, k },
    types: parseDataTypes(types),
    ...(types === "f16" && { epilogue: "c[m,n] = f16(out[m,n])" }),
  });

const CASES: readonly (readonly [string, Computation, readonly string[]])[] = [
  ["matmul f16", product(70, 64, 72), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n32k16.f32.f16"]],
  ["matmul f16, nothing divides", product(37, 19, 53), ["wgmma.m64n8k16.f32.f16", "wgmma.m64n24k16.f32.f16"]],
  ["matmul s8", product(64, 24, 64, "s8"), ["wgmma.m64n8k32.s32.s8"]],
  ["matmul tf32", product(40, 16, 24, "tf32"), ["wgmma.m64n8k8.f32.tf32"]],
  [
    "conv2d f16 NHWC",
    instantiate(operatorNamed("conv2d"), {
      parameters: { n: 1, c: 16, k: 64, h: 6, w: 6, r: 3, s: 3, pad: 1 },
      types: parseDataTypes("f16"),
      layouts: { in: "NHWC", w: "KRSC", y: "NPQK" },
      epilogue: "y[n,k,p,q] = f16(max(out[n,k,p,q], 0))",
    }),
    ["wgmma.m64n32k16.f32.f16", "wgmma.m64n8k16.f32.f16"],
  ],
];

const COUNT = inFull(200, 2);
/** Multiply-adds of a nest: what interpreting it costs. */
const MOST_WORK = 500_000;

function affordable(contexts: readonly GridContext[], random: () => number) {
  for (let tries = 0; tries < 500; tries++) {
    const context = pick(random, contexts);
    const schedule = drawSchedule(GRID, context, random);
    const { rows, columns, sum, outer, outerSums } = context;
    const work = [rows, columns, sum].reduce((n, { axis, elements }) => {
      const size = schedule?.tile[axis] ?? 1;
      return n * Math.ceil(elements / size) * size;
    }, 1);
    const loops = [...outer, ...outerSums].reduce((n, d) => n * d.extent, 1);
    if (schedule && work * loops <= MOST_WORK) return { context, schedule };
  }
  throw new Error("no small schedule");
}

describe("a schedule of warpgroups", () => {
  for (const [name, computation, rows] of CASES)
    it(`lowers ${name} to a nest and a kernel that equal the equation: ${COUNT} of all`, async () => {
      const random = seededRandom(name.length);
      const contexts = contextsOf(computation, rows);
      const inputs = smallIntegers(computation, random);
      const expected = interpret(computation, inputs);
      const made = Array.from({ length: COUNT }, (_, i) => {
        const { context, schedule } = affordable(contexts, random);
        const subject = `${context.intrinsic.name} ${printGridSchedule(schedule)}`;
        expect(gridProblem(context, schedule)).toBeUndefined();
        expect(predictGrid(context, schedule, TARGET)?.seconds).toBeGreaterThan(0);
        const nest = lowerGrid(context, schedule);
        const order = ADVERSE_ORDERS[i % ADVERSE_ORDERS.length] ?? {};
        expect([...interpretNest(nest, computation, inputs, 1, order)], subject).toEqual([...expected]);
        return { subject, kernel: generateCuda(computation, context.intrinsic, nest, { lines: [] }) };
      });
      const jobs = made.map(({ kernel }, i) => {
        const order = EMULATED_ORDERS[i % EMULATED_ORDERS.length];
        const memory = Object.fromEntries(
          inputsOf(computation).map((t) => [t.name, toMemory(t, inputs[t.name] ?? [], () => 0)]),
        );
        return { kernel, inputs: memory, ...(order && { order }) };
      });
      const right = [...toMemory(outputOf(computation), expected, () => 0)];
      for (const [i, run] of (await runEmulated(jobs)).entries())
        expect(run.status === "ok" ? [...run.output] : run.log, made[i]?.subject).toEqual(right);
    });

  const context = contextsOf(product(4096, 4096, 4096), ["wgmma.m64n256k16.f32.f16"])[0];
  const best: GridSchedule = {
    tile: { m: 128, n: 256, k: 64 },
    warps: { m: 2, n: 1 },
    stage: 4,
    swizzle: "spans",
    transfer: "async",
    order: 8,
    fragments: "across",
    store: "quads",
  };

  it("prints as this program", () => {
    if (!context) throw new Error("no context");
    expect(printNest(lowerGrid(context, best))).toMatchInlineSnapshot(`
      "shared a_ring: f16[stage 4, m 128, k 64] at stage*8192 + (m*64 + (8*(k/8 ^ m%8) + k%8))
      shared b_ring: f16[stage 4, k 64, n 256] at stage*16384 + (4096*(n/64) + (k*64 + (8*(n%64/8 ^ k%8) + n%8)))
      registers c: 1 x wgmma.m64n256k16.f32.f16.c
      for at block m_group in 0..4
        for at block n_tile in 0..16
          for at block m_tile in 0..8
            for at warpgroup m_warpgroup in 0..2
              for at warpgroup n_warpgroup in 0..1
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    c{m_fragment + n_fragment} <- identity
                copy m_in 128, k_in 64 by 8, async, by block   a_ring[0,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,k_in]
                copy k_in 64, n_in 256 by 8, async, by block   b_ring[0,k_in,n_in] = b[k_in,256*n_tile+n_in]
                commit
                copy m_in 128, k_in 64 by 8, async, by block   a_ring[1,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,64+k_in]
                copy k_in 64, n_in 256 by 8, async, by block   b_ring[1,k_in,n_in] = b[64+k_in,256*n_tile+n_in]
                commit
                for step in 0..64
                  wait 1
                  fence wgmma memory
                  barrier block
                  fence wgmma registers
                  for unrolled k_part in 0..4
                    for unrolled m_fragment in 0..1
                      for unrolled n_fragment in 0..1
                        c{m_fragment + n_fragment} <- wgmma.m64n256k16.f32.f16(a_ring[step%4,64*m_warpgroup+64*m_fragment+m_in,16*k_part+k_in] over m_in, k_in, b_ring[step%4,16*k_part+k_in,256*n_warpgroup+256*n_fragment+n_in] over k_in, n_in)
                  commit wgmma
                  copy m_in 128, k_in 64 by 8, async, by block where step+2 < 64   a_ring[(step+2)%4,m_in,k_in] = a[128*(8*m_group+m_tile)+m_in,64*(step+2)+k_in]
                  copy k_in 64, n_in 256 by 8, async, by block where step+2 < 64   b_ring[(step+2)%4,k_in,n_in] = b[64*(step+2)+k_in,256*n_tile+n_in]
                  commit
                  wait wgmma 1
                wait wgmma 0
                for unrolled m_fragment in 0..1
                  for unrolled n_fragment in 0..1
                    for m_in, n_in of c{m_fragment + n_fragment} by quads   c[128*(8*m_group+m_tile)+(64*m_warpgroup+64*m_fragment+m_in),256*n_tile+(256*n_warpgroup+256*n_fragment+n_in)] = f16(sum[])"
    `);
  });

  it("is refused with the reason where it does not fit", () => {
    if (!context) throw new Error("no context");
    const problem = (change: Partial<GridSchedule>) => gridProblem(context, { ...best, ...change });
    expect(problem({})).toBeUndefined();
    expect(problem({ stage: 2 })).toBe("products across steps need a third stage");
    expect(problem({ fragments: "ahead" })).toBe("wgmma.m64n256k16.f32.f16 has no fragments to be fetched ahead");
    expect(problem({ swizzle: "plain" })).toBe("wgmma.m64n256k16.f32.f16 reads rows cut in spans");
    expect(problem({ warps: { m: 1, n: 1 } })).toBe("296 registers a thread, it has 255");
  });

  const nvcc = findProgram("nvcc");
  it.skipIf(nvcc === undefined).each([
    ["quads", "async"],
    ["direct", "async"],
    ["quads", "engine"],
  ] as const)(
    "is compiled without serialised products, spills or a stack frame: store %s, transfer %s",
    async (store, transfer) => {
      if (!context) throw new Error("no context");
      const nest = lowerGrid(context, { ...best, store, transfer });
      const { source } = generateCuda(context.mapping.computation, context.intrinsic, nest, { lines: [] });
      const folder = mkdtempSync(join(tmpdir(), "automap-groups-"));
      try {
        writeFileSync(join(folder, "kernel.cu"), source);
        const flags = ["-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-Xptxas", "-v", "-c"];
        const run = await runChild(
          [nvcc ?? "nvcc", ...flags, join(folder, "kernel.cu"), "-o", join(folder, "kernel.o")],
          { timeLimitMs: 120_000 },
        );
        const said = `${run.stdout}${run.stderr}`;
        expect([run.status, ...(said.match(/.*(?:error|warning|C75\d\d).*/g) ?? [])]).toEqual(["ok"]);
        expect(said).toContain("0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads");
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
    120_000,
  );
});

describe.skipIf(findProgram("nvcc") === undefined)("a product of one step", () => {
  // The loop over steps goes, and a loop over the sums behind the wait would keep them in memory: 12 of 32 trials of a 1x1 layer.
  it.each(["across", "inline"] as const)(
    "is not serialised: fragments %s",
    async (fragments) => {
      const computation = product(4096, 128, 64);
      const [context] = contextsOf(computation, ["wgmma.m64n32k16.f32.f16"]);
      if (!context) throw new Error("no context");
      const schedule: GridSchedule = {
        tile: { m: 128, n: 64, k: 64 },
        warps: { m: 1, n: 2 },
        stage: 5,
        swizzle: "spans",
        transfer: "async",
        order: 1,
        fragments,
        store: "staged",
      };
      const { source } = generateCuda(computation, context.intrinsic, lowerGrid(context, schedule), { lines: [] });
      const folder = mkdtempSync(join(tmpdir(), "automap-step-"));
      try {
        writeFileSync(join(folder, "kernel.cu"), source);
        const flags = ["-std=c++17", "-O3", "-gencode=arch=compute_90a,code=sm_90a", "-cubin"];
        const files = [join(folder, "kernel.cu"), "-o", join(folder, "kernel.cubin")];
        const run = await runChild(["nvcc", ...flags, ...files], { timeLimitMs: 120_000 });
        expect([run.status, `${run.stdout}${run.stderr}`]).toEqual(["ok", ""]);
      } finally {
        rmSync(folder, { recursive: true });
      }
    },
    120_000,
  );
});

describe("boxes that the copy engine brings", () => {
  const computation = product(136, 72, 200);
  const context = contextsOf(computation, ["wgmma.m64n64k16.f32.f16"])[0];
  const schedule: GridSchedule = {
    tile: { m: 128, n: 128, k: 64 },
    warps: { m: 2, n: 1 },
    stage: 3,
    swizzle: "spans",
    transfer: "engine",
    order: 1,
    fragments: "across",
    store: "quads",
  };
  const random = seededRandom(2);
  const inputs = smallIntegers(computation, random);
  const expected = interpret(computation, inputs);
  const nest = context && lowerGrid(context, schedule);

  /** The nest without the statements of a kind, in what each order makes of it. */
  const without = (leave: (s: Statement) => boolean): string[] => {
    if (!nest) throw new Error("no nest");
    const left = (all: readonly Statement[]): Statement[] =>
      all.filter((s) => !leave(s)).map((s) => (s.kind === "loop" ? { ...s, body: left(s.body) } : s));
    const changed = { ...nest, body: left(nest.body) };
    return ADVERSE_ORDERS.slice(0, 2).map((order) => {
      try {
        const got = interpretNest(changed, computation, inputs, 1, order);
        return got.every((v, i) => v === expected[i]) ? "right" : "wrong";
      } catch (error) {
        if (!(error instanceof NestFault)) throw error;
        const lines = error.message.split("\n").map((l) => l.trim());
        return [lines[0], ...lines.filter((l) => l.startsWith("missing"))].join("; ");
      }
    });
  };

  it("are there for threads that await them, and for the instruction that reads shared memory itself", () => {
    expect(without(() => false)).toEqual(["right", "right"]);
  });

  it("are not there for threads that do not await them", () => {
    expect(without((s) => s.kind === "await")[0]).toMatch(
      /^a_ring\[stage 0, m 0, k 0\] is read before what writes it has ended; missing: a wait for the stage/,
    );
  });

  it("are not requested again before all threads have awaited their last use", () => {
    expect(without((s) => s.kind === "barrier" && s.group === "block").join("; ")).toMatch(
      /has not awaited its last use: missing: a barrier of the block|overwritten while another thread may still read it/,
    );
  });

  it("never come when no thread requests them, which is a deadlock", () => {
    expect(without((s) => s.kind === "send")[0]).toMatch(/^the warpgroups of a block do not come to the same barrier/);
  });

  it("are right on the emulated device in every order", async () => {
    if (!context || !nest) throw new Error("no context");
    const kernel = generateCuda(computation, context.intrinsic, nest, { lines: [] });
    const runs = await runEmulated(EMULATED_ORDERS.slice(0, 4).map((order) => ({ kernel, inputs, order })));
    for (const run of runs) expect(run.status === "ok" ? [...run.output] : run.log).toEqual([...expected]);
  });
});
