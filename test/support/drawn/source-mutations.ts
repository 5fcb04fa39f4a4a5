/**
 * @file Small faults in TypeScript source, one a mutant, and a text in which many mutants wait for a switch.
 *
 *     mutantsOf("a.ts", "if (i < n) stop();")     i <= n, !(i < n), and nothing in place of the statements
 *     switched(text, [[7, mutant]])               if ((globalThis.mutant?.(7) ? (i <= n) : (i < n))) stop();
 *
 * The operators are those of the literature (Offutt et al., "An experimental determination of sufficient mutant
 * operators", 1996) as far as TypeScript has them. Left out is what no test could notice, or what no test should: a check of an impossible
 * state ("internal: ..."), and numbers other than 0, 1 and 2, most of which were measured or read in a manual.
 */

import ts from "typescript";

/** A fault: a range of a file's text and what stands there instead. */
export interface Mutant {
  readonly file: string;
  readonly start: number;
  readonly end: number;
  readonly line: number;
  readonly kind: string;
  /** A dropped statement has an empty text; every other mutant replaces an expression. */
  readonly text: string;
}

const SWAPS = new Map<ts.SyntaxKind, readonly [kind: string, operator: string]>([
  [ts.SyntaxKind.LessThanToken, ["boundary", "<="]],
  [ts.SyntaxKind.LessThanEqualsToken, ["boundary", "<"]],
  [ts.SyntaxKind.GreaterThanToken, ["boundary", ">="]],
  [ts.SyntaxKind.GreaterThanEqualsToken, ["boundary", ">"]],
  [ts.SyntaxKind.EqualsEqualsEqualsToken, ["equality", "!=="]],
  [ts.SyntaxKind.ExclamationEqualsEqualsToken, ["equality", "==="]],
  [ts.SyntaxKind.PlusToken, ["arithmetic", "-"]],
  [ts.SyntaxKind.MinusToken, ["arithmetic", "+"]],
  [ts.SyntaxKind.AsteriskToken, ["arithmetic", "/"]],
  [ts.SyntaxKind.SlashToken, ["arithmetic", "*"]],
  [ts.SyntaxKind.PercentToken, ["arithmetic", "*"]],
  [ts.SyntaxKind.AmpersandAmpersandToken, ["logic", "||"]],
  [ts.SyntaxKind.BarBarToken, ["logic", "&&"]],
]);
const EQUALITIES = new Set([ts.SyntaxKind.EqualsEqualsEqualsToken, ts.SyntaxKind.ExclamationEqualsEqualsToken]);
const METHODS = new Map([
  ["some", "every"],
  ["every", "some"],
]);
const ROUNDINGS = new Map([
  ["Math.min", "Math.max"],
  ["Math.max", "Math.min"],
  ["Math.floor", "Math.ceil"],
  ["Math.ceil", "Math.floor"],
]);

/** All mutants of a file, in the order of its text. */
export function mutantsOf(file: string, source: string): Mutant[] {
  const tree = ts.createSourceFile(file, source, ts.ScriptTarget.ES2023, true);
  const mutants: Mutant[] = [];
  const add = (node: ts.Node, kind: string, text: string): void => {
    const start = node.getStart(tree);
    const line = tree.getLineAndCharacterOfPosition(start).line + 1;
    mutants.push({ file, start, end: node.end, line, kind, text });
  };
  const visit = (node: ts.Node): void => {
    if (ts.isTypeNode(node) || ts.isImportDeclaration(node) || ts.isInterfaceDeclaration(node)) return;
    if (ts.isTypeAliasDeclaration(node) || isImpossible(node, tree)) return;
    if (isDroppable(node)) add(node, "dropped", "");
    else if (ts.isExpression(node)) mutateExpression(node, tree, add);
    ts.forEachChild(node, visit);
  };
  visit(tree);
  return mutants;
}

/** A check that ends with an internal error. */
function isImpossible(node: ts.Node, tree: ts.SourceFile): boolean {
  if (ts.isThrowStatement(node)) return node.getText(tree).includes("internal:");
  return ts.isIfStatement(node) && !node.elseStatement && isImpossible(onlyStatement(node.thenStatement), tree);
}

function onlyStatement(node: ts.Statement): ts.Statement {
  return (ts.isBlock(node) && node.statements.length === 1 && node.statements[0]) || node;
}

