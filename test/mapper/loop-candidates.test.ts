/** @file Plain loops as candidates of a search, and what lanes leave to them. */

import { describe, expect, it } from "vitest";
import { type Computation, defineComputation } from "../../abstraction/computation.ts";
import type { DType } from "../../abstraction/dtype.ts";
import { UsageError } from "../../abstraction/error.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Target } from "../../abstraction/machine.ts";
import { printNest } from "../../abstraction/print-nest.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { readComputation } from "../../cli/subject.ts";
import { LOOPS } from "../../intrinsics/loops.ts";
import { THREAD } from "../../intrinsics/thread.ts";
import { lowerLoops } from "../../mapper/lower/loops.ts";
import { vectorProblem } from "../../mapper/space-time/lane-values.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { isRefusals } from "../../session/kinds/session-space.ts";
import { sessionSpace } from "../../session/kinds/space.ts";
import { nativeTarget, nvidiaTarget } from "../../targets/index.ts";
import { randomInputs } from "../support/random-computation.ts";

const H100 = nvidiaTarget("h100");
const AVX2 = { ...nativeTarget(), isa: ["avx2", "fma"] };

const EXTENTS = { i: 33, j: 17, k: 5 };
const of = (equation: string, tensors: Readonly<Record<string, DType>>, epilogue?: string): Computation =>
  defineComputation({
    name: "case",
    equation,
    extents: Object.fromEntries(Object.entries(EXTENTS).filter(([name]) => new RegExp(`\\b${name}\\b`).test(equation))),
    tensors,
    ...(epilogue !== undefined && { epilogue }),
  });

const spaceOf = (computation: Computation, isa: readonly string[] = AVX2.isa) => {
  const machine = { ...AVX2, isa };
  return finished(chooseSpace(computation, usableIntrinsics(machine), { machine, threads: 1, seed: 1 }));
};
const lanesOf = (computation: Computation) =>
  finished(
    sessionSpace(computation, {
      intrinsics: usableIntrinsics(AVX2),
      machine: AVX2,
      kinds: "lanes",
      threads: 1,
      seed: 1,
    }),
  );
const kindsOf = (computation: Computation, isa?: readonly string[]): string | undefined => {
  const found = spaceOf(computation, isa);
  if ("refused" in found) return found.refused.at(-1)?.because;
  const random = seededRandom(1);
  const all = Array.from({ length: 12 }, () => found.space.random(random));
  return [...new Set(all.map((c) => `${c.kind ?? "mapping"} ${c.intrinsic}`))].sort().join(", ");
};

describe("whole vectors", () => {
  it.each([
    ["a function", of("s[i] += x[i,k]", { x: "f32" }, "r[i] = sqrt(s[i])"), "sqrt has no instruction on lanes"],
    ["a type", of("s[i] += x[i,k] * y[k]", { x: "u32", y: "u32" }), "lanes hold no u32"],
    ["a conversion", of("s[i] += f64(x[i,k])", { x: "s32" }), "lanes do not convert s32 to f64"],
    ["a division", of("s[i] += x[i,k] / y[k]", { x: "s32", y: "s32" }), "lanes have no integer division"],
  ])("refuse %s that they have no instruction for", (_, computation, because) => {
    expect(vectorProblem(computation)?.because).toContain(because);
  });

  it("compute sums, maxima and products of one type", () => {
    expect(vectorProblem(of("s[i] max= abs(x[i,k] - y[k])", { x: "f32", y: "f32" }))).toBeUndefined();
    expect(vectorProblem(of("s[i] += f32(x[i,k]) * f32(y[k])", { x: "bf16", y: "s8" }))).toBeUndefined();
  });

  it.each([
    ["a sum of elements", "s[i] += x[i+k]", undefined],
    ["a sum of elements far apart", "s[i] += x[i,j]", undefined],
    ["a maximum of sums", "s[i] max= x[i+k] + y[k]", undefined],
    ["a sum of products", "s[i] += x[i+k] * y[k]", "vfmadd132ps"],
  ])("promise a multiply-add where one is in the nest: %s", (_, equation, promised) => {
    const computation = of(equation, equation.includes("y[") ? { x: "f32", y: "f32" } : { x: "f32" });
    const space = lanesOf(computation);
    if (isRefusals(space)) throw new Error(space[0]?.because);
    const random = seededRandom(1);
    const drawn = Array.from({ length: 3 }, () => space.kernelOf(space.random(random)).promises);
    expect(new Set(drawn)).toEqual(new Set([promised]));
  });
});

