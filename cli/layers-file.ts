/**
 * @file The file of `automap tune --layers`: the computations to tune, in YAML or JSON.
 *
 *     defaults: { operator: conv2d, dtype: u8s8, time: 20 }
 *     layers:
 *       - { name: conv1, layout: NHWC, parameters: { c: 3, k: 64, h: 224, w: 224, r: 7, s: 7, stride: 2, pad: 3 } }
 *       - { name: fc, operator: matmul, parameters: { m: 1, n: 1000, k: 512 }, priority: -1 }
 *
 * An entry becomes the words of a command line. The file comes from anywhere: its size and its aliases are limited, and it has no tags.
 */

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { z } from "zod";
import type { Extents } from "../abstraction/affine.ts";
import { CANDIDATE_KINDS } from "../abstraction/candidate.ts";
import { defined, namesOf } from "../abstraction/collections.ts";
import { messageOf, UsageError } from "../abstraction/error.ts";
import { checkOptions } from "../abstraction/schema.ts";
import { WORKLOAD_NAME } from "../db/index.ts";
import { withFile } from "../network/onnx/file.ts";
import { STRATEGIES } from "../tuner/strategies.ts";
import { text } from "./output.ts";
import { readComputation } from "./subject.ts";
import type { TuneWords } from "./tune.ts";

/** Bytes of a file at most. */
const MOST_BYTES = 2 ** 18;
const MOST_LAYERS = 2000;
/** How many times what an alias stands for may be repeated. */
const MOST_ALIASES = 100;

const positive = z.int({ error: "must be a whole number" }).min(1, { error: "must be at least 1" });
const byTensor = z.record(text, text);
const textOrByTensor = z.union([text, byTensor], {
  error: "must be a text, or a text for each tensor: { in: NHWC, w: KCRS }",
});

/** What `defaults` may say. */
const shared = z.strictObject({
  operator: text.optional().describe("an operator's name (automap operator list)"),
  equation: text.optional().describe("in place of an operator: c[i,j] += a[i,k] * b[k,j]"),
  parameters: z
    .record(text, z.number({ error: "must be a number" }))
    .optional()
    .describe("extents of axes, values of parameters and constants, by name"),
  dtype: textOrByTensor.optional().describe("element types: u8s8, or by tensor"),
  sum: text.optional().describe("type of the accumulator"),
  layout: textOrByTensor.optional().describe("NHWC, or by tensor"),
  shape: z
    .record(text, z.array(positive))
    .optional()
    .describe("sizes of tensors of an equation that its axes do not say, by name"),
  epilogue: text.optional().describe("name or equation of what is applied to each element before it is stored"),
  constant: z.array(text).optional().describe("inputs that never change, as weights"),
  intrinsic: text.optional().describe("an instruction or a family of instructions; all when left out"),
  kinds: z.enum(CANDIDATE_KINDS, { error: `must be ${CANDIDATE_KINDS.join(", ")}` }).optional(),
  strategy: z.enum(namesOf(STRATEGIES), { error: `must be ${namesOf(STRATEGIES).join(", ")}` }).optional(),
  seed: z.int({ error: "must be a whole number" }).min(0, { error: "must not be negative" }).optional(),
  threads: positive.optional().describe("threads of a kernel"),
  trials: positive.optional().describe("kernels to measure at most"),
  time: positive.optional().describe("seconds until the search ends"),
  priority: z
    .int({ error: "must be a whole number" })
    .optional()
    .describe("higher ones are tuned first, equal ones in the order of the file; 0 when left out"),
});
const entry = shared.extend({
  name: text
    .regex(WORKLOAD_NAME, { error: "must be letters, digits and . _ - + / :, no more than 80" })
    .optional()
    .describe("what to call it in tables and reports"),
});
const file = z.strictObject({
  defaults: shared.optional().describe("what entries leave out"),
  layers: z.array(entry).min(1),
});
/** The file, for `--layers-schema`. */
export const layersFileSchema = z.union([file, z.array(entry).min(1)]);

type Entry = z.infer<typeof entry>;

/** One computation to tune. */
export interface Layer {
  /** Its place in the file, from 1. */
  readonly place: number;
  readonly priority: number;
  /** How messages name it: `layers.yaml, layer 3 (conv2d)`. */
  readonly label: string;
  /** An operator's name, or an equation. */
  readonly subject: string;
  readonly parameters: Extents;
  /** Its options; those of the command where the file says nothing. */
  readonly given: TuneWords;
}

/**
 * The layers of a file, in its order.
 * @param given the command's own options, which apply where the file says nothing
 * @throws UsageError that names each entry that is wrong, and its key
 */
