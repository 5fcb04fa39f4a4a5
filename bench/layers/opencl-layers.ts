/**
 * @file OpenCL C beside C++ on one processor, layer by layer: each is tuned, and its kernels are verified, then timed.
 *
 *     node dist/bench/layers/opencl-layers.js --seconds 20 > opencl-layers.md        twelve ResNet-18 layers, f32 and u8s8
 *     node dist/bench/layers/opencl-layers.js --ops c2d-11 --types f32 --seconds 5
 *
 * Needs an OpenCL platform with a CPU (Debian: pocl-opencl-icd). Times of OpenCL C include the kernel launch. Exits
 * with 1 if a layer has no verified kernel.
 */

import { EnvironmentError } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { printTime } from "../../report/text.ts";
import type { TunedKernel } from "../../session/tune/finals.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { localOpenCl } from "../../session/tune/workplace.ts";
import { nativeTarget } from "../../targets/index.ts";
import { layersNamed } from "../../test/support/suite.ts";
import { cpuName, geomean, page, table, threadsText } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    ops: { type: "string", default: "c2d" },
    types: { type: "string", default: "f32,u8s8" },
    threads: { type: "string", default: "1" },
    seconds: { type: "string", default: "20" },
    seed: { type: "string", default: "1" },
    db: { type: "string", default: ":memory:" },
  },
});

const threads = Number(values.threads);
const openCl = await localOpenCl(threads);
if ("status" in openCl) throw new EnvironmentError(openCl);
const layers = layersNamed(values.ops);

interface Row {
  readonly name: string;
  readonly types: string;
  readonly inCpp: TunedKernel | undefined;
  readonly inOpenCl: TunedKernel | undefined;
}

async function tuned(layer: (typeof layers)[number], types: string, machine: Target): Promise<TunedKernel | undefined> {
  const computation = instantiate(operatorNamed(layer.op), {
    parameters: layer.params,
    types: parseDataTypes(types),
    layouts: "NHWC",
  });
  const options = { machine, threads, seconds: Number(values.seconds), seed: Number(values.seed), database: values.db };
  const outcome = await tuneComputation({ computation, parameters: layer.params, name: layer.id }, options);
  return "best" in outcome ? outcome.best : undefined;
}

const rows: Row[] = [];
for (const types of values.types.split(","))
  for (const layer of layers) {
    const inCpp = await tuned(layer, types, nativeTarget());
    const inOpenCl = await tuned(layer, types, openCl);
    rows.push({ name: layer.id, types, inCpp, inOpenCl });
    process.stderr.write(`${layer.id} ${types}: ${[inCpp, inOpenCl].map(timeOf).join(" in C++, ")} in OpenCL C\n`);
  }

function timeOf(kernel: TunedKernel | undefined): string {
  return kernel === undefined ? "none verified" : printTime(kernel.measurement.median);
}

/** Time in OpenCL C over time in C++. */
function ratioOf({ inCpp, inOpenCl }: Row): number | undefined {
  return inCpp && inOpenCl && inOpenCl.measurement.median / inCpp.measurement.median;
}

const cells = (row: Row): (string | undefined)[] => {
  const { name, types, inCpp, inOpenCl } = row;
  const of = (kernel: TunedKernel | undefined) => [timeOf(kernel), kernel?.candidate.intrinsic];
  return [name, types, ...of(inCpp), ...of(inOpenCl), ratioOf(row)?.toFixed(2)];
};
const means = values.types.split(",").map((types) => {
  const ratios = rows.flatMap((row) => (row.types === types ? (ratioOf(row) ?? []) : []));
  return `${types} ${geomean(ratios).toFixed(2)} (of ${ratios.length})`;
});
const about = `${cpuName()}, ${threadsText(threads)}, ${openCl.name} as OpenCL's device, ${new Date().toISOString().slice(0, 10)}.
Each layer tuned for ${values.seconds} s in each language, NHWC, seed ${values.seed}; every kernel verified in every element before it was timed.
A call of OpenCL C includes the launch of its kernels. Time in OpenCL C over time in C++, geometric mean: ${means.join(", ")}.`;
const head = ["layer", "types", "C++", "instruction", "OpenCL C", "instruction", "OpenCL C / C++"];
console.log(page("OpenCL C beside C++ on one processor", about, ...table(head, rows.map(cells))));
if (rows.some(({ inCpp, inOpenCl }) => !inCpp || !inOpenCl)) process.exitCode = 1;
