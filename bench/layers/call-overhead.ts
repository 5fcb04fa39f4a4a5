/**
 * @file The overhead of a call from Node: a loaded kernel called from JavaScript, beside the same calls from a C loop.
 *
 *     npm run build
 *     node dist/bench/layers/call-overhead.js
 *
 * Each row is the least of many rounds, in nanoseconds a call; the two sides alternate by round. `beyond` is their
 * difference: argument checks, koffi and the return. The first rows are koffi alone.
 */

import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import koffi from "koffi";
import type { Computation } from "../../abstraction/computation.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { type BoundKernel, bind, buildOf, descriptionOf, librarySources, packageName } from "../../package/index.ts";
import { indent, table } from "../../report/text.ts";
import { runChild } from "../../runtime/child.ts";
import { shareCores } from "../../runtime/cores.ts";
import { kernelFor } from "../../session/kinds/kernel.ts";
import { compileInFolder } from "../../session/package/emit.ts";
import { rankByModel } from "../../session/tune/rank.ts";
import { cpuCompiler, cpuName } from "../support/frame.ts";

const ROUNDS = 60;
const ROUND_NANOSECONDS = 2e6;

const SUBJECTS: readonly (readonly [string, string, Readonly<Record<string, number>>])[] = [
  ["matmul", "f32", { m: 1, n: 16, k: 1 }],
  ["conv2d", "u8s8", { c: 16, k: 16, h: 3, w: 3 }],
  ["conv2d", "f32", { c: 16, k: 16, h: 8, w: 8 }],
];

/** Of the parameters of these kernels, by the names in their descriptions. */
const ARRAYS = { Uint8Array, Int8Array, Int32Array, Float32Array };

const compiler = await cpuCompiler();
const folder = mkdtempSync(join(tmpdir(), "automap-call-"));
mkdirSync(join(folder, "build"));
try {
  const rows = await koffiAlone();
  for (const subject of SUBJECTS) rows.push(await kernelRow(subject));
  console.log(`${cpuName()}, Node ${process.version}, ${compiler.version}; nanoseconds a call`);
  console.log(indent(table([["", "from Node", "from C", "beyond"], ...rows])));
} finally {
  rmSync(folder, { recursive: true, force: true });
}

/** The least nanoseconds a call over all rounds; the sides alternate. */
function least(sides: readonly ((calls: number) => void)[]): number[] {
  const timed = (side: (calls: number) => void, calls: number): number => {
    const begun = process.hrtime.bigint();
    side(calls);
    return Number(process.hrtime.bigint() - begun);
  };
  const calls = sides.map((side) => {
    let count = 64;
    while (timed(side, count) < ROUND_NANOSECONDS) count *= 2;
    return count;
  });
  const best = sides.map(() => Number.POSITIVE_INFINITY);
  for (let round = 0; round < ROUNDS; round++) {
    for (const [i, side] of sides.entries())
      best[i] = Math.min(best[i] ?? 0, timed(side, calls[i] ?? 1) / (calls[i] ?? 1));
  }
  return best;
}

async function koffiAlone(): Promise<string[][]> {
  writeFileSync(
    join(folder, "empty.c"),
    "void empty(void) {}\nint four(void* a, void* b, void* c, void* d) { return !a + !b + !c + !d; }\n",
  );
  const library = await shared("empty", ["-x", "c"]);
  const empty = library.func("void empty()");
  const four = library.func("int four(void* a, void* b, void* c, void* d)");
  const array = new Float32Array(1024);
  const times = least([
    (calls) => {
      for (let i = 0; i < calls; i++) empty();
    },
    (calls) => {
      for (let i = 0; i < calls; i++) four(array, array, array, array);
    },
  ]);
  return [
    ["an empty function through koffi", ns(times[0]), "", ""],
    ["four typed arrays through koffi", ns(times[1]), "", ""],
  ];
}

