/** @file A search in a fleet whose server is PostgreSQL: the trials of one at home, also when the server dies in between. */

import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { fakeRunner, withCalibration } from "../support/fake-runner.ts";
import { fakeMachine, fleetOn } from "../support/fleet.ts";
import { BY_TEXT, decisionsOf, searched } from "../support/fleet-search.ts";
import { compilerHere } from "../support/here.ts";
import { scratchFolder } from "../support/scratch.ts";
import { hasPostgres, postgresHere } from "../support/servers.ts";

const compiler = await compilerHere();

describe.skipIf(!hasPostgres)("a search in a fleet on PostgreSQL", async () => {
  const folder = scratchFolder();
  const server = await postgresHere();
  const database = (name: string): string => withCalibration(join(folder, `${name}.db`), compiler);

  it("makes the trials that it makes at home, though the server is started again", async () => {
    const fleet = fleetOn(server, folder);
    const atHome = await searched(database("home"), { runner: fakeRunner(compiler, BY_TEXT) });
    let measured = 0;
    const machine = fakeMachine(compiler, {
      ...BY_TEXT,
      alone: async (kernel) => {
        if (++measured === 5) {
          await server.stop();
          await server.start();
        }
        return BY_TEXT.alone(kernel);
      },
    });
    await fleet.worker("node1", machine, { lockMs: 2000 });
    const inFleet = await searched(database("away"), { openPlace: () => fleet.place() });
    expect(decisionsOf(inFleet)).toEqual(decisionsOf(atHome));
  });
});
