/**
 * @file `automap emit`: writes the kernel of a record as a package that does not depend on automap.
 *
 *     automap emit 3f9a1c77 --to conv2d
 *     automap emit 9b01d244 --to conv2d.cu                a kernel in CUDA, its text alone
 *     automap emit conv2d --c 64 --k 64 --h 56 --w 56 --dtype u8s8 --layout NHWC --to conv2d --verify
 */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { z } from "zod";
import { isOnGpu } from "../abstraction/candidate.ts";
import { defined, unique } from "../abstraction/collections.ts";
import type { Computation } from "../abstraction/computation.ts";
import {
  automapCommand,
  type CommandLine,
  type EnvironmentProblem,
  NotFoundError,
  quotedWords,
  UsageError,
} from "../abstraction/error.ts";
import { KERNEL_LANGUAGES, type KernelLanguage, LANGUAGES } from "../abstraction/kernel.ts";
import {
  best,
  countTrials,
  type Database,
  databaseWords,
  differencesOf,
  labelOf,
  POLICIES,
  type Policy,
  shortId,
  showTrial,
  type TrialRecord,
} from "../db/index.ts";
import { intrinsicNamed } from "../intrinsics/index.ts";
import { type EmitSubject, packageFiles } from "../package/index.ts";
import { placeText } from "../report/describe-candidate.ts";
import { counted } from "../report/text.ts";
import { findCompiler } from "../runtime/compiler.ts";
import { findCudaDevice } from "../runtime/run/cuda-device.ts";
import { environmentOf } from "../session/calibrate/environment.ts";
import { kernelOfRecord } from "../session/kinds/kernel.ts";
import { type Proof, portableSubject, proveCudaPackage, provePackage, subjectOf } from "../session/package/emit.ts";
import { checkConsent, checkFenced } from "../session/package/imported.ts";
import { writePackage } from "../session/package/package-folder.ts";
import { sealedPackage } from "../session/package/sealed-package.ts";
import type { Cli } from "./command.ts";
import { otherTypes } from "./db/records.ts";
import { declareWords } from "./declare.ts";
import { kernelFiles, writeKernel } from "./files.ts";
import { databaseFile, flag, optionalText, optionWords, positiveInteger, readParameters } from "./options.ts";
import { documentOf, EXIT, type ExitCode, print, printJson, say, text, texts } from "./output.ts";
import { addSubjectOptions, givenOptions, namesOf, readComputation, subjectOptions } from "./subject.ts";
import { withDatabase } from "./with-database.ts";

const options = subjectOptions.extend({
  to: z.string({ error: "emit needs --to: the folder to write" }).min(1, "--to must name a folder"),
  db: databaseFile,
  name: optionalText,
  trust: z.enum(POLICIES, { error: `--trust is one of ${POLICIES.join(", ")}` }).default("exact"),
  threads: positiveInteger.default(1),
  portable: flag,
  verify: flag,
  trustImported: flag,
  force: flag,
  json: flag,
});
type Options = z.infer<typeof options>;

const packageSchema = documentOf({
  folder: text,
  name: text.describe("of files and C functions"),
  record: text.optional().describe("id of its record; missing of portable code"),
  files: texts,
  features: texts.describe("what a CPU needs for the tuned kernel"),
  proof: z
    .strictObject({ status: z.enum(["right", "wrong", "not built", "not tried"]), said: text })
    .optional()
    .describe("of --verify"),
});
const textSchema = documentOf({ file: text, record: text });

/** Options that contradict a record, which already determines them. */
const OF_AN_OPERATOR = ["dtype", "sum", "layout", "epilogue", "constant", "intrinsic", "threads", "trust"];

/** Languages that can be written as a single text. C++ is written as a package, whose folder may be named like a file. */
const TEXTS: readonly KernelLanguage[] = KERNEL_LANGUAGES.filter((language) => language !== "c++");

