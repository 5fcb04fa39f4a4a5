/**
 * @file Mali's integer dot products in OpenCL C, one work-item at a time. Rows of all lanes of a warp are in opencl-lanes.ts.
 *
 *     mali.arm_dot      c[] += s32(a[k]) * s32(b[k])      {c} += arm_dot({a}, {b});
 */

import { type Intrinsic, tableRow } from "../abstraction/intrinsic.ts";

const CHAR4 = { dtype: "s8", storage: "reg[k]", load: "{reg} = vload4(0, ({space} const char*)({ptr}));" } as const;
const UCHAR4 = { dtype: "u8", storage: "reg[k]", load: "{reg} = vload4(0, ({space} const uchar*)({ptr}));" } as const;
const INT = {
  dtype: "s32",
  storage: "reg[0]",
  load: "{reg} = *({space} const int*)({ptr});",
  store: "*({space} int*)({ptr}) = {reg};",
} as const;
const UINT = {
  dtype: "u32",
  storage: "reg[0]",
  load: "{reg} = *({space} const uint*)({ptr});",
  store: "*({space} uint*)({ptr}) = {reg};",
} as const;

const SIGNED = { a: CHAR4, b: CHAR4, c: INT } as const;

/** What all of them have in common. */
const BYTES = { family: "dot", language: "opencl", extents: { k: 4 } } as const;

export const MALI: readonly Intrinsic[] = [
  tableRow({
    ...BYTES,
    name: "mali.arm_dot",
    isa: "cl_arm_integer_dot_product_int8",
    summary: "A dot product of four s8, added by a second instruction.",
    compute: "c[] += s32(a[k]) * s32(b[k])",
    operands: SIGNED,
    emit: "{c} = as_int(as_uint({c}) + as_uint(arm_dot({a}, {b})));",
    source: "OpenCL extension cl_arm_integer_dot_product_int8, int arm_dot(char4, char4)",
  }),
  tableRow({
    ...BYTES,
    name: "mali.arm_dot.u8",
    isa: "cl_arm_integer_dot_product_int8",
    summary: "A dot product of four u8, added by a second instruction.",
    compute: "c[] += u32(a[k]) * u32(b[k])",
    operands: { a: UCHAR4, b: UCHAR4, c: UINT },
    emit: "{c} += arm_dot({a}, {b});",
    source: "OpenCL extension cl_arm_integer_dot_product_int8, uint arm_dot(uchar4, uchar4)",
  }),
  tableRow({
    ...BYTES,
    name: "mali.arm_dot_acc",
    isa: "cl_arm_integer_dot_product_accumulate_int8",
    summary: "A dot product of four s8 and a sum in one instruction.",
    compute: "c[] += s32(a[k]) * s32(b[k])",
    operands: SIGNED,
    emit: "{c} = arm_dot_acc({a}, {b}, {c});",
    source: "OpenCL extension cl_arm_integer_dot_product_accumulate_int8, int arm_dot_acc(char4, char4, int)",
  }),
  tableRow({
    ...BYTES,
    name: "mali.arm_dot_acc_sat",
    isa: "cl_arm_integer_dot_product_accumulate_saturate_int8",
    summary: "A dot product of four s8 and a saturating sum in one instruction.",
    compute: "c[] sat+= s32(a[k]) * s32(b[k])",
    operands: SIGNED,
    emit: "{c} = arm_dot_acc_sat({a}, {b}, {c});",
    source:
      "OpenCL extension cl_arm_integer_dot_product_accumulate_saturate_int8, int arm_dot_acc_sat(char4, char4, int)",
  }),
];
