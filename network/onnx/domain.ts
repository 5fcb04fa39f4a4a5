/** @file The domains of operators: those of ONNX itself have none, others are a vendor's. */

const DOMAINS: ReadonlyMap<string, string> = new Map([["MatMulNBits", "com.microsoft"]]);

/** Names of ONNX's own domain. */
export const OWN_DOMAINS: readonly string[] = ["", "ai.onnx"];

/** Whether a file that names an operator and a domain means the operator of that name here. */
export const isInDomain = (op: string, domain: string): boolean =>
  (OWN_DOMAINS.includes(domain) ? "" : domain) === domainOf(op);

export const domainOf = (op: string): string => DOMAINS.get(op) ?? "";
