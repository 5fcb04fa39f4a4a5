/** @file Instructions that the CPU or qemu has, by the emulators, and loads that widen what they read, both ways. */

import { expect, test } from "vitest";
import { defineIntrinsic, type Intrinsic } from "../../abstraction/intrinsic.ts";
import { INTRINSICS } from "../../intrinsics/index.ts";
import { checkIntrinsics } from "../../runtime/conformance.ts";
import { nativeTarget, PORTABLE_ISA } from "../../targets/index.ts";
import { YMM, ZMM } from "../../targets/x86.ts";

const { isa } = nativeTarget();

test("the emulators agree with the equations where the CPU or qemu has the instructions", async () => {
  const rows = INTRINSICS.filter((row) => row.language === "c++" && row.isa !== PORTABLE_ISA);
  for (const { intrinsic, ...result } of await checkIntrinsics(rows, { seed: 7, isa, emulate: true })) {
    if (result.status !== "skipped")
      expect({ intrinsic, ...result }).toMatchObject({ intrinsic, status: "ok", how: "emulation" });
  }
});

/** Products whose second factors are sixteen bytes in memory, read by the load that widens them. */
const WIDENING: readonly Intrinsic[] = [ZMM, YMM].flatMap((registers) =>
  (["s8", "u8"] as const).map((stored): Intrinsic => {
    const bits = 8 * registers.bytes;
    const lanes = registers.bytes / 4;
    const steps = Array.from({ length: 16 / lanes }, (_, k) => {
      const wide = registers.widened.f32[stored].replace("{ptr}", `(char*)&{b} + ${k * lanes}`);
      return `{c} = _mm${bits}_fmadd_ps({a}, ${wide}, {c});`;
    });
    const one = { dtype: "f32", load: `{reg} = _mm${bits}_loadu_ps((const float*)({ptr}));` } as const;
    return defineIntrinsic<string>({
      name: `${registers.name} of f32 from ${stored}`,
      family: "fma",
      isa: registers.name === "zmm" ? "avx512f" : "fma",
      language: "c++",
      summary: "A product of f32 by widened bytes.",
      compute: "c[i] += a[i] * f32(b[k,i])",
      extents: { i: lanes, k: steps.length },
      operands: {
        a: { ...one, storage: `${registers.name}[i]` },
        b: { dtype: stored, storage: `xmm[${lanes}*k + i]` },
        c: { ...one, storage: `${registers.name}[i]`, store: `_mm${bits}_storeu_ps((float*)({ptr}), {reg});` },
      },
      emit: steps.join(" "),
      source: registers.source,
    });
  }),
);

/** The same of 32 numbers of half a byte. */
const HALF_BYTES: readonly Intrinsic[] = [ZMM, YMM].map((registers): Intrinsic => {
  const bits = 8 * registers.bytes;
  const lanes = registers.bytes / 4;
  const half = registers.halfBytes.f32;
  const steps = Array.from({ length: 32 / lanes }, (_, k) => {
    const table = "table" in half ? half.table : "";
    const numbers = half.loaded.replace("{ptr}", `(char*)&{b} + ${(k * lanes) / 2}`).replace("{table}", table);
    return `{c} = _mm${bits}_fmadd_ps({a}, ${numbers}, {c});`;
  });
  const [isLow, byte] = lanes === 16 ? ["i/2%2 == 0", "4*(i%2) + i/4"] : ["i%2 == 0", "i/2"];
  const number = `f32(select(${isLow}, b[k,${byte}] % 16, b[k,${byte}] / 16))`;
  const one = { dtype: "f32", load: `{reg} = _mm${bits}_loadu_ps((const float*)({ptr}));` } as const;
  const lane = { ...one, storage: `${registers.name}[i]` };
  return defineIntrinsic<string>({
    name: `${registers.name} of f32 from half bytes`,
    family: "fma",
    isa: registers.name === "zmm" ? "avx512f" : "fma",
    language: "c++",
    summary: "A product of f32 by numbers of half a byte.",
    compute: `c[i] += a[i] * ${number}`,
    extents: { i: lanes, k: steps.length },
    operands: {
      a: lane,
      b: { dtype: "u8", storage: `xmm[${lanes / 2}*k + byte]`, dims: ["k", "byte"] },
      c: { ...lane, store: `_mm${bits}_storeu_ps((float*)({ptr}), {reg});` },
    },
    emit: steps.join(" "),
    source: registers.source,
  });
});

test("loads that widen bytes and half bytes give their values, on this CPU and by the emulators", async () => {
  for (const emulate of [false, true])
    for (const { intrinsic, status, detail } of await checkIntrinsics([...WIDENING, ...HALF_BYTES], {
      seed: 5,
      isa,
      emulate,
    }))
      expect({ intrinsic, status, detail }).toEqual({ intrinsic, status: "ok", detail: undefined });
});
