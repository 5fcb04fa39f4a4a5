/**
 * @file `automap map`: how an operator maps onto one instruction, a family, or all instructions.
 *
 *     automap map conv2d --intrinsic wmma.m16n16k16.f32.f16
 *     automap map conv2d --c 64 --k 64 --h 56 --w 56 --intrinsic vnni --why
 *     automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 64 --j 64 --k 64 --intrinsic amx --json
 */

import type { Command } from "commander";
import { z } from "zod";
import type { Extents } from "../abstraction/affine.ts";
import { defined, groupsOf, mapValues, sortedBy, sumOf } from "../abstraction/collections.ts";
import { type Computation, computationKey, equationText, REWRITINGS } from "../abstraction/computation.ts";
import { automapCommand, type CommandLine, internal, UsageError } from "../abstraction/error.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import { boundName, type Mapping, printMatching, type Refusal, RULES, type Witness } from "../abstraction/mapping.ts";
import { type MappingSet, mappings } from "../mapper/match/enumerate.ts";
import { loopForms, rewrittenAs } from "../mapper/match/phases.ts";
import { physicalMapping } from "../mapper/match/physical.ts";
import { REWRITTEN } from "../report/describe-candidate.ts";
import { drawSubjects } from "../report/draw-mapping.ts";
import { counted, indent, percent } from "../report/text.ts";
import type { Cli } from "./command.ts";
import { declareWords } from "./declare.ts";
import { flag, optionWords, readParameters } from "./options.ts";
import {
  documentOf,
  EXIT,
  type ExitCode,
  integer,
  number,
  partOf,
  print,
  printJson,
  style,
  text,
  textsByName,
} from "./output.ts";
import { addSubjectOptions, givenOptions, readComputation, readIntrinsics, subjectOptions } from "./subject.ts";
import { fitted, worded } from "./terminal.ts";

/** Mappings listed for one instruction unless --all is given. */
const SHOWN = 12;

export const mappingOptions = subjectOptions.extend({
  rule: z
    .enum(["amos", "gather"], {
      error: ({ input }) =>
        `--rule must be gather (every valid set of loops) or amos (unions of match points), got "${String(input)}"`,
    })
    .optional(),
  binding: z
    .enum(["fixed", "any"], {
      error: ({ input }) =>
        `--binding must be fixed (operands in the order of the text) or any, got "${String(input)}"`,
    })
    .optional(),
  strict: flag,
  rewrite: z
    .enum(REWRITINGS, { error: ({ input }) => `--rewrite must be ${REWRITINGS.join(", ")}, got "${String(input)}"` })
    .optional(),
  json: flag,
});

const matching = textsByName.describe("the loops that feed each axis of the instruction");
export const mappingSchema = z.strictObject({
  id: text,
  intrinsic: text,
  matching,
  operands: z.record(text, text).describe("the tensor of each operand"),
  waste: number.describe("share of the multiplies that only compute padding"),
});
export const refusalSchema = z.strictObject({
  rule: text,
  because: text,
  matching,
  intrinsic: text,
  hint: text.optional(),
  place: z.strictObject({ row: text, column: text }).optional(),
  witness: partOf<Witness>("an output element that would be computed wrongly").optional(),
});
const mapSchema = documentOf({
  operator: text,
  equation: text,
  intrinsic: text.describe("the instruction, or the family that was asked for"),
  rule: z.enum(["amos", "gather"]),
  strict: z.boolean(),
  count: integer.describe("mappings"),
  total: integer.describe("candidate matches"),
  sampled: z.boolean().describe("whether the matches are a sample of a space too large to list"),
  mappings: z.array(mappingSchema),
  refusals: z.array(refusalSchema),
});

const options = mappingOptions.extend({ why: flag, all: flag });
type Options = z.infer<typeof options>;

export function addMappingOptions(command: Cli): Cli {
  return addSubjectOptions(command)
    .option("--rule <rule>", "gather: every valid set of loops (default); amos: unions of match points")
    .option(
      "--binding <order>",
      "fixed: operands in the order of the text; any: products commute (default: any for gather, fixed for amos)",
    )
    .option("--rewrite <how>", "rewrite the equation's loops first: phases (of strides) or reversed (taps)")
    .option("--strict", "refuse extents smaller than the instruction's instead of padding them");
}

