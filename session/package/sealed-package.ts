/**
 * @file The seal of a package: its description, `kernel.json` or `network.json`, lists every other file with its hash, and bears this user's seal.
 *
 *     writePackage("conv2d", sealedPackage(packageFiles(subject)))
 *     readSealed("conv2d", "kernel.json", text, ["conv2d.cpp"])      the bytes of the sources; UsageError when any file was changed
 *
 * A package without a description, that of a CUDA kernel, is never read again by automap and needs no seal.
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "zod";
import { UsageError } from "../../abstraction/error.ts";
import { idOf, sealsOf } from "../../db/index.ts";

/** A package by file. */
export type PackageFiles = ReadonlyMap<string, string | Uint8Array>;

const DESCRIPTIONS = ["kernel.json", "network.json"];

const sealedFacts = z.looseObject({
  files: z.record(z.string(), z.string()).default({}),
  seal: z.string().optional(),
});

/** The package with this user's seal in its description. The seal says that it was written here and has not changed since. */
export function sealedPackage(files: PackageFiles): PackageFiles {
  const name = DESCRIPTIONS.find((one) => files.has(one));
  if (name === undefined) return files;
  const others = [...files].filter(([file]) => file !== name);
  const hashes = Object.fromEntries(others.map(([file, content]) => [file, hashOf(content)]));
  const facts = { ...sealedFacts.parse(JSON.parse(textOf(files.get(name)))), files: hashes };
  const seal = sealsOf().make(sealedText(facts));
  return new Map([...files, [name, `${JSON.stringify({ ...facts, seal }, undefined, 2)}\n`]]);
}

/** A package's description, checked: it may come from anywhere. @throws UsageError when it is none @param remake the command that makes another */
export function readDescription<T>(
  folder: string,
  name: string,
  schema: z.ZodType<T>,
  { describes, remake }: { readonly describes: string; readonly remake: string },
): { readonly text: string; readonly facts: T } {
  const file = join(folder, name);
  const text = readOr(() => readFileSync(file, "utf8")) ?? "";
  const parsed = schema.safeParse(readOr((): unknown => JSON.parse(text)));
  if (parsed.success) return { text, facts: parsed.data };
  const [issue] = parsed.error.issues;
  throw new UsageError(
    `${file} does not describe ${describes}: ${issue?.path.join(".")} ${issue?.message}`,
    `emit it again: ${remake}`,
  );
}

function readOr<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch {
    return undefined;
  }
}

/**
 * Reads the files that a library is compiled from. What is returned are the bytes that were checked.
 * @param description the text of the package's description
 * @param isTrusted whether the package may come from elsewhere: then nothing is checked
 * @throws UsageError when a source is missing, or the package was not written here, or any file of it has changed since
 */
export function readSealed(
  folder: string,
  description: { readonly name: string; readonly text: string },
  sources: readonly string[],
  { isTrusted, remake }: { readonly isTrusted: boolean; readonly remake: string },
): ReadonlyMap<string, Uint8Array> {
  const contentOf = (file: string): Uint8Array => {
    const content = readOr(() => readFileSync(join(folder, file)));
    if (content === undefined) throw new UsageError(`${folder} lacks ${file}`, `emit it again: ${remake}`);
    return content;
  };
  if (isTrusted) return new Map(sources.map((source) => [source, contentOf(source)]));
  const refused = (because: string): UsageError =>
    new UsageError(
      `${folder} ${because}: loading it would run what is in it`,
      `if you trust it, say trustImported: true; else emit it here: ${remake}`,
    );
  const { seal, ...facts } = sealedFacts.safeParse(JSON.parse(description.text)).data ?? { files: {} };
  if (!sealsOf().made(sealedText(facts), seal))
    throw refused(`was not written here, or its ${description.name} was changed since`);
  const unsealed = sources.find((source) => !Object.hasOwn(facts.files, source));
  if (unsealed !== undefined) throw refused(`has a ${unsealed} that was not sealed with it`);
  const contents = Object.keys(facts.files).map((file) => [file, contentOf(file)] as const);
  const changed = contents.find(([file, content]) => hashOf(content) !== facts.files[file]);
  if (changed) throw refused(`was written here, but ${changed[0]} was changed since`);
  return new Map(contents.filter(([file]) => sources.includes(file)));
}

function sealedText(facts: Readonly<Record<string, unknown>>): string {
  return `package ${idOf(facts)}`;
}

function hashOf(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

function textOf(content: string | Uint8Array | undefined): string {
  return typeof content === "string" ? content : Buffer.from(content ?? []).toString("utf8");
}
