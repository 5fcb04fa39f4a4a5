/**
 * @file The Node package: kernel.json describes it, index.js calls it through koffi, and index.d.ts types it.
 *
 *     import { load } from "./conv2d/index.js";
 *     const conv2d = load();
 *     conv2d.run(input, weight, output);
 */

import { equationText } from "../abstraction/computation.ts";
import { printExpr } from "../abstraction/expression.ts";
import {
  type Code,
  code,
  commentText,
  identifier,
  jsonText,
  lines,
  list,
  type SourceText,
  type Spelling,
  spell,
  stringLiteral,
} from "../abstraction/source-text.ts";
import { sizesText } from "../abstraction/text.ts";
import { libraryFile } from "./build.ts";
import type { KernelDescription } from "./files/binding.js";
import { ARRAYS, describeTensor, type EmitSubject, parametersOf } from "./subject.ts";

/** koffi's interface has been stable since its third major version. */
export const KOFFI = "^3.3.4";

/** @param words spelling of the package's parameters (index.ts) */
export function descriptionOf({ name, computation, tuned, threads }: EmitSubject, words: Spelling): KernelDescription {
  return {
    name,
    equation: equationText(computation),
    parameters: parametersOf(computation).map(({ name: parameter, role, elements, tensor }) => ({
      name: words.word(parameter),
      role,
      dtype: tensor.dtype,
      array: ARRAYS[tensor.dtype],
      elements,
      shape: sizesText(tensor.dims),
      storage: printExpr(tensor.storage, "formula"),
    })),
    ...(tuned && {
      tuned: {
        features: tuned.features,
        ...(tuned.promises === undefined ? {} : { instruction: tuned.promises }),
        threads,
      },
    }),
  };
}

/** Version of kernel.json. */
export const PACKAGE_VERSION = 1;

export function descriptionText(subject: EmitSubject, words: Spelling): SourceText {
  const { record, provenance } = subject;
  const description = descriptionOf(subject, words);
  const facts = { schemaVersion: PACKAGE_VERSION, ...description, ...(record && { record }), provenance };
  return spell(code`${jsonText(facts, 2)}\n`, "typescript");
}

export function packageJsonText({ name, computation }: EmitSubject): SourceText {
  const manifest = {
    name: name.toLowerCase(),
    version: "1.0.0",
    private: true,
    description: `${name}: ${equationText(computation)}`,
    type: "module",
    exports: { ".": { types: "./index.d.ts", default: "./index.js" } },
    scripts: { build: "sh build.sh", test: `build/${name}_test` },
    dependencies: { koffi: KOFFI },
  };
  return spell(code`${jsonText(manifest, 2)}\n`, "typescript");
}

export function indexText({ name }: EmitSubject): SourceText {
  const text = code`/** Calls ${identifier(name)} from Node; see index.d.ts. */

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import koffi from "koffi";
import { bind, KernelError } from "./binding.js";

export { KernelError };

export const description = JSON.parse(readFileSync(new URL("./kernel.json", import.meta.url), "utf8"));

export function load(options = {}) {
  const file = options.library ?? fileURLToPath(new URL(${stringLiteral(`./${libraryFile(name)}`)}, import.meta.url));
  if (!existsSync(file)) throw new KernelError(\`\${file} is not there\`, "build it first: sh build.sh");
  return bind(koffi, file, description, options);
}
`;
  return spell(text, "typescript");
}

/** The text of index.d.ts. Parameter names are spelled as in the package's other public files (index.ts). */
export function indexTypes({ name, computation }: EmitSubject): Code {
  const parameters = parametersOf(computation);
  const arrays = list(parameters.map((p) => code`${p.name}: ${ARRAYS[p.tensor.dtype]}`));
  const type = typeName(name);
  return code`/** ${commentText(`${name}: ${equationText(computation)}`)} */

import type { BindOptions, BoundKernel, KernelDescription } from "./binding.js";

export { KernelError } from "./binding.js";

export declare const description: KernelDescription;

export interface LoadOptions extends BindOptions {
  /** The shared library; ${commentText(libraryFile(name))} by default. */
  readonly library?: string;
}

/**
${lines(parameters.map((p) => code` * - ${p.name}: ${p.role}, ${p.elements} elements, ${commentText(describeTensor(p.tensor))}`))}
 */
export type ${type} = BoundKernel<[${arrays}]>;

/** @throws KernelError when the library is not built, or \`tuned\` is asked for on a machine that cannot run it */
export declare function load(options?: LoadOptions): ${type};
`;
}

/** conv2d -> Conv2dKernel, depthwise_conv2d -> DepthwiseConv2dKernel. */
function typeName(name: string): Code {
  const words = name.replaceAll(/(?:^|_)([A-Za-z0-9])/g, (_, first: string) => first.toUpperCase());
  return identifier(`${words}Kernel`);
}
