/**
 * @file Issues of an instruction by a warp or a warpgroup: synchronous on registers, or asynchronous with factors read from shared memory.
 *
 *     fence wgmma registers
 *     c{0} <- wgmma.m64n128k16.f32.f16(a_ring[step%4,64*m_group+m_in,16*k_part+k_in] over m_in, k_in, ...)
 *     commit wgmma
 *     wait wgmma 0                                      now c{0} may be read, and the stage written
 *
 * An asynchronous issue reads memory and writes its sums at any time until it has been awaited: both extremes are run.
 */

import { pointsIn } from "../affine.ts";
import { addTo } from "../collections.ts";
import { internal } from "../error.ts";
import { compilePlace, type Values } from "../evaluate.ts";
import { prepareInPlace } from "../interpret.ts";
import { type Intrinsic, type Operand, readsShared } from "../intrinsic.ts";
import type { RegisterAt, Statement, TileAccess } from "../loop-nest.ts";
import { operandView } from "../matrix-view.ts";
import {
  compileRegister,
  elementAt,
  type RegisterShape,
  refuse,
  refuseAt,
  type Standing,
  type Warp,
  type WarpRegisters,
  type WarpRun,
} from "./context.ts";
import { checkTypes, filledTileOf, seekerOf, tileOf } from "./fragments.ts";
import type { Queue } from "./happens-before.ts";

type Issue = Extract<Statement, { kind: "register-issue" }>;

/** The queue that a commit or a wait refers to. */
export const queueOf = (of: Intrinsic | undefined): Queue => (of ? "issues" : "copies");

/** Orders the warp's register accesses before its next issues. */
export function fenceRegisters(warp: Warp): void {
  warp.fenced = true;
  for (const { touched } of warp.files) touched.fill(0);
}

/** Publishes the warp's writes to instructions that read memory directly. */
export function publish(warp: Warp, site: Standing): void {
  const { judge } = site;
  const event = judge.next;
  judge.begin(site, warp.number, warp.env);
  judge.order.publish(warp.number, event);
}

/** An operand of an issue. */
interface Factor {
  readonly values: Float64Array;
  /** Records the reads and reports faults. @returns a function that fetches the values, now or when they are awaited */
  readonly begin: (warp: Warp) => () => void;
  /** The register of an operand that is in one. */
  readonly held?: { readonly shape: RegisterShape; readonly number: (warp: Warp) => number };
}

export function compileIssue({ intrinsic, registers, tiles = {}, begins }: Issue, site: Standing): WarpRun {
  const { judge, copies } = site;
  if (intrinsic.scope !== site.team)
    refuse(site, `${intrinsic.name} is issued by a ${intrinsic.scope}, not by a ${site.team}`);
  // The instruction's equation runs on arrays of its own; operands are copied in and the target copied back.
  const logical: Record<string, Float64Array> = {};
  const [declared, ...others] = intrinsic.operands;
  if (!declared) internal(`${intrinsic.name} has no operands`);
  const target = registerOf(intrinsic, declared, registers[declared.name], site);
  const { shape, number } = target;
  const factors = others.map((operand): Factor => {
    const tile = tiles[operand.name];
    const factor =
      tile && readsShared(operand)
        ? inMemory(intrinsic, operand, tile, site)
        : inRegisters(intrinsic, operand, registers[operand.name], site);
    logical[operand.name] = factor.values;
    return factor;
  });
  const sums = new Float64Array(shape.rows.length);
  logical[declared.name] = sums;
  if (begins && !intrinsic.begin) refuse(site, `${intrinsic.name} always adds to its sums`);
  const accumulates = intrinsic.computation.equation.op !== "=" && !begins;
  const issue = prepareInPlace(intrinsic.computation, logical);
  if (!intrinsic.asynchronous)
    return (warp) => {
      for (const { begin } of factors) begin(warp)();
      const n = number(warp);
      if (accumulates) sums.set(filledTileOf(warp, shape, n, site));
      else sums.fill(shape.identity);
      issue();
      tileOf(warp, shape, n, site).set(sums);
    };
  /** Registers stay with the issue until it has ended, those of factors too. */
  const held = [{ ...target, isRead: accumulates }];
  for (const { held: factor } of factors) if (factor) held.push({ ...factor, isRead: true });
  return (warp) => {
    judge.begin(site, warp.number, warp.env, "issues");
    const taken = held.map((of) => {
      const { tile, file, n } = registerIn(warp, of);
      const problem = registerProblem(warp, file, n, of.isRead, `${of.shape.name}{${n}}`, intrinsic);
      if (problem !== undefined) refuseAt(site, warp, problem);
      return { tile, file, n };
    });
    const reads = factors.map(({ begin }) => begin(warp));
    const { flight } = judge.order.sentOff(warp.number, "issues");
    for (const { file, n } of taken) {
      file.flights[n] = flight;
      file.filled[n] = 1;
    }
    const { tile } = registerIn(warp, target);
    const arrive = (): void => {
      for (const read of reads) read();
      if (begins) sums.fill(shape.identity);
      else sums.set(tile);
      issue();
      tile.set(sums);
    };
    if (copies === "early") return arrive();
    addTo(warp.cargo, flight, arrive);
  };
}

