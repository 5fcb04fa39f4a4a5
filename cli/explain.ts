/**
 * @file `automap explain`: draws one mapping, explains why a match is refused with the entry that disagrees and a counterexample, or breaks down
 * a record's time.
 *
 *     automap explain conv2d --intrinsic amx.tdpbusd
 *     automap explain conv2d --intrinsic amx.tdpbusd --matching "m=n,k n=k k=c"
 */

import type { Command } from "commander";
import { z } from "zod";
import { defined } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import { isRecurrent } from "../abstraction/dependence.ts";
import { NotFoundError, suggestion, UsageError } from "../abstraction/error.ts";
import { printExpr } from "../abstraction/expression.ts";
import type { Intrinsic } from "../abstraction/intrinsic.ts";
import type { Binding, Mapping, Matching, Refusal } from "../abstraction/mapping.ts";
import { printNest } from "../abstraction/print-nest.ts";
import { lowerMapping } from "../mapper/lower/plain.ts";
import { type AccessMatrices, accessMatrices } from "../mapper/match/access.ts";
import { bindOperands } from "../mapper/match/bind.ts";
import { mappings } from "../mapper/match/enumerate.ts";
import { physicalMapping } from "../mapper/match/physical.ts";
import { defineProblem } from "../mapper/match/problem.ts";
import { validate } from "../mapper/match/validate.ts";
import { drawMapping, drawRefusal } from "../report/draw-mapping.ts";
import { drawMappingSvg } from "../report/draw-svg.ts";
import type { Cli } from "./command.ts";
import { explainBest, explainRecord, isRecordId, recordSchema } from "./explain-record.ts";
import { checkWritable, writeOutput } from "./files.ts";
import {
  addMappingOptions,
  mappingDocument,
  mappingOptions,
  mappingSchema,
  readForm,
  refusalDocument,
  refusalSchema,
} from "./map.ts";
import { flag, optionalText, optionalWord, readParameters } from "./options.ts";
import { documentOf, EXIT, type ExitCode, integer, number, print, printJson, say, text, texts } from "./output.ts";
import { readComputation, readIntrinsics } from "./subject.ts";
import { sentenceRoom } from "./terminal.ts";

const options = mappingOptions.extend({
  id: optionalText,
  matching: optionalText,
  svg: optionalText,
  nest: flag,
  candidate: optionalText,
  db: optionalWord,
});
type Options = z.infer<typeof options>;

const matrix = z.strictObject({
  rows: texts,
  columns: texts,
  bits: z.array(z.array(integer)),
});
const kind = z.enum(["spatial", "reduce"]);
const mappedSchema = documentOf({
  operator: text,
  verdict: z.literal("maps"),
  mapping: mappingSchema,
  matrices: z
    .strictObject({ x: matrix, y: matrix, z: matrix })
    .describe("accesses of the software, the matching, accesses of the instruction: docs/mapping.md"),
  axes: z.array(
    z.strictObject({
      axis: text,
      index: text.describe("of the loops that feed it, fused"),
      fused: integer,
      extent: integer,
      tiles: integer,
      padded: integer,
    }),
  ),
  outer: z.array(z.strictObject({ name: text, extent: integer, kind })).describe("loops that feed no axis"),
  operands: z.array(
    z.strictObject({
      operand: text,
      base: text.describe("where a tile begins"),
      stride: integer.optional().describe("between rows of a tile; missing where it has none"),
      tileElements: integer,
      elements: integer,
    }),
  ),
  issues: number.describe("of the instruction"),
});
const refusedSchema = documentOf({
  operator: text,
  verdict: z.literal("refused"),
  refusal: refusalSchema.partial({ intrinsic: true }).describe("of every instruction where none is named"),
});

