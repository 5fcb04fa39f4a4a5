/**
 * @file Lines of a program while they are written, and the words in them that stand for something.
 *
 *     code`const int ${name} = ${from};`        name: Name, from: Code, a number or a word
 */

/** A part of a program's text. */
export type Code = string;

/** A word that stands for a tensor, a loop, a register or a constant of the printer. */
export class Name {
  readonly wish: string;

  /** Registers are called apart from tensors: an instruction's operands have names that tensors have too. */
  constructor(space: "tensor" | "axis" | "register" | "local", wish: string) {
    this.wish = space === "register" ? `${wish}_fragment` : wish;
  }

  get id(): string {
    return this.wish;
  }

  with(suffix: string): Name {
    return new Name("local", this.wish + suffix);
  }

  toString(): string {
    return this.wish;
  }
}

export const tensorName = (name: string): Name => new Name("tensor", name);
export const axisName = (name: string): Name => new Name("axis", name);

export function code(texts: TemplateStringsArray, ...holes: readonly (Code | Name | number)[]): Code {
  return texts.reduce((text, part, i) => text + String(holes[i - 1]) + part);
}

export const join = (parts: readonly (Code | Name)[], separator: Code): Code => parts.join(separator);
export const list = (parts: readonly (Code | Name)[]): Code => join(parts, ", ");
export const indented = (parts: readonly Code[]): Code[] => parts.map((part) => `  ${part}`);
export const NOTHING: Code = "";

/** The words that lines mention. */
export function namesIn(lines: readonly Code[]): ReadonlySet<string> {
  return new Set(lines.join("\n").match(/\w+/g));
}

/** Equal for equal texts. */
export const keyOf = (text: Code): string => text;

/** A line of a comment. */
export const commentText = (text: string): Code => text;
