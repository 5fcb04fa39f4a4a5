/** @file The file of `automap tune --layers`: what its entries become, and what is refused before anything is measured. */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { parse } from "yaml";
import { z } from "zod";
import { readLayers } from "../../cli/layers-file.ts";
import { commandLine } from "../support/command-line.ts";
import { explanationOf } from "../support/message.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const EXAMPLE = "examples/layers.yaml";
const NOTHING = { modelOnly: false, emulate: false, quiet: false, verbose: false, json: false };

function written(text: string, name = "layers.yaml"): string {
  const file = join(folder, name);
  writeFileSync(file, text);
  return file;
}

const layersOf = (text: string, given = {}) => readLayers(written(text), { ...NOTHING, ...given });
const refusal = (text: string): string => explanationOf(() => layersOf(text)).replaceAll(`${folder}/`, "");

describe("a file of layers", () => {
  it("is the example, whose entries take their types from the defaults", () => {
    const layers = readLayers(EXAMPLE, { ...NOTHING, seed: 3, time: 5 });
    expect(
      layers.map(({ subject, priority, given }) => [given.name, subject, given.dtype, given.time, priority]),
    ).toMatchInlineSnapshot(`
      [
        [
          "resnet18/conv1",
          "conv2d",
          "u8s8",
          20,
          1,
        ],
        [
          "resnet18/layer1",
          "conv2d",
          "u8s8",
          20,
          4,
        ],
        [
          "resnet18/layer2.0",
          "conv2d",
          "u8s8",
          20,
          1,
        ],
        [
          "resnet18/layer2",
          "conv2d",
          "u8s8",
          20,
          3,
        ],
        [
          "resnet18/layer3",
          "conv2d",
          "u8s8",
          20,
          3,
        ],
        [
          "resnet18/layer4",
          "conv2d",
          "u8s8",
          20,
          3,
        ],
        [
          "resnet18/fc",
          "matvec",
          "u8s8",
          10,
          0,
        ],
      ]
    `);
    expect(layers.every(({ given }) => given.seed === 3)).toBe(true);
  });

  it("becomes the words of a command line", () => {
    const [layer] = layersOf(`
      defaults: { layout: { in: NHWC, w: KCRS }, parameters: { c: 16, k: 16 }, threads: 2 }
      layers:
        - { operator: conv2d, dtype: { in: u8, w: s8 }, parameters: { k: 32 }, constant: [in], epilogue: relu }
    `);
    expect(layer).toMatchObject({
      place: 1,
      priority: 0,
      subject: "conv2d",
      parameters: { c: 16, k: 32 },
      given: { layout: "in=NHWC,w=KCRS", dtype: "in=u8,w=s8", threads: 2, constant: ["in"], epilogue: "relu" },
    });
    const [product] = layersOf(`
      - { equation: "y[i,k] = table[clamp(ids[i]),k]", shape: { table: [1000, 16] }, dtype: { ids: s32 }, parameters: { i: 8, k: 16 } }
    `);
    expect(product?.given.shape).toBe("table=1000x16");
  });

  it("is the same in JSON", () => {
    const json = JSON.stringify(parse(readFileSync(EXAMPLE, "utf8")));
    const named = readLayers(EXAMPLE, NOTHING).map(({ label: _, ...layer }) => layer);
    expect(readLayers(written(json, "layers.json"), NOTHING).map(({ label: _, ...layer }) => layer)).toEqual(named);
  });

  it("names each entry that is wrong, and its key", () => {
    expect(
      refusal(`
        - { operator: conv2d, parameters: { stride: two } }
        - { operator: conv2d, dtpye: u8s8 }
        - { operator: conv3, dtype: u8s8 }
        - { operator: conv2d, parameters: { strid: 2 } }
        - { operator: conv2d, parameters: { stride: 0 } }
        - { equation: "c[i,j] += a[i,k] * b[k,j]", parameters: { i: 3, j: 4 } }
        - { operator: matmul, layout: { q: NM } }
        - { parameters: { c: 3 } }
        - 3
        - { operator: matmul, time: 0.5 }
        - { operator: matmul, name: two words }
        - { operator: matmul, equation: "y[i] = x[i]" }
      `),
    ).toMatchInlineSnapshot(`
      "layers.yaml, layer 1 (conv2d): parameters.stride: must be a number
      layers.yaml, layer 2 (conv2d) has no key "dtpye"
        did you mean "dtype"?
      layers.yaml, layer 3 (conv3): unknown operator "conv3"
        did you mean "conv3d"?
      layers.yaml, layer 4 (conv2d): no parameter "strid"
        did you mean "stride"?
      layers.yaml, layer 5 (conv2d): stride must be positive, got 0
      layers.yaml, layer 6 (c[i,j] += a[i,k] * b[k,j]): the equation's axis k needs an extent
        for example k: 64
      layers.yaml, layer 7 (matmul): no tensor "q" to lay out
        known: a, b, out
      layers.yaml, layer 8: it has no operator and no equation
        for example operator: conv2d
      layers.yaml, layer 9: expected object, received number
      layers.yaml, layer 10 (matmul): time: must be a whole number
      and 2 more of its layers are wrong"
    `);
  });

  it("is refused for a key of its own", () => {
    expect(refusal("{ default: {}, layers: [{ operator: matmul }] }")).toBe(
      'layers.yaml has no key "default"\n  did you mean "defaults"?',
    );
    expect(refusal("{ defaults: { name: all }, layers: [{ operator: matmul }] }")).toContain(
      'layers.yaml: defaults has no key "name"',
    );
    expect(refusal("[]")).toContain("layers has no entry");
    expect(refusal("conv2d")).toContain("layers.yaml: expected object, received string");
  });

  it.each([
    ["a bomb of aliases", bomb(), "Excessive alias count"],
    ["a tag", "- !!js/function { operator: conv2d }", "Unresolved tag"],
    ["brackets without end", "[".repeat(20_000), "call stack"],
    ["more bytes than a file of layers has", `#${" ".repeat(2 ** 18)}\n- operator: matmul`, "262144 are the most"],
    ["a key twice", "- { operator: matmul, operator: conv2d }", "Map keys must be unique"],
    ["a key that is a list", "- { [operator]: matmul }", "keys must be strings"],
    ["two documents", "- operator: matmul\n---\n- operator: matmul", "multiple documents"],
    ["a name of every object", "- { operator: matmul, __proto__: { dtype: s8 } }", 'has no key "__proto__"'],
    ["more layers than one file has", "- operator: matmul\n".repeat(2001), "2000 is the most"],
  ])("may hold anything: %s is refused", (_, text, says) => {
    expect(refusal(text)).toContain(says);
  });
});

