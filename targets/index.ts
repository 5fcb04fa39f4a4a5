/**
 * @file The table of machines, one file per family, with every fact about its machines.
 *
 *     nativeTarget().isa      ["avx2", "fma", "avx512f", "avx512_vnni", ...]
 *
 * What a change touches:
 *
 *     an instruction of a known family    its file in intrinsics/
 *     a feature or an extension           the family's file here: detection by Linux, CPUID or compute capability, and compiler flags
 *     a machine of a known family         the family's file here, as a Target
 *     a family                            a file here and one in intrinsics/, its header in runtime/emulation/, its printer in codegen/
 *                                         (`kernels: true` once there is one), and its name in FAMILIES (features.ts)
 */

export { ARM_TARGETS, armTargetNamed, isElsewhere } from "./arm-cpus.ts";
export {
  architectureOf,
  compilerFeatures,
  compilerFlags,
  extensionFlags,
  FAMILIES,
  familyOf,
  hasFeature,
  isWritten,
  runsOn,
  subgroupOf,
  wordsOf,
  writesVectorRows,
} from "./features.ts";
export { capabilityOf, gpuTargetNamed, gpuTargetOf, isGpu } from "./gpu.ts";
export { ATS, oclocDevice, THREAD_REGISTERS } from "./intel-gpus.ts";
export { LANE_TARGETS, laneTarget } from "./lanes.ts";
export {
  type MachineRecord,
  machineFrom,
  nativeTarget,
  parseCpuInfo,
  recordOf,
  targetOf,
  targetOfCpuInfo,
} from "./native.ts";
export { NVIDIA_TARGETS, nvidiaTarget } from "./nvidia.ts";
export { OPENCL_ISA, openClFeatures } from "./opencl.ts";
export { PORTABLE_ISA } from "./portable.ts";
export { isPredictedOnly, PREDICTED_GPUS, predictedGpuNamed } from "./predicted.ts";
export {
  clearRegister,
  declareRegister,
  isNumbered,
  preludeOf,
  registerClass,
  registersTaken,
  widestVector,
} from "./registers.ts";
