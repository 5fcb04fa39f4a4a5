/**
 * @file The time that each of README.md's ten tasks takes, from its first command to the end of its last, in a new home: nothing is compiled,
 * calibrated or known before.
 *
 *     npm run build
 *     node dist/bench/speed/ten-tasks.js > bench/results/ten-tasks.md
 */

import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { availableParallelism, loadavg, tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { placeOf, readersTasks, writeReadersFiles } from "../../test/support/page-walk.ts";
import { cpuName, page, table } from "../support/frame.ts";

const folder = mkdtempSync(join(tmpdir(), "automap tasks "));
try {
  mkdirSync(join(folder, "home"));
  const place = placeOf(folder, resolve(import.meta.dirname, "../.."), {
    HOME: join(folder, "home"),
    XDG_CACHE_HOME: "",
  });
  const readme = readFileSync("README.md", "utf8");
  writeReadersFiles(readme, folder);
  const load = loadavg()[0] ?? 0;
  const rows = readersTasks(readme).map(({ want, commands, takes }) => {
    const begun = performance.now();
    const codes = commands.map((command) => place.run(command).status);
    const seconds = (performance.now() - begun) / 1000;
    console.error(`${seconds.toFixed(1)} s   ${want}`);
    return [want, takes, `${seconds.toFixed(1)} s`, codes.join(", ")];
  });
  const machine = `${cpuName()}, ${availableParallelism()} processors, load ${load.toFixed(1)} before the first task, ${new Date().toISOString().slice(0, 10)}, Node ${process.version}.`;
  const told =
    "Each task begins where the one before ended, in a home that was empty before the first. The model of the network has one product; another takes its `--time`, and its build. What an instruction cannot compute ends with exit code 3.";
  console.log(
    page(
      "The ten tasks of README.md",
      `${machine} ${told}`,
      ...table(["task", "README.md says", "took", "exit codes"], rows),
    ),
  );
} finally {
  rmSync(folder, { recursive: true, force: true });
}
