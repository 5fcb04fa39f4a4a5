/** @file The proof of a network's library: its random inputs, and its check against the network before fusion. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import type { Network } from "../../network/network.ts";
import type { ElementType } from "../../network/value.ts";
import { networkFiles, partsOfNetwork } from "../../package/network/index.ts";
import { differenceAsRead, outputsAsRead } from "../../session/network/as-read.ts";
import { networkSubject, openGraph } from "../../session/network/network.ts";
import { drawInputs, proveNetwork } from "../../session/network/prove-network.ts";
import { writePackage } from "../../session/package/package-folder.ts";
import { compilerHere } from "../support/here.ts";
import { onnx } from "../support/networks.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();

describe("inputs drawn for a proof", () => {
  const drawn = (type: ElementType, seed = 1): Float64Array => {
    const inputs = [{ name: "x", type, shape: [40, 50] }];
    const { values } = drawInputs({ name: "n", inputs, outputs: [], steps: [], nodes: 0 }, seed);
    return [...values.values()][0] ?? new Float64Array();
  };

  it.each([
    ["u8", 0, 255],
    ["s8", -128, 127],
    ["s32", 0, 127],
    ["s64", -128, 127],
    ["bool", 0, 1],
  ] as const)("of %s cover %d to %d, including both ends", (type, least, most) => {
    const values = drawn(type);
    expect([Math.min(...values), Math.max(...values)]).toEqual([least, most]);
    expect(values.every(Number.isInteger)).toBe(true);
  });

  it.each(["s32", "s64"] as const)(
    "of indices in %s count from both ends of the smallest table they are read for",
    (type) => {
      const graph = onnx(`
        ids:${type}[40,50]
        return Gather([300,3]{0}, ids), Gather([6,3]{0}, ${type === "s32" ? "Add(ids, ids)" : "ids"})
      `);
      const { values } = drawInputs(openGraph(graph).program, 1);
      const all = [...values.values()][0] ?? new Float64Array();
      expect([Math.min(...all), Math.max(...all)]).toEqual([-6, 5]);
    },
  );

  it("of f32 lie between -2 and 2, of both signs, and are exact in f32", () => {
    const values = drawn("f32");
    expect(values.every((x) => Math.abs(x) <= 2 && Math.fround(x) === x)).toBe(true);
    expect(values.some((x) => x < -1.5) && values.some((x) => x > 1.5)).toBe(true);
  });

  it("are the same for the same seed and differ for another", () => {
    expect(drawn("u8", 3)).toEqual(drawn("u8", 3));
    expect(drawn("u8", 3)).not.toEqual(drawn("u8", 4));
  });
});

describe("a step whose weights fusion changed", () => {
  const { plain, program } = openGraph(onnx("Relu(MatMul(x[4,6], [6,3]{drawn}))"));

  /** The same program with every constant doubled: each step still equals its own equation. */
  const doubled: Network = {
    ...program,
    steps: program.steps.map((step) => ({
      ...step,
      reads: Object.fromEntries(
        Object.entries(step.reads).map(([tensor, value]) => [
          tensor,
          value.constant ? { ...value, constant: value.constant.map((c) => 2 * c) } : value,
        ]),
      ),
    })),
  };

  it("is found by comparison with the unfused network, and by nothing else", async () => {
    const compiler = await compilerHere();
    const proof = async (made: Network, name: string, asRead?: Network) => {
      const subject = networkSubject(made, new Map(), { name });
      writePackage(join(folder, name), networkFiles(subject), true);
      return proveNetwork(join(folder, name), partsOfNetwork(subject), compiler, { ...(asRead && { asRead }) });
    };
    expect(await proof(program, "right", plain)).toMatchObject({ status: "right" });
    expect(await proof(doubled, "doubled")).toMatchObject({ status: "right" });
    expect(await proof(doubled, "doubled", plain)).toMatchObject({
      status: "wrong",
      step: expect.stringMatching(/^output /),
      said: expect.stringMatching(/^element \d+ is .*, and the nodes as they were read give /),
    });
  });
});

describe("outputs compared with those of the unfused network", () => {
  it("are compared relative to the unmasked elements", async () => {
    const compiler = await compilerHere();
    const { plain } = openGraph(onnx("Add(x[2,3], {0,0,-3.4e38})"));
    const wanted = await outputsAsRead(plain, { x: Float64Array.of(1, 2, 3, 4, 5, 6) }, { compiler, workdir: folder });
    const differs = (outputs: readonly number[]) => differenceAsRead(plain, wanted, [outputs]);
    const hidden = Math.fround(-3.4e38);
    expect(differs([1, 2, hidden, 4, 5, hidden])).toBeUndefined();
    expect(differs([1, 2, hidden, 4, 6, hidden])).toMatchObject({
      said: expect.stringMatching(/^element 4 is 6/),
    });
    expect(differs([1, 2, 0, 4, 5, hidden])).toMatchObject({ said: expect.stringMatching(/^element 2 is 0/) });
  });
});
