/** @file Nests of blocks and warps as CUDA: golden text, and kernels run under emulation in adverse orders. */

import { describe, expect, it, vi } from "vitest";
import { type Computation, extentsOf } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { type Intrinsic, operandOf } from "../../abstraction/intrinsic.ts";
import type { LoopNest } from "../../abstraction/loop-nest.ts";
import { generateCuda } from "../../codegen/cuda/cuda.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { ADVERSE_ORDERS, runEmulated } from "../../runtime/emulated-kernel.ts";
import { type RingMatmulOptions, ringMatmul } from "../support/ring-matmul.ts";
import { inFull } from "../support/slow.ts";
import { rowNamed, smallIntegers } from "../support/subjects.ts";
import { type WarpMatmulOptions, warpMatmul } from "../support/warp-matmul.ts";

/** Compilers on a busy machine. */
vi.setConfig({ testTimeout: 120_000 });

interface Case {
  readonly computation: Computation;
  readonly intrinsic: Intrinsic;
  readonly nest: LoopNest;
}

/** For each case, in every adverse order: `right`, or what is wrong. */
async function outcomes(cases: readonly Case[], orders = ADVERSE_ORDERS): Promise<string[][]> {
  const jobs = cases.flatMap(({ computation, intrinsic, nest }) => {
    const kernel = generateCuda(computation, intrinsic, nest, { lines: [] });
    const inputs = smallIntegers(computation);
    return orders.map((order) => ({ kernel, inputs, order }));
  });
  const runs = await runEmulated(jobs);
  return cases.map(({ computation }, i) => {
    const want = interpret(computation, smallIntegers(computation));
    return orders.map((_, o) => {
      const run = runs[i * orders.length + o];
      if (run?.status !== "ok") return `${run?.status}: ${run?.log}`;
      const at = want.findIndex((value, e) => value !== run.output[e]);
      return at < 0 ? "right" : "wrong";
    });
  });
}
const right = ADVERSE_ORDERS.map(() => "right");

const mma = rowNamed("mma.m16n8k16.f32.f16");
const ring = (options: RingMatmulOptions): Case => ({ ...ringMatmul(options), intrinsic: mma });

describe("a matrix product on a ring in shared memory", () => {
  it("equals its golden file", async () => {
    const { computation, nest } = ringMatmul();
    const notes = {
      lines: ["mapping   m <- i   n <- j   k <- l", "schedule  tile m 32, n 16, k 16; warps m 2; stage 3"],
    };
    await expect(generateCuda(computation, mma, nest, notes).source).toMatchFileSnapshot(
      "../golden/matmul.mma.m16n8k16.cu",
    );
  });

  it("equals its equation in every order, however many stages it has", async () => {
    const cases = [2, 3, 4].flatMap((stages) => [
      ring({ stages }),
      ring({ stages, steps: 7 }),
      ring({ stages, steps: 1 }),
    ]);
    expect(await outcomes([...cases, ring({ transfer: "plain" })])).toEqual([...cases, 0].map(() => right));
  });

  it("differs in some order with one barrier, wait, commit or stage too few", async () => {
    const broken: Readonly<Record<string, RingMatmulOptions>> = {
      "no barrier": { without: "barrier" },
      "no wait": { without: "wait" },
      "no commit": { without: "commit" },
      "waits for a group too few": { pending: 2 },
      "overruns the ring": { ahead: 3 },
      "no barrier among plain copies": { without: "barrier", transfer: "plain" },
    };
    const seen = await outcomes(Object.values(broken).map(ring));
    const noticed = Object.keys(broken).filter((_, i) => seen[i]?.includes("wrong"));
    expect(noticed).toEqual(Object.keys(broken));
  });
});

/** Ways to fetch that an operand of an instruction has: 16-bit elements may turn on their way. */
function fetchesOf(intrinsic: Intrinsic, name: "a" | "b"): WarpMatmulOptions["a"][] {
  const { storage, dtype } = operandOf(intrinsic, name);
  if (storage === undefined) return ["instruction"];
  return ["elements", "ldmatrix", ...(bytesOf(dtype) === 2 ? (["ldmatrix.trans"] as const) : [])];
}

const MATRIX = INTRINSICS.filter((i) => i.family === "mma" || i.family === "wmma");

describe("a matrix product by every matrix instruction of a warp", () => {
  it("equals its equation, however tiles are fetched and stored, beyond the ends of tensors too", async () => {
    const cases = MATRIX.flatMap((intrinsic, i): Case[] => {
      const { m = 0, n = 0, k = 0 } = extentsOf(intrinsic.computation);
      const sum = operandOf(intrinsic, "c").dtype;
      const as = fetchesOf(intrinsic, "a");
      const bs = fetchesOf(intrinsic, "b");
      const ways = Array.from({ length: Math.max(as.length, bs.length) }, (_, way) => way);
      // Every instruction and every way in a short run, not every pair.
      return inFull(ways, [i % ways.length]).map((way): Case => {
        const secret = operandOf(intrinsic, "c").storage === undefined;
        const options: WarpMatmulOptions = {
          a: as[way % as.length] ?? "elements",
          b: bs[(way + i) % bs.length] ?? "elements",
          store: secret || way === 1 ? "staged" : "direct",
          ...(way === 0 && sum === "s32" && { epilogue: "u8" }),
          ...(way === 0 && sum === "f32" && { epilogue: i % 2 === 0 ? "f16" : "bf16" }),
        };
        const sizes = { i: 2 * m + 5, j: way === 2 ? n + 3 : 2 * n - 2, l: way === 1 ? 2 * k : 2 * k - 3 };
        return { ...warpMatmul(intrinsic, sizes, options), intrinsic };
      });
    });
    const seen = await outcomes(cases, ADVERSE_ORDERS.slice(0, 2));
    expect(
      cases.flatMap(({ intrinsic }, i) =>
        (seen[i] ?? []).flatMap((o) => (o === "right" ? [] : `${intrinsic.name}: ${o}`)),
      ),
    ).toEqual([]);
    expect(cases.length).toBeGreaterThanOrEqual(MATRIX.length);
  });
});
