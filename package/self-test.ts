/**
 * @file A program that tests a package on the machine it runs on: every element is compared with the equation, computed by plain loops.
 *
 *     $ build/conv2d_test
 *     conv2d tuned: random right, extreme right
 *     conv2d portable: random right, extreme right
 *
 * The data and the tolerance of floats are those of runtime/reference/verify.ts. What an epilogue may make of a float sum that is not known
 * exactly is asked of the epilogue itself, at the ends of the sum's interval and between; each of its operations keeps order on a
 * stretch, so that the ends of the stretches hold the results.
 */

import { hasName, present } from "../abstraction/collections.ts";
import {
  type Computation,
  elementCount,
  inputsOf,
  outputOf,
  type Tensor,
  targetOf,
} from "../abstraction/computation.ts";
import { isInteger, rangeOf } from "../abstraction/dtype.ts";
import { partsOf } from "../abstraction/epilogue.ts";
import { C_TYPES } from "../abstraction/kernel.ts";
import {
  apart,
  type Code,
  code,
  comment,
  formatText,
  join,
  lines,
  list,
  Name,
  NOTHING,
  type SourceText,
  spell,
} from "../abstraction/source-text.ts";
import { boundOfForm } from "../abstraction/winograd.ts";
import { decidingInputs } from "../runtime/reference/draw-inputs.ts";
import { boundRule } from "../runtime/reference/error-bound.ts";
import { largestInput } from "../runtime/reference/largest-input.ts";
import { boundText } from "../runtime/reference/reference-bounds.ts";
import { printIndex } from "../runtime/reference/reference-expressions.ts";
import { dataName, harnessText, referenceStruct } from "../runtime/reference/reference-source.ts";
import { tensorsBeside } from "../runtime/reference/value-facts.ts";
import { assetText } from "./portable.ts";
import { type EmitSubject, namesOf, parametersOf } from "./subject.ts";

/** Points of a sum's interval at which the epilogue is evaluated, as fractions of the way from its low end to its high end. */
const SHARES = [0, 0.25, 0.5, 0.75, 1] as const;

/** What the parts of the program share. */
function factsOf(subject: EmitSubject) {
  const { name, computation, tuned } = subject;
  const { sum, epilogue, beside: others } = partsOf(computation);
  const target = targetOf(sum);
  const inputs = inputsOf(sum);
  const beside = epilogue ? inputsOf(epilogue).filter((t) => t.name !== target.name) : [];
  return {
    ...namesOf(subject),
    /** The name, escaped for a printf format. */
    said: formatText(name),
    tuned: tuned !== undefined,
    parameters: parametersOf(computation),
    sum,
    epilogue,
    target,
    output: outputOf(computation),
    rule: boundRule(sum),
    form: tuned?.ofForm ? boundOfForm(computation) : undefined,
    inputs,
    beside,
    /** Inputs drawn for the epilogue: those the sum has not already read. */
    later: beside.filter((t) => !hasName(inputs, t.name)),
    /** What else the output holds, each part with the inputs that are drawn for it. */
    parts: others.map((part, i) => {
      const before = [...inputs, ...beside, ...others.slice(0, i).flatMap(inputsOf)];
      const drawn = inputsOf(part).filter((t) => !hasName(before, t.name));
      return { part, drawn, variable: code`beside_${i}`, type: code`Beside${i}` };
    }),
    divides: tensorsBeside("/", sum).size > 0,
    /** Elements of the sum, and of the output. */
    count: elementCount(target),
    results: elementCount(outputOf(computation)),
  };
}
type Facts = ReturnType<typeof factsOf>;

/** The variable that an input's values are drawn in. */
function holderOf({ inputs, parts }: Facts, tensor: Tensor): Code {
  const isIn = (tensors: readonly Tensor[]): boolean => hasName(tensors, tensor.name);
  if (isIn(inputs)) return code`sum`;
  return parts.find((p) => isIn(p.drawn))?.variable ?? code`finish`;
}

