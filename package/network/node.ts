/**
 * @file The Node package of a network: network.json describes it, index.js calls its library through koffi, and index.d.ts types it.
 *
 *     import { load } from "./resnet18/index.js";
 *     const { fc } = load().run({ image });
 */

import {
  type Code,
  code,
  commentText,
  identifier,
  jsonText,
  lines,
  type SourceText,
  spell,
} from "../../abstraction/source-text.ts";
import { elementsOf, type Value } from "../../network/value.ts";
import type { NetworkDescription, NetworkTensor } from "../files/network-binding.js";
import { assetText } from "../portable.ts";
import { KOFFI } from "../wrapper.ts";
import { borderArray } from "./border.ts";
import type { NetworkParts } from "./subject.ts";

/** Version of network.json. */
export const NETWORK_VERSION = 2;

const tensorOf = (name: string, { type, shape }: Value): NetworkTensor => ({
  name,
  dtype: type,
  array: borderArray(type),
  shape,
  elements: elementsOf(shape, name),
});

/** CPU features that each kernel needs; null for plain loops. */
export const featuresOf = ({ subject, kernels }: NetworkParts): NetworkDescription["kernels"] =>
  subject.gpu ? [] : kernels.map(({ tuned }) => tuned?.features ?? null);

export function describeNetwork(parts: NetworkParts): NetworkDescription {
  const { name, threads, program, gpu } = parts.subject;
  return {
    name,
    threads,
    target: gpu ? "cuda" : "cpu",
    kernels: featuresOf(parts),
    inputs: program.inputs.map((value) => tensorOf(value.name, value)),
    outputs: program.outputs.map(({ name: output, value }) => tensorOf(output, value)),
  };
}

/** The text of every file for Node. @param library path of the library within the package */
export function nodeFiles(parts: NetworkParts, library: string): readonly (readonly [string, SourceText])[] {
  const description = describeNetwork(parts);
  const { name } = parts.subject;
  const facts = { schemaVersion: NETWORK_VERSION, ...description, provenance: parts.subject.provenance };
  const manifest = {
    name: name.toLowerCase(),
    version: "1.0.0",
    private: true,
    type: "module",
    exports: { ".": { types: "./index.d.ts", default: "./index.js" } },
    scripts: { build: "sh build.sh" },
    dependencies: { koffi: KOFFI },
  };
  const text = (of: Code): SourceText => spell(of, "typescript");
  return [
    ["network.json", text(code`${jsonText(facts, 2)}\n`)],
    ["package.json", text(code`${jsonText(manifest, 2)}\n`)],
    ["index.js", text(indexText(parts, library))],
    ["index.d.ts", text(indexTypes(description))],
    ...(["binding.js", "binding.d.ts", "network-binding.js", "network-binding.d.ts"] as const).map(
      (file) => [file, text(assetText(file))] as const,
    ),
  ];
}

const indexText = (
  { subject }: NetworkParts,
  library: string,
): Code => code`/** Calls ${identifier(subject.name)} from Node; see index.d.ts. */

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import koffi from "koffi";
import { KernelError } from "./binding.js";
import { bindNetwork } from "./network-binding.js";

export { KernelError };

export const description = JSON.parse(readFileSync(new URL("./network.json", import.meta.url), "utf8"));

export function load(options = {}) {
  const file = options.library ?? fileURLToPath(new URL(${jsonText(`./${library}`)}, import.meta.url));
  if (!existsSync(file)) throw new KernelError(\`\${file} is not there\`, "build it first: sh build.sh");
  return bindNetwork(koffi, file, description, options);
}
`;

function indexTypes({ name, inputs, outputs }: NetworkDescription): Code {
  const fields = (tensors: readonly NetworkTensor[]): Code =>
    lines(
      tensors.map(
        ({ name: word, array, shape, elements }) =>
          code`  /** [${commentText(shape.join(","))}], ${elements} elements, row-major */\n  readonly ${jsonText(word)}: ${identifier(array)};`,
      ),
    );
  return code`/** The network ${identifier(name)}. */

import type { BindNetworkOptions, BoundNetwork, NetworkDescription } from "./network-binding.js";

export { KernelError } from "./binding.js";

export declare const description: NetworkDescription;

export interface Inputs {
${fields(inputs)}
}

export interface Outputs {
${fields(outputs)}
}

export interface LoadOptions extends BindNetworkOptions {
  /** The shared library; the one that build.sh makes by default. */
  readonly library?: string;
}

/** @throws KernelError when the library is not built, or this CPU cannot run it */
export declare function load(options?: LoadOptions): BoundNetwork<Inputs, Outputs>;
`;
}