/** Six aliases deep, ten of each: a million entries. */
function bomb(): string {
  const lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"];
  for (let depth = 1; depth < 6; depth++)
    lines.push(`a${depth}: &a${depth} [${Array.from({ length: 10 }, () => `*a${depth - 1}`).join(",")}]`);
  return lines.join("\n");
}

describe("automap tune --layers", () => {
  it("prints the schema of its file, which describes the example", async () => {
    const { code, out } = await commandLine("tune --layers-schema");
    expect(code).toBe(0);
    const schema = z.fromJSONSchema(JSON.parse(out));
    expect(schema.safeParse(parse(readFileSync(EXAMPLE, "utf8"))).success).toBe(true);
    expect(schema.safeParse([{ operator: "matmul", trails: 3 }]).success).toBe(false);
  });

  it.each([
    ["tune conv2d --layers @", "--layers names a file of what to tune, and conv2d stands beside it"],
    ["tune --layers @ --c 3", "--layers names a file of what to tune, and --c stands beside it"],
    ["tune --layers @ --to k.cpp", "--layers and --to exclude each other"],
    ["tune --layers @ --name one", "--layers and --name exclude each other"],
    ["tune --layers @ --model-only", "--layers and --model-only exclude each other"],
    ["tune --layers @ --target neoverse-n1", "nothing here measures"],
    ["tune --layers @ --fleet redis://nowhere", "--fleet needs --fleet-key"],
    ["tune --layers @ --fleet redis://nowhere --target cuda", "--fleet and --target exclude each other"],
    ["tune --layers @ --threads 4000", "layer 1 (conv2d): "],
  ])("refuses %s", async (words, says) => {
    const { code, err } = await commandLine(words.replace("@", EXAMPLE));
    expect({ code, err }).toEqual({ code: expect.any(Number), err: expect.stringContaining(says) });
    expect(code).toBeGreaterThan(1);
  });
});
