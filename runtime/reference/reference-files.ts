/**
 * @file Writes the inputs and expected results of a reference as files that the measuring program reads.
 *
 *     const filesOf = referenceFiles(new OwnFolder("/tmp/runner-1"));
 *     await filesOf(reference)      [{ name: "random", expected: "/tmp/runner-1/reference-Ab3xYz/random.expected", ... }], written once
 */

import { memoised } from "../../abstraction/collections.ts";
import { inputsOf } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import { onThisMachine } from "../environment.ts";
import type { SetFiles } from "../harness/run.ts";
import type { OwnFolder } from "../own-folder.ts";
import { checkedIn, type Reference } from "./verify.ts";

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
  const inputs = inputsOf(reference.computation);
  // Sets of the same inputs, whose answers are of several tensors, share their files.
  const written = new Map<Uint8Array, Promise<string>>();
  return Promise.all(
    reference.sets.map(async ({ name, of, ...set }) => {
      const called = of ? `${name}-${of.name}` : name;
      const checked = of ? checkedIn(of) : reference.checked;
      return {
        name,
        output: of ? 1 + inputs.findIndex((tensor) => tensor.name === of.name) : 0,
        checked: checked && (await write(`${called}.checked`, checked)),
        expected: await write(`${called}.expected`, bytesOfNumbers(set.expected)),
        tolerance: await write(`${called}.tolerance`, bytesOfNumbers(set.tolerance)),
        ...(set.looser && { looser: await write(`${called}.looser`, bytesOfNumbers(set.looser)) }),
        inputs: await Promise.all(
          inputs.map((tensor, i) => {
            const bytes =
              set.inputs[tensor.name] ??
              internal(`the reference of ${reference.computation.name} lacks ${tensor.name}`);
            const file = written.get(bytes) ?? write(`${called}.input${i}`, bytes);
            written.set(bytes, file);
            return file;
          }),
        ),
      };
    }),
  );
}

function bytesOfNumbers(values: Float64Array): Uint8Array {
  return new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
}
