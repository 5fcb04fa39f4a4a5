/**
 * @file Draws the graph of a network: a box for each step with its time, and an arrow for each value that a later step reads.
 *
 *     graphPart(data)      conv1 2.12 ms -> maxpool 39.6 us -> layer1.0.conv1 642 us -> ...
 *
 * dagre lays it out when the page is made: layers, the order within them, then places (Gansner et al. 1993). Its time grows with the layers that
 * arrows pass, so a graph is thinned to its slowest steps until it is small. No file of a model can make the page large or slow.
 */

import { Graph, layout } from "@dagrejs/dagre";
import { ascending, groupsOf, sortedBy, sumOf, unique, upTo } from "../abstraction/collections.ts";
import { cut } from "../abstraction/text.ts";
import { html, type Markup } from "./html.ts";
import { seriesOfSource } from "./network-charts.ts";
import type { NetworkReportData, NetworkStep } from "./network-data.ts";
import { fitted, n, seriesClass, text } from "./plot.ts";
import { counted, percent, printTime } from "./text.ts";

const BOX = { width: 176, height: 38 };
/** Space between neighbours in a layer, and between layers. */
const SPACE = { nodesep: 14, ranksep: 20 };
/** Height of the bar that shows a step's time beside the slowest one's. */
const BAR = 4;
/** Most layers in a column, which fits a sheet of paper. */
const LAYERS = 16;

/** With more boxes than this, more in a layer, or arrows that together pass more layers, only the slowest steps are drawn. */
const MOST_BOXES = 150;
const MOST_IN_A_LAYER = 12;
const MOST_PASSED = 1000;
/** With more boxes the drawing is folded at first. */
const MOST_UNFOLDED = 100;
/** So few steps are drawn in any case. */
const FEWEST_BOXES = 8;
/** Longest name in a tooltip. */
const LONGEST_NAME = 200;

interface Arrow {
  readonly from: number;
  readonly to: number;
  /** Whether it passes over steps that are not drawn. */
  readonly passes: boolean;
}

/** The numbers of the steps that are drawn, and the arrows between them. */
interface DrawnGraph {
  readonly drawn: readonly number[];
  readonly arrows: readonly Arrow[];
}

interface Place {
  readonly x: number;
  readonly y: number;
}
type Box = typeof BOX & Partial<Place>;
interface Bends {
  readonly points?: readonly Place[];
}

/** @param seconds of each step; steps without a time count as the fastest */
export function drawnGraph(steps: readonly NetworkStep[], seconds: readonly (number | undefined)[]): DrawnGraph {
  const slowest = sortedBy(
    steps.map((_, i) => i),
    (a) => -(seconds[a] ?? -1),
  );
  for (let most = MOST_BOXES; ; most = Math.floor(most / 2)) {
    const drawn = ascending(slowest.slice(0, most));
    const arrows = arrowsAmong(steps, drawn);
    if (most <= FEWEST_BOXES || isSmall(drawn, arrows)) return { drawn, arrows };
  }
}

/**
 * An arrow leads from a drawn step to another that reads it, or that its values reach through steps that are not drawn, unless other arrows lead
 * there too. Sets of drawn steps are bits.
 */
function arrowsAmong(steps: readonly NetworkStep[], drawn: readonly number[]): Arrow[] {
  const bits = new Map(drawn.map((step, i) => [step, 1n << BigInt(i)]));
  const bitOf = (step: number): bigint => bits.get(step) ?? 0n;
  /** Of each step, the drawn ones that its value was last computed from; of each drawn step, all that its value depends on. */
  const origins: bigint[] = [];
  const above = new Map<number, bigint>();
  return steps.flatMap(({ reads }, to) => {
    const before = reads.reduce((all, from) => all | (origins[from] ?? 0n), 0n);
    origins.push(bits.get(to) ?? before);
    if (!bits.has(to)) return [];
    const sources = drawn.filter((step) => (before & bitOf(step)) !== 0n);
    const implied = sources.reduce((all, from) => all | (above.get(from) ?? 0n), 0n);
    above.set(to, before | implied);
    return sources
      .map((from) => ({ from, to, passes: !reads.includes(from) }))
      .filter(({ from, passes }) => !passes || (implied & bitOf(from)) === 0n);
  });
}

function isSmall(drawn: readonly number[], arrows: readonly Arrow[]): boolean {
  const incoming = groupsOf(arrows, ({ to }) => to);
  const layers = new Map<number, number>();
  const layerOf = (step: number): number => layers.get(step) ?? 0;
  for (const step of drawn)
    layers.set(step, Math.max(0, ...(incoming.get(step) ?? []).map(({ from }) => layerOf(from) + 1)));
  const passed = sumOf(arrows, ({ from, to }) => layerOf(to) - layerOf(from));
  const widest = Math.max(0, ...[...groupsOf(drawn, layerOf).values()].map(({ length }) => length));
  return passed <= MOST_PASSED && widest <= MOST_IN_A_LAYER;
}

