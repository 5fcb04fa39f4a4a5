/**
 * @file `automap report --network`: one HTML page on where a network's time goes, what tuning changed, and what no instruction computes.
 *
 *     automap report --network resnet18 --db networks.db -o resnet18.html
 */

import type { z } from "zod";
import { networkPage } from "../report/network-page.ts";
import { chosenFor } from "../session/network/choices.ts";
import { gatherNetworkReport } from "../session/report/network-report.ts";
import { type modelOptions, openFor } from "./network-model.ts";
import { withDatabase } from "./with-database.ts";

interface NetworkReportOptions extends z.infer<typeof modelOptions> {
  readonly network: string;
  readonly db: string;
  readonly threads: number;
  readonly exact: boolean;
}

/** @returns the HTML page */
export async function networkReport(given: NetworkReportOptions): Promise<string> {
  // A missing database is reported before the network is read.
  withDatabase(given.db, () => undefined);
  const { gpu, opened } = await openFor(given.network, given);
  const { environment, choices } = await chosenFor(opened.program, given, gpu);
  return withDatabase(given.db, (db) => {
    const { network: model, threads } = given;
    const world = { db, environment, threads, onGpu: gpu !== undefined, model, now: Date.now() };
    return networkPage(gatherNetworkReport(opened, choices, world));
  });
}
