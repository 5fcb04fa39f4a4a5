/** Steps of a network that kernels of Winograd's transforms compute: proved within the bound of that form, and wrong ones are found. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { WinogradSchedule } from "../../abstraction/candidate.ts";
import { spell, trustedCode } from "../../abstraction/source-text.ts";
import type { Network } from "../../network/network.ts";
import { type Task, tasksOf } from "../../network/tasks.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { type Choice, networkKernel, networkSubject, openGraph } from "../../session/network/network.ts";
import { proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { nativeTarget } from "../../targets/index.ts";
import { compilerHere } from "../support/here.ts";
import { compileOnce } from "../support/kept-compiler.ts";
import { onnx } from "../support/networks.ts";
import { expectProved } from "../support/proved-network.ts";

compileOnce();

const folder = mkdtempSync(join(tmpdir(), "automap-winograd-"));
afterAll(() => {
  rmSync(folder, { recursive: true, force: true });
});

const { isa } = nativeTarget();
const intrinsic = isa.includes("avx512f") ? "avx512.fma.f32.broadcast" : "avx2.fma.f32.broadcast";
const PLAIN: WinogradSchedule = { outputs: 4, images: 1, rows: 1, windows: 3, vectors: 1, threads: 1 };

/** The kernels of the convolutions of a network by Winograd's transforms, and plain loops for the rest. */
function choicesFor(program: Network, schedule: WinogradSchedule, changed = (source: string): string => source) {
  const convolutions = tasksOf(program).filter(({ operator }) => operator?.name === "conv2d");
  return new Map(
    convolutions.map((task): [Task, Choice] => {
      const made = kernelFor(task.computation, { kind: "winograd", intrinsic, schedule });
      const source = spell(trustedCode(changed(String(made.source))), "c++");
      return [task, { kind: "model", kernel: networkKernel({ ...made, source }), place: intrinsic, expected: 1 }];
    }),
  );
}

/** Convolutions with a bias, a residual and a rectifier: of two the filters differ, and two read the same. */
const LAYERS = `w = [16,16,3,3]{drawn}
a = Relu(Conv<pads=[1,1,1,1]>(x[2,16,7,9], w, [16]{drawn}))
b = Relu(Conv<pads=[1,1,1,1]>(a, [16,16,3,3]{1}, [16]{drawn}))
Relu(Add(Conv<pads=[1,1,1,1]>(b, w, [16]{drawn}), a))`;

/** A convolution of zeros, but for one corner of the image. */
const CORNER = `y = Mul(x[1,16,12,12], Pad<mode=constant>([1,1,2,2]{1}, s64{0,0,0,0,0,0,10,10}))
Conv<pads=[1,1,1,1]>(y, [17,16,3,3]{drawn})`;

describe.skipIf(!isa.includes("fma"))("a step by Winograd's transforms", () => {
  it.each([
    ["windows of 6 x 6", LAYERS, PLAIN],
    ["windows of 4 x 4, images of a block", LAYERS, { ...PLAIN, outputs: 2, images: 2, rows: 4 }],
    ["two threads", LAYERS, { ...PLAIN, threads: 2 }],
    ["two threads, all windows at once", LAYERS, { ...PLAIN, images: 2, rows: 2, threads: 2 }],
    ["sums of zeros beside large ones", CORNER, PLAIN],
  ] as const)("is proved: %s", async (name, text, schedule) => {
    const opened = openGraph(onnx(text));
    const { threads } = schedule;
    const parts = await expectProved(join(folder, name), opened, choicesFor(opened.program, schedule), { threads });
    expect(parts.kernels.filter(({ tuned }) => tuned?.ofForm)).not.toHaveLength(0);
  });

  it("writes its border in each call, so that steps with other borders use the same scratch", async () => {
    const opened = openGraph(
      onnx(`a = Relu(Conv<pads=[1,1,1,1]>(x[1,16,12,16], [32,16,3,3]{drawn}, [32]{drawn}))
b = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)
c = Relu(Conv<pads=[1,1,1,1]>(b, [16,32,3,3]{drawn}, [16]{drawn}))
Relu(Conv<pads=[2,2,2,2]>(c, [32,16,3,3]{drawn}, [32]{drawn}))`),
    );
    const { steps, memory } = await expectProved(
      join(folder, "borders"),
      opened,
      choicesFor(opened.program, { ...PLAIN, rows: 2 }),
    );
    const places = steps.flatMap((step) => step.places.slice(4));
    expect(places).toEqual(Array(3).fill({ kind: "arena", offset: 0 }));
    expect(memory.bytes).toBeLessThan(0.6 * memory.apart);
  });

  it("shares its transformed filters with the steps that read the same filters, and with no others", () => {
    const layers = ["x[1,16,7,9]", "a", "b", "c", "d"].map((read, i) => {
      const filters = i % 2 === 1 ? "w" : "[16,16,3,3]{drawn}";
      return `${"abcde"[i]} = Relu(Conv<pads=[1,1,1,1]>(${read}, ${filters}, [16]{${i}}))`;
    });
    const { program } = openGraph(onnx(["w = [16,16,3,3]{drawn}", ...layers, "return e"].join("\n")));
    const { steps } = partsOfNetwork(networkSubject(program, choicesFor(program, PLAIN)));
    expect(steps.map(({ workspace }) => workspace)).toEqual([0, 1, 2, 1, 4]);
  });

  it.each([
    ["a factor of a transform", "5.0f", "5.1f"],
    ["a channel left out", "c_outer < 16", "c_outer < 15"],
  ])("is found to be wrong: %s", async (name, right, wrong) => {
    const { program } = openGraph(onnx(LAYERS));
    const changed = (source: string): string => {
      expect(source).toContain(right);
      return source.replaceAll(right, wrong);
    };
    const subject = networkSubject(program, choicesFor(program, PLAIN, changed));
    writePackage(join(folder, name), networkFiles(subject));
    const proof = await proveNetwork(join(folder, name), partsOfNetwork(subject), await compilerHere());
    expect(proof).toMatchObject({ status: "wrong", said: expect.stringContaining("and its equation gives") });
  });
});