export function register(command: Cli): void {
  addMappingOptions(command)
    .json(z.union([mappedSchema, refusedSchema, recordSchema]))
    .option("--id <id>", "the mapping with this id, or the beginning of one (default: the best)")
    .option("--matching <text>", 'a match of your own: "m=n,p,q n=k k=c,r,s"')
    .option("--svg <file>", "also write a drawing of the mapping as SVG")
    .option("--nest", "print the lowered loop nest")
    .option("--candidate <which>", "break down the time of a recorded kernel: best, or the id of a record")
    .option("--db <file>", "database that holds the record (default: automap.db in this directory)")
    .examples([
      "automap explain conv2d --intrinsic amx.tdpbusd",
      'automap explain conv2d --intrinsic amx.tdpbusd --matching "m=n,k n= k=c"',
      "automap explain conv2d --intrinsic wmma.m16n16k16.f32.f16 --svg mapping.svg",
      "automap explain conv2d --dtype u8s8 --layout NHWC --candidate best --db automap.db",
      "automap explain 3f9a1c77d0e2 --db automap.db",
    ])
    .runs(options, runExplain);
}

/** A match with the matrices it was validated against. */
interface Judged {
  readonly matrices: AccessMatrices;
  readonly binding: Binding;
}

type Explained =
  | { readonly kind: "mapping"; readonly mapping: Mapping }
  | { readonly kind: "refusal"; readonly refusal: Refusal; readonly judged: Judged | undefined };

function runExplain(given: Options, command: Command, subject: string): ExitCode {
  const { candidate, db } = given;
  if (candidate !== undefined) {
    if (candidate !== "best") return explainRecord(candidate, given);
    const computation = readComputation(subject, readParameters(command), given);
    return explainBest(computation, given);
  }
  if (isRecordId(subject)) return explainRecord(subject, given);
  if (db !== undefined)
    throw new UsageError(
      "--db goes with the id of a record, or with --candidate",
      "for example automap explain conv2d --candidate best --db automap.db",
    );
  const lone = given.intrinsic === undefined ? readComputation(subject, readParameters(command), given) : undefined;
  if (lone && isRecurrent(lone.equation)) return explainRecurrence(lone, given);
  if (given.intrinsic === undefined)
    throw new UsageError(
      "explain needs --intrinsic",
      "for example --intrinsic amx.tdpbusd; `automap intrinsic list` shows all",
    );
  const found = readIntrinsics(given.intrinsic);
  const parameters = readParameters(command);
  const computationFor = (intrinsic: Intrinsic): Computation => readForm(subject, parameters, given, intrinsic);
  // Of a family, the first instruction that maps is explained, or the refusal of the first one.
  const tries = found.map((intrinsic) => ({
    intrinsic,
    computation: computationFor(intrinsic),
    explained: explainOn(computationFor(intrinsic), intrinsic, given, found.length > 1),
  }));
  const chosen = tries.find((t) => t.explained?.kind === "mapping") ?? tries.find((t) => t.explained !== undefined);
  if (!chosen?.explained)
    throw new NotFoundError(
      `no mapping of ${subject} has an id beginning with "${given.id}"`,
      "`automap map` lists the ids for the same operator, extents and types",
    );
  const { intrinsic, computation, explained } = chosen;
  if (found.length > 1) say(`${given.intrinsic} has ${found.length} instructions; explaining ${intrinsic.name}`);

  if (explained.kind === "refusal") {
    const { refusal, judged } = explained;
    if (given.json)
      printJson(refusedSchema, {
        operator: computation.name,
        verdict: "refused",
        refusal: refusalDocument(refusal, intrinsic),
      });
    else print(drawRefusal(refusal, computation, intrinsic, judged, sentenceRoom()));
    return EXIT.nothingFound;
  }
  const { mapping } = explained;
  if (given.svg !== undefined) checkWritable("--svg", given.svg);
  if (given.json) printJson(mappedSchema, explainDocument(mapping));
  else
    print(
      [
        drawMapping(mapping),
        ...(given.nest ? ["", "lowered with the trivial schedule", printNest(lowerMapping(mapping))] : []),
      ].join("\n"),
    );
  if (given.svg !== undefined) writeSvg(given.svg, mapping);
  return EXIT.ok;
}

/** Explains why no instruction computes a recurrence, and which command explains its kernels. */
function explainRecurrence({ name, equation }: Computation, { json }: Options): ExitCode {
  const because = `${equation.target.tensor} reads itself: its points depend on one another in order`;
  const hint =
    "tune runs it on vector lanes where one of their designs fits; explain --candidate best says where the time of the fastest goes";
  if (json) {
    const refusal = { rule: "recurrence" as const, because, matching: {}, hint, place: undefined, witness: undefined };
    printJson(refusedSchema, { operator: name, verdict: "refused", refusal });
  } else print(`no instruction computes this: ${because}\n  ${hint}`);
  return EXIT.nothingFound;
}

