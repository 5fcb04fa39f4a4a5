/**
 * @file Accelerators that exist only on paper: the AXPY, GEMV and CONV units for which AMOS counts mappings, and the 2x2x2 unit of its worked example.
 *
 *     virtual.axpy      c[i] += a[r] * b[i,r]            r has one step: a scalar times a vector
 *     virtual.conv      c[k,p,q] += a[c,p,q] * b[k,c]    a 1x1 convolution
 *
 * Only the interpreter runs them; storage is row-major. AMOS declares them in f16; here they are f32, so that plain f32 operators map.
 */

import { type Intrinsic, type OperandSpec, tableRow } from "../abstraction/intrinsic.ts";

const paper = { language: "none", isa: "virtual" } as const;
const unit = (place: string): OperandSpec => ({ dtype: "f32", storage: `unit[${place}]` });

export const VIRTUAL: readonly Intrinsic[] = [
  tableRow({
    ...paper,
    name: "virtual.axpy",
    family: "axpy",
    summary: "A scalar times a vector of four, added to a vector.",
    compute: "c[i] += a[r] * b[i,r]",
    extents: { i: 4, r: 1 },
    operands: { a: unit("r"), b: unit("i + r"), c: unit("i") },
    emit: "axpy({c}, {a}, {b});",
    source: "AMOS (ISCA 2022), section 7.5 and its code, tenet/axpy.py: vector length 4",
  }),
  tableRow({
    ...paper,
    name: "virtual.gemv",
    family: "gemv",
    summary: "A 16x16 matrix times a vector, added to a vector.",
    compute: "c[i] += a[i,k] * b[k]",
    extents: { i: 16, k: 16 },
    operands: { a: unit("16*i + k"), b: unit("k"), c: unit("i") },
    emit: "gemv({c}, {a}, {b});",
    source:
      "AMOS (ISCA 2022), section 7.5 counts mappings onto a GEMV unit but released none: the form and the sizes are ours",
  }),
  tableRow({
    ...paper,
    name: "virtual.conv",
    family: "conv",
    summary: "A 1x1 convolution of 16 channels into 16 on a 4x4 image.",
    compute: "c[k,p,q] += a[c,p,q] * b[k,c]",
    extents: { k: 16, p: 4, q: 4, c: 16 },
    operands: { a: unit("16*c + 4*p + q"), b: unit("16*k + c"), c: unit("16*k + 4*p + q") },
    emit: "conv({c}, {a}, {b});",
    source: "AMOS (ISCA 2022), section 7.5 and its code, tenet/conv2d.py: sizes 16x4x4x16x1x1",
  }),
  tableRow({
    ...paper,
    name: "toy.2x2x2",
    family: "toy",
    summary: "A 2x2x2 matrix product, small enough to follow by hand.",
    compute: "c[m,n] += a[m,k] * b[k,n]",
    extents: { m: 2, n: 2, k: 2 },
    operands: { a: unit("2*m + k"), b: unit("2*k + n"), c: unit("2*m + n") },
    emit: "toy_2x2x2({c}, {a}, {b});",
    source: "AMOS (ISCA 2022), figure 3: the worked example of virtual and physical mapping",
  }),
];
