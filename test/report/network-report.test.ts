/**
 * @file The report of a network: its mapped share as AMOS counts it, the text for each step, names that contain markup,
 * and wrong arguments.
 */

import { beforeAll, describe, expect, it } from "vitest";
import { mappedShare } from "../../network/mapped-share.ts";
import { MODELS } from "../../network/models/index.ts";
import { stepsChart } from "../../report/network-charts.ts";
import { networkPage } from "../../report/network-page.ts";
import { PAGE_SCRIPT } from "../../report/page-shell.ts";
import { openGraph } from "../../session/network/network.ts";
import { type Line, plant, textsIn } from "../support/forge.ts";
import { NETWORK_REPORT } from "../support/network-report.ts";
import { onnx } from "../support/networks.ts";
import { inFull } from "../support/slow.ts";

it("has no chart of steps where no time is known", () => {
  const tasks = NETWORK_REPORT.tasks.map((task) => ({ ...task, seconds: undefined }));
  expect(stepsChart(NETWORK_REPORT)).toBeDefined();
  expect(stepsChart({ ...NETWORK_REPORT, tasks })).toBeUndefined();
});

describe("the mapped share", () => {
  // AMOS, Table 2: 50 of 70 and 54 of 71.
  it.each<[string, number, number]>([
    ["shufflenet", 50, 70],
    ["resnet18", 21, 30],
    ...inFull<[string, number, number][]>([["resnet50", 54, 71]], []),
  ])("of %s is %i of %i operators if all sums of products map", (name, mapped, counted) => {
    const { graph, plain, program } = openGraph((MODELS[name] ?? failed(name))({ batch: 1 }));
    expect(mappedShare(graph, { plain, program }, () => "fma")).toEqual({
      mapped,
      counted,
      instructions: [["fma", mapped]],
    });
    expect(mappedShare(graph, { plain, program }, () => undefined)).toMatchObject({ mapped: 0, counted });
  });

  it("counts an addition of two values and a softmax, but neither a bias nor a rectifier", () => {
    const small = onnx("hidden = Relu(Add(MatMul(x[4,16], [16,16]{0.5}), [16]{1})); Softmax(Add(hidden, x))");
    const { graph, plain, program } = openGraph(small);
    expect(mappedShare(graph, { plain, program }, () => "fma")).toMatchObject({ mapped: 1, counted: 3 });
  });
});

describe("the page of a network", () => {
  let page = "";
  beforeAll(() => {
    page = networkPage(NETWORK_REPORT);
  });

  it("draws bars as long as their times", () => {
    const bars = [...page.matchAll(/<rect class="bar [^>]*width="([\d.]+)"[^>]*\/><text [^>]*>([\d.]+) (ms|us), /g)];
    const perSecond = bars.map(([, width, time, unit]) => Number(width) / (Number(time) * (unit === "ms" ? 1e3 : 1)));
    expect(bars.length).toBeGreaterThan(20);
    for (const scale of perSecond) expect(scale / (perSecond[0] ?? 0)).toBeCloseTo(1, 1);
  });

  it("says how many steps have no known time, also where that is one or all", () => {
    const step = (task: number) => ({ node: "one", ops: ["Conv"], task, reads: [] });
    // Task 0 is measured, and of task 3 nothing is known.
    const saidOf = (...tasks: number[]): string | undefined =>
      /together; (.*?)\. Each kernel/.exec(networkPage({ ...NETWORK_REPORT, steps: tasks.map(step) }))?.[1];
    expect([saidOf(0), saidOf(0, 3), saidOf(3)]).toEqual([
      "100.0 % of it is measured",
      "100.0 % of it is measured, and of 1 step nothing is known",
      "0 % of it is measured, and of 1 step nothing is known",
    ]);
  });

  it("sums up the time, the bound, what tuning gained, the mapped share, the slowest steps and the noise", () => {
    const figuresOf = (text: string): string[] =>
      [...text.matchAll(/<dt>([^<]*)<\/dt><dd><strong[^>]*>([^<]*)</g)].map(([, title, value]) => `${title}: ${value}`);
    expect(figuresOf(page)).toEqual([
      "time of all steps: 46.4 ms",
      "of its bound: 89.5 %",
      "gained by tuning: 1.44 times as fast",
      "mapped onto instructions: 70.0 %",
      "slowest steps: model/stage_0/residual_branch/convolution_with_a_long_name 4.1 %",
      "how sure: noisy",
    ]);
    const untuned = NETWORK_REPORT.tasks.filter(({ time }) => time !== "measured");
    expect(figuresOf(networkPage({ ...NETWORK_REPORT, tasks: untuned }))).toContain("how sure: not measured");
  });

  it("treats no name of a node, a kernel or a file as markup", () => {
    const tagsOf = (text: string): string => {
      const tags = text.replace(`<script>${PAGE_SCRIPT}</script>`, "").match(/<(?:[^<>"']|"[^"]*"|'[^']*')*>?/g) ?? [];
      return tags.map((tag) => tag.replaceAll(/"[^"]*"|'[^']*'/g, '""')).join("\n");
    };
    const expected = tagsOf(page);
    expect(expected).toContain("<svg");
    const wrong: string[] = [];
    let made = 0;
    const seen = new Set<string>();
    for (const place of textsIn(NETWORK_REPORT)) {
      // What stands in several elements of a list is shown alike; only fixed words of the data choose what is shown.
      const field = place.path.map((part) => (typeof part === "number" ? "*" : part)).join(".");
      if (place.isName || seen.has(field) || ["time", "of", "dtype"].includes(String(place.path.at(-1)))) continue;
      seen.add(field);
      const copy = structuredClone(NETWORK_REPORT) as unknown as Line;
      plant(copy, place, `<img src=x onerror="planted()">"'><script>planted()</script>`);
      made++;
      if (tagsOf(networkPage(copy as unknown as typeof NETWORK_REPORT)) !== expected) wrong.push(place.path.join("."));
    }
    expect(wrong).toEqual([]);
    expect(made).toBeGreaterThan(20);
  });
});

function failed(name: string): never {
  throw new Error(`no network ${name}`);
}
