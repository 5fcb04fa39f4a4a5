/**
 * @file Scalar statements of a nest: where their loops stand, or on all lanes of a vector at once.
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b + lane] * w[q]          every lane reads before any writes
 */

import { type Equation, printEquation } from "./equation.ts";
import { compileIndex, compilePlace, compileValue, foldOf, joinOf, type Run, type Scope } from "./evaluate.ts";
import { axesIn } from "./expression.ts";
import type { Statement } from "./loop-nest.ts";

/** One scalar statement where its loops stand. */
export function compileScalar({ target, op, value, where }: Equation, scope: Scope): Run {
  const { dtype, values } = scope.buffer(target.tensor);
  const evaluate = compileValue(value, scope, dtype);
  const place = compilePlace(target, scope);
  const join = joinOf(op, dtype);
  const condition = where === undefined ? undefined : compileIndex(where, scope);
  return (env) => {
    if (condition !== undefined && condition(env) === 0) return;
    const at = place(env);
    if (at >= 0) values[at] = join(values[at] ?? 0, evaluate(env));
  };
}

/**
 * Each statement on every lane before the next begins: all lanes read, then all write. A target without the lane axis takes one value
 * folded from all lanes, rounded once; with `=` at most one lane may meet the condition.
 */
export function compileLanes({ axis, extent, body }: Extract<Statement, { kind: "loop" }>, scope: Scope): Run {
  const slot = scope.slot(axis);
  const runs = body.map((s): Run => {
    if (s.kind !== "scalar")
      throw new Error(`internal: lanes of ${axis} run a ${s.kind}; they run scalar statements only`);
    const { target, op, value, where } = s.equation;
    const { dtype, values } = scope.buffer(target.tensor);
    const evaluate = compileValue(value, scope, dtype);
    const place = compilePlace(target, scope);
    const join = joinOf(op, dtype);
    const condition = where === undefined ? undefined : compileIndex(where, scope);
    const reduces = !target.index.some((index) => axesIn(index).includes(axis));
    if (reduces) {
      const fold = foldOf(op, dtype);
      return (env) => {
        let sum = 0;
        let active = 0;
        for (let lane = 0; lane < extent; lane++) {
          env[slot] = lane;
          if (condition !== undefined && condition(env) === 0) continue;
          sum = active === 0 ? evaluate(env) : fold(sum, evaluate(env));
          active++;
        }
        const at = place(env);
        if (active > 1 && op === "=") throw new Error(`internal: ${active} lanes assign ${printEquation(s.equation)}`);
        if (active > 0 && at >= 0) values[at] = join(values[at] ?? 0, sum);
      };
    }
    const places = new Int32Array(extent);
    const results = new Float64Array(extent);
    return (env) => {
      for (let lane = 0; lane < extent; lane++) {
        env[slot] = lane;
        const at = condition !== undefined && condition(env) === 0 ? -1 : place(env);
        places[lane] = at;
        if (at >= 0) results[lane] = join(values[at] ?? 0, evaluate(env));
      }
      let before = -1;
      let ascending = true;
      for (let lane = 0; lane < extent; lane++) {
        const at = places[lane] ?? -1;
        if (at < 0) continue;
        if (at <= before) ascending = false;
        before = at;
        values[at] = results[lane] ?? Number.NaN;
      }
      const written = ascending ? [] : places.filter((at) => at >= 0);
      if (new Set(written).size < written.length)
        throw new Error(`internal: two lanes write one element: ${printEquation(s.equation)}`);
    };
  });
  return (env) => {
    for (const run of runs) run(env);
  };
}