/** The array that holds a tensor as the package receives it. */
const memoryName = (tensor: Tensor): Name => new Name("tensor", `memory_${tensor.name}`, `memory of ${tensor.name}`);

/** Loops over the elements of a tensor, row-major. */
const loopsOver = (tensor: Tensor): Code =>
  join(tensor.dims.map(({ extent }, d) => code`for (Int i${d} = 0; i${d} < ${extent}; i${d}++) `));

const placeIn = (tensor: Tensor): Code =>
  printIndex(tensor.storage, (axis) => code`i${tensor.dims.findIndex((d) => d.name === axis)}`);

export function selfTestSource(subject: EmitSubject): SourceText {
  const facts = factsOf(subject);
  const { name, said, rule, sum, epilogue } = facts;
  const text = lines([
    comment([
      `Proves ${subject.name}: every element against the equation by plain loops, on random and extreme data, in guarded memory.`,
      "",
      `  build/${subject.name}_test [seed]      exit code 0: right, 4: wrong, 6: it could not be tried`,
      "",
      "Floats may differ from the loops by (terms + operations + 1) * (epsilon * sum of |terms| + smallest normal number): a bound",
      "for any order of summation, with or without fused multiply-adds (Higham, Accuracy and Stability, section 4.2).",
      ...(facts.form
        ? [`The tuned kernel sums fewer products (Winograd): ${facts.form.factor.toFixed(0)} times as much.`]
        : []),
    ]),
    code`#include "${name}.h"
`,
    apart(harnessText("arithmetic.h")),
    apart(harnessText("bounds.h")),
    apart(assetText("memory.h")),
    apart(harnessText("elements.h")),
    apart(assetText("self-test.h")),
    // The equation, the size of its terms, and how many meet in one element.
    referenceStruct(code`Sum`, sum),
    rule && !rule.growth && referenceStruct(code`Magnitude`, rule.magnitude),
    rule && typeof rule.chain !== "number" && referenceStruct(code`Terms`, rule.chain),
    epilogue && referenceStruct(code`Finish`, epilogue),
    ...facts.parts.map(({ type, part }) => referenceStruct(type, part)),
    code`
static Sum sum;`,
    epilogue && code`static Finish finish;`,
    ...facts.parts.map(({ type, variable }) => code`static ${type} ${variable};`),
    code`static Elements<double> tolerance, low, high;`,
    facts.divides &&
      code`static double not_small(double x) { return fabs(x) < 0.5 ? 1 : x; } /* keeps divisors away from zero */`,
    NOTHING,
    ...drawing(facts),
    code`
static bool failed(const char* code, const char* what, int code_given) {
  printf("${said} %s: %s: %s\\n", code, what, ${name}_message(code_given));
  return false;
}
`,
    ...running(facts),
    NOTHING,
    main(facts),
    NOTHING,
  ]);
  return spell(text, "c++");
}

