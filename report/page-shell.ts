/**
 * @file The frame of a report: one HTML page that loads nothing, legible in light and dark mode, on a narrow screen,
 * on paper and with a screen reader.
 *
 * Its content security policy allows only the page's own script and styles, by their hashes. Even an escaping mistake
 * could not run anything.
 */

import { createHash } from "node:crypto";
import { ARRAY_STYLE } from "./draw-array-svg.ts";
import { MAPPING_STYLE } from "./draw-svg.ts";
import { html, type Markup, trusted } from "./html.ts";
import { PAGE_SCRIPT } from "./page-script.ts";
import { PAGE_STYLE } from "./page-style.ts";

/** @returns the text of the page */
export function wholePage(title: string, header: Markup, main: Markup): string {
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${POLICY}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${trusted(PAGE_STYLE)}</style>
</head>
<body>
<header>
${header}
</header>
<main>
${main}
</main>
<script>${trusted(PAGE_SCRIPT)}</script>
</body>
</html>
`.text;
}

/** The hash of an inline script or style, as a content security policy writes it. */
const hashOf = (text: string): string => `'sha256-${createHash("sha256").update(text, "utf8").digest("base64")}'`;

const POLICY = [
  "default-src 'none'",
  `script-src ${hashOf(PAGE_SCRIPT)}`,
  `style-src ${[PAGE_STYLE, MAPPING_STYLE, ARRAY_STYLE].map(hashOf).join(" ")}`,
  "base-uri 'none'",
  "form-action 'none'",
].join("; ");
