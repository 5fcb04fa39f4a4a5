/** Steps that multiply by the same weights share what is packed of them; others have their own. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";
import { GraphBuilder } from "../network/builder.ts";
import { networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { findCompiler } from "../runtime/compiler.ts";
import { choicesOf, networkSubject, openGraph } from "../session/network.ts";
import { writePackage } from "../session/package-folder.ts";
import { proveNetwork } from "../session/prove-network.ts";

const folder = mkdtempSync(join(tmpdir(), "automap-workspaces-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

it("the steps of a recurrent network pack their matrix once", async () => {
  const found = await findCompiler();
  if (found.status === "environment") throw new Error(found.what);
  const net = new GraphBuilder("repeated");
  const matrix = (name: string, by: number): string =>
    net.constant(
      name,
      [32, 32],
      Float32Array.from({ length: 1024 }, (_, i) => (((i * by) % 13) - 6) / 32),
    );
  const [u, v] = [matrix("u", 5), matrix("v", 7)];
  const times = (x: string, w: string): string => net.node("Relu", [net.node("MatMul", [x, w])]);
  net.output(times(times(times(net.input("x", [4, 32]), u), v), u));
  const opened = openGraph(net.graph);
  const subject = networkSubject(opened.program, choicesOf(opened.program));
  const parts = partsOfNetwork(subject);
  expect(parts.steps.map(({ kernel, workspace }) => ({ kernel, workspace }))).toEqual([
    { kernel: 0, workspace: 0 },
    { kernel: 0, workspace: 1 },
    { kernel: 0, workspace: 0 },
  ]);
  writePackage(folder, networkFiles(subject));
  const proof = await proveNetwork(folder, parts, found, { asRead: opened.plain });
  expect(proof.status).toBe("right");
});
