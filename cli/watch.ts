/**
 * @file `automap watch`: searches while they run, as a page in a browser of this machine.
 *
 *     automap watch --db automap.db
 */

import { once } from "node:events";
import { z } from "zod";
import { servePage } from "../session/watch/serve.ts";
import { Watch } from "../session/watch/watch.ts";
import type { Cli } from "./command.ts";
import { databaseFile, wholeNumber } from "./options.ts";
import { EXIT, type ExitCode, print, say } from "./output.ts";

const options = z.object({
  db: databaseFile,
  port: wholeNumber
    .refine((port) => port < 2 ** 16, { error: ({ input }) => `--port must be less than 65536, got ${String(input)}` })
    .default(0),
});
type Options = z.infer<typeof options>;

export function register(command: Cli): void {
  command
    .option("--db <file>", "the database (default: automap.db in this directory)")
    .option("--port <n>", "port of the page; 0 lets the system choose one (default 0)")
    .examples(
      ["automap watch", "automap watch --db automap.db --port 8080"],
      "Prints a link for a browser of this machine; whoever has the link can read the page.",
      "The page shows the searches that other processes make, and the report once none runs. Ctrl-C ends it.",
      "For a machine elsewhere: ssh -L 8080:127.0.0.1:8080 HOST, then open the link here.",
    )
    .runs(options, watch);
}

async function watch({ db, port }: Options): Promise<ExitCode> {
  const watched = new Watch(db);
  try {
    const served = await servePage(watched, { port });
    if (watched.trouble !== undefined) say(`automap: ${watched.trouble}; waiting for it`);
    print(served.link);
    await once(process, "SIGINT");
    await served.close();
    return EXIT.interrupted;
  } finally {
    watched.close();
  }
}
