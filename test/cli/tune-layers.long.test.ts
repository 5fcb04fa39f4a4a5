/** @file `automap tune --layers`: one search after another, by priority, into one database. */

import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it, vi } from "vitest";
import { z } from "zod";
import { run } from "../../cli/program.ts";
import { captured, commandLine } from "../support/command-line.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const FILE = join(folder, "layers.yaml");
const LAYERS = `
defaults: { dtype: s16, intrinsic: portable, trials: 2, time: 60 }
layers:
  - { operator: matmul, parameters: { m: 8, n: 8, k: 8 } }
  - { name: small/conv, operator: conv2d, parameters: { c: 4, k: 4, h: 5, w: 5 }, priority: 2 }
  - { operator: matmul, dtype: u8s8, intrinsic: portable.mla.f32.broadcast, parameters: { m: 8, n: 8, k: 8 } }
  - { equation: "y[i] += x[i,k] * z[k]", parameters: { i: 8, k: 8 } }
`;
writeFileSync(FILE, LAYERS);
const words = `tune --layers ${FILE} --db ${join(folder, "layers.db")}`;

const document = z.object({
  layers: z.array(
    z.object({
      layer: z.int(),
      name: z.string().nullable(),
      status: z.string(),
      search: z.object({ best: z.object({ id: z.string() }), trials: z.int() }).nullable(),
    }),
  ),
});

describe("automap tune --layers", () => {
  it("tunes each layer, tells of one that fails, and ends with a table", async () => {
    const { code, out, err } = await commandLine(words);
    expect({ code, err }).toEqual({ code: 3, err: expect.stringContaining("1 of 4 layers failed") });
    expect(err.match(/^layer \d of 4 .*$/gm)).toMatchInlineSnapshot(`
      [
        "layer 1 of 4  small/conv  conv2d c 4 h 5 w 5 k 4 r 3 s 3 pad 1, s16->s32, at most 240 s left for all",
        "layer 2 of 4  matmul m 8 n 8 k 8, s16->s32, at most 180 s left for all",
        "layer 3 of 4  matmul m 8 n 8 k 8, u8s8->s32, at most 120 s left for all",
        "layer 4 of 4  y[i] += x[i,k] * z[k], i 8 k 8, s16->s16, at most 60 s left for all",
      ]
    `);
    expect(err).toContain("nothing maps");
    expect(out.split("\n", 5).map((line) => line.split(/ {2,}/).slice(0, 2))).toEqual([
      ["", "layer"],
      ["1", "matmul m 8 n 8 k 8, s16->s32"],
      ["2", "small/conv"],
      ["3", "matmul m 8 n 8 k 8, u8s8->s32"],
      ["4", "y[i] += x[i,k] * z[k], i 8 k 8, s16->s16"],
    ]);
    expect(out).toMatch(/small\/conv +[\d.]+ [nu]s +\d+ +[0-9a-f]{12}\n/);
    expect(out).toMatch(/\nuse one {3}automap emit RECORD --to DIR --db \S+\n$/);
  });

  it("goes on from the records when it is run again, and prints one document", async () => {
    const { code, out, err } = await commandLine(`${words} --json --quiet`);
    expect(code).toBe(3);
    expect(err).toMatch(/^layer 3 of 4 {2}matmul .*\nnothing maps/);
    const { layers } = document.parse(JSON.parse(out));
    expect(layers.map(({ layer, name, status }) => [layer, name, status])).toEqual([
      [1, null, "trials-spent"],
      [2, "small/conv", "trials-spent"],
      [3, null, "nothing-maps"],
      [4, null, "trials-spent"],
    ]);
    const schema = z.fromJSONSchema(JSON.parse((await commandLine("tune --json-schema")).out));
    expect(() => schema.parse(JSON.parse(out))).not.toThrow();
    const { out: names } = await commandLine(`db query --name small/conv --json --db ${join(folder, "layers.db")}`);
    expect(z.object({ trials: z.array(z.unknown()) }).parse(JSON.parse(names)).trials.length).toBeGreaterThan(0);
  });

  it("ends at Ctrl-C with what was measured, and the command that goes on", async () => {
    const { code, err } = await captured(() => {
      const write = process.stderr.write.bind(process.stderr);
      process.stderr.write = (chunk: string | Uint8Array): boolean => {
        if (String(chunk).startsWith("layer 2 of 4")) process.emit("SIGINT", "SIGINT");
        return write(chunk);
      };
      return run(`${words} --seed 2`.split(" "));
    });
    expect({ code, err }).toEqual({ code: 130, err: expect.stringContaining("go on with   automap") });
    expect(err).toContain("2 of 4 layers not begun");
  });

  it("tells of each layer what this machine lacks, and ends as one search does", async () => {
    vi.stubEnv("CXX", "/nowhere/g++");
    const { code, out, err } = await commandLine(words.replace("layers.db", "none.db"));
    vi.unstubAllEnvs();
    expect(err.match(/\/nowhere\/g\+\+ is not on the PATH/g)).toHaveLength(4);
    expect(err).toContain("4 of 4 layers failed");
    expect(out).toMatch(/^1 +matmul .* failed/m);
    expect(code).toBe(6);
  });
});