/** A register of a warp. */
function registerIn(
  warp: Warp,
  { shape, number }: NonNullable<Factor["held"]>,
): { readonly tile: Values; readonly file: WarpRegisters; readonly n: number } {
  const n = number(warp);
  const file = warp.files[shape.number];
  const tile = file?.tiles[n];
  if (!file || !tile) internal(`no register ${shape.name}{${n}}`);
  return { tile, file, n };
}

/** Checks a register that an asynchronous instruction reads or adds to. */
function registerProblem(
  warp: Warp,
  file: WarpRegisters,
  number: number,
  isRead: boolean,
  name: string,
  { family }: Intrinsic,
): string | undefined {
  if (isRead && file.filled[number] !== 1) return `${name} is read, and nothing has filled it`;
  if (!warp.fenced)
    return `no fence of registers stands between the last commit and this issue: missing: fence ${family} registers`;
  if (file.touched[number] === 1)
    return `${name} was used behind the last fence of registers: missing: fence ${family} registers ahead of the issue`;
  return undefined;
}

function registerOf(
  intrinsic: Intrinsic,
  { name }: Operand,
  register: RegisterAt | undefined,
  site: Standing,
): { readonly shape: RegisterShape; readonly number: (warp: Warp) => number } {
  if (!register) internal(`${intrinsic.name} is issued without ${name}`);
  const { shape, number } = compileRegister(register, site);
  if (shape.intrinsic !== intrinsic || shape.operand.name !== name)
    refuse(site, `${shape.name} holds ${shape.intrinsic.name}.${shape.operand.name}, not ${intrinsic.name}.${name}`);
  return { shape, number };
}

function inRegisters(intrinsic: Intrinsic, operand: Operand, register: RegisterAt | undefined, site: Standing): Factor {
  const held = registerOf(intrinsic, operand, register, site);
  const { shape, number } = held;
  const values = new Float64Array(shape.rows.length);
  return {
    values,
    held,
    begin: (warp) => {
      const tile = intrinsic.asynchronous
        ? registerIn(warp, held).tile
        : Float64Array.from(filledTileOf(warp, shape, number(warp), site));
      return () => values.set(tile);
    },
  };
}

/** A factor that the instruction reads directly from shared memory, in a layout that its descriptor can express. */
function inMemory(intrinsic: Intrinsic, operand: Operand, { axes, access }: TileAccess, site: Standing): Factor {
  const { scope } = site;
  const { tensor } = access;
  if (site.scratch.get(tensor)?.scope !== "shared")
    refuse(site, `${intrinsic.name} reads ${operand.name} from shared memory, and ${tensor} is none`);
  const { values: memory, dtype, watch } = scope.buffer(tensor);
  checkTypes({ intrinsic, operand }, dtype, tensor, site);
  const place = compilePlace(access, scope);
  const seek = seekerOf(axes, { intrinsic, operand }, site);
  const size = pointsIn(operand.dims);
  const values = new Float64Array(size);
  return {
    values,
    begin: (warp) => {
      const places = new Int32Array(values.length);
      for (let e = 0; e < places.length; e++) {
        seek(warp.env, e);
        places[e] = place(warp.env);
      }
      if (places.includes(-1)) refuseAt(site, warp, `the tile leaves ${tensor}`);
      if (!operandView(intrinsic, operand, (e) => places[e] ?? 0))
        refuseAt(
          site,
          warp,
          `${operand.name} from ${elementAt(site, tensor, places[0] ?? 0)} on lies in no form that ${intrinsic.name} reads: a start, two distances, a swizzle`,
        );
      for (const from of places) watch?.read(from, true);
      return () => {
        for (let e = 0; e < places.length; e++) values[e] = memory[places[e] ?? 0] ?? Number.NaN;
      };
    },
  };
}
