/** @file What reports advise to do next. */

import { expect, it } from "vitest";
import type { TrialRecord } from "../../db/index.ts";
import { nextOfNetwork, nextOfWorkload } from "../../session/report/next-steps.ts";
import { measured } from "../support/database.ts";
import { NETWORK_REPORT } from "../support/network-report.ts";

/** Trials of these microseconds; only their times are looked at. */
const timed = (...microseconds: readonly number[]): TrialRecord[] =>
  microseconds.map((time) => ({ id: "3f9a1c77d0e2ab", measurement: measured(time) }) as TrialRecord);

const LONG = timed(9, 5, 7, 8, 9, 9, 8, 7, 9);
const SEARCH = { trials: LONG, winner: LONG[1], verdict: "quiet", ofRoof: 0.7, file: "automap.db" } as const;
const EMIT = "This writes the kernel as a package with a test: automap emit 3f9a1c77d0e2 --to DIR";

const told = (steps: ReturnType<typeof nextOfWorkload>): string[] =>
  steps.map(({ because, command }) => [because, command].filter((text) => text !== undefined).join(" "));

it.each<[string, Partial<Parameters<typeof nextOfWorkload>[0]>, string[]]>([
  ["a long quiet search", {}, [EMIT]],
  [
    "a noisy one",
    { verdict: "noisy" },
    ["The times are noisy: close other programs and run the same search again.", EMIT],
  ],
  [
    "a short one",
    { trials: timed(5, 6, 7) },
    ["Fewer than 8 kernels were tried: give the search more time with --time.", EMIT],
  ],
  [
    "one that was still gaining",
    { trials: timed(9, 8, 9, 8, 9, 8, 9, 5) },
    ["The search was still finding faster kernels when it ended: give it more time with --time.", EMIT],
  ],
  [
    "a kernel far from its bound",
    { ofRoof: 0.3, file: "my records.db" },
    [
      "The kernel is far from its bound. This shows where the model sees the time go: automap explain 3f9a1c77d0e2 --db 'my records.db'",
      `${EMIT} --db 'my records.db'`,
    ],
  ],
  [
    "a kernel near its bound",
    { ofRoof: 0.931 },
    ["The kernel is near its bound: with this instruction no other gains more than 7 %.", EMIT],
  ],
  ["a bound that a kernel outran", { ofRoof: 1.2 }, [EMIT]],
  ["no calibration", { ofRoof: undefined }, [EMIT]],
  ["failures alone", { winner: undefined }, ["Every trial failed. This tells why: automap db failures"]],
])("after %s", (_, given, expected) => {
  expect(told(nextOfWorkload({ ...SEARCH, ...given }))).toEqual(expected);
});

it("of a network: what is not tuned, what takes most, how it is written", () => {
  expect(
    told(nextOfNetwork({ model: "my model.onnx", tasks: NETWORK_REPORT.tasks, verdict: "noisy", file: "networks.db" })),
  ).toEqual([
    "The times are noisy: close other programs and run the same search again.",
    "10 steps are not tuned. This tunes where it saves most: automap tune-network 'my model.onnx' --db networks.db",
    "This shows where the model sees the time of the task go that takes most: automap explain 8aa86f473907 --db networks.db",
    "This writes the network as one C library and checks it: automap network emit 'my model.onnx' --to DIR --verify --db networks.db",
  ]);
});
