/**
 * @file A program that proves a package on the machine it is on: every element against the equation by plain loops.
 *
 *     $ build/conv2d_test
 *     conv2d tuned: random right, extreme right
 *     conv2d portable: random right, extreme right
 *
 * The data and the tolerance of floats are those of runtime/verify.ts. What an epilogue may make of a float sum that is not known
 * exactly is asked of the epilogue itself, at the ends of the sum's interval and between; each of its operations keeps order on a
 * stretch, so that the ends of the stretches hold the results.
 */

import { elementCount, inputsOf, outputOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { isInteger, rangeOf } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import { harnessText, printIndex, referenceStruct } from "../runtime/reference-program.ts";
import { boundRule, largestInput, tensorsBeside } from "../runtime/verify.ts";
import { assetText } from "./portable.ts";
import { comment, type EmitSubject, parametersOf } from "./subject.ts";

/** Points of a sum's interval an epilogue is asked at, as shares of the way from its low to its high end. */
const SHARES = [0, 0.25, 0.5, 0.75, 1];

export function selfTestSource({ name, computation, tuned }: EmitSubject): string {
  const upper = name.toUpperCase();
  const { sum, epilogue } = partsOf(computation);
  const target = targetOf(sum);
  const output = outputOf(computation);
  const rule = boundRule(sum);
  const inputs = inputsOf(sum);
  const beside = epilogue ? inputsOf(epilogue).filter((t) => t.name !== target.name) : [];
  /** What is drawn for the epilogue: inputs the sum has not read already. */
  const later = beside.filter((t) => !inputs.some((i) => i.name === t.name));
  const divides = tensorsBeside("/", sum).size > 0;
  const parameters = parametersOf(computation);
  const constants = parameters.filter((p) => p.role === "constant");
  const [factors, divisors] = epilogue
    ? [tensorsBeside("*", epilogue), tensorsBeside("/", epilogue)]
    : [new Set<string>(), new Set<string>()];
  const count = elementCount(target);
  const [least, most] = rangeOf(output.dtype);
  const held = (tensor: Tensor): string => (inputs.some((t) => t.name === tensor.name) ? "sum" : "finish");
  const loops = (tensor: Tensor): string =>
    tensor.dims.map(({ extent }, d) => `for (Int i${d} = 0; i${d} < ${extent}; i${d}++) `).join("");
  const place = (tensor: Tensor): string =>
    printIndex(tensor.storage, (axis) => `i${tensor.dims.findIndex((d) => d.name === axis)}`);
  const pointers = (roles: readonly string[]): string =>
    parameters
      .filter((p) => roles.includes(p.role))
      .map((p) => `, (${p.role === "output" ? "" : "const "}${C_TYPES[p.tensor.dtype]}*)memory_${p.tensor.name}.data`)
      .join("");

  // 1. The equation, the size of its terms, and how many meet in one element.
  const structs = [
    referenceStruct("Sum", sum),
    ...(rule ? [referenceStruct("Magnitude", rule.magnitude)] : []),
    ...(rule && typeof rule.chain !== "number" ? [referenceStruct("Terms", rule.chain)] : []),
    ...(epilogue ? [referenceStruct("Finish", epilogue)] : []),
  ];

  // 2. A set of data: inputs drawn, the answer and how far off it may be.
  const drawing = [
    "/* Draws the inputs of one set and works out the answer. */",
    "static void prepare_set(Data data) {",
    ...[...inputs.map((t) => ["sum", t] as const), ...later.map((t) => ["finish", t] as const)].map(
      ([owner, t]) => `  ${owner}.data_${t.name}.fill(${elementCount(t)}, 0);`,
    ),
    `  sum.data_${target.name}.fill(${count}, 0);`,
    `  tolerance.fill(${count}, 0), low.fill(${count}, 0), high.fill(${count}, 0);`,
    `  for (double large = ${largestInput(sum)};; large = sqrt(large)) {`,
    ...inputs.map((t) => {
      const value = `draw<${t.dtype}>(data, large)`;
      const drawn = divides ? `not_small(${value})` : value;
      return `    for (Int i = 0; i < ${elementCount(t)}; i++) sum.data_${t.name}.set(i, ${drawn});`;
    }),
    "    sum.compute();",
    ...(rule
      ? [
          "    static Magnitude size;",
          ...Object.values(rule.magnitude.tensors).map((t) => `    size.data_${t.name}.fill(${elementCount(t)}, 0);`),
          ...inputs.map(
            (t) =>
              `    for (Int i = 0; i < ${elementCount(t)}; i++) size.data_${t.name}.set(i, fabs(double(sum.data_${t.name}[i])));`,
          ),
          "    size.compute();",
          ...(typeof rule.chain === "number"
            ? []
            : [
                "    static Terms terms;",
                ...Object.values(rule.chain.tensors).map(
                  (t) => `    terms.data_${t.name}.fill(${elementCount(t)}, 0);`,
                ),
                "    terms.compute();",
              ]),
          "    bool fits = true;",
          `    for (Int i = 0; i < ${count}; i++) {`,
          `      double most = size.data_${target.name}[i], value = double(sum.data_${target.name}[i]);`,
          `      fits = fits && most < ${rule.roof};`,
          `      bool exact = data == EXACT && ${rule.integral} && most <= ${rule.exactBelow} && value == __builtin_rint(value);`,
          `      double chain = ${typeof rule.chain === "number" ? rule.chain : `terms.data_${target.name}[i]`};`,
          `      tolerance.set(i, exact ? 0 : (chain + ${rule.operations + 1}) * (${rule.epsilon} * most + ${rule.smallest}));`,
          "    }",
          "    if (data == EXTREME && large > 2 && !fits) continue; /* such sums may leave their type */",
        ]
      : []),
    "    break;",
    "  }",
    ...(epilogue
      ? [
          "  double squares = 0;",
          `  for (Int i = 0; i < ${count}; i++) squares += double(sum.data_${target.name}[i]) / ${count} * double(sum.data_${target.name}[i]);`,
          "  double spread = squares > 0 ? sqrt(squares) : 1;",
          `  double aim = ${isInteger(output.dtype) ? (most - least) / 2 : "spread"}, ratio = ${isInteger(output.dtype) ? "aim / spread" : "1"};`,
          "  (void)aim, (void)ratio;",
          ...later.map(
            (t) =>
              `  for (Int i = 0; i < ${elementCount(t)}; i++) finish.data_${t.name}.set(i, draw_beside<${t.dtype}>(data, aim, ratio, ${factors.has(t.name)}, ${divisors.has(t.name)}));`,
          ),
          ...beside.filter((t) => !later.includes(t)).map((t) => `  finish.data_${t.name} = sum.data_${t.name};`),
          `  finish.data_${output.name}.fill(${elementCount(output)}, 0);`,
          `  finish.data_${target.name}.fill(${count}, 0);`,
          `  const double shares[] = {${SHARES.join(", ")}};`,
          "  for (double share : shares) {",
          `    for (Int i = 0; i < ${count}; i++) finish.data_${target.name}.set(i, sum.data_${target.name}[i] + ${isInteger(target.dtype) ? "Int" : "double"}((2 * share - 1) * tolerance[i]));`,
          "    finish.compute();",
          `    for (Int i = 0; i < ${count}; i++) {`,
          `      double value = double(finish.data_${output.name}[i]);`,
          "      if (share == 0 || value < low[i]) low.set(i, value);",
          "      if (share == 0 || value > high[i]) high.set(i, value);",
          "    }",
          ...(rule ? [] : ["    break; /* the sum is exact */"]),
          "  }",
        ]
      : [
          `  for (Int i = 0; i < ${count}; i++) {`,
          `    low.set(i, double(sum.data_${target.name}[i]) - tolerance[i]);`,
          `    high.set(i, double(sum.data_${target.name}[i]) + tolerance[i]);`,
          "  }",
        ]),
    "}",
  ];

  // 3. The package on that data, in memory it may not overstep.
  const running = [
    "/* Runs a plan on the set; false and a line when an element is wrong. */",
    `static bool run_set(${name}_plan* plan, const char* code, Data data, Place place) {`,
    ...parameters.map((p) => `  Guarded memory_${p.tensor.name}(${p.bytes}, place, ${p.bytes / p.elements});`),
    ...parameters
      .filter((p) => p.role !== "output")
      .flatMap(({ tensor }) => [
        "  {",
        `    Memory<${tensor.dtype}> to;`,
        `    to.data = (${C_TYPES[tensor.dtype]}*)memory_${tensor.name}.data;`,
        "    Int at = 0;",
        `    ${loops(tensor)}to.set(${place(tensor)}, ${held(tensor)}.data_${tensor.name}[at++]);`,
        "  }",
      ]),
    ...(constants.length > 0
      ? [`  if (int bad = ${name}_prepare(plan${pointers(["constant"])})) return failed(code, "prepare", bad);`]
      : []),
    "  /* Twice, so that what the first call leaves behind shows. */",
    "  for (int call = 0; call < 2; call++) {",
    `    memset(memory_${output.name}.data, call ? 0x5a : 0xa5, ${parameters.find((p) => p.role === "output")?.bytes});`,
    `    if (int bad = ${name}_run(plan${pointers(["input", "output"])})) return failed(code, "run", bad);`,
    `    Memory<${output.dtype}> got;`,
    `    got.data = (${C_TYPES[output.dtype]}*)memory_${output.name}.data;`,
    "    Int at = 0;",
    `    ${loops(output)}{`,
    `      double value = double(got[${place(output)}]);`,
    "      if (!(value >= low[at] && value <= high[at])) {",
    `        printf("${name} %s: %s data: element ${output.dims.map((d) => `${d.name} %d`).join(", ")} of ${output.name} is %.9g, the equation gives ", code, DATA_NAMES[data]${output.dims.map((_, d) => `, int(i${d})`).join("")}, value);`,
    '        if (low[at] == high[at]) printf("%.9g\\n", low[at]);',
    '        else printf("%.9g to %.9g\\n", low[at], high[at]);',
    "        return false;",
    "      }",
    "      at++;",
    "    }",
    "  }",
    "  return true;",
    "}",
  ];

  const sets = isInteger(target.dtype) ? "RANDOM, EXTREME" : "EXACT, RANDOM, EXTREME";
  return [
    comment([
      `Proves ${name}: every element against the equation by plain loops, on random and extreme data, in guarded memory.`,
      "",
      `  build/${name}_test [seed]      exit code 0: right, 1: wrong, 2: it could not be tried`,
      "",
      "Floats may differ from the loops by (terms + operations + 1) * (epsilon * sum of |terms| + smallest normal number): a bound",
      "for any order of summation, with or without fused multiply-adds (Higham, Accuracy and Stability, section 4.2).",
    ]),
    `#include "${name}.h"`,
    "",
    harnessText("arithmetic.h"),
    assetText("memory.h"),
    harnessText("elements.h"),
    assetText("self-test.h"),
    ...structs,
    "",
    "static Sum sum;",
    ...(epilogue ? ["static Finish finish;"] : []),
    "static Elements<double> tolerance, low, high;",
    ...(divides
      ? [
          "static double not_small(double x) { return fabs(x) < 0.5 ? 1 : x; } /* quotients of nothing are not numbers */",
        ]
      : []),
    "",
    ...drawing,
    "",
    "static bool failed(const char* code, const char* what, int code_given) {",
    `  printf("${name} %s: %s: %s\\n", code, what, ${name}_message(code_given));`,
    "  return false;",
    "}",
    "",
    ...running,
    "",
    "int main(int, char** words) {",
    "  random_state = words[0] && words[1] ? strtoull(words[1], nullptr, 0) : 1;",
    `  const char* const names[] = {"", "tuned", "portable"};`,
    `  ${name}_plan* plans[3] = {};`,
    "  bool right[3] = {true, true, true};",
    ...(tuned
      ? [
          `  if (*${name}_missing()) printf("${name} tuned: not tried: this machine lacks %s\\n", ${name}_missing());`,
          `  else if (int bad = ${name}_create(&plans[1], ${upper}_TUNED)) return failed("tuned", "create", bad), 2;`,
        ]
      : []),
    `  if (int bad = ${name}_create(&plans[2], ${upper}_PORTABLE)) return failed("portable", "create", bad), 2;`,
    "  const Place places[] = {FIRST, LAST, UNALIGNED};",
    `  const Data sets[] = {${sets}};`,
    "  for (Data data : sets) {",
    "    prepare_set(data);",
    "    for (int which = 1; which <= 2; which++)",
    "      for (Place place : places)",
    "        if (plans[which] && right[which] && !run_set(plans[which], names[which], data, place)) right[which] = false;",
    "  }",
    "  for (int which = 1; which <= 2; which++) {",
    `    if (plans[which] && right[which]) printf("${name} %s: right on ${isInteger(target.dtype) ? "" : "exact, "}random and extreme data\\n", names[which]);`,
    `    ${name}_destroy(plans[which]);`,
    "  }",
    "  return right[1] && right[2] ? 0 : 1;",
    "}",
    "",
  ].join("\n");
}
