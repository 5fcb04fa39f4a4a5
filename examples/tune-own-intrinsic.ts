/** @file An instruction that the table lacks, tuned, stored, found again, predicted, emitted and called. It needs an x86 CPU with AVX2. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  defineIntrinsic,
  emit,
  instantiate,
  interpret,
  load,
  nativeTarget,
  openDatabase,
  operatorNamed,
  parseDataTypes,
  predict,
  registerIntrinsic,
  showTrial,
  tune,
} from "automap";
import { computationOf } from "automap/db";
import { vpmaddwd } from "./vpmaddwd.ts";

// Registered, so that whatever reads a record of it finds the declaration. A program that loads the record registers it as well.
const own = registerIntrinsic(defineIntrinsic(vpmaddwd));
const matmul = instantiate(operatorNamed("matmul"), {
  parameters: { m: 16, n: 16, k: 16 },
  types: parseDataTypes("s16"),
});

const folder = mkdtempSync(join(tmpdir(), "automap-own-"));
const database = join(folder, "automap.db");
try {
  if (!nativeTarget().isa.includes(own.isa)) console.log(`this machine has no ${own.isa}: nothing is tuned`);
  else await tuneAndCall();
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function tuneAndCall(): Promise<void> {
  // Four kernels are enough to show it.
  const outcome = await tune(matmul, { intrinsics: [own], trials: 4, seed: 1, database });
  if (!("best" in outcome) || !outcome.best) throw new Error(`nothing was tuned: ${outcome.status}`);
  const { id, measurement, kernel } = outcome.best;
  console.log(
    `the fastest kernel holds ${kernel.promises} ${measurement.instructions > 0 ? "as promised" : "NOWHERE"}`,
  );

  const db = openDatabase(database, { readonly: true });
  const { candidate, workload, declaration } = showTrial(db, id);
  db.close();
  console.log(`recorded: ${candidate.intrinsic}, declaration ${declaration?.slice(0, 12)}`);
  const expected = predict({ computation: computationOf(workload), candidate });
  console.log(expected && expected.seconds > 0 ? "the model knows what it costs" : "the model knows NOTHING");

  const product = await load(id, { database });
  const a = Int16Array.from({ length: 256 }, (_, i) => (i % 9) - 4);
  const b = Int16Array.from({ length: 256 }, (_, i) => (i % 7) - 3);
  const c = new Int32Array(256);
  product.run(a, b, c);
  product.close();
  const files = emit(id, join(folder, "package"), { database });
  console.log(`emitted: ${files.filter((file) => file.endsWith(".cpp")).join(", ")}`);
  const wanted = interpret(matmul, { a, b });
  console.log(c.every((value, i) => value === wanted[i]) ? "equal to the equation" : "WRONG");
}
