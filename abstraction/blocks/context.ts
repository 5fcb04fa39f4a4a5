/**
 * @file The context in which the statements of a block are compiled, and the state of one of its warps while it runs.
 */

import { internal } from "../error.ts";
import { compileIndex, type Environment, type Scope, type Values } from "../evaluate.ts";
import type { Intrinsic, Operand } from "../intrinsic.ts";
import { WARP } from "../intrinsic.ts";
import type { LoopNest, RegisterAt, Scratch } from "../loop-nest.ts";
import { printHead } from "../print-nest.ts";
import { describeElement, describeThread, NestFault, type Site } from "./fault.ts";
import { ALL_LANES, type Flight } from "./happens-before.ts";
import type { Judge, WatchedBuffer } from "./watched-memory.ts";

/** A warp of the running block. */
export interface Warp {
  /** Number within the cluster, and within the block. */
  readonly number: number;
  readonly inBlock: number;
  /** Number of the block within the cluster. */
  readonly block: number;
  readonly env: Environment;
  /** Its registers by file number. */
  readonly files: readonly WarpRegisters[];
  /** Its vectors of lanes, in the order of the nest. */
  readonly vectors: readonly Values[];
  /** Copies or results that arrive when a flight is awaited. */
  readonly cargo: Map<Flight, (() => void)[]>;
  /** Whether a register fence follows the last commit of issues. */
  fenced: boolean;
  /** The warp is blocked until this holds. */
  until: (() => boolean) | undefined;
  /** Next step of the program. */
  step: number;
  waits: boolean;
}

export interface WarpRegisters {
  readonly tiles: readonly Values[];
  /** Which registers have been written. */
  readonly filled: Uint8Array;
  /** Which registers were accessed by other than an asynchronous instruction since the last register fence. */
  readonly touched: Uint8Array;
  /** The newest issue in flight that writes each register. */
  readonly flights: (Flight | undefined)[];
}

export type WarpRun = (warp: Warp) => void;

/** Registers of one operand, alike in every warp. */
export interface RegisterShape {
  /** Number of the file. */
  readonly number: number;
  readonly name: string;
  readonly intrinsic: Intrinsic;
  readonly operand: Operand;
  readonly count: number;
  /** Row and column of each logical element in a memory tile. */
  readonly rows: Int32Array;
  readonly columns: Int32Array;
  readonly identity: number;
}

export interface BlockContext extends Pick<Site, "team" | "teams" | "ofBlock"> {
  readonly scope: Scope;
  readonly judge: Judge;
  readonly files: ReadonlyMap<string, RegisterShape>;
  readonly scratch: ReadonlyMap<string, Scratch>;
  readonly names: ReadonlyMap<string, WatchedBuffer>;
  /** Tensors that must not be written. */
  readonly inputs: ReadonlySet<string>;
  /** Vectors of lanes of the warp that runs. */
  readonly vectors: readonly { readonly values: Values; readonly unknown: number }[];
  /** When asynchronous copies take effect: as late as their wait allows, or at once. */
  readonly copies: "early" | "late";
  /** Blocks of a cluster. */
  readonly blocks: number;
  readonly arrivals: NonNullable<LoopNest["arrivals"]>;
}

/** Threads of a team. */
export const lanesOfTeam = ({ team }: Pick<BlockContext, "team">): number => (team === "warp" ? WARP : 4 * WARP);

/** Threads of an agent. A single thread counts as its whole warp, which runs the statements outside all roles. */
export const lanesOf = (context: BlockContext, inBlock: number): number =>
  inBlock < context.teams ? lanesOfTeam(context) : WARP;

/** Threads of a block. */
export const threadsOfBlock = (context: BlockContext): number =>
  lanesOfTeam(context) * context.teams + WARP * (context.ofBlock - context.teams);

/** A statement at its position in the block. */
export interface Standing extends Site, BlockContext {
  /** Axes of the surrounding loops over parts of the block; the first agent that runs the statement, and the number of agents that do. */
  readonly warpAxes: readonly string[];
  readonly first: number;
  readonly warps: number;
}

/** Whether a single thread runs it while the rest of its warp is idle. */
export const isAlone = ({ first, warpAxes, teams }: Standing): boolean => warpAxes.length > 0 && first >= teams;

/** The register that a statement names, and a function that computes its number. @throws NestFault when the file has no such number */
export function compileRegister(
  { file, index }: RegisterAt,
  site: Standing,
): { readonly shape: RegisterShape; readonly number: (warp: Warp, further?: number) => number } {
  const shape = site.files.get(file) ?? internal(`no registers "${file}"`);
  const at = compileIndex(index, site.scope);
  return {
    shape,
    number: (warp, further = 0) => {
      const number = at(warp.env) + further;
      if (number < 0 || number >= shape.count)
        refuseAt(site, warp, `${file}{${number}} does not exist: ${file} has ${shape.count} registers`);
      return number;
    },
  };
}

/** A loop counter as a digit of a number. */
export interface Digit {
  readonly slot: number;
  readonly extent: number;
}

/** Splits a number into digits, the last one fastest, and writes each into its loop counter. */
export function setDigits(env: Environment, digits: readonly Digit[], number: number): void {
  let rest = number;
  for (const { slot, extent } of digits.toReversed()) {
    env[slot] = rest % extent;
    rest = Math.floor(rest / extent);
  }
}

/** `a_ring[stage 0, m 3, k 8]` */
export function elementAt({ names }: BlockContext, buffer: string, at: number): string {
  return describeElement(names.get(buffer) ?? internal(`no buffer "${buffer}"`), at);
}

/** Refuses a statement that no hardware can run as written, when it is compiled. */
export function refuse(site: Site, what: string): never {
  throw new NestFault("malformed", [what, printHead(site.statement)]);
}

/** An access to a register while an issue in flight writes it. */
export function inFlightAt(site: Standing, warp: Warp, register: string, missing: string): NestFault {
  const event = site.judge.eventOf(site, warp.number, warp.env);
  return new NestFault("race", [
    `${register} is used before the issue that takes it has ended`,
    printHead(site.statement),
    `  run by ${describeThread({ event, lane: ALL_LANES })}`,
    `missing: ${missing}`,
  ]);
}

/** The same when it runs. */
export function refuseAt(site: Standing, warp: Warp, what: string, lane: number = ALL_LANES): never {
  const event = site.judge.eventOf(site, warp.number, warp.env);
  throw new NestFault("malformed", [what, printHead(site.statement), `  run by ${describeThread({ event, lane })}`]);
}
