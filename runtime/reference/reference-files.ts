/**
 * @file Writes the inputs and expected results of a reference as files that the measuring program reads.
 *
 *     const filesOf = referenceFiles(new OwnFolder("/tmp/runner-1"));
 *     await filesOf(reference)      [{ name: "random", expected: "/tmp/runner-1/reference-Ab3xYz/random.expected", ... }], written once
 */

import { inputsOf } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import { memoised } from "../../abstraction/memoised.ts";
import { onThisMachine } from "../environment.ts";
import type { SetFiles } from "../harness/run.ts";
import type { OwnFolder } from "../own-folder.ts";
import type { Reference } from "./verify.ts";

/**
 * Writes each reference that has no files yet into its own folder, when first requested.
 * @returns the files of its sets; rejected with an EnvironmentError if the machine cannot store them, as on a full disk
 */
export function referenceFiles(folder: OwnFolder): (reference: Reference) => Promise<readonly SetFiles[]> {
  // Weak, since a runner may outlive many searches, and a reference's memory should be freed with its search.
  return memoised((reference) => onThisMachine("writing inputs", () => writeReference(reference, folder)));
}

async function writeReference(reference: Reference, folder: OwnFolder): Promise<readonly SetFiles[]> {
  const there = reference.sets.flatMap(({ files }) => files ?? []);
  if (there.length === reference.sets.length) return there;
  const { write } = await folder.inside();
  const checked = reference.checked && (await write("checked", reference.checked));
  return Promise.all(
    reference.sets.map(async (set) => ({
      name: set.name,
      checked,
      expected: await write(`${set.name}.expected`, bytesOfNumbers(set.expected)),
      tolerance: await write(`${set.name}.tolerance`, bytesOfNumbers(set.tolerance)),
      inputs: await Promise.all(
        inputsOf(reference.computation).map(({ name }, i) => {
          const bytes = set.inputs[name] ?? internal(`the reference of ${reference.computation.name} lacks ${name}`);
          return write(`${set.name}.input${i}`, bytes);
        }),
      ),
    })),
  );
}

function bytesOfNumbers(values: Float64Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
