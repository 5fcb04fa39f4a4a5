/**
 * @file Expressions in C++, with float functions in plain arithmetic, so that loops of them become vectors.
 *
 *     0.5 * x * (1 + erf(x * 0.7071))      0.5f * x * (1.0f + erf_float(x * 0.7071f))
 *
 * The row of a product's epilogue with `__builtin_erff` is a call for each element: about half of the processor time of a product of
 * 128 x 768 x 3072 with a gelu, 12.1 ms with the calls and 6.5 without (Zen 4, a busy machine).
 */

import { code } from "../../abstraction/source-text.ts";
import { C_WORDS, type Words } from "../c-expressions.ts";
import { vectorFunction } from "../float-functions.ts";

export const CPP_WORDS: Words = {
  ...C_WORDS,
  library: (name, dtype) => {
    const own = vectorFunction(name, dtype);
    return own === undefined ? C_WORDS.library(name, dtype) : code`@${own}`;
  },
};
