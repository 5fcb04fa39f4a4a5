/** @file `automap network emit`: a network as one library. */

import type { z } from "zod";
import { defined } from "../abstraction/collections.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { describeNetwork, networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { findCompiler } from "../runtime/compiler.ts";
import { findNvcc } from "../runtime/run/cuda-device.ts";
import { cudaJudge } from "../runtime/run/cuda-judge.ts";
import { keepNetwork } from "../session/network/load-network.ts";
import { networkSubject } from "../session/network/network.ts";
import { proveNetwork } from "../session/network/prove-network.ts";
import { writePackage } from "../session/package/package-folder.ts";
import { sealedPackage } from "../session/package/sealed-package.ts";
import { chosenFor } from "./network-choices.ts";
import { type emitOptions, emitSchema } from "./network-documents.ts";
import type { OpenedFor } from "./network-model.ts";
import { EXIT, type ExitCode, print, printJson, say, showStatus } from "./output.ts";

export async function emit({ name, gpu, opened }: OpenedFor, given: z.infer<typeof emitOptions>): Promise<ExitCode> {
  const { program, choices, chains } = await chosenFor(opened.program, given, gpu);
  const subject = networkSubject(program, choices, {
    chains,
    name: given.name ?? name,
    threads: given.threads,
    gpu,
  });
  const files = networkFiles(subject);
  const parts = partsOfNetwork(subject);
  writePackage(given.to, sealedPackage(files), given.force);
  let proof: string | undefined;
  let code: ExitCode = EXIT.ok;
  if (given.verify) {
    const compiler = await findCompiler();
    if (compiler.status === "environment") {
      say(`automap: ${compiler.what}\n  the library is written but not proved\n  ${compiler.remedy}`);
      return EXIT.environment;
    }
    const nvcc = gpu ? await findNvcc() : undefined;
    if (nvcc && "status" in nvcc) throw new EnvironmentError(nvcc);
    // Without a GPU the library does not run, which the proof then says.
    const judge = nvcc ? await cudaJudge() : undefined;
    const proved = await proveNetwork(given.to, parts, compiler, {
      // Half precision changes outputs more than an error in operator fusion would, so the comparison would show nothing.
      ...(nvcc ? { builder: { command: [nvcc.path] } } : { asRead: opened.plain }),
      ...(judge && !("status" in judge) && { judge }),
      onBuilt: (done, of) => showStatus(`building  ${done} of ${of}`),
      onStep: (name, place, of) => showStatus(`proving  ${place} of ${of}  ${name}`),
    });
    showStatus("");
    if (proved.status === "right" && !gpu) await keepNetwork(given.to, describeNetwork(parts), files, compiler);
    proof =
      proved.status === "right"
        ? `right: ${proved.steps} steps`
        : proved.status === "wrong"
          ? `wrong: ${proved.step}: ${proved.said}`
          : `${proved.status}: ${proved.said}`;
    code = proved.status === "right" ? EXIT.ok : proved.status === "wrong" ? EXIT.verification : EXIT.failed;
  }
  const { memory, weights } = parts;
  if (given.json)
    printJson(emitSchema, {
      folder: given.to,
      name: subject.name,
      files: [...files.keys()],
      steps: parts.steps.length,
      arenaBytes: memory.bytes,
      weightBytes: weights.length,
      ...defined({ proof, widened: opened.widened }),
    });
  else {
    const calls = parts.steps.filter(({ kernel }) => kernel !== undefined).length;
    print(
      `${subject.name} in ${given.to}: ${parts.steps.length} steps, ${calls} calls of ${parts.kernels.length} kernels`,
    );
    print(
      `  values between steps ${mebibytes(memory.bytes)}, ${mebibytes(memory.apart)} side by side; weights ${mebibytes(weights.length)}`,
    );
    if (proof !== undefined) print(`  ${proof}`);
  }
  if (code !== EXIT.ok && given.json) say(`automap: the library is ${proof}`);
  return code;
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
