/** @file Commands and what they print: test/golden/commands, in the notation of test/support/command-transcript.ts. */

import { describe } from "vitest";
import { beginCommands } from "../support/command-transcript.ts";
import { playTranscripts } from "../support/transcript.ts";

describe("commands", () => {
  playTranscripts("commands", beginCommands);
});
