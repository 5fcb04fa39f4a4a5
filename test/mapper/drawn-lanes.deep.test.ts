/**
 * @file Random designs and schedules on lanes equal the equation: some of every kind that bench/judges/lane-judged.ts judges 20,000 of. And that what is
 * wrong would show: a loop that is not parallel, a kernel whose threads write what others read.
 */

import { describe, expect, it } from "vitest";
import { type DrawnKernel, type DrawnKind, wrongKernels, wrongNest } from "../support/drawn/drawn.ts";
import { DRAWN_KINDS, randomAt } from "../support/drawn/kinds.ts";
import { readNest } from "../support/nest-text.ts";
import { inFull } from "../support/slow.ts";
import { stated } from "../support/subjects.ts";

/** Of kinds that are compiled so many; of those that are interpreted so many times their share of a thousand. */
const COMPILED = inFull(100, 1);
const OF_SHARE = inFull(10, 0.06);

async function wrongOf(kind: DrawnKind, seed: number): Promise<readonly string[]> {
  const kernels: DrawnKernel[] = [];
  const wrong: string[] = [];
  let judged = 0;
  for (let place = 0; judged < kind.share * OF_SHARE && kernels.length < COMPILED; place++)
    for (const drawn of kind.draw(randomAt(kind, seed, place))) {
      if (drawn.status === "kernel") kernels.push(drawn);
      if (drawn.status !== "nest") continue;
      judged++;
      const problem = wrongNest(drawn);
      if (problem !== undefined) wrong.push(`${drawn.said}\n${problem}`);
    }
  const problems = await wrongKernels(kernels);
  return [...wrong, ...problems.flatMap((p, i) => (p === undefined ? [] : [`${kernels[i]?.said}\n${p}`]))];
}

describe("a random design on lanes", () => {
  it.each(DRAWN_KINDS.map((kind) => [kind.name, kind] as const))("equals the equation: %s", async (_, kind) => {
    expect(await wrongOf(kind, 14)).toEqual([]);
  });

  it("depends on its seed and its place alone, not on earlier draws", () => {
    const [kind] = DRAWN_KINDS;
    if (!kind) throw new Error("no kind");
    const said = (): unknown =>
      kind.draw(randomAt(kind, 3, 5)).map((d) => (d.status === "refused" ? d.because : d.said));
    expect(said()).toEqual(said());
  });

  it("is refused, not aborted, for sub-groups when lanes move several neighbours at once", () => {
    const kind = DRAWN_KINDS.find((k) => k.name.includes("OpenCL"));
    if (!kind) throw new Error("no kind");
    const reasons = Array.from({ length: 40 }, (_, place) => kind.draw(randomAt(kind, 1, place))).flatMap((all) =>
      all.flatMap((d) => (d.status === "refused" ? [d.because] : [])),
    );
    expect(reasons).toEqual(
      expect.arrayContaining([
        expect.stringMatching(/^window: .* moves neighbours at once, which only the threads of CUDA do$/),
      ]),
    );
  });

  it("is found wrong if a loop that carries a value is marked parallel", () => {
    const computation = stated("y[i] = y[i-1] + x[i] --i 6");
    const inputs = { x: [1, 2, 3, 4, 5, 6] };
    const wrong = (loop: string) =>
      wrongNest({
        computation,
        inputs,
        nest: () => readNest(`y[0] = x[0]\n${loop} i in 0..5\n  y[i+1] = y[i] + x[i+1]`),
      });
    expect(wrong("for")).toBeUndefined();
    expect(wrong("for parallel")).toMatch(/^reversed and twice: element 2 is NaN/);
  });
});
