/** @file The version of automap that is running; part of every record. */

import { readFileSync } from "node:fs";
import { z } from "zod";
import { internal } from "../abstraction/error.ts";

/** Sources are one folder below the package, compiled files two. */
function readVersion(): string {
  for (const up of ["../package.json", "../../package.json"]) {
    try {
      return z
        .object({ name: z.literal("automap"), version: z.string() })
        .parse(JSON.parse(readFileSync(new URL(up, import.meta.url), "utf8"))).version;
    } catch {
      // Try the other place.
    }
  }
  internal("automap's package.json is not beside its files");
}

export const VERSION = readVersion();

/** The line that says who made a file. */
export const MADE_BY = `made by   automap ${VERSION}`;
