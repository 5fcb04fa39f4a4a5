/**
 * @file Teaches the trees that correct the models of GPUs, and writes them.
 *
 *     npm run build
 *     node dist/bench/model/learn.js bench/trials/cuda-*.jsonl.gz --out perfmodel/learnt.json
 *
 * Which files taught them stands in bench/results/trials.md, with what they are worth on operators that they were not taught by (accuracy.ts). They are
 * taught anew when a model or its features change.
 */

import { writeFileSync } from "node:fs";
import { isMappedOnGpu } from "../../abstraction/candidate.ts";
import { attempt, UsageError } from "../../abstraction/error.ts";
import { choiceOnGpu, partsOnGpu } from "../../session/kinds/gpu-kinds.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { recordedCases } from "../../test/support/recorded-trials.ts";
import { readOptions } from "../support/options.ts";
import { type Example, treesOfModels } from "./trees.ts";

const { values, positionals: files } = readOptions({
  allowPositionals: true,
  options: { out: { type: "string" } },
});

const examples = files.flatMap((file) =>
  recordedCases(file).flatMap(({ name, computation, target, trials }) =>
    trials.flatMap(({ candidate, median }): Example[] => {
      if (!isMappedOnGpu(candidate)) return [];
      const machine = nvidiaTarget(target);
      const costs = attempt(() => partsOnGpu(choiceOnGpu(computation, candidate, machine), machine));
      return costs ? [{ model: candidate.kind, of: `${file} ${name}`, costs, measuredSeconds: median }] : [];
    }),
  ),
);
if (examples.length === 0) throw new UsageError("no kernels of blocks or threads: name files of bench/trials");
const text = `${JSON.stringify(Object.fromEntries(treesOfModels(examples)))}\n`;
console.error(`${examples.length} kernels, ${text.length} bytes`);
if (values.out === undefined) console.log(text);
else writeFileSync(values.out, text);
