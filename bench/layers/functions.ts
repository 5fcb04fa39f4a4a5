/**
 * @file Element-wise functions beside those of the C library: nanoseconds an element of kernels from automap (plain loops, and the kernel that the
 * model likes best for a search), and of the same loop compiled by `g++ -O3 -march=native -ffast-math`, which calls libmvec's vectors where it has
 * the function.
 *
 *     npm run build
 *     node dist/bench/layers/functions.js
 *
 * The sides alternate in one process, and each number is the least of many rounds, so that others on the machine disturb less.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defineComputation } from "../../abstraction/computation.ts";
import { runChild } from "../../runtime/child.ts";
import { usableIntrinsics } from "../../session/kinds/choose.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { usualKernel } from "../../session/kinds/kinds.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { nativeTarget } from "../../targets/index.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    rows: { type: "string", default: "128" },
    columns: { type: "string", default: "512" },
  },
});

interface Subject {
  readonly name: string;
  readonly type: "f32" | "f64";
  /** Of an element `x` in the notation, and in C++. */
  readonly value: string;
  readonly peer: string;
}

const SUBJECTS: readonly Subject[] = [
  { name: "exp", type: "f32", value: "exp(x)", peer: "std::exp(x)" },
  { name: "log", type: "f32", value: "log(x)", peer: "std::log(x)" },
  { name: "tanh", type: "f32", value: "tanh(x)", peer: "std::tanh(x)" },
  { name: "erf", type: "f32", value: "erf(x)", peer: "std::erf(x)" },
  { name: "pow", type: "f32", value: "pow(x, 2.5)", peer: "std::pow(x, power)" },
  { name: "sqrt", type: "f32", value: "sqrt(x)", peer: "std::sqrt(x)" },
  { name: "floor", type: "f32", value: "floor(x)", peer: "std::floor(x)" },
  { name: "sigmoid", type: "f32", value: "1 / (1 + exp(-x))", peer: "1 / (1 + std::exp(-x))" },
  { name: "silu", type: "f32", value: "x / (1 + exp(-x))", peer: "x / (1 + std::exp(-x))" },
  {
    name: "gelu",
    type: "f32",
    value: "0.5 * x * (1 + erf(x * 0.70710678))",
    peer: "0.5f * x * (1 + std::erf(x * 0.70710678f))",
  },
  { name: "exp_f64", type: "f64", value: "exp(x)", peer: "std::exp(x)" },
  { name: "log_f64", type: "f64", value: "log(x)", peer: "std::log(x)" },
];

const machine = nativeTarget();
const folder = mkdtempSync(join(tmpdir(), "automap-functions-"));
const extents = { i: Number(values.rows), j: Number(values.columns) };
const count = extents.i * extents.j;

/** Flags of generated code (runtime/compiler.ts). */
const CODE =
  "-O3 -fno-gcse -std=c++17 -fno-math-errno -fno-trapping-math -ffp-contract=off -fwrapv -march=native -mprefer-vector-width=512";
const compile = (name: string): string =>
  `g++ ${CODE} -Dautomap_run=run_${name} -Dautomap_prepare=prepare_${name} -Dautomap_workspace_bytes=bytes_${name} -Dautomap_scratch_bytes=scratch_${name} -Dautomap_phases=phases_${name} -c ${name}.cpp`;

const commands: string[] = [];
for (const { name, type, value } of SUBJECTS) {
  const computation = defineComputation({
    equation: `y[i,j] = ${value.replaceAll(/\bx\b/g, "x[i,j]")}`,
    extents,
    tensors: { x: type },
  });
  const kernels = [["loops", usualKernel(computation, machine)] as const];
  const ranked = rankByModel(computation, { machine, intrinsics: usableIntrinsics(machine, "c++"), count: 1 });
  const best = "refused" in ranked ? undefined : ranked[0];
  if (best) kernels.push(["mapped", kernelFor(computation, best.candidate, machine)] as never);
  for (const [kind, kernel] of kernels) {
    writeFileSync(join(folder, `${name}_${kind}.cpp`), kernel.source);
    commands.push(compile(`${name}_${kind}`));
  }
}

const C = { f32: "float", f64: "double" } as const;
writeFileSync(
  join(folder, "peers.cpp"),
  [
    "#include <cmath>",
    "extern float power;",
    ...SUBJECTS.map(
      ({ name, type, peer }) =>
        `void peer_${name}(${C[type]}* y, const ${C[type]}* in, long n) { for (long i = 0; i < n; i++) { const ${C[type]} x = in[i]; y[i] = ${peer}; } }`,
    ),
  ].join("\n"),
);
writeFileSync(
  join(folder, "main.cpp"),
  `#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
${SUBJECTS.map(({ name, type }) =>
  [
    ...["loops", "mapped"].map(
      (kind) => `extern "C" void run_${name}_${kind}(void*, void* const*, int, int, int);
extern "C" void prepare_${name}_${kind}(void*, const void* const*);`,
    ),
    `void peer_${name}(${C[type]}*, const ${C[type]}*, long);`,
  ].join("\n"),
).join("\n")}
float power = 2.5f;
static double now(void) { timespec t; clock_gettime(CLOCK_MONOTONIC_RAW, &t); return t.tv_sec * 1e9 + t.tv_nsec; }
template <class A, class B, class D> static void compare(const char* name, A loops, B mapped, D peer) {
  double best[3] = {1e30, 1e30, 1e30};
  for (int round = 0; round < 300; round++) {
    const double begun = now(); loops();
    const double second = now(); mapped();
    const double third = now(); peer();
    const double times[3] = {second - begun, third - second, now() - third};
    for (int i = 0; i < 3; i++) if (times[i] < best[i]) best[i] = times[i];
  }
  printf("| %s | %.3f | %.3f | %.3f | %.2f |\\n", name, best[0] / ${count}, best[1] / ${count}, best[2] / ${count}, best[0] / best[2]);
}
int main() {
  void *const workspace = aligned_alloc(64, 1 << 24), *const scratch = aligned_alloc(64, 1 << 24);
  void *const in = aligned_alloc(64, 8 * ${count}), *const out = aligned_alloc(64, 8 * ${count});
  const long n = ${count};
  puts("| function | plain loops, ns an element | mapped | g++ -ffast-math | loops / g++ |\\n|---|---|---|---|---|");
${SUBJECTS.map(({ name, type }) => {
  const T = C[type];
  const run = (kind: string): string =>
    `[&] { void* const t[3] = {out, in, scratch}; run_${name}_${kind}(workspace, t, 0, 0, 1); }`;
  return `  for (long i = 0; i < n; i++) ((${T}*)in)[i] = (${T})(0.001 + 4.0 * ((i * 2654435761u) % 1000003) / 1000003);
  { const void* const t[2] = {out, in}; prepare_${name}_loops(workspace, t); prepare_${name}_mapped(workspace, t); }
  compare("${name}", ${run("loops")}, ${run("mapped")}, [&] { peer_${name}((${T}*)out, (const ${T}*)in, n); });`;
}).join("\n")}
}
`,
);
commands.push(
  "g++ -O3 -march=native -mprefer-vector-width=512 -ffast-math -c peers.cpp",
  "g++ -O2 -o functions main.cpp *.o -lmvec -lm",
  "./functions",
);
writeFileSync(join(folder, "run.sh"), `set -e\ncd "$(dirname "$0")"\n${commands.join("\n")}\n`);
const done = await runChild(["sh", join(folder, "run.sh")], { timeLimitMs: 300_000 });
process.stdout.write(done.status === "ok" ? done.stdout : `${done.stdout}${done.stderr}\n`);
rmSync(folder, { recursive: true });
