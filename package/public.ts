/**
 * @file The public names of a package's tensors. They are the same in the C header, in TypeScript, in kernel.json and in the README.
 *
 *     publicWords(subject).word(parameter.name)      `input` for a tensor `in`, `new_` for one called `new`
 */

import { type Spelling, spellingOf } from "../abstraction/source-text.ts";
import { headerText } from "./header.ts";
import type { EmitSubject } from "./subject.ts";
import { indexTypes } from "./wrapper.ts";

/** One spelling for all these files: names that are not keywords in C, C++ or TypeScript and do not clash with other names in the files. */
export function publicWords(subject: EmitSubject): Spelling {
  return spellingOf([headerText(subject), indexTypes(subject)], ["c++", "typescript"]);
}
