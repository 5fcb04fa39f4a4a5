/**
 * @file The frame of a report: one HTML page that loads nothing, legible in light and dark mode, on a narrow screen,
 * on paper and with a screen reader.
 *
 * Its content security policy allows only the page's own script and styles, by their hashes. Even an escaping mistake
 * could not run anything.
 */

import { createHash } from "node:crypto";
import { type Optional, present } from "../abstraction/collections.ts";
import { ARRAY_STYLE } from "./draw-array-svg.ts";
import { MAPPING_STYLE } from "./draw-svg.ts";
import { html, type Markup, trusted } from "./html.ts";
import { PAGE_SCRIPT } from "./page-script.ts";
import { PAGE_STYLE } from "./page-style.ts";

export interface Section {
  readonly id: string;
  /** Its name in the list of contents. */
  readonly name: string;
  /** Its heading, where it is longer than its name. */
  readonly title?: string;
  readonly content: Markup;
}

interface Contents {
  readonly title: string;
  /** Paragraphs below the title. */
  readonly about: Markup;
  readonly downloads: Markup | undefined;
  /** Those that are absent are left out. */
  readonly sections: readonly Optional<Section>[];
}

/** @returns the text of the page */
export function wholePage({ title, about, downloads, sections }: Contents): string {
  const shown = present(sections);
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
<h1>${title}</h1>
${about}
<nav aria-label="Contents"><ul>${shown.map(({ id, name }) => html`<li><a href="#${id}">${name}</a></li>`)}</ul></nav>
${downloads}
</header>
<main>
${shown.map(({ id, name, title: heading = name, content }) => html`<section id="${id}">\n<h2>${heading}</h2>\n${content}\n</section>\n`)}</main>
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
