/**
 * @file fast-check with a fixed seed, so that a run can be repeated; another seed looks elsewhere:
 *
 *     AUTOMAP_TEST_SEED=7 npx vitest run test/abstraction/notation.test.ts
 */

import fc from "fast-check";

fc.configureGlobal({ seed: Number(process.env.AUTOMAP_TEST_SEED ?? 1) });

export default fc;