/** The drawing with its caption; undefined with fewer than two steps. */
export function graphPart({ name, steps, tasks }: NetworkReportData): Markup | undefined {
  const seconds = steps.map(({ task }) => tasks[task]?.seconds);
  const { drawn, arrows } = drawnGraph(steps, seconds);
  if (drawn.length < 2) return undefined;
  const graph = new Graph<object, Box, Bends>();
  graph.setGraph(SPACE);
  for (const step of drawn) graph.setNode(String(step), { ...BOX });
  for (const { from, to } of arrows) graph.setEdge(String(from), String(to), {});
  layout(graph);

  const total = sumOf(seconds, (time) => time ?? 0);
  const slowest = Math.max(...seconds.map((time) => time ?? 0));
  const boxes = drawn.flatMap((step) => {
    const { x = 0, y = 0 }: Partial<Place> = graph.node(String(step)) ?? {};
    const { node, ops, task } = steps[step] ?? {};
    const { time = "unknown", seconds = 0 } = tasks[task ?? -1] ?? {};
    const says = seconds === 0 ? "" : `${printTime(seconds)}, ${percent(seconds / total)}`;
    return {
      x,
      y,
      drawing: html`<g transform="translate(${n(x - BOX.width / 2)} ${n(y - BOX.height / 2)})"><title>${cut(`${node}: ${ops?.join(" ")}`, LONGEST_NAME)}</title>
<rect class="box" width="${BOX.width}" height="${BOX.height}" rx="4"/><rect class="bar ${seriesClass(seriesOfSource(time))}" y="${BOX.height - BAR}" width="${n((BOX.width * seconds) / slowest)}" height="${BAR}"/>
${text(7, 14, fitted(node ?? "", BOX.width - 12), { kind: "title" })}${text(7, 28, says)}</g>`,
    };
  });
  const lines = arrows.map(({ from, to, passes }) => {
    const { points = [] }: Bends = graph.edge(String(from), String(to)) ?? {};
    const path = points.map(({ x, y }, i) => `${i === 0 ? "M" : "L"}${n(x)} ${n(y)}`).join("");
    const end = points.at(-1);
    const head = end && html`<path class="head" d="M${n(end.x)} ${n(end.y)}l-3.5 -6h7z"/>`;
    return { points, drawing: html`<path class="${passes ? "arrow passes" : "arrow"}" d="${path}"/>${head}` };
  });

  const columns = columnsOf(boxes.map(({ y }) => y));
  const told =
    drawn.length === steps.length
      ? "Arrows lead from a step to those that read its values."
      : `Drawn are the ${drawn.length} slowest of ${counted(steps.length, "step")}; a dashed arrow passes over others.`;
  return html`<details${drawn.length > MOST_UNFOLDED ? undefined : html` open=""`}><summary>The graph: ${counted(drawn.length, "step")}</summary>
<figure class="drawing graphs" tabindex="0" role="region" aria-label="The graph of ${name}"><div class="columns">${columns.map(
    ([top, bottom], i) => {
      const own = boxes.filter(({ y }) => y > top && y < bottom);
      const passing = lines.filter(
        ({ points }) => points.some(({ y }) => y >= top) && points.some(({ y }) => y <= bottom),
      );
      const xs = [
        ...own.flatMap(({ x }) => [x - BOX.width / 2, x + BOX.width / 2]),
        ...passing.flatMap(({ points }) => points.map(({ x }) => x)),
      ];
      const left = Math.min(...xs) - 1;
      const width = Math.max(...xs) + 1 - left;
      return html`<svg class="graph" viewBox="${n(left)} ${n(top)} ${n(width)} ${n(bottom - top)}" width="${n(width)}" height="${n(bottom - top)}" role="img" aria-label="${counted(own.length, "step")} of the graph, part ${i + 1} of ${columns.length}">
${passing.map(({ drawing }) => drawing)}
${own.map(({ drawing }) => drawing)}
</svg>`;
    },
  )}</div>
<figcaption>${told} The bar in a box is its time beside that of the slowest step.${columns.length > 1 ? " Read down, then on at the top of the next column." : ""}</figcaption></figure></details>`;
}

/** Upper and lower end of each column, which are between layers. */
function columnsOf(ys: readonly number[]): (readonly [top: number, bottom: number])[] {
  const layers = ascending(unique(ys));
  const count = Math.ceil(layers.length / LAYERS);
  const each = Math.ceil(layers.length / count);
  const half = (BOX.height + SPACE.ranksep) / 2;
  return upTo(Math.ceil(layers.length / each)).map((i) => {
    const own = layers.slice(i * each, (i + 1) * each);
    return [(own[0] ?? 0) - half, (own.at(-1) ?? 0) + half] as const;
  });
}
