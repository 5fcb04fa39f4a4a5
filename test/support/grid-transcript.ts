/**
 * @file Kernels of blocks as transcripts: test/golden/grids. Three lines of a paragraph say what is computed, how it maps and under which schedule,
 * those beneath what is asked of it, with changes of the schedule behind:
 *
 *     conv2d n=1 c=64 k=16 h=8 w=8                      or `matmul 70 40 256`, `suite tf32 grp n=2 ...`, `stated y[i] += ...`; behind `; ` channels `first`, a `relu`
 *     wgmma.m64n16k16.f32.f16 m <- p,q; n <- k; k <- c
 *     wgmma 64 16 64, taps shifted                      tiles as `wgmmaSchedule` has them, and what differs
 *     right                                             it equals the equation, as a nest and emulated; `interpreted`, `emulated`: in short so alone; `full`: not in short
 *     right transfer engine, split 2 cluster
 *     ? stage 1, -taps                                  why it is refused
 *     predict -producer                                 whether it is predicted to take more time with this change, or less
 *     print                                             the nest; `print for step` from that line on
 *     without barrier block                             what two orders of threads make of it without statements that print so
 *     nvcc                                              nvcc takes it, where there is one
 */

import { it } from "vitest";
import { ADVERSE_ORDERS } from "../../abstraction/blocks/run.ts";
import type { GridSchedule } from "../../abstraction/candidate.ts";
import { remembered, unique } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { printHead, printNest } from "../../abstraction/print-nest.ts";
import { lowerGrid } from "../../mapper/lower/grid.ts";
import { gridProblem } from "../../mapper/schedule/grid.ts";
import type { GridContext } from "../../mapper/schedule/grid-context.ts";
import { GRID_DECISIONS } from "../../mapper/schedule/grid-decisions.ts";
import { predictGrid } from "../../perfmodel/grid.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import {
  convolutionF16,
  expectCompiled,
  type GridSubject,
  gridContextOf,
  itEqualsTheEquation,
  matmulF16,
  mmaSchedule,
  NVCC,
  reluConvolutionF16,
  verdict,
  wgmmaSchedule,
  withoutStatements,
} from "./grid-kernels.ts";
import { inFull } from "./slow.ts";
import { parametersIn, stated } from "./subjects.ts";
import { suiteComputation, suiteType } from "./suite.ts";
import { givenIn, playTranscripts } from "./transcript.ts";

function computationIn(text: string): Computation {
  const [words = "", ...more] = text.split("; ");
  const layout = more.includes("first") ? "first" : "last";
  const [kind = "", ...rest] = words.split(" ");
  if (kind === "stated") return stated(rest.join(" "));
  if (kind === "suite") {
    const [dtype, op = ""] = rest;
    return suiteComputation({ op, layout, dtype: suiteType.parse(dtype), params: parametersIn(words) });
  }
  if (kind !== "matmul")
    return more.includes("relu") ? reluConvolutionF16(words) : convolutionF16(words, layout === "last");
  const [m = 0, n = 0, k = 0] = rest.map(Number);
  return matmulF16(m, n, k);
}

// What is made of inputs is kept by computation, so paragraphs share them.
const computations = new Map<string, Computation>();
const contexts = new Map<string, GridContext>();

function contextOf(text: string, mapping: string): GridContext {
  const [, instruction = "", target = "h100", matching = ""] = /^(\S+)(?: of (\S+))? (.*)$/.exec(mapping) ?? [];
  return remembered(contexts, `${text}, ${mapping}`, () => {
    const computation = remembered(computations, text, () => computationIn(text));
    return gridContextOf(computation, instruction, matching, nvidiaTarget(target));
  });
}

/** Values that are not one word: what a decision says, from its words. */
const READ: Readonly<Record<string, (words: readonly string[]) => unknown>> = {
  tile: ([m, n, k]) => ({ m: Number(m), n: Number(n), k: Number(k) }),
  warps: ([m, n]) => ({ m: Number(m), n: Number(n) }),
  split: ([parts, through]) => ({ parts: Number(parts), through }),
  multicast: ([blocks, along]) => ({ blocks: Number(blocks), along }),
  repack: (words) => words,
};

