/**
 * @file The program that runs rows of the intrinsics table on an NVIDIA GPU against their equations.
 *
 *     nvcc -gencode=arch=compute_90a,code=sm_90a -o check check.cu && ./check
 *     ./check 12      begins at row 12, because a fault loses the context and with it all later rows
 */

import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { apart, code, type SourceText, spell, stringLiteral, trustedCode } from "../../abstraction/source-text.ts";
import { conformanceData, preludesOf, rowFunction, rowTable } from "../../runtime/conformance.ts";
import { emulationFolder } from "../../runtime/emulation.ts";

/**
 * A self-contained CUDA program that runs the table's CUDA rows on the local GPU, each on one warp or warpgroup. It
 * contains operands and expected results. It prints one JSON line for each row, as lines of `CheckResult`. Without a GPU
 * it says so and exits with 2. Rows need sm_80 or newer.
 */
export function cudaConformanceSource(rows: readonly Intrinsic[], seed: number): SourceText {
  const cuda = rows.filter((row) => row.language === "cuda");
  const data = Buffer.from(conformanceData(cuda, seed)).toString("base64");
  const header = readFileSync(join(emulationFolder(), "conformance.h"), "utf8");
  const text = code`// Runs the CUDA rows of automap's intrinsics table against their equations.
//     nvcc -gencode=arch=compute_90a,code=sm_90a -o check check.cu && ./check
${apart(trustedCode(header))}
${preludesOf(cuda)}
${cuda.map((row, i) => rowFunction(row, code`row_${i}`))}
#line 1 "program"
${rowTable(cuda)}
static const char* run_row(const Row& row, unsigned char* frame, unsigned bytes) {
  static unsigned char* device = nullptr;
  static unsigned held = 0;
  cudaError_t error = cudaSuccess;
  if (bytes > held) {
    cudaFree(device);
    error = cudaMalloc(&device, held = bytes);
  }
  if (!error) error = cudaMemcpy(device, frame, bytes, cudaMemcpyHostToDevice);
  if (!error) {
    row.run<<<1, row.threads>>>(device);
    error = cudaGetLastError();
  }
  if (!error) error = cudaMemcpy(frame, device, bytes, cudaMemcpyDeviceToHost);
  return error ? cudaGetErrorString(error) : nullptr;
}

static unsigned char* decode(const char* const* lines, int count) {
  size_t size = 0, at = 0;
  for (int i = 0; i < count; i++) size += strlen(lines[i]);
  unsigned char* bytes = (unsigned char*)malloc(size);
  unsigned bits = 0, held = 0;
  for (int i = 0; i < count; i++)
    for (const char* c = lines[i]; *c && *c != '='; c++) {
      unsigned digit = *c >= 'a' ? *c - 'a' + 26 : *c >= 'A' ? *c - 'A' : *c >= '0' ? *c - '0' + 52 : *c == '+' ? 62 : 63;
      bits = bits << 6 | digit;
      held += 6;
      if (held >= 8) bytes[at++] = (unsigned char)(bits >> (held -= 8));
    }
  return bytes;
}

/* Operands and expected results, base64. */
static const char* const text[] = {
${(data.match(/.{1,1024}/g) ?? []).map((line) => code`${stringLiteral(line)},`)}
};
int main(int argc, char** argv) {
  int devices = 0;
  if (cudaError_t error = cudaGetDeviceCount(&devices)) {
    fprintf(stderr, "no GPU: %s\\n", cudaGetErrorString(error));
    return 2;
  }
  return check_rows(rows, row_count, decode(text, sizeof text / sizeof *text), argc > 1 ? atoi(argv[1]) : 0);
}
`;
  return spell(text, "cuda");
}
