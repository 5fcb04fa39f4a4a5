/**
 * @file Stencils: each point becomes a weighted sum of its neighbours. A window of weights slides over the grid, and a condition selects the points
 * of its shape. Elements outside the grid are 0.
 *
 *     star    out[i,j] += acc(in[i+r-radius,j+s-radius]) * acc(w[r,s]) where r == radius or s == radius
 *
 * The named stencils are those of the SSAM evaluation (Chen et al., SC'19), with the coefficients of the gold programs at
 * https://github.com/pssrawat/ppopp-artifact/tree/04ca35d7f2b6960cb4b6f97f6525748e4ef5af72/examples (`j2d25pt` ... `j3d125pt-new`). 2d9pt is here, as
 * in that paper, a star of radius 2; elsewhere the name often means the 3x3 box.
 */

import { evaluateIndex, pointsOf } from "../abstraction/affine.ts";
import type { Expr } from "../abstraction/expression.ts";
import { parseExpr } from "../abstraction/parse.ts";
import { defineOperator, type Operator, size } from "./operator.ts";

/** The points of the window that contribute. */
type Shape = "star" | "box" | "no-axes" | "no-corners";

const WINDOW_AXES = { 2: ["r", "s"], 3: ["r", "s", "t"] } as const;

/** The condition of a shape; a box needs none. */
const WHERE: Readonly<Record<2 | 3, Readonly<Partial<Record<Shape, string>>>>> = {
  2: {
    star: "r == radius or s == radius",
    "no-axes": "r != radius and s != radius",
  },
  3: {
    star: "r == radius and s == radius or r == radius and t == radius or s == radius and t == radius",
    "no-corners": "r == radius or s == radius or t == radius",
  },
};

/**
 * Coefficients by class of offset. A class is the distances along each axis, `12`, in the order
 *   axes          of the axes
 *   square        ascending, so rotation and reflection change nothing
 *   antisquare    as square, and the sign changes with the sign of each offset
 *   prism         the first axis, then the others ascending
 */
interface Coefficients {
  readonly symmetry: "axes" | "square" | "antisquare" | "prism";
  readonly byClass: Readonly<Record<string, number>>;
}

interface Stencil {
  readonly name: string;
  readonly dimensions: 2 | 3;
  readonly radius: number;
  readonly shape: Shape;
  /** By class; a different coefficient for every point when left out. */
  readonly coefficients?: Coefficients;
  /** Operations per point as printed in the paper; {@link operationsPerPoint} counts them. */
  readonly publishedOperations: number;
}

export const STENCILS: readonly Stencil[] = [
  { name: "2d5pt", dimensions: 2, radius: 1, shape: "star", publishedOperations: 9 },
  { name: "2d9pt", dimensions: 2, radius: 2, shape: "star", publishedOperations: 17 },
  { name: "2d13pt", dimensions: 2, radius: 3, shape: "star", publishedOperations: 25 },
  { name: "2d17pt", dimensions: 2, radius: 4, shape: "star", publishedOperations: 33 },
  { name: "2d21pt", dimensions: 2, radius: 5, shape: "star", publishedOperations: 41 },
  { name: "2ds25pt", dimensions: 2, radius: 6, shape: "star", publishedOperations: 49 },
  {
    name: "2d25pt",
    dimensions: 2,
    radius: 2,
    shape: "box",
    coefficients: {
      symmetry: "axes",
      byClass: { "00": 2.3, "01": 2.2, "02": 2.1, "10": 1.3, "11": 1.2, "12": 1.1, "20": 0.3, "21": 0.2, "22": 0.1 },
    },
    publishedOperations: 33,
  },
  {
    name: "2d64pt",
    dimensions: 2,
    radius: 4,
    shape: "no-axes",
    coefficients: {
      symmetry: "antisquare",
      byClass: {
        "11": 0.64,
        "12": -0.16,
        "13": 0.03048,
        "14": -0.002856,
        "22": 0.04,
        "23": -0.00762,
        "24": 0.000714,
        "33": 0.00145161,
        "34": -0.000136017,
        "44": 1.274495,
      },
    },
    publishedOperations: 73,
  },
  {
    name: "2d81pt",
    dimensions: 2,
    radius: 4,
    shape: "box",
    coefficients: {
      symmetry: "square",
      byClass: {
        "00": 8.10655,
        "01": -4.55552,
        "02": 0.56944,
        "03": -0.0723189,
        "04": -0.00508225,
        "11": 2.56,
        "12": -0.32,
        "13": 0.04064,
        "14": 0.002856,
        "22": 0.04,
        "23": -0.00508,
        "24": -0.000357,
        "33": 0.00064516,
        "34": 4.5339005,
        "44": 3.1862206,
      },
    },
    publishedOperations: 95,
  },
  { name: "2d121pt", dimensions: 2, radius: 5, shape: "box", publishedOperations: 241 },
  { name: "3d7pt", dimensions: 3, radius: 1, shape: "star", publishedOperations: 13 },
  { name: "3d13pt", dimensions: 3, radius: 2, shape: "star", publishedOperations: 25 },
  {
    name: "3d27pt",
    dimensions: 3,
    radius: 1,
    shape: "box",
    coefficients: { symmetry: "square", byClass: { "000": 0.125, "001": 1.14, "011": 1.031, "111": 0.75 } },
    publishedOperations: 30,
  },
  // Five coefficients over eighteen classes. 124 additions and 5 products are 129 operations, not the 130 printed.
  {
    name: "3d125pt",
    dimensions: 3,
    radius: 2,
    shape: "box",
    coefficients: {
      symmetry: "prism",
      byClass: {
        "222": 0.75,
        "111": 0.75,
        "001": 0.75,
        "212": 1.132,
        "200": 1.132,
        "122": 1.132,
        "002": 1.132,
        "202": 0.217,
        "101": 0.217,
        "022": 0.217,
        "201": 2.13,
        "102": 2.13,
        "012": 2.13,
        "000": 2.13,
        "211": 0.331,
        "112": 0.331,
        "100": 0.331,
        "011": 0.331,
      },
    },
    publishedOperations: 130,
  },
  {
    name: "poisson",
    dimensions: 3,
    radius: 1,
    shape: "no-corners",
    coefficients: { symmetry: "square", byClass: { "000": 2.666, "001": -0.166, "011": -0.0833 } },
    publishedOperations: 21,
  },
];

