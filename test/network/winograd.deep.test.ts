/**
 * Convolutions by Winograd's transforms: equal to the convolution for integers, bit for bit, and proved within a
 * network.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { Computation } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { interpretNest } from "../../abstraction/interpret-nest.ts";
import { randomInteger, seededRandom } from "../../abstraction/random.ts";
import { TRANSFORM_NAMES } from "../../abstraction/winograd.ts";
import { lowerModeProducts, modeProductsOf } from "../../mapper/lower/mode-products.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { type Form, formsOf, inForms } from "../../network/forms.ts";
import { type Network, rootOf, type Step } from "../../network/network.ts";
import { multiplyAddsOf } from "../../network/tasks.ts";
import type { Value } from "../../network/value.ts";
import { winogradSteps } from "../../network/winograd.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import type { Compiler } from "../../runtime/compiler.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { formsIn, inBestForms } from "../../session/network/forms.ts";
import { networkSubject, openGraph } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { type TuneNetworkOptions, tuneNetwork } from "../../session/network/tune-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { nativeTarget } from "../../targets/index.ts";
import { compilerHere, runnerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { smallIntegers } from "../support/subjects.ts";

compileOnce();

let folder: string;
let compiler: Compiler;
beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "automap-winograd-"));
  compiler = await compilerHere();
});
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

interface Layer {
  readonly images?: number;
  readonly from?: number;
  readonly to?: number;
  readonly height?: number;
  readonly width?: number;
  readonly pad?: number;
  readonly stride?: number;
  readonly groups?: number;
}

/** A convolution with a bias, a residual and a rectifier, between two steps that lie channels last. Filters are multiples of 576. */
function layer({ images = 1, from = 16, to = 16, height = 7, width = 9, pad = 1, stride = 1, groups = 1 }: Layer = {}) {
  const random = seededRandom(5);
  const net = new GraphBuilder("layer");
  const x = net.node("Relu", [net.input("x", [images, from, height, width])]);
  const filters = Float32Array.from({ length: (to * from * 9) / groups }, () => 576 * randomInteger(random, -2, 2));
  const w = net.constant("w", [to, from / groups, 3, 3], filters);
  const bias = net.constant(
    "b",
    [to],
    Float32Array.from({ length: to }, (_, i) => i - 8),
  );
  const pads = [pad, pad, pad, pad];
  const out = net.node("Conv", [x, w, bias], { pads, strides: [stride, stride], group: groups });
  const [high, wide] = [height, width].map((size) => Math.floor((size + 2 * pad - 3) / stride) + 1) as [number, number];
  const added = net.node("Add", [out, net.input("e", [images, to, high, wide])]);
  const rectified = net.node("Relu", [added]);
  net.output(net.node("MaxPool", [rectified], { kernel_shape: [1, 1] }));
  return openGraph(net.graph).program;
}

function convolutionIn({ steps }: Network): Step {
  const found = steps.find(({ ops }) => ops[0] === "Conv");
  if (!found) throw new Error("no convolution");
  return found;
}

/** What the last step of a form gives. @param run of one step: the interpreter of its equation, or of a nest */
function computed(form: Form, given: Readonly<Record<string, Float64Array>>, run: typeof interpret): Float64Array {
  const made = new Map<Value, Float64Array>();
  let last: Float64Array = new Float64Array();
  for (const { computation, reads, output } of form) {
    const inputs = Object.fromEntries(
      Object.entries(reads).map(([tensor, value]) => {
        const known = made.get(rootOf(value)) ?? value.constant ?? given[tensor];
        if (!known) throw new Error(`${tensor} is not there`);
        return [tensor, Float64Array.from(known)] as const;
      }),
    );
    last = run(computation, inputs);
    made.set(output, last);
  }
  return last;
}

/** Where filters are polynomials, a row of G takes one at a place, or its last number; `scale` times. */
const PLACES = {
  winograd2: [
    [0, 1],
    [1, 1 / 2],
    [-1, 1 / 2],
    [Number.POSITIVE_INFINITY, 1],
  ],
  winograd4: [
    [0, 1 / 4],
    [1, -1 / 6],
    [-1, -1 / 6],
    [2, 1 / 24],
    [-2, 1 / 24],
    [Number.POSITIVE_INFINITY, 1],
  ],
} as const;

