/** @file How a convolution maps onto a tensor core, and why one match does not. */

import {
  drawRefusal,
  instantiate,
  intrinsicsNamed,
  mappings,
  operatorNamed,
  parseDataTypes,
  printMatching,
} from "automap";

const conv2d = instantiate(operatorNamed("conv2d"), {
  parameters: { c: 64, k: 64, h: 56, w: 56 },
  types: parseDataTypes("f16"),
});
const [wmma] = intrinsicsNamed("wmma.m16n16k16.f32.f16");
if (!wmma) throw new Error("the table of instructions has changed");

const { valid, refused } = mappings(conv2d, wmma);
console.log(`${valid.length} mappings, ${mappings(conv2d, wmma, { rule: "amos" }).valid.length} under AMOS's rule`);
for (const { id, matching, waste } of valid.slice(0, 3)) console.log(id, printMatching(matching), `waste ${waste}`);

const refusal = refused.find((r) => r.rule === "access-matrix");
if (refusal) console.log(drawRefusal(refusal, conv2d, wmma));
