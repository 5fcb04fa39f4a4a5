/**
 * @file `automap tune --target cuda` from the command line to the record, on a machine whose GPU is emulated; and the
 * uses of such records.
 */

import { mkdtempSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { openDatabase, queryTrials, recordCalibration } from "../../db/index.ts";
import { INTRINSICS, intrinsicNamed } from "../../intrinsics/index.ts";
import { searchedWgmma } from "../../intrinsics/wgmma.ts";
import { examineGpu } from "../../runtime/doctor-gpu.ts";
import { createCudaRunner } from "../../runtime/run/cuda.ts";
import { findGpus } from "../../runtime/run/cuda-device.ts";
import { calibrateGpuHere, examineGpuCalibration } from "../../session/calibrate/calibrate-gpu.ts";
import { load } from "../../session/package/load.ts";
import { nvidiaTarget } from "../../targets/index.ts";
import { commandLine, type Ran } from "../support/command-line.ts";
import { type FakeCudaOptions, fakeCuda, H100_SMI } from "../support/fake-cuda.ts";
import { GPU_CALIBRATION } from "../support/gpu-calibration.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

const machine = fakeCuda(folder);
const database = join(folder, "t.db");
const SEARCH = `tune matmul --m 16 --n 16 --k 32 --dtype f16 --intrinsic mma --target cuda --trials 3 --time 300 --db ${database} --json`;

function trialsIn(): ReturnType<typeof queryTrials> {
  const db = openDatabase(database, { readonly: true });
  try {
    return queryTrials(db, { sort: "at" });
  } finally {
    db.close();
  }
}

describe("automap tune --target cuda", () => {
  it("searches, records and decides as on a CPU", async () => {
    const ran = await machine.commandLine(SEARCH);
    expect(ran.err).toContain("matmul m 16 n 16 k 32, f16->f32 on h100");
    expect(ran.code, ran.err).toBe(0);
    const schema = z.fromJSONSchema(JSON.parse((await commandLine("tune --json-schema")).out));
    expect(() => schema.parse(JSON.parse(ran.out))).not.toThrow();
    const { best, trials } = JSON.parse(ran.out);
    expect(trials).toBe(3);
    expect(best.schedule.tile).toBeDefined();
    const recorded = trialsIn();
    expect(recorded.filter((t) => t.finals === undefined)).toHaveLength(3);
    expect(recorded.some((t) => t.finals?.place === 1)).toBe(true);
    expect(recorded[0]?.environment).toMatchObject({
      target: "h100",
      cpu: "NVIDIA H100 80GB HBM3 (1980 MHz, 700 W)",
      driver: "580.159.03 (CUDA 13.0)",
      compiler: { version: "V13.0.88" },
    });
  });

  it("measures nothing again when it is repeated", async () => {
    const before = trialsIn().length;
    const ran = await machine.commandLine(SEARCH);
    expect(ran.err).toContain("3 kernels tried, 0 of them now");
    const added = trialsIn().slice(0, -before);
    expect(added.every((t) => t.finals !== undefined)).toBe(true);
  });
});

describe("a record of a GPU", () => {
  const ask = async (words: string): Promise<string> => {
    const { code, out, err } = await machine.commandLine(`${words} --db ${database}`);
    expect(code, out + err).toBe(0);
    return out + err;
  };
  const winner = (): string => {
    const found = trialsIn().find((t) => t.finals?.place === 1);
    if (!found) throw new Error("no winner");
    return found.id.slice(0, 12);
  };

  it("is the best of its environment on the machine that has the GPU", async () => {
    expect(await ask("db best --trust exact")).toContain("h100");
    expect(await ask("db stale")).toContain("no trial matches");
    expect(await ask("db query --target h100 --top 1")).toContain("mma.");
    const elsewhere = await commandLine(`db best --trust exact --db ${database}`);
    expect(elsewhere.err).toContain("stale trials were left out, they differ in target, cpu");
  });

  it("is shown with its schedule and its environment", async () => {
    const shown = await ask(`db show ${winner()}`);
    expect(shown).toContain("NVIDIA H100 80GB HBM3 (1980 MHz, 700 W), 132 cores");
    expect(shown).toContain("580.159.03 (CUDA 13.0)");
    expect(shown).toMatch(/fragments {4}\w+/);
    expect(shown).toMatch(/instruction {2}[1-9]\d* in the disassembly/);
  });

  it("is explained with the rates of its GPU", async () => {
    const explained = await ask(`explain ${winner()}`);
    expect(explained).toContain("the model now, uncorrected, with the rates of h100 in the table of machines");
    expect(explained).toContain("tensor");
  });

  it("is explained with calibrated rates once there are any", async () => {
    const db = openDatabase(database);
    const environment = trialsIn()[0]?.environment;
    if (!environment) throw new Error("no record");
    recordCalibration(db, { environment, data: GPU_CALIBRATION, at: Date.now() });
    db.close();
    expect(await ask(`explain ${winner()}`)).toMatch(/the model now, uncorrected, with the rates calibrated on 20/);
    const said = await machine.here(() => examineGpuCalibration(database));
    expect(said.map((f) => f.detail)).toEqual([
      expect.stringMatching(/^calibrated on .*: 1.50 GHz under load, 1.90 TB/),
    ]);
  });

  it("is replayed decision by decision", async () => {
    const run = trialsIn().find((t) => t.finals === undefined)?.run;
    const replayed = await ask(`replay ${run}`);
    expect(replayed).toContain("bit for bit");
    expect(replayed).not.toContain("assumed");
    const schema = z.fromJSONSchema(JSON.parse((await commandLine("replay --json-schema")).out));
    expect(schema.parse(JSON.parse(await ask(`replay ${run} --json`)))).toMatchObject({ identical: true });
  });

  it("appears in a report", async () => {
    const page = join(folder, "report.html");
    await ask(`report --output ${page}`);
    expect(readFileSync(page, "utf8")).toContain("NVIDIA H100");
  });

  it("is measured again from its record", async () => {
    // The times of an emulation mean nothing: it may well be slower.
    const { out } = await machine.commandLine(`db verify --remeasure 1 --seed 1 --db ${database}`);
    expect(out).toMatch(/ns {2}-> .*(same|faster|slower)/);
  });

  it("is emitted as a package, and not loaded as a function of Node", async () => {
    const { code, out } = await machine.commandLine(`emit ${winner()} --to ${folder}/package --db ${database}`);
    expect([code, out]).toEqual([0, expect.stringContaining("build/matmul_test")]);
    expect(readFileSync(join(folder, "package", "matmul.h"), "utf8")).toContain(`record    ${winner().slice(0, 12)}`);
    const text = readFileSync(join(folder, "package", "torch_example.py"), "utf8");
    expect(text).toContain("of_torch = lambda x, w: torch.matmul(x, w)");
    await expect(load(winner(), { database })).rejects.toThrow("only kernels in C++ are loaded into Node");
  });

  it("is emitted as a source file alone", async () => {
    const file = join(folder, "emitted.cu");
    const written = await machine.commandLine(`emit ${winner()} --to ${file} --db ${database}`);
    expect([written.code, written.out]).toEqual([0, expect.stringContaining(`${file}: matmul m 16 n 16 k 32`)]);
    expect(readFileSync(file, "utf8")).toContain("automap_launch");
    const again = await machine.commandLine(`emit ${winner()} --to ${file} --db ${database}`);
    expect([again.code, again.err]).toEqual([2, expect.stringContaining("is there already")]);
  });
});

describe("a machine that lacks something", () => {
  const TUNE = "tune matmul --m 16 --n 16 --k 16 --dtype f16 --trials 1 --time 60 --target";
  const without = async (options: FakeCudaOptions, words: string): Promise<Ran> =>
    fakeCuda(mkdtempSync(join(folder, "machine-")), options).commandLine(`${words} --db ${folder}/none.db`);

  it.each<[string, FakeCudaOptions, string, RegExp]>([
    ["a GPU", { smi: "" }, "cuda", /no NVIDIA GPU: nvidia-smi is not on the PATH(?:.|\n)*--target h100 --model-only/],
    [
      "a loaded driver",
      { smi: "echo NVIDIA-SMI has failed; exit 9" },
      "cuda",
      /tells of no GPU: .*has failed(?:.|\n)*driver/,
    ],
    ["nvcc", { nvcc: null }, "cuda", /no nvcc on the PATH(?:.|\n)*install the CUDA toolkit/],
    [
      "a driver as new as nvcc",
      { smi: H100_SMI.replace("CUDA Version: 13.0", "CUDA Version: 12.4") },
      "cuda",
      /driver 580.159.03 is too old for .*nvcc V13.0.88: it runs CUDA 12.4(?:.|\n)*nvcc of CUDA 12/,
    ],
    ["the GPU that is asked for", {}, "a100", /GPU is NVIDIA H100 80GB HBM3 \(target h100\), not the a100 asked for/],
    [
      "a compiler that nvcc works with",
      { nvcc: "[ $# -gt 1 ] && { echo unsupported GNU version; exit 1; }" },
      "cuda",
      /cannot compile the measuring program(?:.|\n)*unsupported GNU version/,
    ],
  ])("names it and ends with exit code 6: %s", async (_, options, target, words) => {
    const { code, err } = await without(options, `${TUNE} ${target}`);
    expect(err).toMatch(words);
    expect(code).toBe(6);
  });

  it("continues where the compiler warns about a kernel, with a status for it", async () => {
    const warning = "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized";
    const nvcc = `case " $* " in *" -Xptxas "*) echo "${warning}" >&2 ;; esac`;
    const { code, err } = await without({ nvcc }, `${TUNE} cuda`);
    expect([code, err]).toEqual([1, expect.stringContaining("no kernel worked: 1 serialised")]);
  });

  it("takes the GPU that CUDA_VISIBLE_DEVICES names", async () => {
    const line = (name: string, id: string): string => `echo "${name}, 580.159.03, 8.0, ${id}, 81559, 1410, [N/A]"`;
    const smi = `${line("NVIDIA A100-SXM4-80GB", "GPU-aa")}\n${line("NVIDIA A100-PCIE-40GB", "GPU-bb")}`;
    const two = fakeCuda(mkdtempSync(join(folder, "machine-")), { smi });
    const first = (visible: string): Promise<string> =>
      two.here(
        async () => {
          const found = await findGpus();
          return "status" in found ? found.what : `${found[0].name} (${found[0].limits})`;
        },
        { CUDA_VISIBLE_DEVICES: visible },
      );
    expect(await first("1,0")).toBe("NVIDIA A100-PCIE-40GB (1410 MHz)");
    expect(await first("GPU-a")).toBe("NVIDIA A100-SXM4-80GB (1410 MHz)");
    expect(await first("2")).toBe('CUDA_VISIBLE_DEVICES="2" names none of the 2 GPUs that nvidia-smi lists');
    expect(await first("")).toContain("names none");
  });

  it("cannot calibrate rates, and says what is missing", async () => {
    const file = join(folder, "none.db");
    const { code, err } = await without({ smi: "" }, "calibrate --target cuda");
    expect([code, err]).toEqual([6, expect.stringContaining("no NVIDIA GPU")]);
    const made = await createCudaRunner({ emulated: true });
    if (made.status !== "ready") throw new Error(made.what);
    const outcome = await calibrateGpuHere(nvidiaTarget("h100"), file, { runner: made.runner });
    await made.runner.close();
    expect(outcome).toMatchObject({ status: "environment", problem: { what: expect.stringContaining("emulated") } });
  });

  it("is described by doctor", async () => {
    const said = (options: FakeCudaOptions): Promise<string[]> =>
      fakeCuda(mkdtempSync(join(folder, "machine-")), options).here(async () =>
        (await examineGpu()).map(({ subject, status, detail }) => `${subject}: ${status}: ${detail}`),
      );
    expect(await said({})).toEqual([
      "GPU: ok: NVIDIA H100 80GB HBM3, compute capability 9.0, 80 GiB, 1980 MHz, 700 W",
      "driver: ok: 580.159.03, runs CUDA 13.0",
      expect.stringMatching(/^nvcc: ok: .*nvcc V13.0.88$/),
      expect.stringMatching(/^cuobjdump: ok: /),
    ]);
    expect(await said({ nvcc: null })).toContain("nvcc: missing: no nvcc on the PATH");
    expect(await said({ smi: "" })).toEqual([expect.stringMatching(/^GPU: ok: none: kernels are for CPUs/)]);
  });
});

describe("an instruction that the table does not list", () => {
  it("has records that can be checked against its declaration", () => {
    expect(INTRINSICS.map((i) => i.name)).not.toContain("wgmma.m64n24k16.f32.f16");
    expect(intrinsicNamed("wgmma.m64n24k16.f32.f16")?.name).toBe("wgmma.m64n24k16.f32.f16");
    for (const { name } of searchedWgmma()) expect(intrinsicNamed(name)?.name).toBe(name);
  });
});

describe("automap tune for a GPU that is not here", () => {
  it("ranks by the model, writes the source and says that its time is predicted", async () => {
    const file = join(folder, "k.cu");
    const words = `tune matmul --dtype f16 --target h100 --model-only --to ${file}`;
    const { code, out, err } = await commandLine(words);
    expect(code).toBe(0);
    expect(out).toContain("predicted by the model with the rates of h100, nothing measured");
    expect(err).toMatch(/written: .*k\.cu, predicted to take [\d.]+ us; nothing was measured/);
    expect(readFileSync(file, "utf8")).toContain("__global__");
  });

  it("predicts products of floats of one byte at twice the rate of f16", async () => {
    const predicted = async (dtype: string): Promise<number> => {
      const layout = "--m 8192 --n 8192 --k 8192 --layout b=NK";
      const { out } = await commandLine(`tune matmul --dtype ${dtype} ${layout} --target h200 --model-only --json`);
      const { candidates } = z
        .object({ candidates: z.array(z.object({ predictedMicroseconds: z.number(), intrinsic: z.string() })) })
        .parse(JSON.parse(out));
      expect(candidates[0]?.intrinsic).toContain(`.f32.${dtype}`);
      return candidates[0]?.predictedMicroseconds ?? Number.NaN;
    };
    expect((await predicted("f16")) / (await predicted("e4m3"))).toBeCloseTo(2, 0);
  });

  it("refuses an unknown GPU, and options that its kernels do not have", async () => {
    const unknown = await commandLine("tune matmul --target h10 --model-only");
    expect([unknown.code, unknown.err]).toEqual([2, expect.stringContaining('did you mean "h100"?')]);
    const threads = await machine.commandLine(`tune matmul --target h100 --threads 2 --db ${folder}/none.db`);
    expect([threads.code, threads.err]).toEqual([2, expect.stringContaining("launched by one thread")]);
    const lanes = await commandLine("tune 2d5pt --target v100 --kinds lanes --model-only");
    expect([lanes.code, lanes.err]).toEqual([3, expect.stringContaining("no figures of the lanes of v100")]);
  });
});