it.each(TRANSFORM_NAMES)("filters of %s equal values of polynomials within 2^-23", (name) => {
  const random = seededRandom(3);
  const step = convolutionIn(layer({ from: 17, to: 16 }));
  const [tensor, weights] = Object.entries(step.reads).find(([, v]) => v.constant && v.shape.length === 4) ?? [];
  if (!tensor || !weights?.constant) throw new Error("no filters");
  const drawnWeights = Float32Array.from(weights.constant, () => random() - 0.5);
  const reads = { ...step.reads, [tensor]: { ...weights, constant: drawnWeights } };
  const made = winogradSteps({ ...step, reads }, name)?.[1]?.reads["filters"]?.constant ?? [];
  const row = ([x, scale]: readonly [number, number], [a, b, c]: readonly [number, number, number]): number =>
    scale * (x === Number.POSITIVE_INFINITY ? c : a + b * x + c * x * x);
  const at = (k: number, c: number, r: number, s: number): number => drawnWeights[((k * 17 + c) * 3 + r) * 3 + s] ?? 0;
  const places = PLACES[name];
  expect(made).toHaveLength(places.length ** 2 * 17 * 16);
  let worst = 0;
  for (const [x, down] of places.entries())
    for (const [y, along] of places.entries())
      for (let c = 0; c < 17; c++)
        for (let k = 0; k < 16; k++) {
          const column = (s: number): number => row(down, [at(k, c, 0, s), at(k, c, 1, s), at(k, c, 2, s)]);
          const wanted = row(along, [column(0), column(1), column(2)]);
          const got = made[((x * places.length + y) * 17 + c) * 16 + k] ?? Number.NaN;
          worst = Math.max(worst, Math.abs(got - wanted) / Math.max(Math.abs(wanted), 1e-3));
        }
  expect(worst).toBeLessThan(2 ** -23);
});

const SHAPES: readonly Layer[] = [
  {},
  { images: 2, height: 8, width: 8, to: 20 },
  { pad: 0, height: 6, width: 11, from: 18 },
  { pad: 2, height: 3, width: 4 },
  { height: 4, width: 5, from: 96, to: 17 },
  // One window along one dimension or both, and less than one.
  { height: 4, width: 4 },
  { height: 2, width: 2, to: 18 },
  { images: 2, height: 3, width: 4 },
  { height: 1, width: 9 },
];

describe("a convolution in a Winograd form", () => {
  it.each(SHAPES.map((shape) => [JSON.stringify(shape), shape] as const))(
    "gives the same result for integers: %s",
    (_, shape) => {
      const step = convolutionIn(layer(shape));
      const [own, ...others] = formsOf(step);
      expect(others.map((form) => form.length)).toEqual([3, 3]);
      const inputs = smallIntegers(step.computation);
      const wanted = computed(own ?? [], inputs, interpret);
      expect(new Set(wanted).size).toBeGreaterThan(20);
      const byNests: typeof interpret = (computation, given) => {
        const products = modeProductsOf(computation);
        return products
          ? interpretNest(lowerModeProducts(computation, products).nest, computation, given)
          : interpret(computation, given);
      };
      for (const form of others) {
        expect(form.map(({ computation }) => modeProductsOf(computation) !== undefined)).toEqual([true, false, true]);
        expect(computed(form, inputs, interpret)).toEqual(wanted);
        expect(computed(form, inputs, byNests)).toEqual(wanted);
      }
    },
  );

  it("takes 16 products instead of 36, or 36 instead of 144", () => {
    const step = convolutionIn(layer({ height: 8, width: 8 }));
    const counts = formsOf(step).map((form) =>
      form.reduce((sum, { computation }) => sum + multiplyAddsOf(computation), 0),
    );
    expect(counts).toEqual([8 * 8 * 9 * 256, 16 * 16 * 256, 4 * 36 * 256]);
  });

  it("does not exist with strides, groups, few channels, or unknown filters", () => {
    for (const shape of [{ stride: 2 }, { groups: 2 }, { from: 8 }, { to: 15 }])
      expect(formsOf(convolutionIn(layer(shape)))).toHaveLength(1);
    const step = convolutionIn(layer());
    const reads = Object.fromEntries(
      Object.entries(step.reads).map(([name, { constant: _, ...value }]) => [name, value] as const),
    );
    expect(formsOf({ ...step, reads })).toHaveLength(1);
  });

  it.each([
    [1, {}],
    [2, {}],
    [1, { height: 2, width: 2 }],
    [2, { height: 4, width: 3 }],
  ] as const)("has kernels that write no element beyond the edge: form %d of %o", async (number, shape) => {
    const form = formsOf(convolutionIn(layer(shape)))[number] ?? [];
    const runner = await runnerHere();
    try {
      for (const { computation } of form) {
        if (multiplyAddsOf(computation) > 0) continue;
        const reference = await runner.reference(computation, 3);
        const kernel = usualKernel(computation, nativeTarget());
        const measured = await runner.measure(kernel, reference, { budgetSeconds: 0.01 });
        expect(measured.status === "ok" ? "ok" : JSON.stringify(measured)).toBe("ok");
      }
    } finally {
      await runner.close();
    }
  });

  it("is computed by loops without products of zero", () => {
    const [, , form] = formsOf(convolutionIn(layer()));
    const source = String(
      usualKernel(form?.[0]?.computation ?? convolutionIn(layer()).computation, nativeTarget()).source,
    );
    expect(source).toContain("half0");
    expect(source).not.toMatch(/[^.\d]0(?:\.0f?)? \*/);
  });
});

