/**
 * @file The mapper's time when warm: conv3d onto a 16x16x16 matrix product, the largest space of the AMOS operators.
 *
 *     npm run bench:mapper          rewrites bench/results/mapper.md
 */

import { writeFileSync } from "node:fs";
import { cpus, loadavg } from "node:os";
import { afterAll, bench } from "vitest";
import { parseEquation } from "../../abstraction/parse.ts";
import { intrinsicsNamed } from "../../intrinsics/index.ts";
import { lowerMapping } from "../../mapper/lower/plain.ts";
import { bindOperands } from "../../mapper/match/bind.ts";
import { mappings } from "../../mapper/match/enumerate.ts";
import { defineProblem } from "../../mapper/match/problem.ts";
import { validate } from "../../mapper/match/validate.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";

const RESULTS = new URL("../results/mapper.md", import.meta.url);
/** Milliseconds spent on each row, the first half to warm up. */
const BUDGET = 2000;

const [wmma] = intrinsicsNamed("wmma.m16n16k16.f32.f16");
if (!wmma) throw new Error("no wmma.m16n16k16.f32.f16");
const conv3d = instantiate(operatorNamed("conv3d"), { types: parseDataTypes("f16") });
const [binding] = bindOperands(conv3d, wmma, false).bindings;
if (!binding) throw new Error("conv3d does not bind");
const problem = defineProblem(conv3d, wmma, binding);
const { valid } = mappings(conv3d, wmma, { binding: "fixed" });
const gather = { rule: "gather", strict: false } as const;
const amos = { rule: "amos", strict: false } as const;

interface Row {
  readonly what: string;
  /** Things done in one run; times are for one of them. */
  readonly of?: number;
  readonly run: () => void;
}

const ROWS: readonly Row[] = [
  {
    what: "parse the equation",
    run: () => void parseEquation("out[n,k,o,p,q] += f32(in[n,c,o+t-1,p+r-1,q+s-1]) * f32(w[k,c,t,r,s])"),
  },
  { what: "bind the operands, either order", run: () => void bindOperands(conv3d, wmma, true) },
  {
    what: "validate, per matching, gather",
    of: valid.length,
    run: () => {
      for (const { matching } of valid) validate(problem, matching, gather);
    },
  },
  {
    what: "validate, per matching, amos",
    of: valid.length,
    run: () => {
      for (const { matching } of valid) validate(problem, matching, amos);
    },
  },
  {
    what: `whole gather space, operands fixed: ${valid.length} mappings`,
    run: () => void mappings(conv3d, wmma, { binding: "fixed" }),
  },
  {
    what: `whole gather space, either order: ${mappings(conv3d, wmma).valid.length} mappings`,
    run: () => void mappings(conv3d, wmma),
  },
  { what: "whole amos space: 180 of them", run: () => void mappings(conv3d, wmma, { rule: "amos" }) },
  {
    what: "lower, per mapping",
    of: valid.length,
    run: () => {
      for (const mapping of valid) lowerMapping(mapping);
    },
  },
];

const samples = new Map<string, number[]>(ROWS.map(({ what }) => [what, []]));

for (const { what, of = 1, run } of ROWS) {
  bench(
    what,
    () => {
      const start = performance.now();
      run();
      samples.get(what)?.push((performance.now() - start) / of);
    },
    { time: BUDGET, warmupTime: BUDGET },
  );
}

afterAll(() => {
  const rows = ROWS.map(({ what }) => {
    const all = samples.get(what) ?? [];
    // The first half is the warm-up.
    const warm = all.slice(all.length / 2).sort((a, b) => a - b);
    const at = (share: number): string => milliseconds(warm[Math.floor(share * (warm.length - 1))] ?? 0);
    return `| ${what} | ${at(0.5)} | ${at(0.1)} to ${at(0.9)} | ${warm.length} |`;
  });
  const [cpu] = cpus();
  const [load = 0] = loadavg();
  const text = `# The mapper's times

conv3d at its default sizes onto ${wmma.name}, one thread, warm. Made by \`npm run bench:mapper\`.

- ${cpu?.model.trim() ?? "unknown processor"}, ${cpus().length} cores, load ${load.toFixed(1)} during the run
- Node ${process.version}, ${new Date().toISOString().slice(0, 10)}

| what | median, ms | 10th to 90th percentile, ms | runs |
|---|---|---|---|
${rows.join("\n")}

Goal: the whole gather space, validation included, below 20 ms.
`;
  writeFileSync(RESULTS, text);
});

function milliseconds(time: number): string {
  return time < 0.1 ? time.toFixed(4) : time.toFixed(2);
}
