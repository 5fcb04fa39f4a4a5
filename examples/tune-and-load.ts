/** @file A matrix product tuned for this machine, then called like any function; its numbers beside the equation's. */

import { instantiate, interpret, load, operatorNamed, parseDataTypes, tune } from "automap";

const matmul = instantiate(operatorNamed("matmul"), {
  parameters: { m: 16, n: 16, k: 16 },
  types: parseDataTypes("f32"),
});

// Six kernels are enough to show it; a real search measures some hundreds, and "automap.db" keeps them.
const outcome = await tune(matmul, { trials: 6, seed: 1, database: ":memory:" });
if (outcome.status === "environment") throw new Error(outcome.problem.what);
if (outcome.status === "nothing-maps") throw new Error(`no instruction of this machine computes ${matmul.name}`);
if (!outcome.best) throw new Error(`every kernel failed: ${JSON.stringify(outcome.failed)}`);
const { kernel, measurement } = outcome.best;
console.log(`${outcome.trials.length} kernels, the fastest in ${(measurement.median * 1e6).toFixed(2)} us`);
console.log(kernel.source.split("\n").slice(0, 3).join("\n"));

const product = await load(outcome.best);
const a = Float32Array.from({ length: 256 }, (_, i) => i % 7);
const b = Float32Array.from({ length: 256 }, (_, i) => i % 5);
const c = new Float32Array(256);
product.run(a, b, c);
product.close();

const wanted = interpret(matmul, { a, b });
console.log(c.every((value, i) => value === wanted[i]) ? "equal to the equation" : "WRONG");
