/**
 * @file Kernels in OpenCL C with Intel's matrix products: equal to their equations under emulation, and as Intel's offline compiler takes them,
 * with as many matrix products as their text issues and nothing spilled.
 */

import { describe, expect, it } from "vitest";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { findProgram } from "../../runtime/child.ts";
import { compileForIntel, findOcloc, functionIn, lastAttempts, promisedDpas } from "../../runtime/ocloc.ts";
import { cpuIn } from "../../runtime/opencl-device.ts";
import { problemOf } from "../../session/judge/offline.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { localOpenCl } from "../../session/tune/workplace.ts";
import { OPENCL_ISA } from "../../targets/index.ts";
import { reducedLayers } from "../support/resnet-layers.ts";
import { inFull } from "../support/slow.ts";
import { COMPUTATIONS, DEVICES, disagreements, kernelsOf, rowsOf } from "../support/subgroup-kernels.ts";
import { operation } from "../support/subjects.ts";
import { layersNamed } from "../support/suite.ts";

const DRAWN = inFull(12, 2);

describe.each(DEVICES)("sub-groups of %s", (device, isa) => {
  it("equal the equation in random schedules", async () => {
    const made = COMPUTATIONS.flatMap((computation) => kernelsOf(computation, rowsOf(isa), DRAWN));
    expect(await disagreements(made)).toEqual([]);
  });

  it("equal the equation in the layers of ResNet-18 by name", async () => {
    const layers = reducedLayers().slice(0, inFull(12, 1));
    expect(await disagreements(layers.flatMap((c) => kernelsOf(c, rowsOf(isa), inFull(2, 1))))).toEqual([]);
  });

  it.skipIf(findOcloc() === undefined)("are compiled by ocloc with as many DPAS as their source has", async () => {
    const ocloc = findOcloc() ?? "";
    const made = COMPUTATIONS.slice(0, inFull(6, 2)).flatMap((c) => kernelsOf(c, rowsOf(isa), inFull(4, 1)));
    for (const { kernel } of made) {
      const built = await compileForIntel(kernel, device, ocloc);
      // A schedule that was drawn may spill; one that does not holds what it promises.
      expect(["compiled", "spilled"], "log" in built ? built.log : "").toContain(built.status);
      if (built.status === "compiled") expect(problemOf(kernel, built)).toBeUndefined();
      expect(Math.max(...promisedDpas(kernel).values())).toBeGreaterThan(0);
    }
  });
});

describe("the assembly that ocloc writes", () => {
  it("is read from the last attempt at each function, with its spilled bytes", () => {
    const names = ["x_simd8_entry_0001.asm", "x_simd8_entry_0003.asm", "x_1_simd8_entry_0003.asm"];
    expect(lastAttempts(names)).toEqual(["x_1_simd8_entry_0003.asm", "x_simd8_entry_0001.asm"]);
    const head = "//.kernel automap_phase_1\n//.thread_config numGRF=128, numAcc=4\n//.instCount 452\n";
    expect(functionIn(`${head}//.spill size 1888\n        dpas.8x8 (8|M0) r1:d\n`)).toEqual({
      name: "automap_phase_1",
      dpas: 1,
      instructions: 452,
      registers: 128,
      spilledBytes: 1888,
      code: { instructions: 1, sends: 0, products: 1, loops: [] },
    });
    expect(functionIn(head).spilledBytes).toBe(0);
  });
});

describe("work-items of any device", () => {
  it("equal the equation in random schedules", async () => {
    const made = ["f32", "u8s8"].flatMap((types) => [
      ...(types === "u8s8" ? kernelsOf(operation("matmul m=5 n=37 k=9", types), rowsOf("opencl_vnni"), DRAWN) : []),
      ...kernelsOf(operation("matmul m=5 n=37 k=9", types), rowsOf(OPENCL_ISA), DRAWN),
      ...kernelsOf(operation("conv2d c=3 h=6 w=19 k=18 r=3 s=3 pad=1", types), rowsOf(OPENCL_ISA), DRAWN),
    ]);
    expect(await disagreements(made)).toEqual([]);
  });

  it("on a CPU take the device's name from clinfo", () => {
    const text = [
      "[GPU/0]    CL_DEVICE_NAME                                  Some GPU",
      "[GPU/0]    CL_DEVICE_TYPE                                  CL_DEVICE_TYPE_GPU",
      "[POCL/0]    CL_DEVICE_NAME                                  pthread-haswell",
      "[POCL/0]    CL_DEVICE_TYPE                                  CL_DEVICE_TYPE_CPU | CL_DEVICE_TYPE_DEFAULT",
    ];
    expect(cpuIn(text.join("\n"))).toBe("pthread-haswell");
    expect(cpuIn(text.slice(0, 2).join("\n"))).toBeUndefined();
  });

  const layers = inFull(layersNamed("c2d"), []).flatMap((l) => ["f32", "u8s8"].map((t) => [l.id, t, l] as const));
  it.skipIf(findProgram("clinfo") === undefined).each(layers)(
    "of a CPU run the layer %s of ResNet-18 in %s, verified in every element",
    async (_, types, { op, params }) => {
      const machine = await localOpenCl();
      if ("status" in machine) throw new Error(machine.what);
      const layer = { parameters: params, types: parseDataTypes(types), layouts: "NHWC" };
      const computation = instantiate(operatorNamed(op), layer);
      const outcome = await tuneComputation({ computation }, { machine, trials: 2, seconds: 30, database: ":memory:" });
      expect("trials" in outcome && outcome.trials.map((t) => t.measurement.status)).toContain("ok");
    },
  );

  it.skipIf(findProgram("clinfo") === undefined)(
    "of a CPU with AVX-512 VNNI multiply bytes by VPDPBUSD, verified in every element",
    async ({ skip }) => {
      const machine = await localOpenCl();
      if ("status" in machine) return skip(machine.what);
      if (!machine.isa.includes("opencl_vnni")) return skip("this device has no VPDPBUSD");
      const outcome = await tuneComputation(
        { computation: operation("matmul m=9 n=37 k=18", "u8s8") },
        { machine, intrinsics: rowsOf("opencl_vnni"), trials: 2, seconds: 20, database: ":memory:" },
      );
      if (!("best" in outcome)) throw new Error(outcome.status);
      expect(outcome.best?.kernel.source).toContain("vpdpbusd");
      expect(outcome.trials.map((t) => t.measurement.status)).toContain("ok");
    },
  );

  it.skipIf(findProgram("clinfo") === undefined)(
    "are measured, verified and recorded under the name of the device",
    async ({ skip }) => {
      const machine = await localOpenCl();
      if ("status" in machine) return skip(machine.what);
      const options = { machine, trials: 1, seconds: 20, database: ":memory:" };
      const outcome = await tuneComputation({ computation: operation("matmul m=8 n=32 k=16") }, options);
      if (!("best" in outcome)) throw new Error(outcome.status);
      expect(outcome.best?.kernel.language).toBe("opencl");
      expect(outcome.trials.map((t) => t.measurement.status)).toContain("ok");
    },
  );
});
