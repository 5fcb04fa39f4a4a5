/** @file How figures of machines are written: each with its source. */

import type { Figure } from "../abstraction/machine.ts";

export const KIB = 1024;
export const MIB = 1024 ** 2;
export const GIB = 1024 ** 3;

export const cited = (value: number, source: string): Figure => ({ value, source });
export const assumed = (value: number, because: string): Figure => cited(value, `assumed: ${because}`);
