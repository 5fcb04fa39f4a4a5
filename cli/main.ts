#!/usr/bin/env node
/**
 * @file The `automap` command.
 */

import { run } from "./program.ts";

// A reader that closes the pipe early, as `head` does, ends the program quietly.
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE") process.exit(0);
    throw error;
  });
}

process.exitCode = await run(process.argv.slice(2));
