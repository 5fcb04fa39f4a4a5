/**
 * @file What this machine has and lacks for measuring on a GPU: part of `automap doctor`.
 *
 *     GPU     ok        NVIDIA H100 80GB HBM3, compute capability 9.0, 79 GiB, 1980 MHz, 700 W
 *     nvcc    missing   no nvcc on the PATH
 */

import type { EnvironmentProblem } from "../abstraction/error.ts";
import type { Finding } from "./doctor.ts";
import { driverProblem, findCuobjdump, findGpus, findNvcc, findSmi, type Gpu } from "./run/cuda-device.ts";

/** A machine without a GPU is not reported as lacking one. */
export async function examineGpu(): Promise<readonly Finding[]> {
  const why = "kernels for GPUs are compiled, checked and timed on this machine's own";
  if (findSmi() === undefined) {
    const detail = "none: kernels are for CPUs, or ranked for a GPU by tune --target h100 --model-only";
    return [{ subject: "GPU", status: "ok", detail, why }];
  }
  const gpus = await findGpus();
  if ("status" in gpus) return [lacking("GPU", gpus)];
  const [first] = gpus;
  const nvcc = await findNvcc();
  const tools = "status" in nvcc ? nvcc : findCuobjdump(nvcc);
  const old = "status" in nvcc ? undefined : driverProblem(first, nvcc);
  const { driver, cuda } = first;
  return [
    ...gpus.map(
      (gpu, i): Finding => ({ subject: i === 0 ? "GPU" : "GPU, not used", status: "ok", detail: describe(gpu), why }),
    ),
    old
      ? lacking("driver", old)
      : { subject: "driver", status: "ok", detail: `${driver}${cuda === undefined ? "" : `, runs CUDA ${cuda}`}`, why },
    "status" in nvcc
      ? lacking("nvcc", nvcc)
      : { subject: "nvcc", status: "ok", detail: `${nvcc.path} ${nvcc.version}`, why },
    ...("status" in nvcc
      ? []
      : [
          typeof tools === "string"
            ? { subject: "cuobjdump", status: "ok" as const, detail: tools, why }
            : lacking("cuobjdump", tools),
        ]),
  ];
}

function describe({ name, capability, memoryMiB, limits }: Gpu): string {
  const memory = memoryMiB === undefined ? [] : [`${Math.round(memoryMiB / 1024)} GiB`];
  return [
    name,
    `compute capability ${(capability / 10).toFixed(1)}`,
    ...memory,
    ...(limits === "" ? [] : [limits]),
  ].join(", ");
}

function lacking(subject: string, { what, why, remedy }: EnvironmentProblem): Finding {
  return { subject, status: "missing", detail: what, why, remedy };
}
