/** @file The command line before any command: help, the version, and the answers to wrong arguments. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { complaint, printed, widest } from "./support/cli.ts";
import { commandLine } from "./support/command-line.ts";

const MATMUL = "c[i,j] += f32(a[i,k]) * f32(b[k,j])";

describe("automap", () => {
  it("prints its help and counts as a mistake when no command is given", async () => {
    const { code, out, err } = await commandLine([]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain("Usage: automap [options] [command]");
  });

  it("tells its version", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
    expect(await printed("--version")).toBe(`${version}\n`);
  });

  const commands = ["", "map", "explain", "intrinsic", "operator", "tune", "doctor", "db", "systolic", "cache"];
  const nested = ["intrinsic list", "intrinsic show", "intrinsic check", "operator list", "operator show"];
  it.each([...commands, ...nested])('helps with "%s" in no more than 100 columns', async (command) => {
    const help = await printed(`${command} --help`);
    expect(help).toContain(`Usage: ${["automap", command].join(" ").trim()} `);
    expect(widest(help)).toBeLessThanOrEqual(100);
  });

  it.each(["tune", "db query", "calibrate"])("helps with %s on a terminal of 60 columns", async (command) => {
    const { columns } = process.stdout;
    process.stdout.columns = 60;
    try {
      const lines = (await printed(`${command} --help`)).split("\n");
      expect(lines.filter((line) => line.length > 60 && !line.startsWith("  automap "))).toEqual([]);
    } finally {
      process.stdout.columns = columns;
    }
  });

  it("helps on a terminal that does not say how wide it is as anywhere", async () => {
    const { columns } = process.stdout;
    try {
      process.stdout.columns = 100;
      const usual = await printed("tune --help");
      process.stdout.columns = 0;
      expect(await printed("tune --help")).toBe(usual);
    } finally {
      process.stdout.columns = columns;
    }
  });

  it("gives the same help for `help map` as for `map --help`", async () => {
    expect(await printed("help map")).toBe(await printed("map --help"));
  });

  it("describes every option of map, with an example", async () => {
    const help = await printed("map --help");
    for (const option of ["--dtype", "--sum", "--layout", "--intrinsic", "--rule", "--binding", "--strict", "--json"])
      expect(help).toContain(`  ${option}`);
    expect(help).toContain("--why");
    expect(help).toContain("automap map conv2d --intrinsic wmma.m16n16k16.f32.f16");
  });
});

describe("a mistake", () => {
  const mistakes: readonly (readonly [what: string, line: string | readonly string[]])[] = [
    ["an unknown command", "mapp conv2d"],
    ["an unknown subcommand", "intrinsic lst"],
    ["a missing operator", "map"],
    ["an unknown operator", "map conv2dd"],
    ["a name with a space", ["map", "conv 2d"]],
    ["a name with a quote", ["map", "it's"]],
    ["no name at all", ["map", ""]],
    ["an unknown instruction", "map conv2d --intrinsic amx.tdpbus"],
    ["an instruction without its value", "map conv2d --intrinsic"],
    ["an unknown data type", "map conv2d --dtype f17"],
    ["an unknown data type of a tensor", "map conv2d --dtype in=u9,w=s8"],
    ["a data type of no tensor", "map conv2d --dtype x=u8,w=s8"],
    ["an integer sum of floats", "map conv2d --dtype f16 --sum s32"],
    ["an unknown parameter", "map conv2d --channels 4"],
    ["a negative extent", "map conv2d --c -4"],
    ["an extent of nothing", "map conv2d --c 0"],
    ["an extent that is no number", "map conv2d --c many"],
    ["an extent beyond counting", "map conv2d --c 99999999999999999999"],
    ["an extent without its value", "map conv2d --c"],
    ["an extent given twice", "map conv2d --c 4 --c 8"],
    ["a stray word", "map conv2d c 64"],
    ["a kernel that does not fit", "map conv2d --r 9 --h 5"],
    ["an unknown rule", "map conv2d --rule greedy"],
    ["an unknown binding", "map conv2d --binding some"],
    ["a layout with an unknown dimension", "map conv2d --layout NHWX"],
    ["a layout of no tensor", "map conv2d --layout x=NHWC"],
    ["an equation that is cut off", ["map", "c[i,j"]],
    ["a malformed equation", ["map", "c[i,j] += a[i,k * b[k,j]"]],
    ["an unknown function", ["map", "y[i] = sqaure(x[i])", "--i", "4"]],
    ["an index that is not affine", ["map", "c[i] += a[i*k]", "--i", "4", "--k", "4"]],
    ["extents that are missing", ["map", MATMUL, "--i", "64"]],
    ["an extent of no axis", ["map", MATMUL, "--i", "4", "--j", "4", "--k", "4", "--z", "4"]],
    ["a negative extent of an equation", ["map", MATMUL, "--i", "4", "--j", "4", "--k", "-4"]],
    ["explain without an instruction", "explain conv2d"],
    ["an id of no mapping", "explain conv2d --intrinsic amx --id zz"],
    ["a match with an unknown loop", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m=z"]],
    ["a match with an unknown axis", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "z=n"]],
    ["a match that is none", ["explain", "conv2d", "--intrinsic", "amx.tdpbusd", "--matching", "m:n"]],
    ["showing an unknown instruction", "intrinsic show vnnni"],
    ["a seed that is no number", "intrinsic check virtual --seed x"],
    ["showing an unknown operator", "operator show conv9d"],
  ];

  it.each(mistakes)("%s ends with exit code 2 and a sentence", async (_, line) => {
    expect(await complaint(line)).toMatch(/^automap: \S/);
  });

  it("is said with the place marked and the nearest valid name", async () => {
    const all: string[] = [];
    for (const [, line] of mistakes) {
      const words = (typeof line === "string" ? line.split(" ") : line).map((w) =>
        /^[\w=.,-]+$/.test(w) ? w : `"${w}"`,
      );
      all.push(`$ automap ${words.join(" ")}`, await complaint(line), "");
    }
    expect(all.join("\n")).toMatchInlineSnapshot(`
      "$ automap mapp conv2d
      automap: unknown command 'mapp'
        did you mean map?
        see: automap --help

      $ automap intrinsic lst
      automap: unknown command 'lst'
        did you mean list?
        see: automap intrinsic --help

      $ automap map
      automap: missing required argument 'operator or equation'
        see: automap map --help

      $ automap map conv2dd
      automap: unknown operator "conv2dd"
        did you mean "conv2d"?

      $ automap map "conv 2d"
      automap: unknown operator "conv 2d"
        did you mean "conv2d"?

      $ automap map "it's"
      automap: unknown operator "it's"
        known: matvec, matmul, batched-matmul, grouped-fc, attention-scores, conv1d, conv2d, conv3d,
        transposed-conv2d, grouped-conv2d, dilated-conv2d, depthwise-conv2d, capsule-conv2d,
        batched-conv2d, conv1d-single, conv2d-single, ... (58 in all)

      $ automap map ""
      automap: unknown operator ""
        known: matvec, matmul, batched-matmul, grouped-fc, attention-scores, conv1d, conv2d, conv3d,
        transposed-conv2d, grouped-conv2d, dilated-conv2d, depthwise-conv2d, capsule-conv2d,
        batched-conv2d, conv1d-single, conv2d-single, ... (58 in all)

      $ automap map conv2d --intrinsic amx.tdpbus
      automap: no intrinsic, family or feature "amx.tdpbus"
        did you mean "amx.tdpbusd"?

      $ automap map conv2d --intrinsic
      automap: option '--intrinsic <name>' argument missing
        see: automap map --help

      $ automap map conv2d --dtype f17
      automap: unknown data types "f17"
        did you mean "f16"?

      $ automap map conv2d --dtype in=u9,w=s8
      automap: unknown data type "u9" of in
        did you mean "u8"?

      $ automap map conv2d --dtype x=u8,w=s8
      automap: --dtype: conv2d has no tensor "x"
        did you mean "w"?

      $ automap map conv2d --dtype f16 --sum s32
      automap: data types f16: the integer sum s32 cannot hold products of floats
        the default is f32

      $ automap map conv2d --channels 4
      automap: --channels is no option of automap map and no parameter of conv2d
        known: --n, --c, --h, --w, --k, --r, --s, --stride, --pad, --dilation, --groups

      $ automap map conv2d --c -4
      automap: conv2d: c must be positive, got -4

      $ automap map conv2d --c 0
      automap: conv2d: c must be positive, got 0

      $ automap map conv2d --c many
      automap: --c must be an integer, got "many"

      $ automap map conv2d --c 99999999999999999999
      automap: --c is too large: 99999999999999999999

      $ automap map conv2d --c
      automap: --c needs a value, for example --c 64

      $ automap map conv2d --c 4 --c 8
      automap: --c is given twice

      $ automap map conv2d c 64
      automap: unexpected argument "c"
        extents are given as --c 64; an equation goes in quotes

      $ automap map conv2d --r 9 --h 5
      automap: conv2d: kernel r = 9 does not fit h = 5 with pad 1 on both sides

      $ automap map conv2d --rule greedy
      automap: unknown --rule; it is "gather" (every valid set of loops) or "amos" (unions of match points)

      $ automap map conv2d --binding some
      automap: unknown --binding; it is "fixed" (operands in the order of the text) or "any"

      $ automap map conv2d --layout NHWX
      automap: conv2d: layout of in: "NHWX" names a dimension "X" that is not there
        dimensions: N (1), C (1), H (1), W (1); for example NCHW

      $ automap map conv2d --layout x=NHWC
      automap: conv2d: no tensor "x" to lay out
        did you mean "w"?

      $ automap map "c[i,j"
      automap: equation: expected "]", got the end
        c[i,j
             ^

      $ automap map "c[i,j] += a[i,k * b[k,j]"
      automap: equation: expected "]", got the end
        c[i,j] += a[i,k * b[k,j]
                                ^

      $ automap map "y[i] = sqaure(x[i])" --i 4
      automap: equation: unknown function "sqaure"
        y[i] = sqaure(x[i])
               ^^^^^^
        did you mean "square"?

      $ automap map "c[i] += a[i*k]" --i 4 --k 4
      automap: equation: index of a[i*k] is not affine: it multiplies two axes; an index may multiply an axis by a constant only
        c[i] += a[i*k]
                  ^^^

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 64
      automap: the equation's axes j, k need extents
        for example --j 64 --k 64

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 4 --j 4 --k 4 --z 4
      automap: --z is no option of automap map and no axis of the equation
        did you mean "--i"?

      $ automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 4 --j 4 --k -4
      automap: equation: extent of k must be a positive integer, got -4

      $ automap explain conv2d
      automap: explain needs --intrinsic
        for example --intrinsic amx.tdpbusd; \`automap intrinsic list\` shows all

      $ automap explain conv2d --intrinsic amx --id zz
      automap: no mapping of conv2d has an id beginning with "zz"
        \`automap map\` lists the ids for the same operator, extents and types

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching m=z
      automap: conv2d has no loop "z"
        did you mean "n"?

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching z=n
      automap: amx.tdpbusd has no axis "z"
        did you mean "m"?

      $ automap explain conv2d --intrinsic amx.tdpbusd --matching "m:n"
      automap: --matching: "m:n" is not axis=loop,loop
        m:n
        ^^^
        for example --matching "m=n,p,q n=k k=c,r,s"

      $ automap intrinsic show vnnni
      automap: no intrinsic, family or feature "vnnni"
        did you mean "vnni"?

      $ automap intrinsic check virtual --seed x
      automap: --seed must be a whole number, got "x"

      $ automap operator show conv9d
      automap: unknown operator "conv9d"
        did you mean "conv1d"?
      "
    `);
  });
});
