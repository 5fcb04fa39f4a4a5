/**
 * @file The table of machines.
 *
 *     nativeTarget().isa      ["avx2", "fma", "avx512f", "avx512_vnni", ...]
 */

export { nativeTarget } from "./native.ts";
