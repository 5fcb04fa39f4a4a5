/**
 * @file `automap network show|emit|operators`: a network's tasks, its library, and the operators that networks may contain.
 *
 *     automap network show resnet18 --db automap.db
 *     automap network emit model.onnx --dim batch=1 --to model --prove
 */

import type { Command } from "commander";
import { z } from "zod";
import { printEquation } from "../abstraction/equation.ts";
import { EnvironmentError } from "../abstraction/error.ts";
import { equationsOf } from "../abstraction/row-chain.ts";
import { DEFAULT_DATABASE } from "../db/index.ts";
import type { StepChain } from "../network/chains.ts";
import { OPSETS } from "../network/onnx/read.ts";
import { NETWORK_OPERATOR_GROUPS } from "../network/operators/index.ts";
import type { Program, Step } from "../network/program.ts";
import { totalsOf } from "../network/tasks.ts";
import { packageName } from "../package/index.ts";
import { type NetworkKernel, networkFiles, partsOfNetwork } from "../package/network/index.ts";
import { table, WIDTH } from "../report/text.ts";
import { findCompiler } from "../runtime/compiler.ts";
import { findNvcc } from "../runtime/run/cuda-device.ts";
import { checkPackageFolder, writePackage } from "../session/emit.ts";
import { type Choice, chainsIn, networkSubject } from "../session/network.ts";
import { type ChosenNetwork, labelOfTask, shareOf } from "../session/network-report.ts";
import { proveNetwork } from "../session/prove-network.ts";
import { chosenFor, machineOf } from "./network-choices.ts";
import { addModel, EXACT, modelOptions, openOn, targetWords } from "./network-model.ts";
import { parseOptions, positiveInteger } from "./options.ts";
import { addJson, documentOf, EXIT, type ExitCode, print, printJson, say, showStatus, style } from "./output.ts";

const common = modelOptions.extend({
  threads: positiveInteger("--threads").default(1),
  exact: z.boolean().default(false),
  db: z.string().min(1).default(DEFAULT_DATABASE),
  json: z.boolean().optional(),
});
const emitOptions = common.extend({
  to: z.string({ error: "network emit needs --to: the folder to write" }).min(1, "--to must name a folder"),
  name: z.string().optional(),
  prove: z.boolean().default(false),
  force: z.boolean().default(false),
});

const operatorsSchema = documentOf({
  opsets: z.strictObject({ least: z.int(), most: z.int() }),
  operators: z.array(z.strictObject({ summary: z.string(), names: z.array(z.string()) })),
});
const showSchema = documentOf({
  network: z.string(),
  nodes: z.int(),
  steps: z.int(),
  calls: z.int().meta({ description: "of kernels: steps that share their rows are computed by one call" }),
  multiplyAdds: z.number(),
  parameters: z.number(),
  operators: z.strictObject({
    counted: z.int().meta({ description: "as AMOS's Table 2 counts them; docs/networks.md has the rule" }),
    mapped: z.int().meta({ description: "of these computed by an instruction" }),
  }),
  tasks: z.array(
    z.strictObject({
      task: z.string(),
      nodes: z
        .array(z.string())
        .meta({ description: "the first node of each step, or of each call for several steps" }),
      ops: z.array(z.string()),
      multiplyAdds: z.number().meta({ description: "of one step; 0 where no products are summed" }),
      kind: z.enum(["record", "model", "loops"]).meta({ description: "where its kernel comes from" }),
      kernel: z.string().meta({ description: "instruction and mapping, or why there is none" }),
      record: z.string().optional(),
      seconds: z.number().optional(),
    }),
  ),
});
const emitSchema = documentOf({
  folder: z.string(),
  name: z.string(),
  files: z.array(z.string()),
  steps: z.int(),
  arenaBytes: z.int(),
  weightBytes: z.int(),
  proof: z.string().optional(),
});

