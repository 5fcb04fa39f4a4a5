/** @file The rows of bench/networks/network-cuda.ts, and their report. */

import { z } from "zod";
import { geomean, table, us } from "../support/frame.ts";

const quantiles = z.array(z.number());
const off = z.number().nullable();
export const LIBRARY = z.object({ torch: z.string(), cudnn: z.number(), gpu: z.string() });
/** Seconds of a graph and of a call of the module; `off` is the difference from the network in f32. */
export const OURS = z.object({ seconds: z.number(), module: z.number(), off });
export const FORM = z.object({ form: z.string(), ours: quantiles, theirs: quantiles, off, prepared: z.number() });
export const FAILED = z.object({ form: z.string(), failed: z.string() });

export const networkRow = z.object({
  network: z.string(),
  batch: z.number(),
  device: z.string(),
  driver: z.string(),
  nvcc: z.string(),
  /** Of the search; and of building and proving. */
  seconds: z.number(),
  building: z.number(),
  /** `right` or a description of the error; missing when nothing was compared. */
  proof: z.string().optional(),
  /** Bytes. */
  arena: z.number(),
  weights: z.number(),
  steps: z.array(
    z.object({ name: z.string(), seconds: z.number(), kernel: z.string(), record: z.number().optional() }),
  ),
  library: LIBRARY.optional(),
  ours: OURS.optional(),
  forms: z.array(z.union([FORM, FAILED])),
});
export type NetworkRow = z.infer<typeof networkRow>;

type Timed = Extract<NetworkRow["forms"][number], { ours: number[] }>;

const timedIn = ({ forms }: NetworkRow): Timed[] => forms.flatMap((f) => ("ours" in f ? [f] : []));
const median = (samples: readonly number[]): number => samples[1] ?? Number.NaN;

/** Null stands for an output that is not a number. */
const offText = (off: number | null): string => (off === null ? "no number" : off.toExponential(1));

/** The fastest form of PyTorch. */
const bestOf = (row: NetworkRow): Timed | undefined =>
  timedIn(row).sort((a, b) => median(a.theirs) - median(b.theirs))[0];

/** PyTorch's time over ours. */
const ratioOf = ({ ours, theirs }: Timed): number => median(theirs) / median(ours);

export function report(rows: readonly NetworkRow[]): string {
  const [first] = rows;
  if (!first) return "no rows\n";
  const library = rows.find((r) => r.library)?.library;
  const about = `${first.device}, driver ${first.driver}, nvcc ${first.nvcc}, PyTorch ${library?.torch ?? "?"}, cuDNN ${library?.cudnn ?? "?"}. f16 with sums in f32.`;
  const summary = rows.map((row) => {
    const best = bestOf(row);
    const ours = best ? median(best.ours) : row.ours?.seconds;
    const beside = best ? [us(median(best.theirs)), best.form, ratioOf(best).toFixed(2)] : ["", "", ""];
    return [row.network, row.batch, us(ours), ...beside, row.proof, row.seconds.toFixed(0)];
  });
  const means = [...new Set(rows.map((r) => r.batch))].flatMap((batch) => {
    const best = rows.filter((row) => row.batch === batch).flatMap((row) => bestOf(row) ?? []);
    if (best.length === 0) return [];
    return [`PyTorch's best form over automap, geomean at batch ${batch}: ${geomean(best.map(ratioOf)).toFixed(2)}`];
  });
  const head = ["network", "batch", "automap, us", "PyTorch, us", "its form", "ratio", "steps", "search, s"];
  return `${[about, "", ...table(head, summary), "", ...means, "", ...rows.flatMap(sectionOf)].join("\n")}\n`;
}

function sectionOf(row: NetworkRow): string[] {
  const { ours } = row;
  const forms = row.forms.map((f) =>
    "failed" in f
      ? [f.form, `failed: ${f.failed.slice(0, 200)}`, "", "", "", ""]
      : [
          f.form,
          us(median(f.theirs)),
          us(median(f.ours)),
          ratioOf(f).toFixed(2),
          offText(f.off),
          f.prepared.toFixed(0),
        ],
  );
  const steps = row.steps.map((s) => [s.name, us(s.seconds), us(s.record), s.kernel]);
  const all = row.steps.reduce((sum, { seconds }) => sum + seconds, 0);
  const off =
    ours &&
    `Off by ${offText(ours.off)} of the network in f32. A call of the module, one after another: ${us(ours.module)} us.`;
  return [
    `## ${row.network}, batch ${row.batch}`,
    "",
    ...(off === undefined ? [] : [off, ""]),
    ...table(["PyTorch", "us", "automap in turns, us", "ratio", "off", "prepared, s"], forms),
    "",
    ...table(["step", "us", "record, us", "kernel"], [...steps, ["all", us(all), "", ""]]),
    "",
  ];
}
