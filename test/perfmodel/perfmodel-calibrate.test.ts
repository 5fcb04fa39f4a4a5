/** Calibration: the program for any target, the rates read from its output, and a run of it. */

import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { INTRINSICS, intrinsicsNamed } from "../../intrinsics/index.ts";
import { calibratable, calibrate, readCalibration } from "../../perfmodel/calibrate.ts";
import { calibrationSource } from "../../perfmodel/cpu-probes.ts";
import { modelTarget, timingOf } from "../../perfmodel/target.ts";
import { explainRun, runChild } from "../../runtime/child.ts";
import { compileSource, findCompiler } from "../../runtime/compiler.ts";
import { countMnemonic, requireDisassembler } from "../../runtime/disassembly.ts";
import { compilerFlags } from "../../targets/features.ts";
import { nativeTarget, targetOf } from "../../targets/native.ts";
import { scratchFolder } from "../support/scratch.ts";

const workdir = scratchFolder();

const TARGET = targetOf({
  name: "a test's CPU",
  isa: ["avx2", "fma", "avx512f", "avx512_vnni", "amx_int8"],
  levels: [
    { name: "dram", units: 1 },
    { name: "l2", units: 1, bytes: 1024 ** 2 },
    { name: "l1", units: 1, bytes: 32 * 1024 },
    { name: "registers", units: 1 },
  ],
  source: "this test",
});

test("the program times every C++ instruction that the target has, and no other", () => {
  const rows = calibratable(TARGET, INTRINSICS);
  const source = calibrationSource(TARGET, rows);
  expect(rows.map((row) => row.isa).sort()).toContain("amx_int8");
  expect(rows.every((row) => row.language === "c++" && TARGET.isa.includes(row.isa))).toBe(true);
  for (const row of rows) expect(source).toContain(`measure("issue ${row.name}"`);
  expect(source).not.toContain("vdpbf16ps");
});

test("an issue loop reads as the row does, with independent accumulators", () => {
  const source = calibrationSource(TARGET, intrinsicsNamed("amx.tdpbusd"));
  const from = source.indexOf("// amx.tdpbusd");
  expect(source.slice(from, source.indexOf("static void latency_0", from))).toMatchInlineSnapshot(`
    "// amx.tdpbusd
    __attribute__((noinline)) static void issue_0(long n) {
      asm volatile("" ::: "memory"); _tile_loadd(6, ((uint8_t*)(near + 0)), 64);
      asm volatile("" ::: "memory"); _tile_loadd(7, ((int8_t*)(near + 0)), 64);
      asm volatile("" ::: "memory"); _tile_loadd(0, ((int32_t*)(near + 0)), 64); 
      asm volatile("" ::: "memory"); _tile_loadd(1, ((int32_t*)(near + 0)), 64); 
      asm volatile("" ::: "memory"); _tile_loadd(2, ((int32_t*)(near + 0)), 64); 
      asm volatile("" ::: "memory"); _tile_loadd(3, ((int32_t*)(near + 0)), 64); 
      asm volatile("" ::: "memory"); _tile_loadd(4, ((int32_t*)(near + 0)), 64); 
      asm volatile("" ::: "memory"); _tile_loadd(5, ((int32_t*)(near + 0)), 64); 
      for (long i = 0; i < n; i++) {
        _tile_dpbusd(0, 6, 7);
        
        _tile_dpbusd(1, 6, 7);
        
        _tile_dpbusd(2, 6, 7);
        
        _tile_dpbusd(3, 6, 7);
        
        _tile_dpbusd(4, 6, 7);
        
        _tile_dpbusd(5, 6, 7);
        
        
      }
    }
    __attribute__((noinline)) "
  `);
});

test("figures are medians with their spread, in cycles of the measured clock", () => {
  const rows = intrinsicsNamed("avx512.vpdpbusd");
  const lines = [
    "clock: 0.25 0.25 0.25",
    "issue avx512.vpdpbusd: 0.12 0.125 0.13",
    "latency avx512.vpdpbusd: 1 1 1",
    "load avx512.vpdpbusd a: 0.125 0.125 0.125",
    "load avx512.vpdpbusd b: 0.125 0.125 0.125",
    "store avx512.vpdpbusd: 0.25 0.25 0.25",
    "loads: 0.125 0.125 0.125",
    ...["l1", "l2", "dram"].flatMap((name) =>
      ["read", "write", "copy"].map((kind) => `${kind} ${name}: 0.01 0.01 0.01`),
    ),
    "run 64: 4 4 4",
    "run 1024: 28 28 28",
    "strided: 0.25 0.25 0.25",
    "indexed: 0.5 0.5 0.5",
    "digit: 1 1 1",
    "guard: 0.625 0.625 0.625",
    "scattered: 0.5 0.5 0.5",
    "clock: 0.25 0.25 0.25",
  ];
  const calibration = readCalibration(TARGET, rows, lines.join("\n"));
  expect(calibration.clockHz.median).toBe(4e9);
  expect(calibration.intrinsics["avx512.vpdpbusd"]).toMatchObject({
    issueCycles: { median: 0.5 },
    latencyCycles: { median: 4, spread: 0 },
  });
  expect(calibration.memory["l2"]?.readBytesPerCycle.median).toBe(25);
  expect(calibration.scalar.copyByte?.median).toBeCloseTo(0.1);
  expect(calibration.scalar.copyRun?.median).toBeCloseTo(9.6);
  expect(calibration.scalar.digit?.median).toBe(1);
  expect(calibration.scalar.guard?.median).toBe(0.25);
  const slowed = lines.map((line) => line.replaceAll(/ [0-9.]+(?= |$)/g, " 90"));
  expect(readCalibration(TARGET, rows, [...slowed, ...lines, ...slowed].join("\n"))).toEqual(calibration);
  const noisy = lines.map((line) => line.replace("guard: 0.625 0.625 0.625", "guard: 0.49 0.49 0.49"));
  expect(readCalibration(TARGET, rows, noisy.join("\n")).scalar.guard?.median).toBe(0);
  const target = modelTarget(TARGET, calibration);
  expect(target.clockHz).toEqual({ value: 4e9, source: "calibrated on a test's CPU" });
  const [row] = rows;
  if (row) expect(timingOf(target, row)).toMatchObject({ issueCycles: 0.5, loadCycles: { a: 0.5, b: 0.5 } });
  expect(() => readCalibration(TARGET, rows, lines.slice(1, -1).join("\n"))).toThrow("nothing for clock");
});

