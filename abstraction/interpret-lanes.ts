/**
 * @file Compiles scalar statements of a nest: as serial statements, or on all lanes of a vector at once.
 *
 *     for lanes lane in 0..16
 *       Z[0,lane] = Z[0,lane-1] + x[16*b + lane] * w[q]          every lane reads before any writes
 */

import { internal } from "./error.ts";
import { compileEquation, type Run, type Scope } from "./evaluate.ts";
import { axesIn, type Equation, number, printEquation } from "./expression.ts";
import type { Statement } from "./loop-nest.ts";
import { substituteAxis } from "./rewrite-statement.ts";

/** One scalar statement, run once for each step of the loops around it. */
export function compileScalar(equation: Equation, scope: Scope): Run {
  const { values, evaluate, place, holds, join } = compileEquation(equation, scope);
  return (env) => {
    if (holds?.(env) === 0) return;
    const at = place(env);
    if (at >= 0) values[at] = join(values[at] ?? 0, evaluate(env));
  };
}

/** In place of a lane number: all lanes together. */
const ALL_LANES = -1;

/**
 * Runs each statement on every lane before the next statement: all lanes read, then all write.
 * @param thread is told which lane runs
 */
export function compileLanes(
  { axis, extent, body }: Extract<Statement, { kind: "loop" }>,
  scope: Scope,
  thread: { lane: number } = { lane: ALL_LANES },
): Run {
  const each = body.flatMap((s) => {
    if (s.kind !== "scalar") internal(`lanes of ${axis} run a ${s.kind}; they run scalar statements only`);
    const { name, extent: count } = s.together ?? { name: "", extent: 1 };
    return Array.from({ length: count }, (_, i) => (s.together ? substituteAxis(s, name, number(i)) : s));
  });
  const runs = each.map((s): Run => {
    if (s.kind !== "scalar") internal("a scalar statement stays one");
    const reduces = !s.equation.target.index.some((index) => axesIn(index).includes(axis));
    const lanes = { slot: scope.slot(axis), extent, thread };
    return (reduces ? compileReduction : compileEachLane)(s.equation, lanes, scope);
  });
  return (env) => {
    for (const run of runs) run(env);
  };
}

interface Lanes {
  readonly slot: number;
  readonly extent: number;
  readonly thread: { lane: number };
}

/** A target without the lane axis takes one value folded from all lanes and rounded once. With `=`, at most one lane may meet the condition. */
function compileReduction(equation: Equation, { slot, extent, thread }: Lanes, scope: Scope): Run {
  const { op } = equation;
  const { values, watch, evaluate, place, holds, join, fold } = compileEquation(equation, scope);
  return (env) => {
    let sum = 0;
    let active = 0;
    let writer = ALL_LANES;
    for (let lane = 0; lane < extent; lane++) {
      env[slot] = lane;
      thread.lane = lane;
      if (holds?.(env) === 0) continue;
      sum = active === 0 ? evaluate(env) : fold(sum, evaluate(env));
      active++;
      writer = active === 1 ? lane : ALL_LANES;
    }
    const at = place(env);
    if (active > 1 && op === "=") internal(`${active} lanes assign ${printEquation(equation)}`);
    if (active === 0 || at < 0) return;
    thread.lane = writer;
    if (op !== "=") watch?.read(at);
    watch?.write(at);
    values[at] = join(values[at] ?? 0, sum);
  };
}

function compileEachLane(equation: Equation, { slot, extent, thread }: Lanes, scope: Scope): Run {
  const { op } = equation;
  const { values, watch, evaluate, place, holds, join } = compileEquation(equation, scope);
  const places = new Int32Array(extent);
  const results = new Float64Array(extent);
  return (env) => {
    for (let lane = 0; lane < extent; lane++) {
      env[slot] = lane;
      thread.lane = lane;
      const at = holds?.(env) === 0 ? -1 : place(env);
      places[lane] = at;
      if (at < 0) continue;
      if (op !== "=") watch?.read(at);
      results[lane] = join(values[at] ?? 0, evaluate(env));
    }
    let before = -1;
    let ascending = true;
    for (let lane = 0; lane < extent; lane++) {
      const at = places[lane] ?? -1;
      if (at < 0) continue;
      if (at <= before) ascending = false;
      before = at;
      thread.lane = lane;
      watch?.write(at);
      values[at] = results[lane] ?? Number.NaN;
    }
    const written = ascending ? [] : places.filter((at) => at >= 0);
    if (new Set(written).size < written.length) internal(`two lanes write one element: ${printEquation(equation)}`);
  };
}