export function register(command: Cli): void {
  addMappingOptions(command)
    .json(mapSchema)
    .option("--why", "list the refused matches with their reasons")
    .option("--all", "list every mapping")
    .examples(
      [
        "automap map conv2d --intrinsic wmma.m16n16k16.f32.f16",
        "automap map conv2d --c 64 --k 64 --h 56 --w 56 --intrinsic vnni --why",
        "automap map depthwise-conv2d --intrinsic avx512 --layout NHWC",
        'automap map "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 64 --j 64 --k 64 --intrinsic amx --json',
      ],
      "Exit code 3 means that nothing maps; the reasons are printed, the easiest to mend first.",
    )
    .runs(options, runMap);
}

function runMap(given: Options, command: Command, subject: string): ExitCode {
  const parameters = readParameters(command);
  const intrinsics = readIntrinsics(given.intrinsic);
  const sets = mapOntoAll(subject, parameters, given, intrinsics);
  const maps = sets.some((s) => s.valid.length > 0);
  if (given.json) printJson(mapSchema, mapDocument(given.intrinsic, sets));
  else {
    const explain = (intrinsic: string): string => explainCommand(command, given, intrinsic);
    print(sets.length === 1 && sets[0] ? describeSet(sets[0], given, explain) : describeSurvey(sets, given, explain));
  }
  return maps ? EXIT.ok : EXIT.nothingFound;
}

/** The command that explains a mapping of the same computation. */
function explainCommand({ args }: Command, given: Options, intrinsic: string): CommandLine {
  const { rule, binding, rewrite, strict } = given;
  return automapCommand(
    "explain",
    args,
    givenOptions(given),
    optionWords({ intrinsic, rule, binding, rewrite }),
    strict ? "--strict" : undefined,
    declareWords(given),
  );
}

/** The computation with the requested loops. @throws UsageError when it cannot be written that way */
export function readForm(
  subject: string,
  parameters: Extents,
  given: z.infer<typeof mappingOptions>,
  intrinsic: Intrinsic,
): Computation {
  const stated = readComputation(subject, parameters, given, intrinsic);
  const form = given.rewrite === undefined ? stated : rewrittenAs(stated, given.rewrite);
  if (typeof form !== "string") return form;
  throw new UsageError(`${stated.name} cannot be mapped with --rewrite ${given.rewrite}: ${form}`);
}

/** One set for each instruction. In a family, rows that the given types do not fit are refusals like any other. */
function mapOntoAll(
  subject: string,
  parameters: Extents,
  given: z.infer<typeof mappingOptions>,
  intrinsics: readonly Intrinsic[],
): MappingSet[] {
  // A usage error is the same for every instruction, so the first computation reports it.
  const computations = new Map<string, Computation>();
  return intrinsics.map((intrinsic) => {
    const made = readForm(subject, parameters, given, intrinsic);
    const key = computationKey(made);
    const computation = computations.get(key) ?? made;
    computations.set(key, computation);
    return mappings(computation, intrinsic, {
      ...defined({ rule: given.rule, binding: given.binding }),
      strict: given.strict,
    });
  });
}

function mapDocument(name: string | undefined, sets: readonly MappingSet[]) {
  const [first] = sets;
  if (!first) internal("no instruction to map onto");
  return {
    operator: first.computation.name,
    equation: equationText(first.computation),
    intrinsic: sets.length === 1 ? first.intrinsic.name : (name ?? "all"),
    rule: first.rule,
    strict: first.strict,
    count: sumOf(sets, (s) => s.valid.length),
    total: sumOf(sets, (s) => s.total),
    sampled: sets.some((s) => s.sampled),
    mappings: sets.flatMap((s) => s.valid.map(mappingDocument)),
    refusals: sortedBy(
      sets.flatMap((s) => s.refused.map((r) => ({ refusal: r, intrinsic: s.intrinsic }))),
      (a) => RULES.indexOf(a.refusal.rule),
    ).map(({ refusal, intrinsic }) => refusalDocument(refusal, intrinsic)),
  };
}

export function mappingDocument(mapping: Mapping) {
  const { id, intrinsic, matching, binding, waste } = mapping;
  const operands = mapValues(binding, (bound) => boundName(bound));
  return { id, intrinsic: intrinsic.name, matching, operands, waste };
}

export function refusalDocument(refusal: Refusal, intrinsic: Intrinsic) {
  const { rule, because, matching, hint, place, witness } = refusal;
  return { rule, because, matching, intrinsic: intrinsic.name, hint, place, witness };
}

