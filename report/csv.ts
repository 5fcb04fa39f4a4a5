/**
 * @file Writes comma-separated values by RFC 4180, safe to open in a spreadsheet.
 *
 *     csvCell('a "b"')      "a ""b"""
 *     csvCell("=1+1")       '=1+1
 */

/** A cell of comma-separated values. A spreadsheet takes a text that begins so for a formula: a quotation mark before it says that it is none. */
export function csvCell(value: string | number | null): string {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value ?? "") ? `'${value}` : (value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
