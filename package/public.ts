/**
 * @file The public names of the tensors of a package, the same in the C header, in TypeScript, in kernel.json and in the README.
 *
 *     publicWords(subject).word(parameter.name)      `input` for a tensor `in`, `new_` for one called `new`
 */

import { type Spelling, spellingOf } from "../abstraction/spelling.ts";
import { headerText } from "./header.ts";
import type { EmitSubject } from "./subject.ts";
import { indexTypes } from "./wrapper.ts";

/** One spelling for all of them: what neither C, C++ nor TypeScript takes for something else, and no other word of these files. */
export function publicWords(subject: EmitSubject): Spelling {
  return spellingOf([headerText(subject), indexTypes(subject)], ["c++", "typescript"]);
}
