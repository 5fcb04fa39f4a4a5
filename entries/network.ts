/**
 * @file The entry automap/network: whole networks, from a model to a library that this process calls.
 *
 *     import { emitNetwork, loadNetwork, openGraph, readOnnx, tuneNetwork } from "automap/network";
 *
 *     const opened = openGraph(readOnnx("resnet18.onnx"), { dims: { batch: 1 } });
 *     await tuneNetwork(opened.program, { seconds: 120 });
 *     await emitNetwork(opened, { to: "resnet18", verify: true });
 *     const { fc } = (await loadNetwork("resnet18")).run({ image });
 *
 * @module automap/network
 */

export type { Constant, Graph } from "../network/graph.ts";
export type { LowerOptions } from "../network/lower.ts";
export type { Network } from "../network/network.ts";
export { readOnnx } from "../network/onnx/read.ts";
export type { Task } from "../network/tasks.ts";
export type { BindNetworkOptions, BoundNetwork, NetworkArray, NetworkTensor } from "../package/network/index.ts";
export { gpuForNetworks } from "../session/network/choices.ts";
export { type EmitNetworkOptions, type EmittedNetwork, emitNetwork } from "../session/network/emit-network.ts";
export { type LoadNetworkOptions, loadNetwork } from "../session/network/load-network.ts";
export { inBrainFloatsOnCpu, inHalfOnGpu, type OpenNetwork, openGraph } from "../session/network/network.ts";
export type { NetworkProof } from "../session/network/prove-network.ts";
export {
  type Share,
  type TaskPlace,
  type TunedTask,
  type TuneNetworkOptions,
  tuneNetwork,
} from "../session/network/tune-network.ts";
