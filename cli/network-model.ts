/**
 * @file The network that a command line names: a file, or a network that is built here.
 *
 *     automap network show resnet18
 *     automap network show model.onnx --dim batch=1 --constant shape=shape.pb
 */

import { existsSync } from "node:fs";
import type { Command } from "commander";
import { z } from "zod";
import { suggestion, UsageError } from "../abstraction/error.ts";
import { MODELS } from "../network/models/index.ts";
import { readOnnx, readTensor } from "../network/onnx/read.ts";
import { type OpenNetwork, openGraph } from "../session/network.ts";

export const modelOptions = z.object({
  dim: z.array(z.string()).default([]),
  constant: z.array(z.string()).default([]),
});

const collect = (word: string, before: readonly string[] = []): string[] => [...before, word];

export function addModel(command: Command): Command {
  return command
    .argument("<model>", `a file, model.onnx, or a network built here: ${Object.keys(MODELS).join(", ")}`)
    .option("--dim <name=size>", "size of a dimension that the model leaves open; may be given several times", collect)
    .option("--constant <name=file>", "a tensor (.pb) for an input that is always the same, such as a shape", collect);
}

/** @throws UsageError when there is no such network, or it is not supported */
export function openModel(word: string, { dim, constant }: z.infer<typeof modelOptions>): OpenNetwork {
  const pairs = (words: readonly string[], option: string): (readonly [string, string])[] =>
    words.map((given) => {
      const [, name = "", value = ""] = /^([^=]+)=(.+)$/.exec(given) ?? [];
      if (name === "") throw new UsageError(`${option} "${given}" has no =`, { hint: `for example ${option} batch=1` });
      return [name, value] as const;
    });
  const dims = Object.fromEntries(pairs(dim, "--dim").map(([name, size]) => [name, sizeOf(name, size)]));
  const constants = new Map(pairs(constant, "--constant").map(([name, file]) => [name, readTensor(file)]));
  const build = Object.hasOwn(MODELS, word) && !existsSync(word) ? MODELS[word] : undefined;
  if (!build && !existsSync(word) && !word.includes("."))
    throw new UsageError(`there is no network "${word}"`, {
      hint: `${suggestion(word, Object.keys(MODELS))}; or a file, model.onnx`,
    });
  return openGraph(build ? build() : readOnnx(word), { dims, constants });
}

function sizeOf(name: string, text: string): number {
  if (!/^[1-9]\d{0,14}$/.test(text))
    throw new UsageError(`--dim ${name}=${text}: a size is a whole number, 1 at least`);
  return Number(text);
}
