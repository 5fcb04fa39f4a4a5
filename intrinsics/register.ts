/**
 * @file Registers instructions that a user declares, so that they are found by name.
 *
 *     registerIntrinsic(defineIntrinsic({ name: "mine.vpmaddwd", isa: "avx2", ... }))      `tune`, `load`, `predict` ... find it from then on
 *     registerDeclarations(await import("./mine.mjs"), "./mine.mjs")                       every declaration that a module exports
 */

import { z } from "zod";
import { canonicalJson } from "../abstraction/candidate.ts";
import { DTYPES } from "../abstraction/dtype.ts";
import { UsageError } from "../abstraction/error.ts";
import { defineIntrinsic, type Intrinsic, type IntrinsicSpec, type OperandSpec } from "../abstraction/intrinsic.ts";
import { checkOptions, identifier, word } from "../abstraction/schema.ts";
import { familyOf } from "../targets/index.ts";
import { intrinsicNamed } from "./index.ts";
import { keepIntrinsic } from "./own.ts";

const text = z.string().min(1);
const cycles = z.number().nonnegative();

const operandSchema = z.strictObject({
  dtype: z.enum(DTYPES),
  storage: text,
  turned: text.optional(),
  layout: z.enum(["row", "column"]).optional(),
  dims: z.array(identifier).optional(),
  shape: z.array(z.int().positive()).optional(),
  load: text.optional(),
  store: text.optional(),
  clear: text.optional(),
} satisfies Record<keyof OperandSpec, z.ZodType>);

const declarationSchema = z.strictObject({
  name: word,
  family: word,
  isa: word,
  features: z.array(word).optional(),
  language: z.enum(["c++", "cuda", "cm", "opencl", "sycl", "none"]),
  scope: z.enum(["thread", "subgroup", "warp", "warpgroup"]).optional(),
  summary: text,
  compute: text,
  extents: z.record(identifier, z.int().positive()),
  operands: z.record(identifier, operandSchema),
  emit: text,
  begin: text.optional(),
  asynchronous: z.strictObject({ publish: text, fence: text, commit: text, wait: text, arrived: text }).optional(),
  prelude: text.optional(),
  setup: text.optional(),
  subnormals: z.literal("flushed").optional(),
  sumBits: z.int().positive().optional(),
  cost: z.strictObject({ issueCycles: cycles, latencyCycles: cycles, source: text }).optional(),
  mnemonic: word.optional(),
  source: text,
} satisfies Record<keyof IntrinsicSpec, z.ZodType>);

/**
 * Makes an instruction known by its name in this process: `tune` may choose it, and `load`, `generate`, `predict`, `replayRun` and
 * whatever else reads a record finds it. Registering the same declaration again changes nothing.
 * @returns the instruction
 * @throws UsageError when a field of the declaration is wrong or unknown, its feature belongs to no machine family, or its name stands
 *   for another declaration already, of the table or registered before
 */
export function registerIntrinsic(intrinsic: Intrinsic): Intrinsic {
  const { name, declaration } = intrinsic;
  checkOptions(declarationSchema, declaration, name, "field");
  familyOf(intrinsic);
  const before = intrinsicNamed(name);
  if (before && canonicalJson(before.declaration) !== canonicalJson(declaration))
    throw new UsageError(
      `${name} stands for another declaration already`,
      "records tell instructions apart by their names: give yours a name of its own, for example mine.dot4",
    );
  if (!before) keepIntrinsic(intrinsic);
  return before ?? intrinsic;
}

/**
 * Registers the declarations that a module exports: each export is one declaration or a list of them.
 * @param from the module's name in messages
 * @throws UsageError when it exports none or something else, and as {@link registerIntrinsic}
 */
export function registerDeclarations(exports: Readonly<Record<string, unknown>>, from: string): readonly Intrinsic[] {
  const found = Object.entries(exports).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one: unknown) => ({ name, declaration: declarationIn(one) })),
  );
  if (found.length === 0)
    throw new UsageError(
      `${from} exports no declaration`,
      'export one, or a list of them: export default { name: "mine.dot4", ... } (docs/intrinsics.md)',
    );
  return found.map(({ name, declaration }) => {
    checkOptions(declarationSchema, declaration, `${from}: ${name}`, "field");
    return registerIntrinsic(defineIntrinsic(declaration as IntrinsicSpec)); // what the schema says
  });
}

/** The declaration of an intrinsic that `defineIntrinsic` made, possibly in another copy of automap. */
function declarationIn(value: unknown): unknown {
  return typeof value === "object" && value !== null && "declaration" in value ? value.declaration : value;
}
