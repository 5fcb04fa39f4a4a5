/**
 * @file GPU threads for computations without an instruction: equal to the equation, interpreted and on the emulated
 * device.
 */

import { afterAll, describe, expect, it } from "vitest";
import { type Candidate, canonicalJson } from "../../abstraction/candidate.ts";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import { UsageError } from "../../abstraction/error.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { candidate as parsed } from "../../db/parse.ts";
import { lowerThreads } from "../../mapper/lower/threads.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { sessionKindOf, usualKernel } from "../../session/kinds/kinds.ts";
import { threadsChoices } from "../../session/kinds/plain-threads.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { loopRowsFor } from "../../session/network/network.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { emulatedGpu } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { INDEXED_STEPS, NETWORK_STEPS } from "../support/network-steps.ts";
import { randomInputs } from "../support/random-computation.ts";
import { stated } from "../support/subjects.ts";

compileOnce();

const H100 = nvidiaTarget("h100");

/** Beside those: few elements, and halves of which 16 bytes are read at once. */
const MORE: readonly Computation[] = [
  stated("y[i] = 2 * x[i] + b[i] --i 5 --name five elements"),
  ...INDEXED_STEPS,
  stated("s[i] += x[i,j] --i 1 --j 6 --name one sum"),
  defineComputation({
    name: "windows of halves",
    equation: "t[n,c,p,q] max= f32(x[n,c,p*2+r-1,q*2+s-1])",
    epilogue: "y[n,c,p,q] = f16(t[n,c,p,q])",
    extents: { n: 1, c: 32, p: 5, q: 5, r: 3, s: 3 },
    tensors: { x: { dtype: "f16", shape: [1, 32, 9, 10], dims: ["n", "c", "h", "w"], storage: "((n*9+h)*10+w)*32+c" } },
  }),
  stated("y[i,j] = f16(max(f32(x[i,j]) + f32(b[i,j]), 0)) --i 7 --j 64 --dtype x=f16,b=f16 --name sum of halves"),
];

const runner = await emulatedGpu();
afterAll(() => runner.close());

describe("threads that divide an equation among them", () => {
  it.each([...new Set([...NETWORK_STEPS, ...MORE])].map((step) => [step.name, step] as const))(
    "are right: %s",
    (_, computation) => {
      const [{ context, schedule }] = threadsChoices(computation, H100);
      const inputs = randomInputs(seededRandom(5), computation);
      const expected = interpret(computation, inputs);
      const got = interpretNest(lowerThreads(context, schedule), computation, inputs);
      for (const [i, wanted] of expected.entries())
        if (!(Math.abs((got[i] ?? Number.NaN) - wanted) <= 1e-4 * Math.max(1, Math.abs(wanted))))
          expect(`element ${i} is ${got[i]}`).toBe(`element ${i} is ${wanted}`);
    },
  );

  it.each(MORE.map((step) => [step.name, step] as const))(
    "are right on the emulated device: %s",
    async (_, computation) => {
      const reference = runner.reference(computation, 3);
      const [measured] = await runner.measureTogether([usualKernel(computation, H100)], reference, {
        budgetSeconds: 0,
      });
      expect(measured?.status === "ok" ? "ok" : JSON.stringify(measured)).toBe("ok");
    },
  );

  it("are candidates of a search, each right on the emulated device and read back from its record", async () => {
    const windows = MORE.find(({ name }) => name === "windows of halves");
    if (!windows) throw new Error("no windows");
    const options = { machine: H100, threads: 1, seed: 1, intrinsics: loopRowsFor(H100) };
    const space = finished(sessionSpace(windows, options));
    if (isRefusals(space)) throw new Error(space[0]?.because);
    const all = [...space.all()];
    expect(all.length).toBeGreaterThan(16);
    expect(space.kernelOf(all[0] as Candidate).source).toBe(usualKernel(windows, H100).source);
    const tried = [...all.slice(0, 3), ...all.slice(-2)];
    for (const candidate of tried) {
      const read = parsed.parse(JSON.parse(canonicalJson(candidate)));
      expect(kernelFor(windows, read, H100).source).toBe(space.kernelOf(candidate).source);
      expect(sessionKindOf(read).predict(windows, read, { machine: H100 })?.seconds).toBe(
        space.predict(candidate)?.seconds,
      );
    }
    const kernels = tried.map((candidate) => space.kernelOf(candidate));
    const measured = await runner.measureTogether(kernels, runner.reference(windows, 3), { budgetSeconds: 0 });
    expect(measured.map(({ status }) => status)).toEqual(tried.map(() => "ok"));
  });

  it("read and write several f16 at once where a large tensor has them side by side", () => {
    const large = stated("y[i,j] = f16(max(f32(x[i,j]) + f32(b[i,j]), 0)) --i 4096 --j 4096 --dtype f16");
    expect(usualKernel(large, H100).call?.aligned).toEqual({ y: 16, x: 16, b: 16 });
  });

  it("refuse computations that they would get wrong, with the reason", () => {
    const refused = (equation: string) => (): unknown =>
      threadsChoices(defineComputation({ equation, extents: { i: 64, j: 3 }, tensors: { x: "s16" } }), H100);
    expect(refused("y[i] sat+= x[i,j]")).toThrow("a sum of it saturates once");
    expect(refused("y[i/2] += x[i,j]")).toThrow("several points of the kept loops join one element");
    expect(refused("y[i] = y[i-1] + x[i,0]")).toThrow(UsageError);
  });
});
