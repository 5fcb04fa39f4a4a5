/**
 * @file The domains of operators: those of ONNX itself have none, others are a vendor's.
 *
 *     operatorIn("RotaryEmbedding", "com.microsoft")      "com.microsoft.RotaryEmbedding", beside ONNX's own RotaryEmbedding
 */

const VENDORS: ReadonlyMap<string, string> = new Map(
  ["GroupQueryAttention", "MatMulNBits", "SkipSimplifiedLayerNormalization"].map(
    (op) => [op, "com.microsoft"] as const,
  ),
);

/** Operators of a vendor whose names ONNX itself gives to others. */
const LONG_NAMES: ReadonlySet<string> = new Set(["com.microsoft.RotaryEmbedding"]);

/** Names of ONNX's own domain. */
export const OWN_DOMAINS: readonly string[] = ["", "ai.onnx"];

/** What an operator of a file is called here; undefined when that of its domain is not supported. */
export function operatorIn(op: string, domain: string): string | undefined {
  const own = OWN_DOMAINS.includes(domain) ? "" : domain;
  if (own === domainOf(op)) return op;
  const long = `${own}.${op}`;
  return LONG_NAMES.has(long) ? long : undefined;
}

export const domainOf = (op: string): string => VENDORS.get(op) ?? op.slice(0, Math.max(0, op.lastIndexOf(".")));