/** Points of the window that contribute, each as r, s (and t), last fastest. */
export function pointsOfStencil(stencil: Stencil): number[][] {
  const axes = WINDOW_AXES[stencil.dimensions];
  const extents = Object.fromEntries(axes.map((axis) => [axis, 2 * stencil.radius + 1]));
  return Array.from(pointsOf(axes, extents), (point) => Object.values(point)).filter((at) => takesPart(stencil, at));
}

/** The conditions of {@link WHERE} by their texts, read once. */
const CONDITIONS: ReadonlyMap<string, Expr> = new Map(
  Object.values(WHERE).flatMap((shapes) => Object.values(shapes).map((text) => [text, parseExpr(text)])),
);

function takesPart({ dimensions, radius, shape }: Stencil, place: readonly number[]): boolean {
  const condition = CONDITIONS.get(WHERE[dimensions][shape] ?? "");
  if (condition === undefined) return true;
  const point = Object.fromEntries(WINDOW_AXES[dimensions].map((axis, d) => [axis, place[d] ?? 0]));
  return evaluateIndex(condition, { ...point, radius }) === 1;
}

/** One addition for every point after the first and one product for every distinct coefficient, because equal coefficients are factored out. */
export function operationsPerPoint(stencil: Stencil): number {
  const points = pointsOfStencil(stencil);
  return points.length - 1 + new Set(points.map((at) => Math.abs(coefficientAt(stencil, at)))).size;
}

/** The weight at a point of the window; 0 where the shape has no point. */
function coefficientAt(stencil: Stencil, place: readonly number[]): number {
  if (!takesPart(stencil, place)) return 0;
  const { coefficients, radius } = stencil;
  const side = 2 * radius + 1;
  if (!coefficients) return (1 + place.reduce((flat, x) => flat * side + x, 0)) / side ** place.length;
  const { symmetry, byClass } = coefficients;
  const offsets = place.map((x) => x - radius);
  const distances = offsets.map(Math.abs);
  const sign = symmetry === "antisquare" ? Math.sign(offsets.reduce((product, x) => product * x, 1)) : 1;
  const inOrder =
    symmetry === "axes"
      ? distances
      : symmetry === "prism"
        ? [...distances.slice(0, 1), ...distances.slice(1).sort()]
        : distances.toSorted();
  return sign * (byClass[inOrder.join("")] ?? 0);
}

const RADIUS = size("distance to the farthest neighbour along an axis", 1);

/** Parameters that stencils of one dimension share. */
const GRID = {
  2: {
    parameters: { h: size("rows", 8192), w: size("columns", 8192) },
    equation: "out[i,j] += acc(in[i+r-radius,j+s-radius]) * acc(w[r,s])",
    axes: { i: "h", j: "w", r: "2*radius + 1", s: "2*radius + 1" },
    dims: "h w",
  },
  3: {
    parameters: { d: size("planes", 512), h: size("rows", 512), w: size("columns", 512) },
    equation: "out[i,j,k] += acc(in[i+r-radius,j+s-radius,k+t-radius]) * acc(w[r,s,t])",
    axes: { i: "d", j: "h", k: "w", r: "2*radius + 1", s: "2*radius + 1", t: "2*radius + 1" },
    dims: "d h w",
  },
} as const;

function gridOperator(dimensions: 2 | 3, shape: Shape): Omit<Operator, "name" | "summary" | "aliases"> {
  const { parameters, equation, axes, dims } = GRID[dimensions];
  const where = WHERE[dimensions][shape];
  return {
    parameters,
    equation: where === undefined ? equation : `${equation} where ${where}`,
    axes,
    fixed: {},
    tensors: {
      in: { type: "first", dims, sized: true },
      w: { type: "second", constant: true },
      out: { type: "sum", dims },
    },
    rules: [],
  };
}

function anyRadius(dimensions: 2 | 3, shape: "star" | "box"): Operator {
  const grid = gridOperator(dimensions, shape);
  return defineOperator({
    ...grid,
    name: `stencil${dimensions}d-${shape}`,
    summary: `${dimensions}-D ${shape} stencil of any radius and any weights`,
    parameters: { ...grid.parameters, radius: RADIUS },
  });
}

function named(stencil: Stencil): Operator {
  const { name, dimensions, shape, radius } = stencil;
  const grid = gridOperator(dimensions, shape);
  return defineOperator({
    ...grid,
    name,
    summary: `${dimensions}-D stencil of ${pointsOfStencil(stencil).length} points: ${shape} of radius ${radius}`,
    fixed: { radius },
    tensors: {
      ...grid.tensors,
      w: { type: "second", constant: true, value: (place) => coefficientAt(stencil, place) },
    },
  });
}

export const STENCIL: readonly Operator[] = [
  anyRadius(2, "star"),
  anyRadius(2, "box"),
  anyRadius(3, "star"),
  anyRadius(3, "box"),
  ...STENCILS.map(named),
];