/** Draws one data set: the inputs, the expected output and its tolerance. */
function drawing(facts: Facts): Code[] {
  const { inputs, later, target, count, results, sum, divides, epilogue, rule } = facts;
  const { time } = sum;
  const answer = dataName(target.name);
  const deciding = decidingInputs(sum);
  const drawn = inputs.map((t) => {
    // // Coefficients of time steps are drawn as in verify.ts.
    const isCoefficient = time !== undefined && t.name !== time.first;
    const ends = deciding.get(t.name);
    if (ends) {
      const one = code`between(${ends[0]}, ${ends[1]})`;
      return code`    for (Int i = 0; i < ${elementCount(t)}; i++) sum.${dataName(t.name)}.set(i, ${one});`;
    }
    const value = code`draw<${t.dtype}>(${isCoefficient ? code`data == EXTREME ? RANDOM : data` : code`data`}, large)`;
    const whole = divides ? code`not_small(${value})` : value;
    const scale = isCoefficient ? (rule?.growth?.scale ?? 1) : 1;
    const kept = scale === 1 ? whole : code`${whole} * (data == EXACT ? 1 : ${scale})`;
    return code`    for (Int i = 0; i < ${elementCount(t)}; i++) sum.${dataName(t.name)}.set(i, ${kept});`;
  });
  return present([
    code`/* Draws the inputs of one set and computes the answer. */`,
    time &&
      code`/* False when the rounding that is allowed, which steps may amplify, is as large as the spread of the answers: such a set proves nothing. */`,
    code`static ${time ? "bool" : "void"} prepare_set(Data data) {`,
    ...inputs.map((t) => code`  sum.${dataName(t.name)}.fill(${elementCount(t)}, 0);`),
    ...later.map((t) => code`  finish.${dataName(t.name)}.fill(${elementCount(t)}, 0);`),
    code`  sum.${answer}.fill(${count}, 0);
  tolerance.fill(${count}, 0), low.fill(${results}, 0), high.fill(${results}, 0);
  for (double large = ${largestInput(sum)};; large = sqrt(large)) {`,
    ...drawn,
    code`    sum.compute();`,
    ...tolerances(facts),
    code`    break;
  }`,
    ...(epilogue
      ? finishing(facts, epilogue)
      : [
          code`  for (Int i = 0; i < ${count}; i++) {
    low.set(i, double(sum.${answer}[i]) - tolerance[i]);
    high.set(i, double(sum.${answer}[i]) + tolerance[i]);
  }`,
        ]),
    time && telling(facts),
    code`}`,
  ]);
}

/** Whether the data would reveal wrong results: `tells` of verify.ts. */
function telling({ target, count }: Facts): Code {
  return code`  Spread all;
  for (Int i = 0; i < ${count}; i++) {
    const double value = double(sum.${dataName(target.name)}[i]);
    all.add({value, value, tolerance[i]});
  }
  return all.tells(${count});`;
}

/** The tolerance of a float sum, and whether sums of extreme inputs fit their type. */
function tolerances({ rule, form, inputs, target, count, sum }: Facts): Code[] {
  if (!rule) return [];
  const answer = dataName(target.name);
  const growth = sum.time && rule.growth;
  const first = dataName(sum.time?.first ?? target.name);
  const chain = typeof rule.chain === "number" ? code`${rule.chain}` : code`terms.${answer}[i]`;
  return [
    ...(growth
      ? [
          code`    double size = 0;
    for (Int i = 0; i < ${count}; i++) if (fabs(double(sum.${first}[i])) > size) size = fabs(double(sum.${first}[i]));
    size = data == EXACT ? ${growth.whole.factor} * size + ${growth.whole.offset} : ${growth.drawn.factor} * size + ${growth.drawn.offset};`,
        ]
      : [
          code`    static Magnitude size;`,
          ...Object.values(rule.magnitude.tensors).map(
            (t) => code`    size.${dataName(t.name)}.fill(${elementCount(t)}, 0);`,
          ),
          ...inputs.map((t) => {
            const data = dataName(t.name);
            const value = code`double(sum.${data}[i])`;
            return code`    for (Int i = 0; i < ${elementCount(t)}; i++) size.${data}.set(i, ${rule.absolute ? code`fabs(${value})` : value});`;
          }),
          code`    size.compute();`,
        ]),
    ...(typeof rule.chain === "number"
      ? []
      : [
          code`    static Terms terms;`,
          ...Object.values(rule.chain.tensors).map(
            (t) => code`    terms.${dataName(t.name)}.fill(${elementCount(t)}, 0);`,
          ),
          code`    terms.compute();`,
        ]),
    code`    bool fits = true;
    for (Int i = 0; i < ${count}; i++) {
      double most = ${growth ? code`size` : code`size.${answer}[i]`}, value = double(sum.${answer}[i]);
      fits = fits && most < ${rule.roof / (form?.growth ?? 1)};
      double off = ${boundText(rule)}.tolerance(${chain}, most, value, data == EXACT);
      tolerance.set(i, ${form ? code`off * ${form.factor} + (data == EXACT ? ${form.integer} : 0)` : code`off`});
    }
    if (data == EXTREME && large > 2 && !fits) continue; /* such sums may overflow their type */`,
  ];
}