/** @param text `stage 3, split 2 cluster, -taps` */
function changed(schedule: GridSchedule, text: string): GridSchedule {
  const all = new Map<string, unknown>(Object.entries(schedule));
  for (const part of text === "" ? [] : text.split(", ")) {
    const [name = "", ...words] = part.split(" ");
    if (name.startsWith("-")) all.delete(name.slice(1));
    else {
      const [word = ""] = words;
      all.set(name, READ[name]?.(words) ?? (/^\d/.test(word) ? Number(word) : word));
    }
  }
  for (const [name, { schema }] of Object.entries(GRID_DECISIONS)) schema.parse(all.get(name));
  return Object.fromEntries(all) as unknown as GridSchedule; // each decision was parsed by its schema
}

/** As written with early copies, and reversed with late ones. */
const ORDERS = ADVERSE_ORDERS.filter((_, i) => i % 3 === 0);

const VERBS = ["right", "interpreted", "emulated", "full", "?", "predict", "print", "without", "nvcc"];

interface Asked {
  readonly verb: string;
  readonly words: string;
  /** The paragraph's schedule. */
  readonly made: GridSchedule;
  /** The paragraph's, changed for the verbs that take changes. */
  readonly subject: GridSubject;
}

/** Reads lines one after another. @returns what one asks, nothing for those that say of what */
function reader(): (line: string) => Asked | undefined {
  let head: string[] = [];
  return (line) => {
    if (line === "") head = [];
    if (line === "" || line.startsWith("#")) return undefined;
    if (head.length < 3) {
      head.push(line);
      return undefined;
    }
    const [computation = "", mapping = "", tiles = ""] = head;
    const [, family, sizes = "", differs = ""] = /^(wgmma|mma) ([\d ]+)(?:, (.*))?$/.exec(tiles) ?? [];
    const [m = 0, n = 0, k = 0] = sizes.split(" ").map(Number);
    const made = changed((family === "mma" ? mmaSchedule : wgmmaSchedule)(m, n, k), differs);
    const [, verb = "", words = ""] = /^(\S+) ?(.*)$/.exec(line) ?? [];
    if (!VERBS.includes(verb)) throw new Error(`nothing is asked by ${line}`);
    const schedule = verb === "print" || verb === "without" ? made : changed(made, words);
    const name = [...head, words].join(", ");
    return { verb, words, made, subject: { name, context: contextOf(computation, mapping), schedule } };
  };
}

function answer({ verb, words, made, subject: { context, schedule } }: Asked): readonly string[] {
  if (verb === "?") return [gridProblem(context, schedule) ?? "legal"];
  if (verb === "predict") {
    const [before = 0, after = 0] = [made, schedule].map(
      (s) => predictGrid(context, s, nvidiaTarget("h100"))?.uncorrectedSeconds,
    );
    return [after > before ? "more" : after < before ? "less" : "as much"];
  }
  if (verb !== "print" && verb !== "without") return [];
  const nest = lowerGrid(context, schedule);
  const told = new RegExp(`^(?:${words})`);
  if (verb === "print") {
    const lines = printNest(nest).split("\n");
    return lines.slice(lines.findIndex((line) => told.test(line.trim())));
  }
  const left = withoutStatements(nest, (s) => told.test(printHead(s)));
  const calls = schedule.split ? 2 : 1;
  const verdicts = ORDERS.map((order) =>
    verdict({ nest: left, computation: context.mapping.computation }, order, calls),
  );
  // What is missing, without the places that differ from order to order.
  return unique(
    verdicts.map((text) => /missing: .*/.exec(text)?.[0] ?? (text.split("\n")[0] ?? "").replaceAll(/\d+/g, "#")),
  );
}

/** The transcript's tests: its answers, its kernels against their equations, and nvcc. */
export function playGrids(name: string): void {
  playTranscripts("grids", () => {
    const read = reader();
    return (line) => {
      const asked = read(line);
      return asked ? answer(asked) : [];
    };
  }, [`${name}.txt`]);
  const read = reader();
  const all = givenIn(`grids/${name}.txt`).flatMap((line) => read(line) ?? []);
  const asked = (...verbs: readonly string[]): GridSubject[] =>
    all.filter(({ verb }) => verbs.includes(verb)).map(({ subject }) => subject);
  const every = asked("right", "interpreted", "emulated", "full");
  itEqualsTheEquation(every, {
    interpreted: inFull(every, asked("right", "interpreted")),
    emulated: inFull(every, asked("right", "emulated")),
  });
  it.skipIf(!NVCC).each(asked("nvcc"))("is taken by nvcc: $name", (subject) =>
    expectCompiled(subject, subject.context.intrinsic.name.startsWith("mma") ? "80" : "90a"),
  );
}
