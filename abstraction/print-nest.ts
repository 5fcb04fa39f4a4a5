/**
 * @file A nest as text: what `explain --nest` shows and tests hold. One statement is one line; what is inside it follows, two spaces deeper.
 *
 *     for m_outer in 0..4
 *       c{0} <- identity
 */

import { sizesText } from "./affine.ts";
import { type Expr, printAccess, printEquation, printExpr } from "./expression.ts";
import {
  type ArrivalAt,
  type Copy,
  dealOf,
  isGridMode,
  isRoleMode,
  type Loop,
  type LoopNest,
  type MadeElements,
  type MemoryTile,
  type RegisterAt,
  type Scratch,
  type Statement,
} from "./loop-nest.ts";
import { printTensorView } from "./tensor-view.ts";

/** The nest as text, for `explain` and for tests. */
export function printNest(nest: LoopNest): string {
  const lines = nest.scratch.map(printScratch);
  for (const r of nest.registers) lines.push(`registers ${r.name}: ${r.count} x ${r.intrinsic.name}.${r.operand}`);
  for (const a of nest.arrivals ?? []) lines.push(`arrivals ${a.name}: ${a.stages}${a.by ? `, by ${a.by}` : ""}`);
  for (const v of nest.vectors ?? []) lines.push(`vectors ${v.name}: ${v.count} x ${v.dtype}[${v.lanes}]`);
  if (nest.deal) {
    const { warps, lanes, resident } = dealOf(nest);
    const bound = resident === undefined ? "" : `, ${resident} warps resident`;
    lines.push(`parallel at block and warp: ${warps} warps a block, ${lanes} lanes a step${bound}`);
  }
  const deeper = nest.prepare.length > 0;
  if (deeper) lines.push("prepare", ...indented(nest.prepare), "run");
  lines.push(...(deeper ? indented(nest.body) : nest.body.flatMap(printStatement)));
  return lines.join("\n");
}

/** One statement and its contents as text. */
export function printStatement(s: Statement): string[] {
  return [printHead(s), ...inside(s)];
}

const indented = (statements: readonly Statement[]): string[] =>
  statements.flatMap(printStatement).map((line) => `  ${line}`);

/** The lines inside a statement. */
function inside(s: Statement): string[] {
  if (s.kind === "loop") return indented(s.body);
  if (s.kind === "send") return indented(s.copies);
  if (s.kind !== "when") return [];
  return [...indented(s.body), ...(s.otherwise.length > 0 ? ["otherwise", ...indented(s.otherwise)] : [])];
}

/** One statement as one line; for a loop, its head. */
export function printHead(s: Statement): string {
  switch (s.kind) {
    case "loop":
      return printLoop(s);
    case "when":
      return `when ${printExpr(s.condition)}${s.counted ? `, counted by ${s.counted.name}` : ""}`;
    case "scalar": {
      const prefetch = s.prefetch ? `   (prefetch ${printAccess(s.prefetch)}${s.isDistant ? ", distant" : ""})` : "";
      const together = s.together ? `   (${s.together.name} in 0..${s.together.extent} at once)` : "";
      return printEquation(s.equation) + prefetch + together;
    }
    case "issue":
      return printIssue(s, (o) => {
        const tile = s.tiles[o];
        return tile && `${tile.buffer}[${printExpr(tile.base, "formula")} ..]`;
      });
    case "load":
      return `${printRegister(s.register)} <- ${s.made ? printMade(s.made, s.memory) : printTile(s.memory)}`;
    case "store":
      return `${printTile(s.memory)} <- ${printRegister(s.register)}`;
    case "fetch": {
      const { access, axes, by, several, where: when, made = access } = s.tile;
      const more = several ? ` and ${several.count - 1} more` : "";
      const how = by === "elements" ? "" : ` by ${by}`;
      return `${printRegister(s.register)}${more} <- ${printExpr(made)} over ${axes.join(", ")}${how}${where(when)}`;
    }
    case "drain": {
      const how = s.by === "quads" || s.by === "stmatrix" ? ` by ${s.by}` : "";
      const part = s.part ? ` in ${printExpr(s.part.from, "formula")}.. ${s.part.extent}` : "";
      return `for ${s.axes.join(", ")}${part} of ${printRegister(s.register)}${how}   ${printEquation(s.equation)}`;
    }
    case "accumulate":
      return `${printRegister(s.into)} += ${[s.register, ...s.scales].map(printRegister).join(" * ")}`;
    case "copy":
      return printCopy(s);
    case "commit":
      return `commit${s.of ? ` ${s.of.family}` : ""}`;
    case "wait":
      return `wait${s.of ? ` ${s.of.family}` : ""} ${s.pending}`;
    case "settle":
      return `settle ${s.pending}`;
    case "send":
      return `send for ${printArrival(s.arrival)}${where(s.when)}`;
    case "await":
      return `await ${printArrival(s.arrival)}, use ${printExpr(s.use, "formula")}${where(s.when)}`;
    case "arrive":
      return `arrive ${printArrival(s.arrival)}${s.group ? ` by ${s.group}` : ""}${where(s.when)}`;
    case "fence":
      return `fence ${s.of.family} ${s.on}`;
    case "clear":
      return `${printRegister(s.register)} <- identity`;
    case "register-issue":
      return printIssue(s, (o) => {
        const register = s.registers[o];
        const tile = s.tiles?.[o];
        if (tile) return `${printAccess(tile.access)} over ${tile.axes.join(", ")}`;
        return register && printRegister(register);
      });
    case "barrier":
      return `barrier${s.group ? ` ${s.group}` : ""}${s.of ? `, of ${s.of}` : ""}${s.early ? ", early" : ""}`;
    default:
      return s satisfies never;
  }
}

