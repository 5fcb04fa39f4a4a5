/**
 * @file The table of machines.
 *
 *     nativeTarget().isa      ["avx2", "fma", "avx512f", "avx512_vnni", ...]
 */

export {
  compilerFeatures,
  compilerFlags,
  FAMILIES,
  familyOf,
  hasFeature,
  isWritten,
  writesVectorRows,
} from "./features.ts";
export { LANE_TARGETS, laneTarget } from "./lanes.ts";
export { type MachineRecord, machineFrom, nativeTarget, recordOf, targetOf } from "./native.ts";
export { PORTABLE_ISA } from "./portable.ts";
export { isNumbered, registerClass, widestVector } from "./registers.ts";
