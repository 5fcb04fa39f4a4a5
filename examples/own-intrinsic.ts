/** @file Declares an instruction: a unit that sums four products for each of eight lanes, and lists the operators that map onto it. */

import { defineIntrinsic, drawMapping, instantiate, mappings, OPERATORS, operatorNamed } from "automap";

const dot4 = defineIntrinsic({
  name: "mine.dot4",
  family: "mine",
  isa: "mine",
  language: "none",
  summary: "Eight dot products of four f32, one factor common to all lanes.",
  compute: "c[n] += a[k] * b[k,n]",
  extents: { n: 8, k: 4 },
  operands: {
    a: { dtype: "f32", storage: "vec[4*n + k]" },
    b: { dtype: "f32", storage: "vec[4*n + k]" },
    c: { dtype: "f32", storage: "vec[n]" },
  },
  emit: "{c} = dot4({c}, {a}, {b});",
  source: "a data sheet, page and entry",
});

for (const operator of OPERATORS.filter((o) => o.aliases.length > 0)) {
  const { valid } = mappings(instantiate(operator), dot4);
  const [best] = valid;
  console.log(operator.name.padEnd(18), String(valid.length).padStart(3), best ? `waste ${best.waste.toFixed(3)}` : "");
}

const [best] = mappings(instantiate(operatorNamed("matvec"), { parameters: { m: 20, k: 6 } }), dot4).valid;
if (best) console.log(`\n${drawMapping(best)}`);
