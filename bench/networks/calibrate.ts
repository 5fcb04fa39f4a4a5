/**
 * @file Ranges of a network's values on seeded inputs, for building quantised networks (network/models/ranges.json).
 *
 *     npm run build && node dist/bench/networks/calibrate.js --networks resnet18,mobilenet-v1 > network/models/ranges.json
 *
 * Compiled references compute the values, so the machine affects them only by the order of sums. Takes minutes.
 */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { seededRandom } from "../../abstraction/random.ts";
import { lowerGraph } from "../../network/lower.ts";
import { runNetwork } from "../../network/run.ts";
import { elementsOf } from "../../network/value.ts";
import { evaluatorWith } from "../../runtime/reference/verify.ts";
import { valuesToObserve } from "../../test/support/quantised.ts";
import { cpuCompiler } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";
import { graphNamed, networksNamed } from "./built-network.ts";

const { values } = readOptions({ options: { networks: { type: "string", default: "resnet18" } } });
/** Images over which ranges are taken. */
const IMAGES = 2;
/** Significant digits of a range. */
const FIGURES = 6;

const compiler = await cpuCompiler();
const workdir = mkdtempSync(join(tmpdir(), "automap-calibrate-"));
const evaluate = evaluatorWith({ compiler, workdir });
const found: Record<string, Record<string, readonly number[]>> = {};
for (const name of networksNamed(values.networks)) {
  const graph = graphNamed(name);
  const wanted = valuesToObserve(graph);
  // Only outputs are returned, so the observed values become outputs.
  const program = lowerGraph({ ...graph, outputs: wanted });
  const ranges = new Map<string, [number, number]>();
  for (let image = 0; image < IMAGES; image++) {
    const random = seededRandom(100 + image);
    const inputs = Object.fromEntries(
      program.inputs.map((value) => {
        const drawn = Float64Array.from({ length: elementsOf(value.shape, value.name) }, () =>
          Math.fround(4 * random() - 2),
        );
        return [value.name, drawn];
      }),
    );
    for (const [value, elements] of await runNetwork(program, inputs, { evaluate })) {
      let [low, high] = ranges.get(value) ?? [0, 0];
      for (const element of Float64Array.from(elements)) {
        low = Math.min(low, element);
        high = Math.max(high, element);
      }
      ranges.set(value, [low, high]);
    }
  }
  const rounded = ([value, range]: [string, number[]]) =>
    [value, range.map((x) => Number(x.toPrecision(FIGURES)))] as const;
  found[name] = Object.fromEntries([...ranges].map(rounded));
}
console.log(JSON.stringify(found, null, 2));
rmSync(workdir, { recursive: true, force: true });
