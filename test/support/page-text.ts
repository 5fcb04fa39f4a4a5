/** @file Pages and their data as text that a person can compare: an element a line, numbers of six digits. */

import { PAGE_SCRIPT } from "../../report/page-shell.ts";

/** Numbers of a text, no longer than is told apart. */
const rounded = (text: string): string =>
  text.replaceAll(/\d+\.\d{4,}(?:e[-+]?\d+)?/g, (number) => `${Number(Number(number).toPrecision(6))}`);

/** A page without its script, styles and downloads, whose rules are others' subject. */
export function pageText(page: string): string {
  const bare = page
    .replaceAll(PAGE_SCRIPT, "")
    .replaceAll(/<style>[\s\S]*?<\/style>/g, "<style></style>")
    .replaceAll(/ (href="data:[^,]*|content="default-src)[^"]*"/g, ' $1"');
  return rounded(bare.replaceAll("><", ">\n<").replaceAll(/\n\s*\n/g, "\n"));
}

/** Data as nested text: a field or an element a line, short lists in one. */
export function dataText(data: unknown, indent = ""): string {
  if (Array.isArray(data) && data.every((one) => typeof one !== "object" || one === null))
    return `[${data.map((one) => dataText(one)).join(", ")}]`;
  if (data === null || typeof data !== "object") return typeof data === "string" ? data : rounded(`${data}`);
  if (data instanceof Map) return dataText([...data], indent);
  return Object.entries(data)
    .map(([name, value]) => `\n${indent}${name}: ${dataText(value, `${indent}  `)}`)
    .join("");
}

/** What a page says, without its markup. */
export const wordsOf = (markup: string): string =>
  markup
    .replaceAll(/<(script|style)>[\s\S]*?<\/\1>/g, "")
    .replaceAll(/<[^>]*>/g, " ")
    .replaceAll(/\s+/g, " ");
