#!/usr/bin/env node
/**
 * @file The `automap` command.
 */

import { reasonOf, remedyOf } from "../abstraction/error.ts";
import { EXIT } from "./output.ts";
import { run } from "./program.ts";

// When the reader of results closes the pipe early, as `head` does, the program ends quietly. Nobody need read its progress. Any other
// write error is reported.
for (const [name, stream] of Object.entries({ stdout: process.stdout, stderr: process.stderr })) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code === "EPIPE" && name === "stderr") return;
    if (error.code === "EPIPE") process.exit(EXIT.ok);
    if (name === "stdout")
      process.stderr.write(`automap: cannot write to stdout: ${reasonOf(error)}\n  ${remedyOf(error)}\n`);
    process.exit(EXIT.environment);
  });
}

process.exitCode = await run(process.argv.slice(2));