const truth = (is: boolean): "true" | "false" => (is ? "true" : "false");

/** The epilogue's inputs, and its results over the interval of each sum. */
function finishing(facts: Facts, epilogue: NonNullable<Facts["epilogue"]>): Code[] {
  const { later, beside, parts, target, output, count, results, rule } = facts;
  const drawn = (holder: Code, part: Computation, tensors: readonly Tensor[]): Code[] => {
    const factors = tensorsBeside("*", part);
    const divisors = tensorsBeside("/", part);
    return tensors.map((t) => {
      const value = code`draw_beside<${t.dtype}>(data, aim, ratio, ${truth(factors.has(t.name))}, ${truth(divisors.has(t.name))})`;
      return code`  for (Int i = 0; i < ${elementCount(t)}; i++) ${holder}.${dataName(t.name)}.set(i, ${value});`;
    });
  };
  const [least, most] = rangeOf(output.dtype);
  const answer = dataName(target.name);
  const result = dataName(output.name);
  const whole = isInteger(output.dtype);
  return present([
    code`  double squares = 0;
  for (Int i = 0; i < ${count}; i++) squares += double(sum.${answer}[i]) / ${count} * double(sum.${answer}[i]);
  double spread = squares > 0 ? sqrt(squares) : 1;
  double aim = ${whole ? (most - least) / 2 : "spread"}, ratio = ${whole ? code`aim / spread` : code`1`};
  (void)aim, (void)ratio;`,
    ...drawn(code`finish`, epilogue, later),
    ...beside
      .filter((t) => !later.includes(t))
      .map((t) => code`  finish.${dataName(t.name)} = sum.${dataName(t.name)};`),
    ...parts.flatMap(({ part, variable, drawn: own }) => [
      ...own.map((t) => code`  ${variable}.${dataName(t.name)}.fill(${elementCount(t)}, 0);`),
      ...drawn(variable, part, own),
      ...inputsOf(part)
        .filter((t) => !own.includes(t))
        .map((t) => code`  ${variable}.${dataName(t.name)} = ${holderOf(facts, t)}.${dataName(t.name)};`),
      code`  ${variable}.${result}.fill(${results}, 0);
  ${variable}.compute();`,
    ]),
    code`  finish.${result}.fill(${results}, 0);
  finish.${answer}.fill(${count}, 0);
  const double shares[] = {${list(SHARES.map((share) => code`${share}`))}};
  for (double share : shares) {
    for (Int i = 0; i < ${count}; i++) finish.${answer}.set(i, sum.${answer}[i] + ${isInteger(target.dtype) ? "Int" : "double"}((2 * share - 1) * tolerance[i]));
    finish.compute();
    for (Int i = 0; i < ${results}; i++) {`,
    // No two parts assign the same element, and each leaves 0 in those of the others.
    code`      double value = ${join(
      [code`finish`, ...parts.map((p) => p.variable)].map((holder) => code`double(${holder}.${result}[i])`),
      code` + `,
    )};
      if (share == 0 || value < low[i]) low.set(i, value);
      if (share == 0 || value > high[i]) high.set(i, value);
    }`,
    !rule && code`    break; /* the sum is exact */`,
    code`  }`,
  ]);
}

