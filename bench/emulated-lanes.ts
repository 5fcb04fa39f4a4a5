/**
 * @file Runs every emitted lane program under host emulation against its equation: CUDA SSAM kernels (filters 2 to 20,
 * stencils, f32 and f64), and each design of a 1-D convolution with entries up to 2 in CUDA, CM and AVX-512.
 *
 *     npm run build
 *     node dist/bench/emulated-lanes.js                         a line a subject; exit code 4 when one differs
 *     node dist/bench/emulated-lanes.js --only ssam             or designs
 *     node dist/bench/emulated-lanes.js --nvcc sm_90            also compiles the CUDA sources with nvcc
 *
 * Takes minutes; `test/codegen-lanes-designs.deep.test.ts` runs a sample.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { WarpWindowSchedule } from "../abstraction/candidate.ts";
import { type Computation, defineComputation, elementCount, inputsOf } from "../abstraction/computation.ts";
import { interpret } from "../abstraction/interpret.ts";
import type { Kernel } from "../abstraction/kernel.ts";
import type { LoopNest } from "../abstraction/loop-nest.ts";
import { randomInteger, seededRandom } from "../abstraction/random.ts";
import { generateLanes, type LaneLanguage } from "../codegen/lanes.ts";
import { arrayPass, recurrenceOf } from "../mapper/space-time/derive.ts";
import { enumerateDesigns } from "../mapper/space-time/enumerate.ts";
import { lowerDesign } from "../mapper/space-time/lower.ts";
import { lowerWarpWindow } from "../mapper/space-time/lower-window.ts";
import { parseDataTypes } from "../operators/data-types.ts";
import { operatorNamed } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { STENCILS } from "../operators/stencil.ts";
import { explainRun, runChild } from "../runtime/child.ts";
import { runEmulated } from "../runtime/emulated-kernel.ts";
import { readOptions, wordOf } from "./options.ts";

const { values } = readOptions({ options: { nvcc: { type: "string" }, only: { type: "string" } } });

interface Subject {
  readonly label: string;
  readonly language: LaneLanguage;
  readonly computation: Computation;
  readonly nest: LoopNest;
}

const SSAM: WarpWindowSchedule = {
  dataflow: "SBM",
  lanes: 32,
  rows: 4,
  vectors: 1,
  rolled: [],
};

function ssam(operator: string, parameters: Readonly<Record<string, number>>, types: string, rows = 4): Subject {
  const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types) });
  const label = `ssam ${operator} ${Object.values(parameters).join("x")} ${types}`;
  return { label, language: "cuda", computation, nest: lowerWarpWindow(computation, { ...SSAM, rows }) };
}

function designs(): Subject[] {
  const convolution = defineComputation({
    name: "conv1d",
    equation: "out[c] += x[c+q] * w[q]",
    extents: { c: 12, q: 5 },
    tensors: { x: "f32", w: "f32" },
  });
  const pass = arrayPass(convolution);
  const { computation } = pass;
  const found = enumerateDesigns(pass.problem, { bound: 2, arrayRows: 1 }).designs;
  return found.flatMap((design) =>
    (["cuda", "cm", "c++"] as const).flatMap((language) => {
      if (language === "cuda" && design.pes > 32) return [];
      const nest = lowerDesign(recurrenceOf(pass, design), design.spaceTime, {
        coalesced: true,
        checkTime: true,
      });
      return [{ label: `design conv1d ${design.name} in ${language}`, language, computation, nest }];
    }),
  );
}

const ssamKernels = (): Subject[] =>
  ["f32", "f64"].flatMap((types) => [
    ...Array.from({ length: 19 }, (_, i) => i + 2).flatMap((m) => [
      ssam("conv1d-single", { l: 97, r: m }, types, 1),
      ssam("conv2d-single", { h: m + 6, w: 70, r: m, s: m }, types),
    ]),
    ...STENCILS.map(({ name, dimensions, radius }) =>
      ssam(name, dimensions === 2 ? { h: 2 * radius + 5, w: 70 } : { d: radius + 3, h: 2 * radius + 3, w: 40 }, types),
    ),
  ]);
const only = values.only === undefined ? undefined : wordOf("only", values.only, ["designs", "ssam"]);
const subjects = [...(only === "designs" ? [] : ssamKernels()), ...(only === "ssam" ? [] : designs())];

/** Small integers, so that every sum is exact in any order. */
function inputsFor(computation: Computation): Record<string, Float64Array> {
  const random = seededRandom(1);
  return Object.fromEntries(
    inputsOf(computation).map((t) => [
      t.name,
      Float64Array.from({ length: elementCount(t) }, () => randomInteger(random, -3, 3)),
    ]),
  );
}

async function compiledByNvcc(kernel: Kernel, architecture: string): Promise<string | undefined> {
  const folder = mkdtempSync(join(tmpdir(), "automap-nvcc-"));
  try {
    writeFileSync(join(folder, "kernel.cu"), kernel.source);
    const command = ["nvcc", `-arch=${architecture}`, "-cubin", "-o", "kernel.cubin", "kernel.cu"];
    const run = await runChild(command, { timeLimitMs: 300_000, cwd: folder });
    return run.status === "ok" ? undefined : `${explainRun(run)}: ${run.stderr.slice(0, 400)}`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

let wrong = 0;
for (let i = 0; i < subjects.length; i += 16) {
  const some = subjects.slice(i, i + 16);
  const jobs = some.map(({ label, language, computation, nest }) => ({
    kernel: generateLanes(language, computation, nest, { lines: [label] }),
    inputs: inputsFor(computation),
  }));
  const runs = await runEmulated(jobs, { timeLimitMs: 600_000 });
  for (const [at, { label, computation }] of some.entries()) {
    const run = runs[at];
    const job = jobs[at];
    const want = interpret(computation, inputsFor(computation));
    const differs = run?.status === "ok" ? want.findIndex((value, e) => value !== run.output[e]) : -1;
    const problem =
      run?.status !== "ok"
        ? (run?.log ?? "no result")
        : differs >= 0
          ? `element ${differs} is ${run.output[differs]}, not ${want[differs]}`
          : values.nvcc !== undefined && job?.kernel.language === "cuda"
            ? await compiledByNvcc(job.kernel, values.nvcc)
            : undefined;
    if (problem !== undefined) wrong++;
    console.log(`${label}: ${problem ?? "ok"}`);
  }
}
console.error(`${subjects.length - wrong} of ${subjects.length} equal their equation`);
process.exitCode = wrong === 0 ? 0 : 4;
