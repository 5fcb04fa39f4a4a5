/**
 * @file Whether two versions of automap compile the same candidates to the same machine code.
 *
 *     npm run build                                              here, and in a checkout of the other version
 *     node dist/bench/versions/same-kernels.js --other ../before/dist     twelve layers, three types, mappings and lane designs
 *     node dist/bench/versions/same-kernels.js --other ../before/dist --each 20 --out bench/results/same-kernels
 *
 * The other version draws candidates from its own seeds. Both print them; both sources are compiled with a search's
 * flags, and bytes of code and constants compared. Equal bytes need no timing. Both files are kept where they differ.
 */

import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { candidateKey, type MappedCandidate } from "../../abstraction/candidate.ts";
import { UsageError } from "../../abstraction/error.ts";
import { printExpr } from "../../abstraction/expression.ts";
import type { Kernel } from "../../abstraction/kernel.ts";
import type { Mapping } from "../../abstraction/mapping.ts";
import { pick, seededRandom } from "../../abstraction/random.ts";
import type * as Automap from "../../automap.ts";
import { codeFlags } from "../../runtime/compiler.ts";
import { suiteLayers } from "../../test/support/suite.ts";
import { readOptions } from "../support/options.ts";

const { values } = readOptions({
  options: {
    other: { type: "string" },
    each: { type: "string", default: "4" },
    types: { type: "string", default: "u8s8,bf16,f32" },
    ops: { type: "string", default: "c2d" },
    work: { type: "string", default: "same-kernels-work" },
    out: { type: "string", default: "same-kernels" },
  },
});
if (values.other === undefined) throw new UsageError("--other DIST: the built files of the version to compare with");

type Version = typeof Automap;
const load = async (dist: string): Promise<Version> => {
  const file = resolve(dist, "automap.js");
  if (!existsSync(file)) throw new UsageError(`--other: there is no ${file}`);
  return import(pathToFileURL(file).href);
};
const before = await load(values.other);
const now = await load(fileURLToPath(new URL("../..", import.meta.url)));
mkdirSync(values.work, { recursive: true });

interface Verdict {
  readonly what: string;
  readonly verdict: "same code" | "other code" | "refused" | "not compiled";
}

/** Code and constants of a kernel's object file. @returns undefined when it does not compile */
function bytesOf(kernel: Pick<Kernel, "source" | "features">, name: string): Buffer | undefined {
  const file = join(values.work, name);
  writeFileSync(`${file}.cpp`, kernel.source);
  const flags = codeFlags(kernel);
  try {
    execFileSync("g++", [...flags, "-c", `${file}.cpp`, "-o", `${file}.o`], { stdio: ["ignore", "ignore", "pipe"] });
  } catch {
    return undefined;
  }
  const section = (named: string): Buffer => {
    execFileSync("objcopy", ["-O", "binary", `--only-section=${named}`, `${file}.o`, `${file}.bin`]);
    return readFileSync(`${file}.bin`);
  };
  // Constants may be in sections by size: .rodata, .rodata.cst16 and so on.
  const bytes = Buffer.concat([".text*", ".rodata*"].map(section));
  if (bytes.length === 0) throw new Error(`${file}.o holds no code`);
  return bytes;
}

const rows: Verdict[] = [];
for (const { id, op, params } of suiteLayers().filter((layer) => values.ops.split(",").includes(layer.op)))
  for (const types of values.types.split(",")) {
    const computation = before.instantiate(before.operatorNamed(op), {
      parameters: params,
      types: before.parseDataTypes(types),
    });
    const same = now.instantiate(now.operatorNamed(op), { parameters: params, types: now.parseDataTypes(types) });
    const target = before.nativeTarget();
    const usable = before.INTRINSICS.filter((i) => i.language === "c++" && target.isa.includes(i.isa));
    const valid: Mapping[] = usable.flatMap((intrinsic) => before.mappings(computation, intrinsic).valid as Mapping[]);
    const random = seededRandom(rows.length + 1);
    for (let n = 0; n < Number(values.each) && valid.length > 0; n++) {
      const mapping = pick(random, valid);
      const what = `${id} ${types} ${n}: ${mapping.intrinsic.name}`;
      let candidate: MappedCandidate;
      let old: Kernel;
      try {
        const schedule = before.randomSchedule(mapping as never, random) as MappedCandidate["schedule"];
        const operands = Object.fromEntries(Object.entries(mapping.binding).map(([o, bound]) => [o, printExpr(bound)]));
        candidate = {
          kind: "mapping",
          intrinsic: mapping.intrinsic.name,
          matching: mapping.matching,
          operands,
          schedule,
        };
        old = before.generate({ computation, candidate } as never) as Kernel;
      } catch {
        // Without a schedule or a printer for the instruction, a mapping never had a kernel.
        continue;
      }
      let made: Kernel;
      try {
        made = now.generate({ computation: same, candidate });
      } catch (error) {
        rows.push({ what: `${what} ${candidateKey(candidate)}: ${String(error)}`, verdict: "refused" });
        continue;
      }
      const a = bytesOf(old, "before");
      const b = bytesOf(made, "now");
      const verdict = a === undefined || b === undefined ? "not compiled" : a.equals(b) ? "same code" : "other code";
      rows.push({ what, verdict });
      process.stderr.write(`${verdict}   ${what}\n`);
      if (verdict === "other code")
        for (const [name, { source }] of [
          ["before", old],
          ["now", made],
        ] as const)
          writeFileSync(join(values.work, `${id}-${types}-${n}-${name}.cpp`), source);
    }
  }

const count = (verdict: Verdict["verdict"]): number => rows.filter((r) => r.verdict === verdict).length;
writeFileSync(
  `${values.out}.md`,
  [
    "# Kernels of two versions, for the same candidates",
    "",
    `    node dist/bench/versions/same-kernels.js ${process.argv.slice(2).join(" ")}`,
    "",
    `${rows.length} kernels: ${count("same code")} the same machine code and constants, ${count("other code")} other code, ${count("refused")} refused now, ${count("not compiled")} not compiled.`,
    "",
    ...rows.filter((r) => r.verdict !== "same code").map((r) => `* ${r.verdict}: ${r.what}`),
    "",
  ].join("\n"),
);
