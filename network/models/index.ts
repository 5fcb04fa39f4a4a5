/** @file Networks that are built, by name. */

import type { Graph } from "../graph.ts";
import { bertBase } from "./bert.ts";
import { miLstm } from "./milstm.ts";
import { mobilenetV1 } from "./mobilenet.ts";
import { quantisedModels } from "./quantised.ts";
import { resnet18, resnet50 } from "./resnet.ts";
import { shufflenet } from "./shufflenet.ts";

const PLAIN: Readonly<Record<string, () => Graph>> = {
  resnet18,
  resnet50,
  "mobilenet-v1": mobilenetV1,
  shufflenet,
  "bert-base": bertBase,
  "mi-lstm": miLstm,
};

export const MODELS: Readonly<Record<string, () => Graph>> = { ...PLAIN, ...quantisedModels(PLAIN) };
