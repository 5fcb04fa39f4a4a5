/** @file Networks that are built, by name. */

import type { Graph } from "../graph.ts";
import { mobilenetV1 } from "./mobilenet.ts";
import { type ModelOptions, resnet18 } from "./resnet18.ts";

export const MODELS: Readonly<Record<string, (options?: ModelOptions) => Graph>> = {
  resnet18,
  "mobilenet-v1": mobilenetV1,
};
