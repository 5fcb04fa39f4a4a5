/** @file One thread that sends for tiles while warpgroups multiply: results are the equation's. */

import { describe } from "vitest";
import { playGrids } from "../support/grid-transcript.ts";

describe("a producer beside warpgroups", () => playGrids("producer"));