/** The requested mapping or refusal for one instruction; undefined when the id is not among its mappings. */
function explainOn(
  computation: Computation,
  intrinsic: Intrinsic,
  given: Options,
  family: boolean,
): Explained | undefined {
  const rule = given.rule ?? "gather";
  if (given.matching !== undefined) {
    const { bindings, refusals } = bindOperands(
      computation,
      intrinsic,
      (given.binding ?? (rule === "amos" ? "fixed" : "any")) === "any",
    );
    const [refusal] = refusals;
    if (refusal) return { kind: "refusal", refusal, judged: undefined };
    const matching = readMatching(given.matching);
    const judged = bindings.map((binding) => ({
      binding,
      verdict: validate(defineProblem(computation, intrinsic, binding), matching, { rule, strict: given.strict }),
    }));
    const best = judged.find((j) => j.verdict.ok) ?? judged[0];
    if (!best) return undefined;
    if (best.verdict.ok) return { kind: "mapping", mapping: best.verdict.mapping };
    return {
      kind: "refusal",
      refusal: best.verdict.refusal,
      judged: {
        matrices: accessMatrices(computation, intrinsic, best.binding, best.verdict.refusal.matching),
        binding: best.binding,
      },
    };
  }
  const set = mappings(computation, intrinsic, {
    rule,
    strict: given.strict,
    ...defined({ binding: given.binding }),
  });
  const { id } = given;
  if (id !== undefined) {
    const matches = set.valid.filter((m) => m.id.startsWith(id));
    if (matches.length > 1)
      throw new UsageError(
        `the id "${id}" fits ${matches.length} mappings`,
        suggestion(
          id,
          matches.map((m) => m.id),
        ),
      );
    const [only] = matches;
    if (only) return { kind: "mapping", mapping: only };
    if (family || set.valid.length > 0) return undefined;
  }
  const [best] = set.valid;
  if (best) return { kind: "mapping", mapping: best };
  const [refusal] = set.refused;
  return refusal && { kind: "refusal", refusal, judged: undefined };
}

/** Parses `m=n,p,q n=k k=c,r,s`. An empty list leaves the axis unfed. */
function readMatching(text: string): Matching {
  const parts = text.split(/[\s;]+/).filter((p) => p !== "");
  const entries = parts.map((part): [string, string[]] => {
    const match = /^(\w+)(?:=|<-)([\w,]*|-)$/.exec(part);
    if (!match?.[1])
      throw new UsageError(`--matching: "${part}" is not axis=loop,loop`, {
        source: text,
        span: { start: text.indexOf(part), end: text.indexOf(part) + part.length },
        hint: 'for example --matching "m=n,p,q n=k k=c,r,s"',
      });
    return [match[1], (match[2] ?? "").split(",").filter((l) => l !== "" && l !== "-")];
  });
  return Object.fromEntries(entries);
}

function explainDocument(mapping: Mapping) {
  const { x, y, z } = accessMatrices(mapping.computation, mapping.intrinsic, mapping.binding, mapping.matching);
  const physical = physicalMapping(mapping);
  return {
    operator: mapping.computation.name,
    verdict: "maps" as const,
    mapping: mappingDocument(mapping),
    matrices: { x, y, z },
    axes: physical.axes.map((a) => ({
      axis: a.axis,
      index: printExpr(a.index, "formula"),
      fused: a.fused,
      extent: a.extent,
      tiles: a.tiles,
      padded: a.padded,
    })),
    outer: physical.outer,
    operands: physical.operands.map((o) => ({
      operand: o.operand.name,
      base: printExpr(o.base, "formula"),
      stride: o.stride,
      tileElements: o.tile,
      elements: o.elements,
    })),
    issues: physical.issues,
  };
}

function writeSvg(file: string, mapping: Mapping): void {
  writeOutput("--svg", file, drawMappingSvg(mapping));
  say(`drawn into ${file}`);
}
