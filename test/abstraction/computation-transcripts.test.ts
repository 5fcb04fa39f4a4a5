/**
 * @file Computations in text, and what they compute: test/golden/computations. Lines are
 *
 *     y[i] += x[i,k] --i 2 --k 3 --dtype s32       a computation in words as on the command line; beneath it why it is refused, if it is
 *     text                                         how it is written
 *     given x 1 2 3; w 4 5                         what it computes of these inputs
 *
 * Lines that begin with # are remarks. The results were worked out by hand.
 */

import { describe } from "vitest";
import { type Computation, equationText } from "../../abstraction/computation.ts";
import { interpret } from "../../abstraction/interpret.ts";
import { explanationOf } from "../support/message.ts";
import { stated } from "../support/subjects.ts";
import { type Play, playTranscripts } from "../support/transcript.ts";

/** `x 1 2 3; w 4 5` */
const inputsIn = (text: string): Record<string, number[]> =>
  Object.fromEntries(
    text.split("; ").map((part) => {
      const [name = "", ...values] = part.split(" ");
      return [name, values.map(Number)];
    }),
  );

describe("a computation", () => {
  playTranscripts("computations", (): Play => {
    let computation: Computation;
    return (line) => {
      if (line === "" || line.startsWith("#")) return [];
      if (line === "text") return [equationText(computation)];
      if (line.startsWith("given")) {
        const results = interpret(computation, inputsIn(line.slice("given ".length)));
        return [Array.from(results, (value) => (Object.is(value, -0) ? "-0" : String(value))).join(" ")];
      }
      const told = explanationOf(() => {
        computation = stated(line);
      });
      return told === "accepted" ? [] : told.split("\n");
    };
  });
});
