/**
 * @file Builds markup: everything inserted is escaped unless it is markup already.
 *
 *     html`<td>${"<script>"}</td>`                  <td>&lt;script&gt;</td>
 *     html`<table>${rows.map((r) => html`<tr>${r}</tr>`)}</table>`
 */

/** Markup that may be written unescaped. Only {@link html} and {@link trusted} create it. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
  toString(): string {
    return this.text;
  }
}

export type Part = string | number | Markup | undefined | readonly Part[];

/** A template of markup: text is escaped, markup and lists of it are inserted, undefined is empty. */
export function html(pieces: TemplateStringsArray, ...parts: readonly Part[]): Markup {
  return new Markup(pieces.map((piece, i) => piece + (i < parts.length ? filled(parts[i]) : "")).join(""));
}

/** Markup that our own code generated, such as a drawing. Never text from a database. */
export function trusted(text: string): Markup {
  return new Markup(text);
}

function filled(part: Part): string {
  if (part === undefined) return "";
  if (part instanceof Markup) return part.text;
  if (typeof part === "string" || typeof part === "number") return escapeMarkup(String(part));
  return part.map(filled).join("");
}

const ENTITIES: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

/** Escapes text for elements and quoted attributes. Control characters, which XML forbids, become U+FFFD. */
export function escapeMarkup(text: string): string {
  return (
    text
      .replace(/[&<>"']/g, (c) => ENTITIES[c] ?? c)
      // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is looked for.
      .replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\ufffe\uffff]/g, "\ufffd")
  );
}

/** Rules of a drawing, each named by its class, so that it may stand in a page beside others. */
export function scopedStyle(name: string, rules: string): string {
  return rules.replace(/(^|\})(?=[^{}@])/g, `$1.${name} `);
}
