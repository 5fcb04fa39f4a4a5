/**
 * @file Which matches map and which are refused: by what rule, with what message, what would help, and an output element that would be wrong.
 * The cases of a group differ in what its title says; a golden file has the answer to each.
 *
 *     vitest run test/mapper/mapper-refusals.test.ts --update       after a change that is meant
 */

import { describe, expect, it } from "vitest";
import { UsageError } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import { printMatching } from "../../abstraction/mapping.ts";
import { type MappingOptions, mappings } from "../../mapper/match/enumerate.ts";
import { small } from "../support/random-computation.ts";
import { judge, named, printMappings, printRefusal } from "../support/refusals.ts";
import { stated } from "../support/subjects.ts";

const WMMA = "wmma.m16n16k16.f32.f16";
const CONV2D = "conv2d --n 2 --c 4 --h 5 --w 5 --k 4 --r 3 --s 1 --dtype f16";
const MATMUL = "c[m,n] += f32(a[m,k]) * f32(b[k,n]) --m 4 --n 4 --k 4 --dtype f16";

/** Instructions of these tests alone: with a window, a diagonal and a condition of its own; and such as clamp, assign or subtract. */
const OWN: Readonly<Record<string, Intrinsic>> = Object.fromEntries(
  [
    own("window", "c[k,p] += a[z,p+r] * b[k,z,r]", "v[2*k + p]", "v[3*z + d1]", "v[4*k + 2*z + r]"),
    own("diagonal", "c[k,p] += a[z,z] * b[k,p,r]", "v[2*k + p]", "v[2*z + d1]", "v[4*k + 2*p + r]"),
    own("triangle", "c[k,p] += a[z,p] * b[k,r] where r <= z", "v[2*k + p]", "v[2*z + p]", "v[2*k + r]"),
    small("clamped.u8", "c[i] sat+= a[i,k] over i 2, k 2", "a u8 r[2*i + k]", "c u8 r[i]"),
    small("assign", "c[i] = a[i,k] over i 2, k 2", "a f32 r[2*i + k]", "c f32 r[i]"),
    small(
      "differences",
      "c[i] sat+= u32(a[i,k]) - u32(b[i,k]) over i 2, k 2",
      "a u8 r[2*i + k]",
      "b u8 r[2*i + k]",
      "c u32 r[i]",
    ),
  ].map((row) => [row.name, row]),
);

function own(name: string, compute: string, c: string, a: string, b: string): Intrinsic {
  return small(name, `${compute} over k 2, p 2, z 2, r 2`, `c f32 ${c}`, `a f32 ${a}`, `b f32 ${b}`);
}

const rowNamed = (name: string): Intrinsic => OWN[name] ?? named(name);

type Case = readonly [line: string, on: string, options?: MappingOptions];

