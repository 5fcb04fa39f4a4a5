import { readFileSync, writeFileSync } from "node:fs";
import { test } from "vitest";
import { pick, seededRandom } from "../abstraction/random.ts";
import { generateCpp } from "../codegen/cpp.ts";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { mappings } from "../mapper/enumerate.ts";
import { lowerSchedule } from "../mapper/schedule.ts";
import { randomSchedule } from "../mapper/schedule-space.ts";
import { operatorNamed, parseDataTypes } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { createModel, createTerms } from "../perfmodel/model.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { createRunner } from "../runtime/measure.ts";
import { nativeTarget } from "../targets/native.ts";

const CASES = [
  {
    operator: "conv2d",
    parameters: { c: 64, k: 64, h: 28, w: 28, r: 3, s: 3, pad: 1 },
    types: "u8s8",
    layouts: "NHWC",
    intrinsic: "avx512.vpdpbusd",
  },
  {
    operator: "conv2d",
    parameters: { c: 32, k: 64, h: 28, w: 28, r: 3, s: 3, pad: 1 },
    types: "f32",
    layouts: "NCHW",
    intrinsic: "avx512.fma.f32.broadcast",
  },
  {
    operator: "matmul",
    parameters: { m: 256, n: 256, k: 512 },
    types: "f32",
    layouts: {},
    intrinsic: "avx512.fma.f32.broadcast",
  },
  {
    operator: "depthwise-conv2d",
    parameters: { c: 128, h: 28, w: 28, m: 1, r: 3, s: 3 },
    types: "f32",
    layouts: "NHWC",
    intrinsic: "avx512.fma.f32",
  },
  {
    operator: "conv2d",
    parameters: { c: 128, k: 256, h: 14, w: 14, r: 1, s: 1, pad: 0 },
    types: "bf16",
    layouts: "NHWC",
    intrinsic: "avx512.vdpbf16ps",
  },
];

test("x", { timeout: 2_000_000 }, async () => {
  const made = await createRunner({ threads: 1, workdir: "/tmp/perfwork", jobs: 2, budgetSeconds: 0.15 });
  if (made.status === "environment") throw new Error(made.what);
  const target = modelTarget(nativeTarget(), JSON.parse(readFileSync("/tmp/calibration.json", "utf8")));
  const out: unknown[] = [];
  for (const [ci, { operator, parameters, types, layouts, intrinsic: name }] of CASES.entries()) {
    const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types), layouts });
    const intrinsic = intrinsicsNamed(name)[0];
    if (!intrinsic) throw new Error(name);
    const { valid } = mappings(computation, intrinsic);
    console.log(operator, valid.length);
    const reference = await made.runner.reference(computation, 1);
    const random = seededRandom(77 + ci);
    const N = Number(process.env["N"] ?? 30);
    const items = Array.from({ length: N }, () => {
      const mapping = pick(random, valid);
      const schedule = randomSchedule(mapping, random);
      return { mapping, schedule };
    });
    const kernels = items.map(({ mapping, schedule }) =>
      generateCpp(computation, intrinsic, lowerSchedule(mapping, schedule), { lines: [JSON.stringify(schedule)] }),
    );
    for (const k of kernels) void made.runner.compile(k);
    for (const [i, { mapping, schedule }] of items.entries()) {
      const k = kernels[i];
      if (!k) continue;
      const m = await made.runner.measure(k, reference);
      const p = createModel(mapping, target)(schedule);
      const costs = createTerms(mapping, target)(schedule);
      out.push({
        ci,
        operator,
        matching: mapping.matching,
        schedule,
        status: m.status,
        log: m.status === "ok" ? "" : m.log.slice(0, 300),
        measured: m.status === "ok" ? m.median : null,
        predicted: p?.seconds,
        costs,
      });
      writeFileSync("/tmp/trials.json", JSON.stringify(out));
    }
  }
});
