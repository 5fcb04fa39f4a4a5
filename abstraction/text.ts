/**
 * @file Invisible characters: controls, direction marks, lone surrogates, and line breaks other than `\n`. Terminals obey some of them and compilers
 * count some as line ends, so text from outside is stripped of them.
 *
 *     visible("\u001b[31mred")      "\\u001b[31mred"
 */

/** Unicode's "other" (control, format, surrogate, private use, unassigned) and its separators of lines and paragraphs. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/u;
const EACH_UNSEEN = new RegExp(UNSEEN.source, "gu");

/** Whether a text is a single line of visible characters. */
export function isVisible(text: string): boolean {
  return !UNSEEN.test(text);
}

/**
 * The text with each invisible character written as its code, `\u001b`; line feeds and tabs stay. The codes are JSON's, so that in a JSON document
 * they mean the same characters.
 */
export function visible(text: string): string {
  return text.replaceAll(EACH_UNSEEN, (character) =>
    character === "\n" || character === "\t" ? character : codesOf(character),
  );
}

function codesOf(character: string): string {
  return Array.from({ length: character.length }, (_, i) => {
    const code = character.charCodeAt(i).toString(16).padStart(4, "0");
    return `\\u${code}`;
  }).join("");
}

/** A name of the notation: axes, tensors, dimensions, operands, parameters; a fused dimension joins several. */
export const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
export const LONGEST_NAME = 500;

/** Whether a name may be a key of data. Names that every JavaScript object has, such as `toString`, would look like entries. */
export function isFreeName(name: string): boolean {
  return !(name in {});
}

/** Quotes a text as one shell word. */
export function shellWord(word: string): string {
  return /^[\w.,:=+/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** `6.3 %`; a share that is not 0 is never shown as 0. */
export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}

/** `2026-11-21`, of milliseconds since 1970. */
export const day = (at: number): string => new Date(at).toISOString().slice(0, 10);

/** `c 64, h 56` */
export const sizesText = (
  sized: readonly { readonly name: string; readonly extent: number }[],
  between = ", ",
): string => sized.map(({ name, extent }) => `${name} ${extent}`).join(between);

/** A text of at most so many characters, cut with an ellipsis. */
export const cut = (text: string, most: number): string =>
  text.length <= most ? text : `${text.slice(0, Math.max(1, most - 1))}…`;
