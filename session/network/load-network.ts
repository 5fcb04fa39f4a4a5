/**
 * @file Loads a network from its package's folder as a function on typed arrays.
 *
 *     const net = await loadNetwork("resnet18");        the folder that `automap network emit` wrote
 *     const { fc } = net.run({ image });
 *     net.close();
 *
 * The library is compiled from the package's sources and kept in the cache, as that of a kernel is; `--verify` keeps the one that it built.
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { checkNames, EnvironmentError, UsageError } from "../../abstraction/error.ts";
import {
  type BindNetworkOptions,
  type BoundNetwork,
  bindNetwork,
  NETWORK_VERSION,
  type NetworkDescription,
  networkLibraryOf,
  networkSourceNames,
} from "../../package/network/index.ts";
import { cacheFolder } from "../../runtime/cache.ts";
import { type Compiler, findCompiler } from "../../runtime/compiler.ts";
import { type CoreOptions, coresOf } from "../../runtime/cores.ts";
import { loadKoffi } from "../natives.ts";
import { builtLibrary, keepLibrary, type LibrarySubject } from "../package/built-library.ts";
import type { Consent } from "../package/imported.ts";
import { type PackageFiles, readDescription, readSealed } from "../package/sealed-package.ts";

/** How a network is loaded, where its library is compiled and cached, and whether it may run. */
export interface LoadNetworkOptions extends BindNetworkOptions, Consent, CoreOptions {
  /** Folder that caches libraries; `~/.cache/automap/kernels` by default. */
  readonly cache?: string;
  /** Looked for when left out. */
  readonly compiler?: Compiler;
}

const OPTIONS = {
  times: true,
  trustImported: true,
  cache: true,
  compiler: true,
  cores: true,
  onWait: true,
} as const;

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
  target: z.enum(["cpu", "cuda"]),
  kernels: z.array(z.array(z.string().regex(/^[a-z0-9.-]+$/)).nullable()),
  inputs: z.array(tensor),
  outputs: z.array(tensor),
});

const REMAKE = "automap network emit MODEL --to DIR --force";

/**
 * Loads the network whose package is in a folder. A package from elsewhere, or one that was changed, is somebody else's code: it is loaded only with
 * `trustImported`, and then the library that its own build.sh made is taken where there is one.
 * @throws UsageError when the folder is not such a package, it is for a GPU, it does not compile, or it was not written here and may not be trusted;
 * EnvironmentError when a compiler or koffi is missing; KernelError when this CPU cannot run the library
 */
export async function loadNetwork(folder: string, options: LoadNetworkOptions = {}): Promise<BoundNetwork> {
  checkNames(options, OPTIONS, "loadNetwork");
  const { trustImported = false, times = false, cache = cacheFolder("kernels") } = options;
  if (!existsSync(join(folder, "network.json")))
    throw new UsageError(
      `${folder} is no package of a network: it has no network.json`,
      "automap network emit MODEL --to DIR --verify writes and builds one",
    );
  const { text, facts } = readDescription(folder, "network.json", described, {
    describes: "a network",
    remake: REMAKE,
  });
  if (facts.target !== "cpu")
    throw new UsageError(
      `${folder} is a network for a GPU, which cannot be loaded into Node`,
      "its header is for C and C++, its module for PyTorch",
    );
  const sources = readSealed(folder, { name: "network.json", text }, networkSourceNames(facts), {
    isTrusted: trustImported,
    remake: REMAKE,
  });
  const subject = librarySubject(facts, sources);
  const there = join(folder, subject.build.library.output);
  if (trustImported && existsSync(there)) return bindNetwork(await loadKoffi(), there, facts, { times });
  const compiler = options.compiler ?? (await findCompiler());
  if (compiler.status === "environment") throw new EnvironmentError(compiler);
  const library = await builtLibrary(subject, { cache, compiler, cores: coresOf(options) });
  return bindNetwork(await loadKoffi(), library, facts, { times });
}

/** Keeps the library that a proof built in a package's folder, so that {@link loadNetwork} need not compile it again. */
export async function keepNetwork(
  folder: string,
  about: NetworkDescription,
  files: PackageFiles,
  compiler: Compiler,
): Promise<void> {
  const sources = new Map(networkSourceNames(about).map((name) => [name, files.get(name) ?? ""]));
  const subject = librarySubject(about, sources);
  await keepLibrary(subject, join(folder, subject.build.library.output), { cache: cacheFolder("kernels"), compiler });
}

function librarySubject(about: NetworkDescription, sources: PackageFiles): LibrarySubject {
  return { name: about.name, build: networkLibraryOf(about), sources };
}
