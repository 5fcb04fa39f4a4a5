/** The lines that a block stores to, and those of a residual it adds, are fetched during its sums. */

import { describe, expect, it } from "vitest";
import { evaluateIndex } from "../../abstraction/affine.ts";
import type { Schedule } from "../../abstraction/candidate.ts";
import { type Computation, elementCount, outputOf } from "../../abstraction/computation.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import { lowerSchedule } from "../../mapper/lower/scheduled.ts";
import { mappingNamed, rowNamed, stated } from "../support/subjects.ts";

const PER_LINE = 16;

const product = (m: number, k = 24): Computation =>
  stated(
    `sum[m,n] += a[m,k] * b[k,n] --m ${m} --n 160 --k ${k} --epilogue out[m,n] = max(sum[m,n] + beside[m,n], 0) --name residual --constant b`,
  );
/** Its rows of 28 pixels lie in lines that begin anywhere; the innermost loop runs along more than one of them. */
const image = stated(
  "conv2d --c 64 --k 128 --h 28 --w 28 --r 1 --s 1 --pad 0 --epilogue res[n,k,p,q] = max(out[n,k,p,q] + beside[n,k,p,q], 0)",
);

const nestOf = (computation: Computation, schedule: Omit<Schedule, "placement" | "threads">): LoopNest =>
  lowerSchedule(
    mappingNamed(computation, rowNamed("avx512.fma.f32.broadcast"), computation === image ? "n <- k" : "n <- n"),
    {
      ...schedule,
      placement: { a: "in-place", b: "tiled" },
      threads: 1,
    },
  );

/** Lines that are stored to before they are fetched, lines that are fetched, of each tensor, and how often any is. */
function linesOf(
  computation: Computation,
  schedule: Omit<Schedule, "placement" | "threads">,
): { readonly late: number; readonly fetched: ReadonlySet<string>; readonly fetches: number } {
  const { name, dims } = outputOf(computation);
  const fetched = new Set<string>();
  let late = 0;
  let fetches = 0;
  const run = (statements: readonly Statement[], at: Readonly<Record<string, number>>): void => {
    for (const s of statements) {
      if (s.kind === "loop")
        for (let i = 0; i < s.extent; i++) {
          const within = { ...at, [s.axis]: i };
          fetches += s.ahead?.length ?? 0;
          for (const { buffer, base } of s.ahead ?? [])
            fetched.add(`${buffer} ${Math.floor(evaluateIndex(base, within) / PER_LINE)}`);
          run(s.body, within);
        }
      if (s.kind !== "scalar" || s.equation.target.tensor !== name) continue;
      const place = s.equation.target.index.reduce((n, e, d) => n * (dims[d]?.extent ?? 1) + evaluateIndex(e, at), 0);
      const line = Math.floor(place / PER_LINE);
      if (!fetched.has(`${name} ${line}`) || !fetched.has(`beside ${line}`)) late++;
    }
  };
  run(nestOf(computation, schedule).body, {});
  return { late, fetched, fetches };
}

describe("lines that a block stores to", () => {
  it.each([
    { of: product(512), block: { m: 8, n: 3 }, order: ["n", "m", "k"] },
    { of: product(512), block: { m: 6, n: 4, k: 2 }, order: ["m", "n", "k"] },
    { of: product(512), block: { m: 7, n: 2, k: 5 }, order: ["n/2", "m", "n", "k"] },
    { of: image, block: { q: 28 }, order: ["n", "k", "p", "q", "r", "s", "c"] },
  ])("are fetched before, and no others: $order, $block", ({ of, ...schedule }) => {
    const { late, fetched } = linesOf(of, schedule);
    // The last line of an image's row is fetched with the row behind it, whose first it is.
    if (of !== image) expect(late).toBe(0);
    expect(fetched.size).toBe((2 * elementCount(outputOf(of))) / PER_LINE);
  });

  it("are fetched once each where the sum has many more steps", () => {
    const { late, fetched, fetches } = linesOf(product(512, 96), { block: { m: 8, n: 3 }, order: ["n", "m", "k"] });
    expect(late).toBe(0);
    // The last block along n has one tile in place of three.
    expect(fetches / fetched.size).toBeLessThan(1.25);
  });

  it("are left alone where sums take several passes, and where the output is small", () => {
    expect(linesOf(product(512), { block: { m: 8, n: 3 }, order: ["k/8", "n", "m", "k"] }).fetched.size).toBe(0);
    expect(linesOf(product(64), { block: { m: 8, n: 3 }, order: ["n", "m", "k"] }).fetched.size).toBe(0);
  });
});
