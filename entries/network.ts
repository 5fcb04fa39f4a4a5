/**
 * @file The entry automap/network: libraries of whole networks, called from this process.
 *
 *     import { loadNetwork } from "automap/network";
 *
 * @module automap/network
 */

export type { BindNetworkOptions, BoundNetwork, NetworkArray, NetworkTensor } from "../package/network/index.ts";
export { type LoadNetworkOptions, loadNetwork } from "../session/network/load-network.ts";
