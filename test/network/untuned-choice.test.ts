/** Steps that were never tuned take the kernel that is fastest by this machine's measured rates. */

import { afterAll, expect, it } from "vitest";
import { openDatabase, recordCalibration } from "../../db/index.ts";
import { tasksOf } from "../../network/tasks.ts";
import { findCompiler } from "../../runtime/compiler.ts";
import { environmentOf } from "../../session/calibrate/environment.ts";
import { chooseKernel, openGraph } from "../../session/network/network.ts";
import { nativeTarget } from "../../targets/index.ts";
import { workshop } from "../support/database.ts";
import { onnx } from "../support/networks.ts";

const shop = workshop();
afterAll(() => shop.remove());

const figure = (median: number) => ({ median, spread: 0.01 });
const memory = (footprintBytes: number, rate: number) => ({
  footprintBytes,
  readBytesPerCycle: figure(rate),
  writeBytesPerCycle: figure(rate),
  copyBytesPerCycle: figure(rate),
});
const instruction = (issueCycles: number) => ({
  issueCycles: figure(issueCycles),
  latencyCycles: figure(4),
  loadCycles: { a: figure(0.5), b: figure(0.5) },
  storeCycles: figure(1),
});

it.skipIf(!nativeTarget().isa.includes("fma"))("takes a form with fewer products, unless steps must be exact", () => {
  const [task] = tasksOf(openGraph(onnx("Conv<pads=[1,1,1,1]>(x[1,64,28,28], [64,64,3,3]{drawn})")).program);
  if (!task) throw new Error("a convolution is no task");
  const kernelOf = (exact: boolean) => chooseKernel(task, { exact }).kernel?.kernel;
  expect(kernelOf(false)?.ofForm).toBe(true);
  const exact = kernelOf(true);
  expect(exact).toBeDefined();
  expect(exact?.ofForm).toBeUndefined();
});

it.for([
  ["avx2", 30],
  ["avx512", 0.5],
] as const)("takes %s where an issue of AVX-512 takes %d cycles", async ([expected, wide], context) => {
  const compiler = await findCompiler();
  if (compiler.status !== "found") return context.skip("no C++ compiler");
  if (!nativeTarget().isa.includes("avx512f")) return context.skip("no AVX-512");
  const db = openDatabase(shop.path(`${expected}.db`));
  const environment = environmentOf({ compiler });
  const rows = (isa: string, cycles: number) =>
    ["", ".broadcast", ".groups4", ".groups8"].map((form) => [`${isa}.fma.f32${form}`, instruction(cycles)] as const);
  const data = {
    machine: "Testium 9000",
    clockHz: figure(2e9),
    loadsPerCycle: figure(2),
    memory: { l1: memory(1 << 14, 100), l2: memory(1 << 20, 50), l3: memory(1 << 24, 20), dram: memory(1 << 28, 4) },
    intrinsics: Object.fromEntries([...rows("avx512", wide), ...rows("avx2", 1)]),
    scalar: { strided: figure(1.5), indexed: figure(1), scattered: figure(2) },
  };
  recordCalibration(db, { environment, data, at: 1 });
  const [task] = tasksOf(openGraph(onnx("MatMul(x[32,64], [64,64]{drawn})")).program);
  if (!task) throw new Error("a product is no task");
  const choice = chooseKernel(task, { records: { db, environment } });
  db.close();
  expect(choice).toMatchObject({ kind: "model", place: expect.stringMatching(`^${expected}\\.`) });
});
