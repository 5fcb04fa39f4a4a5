/** @file `automap network show|operators`: a network's tasks with what computes them, and the operators that networks may contain. */

import type { z } from "zod";
import { sortedBy, sumOf, unique } from "../abstraction/collections.ts";
import { equationText } from "../abstraction/computation.ts";
import { automapCommand } from "../abstraction/error.ts";
import type { Network, Step } from "../network/network.ts";
import { OPSETS } from "../network/onnx/read.ts";
import { NETWORK_OPERATOR_GROUPS } from "../network/operators/index.ts";
import { type Task, totalsOf } from "../network/tasks.ts";
import { chosenFor, type RecordedWorld } from "../session/network/choices.ts";
import type { Choice, ChosenChain } from "../session/network/network.ts";
import { labelOfTask, shareOf } from "../session/report/network-report.ts";
import { type commonOptions, operatorsSchema, showSchema } from "./network-documents.ts";
import { type OpenedFor, targetWords } from "./network-model.ts";
import { EXIT, type ExitCode, print, printJson, style } from "./output.ts";
import { fitted, worded, wrapped } from "./terminal.ts";

export function operators(json: boolean): ExitCode {
  const rows = NETWORK_OPERATOR_GROUPS.map(({ summary, names }) => ({ summary, names: [...names] }));
  if (json) printJson(operatorsSchema, { opsets: OPSETS, operators: rows });
  else print(worded(rows.map(({ summary, names }) => [summary, names.join(" ")])));
  return EXIT.ok;
}

const kernelText = (choice: Choice): string =>
  choice.kind === "loops"
    ? `${choice.kernel?.kernel.language === "cuda" ? "threads" : "plain loops"}: ${choice.because}`
    : choice.place;

export async function show(
  { model, gpu, opened, world }: OpenedFor & { readonly world: RecordedWorld | undefined },
  given: z.infer<typeof commonOptions>,
): Promise<ExitCode> {
  const { program } = opened;
  const { choices, chains } = await chosenFor(program, { ...given, world }, gpu);
  const { multiplyAdds, parameters } = totalsOf(opened.graph, program);
  const { counted, mapped, instructions } = shareOf(opened, choices);
  const computed = computedIn(program, choices, chains);
  const calls = sumOf(computed, ({ nodes }) => nodes.length);
  if (given.json) {
    printJson(showSchema, {
      network: program.name,
      nodes: program.nodes,
      steps: program.steps.length,
      calls,
      multiplyAdds,
      parameters,
      ...(opened.widened && { widened: opened.widened }),
      operators: { counted, mapped },
      tasks: computed,
    });
    return EXIT.ok;
  }
  print(
    wrapped(
      `${program.name}: ${program.nodes} nodes in ${program.steps.length} steps, ${calls} calls of ${computed.length} kernels; ${(multiplyAdds / 1e9).toFixed(3)} G multiply-adds, ${(parameters / 1e6).toFixed(2)} M parameters`,
    ),
  );
  const by = instructions.map(([name, operators]) => `${operators} onto ${name}`).join(", ");
  print(`${wrapped(`${mapped} of ${counted} operators are mapped onto instructions${by === "" ? "" : `: ${by}`}`)}\n`);
  const rows = computed.map((one) => [
    String(one.nodes.length),
    one.ops.join(" "),
    one.multiplyAdds === 0 ? "" : `${(one.multiplyAdds / 1e6).toFixed(1)} M`,
    one.seconds !== undefined ? `${(one.seconds * 1e6).toFixed(1)} us` : one.kind === "model" ? "not tuned" : "",
    one.kernel,
  ]);
  print(fitted([["times", "nodes", "multiply-adds", "", "computed by"], ...rows]));
  const untuned = [...choices].filter(([task, choice]) => task.multiplyAdds > 0 && choice.kind !== "record").length;
  if (untuned > 0)
    print(
      style(
        "dim",
        `\n${untuned} tasks are not tuned here: ${automapCommand("tune-network", model, targetWords(given), "--time", "60")}`,
      ),
    );
  return EXIT.ok;
}

const rowOf = (choice: Choice) => ({
  kind: choice.kind,
  kernel: kernelText(choice),
  ...(choice.kind === "record" && { record: choice.id, seconds: choice.seconds }),
});

/** What computes a network's steps, in the order of the first of each. */
function computedIn(
  program: Network,
  choices: ReadonlyMap<Task, Choice>,
  chains: readonly ChosenChain[],
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
      ...rowOf(choice),
    };
    return steps.length > 0 ? [{ steps, row }] : [];
  });
  const together = unique(chains.map(({ choice }) => choice)).flatMap((choice) => {
    const same = chains.filter((one) => one.choice === choice);
    const [one] = same;
    if (!one) return [];
    const row = {
      task: equationText(one.computation),
      nodes: same.map(({ steps }) => steps[0]?.nodes[0] ?? ""),
      ops: unique(one.steps.flatMap(({ ops }) => ops)),
      multiplyAdds: 0,
      ...rowOf(choice),
    };
    return [{ steps: one.steps, row }];
  });
  const placeOf = ([step]: readonly Step[]): number => (step && first.get(step)) ?? 0;
  return sortedBy([...alone, ...together], (a) => placeOf(a.steps)).map(({ row }) => row);
}
