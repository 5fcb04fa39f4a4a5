/**
 * @file The designs of an array and what each costs: how many transforms there are, every design with its figures, those that none beats, forms with a
 * loop split by phase, and predictions on three machines. Long lists are told by their first designs and a hash of all.
 *
 *     vitest run test/mapper/golden-arrays.test.ts --update       after a change that is meant
 */

import { expect, it } from "vitest";
import { arrayPass } from "../../mapper/space-time/derive.ts";
import type { Design } from "../../mapper/space-time/design.ts";
import { countTransforms, designSpace, enumerateDesigns, symmetriesOf } from "../../mapper/space-time/enumerate.ts";
import { paretoSet } from "../../mapper/space-time/pareto.ts";
import { polyphaseForm } from "../../mapper/space-time/polyphase.ts";
import { type ArrayProblem, printReuse } from "../../mapper/space-time/problem.ts";
import { printMatrix } from "../../mapper/space-time/vector.ts";
import { predictDesign } from "../../perfmodel/design.ts";
import { LANE_TARGETS } from "../../targets/lanes.ts";
import { inOrder } from "../support/arrays.ts";
import { hashOf } from "../support/machines.ts";
import { stated } from "../support/subjects.ts";

const CONV1D = "z[c] += x[c+q] * w[q] --c 16 --q 5";
const GEMM = "c[i,j] += a[i,k] * b[k,j] --i 16 --j 16 --k 16";
/** One row of outputs: c output column, p filter row, q filter column. */
const CONV2D = "z[c] += x[p,c+q] * w[p,q] --c 16 --p 5 --q 5";

/** Equations; rows of the array, and largest entry of a transform; whether sums are formed in the order written. */
const CASES: readonly (readonly [line: string, arrayRows: number, bound: number, isInOrder?: boolean])[] = [
  [CONV1D, 1, 1],
  [CONV1D, 1, 2],
  [CONV1D, 1, 2, true],
  ["z[c] += x[c*2+q] * w[q] --c 16 --q 5", 1, 2],
  [GEMM, 2, 1],
  [GEMM, 1, 1],
  [CONV2D, 2, 1],
  [CONV2D, 1, 1],
  [CONV2D, 1, 1, true],
  ["z[c,r] += x[c+2*q,r] * w[q] --c 6 --r 3 --q 4", 2, 1],
  ["y[i,j] = y[i-1,j] + x[i,j] --i 4 --j 6", 1, 2],
  ["c[i,j] = max(c[i-1,j], c[i,j-1]) + x[i,j] --i 8 --j 6", 1, 2],
];
/** Spaces too large to list, of which only the sizes are told. */
const COUNTED: readonly (readonly [line: string, arrayRows: number, bound: number])[] = [
  [GEMM, 2, 2],
  [GEMM, 1, 2],
  [CONV2D, 2, 2],
  [CONV2D, 1, 2],
  ["z[c,r] += x[r+p,c+q] * w[p,q] --c 16 --r 16 --p 5 --q 5", 2, 1],
];
const LISTED = 60;

const problemOf = (line: string): ArrayProblem => {
  const computation = stated(line);
  return arrayPass(computation, { loops: computation.axes.map((a) => a.name) }).problem;
};

/** `s.d/P.d` of each dependence, by operand. */
const movesOf = ({ flows }: Design): string =>
  flows
    .map((f) => f.variables.flatMap((v) => v.dependences.map((x) => `${x.steps}/${x.hop}`)).join(" ") || "-")
    .join(", ");

function designText(d: Design, problem: ArrayProblem): string {
  const { allocation, schedule } = d.spaceTime;
  const registers = `registers ${d.registers.plain} or ${d.registers.coalesced}`;
  const figures = `${d.shape} PEs, ${d.steps} steps, ${d.outturn.toFixed(3)} a step, ${(100 * d.utilisation).toFixed(1)} %`;
  const cycles = LANE_TARGETS.map((target) => {
    const { cycles, latencyCycles, sumCycles, chain } = predictDesign(d, problem, target);
    return `${[cycles, latencyCycles, sumCycles].map((n) => n.toPrecision(7)).join(" ")} ${chain.operand}`;
  });
  const moves = `moves ${movesOf(d)}, ${d.shuffleDistance} at most, ${d.boundaryLoads} loads`;
  return `${d.name} (${d.flowClass}) ${printMatrix([...allocation, ...schedule])} = ${d.schedule}: ${figures}, ${registers}, ${moves}; ${cycles.join("; ")}`;
}

/** Classes of flow, designs up to the problem's symmetries, and the halves that designs are put together from. */
function sizesOf(problem: ArrayProblem, arrayRows: number, bound: number): string {
  const space = designSpace(problem, { bound, arrayRows });
  const flows = space.pairs.map(({ array, time }) =>
    problem.operands.map((_, v) => `${array.side().operands[v]?.stay} ${time.side().operands[v]?.broadcast}`).join(),
  );
  const orbits =
    space.pairs.length < 1000
      ? `, ${new Set(space.orbits()).size} up to ${symmetriesOf(problem).length} symmetries`
      : "";
  return `${space.pairs.length} designs of ${space.arrays} arrays and ${space.times} times in ${new Set(flows).size} dataflows${orbits}`;
}

function* arrayText(line: string, arrayRows: number, bound: number, isInOrder = false): Generator<string> {
  const free = problemOf(line);
  const problem = isInOrder ? inOrder(free) : free;
  const { designs, refused, count } = enumerateDesigns(problem, { bound, arrayRows });
  yield `${line}${isInOrder ? ", sums in order" : ""}: ${arrayRows} rows, entries up to ${bound}`;
  yield `  ${printReuse(problem)}`;
  yield `  ${sizesOf(problem, arrayRows, bound)}, ${JSON.stringify(count)}, ${refused.length} refused`;
  const told = designs.map((d) => designText(d, problem));
  yield* told.slice(0, LISTED).map((text) => `    ${text}`);
  yield `  all ${hashOf(told.join())}, best ${paretoSet(designs)
    .map((d) => d.name)
    .join(" ")}`;
  const computation = stated(line);
  const pass = arrayPass(computation, { loops: computation.axes.map((a) => a.name) });
  for (const { design } of isInOrder ? [] : designs.flatMap((d) => polyphaseForm(pass, d) ?? []).slice(0, 6))
    yield `    by phase of ${design.split?.loop}: ${design.name} ${JSON.stringify(design.spaceTime)} ${design.pes} PEs, ${design.steps} steps, ${design.utilisation.toFixed(6)}`;
}

it("designs and their figures are those of the golden file", async () => {
  const listed = CASES.flatMap((one) => [...arrayText(...one)]);
  const counted = COUNTED.map(([line, rows, bound]) => {
    const problem = problemOf(line);
    const transforms = problem.loops.length > 3 ? "" : `, ${JSON.stringify(countTransforms(problem, bound, rows))}`;
    return `${line}: ${rows} rows, entries up to ${bound}\n  ${sizesOf(problem, rows, bound)}${transforms}`;
  });
  await expect(`${[...listed, ...counted].join("\n")}\n`).toMatchFileSnapshot("../golden/arrays.txt");
});