export function register(command: Cli): void {
  addSubjectOptions(command, "<record, operator or equation>")
    .json(z.union([packageSchema, textSchema]))
    .option(
      "--to <folder>",
      `the folder to write, made when it is missing; a name that ends in ${TEXTS.map((l) => LANGUAGES[l].ending).join(", ")} is a file for the text of a record's kernel alone`,
    )
    .option("--db <file>", "database of trials (default automap.db)")
    .option("--name <name>", "name of files and C functions (default: the operator's)")
    .option(
      "--trust <policy>",
      `whose records count for an operator: ${POLICIES.join(", ")} (default exact: this very environment)`,
    )
    .option("--threads <n>", "threads of the kernel, for an operator (default 1)")
    .option("--portable", "no tuned kernel: only the portable code of an operator or equation")
    .option("--prove, --verify", "build it and run its own test: exit code 4 when it is wrong")
    .option("--trust-imported", "with --verify: also the kernel of a record that was not measured here")
    .option("--force", "write into a folder that is not empty")
    .examples(
      [
        "automap emit 3f9a1c77 --to conv2d",
        "automap emit 9b01d244 --to conv2d.cu",
        "automap emit conv2d --c 64 --k 64 --h 56 --w 56 --dtype u8s8 --layout NHWC --to conv2d --verify",
        'automap emit "c[i,j] += f32(a[i,k]) * f32(b[k,j])" --i 4 --j 4 --k 4 --portable --to product',
      ],
      "A record is named by the first digits of its id (automap db best lists them). Of an operator, the best record of exactly",
      "that workload is taken. The package holds sources, a C header, a build script, CMakeLists.txt and a test; that of a C++",
      "kernel also a wrapper for Node, that of a CUDA kernel also a PyTorch operator. It needs a C++ compiler, or nvcc for CUDA,",
      "and no part of automap.",
    )
    .runs(options, emit);
}

async function emit(given: Options, command: Command, word: string): Promise<ExitCode> {
  // 1. The kernel to emit.
  const chosen = /^[0-9a-f]{4,32}$/.test(word)
    ? fromRecord(word, command, given)
    : await fromOperator(word, command, given);
  if ("code" in chosen) return chosen.code;
  const { subject, imported } = chosen;
  if (given.trustImported && !given.verify)
    throw new UsageError(
      "--trust-imported is for --verify, which builds and runs the kernel",
      "add --verify, or leave it out",
    );
  if (imported && given.verify) checkConsent(imported, given);
  if (imported && !given.verify)
    say(
      `automap: record ${shortId(imported.id)} was imported: nothing of it was built or run here, --verify --trust-imported does`,
    );

  // 2. The files and their test.
  const files = packageFiles(subject);
  const sealed = sealedPackage(files);
  writePackage(given.to, imported ? files : sealed, given.force);
  const proof = given.verify ? await prove(chosen, given) : undefined;
  // An imported kernel that was trusted and passed its test is as good as one made here.
  if (imported && proof !== "no compiler" && proof?.status === "right") writePackage(given.to, sealed, true);
  if (proof === "no compiler") return EXIT.environment;

  // 3. The report.
  if (given.json) {
    printJson(packageSchema, {
      folder: given.to,
      name: subject.name,
      record: subject.record,
      files: [...files.keys()],
      features: subject.tuned?.features ?? [],
      ...(proof ? { proof: { status: proof.status, said: proof.said } } : {}),
    });
  } else {
    print([`${subject.name} in ${given.to}`, ...subject.provenance.map((l) => `  ${l}`)].join("\n"));
    print(
      `prove it   sh ${quotedWords(join(given.to, "build.sh"))} && ${quotedWords(join(given.to, "build", `${subject.name}_test`))}`,
    );
    if (proof) print(proof.said);
  }
  if (!proof || proof.status === "right") return EXIT.ok;
  if (given.json || proof.status !== "wrong") say(`automap: the package is ${proof.status}: ${proof.said}`);
  return proof.status === "wrong" ? EXIT.wrong : EXIT.failed;
}

async function prove({ subject, imported }: Emitted, given: Options): Promise<Proof | "no compiler"> {
  if (subject.gpu) {
    const device = await findCudaDevice();
    if ("status" in device) return cannotProve(device);
    return (await hindrance(imported)) ?? proveCudaPackage(given.to, subject, device.nvcc.path, { onWait: say });
  }
  const compiler = await findCompiler();
  if (compiler.status === "environment") return cannotProve(compiler);
  const { name, threads, tuned } = subject;
  const part = { name, threads, features: tuned?.features };
  return (await hindrance(imported, compiler)) ?? provePackage(given.to, part, compiler, { onWait: say });
}

