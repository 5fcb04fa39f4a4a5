/**
 * @file Loads a network from its package's folder as a function on typed arrays.
 *
 *     const net = await loadNetwork("resnet18");        the folder that `automap network emit --prove` or its build.sh built
 *     const { fc } = net.run({ image });
 *     net.close();
 */

import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { attempt, UsageError } from "../abstraction/error.ts";
import { type BindNetworkOptions, type BoundNetwork, bindNetwork, NETWORK_VERSION } from "../package/network/index.ts";
import { loadKoffi } from "./natives.ts";

const tensor = z.object({
  name: z.string(),
  dtype: z.string(),
  array: z.string().regex(/^(?:Uint8|Int8|Uint16|Int16|Uint32|Int32|Float32|Float64|BigInt64)Array$/),
  shape: z.array(z.int().positive()),
  elements: z.int().positive(),
});
const described = z.object({
  schemaVersion: z.literal(NETWORK_VERSION, { error: `is of another version than ${NETWORK_VERSION}` }),
  name: z.string().regex(/^[A-Za-z][A-Za-z0-9_]*$/),
  threads: z.int().positive(),
  library: z.string(),
  inputs: z.array(tensor),
  outputs: z.array(tensor),
});

/**
 * Loads the library built in the folder of a network's package. This runs the package author's code in this process.
 * @throws UsageError when the folder is not such a package or is not built; EnvironmentError when koffi cannot be loaded; KernelError when this
 * CPU cannot run the library
 */
export async function loadNetwork(folder: string, options: BindNetworkOptions = {}): Promise<BoundNetwork> {
  const file = join(folder, "network.json");
  if (!existsSync(file))
    throw new UsageError(`${folder} is no package of a network: it has no network.json`, {
      hint: "automap network emit MODEL --to DIR --prove writes and builds one",
    });
  const parsed = described.safeParse(attempt(() => JSON.parse(readFileSync(file, "utf8"))));
  if (!parsed.success) {
    const [issue] = parsed.error.issues;
    throw new UsageError(`${file} does not describe a network: ${issue?.path.join(".")} ${issue?.message}`, {
      hint: "emit it again: automap network emit MODEL --to DIR --force",
    });
  }
  const library = join(folder, parsed.data.library);
  if (!existsSync(library))
    throw new UsageError(`${library} is not there: the network is not built`, {
      hint: `sh ${join(folder, "build.sh")}`,
    });
  return bindNetwork(await loadKoffi(), library, parsed.data, options);
}
