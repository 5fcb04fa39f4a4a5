/** The lines that a block stores to, and those of a residual it adds, are fetched during its sums. */

import { describe, expect, it } from "vitest";
import { evaluateIndex } from "../abstraction/affine.ts";
import type { Schedule } from "../abstraction/candidate.ts";
import type { LoopNest, Statement } from "../abstraction/loop-nest.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { lowerSchedule } from "../mapper/lower/scheduled.ts";
import { mappingsOnto, stated } from "./support/subjects.ts";

const PER_LINE = 16;

function nestOf(m: number, schedule: Omit<Schedule, "placement" | "threads">): LoopNest {
  const computation = stated(
    `sum[m,n] += a[m,k] * b[k,n] --m ${m} --n 160 --k 24 --epilogue out[m,n] = max(sum[m,n] + beside[m,n], 0) --name residual --constant b`,
  );
  const [intrinsic] = intrinsicsNamed("avx512.fma.f32.broadcast");
  const mapping = intrinsic && mappingsOnto(computation, intrinsic)[0];
  if (!mapping) throw new Error("a product does not map");
  return lowerSchedule(mapping, { ...schedule, placement: { a: "in-place", b: "tiled" }, threads: 1 });
}

/** Lines that are stored to before they are fetched, and lines that are fetched, of each tensor. */
function linesOf(nest: LoopNest): { readonly late: number; readonly fetched: ReadonlySet<string> } {
  const fetched = new Set<string>();
  let late = 0;
  const run = (statements: readonly Statement[], at: Readonly<Record<string, number>>): void => {
    for (const s of statements) {
      if (s.kind === "loop")
        for (let i = 0; i < s.extent; i++) {
          const within = { ...at, [s.axis]: i };
          for (const { buffer, base } of s.ahead ?? [])
            fetched.add(`${buffer} ${Math.floor(evaluateIndex(base, within) / PER_LINE)}`);
          run(s.body, within);
        }
      if (s.kind !== "scalar" || s.equation.target.tensor !== "out") continue;
      const [row, column] = s.equation.target.index.map((e) => evaluateIndex(e, at));
      const line = Math.floor(((row ?? 0) * 160 + (column ?? 0)) / PER_LINE);
      if (!fetched.has(`out ${line}`) || !fetched.has(`beside ${line}`)) late++;
    }
  };
  run(nest.body, {});
  return { late, fetched };
}

describe("lines that a block stores to", () => {
  it.each([
    { block: { m: 8, n: 3 }, order: ["n", "m", "k"] },
    { block: { m: 6, n: 4, k: 2 }, order: ["m", "n", "k"] },
    { block: { m: 7, n: 2, k: 5 }, order: ["n/2", "m", "n", "k"] },
  ])("are fetched before, and no others: $order, $block", (schedule) => {
    const { late, fetched } = linesOf(nestOf(512, schedule));
    expect(late).toBe(0);
    expect(fetched.size).toBe((2 * 512 * 160) / PER_LINE);
  });

  it("are left alone where sums take several passes", () => {
    const { fetched } = linesOf(nestOf(512, { block: { m: 8, n: 3 }, order: ["k/8", "n", "m", "k"] }));
    expect(fetched.size).toBe(0);
  });

  it("are left alone where the output is small", () => {
    expect(linesOf(nestOf(64, { block: { m: 8, n: 3 }, order: ["n", "m", "k"] })).fetched.size).toBe(0);
  });
});
