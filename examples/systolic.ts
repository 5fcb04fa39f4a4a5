/** @file The systolic arrays of a 1-D convolution, and a check on numbers that one of them computes it. */

import { defineComputation, interpret } from "automap";
import { interpretNest, printNest } from "automap/internals";
import { arrayPass, enumerateDesigns, lowerDesign, paretoSet, recurrenceOf } from "automap/systolic";

// 1. One pass through the array: here the whole computation, five results of a filter of three.
const pass = arrayPass(
  defineComputation({
    name: "smooth",
    equation: "y[i] += x[i+r] * w[r]",
    extents: { i: 5, r: 3 },
    tensors: { x: "f32", w: "f32" },
  }),
);

// 2. Every design whose transform has entries of -1, 0 and 1; a star where no other is better in everything.
const { designs } = enumerateDesigns(pass.problem, { bound: 1, arrayRows: 1 });
const undominated = new Set(paretoSet(designs));
for (const design of designs) {
  const { name, pes, steps, registers } = design;
  const mark = undominated.has(design) ? "*" : " ";
  console.log(`${mark} ${name}  PEs ${pes}  steps ${steps}  registers ${registers.plain}`);
}

// 3. x stays, w is broadcast, sums migrate: as a program on lanes.
const design = designs.find(({ name }) => name === "SBM");
if (!design) throw new Error("the names of designs have changed");
const nest = lowerDesign(recurrenceOf(pass, design), design.spaceTime, { coalesced: true });
console.log(printNest(nest));

// 4. The equation and the array on the same numbers.
const inputs = { x: [1, 2, 3, 4, 5, 6, 7], w: [1, 10, 100] };
console.log("equation", [...interpret(pass.computation, inputs)].join(" "));
console.log("array   ", [...interpretNest(nest, pass.computation, inputs)].join(" "));
