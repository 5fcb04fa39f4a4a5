/**
 * @file Samples an image between its pixels, at positions that are known only at run time (GridSample, RoiAlign).
 *
 *     GridSample    at[n,p] = ((grid[n,p,0] + 1) * 64 - 1) / 2                            for each axis
 *                   from[n,p,t] = floor(y[n,p] + dy[t]) * 64 + floor(x[n,p] + dx[t])      a corner t of the pixels around it
 *                   out[n,c,p] += image[n,c,wrap(from[n,p,t])] * weight[n,p,t]
 *
 *     RoiAlign      y[r,a] = box[r,1] * scale - 0.5 + (a + 0.5) * (box[r,3] - box[r,1]) * scale / rows      each sample of each bin
 *                   out[r,c,p,q] += image[wrap(of[r]),c,wrap(from[r,2*p+i,2*q+j,t])] * weight[r,2*p+i,2*q+j,t]
 *
 * https://onnx.ai/onnx/operators/onnx__GridSample.html, https://onnx.ai/onnx/operators/onnx__RoiAlign.html
 */

import { internal } from "../../abstraction/error.ts";
import type { Lowering } from "../lowering.ts";
import { bracketed } from "../value.ts";
import { indicesIn } from "./compare.ts";
import { floatsAt } from "./elementwise.ts";
import type { OperatorTable } from "./table.ts";

const MODES = { nearest: "nearest", bilinear: "linear", linear: "linear" } as const;

/** A coordinate brought into an image: mirrored at its borders, or moved to the nearest pixel. With zeros it is brought near: further off all is 0. */
function brought(c: string, padding: string, size: number, aligned: boolean): string {
  if (padding === "zeros") return `max(-2, min(${size + 1}, ${c}))`;
  const clipped = (x: string): string => `max(0, min(${size - 1}, ${x}))`;
  if (padding === "border") return clipped(c);
  const [least, span] = aligned ? [0, size - 1] : [-0.5, size];
  if (span === 0) return `0 * ${c}`;
  return clipped(`${span} - abs(abs(${c} - (${least})) % ${2 * span} - ${span}) + (${least})`);
}

const HALVES = ["half_pixel", "output_half_pixel"];

