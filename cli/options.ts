/**
 * @file Command-line options, validated by a schema; and extents and parameters, whose names depend on the operator.
 *
 *     z.object({ top: positiveInteger.optional() })
 */

import type { Command } from "commander";
import { z } from "zod";
import { mapValues } from "../abstraction/collections.ts";
import { attempt, nearest, suggestion, UsageError } from "../abstraction/error.ts";
import { axesOf } from "../abstraction/expression.ts";
import { parseEquation } from "../abstraction/parse.ts";
import { constantsOf } from "../abstraction/time.ts";
import { DEFAULT_DATABASE } from "../db/default.ts";
import { OPERATORS } from "../operators/index.ts";
import { kebab } from "./command.ts";
import { text } from "./output.ts";

// Options as most commands take them.
export const optionalText = text.optional();
/** A text that is not empty. */
export const optionalWord = text.min(1).optional();
export const optionalFlag = z.boolean().optional();
export const flag = z.boolean().default(false);
export const databaseFile = text.min(1).default(DEFAULT_DATABASE);

/** Gathers the words of an option that may be given again. */
export const collect = (word: string, before: readonly string[] = []): string[] => [...before, word];

/** An integer of at least 1, written in digits. */
export const positiveInteger = text
  .regex(/^[1-9]\d{0,14}$/, {
    error: ({ input, path }) =>
      `--${kebab(path)} must be a positive integer, got "${String(input)}"; for example --${kebab(path)} 10`,
  })
  .transform(Number);

/** An integer of at least 0, written in digits, such as a seed. */
export const wholeNumber = text
  .regex(/^\d{1,15}$/, {
    error: ({ input, path }) => `--${kebab(path)} must be a whole number, got "${String(input)}"`,
  })
  .transform(Number);

/**
 * Parses `--c 64 --stride=2`: options that commander does not know are extents and parameters of the subject, which is the command's first
 * argument.
 * @throws UsageError for anything else, including a word that is neither an option nor a name of the subject
 */
export function readParameters(command: Command): Record<string, number> {
  const [subject = "", ...words] = command.args;
  const names = namesOf(subject);
  const constants = attempt(() => constantsOf(parseEquation(subject))) ?? [];
  const values = new Map<string, number>();
  const hint = "extents are given as --c 64; an equation goes in quotes";
  for (const { name, text, isAttached } of valuesIn(words, command, {
    pattern: /^--([A-Za-z_][\w-]*)(?:=(.*))?$/,
    hint,
  })) {
    if (names && !Object.hasOwn(names, name)) throw unknownWord(name, names, command, isAttached);
    if (text === undefined) throw new UsageError(`--${name} needs a value, for example --${name} 64`);
    const isConstant = constants.includes(name) && /^[+-]?\d+(\.\d+)?([eE][+-]?\d+)?$/.test(text);
    if (!isConstant && !/^[+-]?\d+$/.test(text)) throw new UsageError(`--${name} must be an integer, got "${text}"`);
    if (!isConstant && !Number.isSafeInteger(Number(text))) throw new UsageError(`--${name} is too large: ${text}`);
    if (values.has(name)) throw new UsageError(`--${name} is given twice`);
    values.set(name, Number(text));
  }
  return Object.fromEntries(values);
}

/**
 * The names and values of options that commander does not know. A text is missing behind the last one.
 * @throws UsageError with the hint for a word that is no option
 */
export function* valuesIn(
  words: readonly string[],
  command: Command,
  { pattern, hint }: { readonly pattern: RegExp; readonly hint: string },
): Generator<{ readonly name: string; readonly text: string | undefined; readonly isAttached: boolean }> {
  for (let i = 0; i < words.length; i++) {
    const word = words[i] ?? "";
    const [, name, attached] = pattern.exec(word) ?? [];
    if (name === undefined) throw unexpected(word, command, hint);
    yield { name, text: attached ?? words[++i], isAttached: attached !== undefined };
  }
}

/** The error for a word that is neither an option nor a value. For `-t` it lists the options that begin with t. */
export function unexpected(word: string, command: Command, hint: string): UsageError {
  const letter = /^-([A-Za-z])$/.exec(word)?.[1];
  const meant = optionsOf(command).filter((name) => letter !== undefined && name.startsWith(letter));
  return new UsageError(
    `unexpected argument "${word}"`,
    meant.length === 0 ? hint : `an option has two dashes: ${meant.map((name) => `--${name}`).join(", ")}`,
  );
}

/** What a subject has extents for, by name, and what an operator says of each; undefined when it is no operator or equation, which is reported elsewhere. */
function namesOf(subject: string): Readonly<Record<string, string>> | undefined {
  if (!subject.includes("[")) {
    const operator = OPERATORS.find((o) => o.name === subject || o.aliases.includes(subject));
    return operator && mapValues(operator.parameters, ({ describe }) => describe);
  }
  return attempt(() =>
    Object.fromEntries(subject.split(";").flatMap((text) => axesOf(parseEquation(text)).map((name) => [name, ""]))),
  );
}

/** The parameters that a word of another library means: `--padding` begins with pad, and `--batch` is in what n says of itself. */
function meantBy(word: string, subject: string, names: Readonly<Record<string, string>>): string | undefined {
  const meant = Object.entries(names).filter(
    ([name, describe]) => (name.length > 2 && word.startsWith(name)) || describe.split(/\W+/).includes(word),
  );
  return meant.length === 0
    ? undefined
    : `${subject} has ${meant.map(([name, says]) => `--${name} (${says})`).join(", ")}`;
}

function unknownWord(
  name: string,
  names: Readonly<Record<string, string>>,
  command: Command,
  isAttached: boolean,
): UsageError {
  const options = optionsOf(command);
  const subject = command.args[0]?.includes("[") ? "axis of the equation" : `parameter of ${command.args[0]}`;
  if (options.includes(name) && isAttached)
    return new UsageError(`--${name} takes no value`, "leave out the = and what follows it");
  if (options.includes(name))
    return new UsageError(`--${name} stands behind --, where no options are read`, "leave out the -- before it");
  const near = nearest(name, options) === undefined ? Object.keys(names) : options;
  return new UsageError(
    `--${name} is no option of automap ${pathOf(command)} and no ${subject}`,
    meantBy(name, command.args[0] ?? "", names) ?? suggestion(name, near, "--"),
  );
}

/** The words that call a command, behind the program's. */
const pathOf = (command: Command): string =>
  command.parent?.parent ? `${pathOf(command.parent)} ${command.name()}` : command.name();

/** Those options of several that were given, as words of a command line. */
export const optionWords = (told: Readonly<Record<string, string | number | undefined>>): string[] =>
  Object.entries(told).flatMap(([name, value]) => (value === undefined ? [] : [`--${name}`, String(value)]));

/** The long names of a command's options, without the dashes. Options hidden from help are left out. */
export function optionsOf(command: Command): string[] {
  return command.options.flatMap((o) => (o.hidden ? [] : (/^--([a-z][a-z-]*)$/.exec(o.long ?? "")?.[1] ?? [])));
}