/** A call or an assignment by itself, an early end of a loop, or a condition for an early return or throw. */
function isDroppable(node: ts.Node): boolean {
  if (ts.isBreakStatement(node)) return !ts.isCaseOrDefaultClause(node.parent);
  if (ts.isContinueStatement(node)) return true;
  if (ts.isExpressionStatement(node)) return true;
  if (!ts.isIfStatement(node) || node.elseStatement) return false;
  const then = onlyStatement(node.thenStatement);
  return ts.isReturnStatement(then) || ts.isThrowStatement(then);
}

function mutateExpression(
  node: ts.Expression,
  tree: ts.SourceFile,
  add: (node: ts.Node, kind: string, text: string) => void,
): void {
  const textOf = (part: ts.Node): string => part.getText(tree);
  if (isCondition(node)) add(node, "negation", `!(${textOf(node)})`);
  if (ts.isBinaryExpression(node)) {
    const [kind, operator] = SWAPS.get(node.operatorToken.kind) ?? [];
    if (kind !== undefined) add(node, kind, `${textOf(node.left)} ${operator} ${textOf(node.right)}`);
  } else if (ts.isNumericLiteral(node) && ["0", "1", "2"].includes(node.text) && !ts.isPropertyName(node.parent))
    add(node, "constant", String(Number(node.text) + 1));
  else if (node.kind === ts.SyntaxKind.TrueKeyword) add(node, "constant", "false");
  else if (node.kind === ts.SyntaxKind.FalseKeyword) add(node, "constant", "true");
  else if (ts.isPropertyAccessExpression(node) && ROUNDINGS.has(textOf(node)))
    add(node, "function", ROUNDINGS.get(textOf(node)) ?? "");
  else if (ts.isCallExpression(node) && ts.isPropertyAccessExpression(node.expression) && !ts.isOptionalChain(node)) {
    const { expression, name } = node.expression;
    const other = METHODS.get(name.text);
    const given = node.arguments.map(textOf).join(", ");
    if (other !== undefined) add(node, "function", `${textOf(expression)}.${other}(${given})`);
    if (name.text === "filter") add(node, "function", textOf(expression));
  }
}

/** Conditions of `if` and `?:`. Of an equality, the other equality is the negation. */
function isCondition(node: ts.Expression): boolean {
  const { parent } = node;
  const isOne =
    (ts.isIfStatement(parent) && parent.expression === node) ||
    (ts.isConditionalExpression(parent) && parent.condition === node);
  return isOne && !(ts.isBinaryExpression(node) && EQUALITIES.has(node.operatorToken.kind));
}

/** The text with one mutant in it. */
export function mutated(source: string, { start, end, text }: Mutant): string {
  return `${source.slice(0, start)}${text === "" ? ";" : `(${text})`}${source.slice(end)}`;
}

/** The text with all given mutants of it, each of which takes effect where `globalThis.mutant` says yes to its number. */
export function switched(source: string, mutants: readonly (readonly [number, Mutant])[]): string {
  // Of nested mutants the inner ones come first, so that the outer ones find them in their text.
  const order = [...mutants].sort(([, a], [, b]) => a.end - a.start - (b.end - b.start));
  const edits: { readonly start: number; readonly end: number; readonly text: string }[] = [];
  for (const [number, { start, end, text }] of order) {
    const isInside = (edit: { readonly start: number; readonly end: number }): boolean =>
      edit.start >= start && edit.end <= end;
    const was = edited(source, start, end, edits.filter(isInside));
    edits.splice(0, edits.length, ...edits.filter((edit) => !isInside(edit)));
    const isOn = `globalThis.mutant?.(${number})`;
    edits.push({ start, end, text: text === "" ? `if (!${isOn}) { ${was} }` : `(${isOn} ? (${text}) : (${was}))` });
  }
  return edited(source, 0, source.length, edits);
}

function edited(
  source: string,
  start: number,
  end: number,
  edits: readonly { readonly start: number; readonly end: number; readonly text: string }[],
): string {
  let at = start;
  let result = "";
  for (const edit of [...edits].sort((a, b) => a.start - b.start)) {
    result += source.slice(at, edit.start) + edit.text;
    at = edit.end;
  }
  return result + source.slice(at, end);
}