/** Runs the package on that data, in memory guarded against writes out of bounds. */
function running(facts: Facts): Code[] {
  const { name, said, parameters, output } = facts;
  const pointers = (roles: readonly string[]): Code =>
    join(
      parameters
        .filter((p) => roles.includes(p.role))
        .map(
          ({ role, tensor }) =>
            code`, (${role === "output" ? "" : "const "}${C_TYPES[tensor.dtype]}*)${memoryName(tensor)}.data`,
        ),
    );
  const element = list([...output.dims.map((d) => code`${formatText(d.name)} %d`)]);
  const indices = join(output.dims.map((_, d) => code`, int(i${d})`));
  const bytes = parameters.find((p) => p.role === "output")?.bytes ?? 0;
  return present([
    code`/* Runs a plan on the set; false and a line when an element is wrong. */
static bool run_set(${name}_plan* plan, const char* code, Data data, Place place) {`,
    ...parameters.map((p) => code`  Guarded ${memoryName(p.tensor)}(${p.bytes}, place, ${p.bytes / p.elements});`),
    ...parameters
      .filter((p) => p.role !== "output")
      .map(
        ({ tensor }) => code`  {
    Memory<${tensor.dtype}> to;
    to.data = (${C_TYPES[tensor.dtype]}*)${memoryName(tensor)}.data;
    Int at = 0;
    ${loopsOver(tensor)}to.set(${placeIn(tensor)}, ${holderOf(facts, tensor)}.${dataName(tensor.name)}[at++]);
  }`,
      ),
    parameters.some((p) => p.role === "constant") &&
      code`  if (int bad = ${name}_prepare(plan${pointers(["constant"])})) return failed(code, "prepare", bad);`,
    code`  /* Twice, to reveal state that the first call leaves behind. */
  for (int call = 0; call < 2; call++) {
    memset(${memoryName(output)}.data, call ? 0x5a : 0xa5, ${bytes});
    if (int bad = ${name}_run(plan${pointers(["input", "output"])})) return failed(code, "run", bad);
    Memory<${output.dtype}> got;
    got.data = (${C_TYPES[output.dtype]}*)${memoryName(output)}.data;
    Int at = 0;
    ${loopsOver(output)}{
      double value = double(got[${placeIn(output)}]);
      if (!(value >= low[at] && value <= high[at])) {
        printf("${said} %s: %s data: element ${element} of ${formatText(output.name)} is %.9g, the equation gives ", code, DATA_NAMES[data]${indices}, value);
        if (low[at] == high[at]) printf("%.9g\\n", low[at]);
        else printf("%.9g to %.9g\\n", low[at], high[at]);
        return false;
      }
      at++;
    }
  }
  return true;
}`,
  ]);
}

function main({ name, said, upper, tuned, target, sum }: Facts): Code {
  const whole = isInteger(target.dtype);
  const { time } = sum;
  const tried = code`  if (*${name}_missing()) printf("${said} tuned: not tried: this machine lacks %s\\n", ${name}_missing());
  else if (int bad = ${name}_create(&plans[1], ${upper}_TUNED)) return failed("tuned", "create", bad), NOT_TRIED;
`;
  const prepared = time
    ? code`    if (!prepare_set(data)) {
      printf("${said}: %s data left out: rounding may differ by as much as the answers do\\n", DATA_NAMES[data]);
      continue;
    }
    told++;`
    : code`    prepare_set(data);`;
  return code`int main(int, char** words) {
  random_state = words[0] && words[1] ? strtoull(words[1], nullptr, 0) : 1;
  const char* const names[] = {"", "tuned", "portable"};
  ${name}_plan* plans[3] = {};
  bool right[3] = {true, true, true};
${tuned ? tried : NOTHING}  if (int bad = ${name}_create(&plans[2], ${upper}_PORTABLE)) return failed("portable", "create", bad), NOT_TRIED;
  const Place places[] = {FIRST, LAST, UNALIGNED};
  const Data sets[] = {${whole ? "RANDOM, EXTREME" : "EXACT, RANDOM, EXTREME"}};
${time ? code`  int told = 0;\n` : NOTHING}  for (Data data : sets) {
${prepared}
    for (int which = 1; which <= 2; which++)
      for (Place place : places)
        if (plans[which] && right[which] && !run_set(plans[which], names[which], data, place)) right[which] = false;
  }
${time ? code`  if (told == 0) return NOT_TRIED;\n` : NOTHING}  for (int which = 1; which <= 2; which++) {
    if (plans[which] && right[which]) printf("${said} %s: right on ${whole ? "" : "exact, "}random and extreme data\\n", names[which]);
    ${name}_destroy(plans[which]);
  }
  return right[1] && right[2] ? RIGHT : WRONG;
}`;
}