const GROUPS: Readonly<Record<string, readonly Case[]>> = {
  "matches of conv2d with a matrix product, under either rule": [
    [CONV2D, WMMA, { binding: "fixed" }],
    [CONV2D, WMMA, { rule: "amos", strict: true }],
  ],
  "a diagonal, one beside another index, and a flipped index": (["amos", "gather"] as const).flatMap((rule): Case[] => [
    ["c[m,n] += x[k,k] * y[k,n,m] --m 4 --n 4 --k 4", "matmul.f32", { rule }],
    ["c[m,n] += x[m,k,k+1] * y[k,n] --m 4 --n 4 --k 4", "matmul.f32", { rule }],
    ["c[m,n] += x[m,k*-1+3] * y[k,n] --m 4 --n 4 --k 4", "matmul.f32", { rule }],
  ]),
  "data of other types than the instruction takes, and a literal that its type does not hold": [
    ["conv2d", "avx512.vpdpbusd"],
    ["c[m,n] += s32(a[m,k]) * s32(b[k,n]) --m 4 --n 4 --k 4 --dtype s8", "avx512.vpdpbusd"],
    ["out[i] += s32(x[i,k]) * s32(200) --i 2 --k 4 --dtype s8", "holes.s8"],
    ["out[i] += s32(x[i,k]) * s32(100) --i 2 --k 4 --dtype s8", "holes.s8"],
  ],
  "an instruction that moves data between lanes, or has a window, a diagonal or a condition of its own": [
    [CONV2D, "shuffle"],
    ...["window", "diagonal", "triangle"].map(
      (on): Case => ["c[k,p] += a[z,p+r] * b[k,z,r] --k 2 --p 2 --z 2 --r 2 --shape a=2x3", on],
    ),
  ],
  "a recurrence, a quotient, a maximum": [
    ["y[i] = y[i-1] + x[i] --i 8", "matmul.f32"],
    ["c[m] += a[m] / b[m] --m 4", "matmul.f32"],
    ["out[p] max= x[p+r] --p 4 --r 3 --shape x=6", "matmul.f32"],
  ],
  "sums that may leave the range of an instruction which clamps, and such as just fit": [
    ["c[i] += s16(a[i,k]) * s16(b[i,k]) --i 4 --k 2 --dtype a=u8,b=s8,c=s16", "saturating.s16"],
    ["c[i] += s16(a[i,k]) * s16(b[i,k]) --i 4 --k 1 --dtype a=u8,b=s8,c=s16", "saturating.s16"],
    // 255 is the largest u8.
    ["y[i] += x[i,k] --i 2 --k 1 --dtype u8 --sum u8", "clamped.u8"],
    ["y[i] += x[i,k] --i 2 --k 2 --dtype u8 --sum u8", "clamped.u8"],
    ...[70_000, 64].flatMap((k) =>
      ["avx512.vpdpbusd", "avx512.vpdpbusds"].map(
        (on): Case => [`c[n] sat+= s32(a[k]) * s32(b[k,n]) --n 4 --k ${k} --dtype a=u8,b=s8,c=s32`, on],
      ),
    ),
    ["y[i] += u32(x[i,k]) - u32(z[i,k]) --i 2 --k 2 --dtype u8", "differences"],
    ["c[i+j] sat+= s16(a[i,j]) * s16(b[i,j]) --i 2 --j 2 --dtype a=u8,b=s8,c=s16", "saturating.s16"],
    ["c[i*2+j] sat+= s16(a[i,j]) * s16(b[i,j]) --i 2 --j 2 --dtype a=u8,b=s8,c=s16", "saturating.s16"],
  ],
  "padding that no value of the operand's type leaves alone, or that one operand leaves in the sum": [
    ["out[i] max= s32(x[i,k]) --i 2 --k 1 --dtype s8", "widemax.s8"],
    ["out[p] max= s32(x[p+r-1]) --p 2 --r 2 --dtype s8 --shape x=2", "widemax.s8"],
    // One element beyond the end is outside, and the last is not.
    ["out[p] max= s32(x[p+r]) --p 2 --r 2 --dtype s8 --shape x=2", "widemax.s8"],
    ["out[p] max= s32(x[p+r]) --p 2 --r 2 --dtype s8 --shape x=3", "widemax.s8"],
    ["out[i] += x[i,k] + y[i] --i 2 --k 1 --dtype s32", "addup.s32"],
    ["out[i] += x[i,k] + y[i] --i 2 --k 2 --dtype s32", "addup.s32"],
    ["out[i] += x[i,k] + y[i] where k < 1 --i 2 --k 2 --dtype s32", "addup.s32"],
  ],
  "the last of several values assigned to one element": [["y[i] = x[i,k] --i 2 --k 3", "assign"]],
  // Where most points read outside; of a computed operand; where y is first and last, so that only c = 1 can show that x is not filled there.
  "a witness of what would be wrong": [
    ["t2d --n 2 --pad 0 --dtype f16", WMMA],
    ["var --dtype f16", WMMA, { binding: "fixed" }],
    ["out[n] max= x[n] + y[c] --n 2 --c 2", "maxplus.f32", { binding: "fixed" }],
  ],
  "as many axes as possible are fed where there are fewer loops than axes, and nothing maps where no loop can feed one":
    [
      ["c[k,p] += a[p] * b[k] --k 3 --p 4", "virtual.conv", { binding: "fixed" }],
      ["c[i] += a[i] * b[i] --i 4", "matmul.f32"],
    ],
  "operators on instructions of each form": (
    [
      ["matmul --m 5 --n 7 --k 9 --dtype u8s8", "avx512.vpdpbusd amx.tdpbusd packed.u8s8 dot.u8s8 arm.usmmla"],
      [
        "conv1d --n 2 --c 3 --k 4 --l 9 --r 3 --stride 2",
        "matmul.f32 broadcast.f32 virtual.conv virtual.axpy avx2.fma.f32",
      ],
      [
        "conv2d --c 3 --k 4 --h 5 --w 6 --r 3 --s 2 --dtype bf16",
        "avx512.vdpbf16ps amx.tdpbf16ps mma.m16n8k16.f32.bf16",
      ],
      ["conv3d --c 2 --k 2 --d 3 --h 3 --w 3", "avx512.fma.f32.broadcast virtual.gemv"],
      ["depthwise-conv2d --c 6 --h 4 --w 4 --m 1 --r 2 --s 2", "matmul.f32 avx512.fma.f32 lanes.s32"],
      ["grouped-conv2d --c 4 --k 4 --h 4 --w 4 --r 2 --s 2 --groups 2", "avx512.fma.f32.groups4 matmul.f32"],
      ["capsule-conv2d --c 2 --k 2 --h 3 --w 3 --r 2 --s 2 --dtype f16", "secret.f16 matvec.f16"],
      ["interaction --b 2 --v 4 --k 8 --dtype bf16", "avx512.vdpbf16ps mma.m16n8k16.f32.bf16"],
      ["mttkrp --i 3 --j 4 --k 2 --l 2", "matmul.f32 thread.fma.f32"],
      ["variance --n 2 --c 3 --h 4 --w 4", "matmul.f32 virtual.gemv"],
      ["scan --m 3 --n 8", "matmul.f32 broadcast.f32"],
      ["c[i,j] += a[i,k] * b[k,j] where k <= i and j < 3 --i 4 --j 5 --k 6", "matmul.f32 avx512.fma.f32.broadcast"],
    ] as const
  ).flatMap(([line, on]) => on.split(" ").map((name): Case => [line, name])),
};
/** Mappings told of each case, and refusals of each rule. */
const TOLD = 5;

