/**
 * @file Searches products of uneven groups on this machine's GPU, and times the kernels found in turns with PyTorch's, on other sizes than those
 * that they were searched with.
 *
 *     npm run build
 *     node dist/bench/gpu/grouped-products.js --seconds 8 --within 170 --out grouped.jsonl
 *     node dist/bench/gpu/grouped-products.js --report grouped.jsonl
 *
 * A case is tokens of so many experts, whose sizes are drawn: shares are exponential, and one expert in eight has no token. In the tiled form each
 * expert's rows are padded to whole tiles, and there are as many tiles as the worst sizes would need, so that some are empty. In the counted form
 * each expert has the same number of rows, of which some count. PyTorch is given rows without padding.
 */

import { execFile, execFileSync } from "node:child_process";
import { mkdtempSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { z } from "zod";
import { sumOf, upTo } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { type Random, seededRandom } from "../../abstraction/random.ts";
import { instantiate, operatorNamed, parseDataTypes } from "../../operators/index.ts";
import { placeText, scheduleText } from "../../report/describe-candidate.ts";
import { tuneComputation } from "../../session/tune/tune.ts";
import { nvidiaTarget } from "../../targets/nvidia.ts";
import { geomean, linesIn, linesOf, table, writerTo } from "../support/frame.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    seconds: { type: "string", default: "8" },
    /** No search begins after this many seconds. */
    within: { type: "string", default: "100000" },
    target: { type: "string", default: "h200" },
    python: { type: "string", default: "python3" },
    out: { type: "string" },
    report: { type: "string" },
  },
});

interface Case {
  readonly form: "tiled" | "counted";
  readonly experts: number;
  readonly n: number;
  readonly k: number;
  readonly tokens: number;
}

const tiled = (experts: number, n: number, k: number, tokens: number): Case => ({
  form: "tiled",
  experts,
  n,
  k,
  tokens,
});
const counted = (...sizes: Parameters<typeof tiled>): Case => ({ ...tiled(...sizes), form: "counted" });

/**
 * Layers of experts as in Qwen3-235B (hidden 4096, inner 1536) and DeepSeek-V3 (hidden 7168, inner 2048), on one GPU of several; the last six, chosen
 * before they were measured, are of Mixtral 8x7B (hidden 4096, inner 14336), Qwen3-30B-A3B (hidden 2048, inner 768) and DeepSeek-V3.
 */
const CASES: readonly Case[] = [
  tiled(8, 4096, 1536, 4096),
  tiled(32, 7168, 2048, 8192),
  tiled(64, 4096, 1536, 16384),
  counted(8, 7168, 2048, 4096),
  tiled(8, 4096, 7168, 2048),
  tiled(16, 3072, 4096, 8192),
  tiled(64, 4096, 1536, 2048),
  counted(32, 4096, 1536, 8192),
  tiled(8, 7168, 2048, 16384),
  tiled(32, 4096, 7168, 4096),
  tiled(8, 4096, 1536, 512),
  counted(64, 7168, 2048, 2048),
  tiled(64, 7168, 2048, 8192),
  tiled(32, 3072, 4096, 1024),
  tiled(8, 28672, 4096, 64),
  tiled(8, 4096, 14336, 4096),
  tiled(128, 1536, 2048, 8192),
  tiled(128, 2048, 768, 2048),
  counted(128, 1536, 2048, 4096),
  tiled(32, 4096, 7168, 8192),
];

const FLAGS = "-std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -shared -Xcompiler -fPIC".split(" ");
const TILE_ROWS = 128;
const nameOf = ({ form, experts, n, k, tokens }: Case): string => `${form} ${experts} x ${n}x${k}, ${tokens} tokens`;
/** Rows of a tile: fewer where experts have few tokens. */
const rowsOf = ({ tokens, experts }: Case): number => (tokens / experts >= TILE_ROWS ? TILE_ROWS : TILE_ROWS / 2);
/** Tiles that the worst sizes need. */
const tilesOf = (one: Case): number => Math.floor(one.tokens / rowsOf(one)) + one.experts;
/** Rows that each expert has in the counted form. */
const mostOf = ({ tokens, experts }: Case): number => Math.ceil((2 * tokens) / experts / TILE_ROWS) * TILE_ROWS;

/** The tokens of each expert. */
function sizesOf(one: Case, random: Random): number[] {
  const shares = upTo(one.experts).map(() => (random() < 1 / 8 ? 0 : -Math.log(1 - random())));
  const all = sumOf(shares, (share) => share) || 1;
  const most = one.form === "counted" ? mostOf(one) : one.tokens;
  const sizes = shares.map((share) => Math.min(most, Math.floor((share / all) * one.tokens)));
  const left = (): number => one.tokens - sumOf(sizes, (size) => size);
  for (let i = 0; left() > 0; i = (i + 1) % sizes.length) {
    const size = sizes[i] ?? 0;
    sizes[i] = size + Math.min(left(), most - size, TILE_ROWS);
  }
  return sizes;
}