describe("a network with convolutions in other forms", () => {
  const inForm = (program: Network, number: number): Network =>
    inForms(program, (step) => formsOf(step)[number] ?? [step]);
  const emitted = (program: Network, name: string) => {
    const subject = networkSubject(program, new Map(), { name });
    const at = join(folder, name);
    writePackage(at, networkFiles(subject));
    return { at, parts: partsOfNetwork(subject) };
  };

  it.each([1, 2])("is proved step by step, and each form by the equation it replaces: form %d", async (number) => {
    const program = inForm(layer(), number);
    const { at, parts } = emitted(program, `form${number}`);
    expect(await proveNetwork(at, parts, compiler)).toEqual({ status: "right", steps: program.steps.length });
  });

  it("is found wrong where filters are transformed wrongly, though each step is right", async () => {
    const program = inForm(layer(), 2);
    for (const { reads } of program.steps) {
      const filters = reads["filters"]?.constant;
      if (filters) filters[7] = (filters[7] ?? 0) + 5;
    }
    const { at, parts } = emitted(program, "wrong");
    const proof = await proveNetwork(at, parts, compiler);
    expect(proof).toMatchObject({ status: "wrong", step: "conv1 (Conv Add Relu)" });
    expect(proof.status === "wrong" && proof.said).toContain("the equation that it is a form of gives");
  });
});

describe("the form chosen for a step", () => {
  const target = modelTarget(nativeTarget());
  const program = layer({ from: 64, to: 64, height: 28, width: 28 });
  const forms = formsIn(program);
  const chosen = (secondsOf: (computation: Computation) => number | undefined): number =>
    inBestForms(program, forms, { secondsOf, target }).steps.length - program.steps.length;
  const isProducts = (computation: Computation): boolean => computation.name === "products";

  it("is the step's own where the others are unknown or slower", () => {
    expect(chosen(() => undefined)).toBe(0);
    expect(chosen((computation) => (isProducts(computation) ? undefined : 1))).toBe(0);
    expect(chosen(() => 1e-3)).toBe(0);
  });

  it("is another where its products and its data movement take less time", () => {
    expect(chosen((computation) => (isProducts(computation) ? 1e-4 : 1))).toBe(2);
    expect(chosen((computation) => (isProducts(computation) ? 1e-4 : undefined))).toBe(2);
    expect(formsIn(program, true).size).toBe(0);
  });

  it("is searched first, and the equation itself only where that could be faster", async () => {
    const names: string[] = [];
    type Search = NonNullable<TuneNetworkOptions["search"]>;
    /** Searches that only say what they found. */
    const search =
      (seconds: number): Search =>
      ({ computation }) => {
        names.push(computation.name);
        const best = { measurement: { status: "ok", median: isProducts(computation) ? seconds : 1e-2 } };
        // Only the time of an outcome is used.
        return Promise.resolve({ status: "exhausted", computation, best } as unknown as Awaited<ReturnType<Search>>);
      };
    // Enough time, however long the model takes to rank kernels.
    const options = { seconds: 3600, equal: true, database: ":memory:" };
    const fast = await tuneNetwork(program, { ...options, search: search(1e-4) });
    expect(names).toEqual(["products"]);
    expect(fast.map(({ used, beaten }) => [used, beaten])).toEqual([
      [false, true],
      [true, false],
    ]);
    names.length = 0;
    const slow = await tuneNetwork(program, { ...options, search: search(1) });
    expect(names.map((name) => name === "products")).toEqual([true, false]);
    expect(slow.map(({ used, beaten }) => [used, beaten])).toEqual([
      [true, false],
      [false, false],
    ]);
    names.length = 0;
    await tuneNetwork(program, { ...options, search: search(1e-4), exact: true });
    expect(names).not.toContain("products");
  });

  it("is searched on while it may become the fastest", async () => {
    type Search = NonNullable<TuneNetworkOptions["search"]>;
    let searches = 0;
    const search: Search = ({ computation }) => {
      // The first kernels of the products are slower than those of the equation, the later ones faster.
      const median = isProducts(computation) ? (searches++ === 0 ? 2e-2 : 1e-3) : 1e-2;
      const best = { measurement: { status: "ok", median } };
      return Promise.resolve({ status: "time-spent", computation, best } as unknown as Awaited<ReturnType<Search>>);
    };
    const tasks = await tuneNetwork(program, { seconds: 600, database: ":memory:", search });
    const products = tasks.find(({ task }) => isProducts(task.computation));
    expect([products?.used, products?.seconds]).toEqual([true, 1e-3]);
  });
});
