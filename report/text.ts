/**
 * @file Text set in columns, for terminals and for tests.
 *
 *     table([["a", "=", "in"], ["bias", "=", "w"]])   ->   a     =  in
 *                                                          bias  =  w
 */

/** Columns as wide as their widest cell, two spaces apart. */
export function table(rows: readonly (readonly string[])[]): string {
  const columns = Math.max(0, ...rows.map((r) => r.length));
  const widths = Array.from({ length: columns }, (_, j) => Math.max(...rows.map((r) => (r[j] ?? "").length)));
  return rows
    .map((r) =>
      r
        .map((cell, j) => cell.padEnd(widths[j] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

export function indent(text: string, by = "  "): string {
  return text
    .split("\n")
    .map((line) => (line === "" ? line : by + line))
    .join("\n");
}

/** `6.3 %`; a share that is not 0 is never shown as 0. */
export function percent(share: number): string {
  if (share > 0 && share < 0.0005) return "<0.1 %";
  return `${(100 * share).toFixed(1)} %`;
}