export function registerNetwork(network: Command, finish: (code: ExitCode) => void): void {
  addJson(network.command("operators"), operatorsSchema)
    .summary("the operators of ONNX that networks may have; any other is refused")
    .action((raw: unknown) =>
      finish(operators(parseOptions(z.object({ json: z.boolean().optional() }), raw).json ?? false)),
    );
  addJson(addModel(network.command("show")), showSchema)
    .summary("a network's tasks: equal steps merged, what each maps onto, multiply-adds, parameters")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .addHelpText(
      "after",
      "\nExamples:\n  automap network show resnet18\n  automap network show model.onnx --dim batch=1",
    )
    .action(async (model: string, raw: unknown) => finish(await show(model, parseOptions(common, raw))));
  addJson(addModel(network.command("emit")), emitSchema)
    .summary("write a network as one library: header for C, sources, weights, CMake, a program that runs it")
    .option("--to <folder>", "the folder to write")
    .option("--name <name>", "name of files and C functions (default: the network's)")
    .option("--threads <n>", "threads of each kernel (default 1)")
    .option(...EXACT)
    .option("--db <file>", `database of tuned kernels (default ${DEFAULT_DATABASE})`)
    .option("--prove", "build it, run it, and compare the output of every step with its equation")
    .option("--force", "write into a folder that is not empty")
    .addHelpText(
      "after",
      "\nExample:\n  automap network emit resnet18 --to resnet18 --prove\n  automap network emit resnet18 --target cuda --dtype f16 --to resnet18",
    )
    .action(async (model: string, raw: unknown) => finish(await emit(model, parseOptions(emitOptions, raw))));
}

function operators(json: boolean): ExitCode {
  const rows = NETWORK_OPERATOR_GROUPS.map(({ summary, names }) => ({ summary, names: [...names] }));
  if (json) printJson(operatorsSchema, { opsets: OPSETS, operators: rows });
  else
    print(
      table(
        rows.map(({ summary, names }) => [summary, names.join(" ")]),
        WIDTH,
      ),
    );
  return EXIT.ok;
}

const kernelText = (choice: Choice): string =>
  choice.kind === "loops"
    ? `${choice.kernel?.kernel.language === "cuda" ? "threads" : "plain loops"}: ${choice.because}`
    : choice.place;

async function show(model: string, given: z.infer<typeof common>): Promise<ExitCode> {
  const gpu = await machineOf(given);
  const opened = openOn(model, given, gpu);
  const { program, choices } = await chosenFor(opened.program, given, gpu);
  const { multiplyAdds, parameters } = totalsOf(opened.graph, opened.program);
  const { counted, mapped, instructions } = shareOf(opened, { program, choices });
  const computed = computedIn(program, choices, chainsIn(program, choices, given.threads, gpu));
  const calls = computed.reduce((sum, { nodes }) => sum + nodes.length, 0);
  if (given.json) {
    printJson(showSchema, {
      network: program.name,
      ...{ nodes: program.nodes, steps: program.steps.length, calls, multiplyAdds, parameters },
      operators: { counted, mapped },
      tasks: computed,
    });
    return EXIT.ok;
  }
  print(
    `${program.name}: ${program.nodes} nodes in ${program.steps.length} steps, ${calls} calls of ${computed.length} kernels; ${(multiplyAdds / 1e9).toFixed(3)} G multiply-adds, ${(parameters / 1e6).toFixed(2)} M parameters`,
  );
  const by = instructions.map(([name, operators]) => `${operators} onto ${name}`).join(", ");
  print(`${mapped} of ${counted} operators are mapped onto instructions${by === "" ? "" : `: ${by}`}\n`);
  const rows = computed.map((one) => [
    String(one.nodes.length),
    one.ops.join(" "),
    one.multiplyAdds === 0 ? "" : `${(one.multiplyAdds / 1e6).toFixed(1)} M`,
    one.seconds !== undefined ? `${(one.seconds * 1e6).toFixed(1)} us` : one.kind === "model" ? "not tuned" : "",
    one.kernel,
  ]);
  print(table([["times", "nodes", "multiply-adds", "", "computed by"], ...rows]));
  const untuned = [...choices].filter(([task, choice]) => task.multiplyAdds > 0 && choice.kind !== "record").length;
  if (untuned > 0)
    print(
      style(
        "dim",
        `\n${untuned} tasks are not tuned here: automap tune-network ${model}${targetWords(given)} --time 60`,
      ),
    );
  return EXIT.ok;
}