it("mappings and refusals are those of the golden file", async () => {
  const told = Object.entries(GROUPS).flatMap(([title, cases]) => [
    title,
    ...cases.flatMap(([line, on, options = {}]) => [
      `  ${line} on ${on} ${JSON.stringify(options)}`,
      ...printMappings(stated(line), rowNamed(on), options, TOLD).map((text) => `    ${text}`),
    ]),
  ]);
  await expect(`${told.join("\n")}\n`).toMatchFileSnapshot("../golden/mappings.txt");
});

/** `m <- n,p; n <- -` */
const parsed = (matching: string): Record<string, string[]> =>
  Object.fromEntries(
    matching.split("; ").map((part) => {
      const [axis = "", loops = ""] = part.split(" <- ");
      return [axis, loops === "-" ? [] : loops.split(",")];
    }),
  );

const JUDGED: readonly (readonly [what: string, line: string, matching: string, on?: string, strict?: boolean])[] = [
  ["a loop that the other operand depends on", CONV2D, "m <- n,k; n <- -; k <- c"],
  ["a loop that feeds two axes", MATMUL, "m <- m,n; n <- n; k <- k"],
  ["a summed loop that feeds a kept axis", MATMUL, "m <- m; n <- n,k; k <- -"],
  ["an axis left empty that a loop could feed", MATMUL, "m <- m; n <- -; k <- k"],
  ["loops that do not fill an axis, under strict", MATMUL, "m <- m; n <- n; k <- k", WMMA, true],
  // Kept loops alone leave out whole elements, and two loops of one operand what it is packed from.
  ...["k <= m + n", "m <= n", "k <= m", "k <= n", "m <= n and k <= m and k <= n"].map(
    (where) => ["a condition", MATMUL.replace(" --", ` where ${where} --`), "m <- m; n <- n; k <- k"] as const,
  ),
  // The window of 4 holds all of x at both steps of p: reading p = 0 for p = 1 changes terms of the sum and not the sum.
  [
    "errors that cancel in the sum",
    "out[p] += s32(x[p+r-2]) * s32(3) --p 2 --r 4 --dtype s8 --shape x=2",
    "m <- -; n <- p; k <- -",
    "holes.s8",
  ],
  [
    "a wrong loop beside one of one step",
    "c[m,g,n] += a[m,k] * b[k,n,g] --m 4 --g 1 --n 4 --k 4",
    "m <- m,g,n; n <- -; k <- k",
    "matmul.f32",
  ],
  ["loops in the order given, the last one fastest", CONV2D, "k <- r,c; m <- q,n,p; n <- k"],
];

describe("one matching", () => {
  it("has the verdict of the golden file", async () => {
    const told = JUDGED.flatMap(([what, line, matching, on = WMMA, strict = false]) => {
      const verdict = judge(stated(line), rowNamed(on), parsed(matching), strict);
      const said = verdict.ok ? [`maps: ${printMatching(verdict.mapping.matching)}`] : printRefusal(verdict.refusal);
      return [`${what}: ${line} on ${on}, ${matching}`, ...said.map((text) => `    ${text}`)];
    });
    await expect(`${told.join("\n")}\n`).toMatchFileSnapshot("../golden/judged-matchings.txt");
  });

  it("that names an unknown loop or axis is the caller's mistake", () => {
    expect(() => judge(stated(MATMUL), named(WMMA), { m: ["mm"] })).toThrow(UsageError);
    expect(() => judge(stated(MATMUL), named(WMMA), { i: ["m"] })).toThrow('has no axis "i"');
  });
});

it("a refusal has a witness wherever most points of the domain read outside", () => {
  const { refused } = mappings(stated("t2d --n 2 --pad 0 --dtype f16"), named(WMMA));
  expect(refused.filter((r) => r.rule === "idle-loop")).toEqual([]);
  expect(refused.filter((r) => r.rule === "access-matrix" && !r.witness)).toEqual([]);
});
