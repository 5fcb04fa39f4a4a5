/** @file The built-in networks, by name. */

import { bertBase } from "./bert.ts";
import { miLstm } from "./milstm.ts";
import { mobilenetV1 } from "./mobilenet.ts";
import { type BuildModel, quantisedModels } from "./quantised.ts";
import { resnet18, resnet50 } from "./resnet.ts";
import { shufflenet } from "./shufflenet.ts";

const PLAIN: Readonly<Record<string, BuildModel>> = {
  resnet18,
  resnet50,
  "mobilenet-v1": mobilenetV1,
  shufflenet,
  "bert-base": bertBase,
  "mi-lstm": miLstm,
};

export const MODELS: Readonly<Record<string, BuildModel>> = { ...PLAIN, ...quantisedModels(PLAIN) };
