/** @file The row of the table that stands for plain arithmetic of a GPU thread, if nothing is mapped. */

import { defineIntrinsic } from "../abstraction/intrinsic.ts";

/** Like plain loops it is no instruction of the table, so searches of mappings are never offered it. */
export const THREAD = defineIntrinsic({
  name: "thread",
  family: "thread",
  isa: "sm_61",
  language: "cuda",
  scope: "thread",
  summary: "One element of anything that an equation says.",
  compute: "c[] = a[]",
  extents: {},
  operands: {
    a: { dtype: "f32", storage: "thread[0]", load: "{reg} = *{ptr};" },
    c: { dtype: "f32", storage: "thread[0]", load: "{reg} = *{ptr};", store: "*{ptr} = {reg};" },
  },
  emit: "{c} = {a};",
  source: "CUDA C++ Programming Guide",
});
