/**
 * @file The package for Node: kernel.json describes it, index.js calls it through koffi, index.d.ts types it.
 *
 *     import { load } from "./conv2d/index.js";
 *     const conv2d = load();
 *     conv2d.run(input, weight, output);
 */

import { equationText } from "../abstraction/computation.ts";
import { printExpr } from "../abstraction/expression.ts";
import { libraryFile } from "./build.ts";
import type { KernelDescription } from "./files/binding.js";
import { ARRAYS, describeTensor, type EmitSubject, parametersOf } from "./subject.ts";

/** koffi's interface has been stable since its third major version. */
const KOFFI = "^3.3.4";

export function descriptionOf({ name, computation, tuned, threads }: EmitSubject): KernelDescription {
  return {
    name,
    equation: equationText(computation),
    parameters: parametersOf(computation).map(({ name: parameter, role, elements, tensor }) => ({
      name: parameter,
      role,
      dtype: tensor.dtype,
      array: ARRAYS[tensor.dtype],
      elements,
      shape: tensor.dims.map((d) => `${d.name} ${d.extent}`).join(", "),
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

export function descriptionText(subject: EmitSubject): string {
  const { record, provenance } = subject;
  const facts = { schemaVersion: PACKAGE_VERSION, ...descriptionOf(subject), ...(record && { record }), provenance };
  return `${JSON.stringify(facts, undefined, 2)}\n`;
}

export function packageJsonText({ name, computation }: EmitSubject): string {
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
  return `${JSON.stringify(manifest, undefined, 2)}\n`;
}

export function indexText({ name }: EmitSubject): string {
  return `/** Calls ${name} from Node; see index.d.ts. */

import { existsSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import koffi from "koffi";
import { bind, KernelError } from "./binding.js";

export { KernelError };

export const description = JSON.parse(readFileSync(new URL("./kernel.json", import.meta.url), "utf8"));

export function load(options = {}) {
  const file = options.library ?? fileURLToPath(new URL("./${libraryFile(name)}", import.meta.url));
  if (!existsSync(file)) throw new KernelError(\`\${file} is not there\`, "build it first: sh build.sh");
  return bind(koffi, file, description, options);
}
`;
}

export function indexTypes(subject: EmitSubject): string {
  const { name, computation } = subject;
  const parameters = parametersOf(computation);
  const arrays = parameters.map((p) => `${p.name}: ${ARRAYS[p.tensor.dtype]}`).join(", ");
  return `/** ${name}: ${equationText(computation)} */

import type { BindOptions, BoundKernel, KernelDescription } from "./binding.js";

export { KernelError } from "./binding.js";

export declare const description: KernelDescription;

export interface LoadOptions extends BindOptions {
  /** The shared library; ${libraryFile(name)} by default. */
  readonly library?: string;
}

/**
${parameters.map((p) => ` * - ${p.name}: ${p.role}, ${p.elements} elements, ${describeTensor(p.tensor)}`).join("\n")}
 */
export type ${typeName(name)} = BoundKernel<[${arrays}]>;

/** @throws KernelError when the library is not built, or \`tuned\` is asked for on a machine that cannot run it */
export declare function load(options?: LoadOptions): ${typeName(name)};
`;
}

/** conv2d -> Conv2d, depthwise_conv2d -> DepthwiseConv2d. */
function typeName(name: string): string {
  return `${name.replaceAll(/(?:^|_)([A-Za-z0-9])/g, (_, first: string) => first.toUpperCase())}Kernel`;
}
