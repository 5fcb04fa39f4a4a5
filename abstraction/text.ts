/**
 * @file Characters that a reader does not see: controls, marks that turn the direction of text, halves of surrogate pairs, breaks of lines
 * that are not `\n`. A terminal obeys some of them and a compiler counts lines by others, so nothing that came from outside keeps them.
 *
 *     visible("\u001b[31mred")      "\\u001b[31mred"
 */

/** Unicode's "other" (control, format, surrogate, private use, unassigned) and its separators of lines and paragraphs. */
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]/u;
const EACH_UNSEEN = new RegExp(UNSEEN.source, "gu");

/** Whether a text is one line of characters that can all be seen. */
export function isVisible(text: string): boolean {
  return !UNSEEN.test(text);
}

/**
 * The text with each character that cannot be seen written as its code, `\u001b`; lines and tabs stay as they are.
 * The codes are JSON's: in a JSON document they stand for the same characters.
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

/** Whether data may be kept under a name: what every JavaScript object answers to would be taken for an entry. */
export function isFreeName(name: string): boolean {
  return !(name in {});
}

/** What the shell reads as one word. */
export function shellWord(word: string): string {
  return /^[\w.,:=+/-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