function printLoop({ mode, axis, extent, range, inTurn, ahead = [] }: Loop): string {
  const how = mode === "serial" ? "" : isGridMode(mode) || isRoleMode(mode) ? ` at ${mode}` : ` ${mode}`;
  const end = (name: string, first: number, others: readonly Expr[] = []): string =>
    others.length === 0
      ? String(first)
      : `${name}(${[String(first), ...others.map((e) => printExpr(e, "formula"))].join(", ")})`;
  const steps = `${end("max", 0, range?.from)}..${end("min", extent, range?.to)}`;
  const fetched = ahead.map((t) => `${t.buffer}[${printExpr(t.base, "formula")} ..]`);
  return `for${how} ${axis} in ${steps}${inTurn ? " in turn" : ""}${fetched.length > 0 ? `   (ahead ${fetched.join(", ")})` : ""}`;
}

function printCopy({ axes, width, gathered, transfer, group, view, when, equation }: Copy): string {
  const how = [
    width > 1 ? ` by ${width}` : "",
    gathered ? ", gathered" : "",
    transfer === "plain" ? "" : `, ${transfer}`,
    `, by ${group}`,
    view ? `, ${printTensorView(view)}` : "",
  ];
  const tile = sizesText(axes);
  return `copy ${tile}${how.join("")}${where(when)}   ${printEquation(equation)}`;
}

/** @param placed what is known of an operand's place; undefined where nothing is */
function printIssue(
  issue: Extract<Statement, { readonly kind: "issue" | "register-issue" }>,
  placed: (operand: string) => string | undefined,
): string {
  const { intrinsic } = issue;
  const [target, ...inputs] = intrinsic.operands.map((o) => placed(o.name) ?? "?");
  const anew = issue.kind === "register-issue" && issue.begins ? ", anew" : "";
  return `${target} <- ${intrinsic.name}(${inputs.join(", ")})${anew}`;
}

const where = (when: Expr | undefined): string => (when ? ` where ${printExpr(when)}` : "");

function printScratch(scratch: Scratch): string {
  const { scope, name, dtype, elements, dims, storage, outside } = scratch;
  if (!dims) return `${scope} ${name}: ${dtype}[${elements}]`;
  const shape = sizesText(dims);
  const at = storage ? ` at ${printExpr(storage, "formula")}` : "";
  return `${scope} ${name}: ${dtype}[${shape}]${at}${outside ? ", outside the identity" : ""}`;
}

function printArrival({ name, stage }: ArrivalAt): string {
  return `${name}[${printExpr(stage, "formula")}]`;
}

function printRegister({ file, index }: RegisterAt): string {
  return `${file}{${printExpr(index, "formula")}}`;
}

function printMade({ lane, element, value, halves }: MadeElements, memory: MemoryTile): string {
  return `${printExpr(value)} over ${lane}, ${element} of ${printTile(memory)}${halves ? " in half bytes" : ""}`;
}

function printTile({ buffer, base, stride }: MemoryTile): string {
  return `${buffer}[${printExpr(base, "formula")} .. by ${stride}]`;
}
