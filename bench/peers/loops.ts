/**
 * @file Peers of a sum of neighbours as kernels of the same harness: plain compiled loops, and OpenCV's filter2D.
 *
 *     await loopsKernel(computation, "window", options)      for i, for j, for the window: sum    g++ -O3 -march=native
 *     await loopsKernel(computation, "rows", options)        for i, for the window, for j: out += w * in
 *     await filter2dKernel(computation, options)             cv::filter2D, one thread
 *
 * A short kernel opens each as a library that was compiled with its own flags, so none of ours reach the peer. The
 * loops are a careful programmer's: constant extents, restrict pointers, the border separate from the interior.
 */

import { readFileSync } from "node:fs";
import { type Computation, elementCount, inputsOf, outputOf } from "../../abstraction/computation.ts";
import { printExpr } from "../../abstraction/expression.ts";
import { C_TYPES, type Kernel } from "../../abstraction/kernel.ts";
import { code, commentText, spell, stringLiteral, trustedCode } from "../../abstraction/source-text.ts";
import { shiftAt, type Tap, type TapSum, tapsOf } from "../../mapper/space-time/taps.ts";
import { type CompileOptions, compileSource } from "../../runtime/compiler.ts";

export type Peer =
  | { readonly status: "ready"; readonly kernel: Kernel }
  | { readonly status: "refused"; readonly reason: string };

/** The source in a file beside this one, with its places filled in, one after another. */
export function filled(file: string, places: Readonly<Record<string, string | number | undefined>>): string {
  return Object.entries(places).reduce(
    (source, [place, text]) => source.replaceAll(place, String(text)),
    readFileSync(new URL(file, import.meta.url), "utf8"),
  );
}

/** Flags of the loops with which the goal of lane kernels is stated. */
export const LOOP_FLAGS: readonly string[] = ["-O3", "-march=native", "-std=c++17", "-shared", "-fPIC"];

type Options = Omit<CompileOptions, "flags">;

/**
 * The loops with the window innermost, or with the window outside each row. A compiler may vectorise only one of these.
 * @throws Error when the computation has no taps
 */
export function loopsKernel(computation: Computation, form: "window" | "rows", options: Options): Promise<Peer> {
  const sum = sumOf(computation);
  const { shifts } = sum;
  const planes = sum.output.dims.map((d) => d.extent);
  const places = sum.input.dims.map((d) => d.extent);
  // One loop for each of three dimensions; missing ones have one iteration.
  const pad = <T>(list: readonly T[], fill: T): T[] => [...Array<T>(3 - list.length).fill(fill), ...list];
  const [inD, inH, inW] = pad(places, 1);
  const [D, H, W] = pad(planes, 1);
  const reach = pad(
    shifts.map(([min, max]) => [min, max] as const),
    [0, 0] as const,
  );
  const weights = weightPlaces(sum);
  const taps = sum.taps.map((t, k) => {
    const [z, y, x] = pad(shiftsOf(t), 0);
    return { z: z ?? 0, y: y ?? 0, x: x ?? 0, weight: weights[k] ?? 0 };
  });
  const { dtype } = sum.output;
  const at = (z: string, y: string, x: string): string => `in[((${z}) * ${inH} + (${y})) * ${inW}L + (${x})]`;
  // A full window becomes loops, as written by hand; a sparse one becomes a sum.
  const extent = reach.map(([min, max]) => max - min + 1);
  const [kd = 1, kh = 1, kw = 1] = extent;
  const [z0 = 0, y0 = 0, x0 = 0] = reach.map(([min]) => min);
  const isBox = taps.length === kd * kh * kw && taps.every((t, k) => t.weight === k) && taps.length > 1;
  const term = (t: (typeof taps)[number]): string => `w[${t.weight}] * ${at(`i + ${t.z}`, `j + ${t.y}`, `k + ${t.x}`)}`;
  const point = isBox
    ? `T sum = 0; for (int a = 0; a < ${kd}; a++) for (int b = 0; b < ${kh}; b++) for (int c = 0; c < ${kw}; c++) sum += w[(a * ${kh} + b) * ${kw} + c] * ${at(`i + a + ${z0}`, `j + b + ${y0}`, `k + c + ${x0}`)};`
    : `T sum = ${taps.map(term).join(" + ")};`;
  const row = isBox
    ? `for (int a = 0; a < ${kd}; a++) for (int b = 0; b < ${kh}; b++) for (int c = 0; c < ${kw}; c++) for (long k = K0; k < K1; k++) out[o + k] += w[(a * ${kh} + b) * ${kw} + c] * ${at(`i + a + ${z0}`, `j + b + ${y0}`, `k + c + ${x0}`)};`
    : taps.map((t) => `for (long k = K0; k < K1; k++) out[o + k] += ${term(t)};`).join("\n      ");
  const bounds = [0, 1, 2].map((d) => {
    const [min, max] = reach[d] ?? [0, 0];
    return [Math.max(0, -min), Math.min([D, H, W][d] ?? 1, ([inD, inH, inW][d] ?? 1) - max)] as const;
  });
  const source = filled("loops.cpp", {
    "@T": dtype === "f16" ? "_Float16" : dtype === "s16" ? "short" : dtype === "s32" ? "int" : C_TYPES[dtype],
    "@D": D,
    "@H": H,
    "@W": W,
    "@I0": bounds[0]?.[0],
    "@I1": bounds[0]?.[1],
    "@J0": bounds[1]?.[0],
    "@J1": bounds[1]?.[1],
    "@K0": bounds[2]?.[0],
    "@K1": bounds[2]?.[1],
    "@IN_D": inD,
    "@IN_H": inH,
    "@IN_W": inW,
    "/* @taps */": taps.map((t) => `{${t.z}, ${t.y}, ${t.x}, ${t.weight}}`).join(", "),
    "/* @point */": point,
    "/* @row */": row,
    "/* @form */": form === "rows" ? "#define BY_ROWS" : "",
  });
  return opened(computation, source, LOOP_FLAGS, options);
}

