/**
 * @file SSAM kernels for an NVIDIA GPU, written to a folder that needs only nvcc. They are verified and timed in one
 * run beside NPP, naive loops and a device copy; each kernel prints a line of JSON.
 *
 *     npm run build && node dist/bench/cuda-ssam.js ssam           filters 2 to 20, 2-D stencils, 8192 x 8192 f32
 *     node dist/bench/cuda-ssam.js ssam --filters 3,5,9 --stencils 2d5pt --rows 4,8 --warps 4 --side 4096
 *     sh ssam/build.sh && ssam/cuda-ssam > ssam.jsonl              on a machine with a GPU and CUDA 12; NPP is optional
 *     node dist/bench/cuda-ssam.js --report ssam.jsonl > ssam.md   the best kernel of each case
 *
 * Every kernel is compared with the naive kernel in every element, and that with the CPU on 192 rows. Inputs are small
 * integers, so all sums are exact. Kernels of a case run in turns; times are medians of 30, each between two events.
 */

import { copyFileSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { LANE_DATAFLOWS, type WarpWindowSchedule } from "../abstraction/candidate.ts";
import type { Computation } from "../abstraction/computation.ts";
import { generateLanes } from "../codegen/lanes.ts";
import { warpWindowProblem } from "../mapper/schedule/lanes.ts";
import { lowerWarpWindow } from "../mapper/space-time/lower-window.ts";
import { rollable, shiftAt, tapsOf } from "../mapper/space-time/taps.ts";
import { STENCILS } from "../operators/stencil.ts";
import { filterOf, laneCase, PICKED, printDesign } from "./lane-cases.ts";
import { readOptions, wordOf } from "./options.ts";

const { values, positionals } = readOptions({
  allowPositionals: true,
  options: {
    filters: { type: "string", default: "2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20" },
    stencils: {
      type: "string",
      default: STENCILS.filter((s) => s.dimensions === 2)
        .map((s) => s.name)
        .join(),
    },
    side: { type: "string", default: "8192" },
    rows: { type: "string", default: "4,8,16" },
    warps: { type: "string", default: "4" },
    vectors: { type: "string", default: "1" },
    dataflows: { type: "string", default: "SBM,FBS-load,FBS-load/s" },
    arch: { type: "string", default: "sm_90a" },
    report: { type: "string" },
  },
});

const folder = positionals[0] ?? "cuda-ssam";
const side = Number(values.side);

const HEAD = z.object({ device: z.string(), cuda: z.number(), rounds: z.number() });
const LINE = z.object({
  case: z.string(),
  kernel: z.string(),
  status: z.string(),
  side: z.number(),
  ms: z.number(),
  gcells: z.number(),
  gflops: z.number(),
  of_copy: z.number(),
});
type Line = z.infer<typeof LINE>;

if (values.report !== undefined) {
  console.log(report(readFileSync(values.report, "utf8")));
  process.exit(0);
}

interface Entry {
  readonly name: string;
  readonly label: string;
}

mkdirSync(folder, { recursive: true });
const entries: string[] = [];
const cases: string[] = [];
let kernels = 0;

for (const text of split(values.filters)) {
  const k = Number(text);
  add(`filter ${k}`, k, filterOf(k, side));
}
for (const name of split(values.stencils)) add(name, 0, laneCase(name, side, side));

writeFileSync(join(folder, "cases.h"), [...entries, "static const Case CASES[] = {", ...cases, "};", ""].join("\n"));
copyFileSync(new URL("./peers/cuda-ssam.cu", import.meta.url), join(folder, "main.cu"));
writeFileSync(join(folder, "build.sh"), buildScript());
console.error(`${kernels} kernels in ${folder}; now: sh ${folder}/build.sh && ${folder}/cuda-ssam`);

function split(list: string): string[] {
  return list.split(",").filter((word) => word !== "");
}

function pairs<A, B>(as: readonly A[], bs: readonly B[]): [A, B][] {
  return as.flatMap((a) => bs.map((b): [A, B] => [a, b]));
}

function add(name: string, nppSize: number, computation: Computation): void {
  const verdict = tapsOf(computation);
  if (!verdict.ok) throw new Error(`${name}: ${verdict.refusal.because}`);
  const { sum } = verdict;
  const made: Entry[] = [];
  for (const asked of split(values.dataflows))
    for (const [rows, vectors] of pairs(split(values.rows).map(Number), split(values.vectors).map(Number)))
      for (const warps of split(values.warps).map(Number)) {
        // FBS-load/s keeps the window's columns as a loop.
        const [flow, rolling] = asked.split("/");
        const dataflow = wordOf("dataflows", flow ?? "", LANE_DATAFLOWS);
        const rolled = rolling === undefined ? [] : rollable(computation).filter((axis) => axis === rolling);
        if (rolling !== undefined && rolled.length === 0) continue;
        const schedule: WarpWindowSchedule = { ...PICKED, dataflow, rows, vectors, rolled };
        if (warpWindowProblem(sum, schedule)) continue;
        const id = `k${kernels++}`;
        const label = `${asked} ${rows}x${vectors} ${warps} warps`;
        const notes = {
          lines: [
            name,
            printDesign({ kind: "warp-window", intrinsic: "cuda.fma.f32", schedule }),
            `made by node dist/bench/cuda-ssam.js ${process.argv.slice(2).join(" ")}`,
          ],
        };
        const { source } = generateLanes("cuda", computation, lowerWarpWindow(computation, schedule), notes, { warps });
        const own = ["automap_workspace_bytes", "automap_prepare", "automap_launch", "phase_0"].map(
          (word) => `#define ${word} ${id}_${word}`,
        );
        writeFileSync(join(folder, `${id}.cu`), [...own, source].join("\n"));
        entries.push(
          `extern "C" int ${id}_automap_prepare(void*, const void* const*, cudaStream_t);`,
          `extern "C" int ${id}_automap_launch(void*, void* const*, cudaStream_t);`,
        );
        made.push({ name: id, label });
      }
  const weights = computation.tensors["w"];
  const pitch = weights?.dims.at(-1)?.extent ?? 1;
  const taps = sum.taps.map((t) => {
    if (t.factor?.kind !== "access") throw new Error(`${name}: a factor that is no weight`);
    const [r, s] = t.factor.index.map((e) => (e.kind === "number" ? e.value : 0));
    return `{${shiftAt(t, 0)}, ${shiftAt(t, 1)}, ${(r ?? 0) * pitch + (s ?? 0)}}`;
  });
  const id = `case_${cases.length}`;
  entries.push(
    `static const Tap ${id}_taps[] = {${taps.join(", ")}};`,
    `static const Variant ${id}_variants[] = {${made.map((m) => `{"${m.label}", ${m.name}_automap_prepare, ${m.name}_automap_launch}`).join(", ")}};`,
  );
  cases.push(
    `  {"${name}", ${side}, ${nppSize}, ${id}_taps, ${taps.length}, ${(weights?.dims ?? []).reduce((n, d) => n * d.extent, 1)}, ${id}_variants, ${made.length}},`,
  );
}

function buildScript(): string {
  return `#!/bin/sh
# Builds cuda-ssam in this folder. NPP is taken along when nvcc finds it. ARCH and JOBS may be set.
set -e
cd "$(dirname "$0")"
ARCH="\${ARCH:-${values.arch}}"
JOBS="\${JOBS:-$(nproc)}"
ls k*.cu | xargs -P "$JOBS" -I{} sh -c 'nvcc -O3 -std=c++17 -arch='"$ARCH"' -c {} -o {}.o'
NPP=""
if printf '#include <npp.h>\\nint main() { return 0; }\\n' > npp-probe.cu && nvcc -arch="$ARCH" npp-probe.cu -lnppif -lnppc -o npp-probe 2> /dev/null; then
  NPP="-DWITH_NPP -lnppif -lnppc"
fi
nvcc -O3 -std=c++17 -arch="$ARCH" -Xcompiler -fopenmp main.cu k*.o $NPP -o cuda-ssam
echo "built cuda-ssam\${NPP:+ with NPP}" >&2
`;
}

/** The lines of a run as a table: the best kernel of each case, and the best one with the SSAM dataflow. */
function report(text: string): string {
  const [head, ...lines] = text
    .trim()
    .split("\n")
    .map((line): unknown => JSON.parse(line));
  const { device, cuda, rounds } = HEAD.parse(head);
  const measured = z.array(LINE).parse(lines);
  const ratios: number[] = [];
  const rows = [...new Set(measured.map((m) => m.case))].map((name) => {
    const own = measured.filter((m) => m.case === name);
    const peer = (kernel: string): Line | undefined => own.find((m) => m.kernel === kernel);
    const ours = own.filter((m) => m.status === "ok" && /^(SBM|FBS)/.test(m.kernel)).sort((a, b) => a.ms - b.ms);
    const [best] = ours;
    const ssam = ours.find((m) => m.kernel.startsWith("SBM"));
    const npp = peer("NPP filterBorder");
    const ratio = npp?.status === "ok" && best ? npp.ms / best.ms : undefined;
    if (ratio !== undefined) ratios.push(ratio);
    const cells = [
      name,
      best ? `${best.ms.toFixed(4)} ${best.kernel}` : "none",
      ssam ? `${ssam.ms.toFixed(4)} ${ssam.kernel}` : "",
      best ? best.gcells.toFixed(0) : "",
      best ? (best.gflops / 1000).toFixed(1) : "",
      best ? `${(100 * best.of_copy).toFixed(0)} %` : "",
      npp ? `${npp.ms.toFixed(4)}${ratio === undefined ? ` ${npp.status}` : ` (${ratio.toFixed(2)})`}` : "",
      peer("naive loops")?.ms.toFixed(3) ?? "",
    ];
    return `| ${cells.join(" | ")} |`;
  });
  const geomean = Math.exp(ratios.reduce((sum, r) => sum + Math.log(r), 0) / Math.max(1, ratios.length));
  const generated = measured.filter((m) => /^(SBM|FBS)/.test(m.kernel));
  const wrong = generated.filter((m) => m.status === "wrong").length;
  return [
    "# Lane kernels on an NVIDIA GPU",
    "",
    `${device}, CUDA ${Math.floor(cuda / 1000)}.${(cuda % 1000) / 10}, ${measured[0]?.side} x ${measured[0]?.side} f32; milliseconds, medians of ${rounds}, all kernels of a case in turns in one process; in parentheses the ratio NPP / automap. ${generated.length} generated kernels, ${wrong} of them wrong: every output element is compared (NPP's inside its own border). "Of the copy" is the time of the faster device copy of the same image over that of the kernel. A label is dataflow, rows x vectors a warp, warps a block; FBS-load/s keeps the columns of the window as a loop.`,
    "",
    "    node dist/bench/cuda-ssam.js ssam && sh ssam/build.sh && ssam/cuda-ssam > ssam.jsonl",
    "",
    "| case | best | best SBM (SSAM) | Gcells/s | TFLOP/s | of the copy | NPP | naive loops |",
    "|---|---|---|---|---|---|---|---|",
    ...rows,
    "",
    ...(ratios.length > 0 ? [`${geomean.toFixed(2)}x NPP by geomean of ${ratios.length} filters.`] : []),
  ].join("\n");
}