test("figures that were not measured keep their source", () => {
  const target = modelTarget(TARGET);
  expect(target.memory.map((m) => [m.name, m.bytes])).toEqual([
    ["l1", 32 * 1024],
    ["l2", 1024 ** 2],
    ["dram", undefined],
  ]);
  const sources = [
    target.clockHz,
    target.window,
    target.blockCycles,
    ...Object.values(target.scalar),
    ...target.memory.map((m) => m.readBytesPerCycle),
  ].map((figure) => figure.source);
  for (const source of sources) expect(source).toMatch(/^(measured 20|assumed: |AMD |Intel |two )/);
});

const OPTIONS = { encoding: "utf8", maxBuffer: 2 ** 28 } as const;

/** The instructions of a function of a disassembled program. */
function functionIn(listing: string, name: string): string {
  const [, body = ""] = listing.split(new RegExp(`^[0-9a-f]+ <${name}\\(long\\)[^>]*>:$`, "m"));
  return body.split(/^$/m, 1)[0] ?? "";
}

test("this machine is measured, and the figures are plausible", async (context) => {
  const compiler = await findCompiler();
  if (compiler.status === "environment") return context.skip(compiler.what);
  const target = nativeTarget();
  if (!target.isa.includes("avx2")) return context.skip("avx2 is missing");
  let listing = "";
  const calibration = await calibrate(target, INTRINSICS, async (source, features) => {
    const flags = ["-O3", "-std=c++17", "-fwrapv", ...compilerFlags([...features, "fma"])];
    const compiled = await compileSource(source, flags, ".out", { compiler, workdir });
    if (compiled.status !== "compiled") throw new Error(compiled.log);
    listing = execFileSync(requireDisassembler(), ["-d", "-C", "--no-show-raw-insn", compiled.file], OPTIONS);
    const run = await runChild([compiled.file], { timeLimitMs: 900_000 });
    if (run.status !== "ok") throw new Error(`${explainRun(run)}\n${run.stderr}`);
    return run.stdout;
  });
  if (process.env["AUTOMAP_DEBUG"] !== undefined) console.log(JSON.stringify(calibration, undefined, 1));
  // Each loop holds what its figure is of, once for each unit that the figure is divided by: no load on the machine changes that.
  const source = calibrationSource(target, calibratable(target, INTRINSICS));
  for (const [i, row] of calibratable(target, INTRINSICS).entries()) {
    if (row.mnemonic === undefined) continue;
    const [, units] = new RegExp(`measure\\("issue ${row.name}", (\\d+), issue_${i}\\)`).exec(source) ?? [];
    const count = (name: string): number => countMnemonic(functionIn(listing, name), row.mnemonic ?? "");
    expect(count(`issue_${i}`), row.name).toBeGreaterThanOrEqual(Number(units));
    expect(count(`latency_${i}`), row.name).toBeGreaterThanOrEqual(1);
  }
  // A wrong unit changes a figure by a factor of hundreds, other work on the machine by a factor of a few.
  expect(calibration.clockHz.median).toBeGreaterThan(1e8);
  expect(calibration.clockHz.median).toBeLessThan(5e10);
  for (const [name, { issueCycles, latencyCycles }] of Object.entries(calibration.intrinsics)) {
    expect(issueCycles.median, name).toBeGreaterThan(0.02);
    expect(latencyCycles.median, name).toBeGreaterThan(0.1);
    for (const cycles of [issueCycles, latencyCycles]) expect(cycles.median, name).toBeLessThan(1e4);
  }
  for (const [name, { readBytesPerCycle }] of Object.entries(calibration.memory)) {
    expect(readBytesPerCycle.median, name).toBeGreaterThan(0.01);
    expect(readBytesPerCycle.median, name).toBeLessThan(1e4);
  }
});