/** Describes one instruction: its mappings, best first. */
function describeSet(set: MappingSet, { why, all }: Options, explain: (intrinsic: string) => string): string {
  const { valid, refused } = set;
  const lines = [drawSubjects(set.computation, set.intrinsic), ""];
  if (valid.length === 0) return [...lines, style("red", "nothing maps"), "", ...describeRefusals(refused)].join("\n");
  const shown = all ? valid : valid.slice(0, SHOWN);
  const count = counted(valid.length, "mapping");
  const looked = set.sampled
    ? `in a sample of ${set.total} matches`
    : `of ${counted(set.total, "candidate match", "candidate matches")}`;
  lines.push(
    `${style("bold", count)} ${looked} (rule ${set.rule}${set.strict ? ", strict" : ""}), least waste first`,
    "",
  );
  lines.push(indent(fitted([["id", "matching", "operands", "waste", "calls"], ...shown.map(mappingRow)], 2)));
  if (shown.length < valid.length) lines.push(indent(style("dim", `... ${valid.length - shown.length} more (--all)`)));
  if (why) lines.push("", ...describeRefusals(refused));
  else if (refused.length > 0)
    lines.push("", style("dim", `${counted(refused.length, "other match", "other matches")} refused (--why)`));
  const [form] = loopForms(set.computation);
  if (form?.rewriting && !set.computation.rewriting)
    lines.push(
      "",
      style("dim", `a search maps it ${REWRITTEN[form.rewriting.kind]} too (--rewrite ${form.rewriting.kind}):`),
      style("dim", `  ${form.rewriting.places.join("   ")}`),
    );
  lines.push("", style("dim", "draw the best, or another by its --id:"));
  lines.push(style("dim", `  ${explain(set.intrinsic.name)} --id ${valid[0]?.id}`));
  return lines.join("\n");
}

function mappingRow(mapping: Mapping): string[] {
  const operands = Object.entries(mapping.binding)
    .slice(1)
    .map(([operand, bound]) => `${operand}=${boundName(bound)}`)
    .join(" ");
  return [
    mapping.id,
    printMatching(mapping.matching),
    operands,
    percent(mapping.waste),
    String(physicalMapping(mapping).issues),
  ];
}

/** Lists what was tried, why it does not map, and the change that would help. */
function describeRefusals(refused: readonly Refusal[]): string[] {
  const matched = refused.some((r) => Object.keys(r.matching).length > 0);
  const rows = refused.map((r) => [r.rule, ...(matched ? [printMatching(r.matching)] : []), sentence(r)]);
  return ["refused, nearest to fitting first", indent(worded(rows, 2))];
}

function sentence({ because, hint }: Refusal): string {
  return hint === undefined ? because : `${because} (${hint})`;
}

/** Describes many instructions, one a line. */
function describeSurvey(
  sets: readonly MappingSet[],
  { why, all }: Options,
  explain: (intrinsic: string) => string,
): string {
  const [first] = sets;
  if (!first) return "no instruction";
  const able = sets.flatMap((s) => (s.valid[0] ? [{ set: s, best: s.valid[0] }] : []));
  const unable = sets.flatMap((s) => (s.valid.length === 0 && s.refused[0] ? [{ set: s, hope: s.refused[0] }] : []));
  const lines = [`${first.computation.name} onto ${sets.length} instructions: ${able.length || "none"} can compute it`];
  if (able.length > 0) {
    const rows = able.map(({ set, best }) => [
      set.intrinsic.name,
      String(set.valid.length),
      percent(best.waste),
      best.id,
      printMatching(best.matching),
    ]);
    lines.push("", indent(worded([["instruction", "mappings", "waste", "id", "best matching"], ...rows], 2)));
  }
  if (able.length === 0 || all) {
    const byHope = sortedBy(unable, (a) => RULES.indexOf(a.hope.rule));
    // Hundreds of instructions may be refused for the same reason.
    const alike = groupsOf(byHope, ({ set, hope }) => (all ? set.intrinsic.name : `${hope.rule} ${sentence(hope)}`));
    const rows = [...alike.values()].flatMap(([first, ...others]) => {
      if (!first) return [];
      const { set, hope } = first;
      const name = others.length > 0 ? `${set.intrinsic.name} and ${others.length} more` : set.intrinsic.name;
      return [[name, hope.rule, sentence(hope)]];
    });
    if (rows.length > 0) lines.push("", "refused, nearest to fitting first", indent(worded(rows, 2)));
  } else if (unable.length > 0) lines.push(indent(style("dim", `... ${unable.length} cannot (--all)`)));
  if (why)
    for (const s of sets.filter((s) => s.refused.length > 0))
      lines.push("", `${style("bold", s.intrinsic.name)}: ${describeRefusals(s.refused).join("\n")}`);
  if (able[0]) lines.push("", style("dim", `draw one: ${explain(able[0].set.intrinsic.name)}`));
  return lines.join("\n");
}
