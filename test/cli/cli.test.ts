/** @file The command line before any command: help and the version. The answers to wrong arguments are in test/golden. */

import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { documentOf, number, printJson } from "../../cli/output.ts";
import { printed, widest } from "../support/cli.ts";
import { captured, commandLine } from "../support/command-line.ts";

describe("automap", () => {
  it("prints its help and counts as a mistake when no command is given", async () => {
    const { code, out, err } = await commandLine([]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    expect(err).toContain("Usage: automap [options] [command]");
  });

  it("prints documents without the noise of binary fractions, and samples as they were measured", async () => {
    const schema = documentOf({ share: number, times: z.array(z.object({ us: number, samples: z.array(number) })) });
    const { out } = await captured(() => {
      const samples = [1.23456789e-6, 0.1 + 0.2];
      printJson(schema, { share: 99.99999999999999, times: [{ us: 1e6 * 1.23456789e-6, samples }] });
      return 0;
    });
    expect(JSON.parse(out)).toEqual({
      schemaVersion: 1,
      share: 100,
      times: [{ us: 1.23457, samples: [1.23456789e-6, 0.30000000000000004] }],
    });
  });

  it("tells its version", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8")) as { version: string };
    expect(await printed("--version")).toBe(`${version}\n`);
  });

  const commands = [
    "",
    "map",
    "explain",
    "intrinsic",
    "operator",
    "tune",
    "doctor",
    "db",
    "systolic",
    "cache",
    "fleet",
    "batch",
    "watch",
  ];
  const nested = [
    "intrinsic list",
    "intrinsic show",
    "intrinsic check",
    "operator list",
    "operator show",
    "fleet admit",
    "batch export",
    "batch import",
  ];
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