/** What computes a network's steps, in the order of the first of each. */
function computedIn(
  program: Program,
  choices: ChosenNetwork["choices"],
  chains: readonly (StepChain & NetworkKernel)[],
): z.infer<typeof showSchema>["tasks"] {
  const inChains = new Set(chains.flatMap(({ steps }) => steps));
  const first = new Map(program.steps.map((step, place) => [step, place] as const));
  const alone = [...choices].flatMap(([task, choice]) => {
    const steps = task.steps.filter((step) => !inChains.has(step));
    const row = {
      task: labelOfTask(task),
      nodes: steps.map(({ nodes }) => nodes[0] ?? ""),
      ops: [...(steps[0]?.ops ?? [])],
      multiplyAdds: task.multiplyAdds,
      ...{ kind: choice.kind, kernel: kernelText(choice) },
      ...(choice.kind === "record" && { record: choice.id, seconds: choice.seconds }),
    };
    return steps.length > 0 ? [{ steps, row }] : [];
  });
  const together = [...new Set(chains.map(({ kernel }) => kernel))].map((kernel) => {
    const same = chains.filter((one) => one.kernel === kernel);
    const steps = same[0]?.steps ?? [];
    const row = {
      task: equationsOf(same[0]?.chain ?? { parts: [] })
        .map(printEquation)
        .join("; "),
      nodes: same.map((one) => one.steps[0]?.nodes[0] ?? ""),
      ops: [...new Set(steps.flatMap(({ ops }) => ops))],
      multiplyAdds: 0,
      ...{
        kind: "loops" as const,
        kernel: `${kernel.language === "cuda" ? "threads" : "plain loops"}: ${steps.length} steps row by row`,
      },
    };
    return { steps, row };
  });
  const placeOf = ([step]: readonly Step[]): number => (step && first.get(step)) ?? 0;
  return [...alone, ...together].sort((a, b) => placeOf(a.steps) - placeOf(b.steps)).map(({ row }) => row);
}

async function emit(model: string, given: z.infer<typeof emitOptions>): Promise<ExitCode> {
  if (given.name !== undefined) packageName(given.name, given.name);
  checkPackageFolder(given.to, given.force);
  const gpu = await machineOf(given);
  const opened = openOn(model, given, gpu);
  const { program, choices } = await chosenFor(opened.program, given, gpu);
  const subject = networkSubject(program, choices, {
    name: given.name,
    threads: given.threads,
    gpu,
  });
  const files = networkFiles(subject);
  const parts = partsOfNetwork(subject);
  writePackage(given.to, files, given.force);
  let proof: string | undefined;
  let code: ExitCode = EXIT.ok;
  if (given.prove) {
    const compiler = await findCompiler();
    if (compiler.status === "environment") {
      say(`automap: ${compiler.what}\n  the library is written but not proved\n  ${compiler.remedy}`);
      return EXIT.environment;
    }
    const nvcc = gpu ? await findNvcc() : undefined;
    if (nvcc && "status" in nvcc) throw new EnvironmentError(nvcc);
    const proved = await proveNetwork(given.to, parts, compiler, {
      // Half precision changes outputs more than an error in operator fusion would, so the comparison would show nothing.
      ...(nvcc ? { builder: { command: [nvcc.path] } } : { asRead: opened.plain }),
      onStep: (name, place, of) => showStatus(`proving  ${place} of ${of}  ${name}`),
    });
    showStatus("");
    proof =
      proved.status === "right"
        ? `right: ${proved.steps} steps`
        : proved.status === "wrong"
          ? `wrong: ${proved.step}: ${proved.said}`
          : `${proved.status}: ${proved.said}`;
    code = proved.status === "right" ? EXIT.ok : proved.status === "wrong" ? EXIT.verification : EXIT.failed;
  }
  const { memory, weights } = parts;
  if (given.json)
    printJson(emitSchema, {
      ...{ folder: given.to, name: subject.name, files: [...files.keys()], steps: parts.steps.length },
      ...{ arenaBytes: memory.bytes, weightBytes: weights.length, ...(proof !== undefined && { proof }) },
    });
  else {
    const calls = parts.steps.filter(({ kernel }) => kernel !== undefined).length;
    print(
      `${subject.name} in ${given.to}: ${parts.steps.length} steps, ${calls} calls of ${parts.kernels.length} kernels`,
    );
    print(
      `  values between steps ${mebibytes(memory.bytes)}, ${mebibytes(memory.apart)} side by side; weights ${mebibytes(weights.length)}`,
    );
    if (proof !== undefined) print(`  ${proof}`);
  }
  if (code !== EXIT.ok && given.json) say(`automap: the library is ${proof}`);
  return code;
}

const mebibytes = (bytes: number): string => `${(bytes / 2 ** 20).toFixed(1)} MiB`;
