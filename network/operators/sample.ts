/**
 * @file Elements of an image between its pixels, at places that are known only when the network runs.
 *
 *     GridSample    at[n,p] = ((grid[n,p,0] + 1) * 64 - 1) / 2                            for each axis
 *                   from[n,p,t] = floor(y[n,p] + dy[t]) * 64 + floor(x[n,p] + dx[t])      a corner t of the pixels around it
 *                   out[n,c,p] += image[n,c,wrap(from[n,p,t])] * weight[n,p,t]
 *
 * https://onnx.ai/onnx/operators/onnx__GridSample.html
 */

import type { Lowering } from "../lowering.ts";
import { bracketed, elementsOf, type Value } from "../value.ts";
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

function gridSample(node: Lowering): Value {
  const x = floatsAt(node, 0);
  const grid = floatsAt(node, 1);
  const spatial = x.shape.slice(2);
  const [batch = 1, channels = 1] = x.shape;
  const rank = spatial.length;
  const results = grid.shape.slice(1, -1);
  if (rank < 1 || grid.shape.length !== rank + 2 || grid.shape[0] !== batch || grid.shape.at(-1) !== rank)
    node.refuse(`a grid of ${bracketed(grid.shape)} for ${bracketed(x.shape)}`);
  const aligned = node.int("align_corners", 0) !== 0;
  const padding = node.text("padding_mode", "zeros", ["zeros", "border", "reflection"]);
  const mode =
    MODES[node.text("mode", node.opset < 20 ? "bilinear" : "linear", Object.keys(MODES)) as keyof typeof MODES];
  const held = x.type === "f64" ? "f64" : "f32";
  const places = elementsOf(results, node.subject);
  const shown = node.reshaped(grid, [batch, places, rank]);
  // The grid names the last axis first.
  const coordinates = spatial.map((size, d) => {
    const g = `${held}(grid[n,p,${rank - 1 - d}])`;
    const c = aligned ? `(${g} + 1) / 2 * ${size - 1}` : `((${g} + 1) * ${size} - 1) / 2`;
    const within = brought(`(${c})`, padding, size, aligned);
    return node.equation(`y[n,p] = ${within}`, {
      reads: { grid: shown },
      shape: [batch, places],
      type: held,
    });
  });
  const corners = mode === "linear" ? 2 ** rank : 1;
  const steps = spatial.map((_, d) => {
    const values = node.numbers(held, corners);
    for (let t = 0; t < corners; t++) values[t] = (t >> d) & 1;
    return node.constant({ type: held, shape: [corners], values }, `step${d}`);
  });
  const reads = Object.fromEntries([
    ...coordinates.map((value, d) => [`at${d}`, value] as const),
    ...steps.map((value, d) => [`step${d}`, value] as const),
  ]);
  const below = (d: number): string => (mode === "linear" ? `floor(at${d}[n,p])` : `round(at${d}[n,p])`);
  const pixel = (d: number): string => `(${below(d)} + step${d}[t])`;
  const shape = [batch, places, corners];
  const flat = spatial.map((size, d) => {
    const stride = elementsOf(spatial.slice(d + 1), node.subject);
    return `s32(max(0, min(${size - 1}, ${pixel(d)}))) * ${stride}`;
  });
  const from = node.equation(`y[n,p,t] = ${flat.join(" + ")}`, { reads, shape, type: "s32" });
  const share = spatial.map((size, d) => {
    const near = mode === "linear" ? `max(0, 1 - abs(at${d}[n,p] - ${pixel(d)}))` : "1";
    // 1 for a pixel of the image and 0 beside it.
    const isInside = `max(0, min(1, ${pixel(d)} + 1)) * max(0, min(1, ${size} - ${pixel(d)}))`;
    return `${near} * ${isInside}`;
  });
  const weight = node.equation(`y[n,p,t] = ${share.join(" * ")}`, { reads, shape, type: held });
  const image = node.reshaped(x, [batch, channels, elementsOf(spatial, node.subject)]);
  const read = node.equation("y[n,c,p,t] = image[n,c,wrap(from[n,p,t])]", {
    reads: { from, image },
    shape: [batch, channels, places, corners],
    type: x.type,
  });
  const y = node.equation(`y[n,c,p] += ${held}(read[n,c,p,t]) * weight[n,p,t]`, {
    reads: { read, weight },
    shape: [batch, channels, places],
    type: held,
    extents: { t: corners },
  });
  const out =
    held === x.type
      ? y
      : node.equation(`y[n,c,p] = ${x.type}(x[n,c,p])`, { reads: { x: y }, shape: y.shape, type: x.type });
  return node.reshaped(out, [batch, channels, ...results]);
}

export const SAMPLES: OperatorTable = {
  GridSample: gridSample,
};
