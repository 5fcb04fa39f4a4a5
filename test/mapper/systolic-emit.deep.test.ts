/** @file What `automap systolic ... --emit` prints, compiled and run: the whole computation, equal to its equation. */

import { describe, expect, it } from "vitest";
import { readArraySubject } from "../../cli/systolic.ts";
import type { LaneLanguage } from "../../codegen/lanes.ts";
import { designOf } from "../../mapper/space-time/design.ts";
import { enumerateDesigns } from "../../mapper/space-time/enumerate.ts";
import { polyphaseForm } from "../../mapper/space-time/polyphase.ts";
import { nativeTarget } from "../../targets/index.ts";
import { inFull } from "../support/slow.ts";
import { wrongEmulated } from "../support/space-time.ts";
import { parametersIn } from "../support/subjects.ts";

/** Compilers on a busy machine. */
interface Case {
  readonly subject: string;
  readonly parameters: string;
  readonly lanes: number;
  readonly designs: readonly string[];
  readonly bound?: number;
}

const CASES: readonly Case[] = [
  { subject: "conv1d-single", parameters: "l=103 r=5", lanes: 16, designs: ["SBM", "FBS", "FSM"] },
  { subject: "conv1d", parameters: "n=1 k=2 c=3 l=21 r=3", lanes: 8, designs: ["SBM", "BSM"] },
  {
    subject: "conv1d",
    parameters: "n=1 k=2 c=2 l=43 r=5 stride=2",
    lanes: 8,
    bound: 2,
    designs: ["SBM", "SBM.polyphase"],
  },
  { subject: "conv2d", parameters: "n=1 k=2 c=2 h=5 w=11 r=3 s=3 pad=1", lanes: 8, designs: ["FBS"] },
  { subject: "matmul", parameters: "m=5 n=6 k=7", lanes: 4, designs: ["FFS", "FSM"] },
  { subject: "2d5pt", parameters: "h=5 w=19", lanes: 8, designs: ["FFS"] },
  { subject: "3d7pt", parameters: "d=3 h=4 w=19", lanes: 8, designs: ["FBS"] },
  { subject: "depthwise-conv2d", parameters: "n=1 c=2 h=4 w=9 m=1", lanes: 8, designs: ["FBS"] },
  { subject: "examples/sbm.ure", parameters: "", lanes: 16, designs: [] },
  { subject: "examples/gemm.ure", parameters: "", lanes: 16, designs: ["FFS"] },
];

/** The programs of a case: each design that is named, or the one the file says. */
function programsOf({ subject, parameters, lanes, designs, bound = 1 }: Case) {
  const found = readArraySubject(subject, parametersIn(parameters), { lanes });
  const { fixed, pass, problem, arrayRows, program } = found;
  if (!program) throw new Error(`${subject} has no program`);
  const all = fixed ? [] : enumerateDesigns(problem, { bound, arrayRows }).designs;
  const chosen = fixed
    ? [designOf(problem, fixed)]
    : designs.map((name) => {
        const plain = all.find((d) => d.name === name.replace(".polyphase", ""));
        const design = name.endsWith(".polyphase") && pass && plain ? polyphaseForm(pass, plain)?.design : plain;
        if (!design) throw new Error(`${subject} has no design ${name}`);
        return design;
      });
  return chosen.map((design) => ({
    label: `${subject} ${design.name}`,
    ...program(design, { coalesced: true, checkTime: false }),
  }));
}

describe("a program of a design computes all of the computation", () => {
  const avx512 = nativeTarget().isa.includes("avx512f");
  const languages: readonly LaneLanguage[] = ["c++", "cuda", "cm"];
  it.each(languages)("in %s", async (language) => {
    if (language === "c++" && !avx512) return;
    const cases = inFull(CASES, language === "cm" ? CASES.slice(0, 3) : CASES).flatMap(programsOf);
    expect(await wrongEmulated(language, cases)).toEqual([]);
  });
});
