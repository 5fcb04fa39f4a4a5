/**
 * @file Reads the loops of a function from the assembly that Intel's compiler writes, and counts the instructions of each.
 *
 *     _0_019:                                                          loop: 3 instructions, 1 send, 1 product
 *             load.ugm.d32.a64 (16|M0)  r12:1  [r10:2]
 *             dpas.8x8 (8|M0)  r75:f  r75:f  r7:hf  r27.0:hf
 *     (W&f0.1) jmpi  _0_019
 *
 * A jump to a label above it closes a loop, which is all that lies between.
 */

/** A loop, or a whole function. Its counts leave out those of the loops inside. */
export interface IsaLoop {
  readonly instructions: number;
  /** Of these, accesses to memory. */
  readonly sends: number;
  /** Of these, matrix products. */
  readonly products: number;
  /** In the order of their first instructions. */
  readonly loops: readonly IsaLoop[];
}

interface Instruction {
  readonly mnemonic: string;
  /** Labels it names. */
  readonly targets: readonly string[];
}

interface Span {
  readonly first: number;
  readonly last: number;
}

const LABEL = /^([\w.$]+):$/;
/** A predicate in brackets, then the mnemonic. */
const INSTRUCTION = /^(?:\([^)]*\))?\s+([a-z][\w.]*)/;
const JUMPS = new Set(["jmpi", "goto", "goto.b", "while", "brc", "brd"]);

const isSend = (mnemonic: string): boolean =>
  /^(?:load|store|atomic)(?:_|\.)/.test(mnemonic) || (/^sends?c?(?:\.|$)/.test(mnemonic) && mnemonic !== "send.gtwy");
const isProduct = (mnemonic: string): boolean => /^dpasw?(?:\.|$)/.test(mnemonic);

/** The whole function, and its loops inside it. */
export function loopsIn(assembly: string): IsaLoop {
  const instructions: Instruction[] = [];
  const labels = new Map<string, number>();
  for (const line of assembly.split("\n")) {
    const text = line.replace(/\/\/.*$/, "").trimEnd();
    const label = LABEL.exec(text)?.[1];
    if (label !== undefined) labels.set(label, instructions.length);
    const mnemonic = label === undefined ? INSTRUCTION.exec(text)?.[1] : undefined;
    if (mnemonic === undefined) continue;
    const words = JUMPS.has(mnemonic) ? text.split(/[\s,]+/).slice(1) : [];
    instructions.push({ mnemonic, targets: words });
  }
  const spans = instructions.flatMap(({ targets }, last): Span[] => {
    const starts = targets.flatMap((name) => labels.get(name) ?? []).filter((first) => first <= last);
    return starts.map((first) => ({ first, last }));
  });
  return counted({ first: 0, last: instructions.length - 1 }, nested(spans), instructions);
}

/** Spans of which any two lie inside one another or apart: those with the same first instruction, or that overlap, become one. */
function nested(spans: readonly Span[]): Span[] {
  const found: Span[] = [];
  for (const span of [...spans].sort((a, b) => a.first - b.first || b.last - a.last)) {
    const crossed = found.findIndex(
      (f) => f.first === span.first || (f.first < span.first && span.first <= f.last && f.last < span.last),
    );
    const other = found[crossed];
    if (other === undefined) found.push(span);
    else found[crossed] = { first: other.first, last: Math.max(other.last, span.last) };
  }
  return found;
}

function counted({ first, last }: Span, inside: readonly Span[], instructions: readonly Instruction[]): IsaLoop {
  const isOutermost = (s: Span): boolean =>
    !inside.some((o) => o !== s && o.first <= s.first && s.last <= o.last && (o.first < s.first || s.last < o.last));
  const outermost = inside.filter(isOutermost);
  const holds = (s: Span, at: number): boolean => s.first <= at && at <= s.last;
  const own = instructions.slice(first, last + 1).filter((_, i) => !outermost.some((s) => holds(s, first + i)));
  const count = (is: (mnemonic: string) => boolean): number => own.filter(({ mnemonic }) => is(mnemonic)).length;
  return {
    instructions: own.length,
    sends: count(isSend),
    products: count(isProduct),
    loops: outermost.map((s) =>
      counted(
        s,
        inside.filter((o) => o !== s && s.first <= o.first && o.last <= s.last),
        instructions,
      ),
    ),
  };
}