describe("plain loops", () => {
  it("join lanes where no instruction maps, and the rows that only add; they stand alone where nothing maps", () => {
    expect(kindsOf(of("s[i] += x[i,j]", { x: "f32" }))).toMatch(/^design avx2.fma.f32, loops loops, loops loops.avx2$/);
    expect(kindsOf(of("s[i] += x[i,j]", { x: "f32" }, "r[i] = exp(s[i])"))).toMatch(/loops loops, .*mapping portable/);
    expect(kindsOf(of("s[] += square(x[i])", { x: "f32" }))).toBe("loops loops, loops loops.avx2");
    expect(kindsOf(of("s[i] = 0.75*s[i-1] + x[i]", { x: "f32", s: "f32" }))).toBe("loops loops, loops loops.avx2");
    expect(kindsOf(of("s[i] = 0.75*s[i-1] + x[i]", { x: "f32", s: "f32" }), [])).toBe("loops loops");
  });

  it("are alone in a search to which nothing else is offered, also where lanes would compute it", () => {
    const filter = readComputation("conv1d-single", { l: 500, r: 5 }, {});
    const kindsOn = (machine: Target, intrinsics: readonly Intrinsic[]): string => {
      const space = finished(sessionSpace(filter, { intrinsics, machine, threads: 1, seed: 1 }));
      if (isRefusals(space)) throw new Error(space[0]?.because);
      const random = seededRandom(1);
      return [...new Set(Array.from({ length: 20 }, () => space.random(random).kind))].sort().join(" ");
    };
    expect(kindsOn(AVX2, LOOPS)).toBe("loops");
    expect(kindsOn(AVX2, usableIntrinsics(AVX2))).toContain("window");
    expect(kindsOn(H100, [THREAD])).toBe("warp-loops");
    expect(kindsOn(H100, usableIntrinsics(H100))).toContain("warp-window");
  });

  it("leave products to instructions", () => {
    expect(kindsOf(of("s[i,j] += x[i,k] * y[k,j]", { x: "f32", y: "f32" }))).not.toContain("loops");
  });

  it("are refused with a reason where they would be wrong", () => {
    expect(kindsOf(of("s[] sat+= x[i]", { x: "s16" }))).toBe(
      "no plain loops: a sum of it saturates once, after all points",
    );
  });

  it("are no design on lanes", () => {
    expect(isRefusals(lanesOf(of("s[] += x[i]", { x: "f32" })))).toBe(true);
  });

  it.each([
    ["s[i,j] = 2*s[i,j-1] + x[i,j]"],
    ["s[i,j] = max(s[i-1,j-1], x[i,j], s[i,j-1])"],
    ["s[i,j] max= select(i == 0, x[j,k], s[i-1,k] + x[j,k])"],
    ["s[i+1,j] = s[i,j] + x[i,j]"],
    ["s[i,j] = s[i-1,j] + x[i,j] where j != 3"],
  ])("compute elements in the order in which they are made: %s", (equation) => {
    const spec = { name: "case", equation, extents: { i: 6, j: 5, k: 5 }, tensors: { s: "s32", x: "s32" } } as const;
    const extents = equation.includes("k") ? spec.extents : { i: 6, j: 5 };
    const computation = defineComputation({ ...spec, extents });
    const { nest } = lowerLoops(computation);
    const inputs = randomInputs(seededRandom(1), computation);
    expect(interpretNest(nest, computation, inputs)).toEqual(interpret(computation, inputs));
  });

  it("deal the loops that no dependence crosses to threads", () => {
    const { nest } = lowerLoops(of("s[i,j] = 2*s[i,j-1] + x[i,j]", { s: "f32", x: "f32" }));
    expect(printNest(nest)).toMatchInlineSnapshot(`
      "for parallel rest in 0..33
        for j in 0..17
          s[rest,j] = 2 * s[rest,j-1] + x[rest,j]"
    `);
  });
});

describe("a table that an index reads", () => {
  const read = (shape?: string) =>
    readComputation("y[i,j] = table[wrap(ids[i]),j]", { i: 4, j: 16 }, { dtype: "ids=s32", ...(shape && { shape }) });

  it("has its shape from the command line", () => {
    expect(read("table=1000x16").tensors["table"]?.dims.map((d) => d.extent)).toEqual([1000, 16]);
    expect(kindsOf(read("table=1000x16"))).toContain("loops loops");
  });

  it.each([
    [undefined, "--shape table=1000x16"],
    ["table=1000", "shape of rank 1"],
    ["table=ax16", "is no list of sizes"],
    ["tabel=1000x16", 'has no tensor "tabel"'],
    ["y=4x16", "its shape follows from its axes"],
  ])("is refused with the shape %s", (shape, because) => {
    let said = "";
    try {
      read(shape);
    } catch (error) {
      if (!(error instanceof UsageError)) throw error;
      said = `${error.message} ${error.hint ?? ""}`;
    }
    expect(said).toContain(because);
  });
});