/** What keeps an imported kernel from being proved. */
async function hindrance(
  imported: TrialRecord | undefined,
  compiler?: Parameters<typeof checkFenced>[1],
): Promise<Proof | "no compiler" | undefined> {
  const fenced = imported && (await checkFenced(imported, compiler, { onWait: say }));
  if (fenced?.status === "environment") return cannotProve(fenced);
  return fenced?.status === "wrong" ? { status: "wrong", said: fenced.because } : undefined;
}

function cannotProve({ what, remedy }: EnvironmentProblem): "no compiler" {
  say(`automap: ${what}\n  the package is written but not proved\n  ${remedy}`);
  return "no compiler";
}

interface Emitted {
  readonly subject: EmitSubject;
  /** The record, if it was imported. */
  readonly imported?: TrialRecord;
}
type Chosen = Emitted | { readonly code: ExitCode };

function emitted(trial: TrialRecord, given: Options): Emitted {
  const { name, db } = given;
  return {
    subject: subjectOf(trial, { name, database: db, declared: declareWords(given) }),
    ...(trial.provenance === "here" ? {} : { imported: trial }),
  };
}

function fromRecord(id: string, command: Command, given: Options): Chosen {
  const [, stray] = command.args;
  if (stray !== undefined)
    throw new UsageError(
      `unexpected "${stray}" behind a record`,
      "a record has its shape; extents are for an operator",
    );
  const lone = OF_AN_OPERATOR.find((name) => command.getOptionValue(name) !== undefined);
  if (lone !== undefined)
    throw new UsageError(
      `--${lone} chooses among the records of an operator, and ${id} is one record`,
      `leave --${lone} out`,
    );
  if (given.portable)
    throw new UsageError(
      "--portable is for an operator or an equation",
      "a record's package has the portable code besides",
    );
  return withDatabase(given.db, (db) => {
    const trial = showTrial(db, id);
    const asked = TEXTS.find((language) => given.to.endsWith(LANGUAGES[language].ending));
    if (asked === undefined) return emitted(trial, given);
    const unused = given.verify ? "verify" : given.name === undefined ? undefined : "name";
    if (unused !== undefined)
      throw new UsageError(
        `--${unused} is for a package, and ${given.to} is the text of a kernel alone`,
        `name a folder with --to, or leave --${unused} out`,
      );
    return writeText(trial, asked, given);
  });
}

/** Writes the kernel's text alone. @throws UsageError when its language is not that of the file name */
function writeText(trial: TrialRecord, asked: KernelLanguage, given: Options): Chosen {
  const { to, force, json, db } = given;
  const kernel = kernelOfRecord(trial);
  const id = shortId(trial.id);
  const { called, ending } = LANGUAGES[kernel.language];
  if (kernel.language !== asked) {
    const place = TEXTS.includes(kernel.language) ? `kernel${ending}` : "DIR";
    throw new UsageError(
      `trial ${id} is a kernel in ${called}, and ${to} is named like a text in ${LANGUAGES[asked].called}`,
      automapCommand("emit", id, "--to", place, databaseWords(db), declareWords(given)),
    );
  }
  const there = kernelFiles(to, kernel.language).find((file) => existsSync(file));
  if (there !== undefined && !force)
    throw new UsageError(`${there} is there already`, "name another file, or add --force to write over it");
  const written = writeKernel(to, kernel, force);
  if (json) printJson(textSchema, { file: to, record: trial.id });
  else {
    const { status } = trial.measurement;
    const origin = trial.provenance === "here" ? "" : "imported, ";
    const where = `${origin}${status === "ok" ? `measured on ${trial.environment.cpu}` : status}`;
    print(`${written}: ${labelOf(trial.workload)}, record ${id}, ${where}`);
    if (kernel.call)
      print("automap_launch(workspace, tensors, stream) at its end calls it: the output first, then the inputs");
  }
  return { code: EXIT.ok };
}