export const SAMPLES: OperatorTable = {
  GridSample(node: Lowering) {
    const x = floatsAt(node, 0);
    const grid = floatsAt(node, 1);
    const spatial = x.shape.slice(2);
    const [batch = 1, channels = 1] = x.shape;
    const rank = spatial.length;
    const results = grid.shape.slice(1, -1);
    if (rank < 1 || grid.shape.length !== rank + 2 || grid.shape[0] !== batch || grid.shape.at(-1) !== rank)
      node.refuse(`a grid of ${bracketed(grid.shape)} for ${bracketed(x.shape)}`);
    const aligned = node.flag("align_corners");
    const padding = node.text("padding_mode", "zeros", ["zeros", "border", "reflection"]);
    const mode =
      MODES[node.text("mode", node.opset < 20 ? "bilinear" : "linear", Object.keys(MODES)) as keyof typeof MODES];
    const held = x.type === "f64" ? "f64" : "f32";
    const places = node.elements(results);
    const shown = node.reshaped(grid, [batch, places, rank]);
    // The grid names the last axis first.
    const coordinates = spatial.map((size, d) => {
      const g = `${held}(grid[n,p,${rank - 1 - d}])`;
      const c = aligned ? `(${g} + 1) / 2 * ${size - 1}` : `((${g} + 1) * ${size} - 1) / 2`;
      const within = brought(`(${c})`, padding, size, aligned);
      return node.equation(`y[n,p] = ${within}`, { grid: shown }, { type: held });
    });
    const corners = mode === "linear" ? 2 ** rank : 1;
    const steps = spatial.map((_, d) => node.filled(held, [corners], (t) => (t >> d) & 1, `step${d}`));
    const reads = Object.fromEntries([
      ...coordinates.map((value, d) => [`at${d}`, value] as const),
      ...steps.map((value, d) => [`step${d}`, value] as const),
    ]);
    const below = (d: number): string => (mode === "linear" ? `floor(at${d}[n,p])` : `round(at${d}[n,p])`);
    const pixel = (d: number): string => `(${below(d)} + step${d}[t])`;
    const flat = spatial.map((size, d) => {
      const stride = node.elements(spatial.slice(d + 1));
      return `s32(max(0, min(${size - 1}, ${pixel(d)}))) * ${stride}`;
    });
    const from = node.equation(`y[n,p,t] = ${flat.join(" + ")}`, reads, { type: "s32" });
    const share = spatial.map((size, d) => {
      const near = mode === "linear" ? `max(0, 1 - abs(at${d}[n,p] - ${pixel(d)}))` : "1";
      // 1 for a pixel of the image and 0 beside it.
      const isInside = `max(0, min(1, ${pixel(d)} + 1)) * max(0, min(1, ${size} - ${pixel(d)}))`;
      return `${near} * ${isInside}`;
    });
    const weight = node.equation(`y[n,p,t] = ${share.join(" * ")}`, reads);
    const image = node.reshaped(x, [batch, channels, node.elements(spatial)]);
    const read = node.equation("y[n,c,p,t] = image[n,c,wrap(from[n,p,t])]", { from, image }, { type: x.type });
    const y = node.equation(`y[n,c,p] += ${held}(read[n,c,p,t]) * weight[n,p,t]`, { read, weight }, { type: held });
    const out = held === x.type ? y : node.equation(`y[n,c,p] = ${x.type}(x[n,c,p])`, { x: y }, { type: x.type });
    return node.reshaped(out, [batch, channels, ...results]);
  },
  /** The mean of samples within each bin of each box. A sample further than a pixel outside the image is 0; others beside it read the nearest pixels. */
  RoiAlign(node: Lowering) {
    const x = floatsAt(node, 0);
    const boxes = floatsAt(node, 1);
    const images = node.input(2);
    const [batch = 1, channels = 1, height = 1, width = 1] = x.shape;
    const [count = 1] = images.shape;
    if (x.shape.length !== 4 || boxes.shape.join() !== `${count},4` || images.shape.length !== 1)
      node.refuse(`boxes of ${bracketed(boxes.shape)} in ${bracketed(images.shape)} images of ${bracketed(x.shape)}`);
    node.text("mode", "avg", ["avg"]);
    const samples = node.int("sampling_ratio", 0);
    if (samples < 1)
      node.refuse("without a sampling_ratio the boxes, which only the run knows, decide how many samples are taken");
    const isHalf =
      node.opset >= 16 && node.text("coordinate_transformation_mode", "half_pixel", HALVES) === "half_pixel";
    const scale = node.float("spatial_scale", 1);
    const held = x.type === "f64" ? "f64" : "f32";
    const sides = [
      { bins: node.int("output_height", 1), size: height, first: 1 },
      { bins: node.int("output_width", 1), size: width, first: 0 },
    ].map(({ bins, size, first }, d) => {
      const start = `${held}(box[r,${first}]) * ${scale}`;
      const length = `(${held}(box[r,${first + 2}]) * ${scale} - ${start})`;
      const span = isHalf ? length : `max(${length}, 1)`;
      const at = node.equation(
        `y[r,a] = ${start}${isHalf ? " - 0.5" : ""} + (${held}(a) + 0.5) * ${span} / ${bins * samples}`,
        { box: boxes },
        { extents: { a: bins * samples }, type: held },
      );
      return { bins, size, name: `at${d}`, at };
    });
    const [rows, columns] = sides;
    if (!rows || !columns) internal("an image has two sides");
    const corner = [0, 1].map((d) => node.filled(held, [4], (t) => (t >> d) & 1, `corner${d}`));
    const reads = { at0: rows.at, at1: columns.at, corner0: corner[0] ?? x, corner1: corner[1] ?? x };
    const place = (d: number): string => (d === 0 ? "at0[r,a]" : "at1[r,b]");
    const within = (d: number, size: number): string => `max(0, min(${size - 1}, ${place(d)}))`;
    const pixel = (d: number, size: number): string => `min(${size - 1}, floor(${within(d, size)}) + corner${d}[t])`;
    const from = node.equation(`y[r,a,b,t] = s32(${pixel(0, height)}) * ${width} + s32(${pixel(1, width)})`, reads, {
      type: "s32",
    });
    const share = [height, width].map((size, d) => {
      const past = `(${within(d, size)} - floor(${within(d, size)}))`;
      const part = `(corner${d}[t] * ${past} + (1 - corner${d}[t]) * (1 - ${past}))`;
      return `select(${place(d)} >= -1, select(${place(d)} <= ${size}, ${part}, 0), 0)`;
    });
    const weight = node.equation(`y[r,a,b,t] = ${share.join(" * ")}`, reads);
    const image = node.reshaped(x, [batch, channels, height * width]);
    const read = node.equation(
      "y[r,c,a,b,t] = image[wrap(of[r]),c,wrap(from[r,a,b,t])]",
      { of: indicesIn(node, images, batch), from, image },
      { type: x.type },
    );
    const sample = `${samples}*p+i,${samples}*q+j,t`;
    const sum = node.equation(
      `y[r,c,p,q] += ${held}(read[r,c,${sample}]) * weight[r,${sample}]`,
      { read, weight },
      {
        type: held,
        extents: { p: rows.bins, q: columns.bins, i: samples, j: samples },
      },
    );
    return node.equation(`y[r,c,p,q] = ${x.type}(x[r,c,p,q] / ${samples * samples})`, { x: sum }, { type: x.type });
  },
};