export function readLayers(path: string, given: TuneWords): readonly Layer[] {
  const found = parsed(path);
  const whole = Array.isArray(found) ? { layers: found } : found;
  const frame = z.strictObject({ defaults: shared.optional(), layers: z.array(z.unknown()) });
  checkOptions(frame, whole, path, "key");
  const { defaults = {}, layers } = frame.parse(whole);
  if (layers.length === 0) throw new UsageError(`${path}: layers has no entry`, "automap tune --layers-schema");
  if (layers.length > MOST_LAYERS)
    throw new UsageError(`${path} has ${layers.length} layers, and ${MOST_LAYERS} is the most`, "make several files");
  const read: Layer[] = [];
  const wrong: UsageError[] = [];
  layers.forEach((one, index) => {
    const label = `${path}, layer ${index + 1}${subjectIn(one, defaults)}`;
    collecting(wrong, label, () => {
      checkOptions(entry, one, label, "key");
      const layer = layerOf(entry.parse(one), defaults, { given, place: index + 1, label });
      readComputation(layer.subject, layer.parameters, layer.given);
      read.push(layer);
    });
  });
  throwAll(wrong);
  return read;
}

/** Runs a check, and keeps its usage error with the label of the layer. */
export function collecting(wrong: UsageError[], label: string, check: () => void): void {
  try {
    check();
  } catch (error) {
    if (!(error instanceof UsageError)) throw error;
    // An option that a message begins with is a key here, and the label names the operator.
    const [first = ""] = error.message.split(": ", 1);
    const key = error.message.replace(/^--([a-z]+):? /, "$1: ");
    const message = label.endsWith(`(${first})`) ? error.message.slice(first.length + 2) : key;
    const { source, span } = error;
    const hint = error.hint?.replaceAll(/--([A-Za-z_]\w*) (-?[\d.]+)/g, "$1: $2");
    wrong.push(new UsageError(message.startsWith(label) ? message : `${label}: ${message}`, { source, span, hint }));
  }
}

/** Wrong entries that are told. */
const TOLD = 10;

/** @throws UsageError when there is any: one that tells of all */
export function throwAll(wrong: readonly UsageError[]): void {
  const [first, second] = wrong;
  if (!first) return;
  if (!second) throw first;
  const texts = wrong.slice(0, TOLD).map((error) => error.explain());
  const more = wrong.length > TOLD ? [`and ${wrong.length - TOLD} more of its layers are wrong`] : [];
  throw new UsageError([...texts, ...more].join("\n"));
}

/** ` (conv2d)`, where the entry says what it computes. */
function subjectIn(one: unknown, defaults: z.infer<typeof shared>): string {
  const named = z.looseObject({ operator: text.optional(), equation: text.optional() }).safeParse(one);
  if (!named.success) return "";
  const subject = named.data.operator ?? named.data.equation ?? defaults.operator ?? defaults.equation;
  return subject === undefined ? "" : ` (${subject})`;
}

/** An entry as the words of a command line. */
function layerOf(
  one: Entry,
  defaults: z.infer<typeof shared>,
  { given, place, label }: { readonly given: TuneWords; readonly place: number; readonly label: string },
): Layer {
  if (one.operator !== undefined && one.equation !== undefined)
    throw new UsageError("operator and equation exclude each other", "leave one of them out");
  const subject = one.operator ?? one.equation ?? defaults.operator ?? defaults.equation;
  if (subject === undefined) throw new UsageError("it has no operator and no equation", "for example operator: conv2d");
  const {
    operator: _,
    equation: __,
    parameters,
    priority = 0,
    dtype,
    layout,
    shape,
    ...rest
  } = { ...defaults, ...one };
  return {
    place,
    priority,
    label,
    subject,
    parameters: { ...defaults.parameters, ...parameters },
    given: {
      ...given,
      ...defined(rest),
      ...defined({ dtype: pairs(dtype), layout: pairs(layout), shape: shape && pairs(sizes(shape)) }),
    },
  };
}

/** `in=NHWC,w=KCRS`, as a command line has it. */
function pairs(given: string | Readonly<Record<string, string>> | undefined): string | undefined {
  if (typeof given !== "object") return given;
  return Object.entries(given)
    .map(([tensor, value]) => `${tensor}=${value}`)
    .join(",");
}

function sizes(shape: Readonly<Record<string, readonly number[]>>): Record<string, string> {
  return Object.fromEntries(Object.entries(shape).map(([tensor, extents]) => [tensor, extents.join("x")]));
}

/** The reader of YAML, which takes 0.06 s to load. */
const yaml = (): typeof import("yaml") => createRequire(import.meta.url)("yaml");

/** The data of a YAML or JSON file. @throws UsageError when it is too large, or is neither */
function parsed(path: string): unknown {
  const source = withFile(path, path, (handle, bytes) => {
    if (bytes > MOST_BYTES)
      throw new UsageError(`${path} has ${bytes} bytes, and ${MOST_BYTES} are the most`, "make several files");
    return readFileSync(handle, "utf8");
  });
  try {
    const document = yaml().parseDocument(source, { version: "1.2", schema: "core", stringKeys: true });
    // An unknown tag is a warning.
    const [problem] = [...document.errors, ...document.warnings];
    if (problem) throw problem;
    return document.toJS({ maxAliasCount: MOST_ALIASES });
  } catch (error) {
    const [what = ""] = messageOf(error).split("\n");
    throw new UsageError(`${path} cannot be read: ${what.replace(/:$/, "")}`, "a list of layers, in YAML or JSON");
  }
}