function computationOf(one: Case): Computation {
  const { form, experts, n, k } = one;
  const [name, parameters] =
    form === "tiled"
      ? ["grouped-matmul", { groups: experts, t: tilesOf(one), m: rowsOf(one), n, k }]
      : ["counted-matmul", { g: experts, m: mostOf(one), n, k }];
  return instantiate(operatorNamed(name), { parameters, types: parseDataTypes("bf16"), epilogue: "bf16" });
}

/** What says at run time which rows are of which expert. */
function decidingOf(one: Case, sizes: readonly number[]): Record<string, number[]> {
  if (one.form === "counted") return { count: [...sizes] };
  const group = sizes.flatMap((size, expert) => upTo(Math.ceil(size / rowsOf(one))).map(() => expert));
  return { group: [...group, ...upTo(tilesOf(one) - group.length).map(() => -1)] };
}

const SEARCHED = z.object({
  kind: z.literal("searched"),
  case: z.string(),
  took: z.number(),
  kernels: z.number(),
  median: z.number().optional(),
  schedule: z.string().optional(),
});
const TIMED = z.object({
  kind: z.literal("timed"),
  case: z.string(),
  useful: z.number(),
  seconds: z.record(z.string(), z.number()),
  failed: z.record(z.string(), z.string()),
  wrong: z.number().nullable(),
});

const write = writerTo(values.out);
if (values.report === undefined) await run();
else console.log(reportOf(linesIn(values.report)));

async function run(): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "automap-grouped-"));
  const machine = nvidiaTarget(values.target);
  const begun = Date.now();
  const since = (from: number): number => (Date.now() - from) / 1000;
  const found: object[] = [];
  const compiled: Promise<unknown>[] = [];
  for (const [i, one] of CASES.entries()) {
    if (since(begun) > Number(values.within)) break;
    const name = nameOf(one);
    const computation = computationOf(one);
    const started = Date.now();
    const outcome = await tuneComputation(
      { computation, fixed: decidingOf(one, sizesOf(one, seededRandom(i))) },
      {
        machine,
        database: ":memory:",
        seconds: Number(values.seconds),
        within: Number(values.seconds),
        trials: 1_000_000,
        earlyStop: false,
        kinds: "mappings",
      },
    );
    const best = "trials" in outcome ? outcome.best : undefined;
    const trials = "trials" in outcome ? outcome.trials.length : 0;
    const searched = { kind: "searched", case: name, took: since(started), kernels: trials } as const;
    if (!best) {
      write({ ...searched, because: "trials" in outcome ? outcome.failed : outcome });
      continue;
    }
    const { kernel, candidate, measurement } = best;
    write({
      ...searched,
      ...(measurement.status === "ok" && { median: measurement.median }),
      schedule: `${placeText(candidate)}; ${scheduleText(candidate)}`,
    });
    console.error(`${name}: ${trials} kernels, ${since(started).toFixed(1)} s`);
    const source = join(folder, `kernel-${i}.cu`);
    writeFileSync(source, kernel.source);
    const file = `${source}.so`;
    // While the next case is searched: the compiler takes a processor of many.
    compiled.push(
      promisify(execFile)("nvcc", [...FLAGS, source, "-o", file]).catch((error: Error) => console.error(error.message)),
    );
    const sizes = sizesOf(one, seededRandom(1000 + i));
    const { workspaceBytes = 0 } = kernel.call ?? {};
    const shape = { rows: rowsOf(one), tiles: tilesOf(one), most: mostOf(one) };
    found.push({ ...one, ...shape, id: name, sizes, ...decidingOf(one, sizes), file, workspaceBytes });
  }
  await Promise.all(compiled);
  const program = fileURLToPath(new URL("../peers/torch-grouped.py", import.meta.url));
  const text = execFileSync(values.python, [program], {
    input: JSON.stringify(found),
    encoding: "utf8",
    stdio: ["pipe", "pipe", "inherit"],
  });
  for (const line of text.split("\n")) if (line !== "") write(JSON.parse(line));
}

function reportOf(lines: readonly unknown[]): string {
  const searched = linesOf(SEARCHED, lines);
  const timed = linesOf(TIMED, lines);
  const us = (seconds: number | undefined): string => (seconds === undefined ? "" : (seconds * 1e6).toFixed(1));
  const ratios: number[] = [];
  const rows = timed.map((line) => {
    const { automap, ...peers } = line.seconds;
    const fastest = Math.min(...Object.values(peers));
    const ratio = fastest / (automap ?? Number.NaN);
    if (Number.isFinite(ratio)) ratios.push(ratio);
    const { kernels = 0, schedule = "" } = searched.find((s) => s.case === line.case) ?? {};
    return [
      line.case,
      us(automap),
      us(peers["_grouped_mm"]),
      us(peers["mm of each group"]),
      ratio.toFixed(2),
      line.wrong ?? "",
      (line.useful / (automap ?? Number.NaN) / 1e12).toFixed(0),
      String(kernels),
      schedule,
    ];
  });
  const heads = [
    "case",
    "automap, us",
    "_grouped_mm, us",
    "mm of each, us",
    "fastest peer / automap",
    "wrong elements",
    "TFLOP/s",
    "kernels",
    "schedule",
  ];
  return [...table(heads, rows), "", `geometric mean ${geomean(ratios).toFixed(2)}`].join("\n");
}
