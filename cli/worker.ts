/**
 * @file `automap worker`: compiles and measures for the tuners of a fleet, until it is stopped.
 *
 *     automap worker --fleet redis://queue.lan --key node1.key
 *     automap worker --fleet redis://queue.lan --key node2.key --measure none --compile 8
 */

import { z } from "zod";
import { EnvironmentError, UsageError } from "../abstraction/error.ts";
import { sealsOf } from "../abstraction/seal.ts";
import { parseAddress } from "../fleet/address.ts";
import { commandToAdmit, readMember } from "../fleet/members.ts";
import { takeOrders } from "../fleet/orders.ts";
import { openServer } from "../fleet/server.ts";
import { gpuHere, machineHere, startWorker } from "../fleet/worker.ts";
import { counted } from "../report/text.ts";
import { explainRun, findProgram, runChild } from "../runtime/child.ts";
import { fenceHere } from "../runtime/fence.ts";
import { coresHere } from "../runtime/processor.ts";
import type { Cli } from "./command.ts";
import { optionalWord, wholeNumber } from "./options.ts";
import { EXIT, type ExitCode, say, text } from "./output.ts";

const MEASURES = ["cpu", "cuda", "none"] as const;

/** What the process has to end by itself when all is closed. */
const LINGER_MS = 1000;

const options = z.object({
  fleet: text.min(1, { error: "--fleet needs the address of the server" }),
  key: text.min(1, { error: "--key needs the file of the worker's key" }),
  measure: z
    .enum(MEASURES, { error: ({ input }) => `--measure must be ${MEASURES.join(", ")}, got "${String(input)}"` })
    .default("cpu"),
  compile: wholeNumber.optional(),
  pin: optionalWord,
});

export function register(command: Cli): void {
  command
    .requiredOption("--fleet <url>", "the fleet's server: redis://HOST, rediss://HOST or postgresql://HOST/DATABASE")
    .requiredOption("--key <file>", "the worker's key, as automap fleet admit wrote it")
    .option(
      "--measure <what>",
      "cpu or cuda: kernels are timed on this machine's processor or GPU; none: it only compiles (default cpu)",
    )
    .option("--compile <n>", "compilations at once for itself and for others (default one a core)")
    .option("--pin <processors>", "the processors it may use, as taskset takes them: 0-3,8 (default all)")
    .examples(
      [
        "automap worker --fleet redis://queue.lan --key node1.key",
        "automap worker --fleet redis://queue.lan --key node2.key --measure none --compile 8",
        "automap worker --fleet postgresql://queue.lan/automap --key node3.key --pin 0-7",
      ],
      "Kernels that a tuner of the fleet signed are built and run here, as this user. AUTOMAP_FLEET_PASSWORD, or the file that",
      "AUTOMAP_FLEET_PASSWORD_FILE names, is the server's password. Ctrl-C, or SIGTERM, finishes the job at hand and ends; a second",
      "one gives it back.",
    )
    .runs(options, work);
}

async function work({ fleet, key, measure, compile, pin }: z.infer<typeof options>): Promise<ExitCode> {
  // 1. Who it is, and what it has.
  const address = parseAddress(fleet);
  const member = readMember(key);
  const { name, role } = member.certificate;
  if (role !== "worker") throw new UsageError(`${key} is the key of a ${role}`, commandToAdmit("worker"));
  const onGpu = measure === "cuda";
  if (onGpu && compile !== undefined)
    throw new UsageError(
      "--compile is for workers that measure on a CPU, or nothing",
      "a GPU's worker compiles for itself",
    );
  if (measure === "none" && compile === 0)
    throw new UsageError("--measure none --compile 0 leaves the worker nothing to do", "leave one of them out");
  if (pin !== undefined) await pinTo(pin);
  const fence = onGpu ? "those of a GPU need its devices" : await fenceHere([key, sealsOf().file]);
  if (typeof fence === "string") say(`kernels are not fenced in: ${fence}`);
  const here = onGpu ? await gpuHere(say) : await machineHere(say, typeof fence === "string" ? undefined : fence);
  if ("status" in here) throw new EnvironmentError(here);

  // 2. It serves until it is stopped.
  const server = await openServer(address, member.fleet, { onTrouble: say });
  for (const warning of server.warnings) say(warning);
  const compiles = onGpu ? 0 : (compile ?? coresHere().length);
  const stops = heardStops();
  const worker = await startWorker(server, member, here, { measures: measure !== "none", compiles, say });
  const measures = measure !== "none" ? `measures on ${here.machine.name}` : "measures nothing";
  const compiling = compiles > 0 ? `compiles ${compiles} at once` : "compiles for itself";
  say(`worker ${name} at ${address.text} ${measures} and ${compiling}; Ctrl-C ends it`);
  const orders = takeOrders(server, member, { answered: () => worker.answered(), say });
  const drained = orders.drained.then((by) => say(`${by} asks this worker to end`));
  const fault = await Promise.race([worker.failed, stops.first, drained]);

  // 3. It finishes what it is at, or gives it back.
  if (!fault) say("finishing the job at hand; Ctrl-C again gives it back");
  const finishing = worker.stop(fault ? "give-back" : "finish");
  void stops.second.then(() => worker.stop("give-back"));
  await finishing;
  stops.end();
  say(`worker ${name} ends: ${counted(worker.answered(), "job")} answered`);
  await server.close();
  // Connections that look for a server that has gone away would hold the process for ever.
  setTimeout(() => process.exit(), LINGER_MS).unref();
  if (fault) throw fault;
  return EXIT.ok;
}

/** SIGINT and SIGTERM, the first and the second of them. */
function heardStops(): {
  readonly first: Promise<undefined>;
  readonly second: Promise<undefined>;
  readonly end: () => void;
} {
  let tellFirst = (_: undefined): void => undefined;
  let tellSecond = tellFirst;
  const first = new Promise<undefined>((resolve) => {
    tellFirst = resolve;
  });
  const second = new Promise<undefined>((resolve) => {
    tellSecond = resolve;
  });
  let count = 0;
  const onStop = (): void => (++count > 1 ? tellSecond : tellFirst)(undefined);
  const signals = ["SIGINT", "SIGTERM"] as const;
  for (const signal of signals) process.on(signal, onStop);
  const end = (): void => {
    for (const signal of signals) process.off(signal, onStop);
  };
  return { first, second, end };
}

/** Restricts this process, and with it all that it starts, to some processors. */
async function pinTo(processors: string): Promise<void> {
  if (!/^\d+(-\d+)?(,\d+(-\d+)?)*$/.test(processors))
    throw new UsageError(`--pin: "${processors}" is no list of processors`, "for example --pin 0-3,8");
  const taskset = findProgram("taskset");
  if (taskset === undefined)
    throw new EnvironmentError({
      what: "taskset is not on the PATH",
      why: "--pin binds the worker with it",
      remedy: "install util-linux, or leave --pin out",
    });
  const run = await runChild([taskset, "-apc", processors, String(process.pid)], { timeLimitMs: 10_000 });
  if (run.status === "ok") return;
  const allowed = coresHere().flatMap(({ cpus }) => cpus);
  throw new UsageError(
    `--pin: this process may not use processors ${processors}: ${explainRun(run)}`,
    `it may use ${allowed.join(",")}`,
  );
}
