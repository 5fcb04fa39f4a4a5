/** @file No file of a package that was changed is loaded: every file of every kind of package, and every fact of its description. */

import { cpSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { load } from "../../automap.ts";
import { loadNetwork } from "../../entries/network.ts";
import { GraphBuilder } from "../../network/builder.ts";
import { packageFiles } from "../../package/index.ts";
import { networkFiles } from "../../package/network/index.ts";
import { choicesOf, inHalfOnGpu, networkSubject, openGraph } from "../../session/network/network.ts";
import { portableSubject } from "../../session/package/emit.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { type PackageFiles, sealedPackage } from "../../session/package/sealed-package.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { engineMatmul } from "../support/cuda-packages.ts";
import { subjectFor } from "../support/packages.ts";
import { scratchFolder } from "../support/scratch.ts";
import { operation } from "../support/subjects.ts";

const root = scratchFolder();

const product = operation("matmul m=4 n=16 k=8");
const graph = () => {
  const net = new GraphBuilder("small");
  const x = net.input("x", [2, 16]);
  net.output(
    net.node("MatMul", [
      x,
      net.constant(
        "w",
        [16, 16],
        Float32Array.from({ length: 256 }, (_, i) => i % 7),
      ),
    ]),
  );
  return { ...net.graph, opset: 13 };
};

interface Kind {
  readonly files: PackageFiles;
  readonly load: (folder: string) => Promise<unknown>;
  /** Why automap never loads such a package, whatever is in it. */
  readonly never?: RegExp;
}

const H100 = nvidiaTarget("h100");
const KINDS: Readonly<Record<string, () => Kind>> = {
  "a kernel": () => ({ files: packageFiles(subjectFor(product)), load }),
  "portable code": () => ({ files: packageFiles(portableSubject(product)), load }),
  "a network": () => ({
    files: networkFiles(networkSubject(openGraph(graph()).program, new Map())),
    load: loadNetwork,
  }),
  "a kernel in CUDA": () => ({ files: packageFiles(engineMatmul()), load, never: /it has no kernel\.json/ }),
  "a network in CUDA": () => {
    const { program } = inHalfOnGpu(openGraph(graph()));
    return {
      files: networkFiles(networkSubject(program, choicesOf(program, { machine: H100 }), { gpu: H100 })),
      load: loadNetwork,
      never: /is a network for a GPU/,
    };
  },
};
const LOADED = ["a kernel", "portable code", "a network"];

const folderOf = (files: PackageFiles): string => {
  const folder = mkdtempSync(join(root, "package-"));
  writePackage(folder, files, true);
  return folder;
};
const REFUSED =
  /was not written here, or its|was changed since|lacks |does not describe|is for a GPU|is a network for a GPU/;

describe.each(Object.entries(KINDS).filter(([kind]) => LOADED.includes(kind)))("the package of %s", (_, made) => {
  const { files, load: loadIt } = made();
  const sealed = folderOf(sealedPackage(files));
  const changed = (change: (folder: string) => void): string => {
    const folder = mkdtempSync(join(root, "changed-"));
    cpSync(sealed, folder, { recursive: true });
    change(folder);
    return folder;
  };
  const [name = ""] = ["kernel.json", "network.json"].filter((one) => files.has(one));
  const hidden = join(root, "hidden");

  it.each([...files.keys()])("is refused with another %s", async (file) => {
    const other = changed((at) => {
      const content = readFileSync(join(at, file));
      // A fact more in a description, where spaces mean nothing; else another byte in the middle.
      if (file === name) writeFileSync(join(at, file), `${content}`.replace("{", '{"more": 1,'));
      else {
        const middle = content.length >> 1;
        content[middle] = (content[middle] ?? 0) ^ 1;
        writeFileSync(join(at, file), content);
      }
    });
    const named =
      file === name ? `or its ${file} was changed since` : `was written here, but ${file} was changed since`;
    await expect(loadIt(other)).rejects.toThrow(named);
    await expect(loadIt(changed((at) => rmSync(join(at, file))))).rejects.toThrow(
      /lacks|is no package|does not describe/,
    );
    writeFileSync(hidden, "elsewhere");
    const linked = changed((at) => {
      rmSync(join(at, file));
      symlinkSync(hidden, join(at, file));
    });
    await expect(loadIt(linked)).rejects.toThrow(REFUSED);
  });

  it("is refused with another fact in its description", async () => {
    const facts: Record<string, unknown> = JSON.parse(readFileSync(join(sealed, name), "utf8"));
    const others = { ...facts, library: "../evil.so" };
    for (const key of Object.keys(others)) {
      const value = Reflect.get(others, key);
      const other =
        key === "library" || typeof value !== "number"
          ? { ...others, [key]: "../evil.so" }
          : { ...facts, [key]: value + 1 };
      const at = changed((folder) => writeFileSync(join(folder, name), JSON.stringify(other)));
      await expect(loadIt(at), key).rejects.toThrow(REFUSED);
    }
  });

  it("is refused without a seal, and with the seal of another package", async () => {
    await expect(loadIt(folderOf(files))).rejects.toThrow("was not written here");
    const longer = new Map(
      [...files].map(([file, text]) => [file, file.endsWith(".cpp") ? `${text}\n` : text] as const),
    );
    const seal: unknown = Reflect.get(JSON.parse(String(sealedPackage(longer).get(name))), "seal");
    const at = changed((folder) => {
      const facts: object = JSON.parse(readFileSync(join(folder, name), "utf8"));
      writeFileSync(join(folder, name), JSON.stringify({ ...facts, seal }));
    });
    await expect(loadIt(at)).rejects.toThrow("was not written here");
  });
});

it("a package that nobody changed is compiled and run", async () => {
  const kernel = await load(folderOf(sealedPackage(packageFiles(portableSubject(product)))), {
    cache: join(root, "cache"),
  });
  const out = new Float32Array(64);
  kernel.run(new Float32Array(32).fill(1), new Float32Array(128).fill(2), out);
  expect([...out]).toEqual(Array.from({ length: 64 }, () => 16));
  kernel.close();
});

describe.each(Object.entries(KINDS).filter(([kind]) => !LOADED.includes(kind)))("the package of %s", (_, made) => {
  it("is never loaded into Node, changed or not", async () => {
    const { files, load: loadIt, never } = made();
    const folder = folderOf(sealedPackage(files));
    await expect(loadIt(folder)).rejects.toThrow(never);
    for (const file of readdirSync(folder)) {
      const before = readFileSync(join(folder, file));
      writeFileSync(join(folder, file), Buffer.concat([before, Buffer.from("\n")]));
      await expect(loadIt(folder), file).rejects.toThrow(never);
      writeFileSync(join(folder, file), before);
    }
  });
});