async function kernelRow([operator, dtype, parameters]: (typeof SUBJECTS)[number]): Promise<string[]> {
  const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(dtype) });
  const { kernel, loop } = await bound(computation);
  const arrays = kernel.parameters.map(
    ({ array, elements }) => new ARRAYS[array as keyof typeof ARRAYS](elements), // these kernels have no other types
  );
  const [a, b, c] = arrays;
  if (!a || !b || !c) throw new Error("internal: a kernel of two inputs");
  const [node = 0, native = 0] = least([
    (calls) => {
      for (let i = 0; i < calls; i++) kernel.run(a, b, c);
    },
    (calls) => loop(calls, arrays),
  ]);
  const shape = Object.entries(parameters).map(([name, value]) => `${name} ${value}`);
  kernel.close();
  return [`${operator} ${dtype}, ${shape.join(", ")}`, ns(node), ns(native), ns(node - native)];
}

/** A kernel bound by `load`, and a C loop over the same library. */
async function bound(
  computation: Computation,
): Promise<{ kernel: BoundKernel; loop: (calls: number, arrays: readonly unknown[]) => void }> {
  const ranked = rankByModel(computation, { count: 1 });
  const best = "refused" in ranked ? undefined : ranked[0];
  if (!best) throw new Error(`nothing maps ${computation.name}`);
  const tuned = kernelFor(computation, best.candidate);
  const name = `${packageName(computation.name)}_${computation.axes.reduce((product, axis) => product * axis.extent, 1)}`;
  const subject = { name, computation, tuned, threads: 1, provenance: [] };
  for (const [file, text] of librarySources(subject)) writeFileSync(join(folder, file), text);
  const { objects, library } = buildOf({ name, threads: 1, features: tuned.features });
  for (const steps of [objects, [library]]) {
    const problem = await compileInFolder(folder, steps, compiler, shareCores());
    if (problem !== undefined) throw new Error(problem);
  }
  const kernel = bind(koffi, join(folder, library.output), descriptionOf(subject));
  const constants = descriptionOf(subject).parameters.map((p) => p.role === "constant");
  const run = constants.flatMap((constant, i) => (constant ? [] : [`(void*)t[${i}]`])).join(", ");
  const prepare = constants.flatMap((constant, i) => (constant ? [`(void*)t[${i}]`] : [])).join(", ");
  writeFileSync(
    join(folder, `${name}_loop.c`),
    `extern int ${name}_create(void**, int), ${name}_run(), ${name}_prepare();
extern void ${name}_destroy(void*);
static void* plan;
int loop(long calls, void* t0, void* t1, void* t2) {
  void* t[] = {t0, t1, t2};
  if (!plan) { if (${name}_create(&plan, 1)) return 1; ${prepare === "" ? "" : `${name}_prepare(plan, ${prepare});`} }
  for (long i = 0; i < calls; i++) if (${name}_run(plan, ${run})) return 1;
  return 0;
}
`,
  );
  const looped = await shared(`${name}_loop`, ["-x", "c", "-std=gnu99"], [join(folder, library.output)]);
  const native = looped.func("int loop(long calls, void* a, void* b, void* c)");
  const loop = (calls: number, arrays: readonly unknown[]): void => {
    if (native(calls, ...arrays) !== 0) throw new Error(`${name} failed`);
  };
  return { kernel, loop };
}

async function shared(
  name: string,
  flags: readonly string[],
  libraries: readonly string[] = [],
): Promise<ReturnType<typeof koffi.load>> {
  const output = join(folder, `${name}.so`);
  const source = join(folder, `${name}.c`);
  const words = ["-O2", "-shared", "-fPIC", ...flags, source, "-x", "none", ...libraries, "-o", output];
  const command = [...compiler.command, ...words];
  const run = await runChild(command, { timeLimitMs: 60_000 });
  if (run.status !== "ok") throw new Error(run.stderr);
  return koffi.load(output);
}

function ns(value: number | undefined): string {
  return value === undefined ? "" : `${value.toFixed(0)} ns`;
}
