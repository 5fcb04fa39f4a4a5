/**
 * @file `automap fleet init|admit|expel|status`: who belongs to a fleet of machines that measure for one another, and which of them are there.
 *
 *     automap fleet init my-fleet
 *     automap fleet admit my-fleet node3 --role worker
 *     automap fleet expel my-fleet node3
 */

import { z } from "zod";
import { automapCommand } from "../abstraction/error.ts";
import { admit, createFleet, expel, ROLES, type Role } from "../fleet/members.ts";
import type { Cli } from "./command.ts";
import { addOrders } from "./fleet/orders.ts";
import { addStatus } from "./fleet/status.ts";
import { flag } from "./options.ts";
import { documentOf, EXIT, type ExitCode, print, printJson, text } from "./output.ts";

const options = z.object({ json: flag });
type Options = z.infer<typeof options>;
const admitOptions = options.extend({
  role: z.enum(ROLES, { error: () => "--role is tuner, which sends jobs, or worker, which answers them" }),
});

const initSchema = documentOf({ fleet: text.describe("id, the hash of the root's public key"), folder: text });
const admitSchema = documentOf({ name: text, role: z.enum(ROLES), file: text.describe("the member's key") });
const expelSchema = documentOf({ name: text, file: text.describe("the list of the expelled") });

export function register(fleet: Cli): void {
  fleet.examples(["automap fleet init my-fleet", "automap fleet admit my-fleet node3 --role worker"]);
  fleet
    .command("init")
    .json(initSchema)
    .summary("make a fleet: the key that admits its members, in a folder that only you read")
    .argument("<folder>", "where its keys are kept; it is made")
    .examples(
      ["automap fleet init my-fleet"],
      "The folder needs no server and no network. Keep it off the machines of the fleet, and keep a copy: whoever has its",
      "root.key can admit members, and without it nobody can.",
    )
    .runs(options, init);
  fleet
    .command("admit")
    .json(admitSchema)
    .summary("make the key of a member: one that tunes, or one that works")
    .argument("<folder>", "of the fleet")
    .argument("<name>", "of the member, under which records name it")
    .option("--role <role>", "tuner: it sends jobs; worker: it compiles, measures and answers")
    .examples(
      ["automap fleet admit my-fleet desk --role tuner", "automap fleet admit my-fleet node3 --role worker"],
      "Move the key file to the member's machine by a way that nobody else reads, such as scp, and let it be readable there by",
      "its owner alone. Whoever has it is that member: a tuner's key lets others run programs on every worker.",
    )
    .runs(admitOptions, admitOne);
  fleet
    .command("expel")
    .json(expelSchema)
    .summary("write the list of members from whom nothing is taken any more")
    .argument("<folder>", "of the fleet")
    .argument("<name>", "of the member")
    .examples(
      ["automap fleet expel my-fleet node3"],
      "The list is signed by the fleet's root. Copy it beside the key of every member: those that work read it when it changes.",
    )
    .runs(options, expelOne);
  addOrders(fleet);
  addStatus(fleet);
}

function init({ json }: Options, _command: Cli, folder: string): ExitCode {
  const { id } = createFleet(folder);
  if (json) printJson(initSchema, { fleet: id, folder });
  else {
    const next = ROLES.map((role) => `  ${automapCommand("fleet", "admit", folder, "NAME", "--role", role)}`);
    print([`fleet ${id} in ${folder}; its members are admitted by`, ...next].join("\n"));
  }
  return EXIT.ok;
}

function admitOne(
  { json, role }: Options & { readonly role: Role },
  _command: Cli,
  folder: string,
  name: string,
): ExitCode {
  const file = admit(folder, name, role);
  if (json) printJson(admitSchema, { name, role, file });
  else print(`${file} is the key of ${name}, a ${role}: move it to that machine, and show it to nobody`);
  return EXIT.ok;
}

function expelOne({ json }: Options, _command: Cli, folder: string, name: string): ExitCode {
  const file = expel(folder, name);
  if (json) printJson(expelSchema, { name, file });
  else print(`${name} is expelled where ${file} lies beside the key of a member: copy it to their machines`);
  return EXIT.ok;
}
