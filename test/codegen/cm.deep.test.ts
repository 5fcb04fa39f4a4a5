/**
 * @file Kernels of mappings in C for Metal: equal to their equations under an emulation that takes no more than the language does.
 */

import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { interpret } from "../../abstraction/interpret.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import { writeKernel } from "../../cli/files.ts";
import { readArraySubject } from "../../cli/systolic.ts";
import { cmHost } from "../../codegen/cm/cm-host.ts";
import { generateLanes } from "../../codegen/lanes.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { runChild } from "../../runtime/child.ts";
import { emulationFolder } from "../../runtime/emulation.ts";
import { reducedLayers } from "../support/resnet-layers.ts";
import { scratchFolder } from "../support/scratch.ts";
import { inFull } from "../support/slow.ts";
import { integerInputs } from "../support/space-time.ts";
import { DEVICES, disagreements, kernelsOf, rowsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";

/** Of Xe-HPC alone. */
const TF32 = { xe_hpg: [], xe_hpc: ["tf32"] } as const;

/** Sizes of which none is a multiple of a tile. */
const COMPUTATIONS = [
  operation("matmul m=21 n=19 k=37", "f16"),
  operation("matmul m=21 n=19 k=37", "u8s8", { epilogue: "y[m,n] = sat_u8(round(max(f32(out[m,n]) * 0.5, 0)))" }),
  operation("batched-matmul b=2 m=9 n=17 k=18", "bf16"),
  operation("conv1d c=5 l=23 k=9 r=3 pad=2 dilation=2", "f16"),
  operation("conv2d c=5 h=7 w=9 k=9 r=3 s=3 pad=1 stride=2", "s8"),
  operation("conv2d c=4 h=7 w=9 k=17 r=3 s=3 pad=1", "u8s8"),
];

const ofFamily = (rows: ReturnType<typeof rowsOf>, family: string) => rows.filter((row) => row.family === family);

describe.each(DEVICES)("thread groups of %s", (_, isa) => {
  it("equal the equation in layers of ResNet-18, and in every type", async () => {
    const layers = reducedLayers().slice(0, inFull(12, 2));
    const types = inFull(["s8", "u8s8", "f16", "bf16", ...TF32[isa]], ["s8", ...TF32[isa]]);
    const others = types.flatMap((type) => [
      operation("matmul m=9 n=33 k=41", type),
      ...inFull(
        [
          operation("conv1d c=6 l=19 k=18 r=3 pad=1 stride=2", type),
          operation("batched-matmul b=2 m=9 n=17 k=18", type),
        ],
        [],
      ),
    ]);
    const made = [...layers, ...others].flatMap((c) => kernelsOf(c, rowsOf(isa, "cm"), inFull(2, 1)));
    expect(await disagreements(made)).toEqual([]);
  });

  it("equal the equation by dot products of four bytes", async () => {
    const rows = ofFamily(rowsOf(isa, "cm"), "dot");
    const bytes = COMPUTATIONS.filter((c) => Object.values(c.tensors).some((t) => t.dtype === "s8"));
    expect(await disagreements(bytes.flatMap((c) => kernelsOf(c, rows, inFull(12, 1))))).toEqual([]);
  });

  it("equal the equation in random schedules", async () => {
    const rows = rowsOf(isa, "cm");
    const made = COMPUTATIONS.flatMap((c) => kernelsOf(c, ofFamily(rows, "dpas"), inFull(12, 1)));
    expect(await disagreements(made)).toEqual([]);
    expect(made.some(({ kernel }) => cmHost(kernel).includes("Once, before the first call"))).toBe(true);
  });
});

describe("the host program beside kernels", () => {
  const folder = scratchFolder();
  const file = (name: string): string => join(folder, name);

  /** Both files of a kernel, as they are, in one program over the emulation of the runtime. */
  async function programOf(kernel: Kernel): Promise<string> {
    writeKernel(file("k.cm"), kernel);
    writeFileSync(file("main.cpp"), '#include "k.cm"\n#include "k.host.cpp"\n');
    const flags = ["-std=c++17", "-w", `-I${emulationFolder()}`, "-o", file("program")];
    const built = await runChild(["g++", ...flags, file("main.cpp")], { timeLimitMs: 900_000 });
    expect(built, built.stderr).toMatchObject({ status: "ok" });
    writeFileSync(file("isa.bin"), "");
    return file("program");
  }
  const run = (program: string, names: readonly string[]) =>
    runChild([program, ...["isa", ...names].map((name) => file(`${name}.bin`))], { timeLimitMs: 900_000 });

  it("reads inputs from files, writes the output to a file, and refuses a file of wrong size", async () => {
    const [made] = kernelsOf(operation("matmul m=21 n=19 k=37", "u8s8"), rowsOf("xe_hpg", "cm"), 1);
    if (!made) throw new Error("nothing maps");
    const program = await programOf(made.kernel);
    const a = Uint8Array.from({ length: 21 * 37 }, (_, i) => (7 * i) % 256);
    const b = Int8Array.from({ length: 37 * 19 }, (_, i) => ((5 * i) % 256) - 128);
    writeFileSync(file("a.bin"), a);
    writeFileSync(file("b.bin"), b);
    expect(await run(program, ["out", "a", "b"])).toMatchObject({ status: "ok" });
    const bytes = readFileSync(file("out.bin"));
    const inputs = { a: Float64Array.from(a), b: Float64Array.from(b) };
    const out = new Int32Array(bytes.buffer, bytes.byteOffset, 21 * 19);
    expect(Float64Array.from(out)).toEqual(interpret(made.computation, inputs));
    writeFileSync(file("a.bin"), a.subarray(1));
    const short = await run(program, ["out", "a", "b"]);
    expect(short).toMatchObject({ status: "failed", exitCode: 1 });
    expect(short.stderr).toContain("holds other than 777 bytes");
  });

  it("runs a design on lanes", async () => {
    const { problem, program, arrayRows } = readArraySubject("conv1d-single", { l: 103, r: 5 }, { lanes: 16 });
    const design = enumerateDesigns(problem, { bound: 1, arrayRows }).designs.find((d) => d.name === "SBM");
    if (!design || !program) throw new Error("no such design");
    const { computation, nest } = program(design, { coalesced: true, checkTime: false });
    const inputs = integerInputs(computation);
    for (const [name, values] of Object.entries(inputs)) writeFileSync(file(`${name}.bin`), Float32Array.from(values));
    const kernel = generateLanes("cm", computation, nest, { lines: [] });
    const names = kernel.arguments.map((t) => t.tensor);
    expect(await run(await programOf(kernel), names)).toMatchObject({ status: "ok" });
    const bytes = readFileSync(file(`${names[0]}.bin`));
    expect(Float64Array.from(new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4))).toEqual(
      interpret(computation, inputs),
    );
  });

  const vendor = ["/usr/include/igfxcmrt", "/usr/local/include/igfxcmrt"].find((path) => existsSync(path));
  it.skipIf(vendor === undefined)("compiles with Intel's cm_rt.h (Debian libigfxcmrt-dev)", async () => {
    const command = ["g++", "-fsyntax-only", "-w", `-I${vendor}`, file("k.host.cpp")];
    const compiled = await runChild(command, { timeLimitMs: 900_000 });
    expect(compiled, compiled.stderr).toMatchObject({ status: "ok" });
  });
});
