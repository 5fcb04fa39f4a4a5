/**
 * @file Reads the notation.
 *
 *     parseEquation("c[m,n] += s32(a[m,k]) * s32(b[k,n])")
 *     parseExpr("64*(k/4) + 4*n + k%4")
 *
 * A malformed text throws a {@link UsageError} that marks the place. Every node remembers its place in
 * the text (`spanOf`), so that later checks can mark theirs too.
 */

import { DTYPES, isDType } from "./dtype.ts";
import { internal, type Span, suggestion, UsageError } from "./error.ts";
import {
  type Access,
  axis,
  type BinaryOp,
  BORDERS,
  COMBINE_OPS,
  type CombineOp,
  type CompareOp,
  childrenOf,
  type Equation,
  type Expr,
  FUNCTIONS,
  type FunctionName,
  printEquation,
} from "./expression.ts";

interface Token {
  readonly text: string;
  readonly kind: "name" | "number" | "symbol" | "end";
  readonly span: Span;
}

const TOKEN =
  /\s*(?:((?:sat\+|max|min)=(?!=)|\+=|<=|>=|==|!=)|([A-Za-z_][A-Za-z0-9_]*)|(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|([-+*/%^()[\],<>=]))/y;

const COMPARISONS: readonly string[] = ["<", "<=", ">", ">=", "==", "!="];

/** Binary operators, weakest first; all are left-associative. */
const BINARY_LEVELS: readonly (readonly string[])[] = [
  ["or"],
  ["and"],
  COMPARISONS,
  ["^"],
  ["+", "-"],
  ["*", "/", "%"],
];

/** Limits of a text. A longer one is a mistake, or an attack through an imported record. */
const MAX_CHARACTERS = 4000;
const MAX_NESTING = 100;
/** For texts of another notation. */
const FORM = "an equation looks like c[i,j] += a[i,k] * b[k,j]";
/** Levels of a tree, of which a sum has as many as it has terms: half of what walks over expressions can do without overflowing the stack. */
const MAX_LEVELS = 1000;

const KEYWORDS: readonly string[] = ["where", "and", "or", "select"];

const spans = new WeakMap<object, { source: string; span: Span; levels: number }>();

/** What keeps the text of an equation from being read back; undefined where nothing does. @param share of the limits, to leave room for rewriting */
export function problemOfSize({ beside = [], ...equation }: Equation, share = 1): string | undefined {
  const { target, value, where } = equation;
  const levels = Math.max(...[target, value, ...(where ? [where] : [])].map(levelsOf));
  if (levels > share * MAX_LEVELS) return `has more than ${share * MAX_LEVELS} levels of operations`;
  const text = printEquation(equation);
  if (text.length > share * MAX_CHARACTERS) return `is longer than ${share * MAX_CHARACTERS} characters`;
  let nesting = 0;
  for (const character of text) {
    if (character === "(" || character === "[") nesting++;
    else if (character === ")" || character === "]") nesting--;
    // A sign in front of the innermost value is one level more.
    if (nesting > share * MAX_NESTING - 2) return `nests deeper than ${share * MAX_NESTING} levels`;
  }
  return beside.map((other) => problemOfSize(other, share)).find((problem) => problem !== undefined);
}

/** Levels of a tree, counted without recursion; infinite for one of more nodes than a text has characters. */
function levelsOf(root: Expr): number {
  let most = 0;
  let nodes = 0;
  const left = [{ node: root, level: 1 }];
  for (let next = left.pop(); next !== undefined; next = left.pop()) {
    const { node, level } = next;
    if (++nodes > MAX_CHARACTERS) return Number.POSITIVE_INFINITY;
    most = Math.max(most, level);
    for (const child of childrenOf(node)) left.push({ node: child, level: level + 1 });
  }
  return most;
}

/** The place of a parsed node in its text; undefined for computed nodes. */
export function spanOf(node: Expr): { source: string; span: Span } | undefined {
  return spans.get(node);
}

/**
 * Reads `target op value` with an optional `where condition`; `op` is one of `=`, `+=`, `sat+=`, `max=`, `min=`.
 * @throws UsageError when the text is not an equation, with the place marked.
 */
export function parseEquation(text: string): Equation {
  const parser = new Parser(text, "equation");
  const equation = parser.equation();
  parser.end();
  return equation;
}

/**
 * Reads an epilogue: one equation, or several separated by commas that assign elements of one tensor, `z[i,j+8] = c[i,j], z[i,k] = d[i,k]`.
 * @throws UsageError, with the place marked, for anything else
 */
export function parseEpilogue(text: string): Equation {
  const parser = new Parser(text, "equation");
  const first = parser.equation();
  const beside: Equation[] = [];
  while (parser.accept(",")) beside.push(parser.equation());
  parser.end();
  return beside.length === 0 ? first : { ...first, beside };
}

/** Reads an expression; `subject` begins the message when it is malformed. @throws UsageError with the place marked. */
export function parseExpr(text: string, subject = "expression"): Expr {
  const parser = new Parser(text, subject);
  const e = parser.expression();
  parser.end();
  return e;
}

class Parser {
  private readonly tokens: Token[];
  private readonly text: string;
  private readonly subject: string;
  private at = 0;
  private nesting = 0;

  constructor(text: string, subject: string) {
    this.text = text;
    this.subject = subject;
    this.tokens = this.tokenise();
  }

  equation(): Equation {
    const target = this.access();
    const op = this.combineOp();
    const value = this.expression();
    return this.accept("where") ? { target, op, value, where: this.expression() } : { target, op, value };
  }

  private combineOp(): CombineOp {
    const token = this.next();
    const op = COMBINE_OPS.find((known) => known === token.text);
    if (op === undefined)
      this.fail(
        `expected one of ${COMBINE_OPS.join(" ")} after the target, got ${quote(token)}`,
        token.span,
        token.text === "[" ? FORM : undefined,
      );
    return op;
  }

  private access(): Access {
    const name = this.next();
    if (name.kind !== "name")
      this.fail(`must start with the tensor it assigns to, as in "c[m,n] += ...", got ${quote(name)}`, name.span);
    if (this.peek().text !== "[")
      this.fail(`expected "[" after the target "${name.text}"; a scalar is written "${name.text}[]"`, this.peek().span);
    return this.index(name);
  }

  expression(level = 0): Expr {
    const ops = BINARY_LEVELS[level];
    if (ops === undefined) return this.unary();
    let left = this.expression(level + 1);
    for (;;) {
      const op = this.peek().text;
      if (!ops.includes(op)) return left;
      this.next();
      const right = this.expression(level + 1);
      const span = { start: this.startOf(left), end: this.lastEnd() };
      if (COMPARISONS.includes(op)) {
        left = this.mark({ kind: "compare", op: op as CompareOp, left, right }, span);
        if (ops.includes(this.peek().text)) this.fail("comparisons do not chain; join them with and", this.peek().span);
      } else if (op === "and" || op === "or") left = this.mark({ kind: "logic", op, left, right }, span);
      else left = this.mark({ kind: "binary", op: op as BinaryOp, left, right }, span);
    }
  }

  accept(text: string): boolean {
    if (this.peek().text !== text || this.peek().kind === "end") return false;
    this.next();
    return true;
  }

  end(): void {
    const token = this.peek();
    if (token.kind !== "end") this.fail(`unexpected ${quote(token)}`, token.span);
  }

  private unary(): Expr {
    const { span } = this.peek();
    if (++this.nesting > MAX_NESTING) this.fail(`nests deeper than ${MAX_NESTING} levels`, span);
    const e = this.accept("-") ? this.negated(span.start) : this.atom();
    this.nesting--;
    return e;
  }

  private negated(start: number): Expr {
    const value = this.unary();
    return this.mark(value.kind === "number" ? { kind: "number", value: -value.value } : { kind: "negate", value }, {
      start,
      end: this.lastEnd(),
    });
  }

  private atom(): Expr {
    const token = this.next();
    if (token.kind === "end") this.fail("ends where a value was expected", token.span);
    if (token.kind === "number") {
      const value = Number(token.text);
      if (!Number.isFinite(value)) this.fail(`${token.text} is too large for a number`, token.span);
      return this.mark({ kind: "number", value }, token.span);
    }
    if (token.text === "(") {
      const e = this.expression();
      this.expect(")");
      return e;
    }
    if (token.kind !== "name") this.fail(`unexpected ${quote(token)}`, token.span);
    if (this.peek().text === "[") return this.index(token);
    if (this.peek().text === "(") return this.call(token);
    if (KEYWORDS.includes(token.text))
      this.fail(`"${token.text}" is a word of the notation and cannot stand here`, token.span);
    return this.mark(axis(token.text), token.span);
  }

  private index(name: Token): Access {
    const index = this.list("[", "]");
    return this.mark({ kind: "access", tensor: name.text, index }, { start: name.span.start, end: this.lastEnd() });
  }

  private call(name: Token): Expr {
    const args = this.list("(", ")");
    const span = { start: name.span.start, end: this.lastEnd() };
    const [first, second, third] = args;
    const arity = (expected: number): void => {
      if (args.length !== expected)
        this.fail(`${name.text} takes ${expected} argument${expected === 1 ? "" : "s"}, got ${args.length}`, span);
    };
    if (name.text === "select") {
      arity(3);
      if (first && second && third)
        return this.mark({ kind: "select", condition: first, whenTrue: second, whenFalse: third }, span);
    }
    const how = BORDERS.find((border) => border === name.text);
    if (how && first) {
      arity(1);
      return this.mark({ kind: "border", how, index: first, extent: undefined }, span);
    }
    if (Object.hasOwn(FUNCTIONS, name.text)) {
      const fn = name.text as FunctionName;
      // max(a, b, c) is max(max(a, b), c).
      if (first && second && args.length > 2 && (fn === "max" || fn === "min"))
        return args.slice(1).reduce((most, arg) => this.mark({ kind: "call", fn, args: [most, arg] }, span), first);
      arity(FUNCTIONS[fn]);
      return this.mark({ kind: "call", fn, args }, span);
    }
    const saturate = name.text.startsWith("sat_");
    const dtype = saturate ? name.text.slice(4) : name.text;
    if (isDType(dtype)) {
      arity(1);
      if (first) return this.mark({ kind: "cast", dtype, saturate, value: first }, span);
    }
    const known = [...Object.keys(FUNCTIONS), ...BORDERS, "select", ...DTYPES, ...DTYPES.map((d) => `sat_${d}`)];
    this.fail(`unknown function "${name.text}"`, name.span, suggestion(name.text, known));
  }

  private list(open: string, close: string): Expr[] {
    this.expect(open);
    const items: Expr[] = [];
    if (this.accept(close)) return items;
    do items.push(this.expression());
    while (this.accept(","));
    this.expect(close);
    return items;
  }

  private expect(text: string): void {
    const token = this.next();
    if (token.text !== text || token.kind === "end") this.fail(`expected "${text}", got ${quote(token)}`, token.span);
  }

  private peek(): Token {
    return this.tokens[this.at] ?? this.tokens.at(-1) ?? internal("a token list always holds its end");
  }

  private next(): Token {
    const token = this.peek();
    this.at++;
    return token;
  }

  private lastEnd(): number {
    return this.tokens[this.at - 1]?.span.end ?? 0;
  }

  private startOf(e: Expr): number {
    return spanOf(e)?.span.start ?? 0;
  }

  private mark<E extends Expr>(node: E, span: Span): E {
    const levels = 1 + Math.max(0, ...childrenOf(node).map((child) => spans.get(child)?.levels ?? 0));
    if (levels > MAX_LEVELS) this.fail(`has more than ${MAX_LEVELS} levels of operations`, span);
    spans.set(node, { source: this.text, span, levels });
    return node;
  }

  private tokenise(): Token[] {
    if (this.text.length > MAX_CHARACTERS)
      throw new UsageError(`${this.subject}: longer than ${MAX_CHARACTERS} characters`);
    const tokens: Token[] = [];
    TOKEN.lastIndex = 0;
    while (TOKEN.lastIndex < this.text.length) {
      const from = TOKEN.lastIndex;
      const match = TOKEN.exec(this.text);
      if (!match) {
        const rest = this.text.slice(from);
        if (rest.trim() === "") break;
        const start = from + (rest.length - rest.trimStart().length);
        const [character = ""] = this.text.slice(start);
        this.fail(`unexpected character "${character}"`, { start, end: start + character.length }, FORM);
      }
      const [whole, assign, name, digits, symbol] = match;
      const text = assign ?? name ?? digits ?? symbol ?? "";
      const span = { start: from + whole.length - text.length, end: from + whole.length };
      // Records are objects keyed by names, so a name that every JavaScript object has, such as `toString`, would look like an entry.
      if (name !== undefined && name in {}) this.fail(`"${name}" cannot be used as a name`, span);
      tokens.push({ text, kind: name !== undefined ? "name" : digits !== undefined ? "number" : "symbol", span });
    }
    tokens.push({ text: "end of text", kind: "end", span: { start: this.text.length, end: this.text.length + 1 } });
    return tokens;
  }

  private fail(message: string, span: Span, hint?: string): never {
    throw new UsageError(`${this.subject}: ${message}`, { source: this.text, span, hint });
  }
}

function quote(token: Token): string {
  return token.kind === "end" ? "the end" : `"${token.text}"`;
}
