/**
 * @file Writes comma-separated values by RFC 4180, safe to open in a spreadsheet.
 *
 *     csvCell('a "b"')      "a ""b"""
 *     csvCell("=1+1")       '=1+1
 */

/** A cell of comma-separated values. An apostrophe is put before text that a spreadsheet would take for a formula. */
export function csvCell(value: string | number | null | undefined): string {
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value ?? "") ? `'${value}` : (value ?? "");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
