/** @file Lowers an equation to a program of instruction calls, and checks on numbers that both compute the same. */

import { defineComputation, interpret, intrinsicsNamed, mappings, printMatching } from "automap";
import { interpretNest, lowerMapping, printNest } from "automap/internals";

// 1. A computation of one's own: a 1-D convolution with a border of zeros.
const convolution = defineComputation({
  name: "smooth",
  equation: "y[i] += x[i+r-1] * w[r]",
  extents: { i: 5, r: 3 },
  tensors: { x: { dtype: "f32", shape: [5] }, w: { dtype: "f32", constant: true } },
});

// 2. Its best mapping onto a small matrix product, lowered to a loop nest.
const [toy] = intrinsicsNamed("toy.2x2x2");
if (!toy) throw new Error("the table of instructions has changed");
const [mapping] = mappings(convolution, toy).valid;
if (!mapping) throw new Error("nothing maps");
const nest = lowerMapping(mapping);
console.log(printMatching(mapping.matching), `waste ${mapping.waste}`);
console.log(printNest(nest));

// 3. The equation and the loop nest on the same numbers.
const inputs = { x: [1, 2, 3, 4, 5], w: [1, 10, 100] };
console.log("equation ", [...interpret(convolution, inputs)].join(" "));
console.log("loop nest", [...interpretNest(nest, convolution, inputs)].join(" "));