async function fromOperator(word: string, command: Command, given: Options): Promise<Chosen> {
  const parameters = readParameters(command);
  const searched = given.threads > 1 ? "--threads" : given.intrinsic === undefined ? undefined : "--intrinsic";
  if (given.portable && searched !== undefined)
    throw new UsageError(
      `${searched} chooses among tuned kernels, and --portable asks for none`,
      "leave one of them out; portable code runs in one thread",
    );
  if (given.portable) return { subject: portableSubject(readComputation(word, parameters, given), given.name) };
  const computation = readComputation(word, parameters, given);
  const compiler = given.trust === "any" ? undefined : await findCompiler();
  if (compiler?.status === "environment") {
    say(
      `automap: ${compiler.what}\n  which records hold here depends on the compiler\n  ${compiler.remedy}, name a record by its id, or add --trust any`,
    );
    return { code: EXIT.environment };
  }
  return withDatabase(given.db, (db): Chosen => {
    const trusted = compiler && {
      environment: environmentOf({ compiler }),
      intrinsics: intrinsicNamed,
      policy: given.trust,
    };
    const intrinsic = namesOf(given.intrinsic);
    const filter = defined({ computation, trusted, intrinsic });
    const trial = best(db, filter, { imported: given.trustImported }).find(
      (t) => t.conditions.threads === given.threads && !isOnGpu(t.candidate),
    );
    if (trial) {
      say(`record ${shortId(trial.id)}: ${trial.intrinsic}  ${placeText(trial.candidate)}`);
      return emitted(trial, given);
    }
    throw noRecord(
      db,
      word,
      command.args.slice(1),
      computation,
      given,
      compiler && { environment: environmentOf({ compiler }) },
    );
  });
}

/** Reports which record is missing, which records there are, and the command that makes it. */
function noRecord(
  db: Database,
  word: string,
  words: readonly string[],
  computation: Computation,
  given: Options,
  world: Parameters<typeof differencesOf>[1] | undefined,
): NotFoundError {
  const tune = automapCommand("tune", word, words, sameOptions(given), declareWords(given));
  const held = countTrials(db, { computation, status: "ok" });
  const others = best(db, { computation }, { imported: true });
  const [near] = others;
  const which = `${word}${given.threads > 1 ? ` with ${given.threads} threads` : ""}`;
  if (!near) {
    const types = otherTypes(db, computation);
    return new NotFoundError(
      `${db.path} holds no kernel of this ${which}`,
      `${types === undefined ? "" : `${types}\n  `}find one: ${tune}`,
    );
  }
  if (others.every(({ provenance }) => provenance === "imported"))
    return new NotFoundError(
      `${db.path} holds no kernel of this ${which} that was measured here: record ${shortId(near.id)} was imported`,
      `measure here: ${tune}; or take the imported one: ${emitText(near, given)}`,
    );
  const differ = world ? unique(differencesOf(near, world).map((d) => d.field)) : [];
  const why = differ.length > 0 ? `: ${differ.join(", ")} differ` : "";
  return new NotFoundError(
    `${db.path} holds ${counted(held, "kernel")} of this ${word}, none measured ${worldText(given.trust, given.threads)}${why}`,
    `measure here: ${tune}; or take ${shortId(near.id)}: ${emitText(near, given)}`,
  );
}

function emitText({ id }: TrialRecord, given: Options): CommandLine {
  return automapCommand("emit", shortId(id), "--to", given.to, databaseWords(given.db), declareWords(given));
}

function worldText(policy: Policy, threads: number): string {
  const where =
    policy === "exact" ? "in this environment" : policy === "isa" ? "on a CPU with these features" : "anywhere";
  return `${where} with ${threads === 1 ? "one thread" : `${threads} threads`}`;
}

/** The options of a workload, as they were given. */
function sameOptions(given: Options): string[] {
  const { intrinsic, threads, db } = given;
  return [
    ...givenOptions(given),
    ...optionWords({ intrinsic, threads: threads > 1 ? threads : undefined }),
    ...databaseWords(db),
  ];
}
