/**
 * @file One statement as a warp runs it.
 *
 *     c{1} <- mma.m16n8k16.f32.f16(a{0}, b{1})          on this warp's registers
 *     wait 1                                            what its older groups copied is there now
 */

import { prepareInPlace } from "../interpret.ts";
import { compileLanes } from "../interpret-lanes.ts";
import type { Statement } from "../loop-nest.ts";
import { WARP } from "../register.ts";
import { type BlockContext, compileRegister, malformed, type Standing, type WarpRun } from "./context.ts";
import { compileCopy } from "./copy.ts";
import { compileDrain, compileFetch, compileTileMove, filledTileOf, tileOf } from "./fragments.ts";

/** Everything that a warp runs by itself; barriers of a block and loops are steps of the program (run.ts). */
export function compileWarpStatement(s: Statement, site: Standing, context: BlockContext): WarpRun {
  const { judge } = context;
  switch (s.kind) {
    case "loop":
      if (s.mode === "lanes") return compileWarpLanes(s, site, context);
      throw malformed(site, `a loop at ${s.mode} does not stand inside a block`);
    case "copy":
      return compileCopy(s, site, context);
    case "commit":
      return ({ number }) => judge.order.commit(number);
    case "wait":
      return ({ number, cargo }) => {
        for (const flight of judge.order.awaitFlights(number, s.pending)) {
          for (const arrive of cargo.get(flight) ?? []) arrive();
          cargo.delete(flight);
        }
      };
    case "barrier":
      if (s.group !== "warp")
        throw malformed(site, "a barrier of the whole call stands at the top of a nest, outside its blocks");
      return ({ number }) => judge.order.barrier([number]);
    case "fetch":
      return compileFetch(s, site, context);
    case "drain":
      return compileDrain(s, site, context);
    case "load":
    case "store":
      return compileTileMove(s, site, context);
    case "clear": {
      const { shape, number } = compileRegister(s.register, site, context);
      return (warp) => void tileOf(warp, shape, number(warp)).fill(shape.identity);
    }
    case "register-issue":
      return compileIssue(s, site, context);
    case "scalar":
      throw malformed(site, "a scalar statement of a warp stands in a loop over its lanes");
    case "issue":
      throw malformed(site, `a warp issues ${s.intrinsic.name} on registers, not on tiles in memory`);
    default:
      return s satisfies never;
  }
}

function compileIssue(
  { intrinsic, registers }: Extract<Statement, { kind: "register-issue" }>,
  site: Standing,
  context: BlockContext,
): WarpRun {
  if (intrinsic.scope !== "warp")
    throw malformed(site, `${intrinsic.name} is issued by a ${intrinsic.scope}, not by a warp`);
  // The instruction's equation runs on arrays of its own; registers are copied in and the target copied back.
  const logical: Record<string, Float64Array> = {};
  const [target, ...inputs] = intrinsic.operands.map(({ name }) => {
    const register = registers[name];
    if (!register) throw new Error(`internal: ${intrinsic.name} is issued without ${name}`);
    const { shape, number } = compileRegister(register, site, context);
    if (shape.intrinsic !== intrinsic || shape.operand.name !== name)
      throw malformed(
        site,
        `${shape.name} holds ${shape.intrinsic.name}.${shape.operand.name}, not ${intrinsic.name}.${name}`,
      );
    const values = new Float64Array(shape.rows.length);
    logical[name] = values;
    return { shape, number, values };
  });
  if (!target) throw new Error(`internal: ${intrinsic.name} has no operands`);
  const accumulates = intrinsic.computation.equation.op !== "=";
  const issue = prepareInPlace(intrinsic.computation, logical);
  return (warp) => {
    for (const { shape, number, values } of inputs) values.set(filledTileOf(warp, shape, number(warp), site, context));
    const n = target.number(warp);
    if (accumulates) target.values.set(filledTileOf(warp, target.shape, n, site, context));
    issue();
    tileOf(warp, target.shape, n).set(target.values);
  };
}

/** Lanes of a warp compute on its own vectors; what they read and write in memory is watched lane by lane. */
function compileWarpLanes(s: Extract<Statement, { kind: "loop" }>, site: Standing, context: BlockContext): WarpRun {
  const { scope, judge, vectors } = context;
  if (s.extent > WARP) throw malformed(site, `a warp has ${WARP} lanes, not ${s.extent}`);
  const runs = s.body.map((inner) => ({
    site: { ...site, statement: inner, loops: site.loops },
    run: compileLanes({ ...s, body: [inner] }, scope, judge),
  }));
  return (warp) => {
    for (const [i, { values }] of vectors.entries()) values.set(warp.vectors[i] ?? []);
    for (const { site: here, run } of runs) {
      judge.begin(here, warp.number, warp.env);
      run(warp.env);
    }
    for (const [i, { values }] of vectors.entries()) warp.vectors[i]?.set(values);
  };
}
