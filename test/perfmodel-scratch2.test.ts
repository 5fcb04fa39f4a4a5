import { readFileSync, writeFileSync } from "node:fs";
import { test } from "vitest";
import { intrinsicsNamed } from "../intrinsics/index.ts";
import { mappings } from "../mapper/enumerate.ts";
import { operatorNamed, parseDataTypes } from "../operators/index.ts";
import { instantiate } from "../operators/operator.ts";
import { createModel, createTerms } from "../perfmodel/model.ts";
import { Plan } from "../perfmodel/plan.ts";
import { modelTarget } from "../perfmodel/target.ts";
import { fit, apply } from "../perfmodel/correct.ts";
import { evaluate } from "../tuner/evaluate.ts";
import { nativeTarget } from "../targets/native.ts";

const CASES = [
  { operator: "conv2d", parameters: { c: 64, k: 64, h: 28, w: 28, r: 3, s: 3, pad: 1 }, types: "u8s8", layouts: "NHWC", intrinsic: "avx512.vpdpbusd" },
  { operator: "conv2d", parameters: { c: 32, k: 64, h: 28, w: 28, r: 3, s: 3, pad: 1 }, types: "f32", layouts: "NCHW", intrinsic: "avx512.fma.f32.broadcast" },
  { operator: "matmul", parameters: { m: 256, n: 256, k: 512 }, types: "f32", layouts: {}, intrinsic: "avx512.fma.f32.broadcast" },
  { operator: "depthwise-conv2d", parameters: { c: 128, h: 28, w: 28, m: 1, r: 3, s: 3 }, types: "f32", layouts: "NHWC", intrinsic: "avx512.fma.f32" },
  { operator: "conv2d", parameters: { c: 128, k: 256, h: 14, w: 14, r: 1, s: 1, pad: 0 }, types: "bf16", layouts: "NHWC", intrinsic: "avx512.vdpbf16ps" },
];
test("y", { timeout: 100000 }, () => {
  const trials = JSON.parse(readFileSync("/tmp/trials.json", "utf8"));
  const target = modelTarget(nativeTarget(), JSON.parse(readFileSync("/tmp/calibration.json", "utf8")));
  const out: unknown[] = [];
  const sets = CASES.map(({ operator, parameters, types, layouts, intrinsic: name }) => {
    const computation = instantiate(operatorNamed(operator), { parameters, types: parseDataTypes(types), layouts });
    return mappings(computation, intrinsicsNamed(name)[0] as never).valid;
  });
  const all: { ci: number; costs: never; predicted: number; sum: number; measured: number }[] = [];
  for (const t of trials) {
    const mapping = sets[t.ci]?.find((m) => JSON.stringify(m.matching) === JSON.stringify(t.matching));
    if (!mapping) throw new Error("mapping");
    const p = createModel(mapping, target)(t.schedule);
    const costs = createTerms(mapping, target)(t.schedule);
    const plan = new Plan(mapping);
    plan.read(t.schedule);
    const packs = plan.inputs.flatMap((i) => { const f = plan.packingOf(i); return f ? [f.packing] : []; });
    const st = plan.ownStores();
    out.push({ ...t, predicted: p?.seconds, costs, packs, scattered: st.scattered * plan.targetElements, scattering: plan.scattering });
    if (t.measured) all.push({ ci: t.ci, costs: costs as never, predicted: p?.seconds ?? 0, sum: costs?.bounds[1] ?? 0, measured: t.measured });
  }
  writeFileSync("/tmp/features.json", JSON.stringify(out));
  const show = (x: { predicted: number; measured: number }[]) => { const e = evaluate(x); const err = Math.exp(x.reduce((s, y) => s + Math.abs(Math.log(y.predicted / y.measured)), 0) / x.length); return `pairwise ${e.pairwise?.toFixed(3)} recall ${e.recall?.toFixed(3)} err x${err.toFixed(2)}`; };
  for (const ci of [0, 1, 2, 3, 4]) {
    const own = all.filter((a) => a.ci === ci);
    const others = all.filter((a) => a.ci !== ci);
    const correction = fit(others.map((o) => ({ costs: o.costs, measuredSeconds: o.measured })));
    const half = fit(own.filter((_, i) => i % 2 === 0).map((o) => ({ costs: o.costs, measuredSeconds: o.measured })));
    const rest = own.filter((_, i) => i % 2 === 1);
    console.log(ci, "max", show(own), "| sum", show(own.map((o) => ({ ...o, predicted: o.sum }))), "| corrected by others", show(own.map((o) => ({ ...o, predicted: apply(correction, o.costs) }))), "| own half", show(rest), "->", show(rest.map((o) => ({ ...o, predicted: apply(half, o.costs) }))));
  }
  console.log(JSON.stringify(fit(all.map((o) => ({ costs: o.costs, measuredSeconds: o.measured })))));
});