/** cv::filter2D on one thread. A sparse window is filled up with zeros. */
export function filter2dKernel(computation: Computation, options: Options): Promise<Peer> {
  const sum = sumOf(computation);
  const { shifts } = sum;
  // OpenCV takes a signal as an image of one row, and is then some forty times slower than the loops: no peer.
  if (sum.output.dims.length !== 2)
    return Promise.resolve({ status: "refused", reason: "dimensions: filter2D filters images" });
  const pad = <T>(list: readonly T[], fill: T): T[] => [...Array<T>(2 - list.length).fill(fill), ...list];
  const [inH = 1, inW = 1] = pad(
    sum.input.dims.map((d) => d.extent),
    1,
  );
  const [H = 1, W = 1] = pad(
    sum.output.dims.map((d) => d.extent),
    1,
  );
  const [[y0, y1] = [0, 0], [x0, x1] = [0, 0]] = pad(
    shifts.map(([min, max]) => [min, max] as const),
    [0, 0] as const,
  );
  const weights = weightPlaces(sum);
  const window = new Array<number>((y1 - y0 + 1) * (x1 - x0 + 1)).fill(-1);
  for (const [k, t] of sum.taps.entries()) {
    const [y = 0, x = 0] = pad(shiftsOf(t), 0);
    window[(y - y0) * (x1 - x0 + 1) + (x - x0)] = weights[k] ?? 0;
  }
  // The window is anchored at the output's place. Where that is left of the window, the input is read further right.
  const source = filled("opencv.cpp", {
    "@TOP": y0,
    "@CV": sum.output.dtype === "f64" ? "CV_64F" : "CV_32F",
    "@T": sum.output.dtype === "f64" ? "double" : "float",
    "@IN_H": inH,
    "@IN_W": inW,
    "@H": H,
    "@W": W,
    "@KH": y1 - y0 + 1,
    "@KW": x1 - x0 + 1,
    "@LEFT": x0,
    "/* @window */": window.join(", "),
  });
  const flags = [...LOOP_FLAGS, "-I/usr/include/opencv4", "-lopencv_imgproc", "-lopencv_core"];
  return opened(computation, source, flags, options);
}

export function sumOf(computation: Computation): TapSum {
  const verdict = tapsOf(computation);
  if (!verdict.ok) throw new Error(`${computation.name}: ${verdict.refusal.because}`);
  return verdict.sum;
}

/** Offset of a tap from its output in each dimension. */
export function shiftsOf(tap: Tap): number[] {
  return tap.shift.map((_, d) => shiftAt(tap, d));
}

/** The weight element of each tap, row-major. */
export function weightPlaces(sum: TapSum): number[] {
  const weights = inputsOf(sum.computation).find((t) => t.name !== sum.input.name);
  return sum.taps.map(({ factor }) => {
    if (factor?.kind !== "access" || factor.tensor !== weights?.name)
      throw new Error(`the factor ${factor ? printExpr(factor) : "1"} is no element of one tensor of weights`);
    return factor.index.reduce(
      (flat, e, d) => flat * (weights.dims[d]?.extent ?? 1) + (e.kind === "number" ? e.value : 0),
      0,
    );
  });
}

/** Compiles a library that exports `peer_run`, and wraps it in a kernel. */
export async function opened(
  computation: Computation,
  source: string,
  flags: readonly string[],
  options: Options,
): Promise<Peer> {
  const library = await compileSource(spell(trustedCode(source), "c++"), flags, ".so", options);
  if (library.status !== "compiled") return { status: "refused", reason: `it does not compile: ${library.log}` };
  const tensors = [outputOf(computation), ...inputsOf(computation)];
  const wrapper = code`// ${commentText(`${computation.name}: a peer, compiled with ${flags.join(" ")}`)}
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
static void (*peer)(void* const*, int, int);
extern "C" unsigned long automap_workspace_bytes(void) { return 64; }
extern "C" int automap_phases(void) { return 1; }
extern "C" void automap_prepare(void*, const void* const*) {
  void* library = dlopen(${stringLiteral(library.file)}, RTLD_NOW | RTLD_LOCAL);
  if (library) peer = (void (*)(void* const*, int, int))dlsym(library, "peer_run");
  if (!peer) { fprintf(stderr, "%s\\n", dlerror()); abort(); }
}
extern "C" void automap_run(void*, void* const* tensors, int, int part, int parts) { peer(tensors, part, parts); }
`;
  return {
    status: "ready",
    kernel: {
      language: "c++",
      source: spell(wrapper, "c++"),
      features: [],
      promises: undefined,
      arguments: tensors.map((t) => ({
        tensor: t.name,
        dtype: t.dtype,
        elements: elementCount(t),
        role: t === tensors[0] ? "output" : t.constant ? "constant" : "input",
      })),
    },
  };
}
