/** Generated C++: golden sources, and every kernel compiled, run and compared element by element. */
import { afterAll, describe, expect, it } from "vitest";
import { printMatching } from "../../abstraction/mapping.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { randomSchedule } from "../../mapper/schedule/mapped.ts";
import { nativeTarget } from "../../targets/index.ts";
import { runnerHere } from "../support/here.ts";
import { inFull } from "../support/slow.ts";
import { emulatedX86, sourceOf } from "../support/source.ts";
import { mappedKernel, mappingNamed, mappingsOnto, operation, rowNamed } from "../support/subjects.ts";

const QUICK = { budgetSeconds: 0.002, batchSeconds: 1e-5, batches: [1, 2] as const };

const runner = await runnerHere({ threads: 1, flags: inFull([], ["-O1"]) });
afterAll(() => runner.close());

describe("the C++ of a convolution", () => {
  const small = "conv2d c=8 k=32 h=6 w=6 r=3 s=3 NHWC";
  const cases = [
    { name: "avx512.vpdpbusd", matching: "n <- k; k <- c", block: { k: 2, q: 3 } },
    { name: "avx512.fma.f32.broadcast", matching: "n <- k", block: { k: 2, q: 4 } },
    { name: "amx.tdpbusd", matching: "m <- q; n <- k; k <- c", block: { k: 2 } },
    { name: "arm.fmla.f32.lane", matching: "n <- k; k <- c", block: { k: 2, q: 3 } },
  ];
  it.each(cases)("on $name equals its golden file", async ({ name, matching, block }) => {
    const on = rowNamed(name);
    const mapping = mappingNamed(operation(small, on), on, matching);
    const schedule = {
      order: ["n", "k", "p", "q", "r", "s", "c"],
      block,
      placement: { a: "padded", b: "tiled" } as const,
      threads: 1,
    };
    const { source } = mappedKernel(mapping, schedule);
    await expect(source.replace(/automap \d+\.\d+\.\d+/, "automap")).toMatchFileSnapshot(
      `../golden/conv2d.${name}.cpp`,
    );
  });
});

const CONFORMANCE = [
  "conv2d c=6 k=18 h=7 w=5 r=3 s=3 stride=2 pad=1 NHWC",
  "conv2d c=4 k=16 h=5 w=6 r=3 s=3 dilation=2 pad=2 NCHW",
  "matmul m=7 n=33 k=19",
  "depthwise-conv2d c=19 h=6 w=5 m=1 r=3 s=3 NHWC",
  "transposed-conv2d c=4 k=5 h=3 w=4 r=3 s=3 stride=2 pad=1 NCHW",
  "variance n=1 c=5 h=3 w=4",
];
const ON = [
  "avx2.fma.f32.broadcast",
  "avx512.fma.f32.broadcast",
  "avx512.fma.f32",
  "avx512.vpdpbusd",
  "avx512.vpdpbusd.lanes",
  "avx512.vdpbf16ps",
  "amx.tdpbusd",
  "amx.tdpbf16ps",
];

describe("kernels, compiled and run, equal their equations", () => {
  it.each([2, 3, 6])("with blocks of %i columns, which are turned in registers where they are stored", async (q) => {
    const on = rowNamed("avx512.vpdpbusd");
    const computation = operation("conv2d c=8 k=32 h=6 w=13 r=3 s=3 NCHW", on);
    const mapping = mappingNamed(computation, on, "n <- k; k <- c");
    const schedule = {
      order: ["n", "k", "p", "q", "r", "s", "c"],
      block: { k: 2, q },
      threads: 1,
      placement: { a: "padded", b: "tiled" } as const,
    };
    const kernel = mappedKernel(mapping, schedule);
    expect(kernel.source).toMatch(new RegExp(`turn_rows\\(out .*, ${q}, 16\\);`));
    const measured = await runner.measure(
      nativeTarget().isa.includes(on.isa) ? kernel : emulatedX86(kernel, on),
      await runner.reference(computation, 3),
      QUICK,
    );
    expect(measured).toMatchObject({ status: "ok" });
  });

  it.each(ON)("on %s, by the CPU or under emulation", async (name) => {
    const on = rowNamed(name);
    // Every instruction and every operator in a short run, not every pair.
    const most = inFull(CONFORMANCE.length, 2);
    const rows = CONFORMANCE.map((_, i) => CONFORMANCE[(i + ON.indexOf(name)) % CONFORMANCE.length]);
    const here = nativeTarget().isa.includes(on.isa);
    const random = seededRandom(11);
    const ran: Promise<string | undefined>[] = [];
    for (const row of rows) {
      if (!row || ran.length >= most) break;
      const computation = operation(row, on);
      const valid = mappingsOnto(computation, on);
      const mapping = valid[Math.floor(random() * valid.length)];
      if (!mapping) continue;
      const schedule = randomSchedule(mapping, random);
      const kernel = mappedKernel(mapping, schedule);
      ran.push(
        runner.reference(computation, 3).then(async (reference) => {
          const measured = await runner.measure(here ? kernel : emulatedX86(kernel, on), reference, QUICK);
          if (measured.status === "ok") return undefined;
          return `${row} ${printMatching(mapping.matching)} ${JSON.stringify(schedule)}: ${measured.status} ${measured.log}`;
        }),
      );
    }
    expect(ran.length).toBeGreaterThan(0);
    expect((await Promise.all(ran)).filter((problem) => problem !== undefined)).toEqual([]);
  });

  it("except kernels with one wrong address, which are caught", async () => {
    const on = rowNamed("avx512.vpdpbusd");
    const computation = operation("conv2d c=8 k=32 h=6 w=6 r=3 s=3 NHWC", on);
    const mapping = mappingNamed(computation, on, "n <- k; k <- c");
    const schedule = {
      order: ["n", "k", "p", "q", "r", "s", "c"],
      block: { k: 2, q: 3 },
      placement: { a: "padded", b: "tiled" } as const,
      threads: 1,
    };
    const made = mappedKernel(mapping, schedule);
    const right = nativeTarget().isa.includes(on.isa) ? made : emulatedX86(made, on);
    const reference = await runner.reference(computation, 3);
    expect((await runner.measure(right, reference, QUICK)).status).toBe("ok");
    // One accumulator reads its neighbour's pixel.
    const line = right.source.split("\n").find((l) => l.includes("a0 = ")) ?? "";
    const wrong = {
      ...right,
      source: sourceOf(right.source.replace(line, line.replace("+ (s_outer", "+ 8 + (s_outer"))),
    };
    expect(wrong.source).not.toBe(right.source);
    expect((await runner.measure(wrong, reference, QUICK)).status).toBe("wrong");
  });
});
