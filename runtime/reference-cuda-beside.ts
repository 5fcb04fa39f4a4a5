/**
 * @file Reference kernels on a device for elements that an epilogue assigns from inputs alone, besides the sums: one
 * thread for each element, which has a single accepted value.
 *
 *     z[b,k] = d[b,k]      struct Beside0 { at(b, k), place(b, k) }      __global__ void beside_0(Beside0 of, double* low, double* high)
 */

import { type Computation, inputsOf, type Tensor, targetOf } from "../abstraction/computation.ts";
import { axisName, type Code, code, lines, list } from "../abstraction/source-text.ts";
import { argumentsOf, bind, digitOf, held, parametersOf, THREADS } from "./reference-cuda-parts.ts";
import { printIndex, printValue } from "./reference-expressions.ts";
import { declareTensor, placeName } from "./reference-source.ts";

/** The kernel for one such assignment. */
export function besideKernel({ equation, axes, tensors }: Computation, output: Tensor, i: number): Code {
  const dtypes = Object.fromEntries(Object.values(tensors).map((t) => [t.name, t.dtype]));
  const points = axes.reduce((product, a) => product * a.extent, 1);
  const place = list(equation.target.index.map((e) => printIndex(e)));
  const inputs = Object.values(tensors).filter((t) => t.name !== output.name);
  return lines([
    code`struct Beside${i} {`,
    ...inputs.map((t) => declareTensor(t, 0, held(t, false))),
    code`  AUTOMAP_FUNCTION double at(${parametersOf(axes)}) const {`,
    code`    return double(${output.dtype}::wrap(${printValue(equation.value, dtypes, output.dtype)}));`,
    code`  }`,
    code`};`,
    code`__global__ void beside_${i}(Beside${i} of, double* low, double* high) {`,
    code`  const Int point = (Int)blockIdx.x * ${THREADS} + threadIdx.x;`,
    code`  if (point >= Int(${points})) return;`,
    ...axes.map((a, d) => code`  const Int ${axisName(a.name)} = ${digitOf(axes, d)};`),
    ...(equation.where === undefined ? [] : [code`  if (!${printIndex(equation.where)}) return;`]),
    code`  const Int place = Place().${placeName(output.name)}(${place});`,
    code`  if (place < 0) return;`,
    code`  low[place] = high[place] = of.at(${argumentsOf(axes)});`,
    code`}`,
  ]);
}

/** Its launch. @param tensors of the whole computation, in argument order */
export function besideLaunch(beside: Computation, tensors: readonly Tensor[], i: number): Code[] {
  const points = beside.axes.reduce((product, a) => product * a.extent, 1);
  const inputs = inputsOf(beside).filter((t) => t.name !== targetOf(beside).name);
  return [
    code`  Beside${i} beside_of_${i};`,
    ...bind(code`beside_of_${i}`, inputs, tensors),
    code`  void* given_${i}[] = {(void*)&beside_of_${i}, (void*)&low, (void*)&high};`,
    code`  const int error_${i} = (int)cudaLaunchKernel(beside_${i}, dim3(${Math.ceil(points / THREADS)}), dim3(${THREADS}), given_${i}, 0, stream);`,
    code`  if (error_${i} != 0) return error_${i};`,
  ];
}
