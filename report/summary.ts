/**
 * @file The summary on top of a report: the few figures that answer what was found, how sure it is, and what to do next.
 *
 *     figures([{ title: "time", value: "141 us", remark: "95 % within 140 to 142 us" }])
 *     nextPart([{ because: "Its times are noisy.", command: undefined, of: [link] }])
 */

import { groupsOf } from "../abstraction/collections.ts";
import type { NoiseVerdict } from "../abstraction/noise.ts";
import { html, type Markup, type Part } from "./html.ts";
import type { NextStep } from "./report-data.ts";

export interface Figure {
  readonly title: string;
  readonly value: Part;
  readonly remark?: Part;
  /** Colours the value. */
  readonly verdict?: NoiseVerdict;
}

export function figures(all: readonly Figure[]): Markup {
  return html`<dl class="figures">${all.map(({ title, value, remark, verdict }) => html`<div><dt>${title}</dt><dd><strong${verdict && html` class="${verdict}"`}>${value}</strong>${remark && html`<small>${remark}</small>`}</dd></div>\n`)}</dl>`;
}

/** Most subjects that are named beside a step. */
const MOST_NAMED = 4;

/** What to do next. What holds for several subjects is said once. @param steps with a link to its subject where there are several */
export function nextPart(steps: readonly (NextStep & { readonly of?: Markup })[]): Markup | undefined {
  if (steps.length === 0) return undefined;
  const alike = [...groupsOf(steps, ({ because }) => because).values()];
  return html`<h3>What to do next</h3>
<ul class="next">${alike.map((same) => {
    const more = same.length - MOST_NAMED;
    const named = same.slice(0, MOST_NAMED).flatMap(({ command, of }) => {
      const told = html`${of}${command && html` <code>${command}</code>`}`;
      if (of === undefined) return told;
      return html` <span${command && html` class="command"`}>${told}</span>`;
    });
    return html`<li>${same[0]?.because}${named}${more > 0 ? ` and ${more} more` : ""}</li>\n`;
  })}</ul>`;
}
