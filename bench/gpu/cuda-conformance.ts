/**
 * @file Writes a CUDA program that runs every NVIDIA row of the intrinsics table on a GPU against its equation.
 *
 *     npm run build && node dist/bench/gpu/cuda-conformance.js check.cu
 *     nvcc -std=c++17 -O1 -gencode=arch=compute_90a,code=sm_90a check.cu -o check && ./check > intrinsics-h200.jsonl
 */

import { writeFileSync } from "node:fs";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { cudaConformanceSource } from "../../test/support/cuda-conformance.ts";
import { readOptions } from "../support/options.ts";

const {
  positionals: [file = "check.cu"],
} = readOptions({ allowPositionals: true });
writeFileSync(
  file,
  cudaConformanceSource(
    INTRINSICS.filter((i) => i.language === "cuda"),
    1,
  ),
);
