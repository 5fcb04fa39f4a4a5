/** @file Tiles taken in turn by few blocks: results are the equation's, and one barrier too few is found. */

import { describe } from "vitest";
import { playGrids } from "../support/grid-transcript.ts";

describe("tiles that persistent blocks take in turn", () => playGrids("persistent"));
