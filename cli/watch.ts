/**
 * @file `automap watch`: searches while they run, and the workers of a fleet, as a page in a browser of this machine.
 *
 *     automap watch --db automap.db
 *     automap watch --fleet redis://queue.lan --key desk.key
 */

import { once } from "node:events";
import { z } from "zod";
import { internal, UsageError } from "../abstraction/error.ts";
import { DEFAULT_DATABASE } from "../db/index.ts";
import type { FleetWatch } from "../fleet/watch.ts";
import { type Changing, servePage } from "../session/watch/serve.ts";
import { Watch } from "../session/watch/watch.ts";
import type { Cli } from "./command.ts";
import { openFleet } from "./fleet-place.ts";
import { optionalWord, wholeNumber } from "./options.ts";
import { EXIT, type ExitCode, print, say } from "./output.ts";

const options = z.object({
  db: optionalWord,
  fleet: optionalWord,
  key: optionalWord,
  port: wholeNumber
    .refine((port) => port < 2 ** 16, { error: ({ input }) => `--port must be less than 65536, got ${String(input)}` })
    .default(0),
});
type Options = z.infer<typeof options>;

export function register(command: Cli): void {
  command
    .option("--db <file>", "the database (default: automap.db in this directory, or none beside --fleet)")
    .option("--fleet <url>", "show the workers and queues of a fleet, whose server is there; with --db on one page")
    .option("--key <file>", "the key of a member of the fleet")
    .option("--port <n>", "port of the page; 0 lets the system choose one (default 0)")
    .examples(
      [
        "automap watch",
        "automap watch --db automap.db --port 8080",
        "automap watch --db automap.db --fleet redis://queue.lan --key desk.key",
      ],
      "Prints a link for a browser of this machine; whoever has the link can read the page.",
      "The page shows the searches that other processes make, and the report once none runs. Ctrl-C ends it.",
      "For a machine elsewhere: ssh -L 8080:127.0.0.1:8080 HOST, then open the link here.",
    )
    .runs(options, watch);
}

async function watch({ db, fleet, key, port }: Options): Promise<ExitCode> {
  if ((fleet === undefined) !== (key === undefined))
    throw new UsageError("--fleet and --key belong together", "the address of a server, and the key of a member");
  const opened = fleet === undefined || key === undefined ? undefined : await openFleet(fleet, key, say);
  const beside = opened && (await watchFleet(opened));
  let watched: Watch | undefined;
  try {
    watched = beside && db === undefined ? undefined : new Watch(db ?? DEFAULT_DATABASE, { beside });
    await shown(watched ?? beside ?? internal("nothing is watched"), { port, trouble: watched?.trouble });
    return EXIT.interrupted;
  } finally {
    watched?.close();
    beside?.close();
    await opened?.server.close();
  }
}

async function watchFleet({ server, member }: Awaited<ReturnType<typeof openFleet>>): Promise<FleetWatch> {
  const { FleetWatch } = await import("../fleet/watch.ts");
  return FleetWatch.begin(server, member.fleet);
}

/** Serves a page until Ctrl-C. */
async function shown(
  page: Changing,
  { port, trouble }: { readonly port: number; readonly trouble: string | undefined },
): Promise<void> {
  const served = await servePage(page, { port });
  // Who reads the link may stop the command at once.
  const stopped = once(process, "SIGINT");
  if (trouble !== undefined) say(`automap: ${trouble}; waiting for it`);
  print(served.link);
  await stopped;
  await served.close();
}
