/**
 * @file The README of a network's package: what the library computes, how it is built, called and verified, and where it comes from.
 *
 *     readmeText(parts, spellingOf([networkHeader(parts)], ["c++"]))      # resnet18 ...
 */

import { unique } from "../../abstraction/collections.ts";
import {
  type Code,
  code,
  lines,
  list,
  markdownVerbatim,
  plainWord,
  type SourceText,
  type Spelling,
} from "../../abstraction/source-text.ts";
import { architectureName } from "../../targets/nvidia-gpu.ts";
import { capabilityText } from "../cuda/subject.ts";
import { namesOf } from "../subject.ts";
import { aboutParameters, parametersOf } from "./border.ts";
import { neededBy } from "./cuda-library.ts";
import type { NetworkParts } from "./subject.ts";

/** @param words spelling of the library's header, whose parameter names the README repeats */
export function readmeText(parts: NetworkParts, words: Spelling): SourceText {
  const { subject, steps, kernels } = parts;
  const { name } = namesOf(subject);
  const language = subject.gpu ? code`CUDA` : code`C++`;
  const calls = steps.filter(({ kernel }) => kernel !== undefined).length;
  const verbatim = (texts: readonly string[]): Code => lines(texts.map((text) => code`    ${markdownVerbatim(text)}`));
  const text = code`# ${name}

${verbatim(subject.provenance)}

A neural network as one library in ${language} with a C interface. Steps ${steps.length}, kernel calls ${calls}, different kernels ${kernels.length}. Inputs and outputs:

${verbatim(aboutParameters(parts))}

${subject.gpu ? onGpu(parts) : onCpu(parts)}
## Verify

    build/${name}_main INPUT... OUTPUT...

runs the network on files of raw elements; \`--keep FOLDER\` also writes the output of each step. \`automap network emit\` with \`--verify\` writes such a package,
builds it, and compares the output of every step with the step's equation. The head of each kernel's file says where that kernel comes from. A kernel of a
record was compared with its equation, element by element, before it was timed; a kernel that the model chose and plain loops were not run.
`;
  return words.finish(text);
}

function onCpu(parts: NetworkParts): Code {
  const { name, upper } = namesOf(parts.subject);
  const features = unique(parts.kernels.flatMap(({ tuned }) => tuned?.features ?? []));
  const needs =
    features.length === 0
      ? code`The kernels are plain C++ and run on every CPU.`
      : code`The kernels need ${list(features.map(plainWord))}; on a CPU without them \`${name}_create\` returns ${upper}_UNSUPPORTED.`;
  return code`## Build

    sh build.sh

or

    cmake -B build && cmake --build build

Only a C++ compiler is needed. ${needs}

## From C and C++

\`\`\`c
#include "${name}.h"

${name}_net* net;
if (${name}_create(&net, 0) != ${upper}_OK) return 1;
${name}_run(net, ${argumentsOf(parts)});   // as often as wanted
${name}_destroy(net);
\`\`\`

## From Node

\`\`\`js
import { load } from "./index.js";        // npm install gets koffi, which calls C

const net = load();
const outputs = net.run(inputs);          // typed arrays by name: index.d.ts has the names and types
net.close();
\`\`\`
`;
}

function onGpu(parts: NetworkParts): Code {
  const { name, upper } = namesOf(parts.subject);
  const { least, only } = neededBy(parts);
  const architecture = plainWord(architectureName(parts.subject.gpu?.capability ?? least));
  return code`## Build

    sh build.sh

or

    cmake -B build && cmake --build build

nvcc makes code for sm_${architecture}. The kernels run on GPUs of compute capability ${plainWord(capabilityText(least))} ${only ? "and no other" : "or later"}.

## From C and C++

\`\`\`c
#include "${name}.h"

${name}_net* net;
if (${name}_create(&net, 0) != ${upper}_OK) return 1;
${name}_run(net, ${argumentsOf(parts)}, stream);   // pointers of the device; ${name}_run_host takes those of the host
${name}_destroy(net);
\`\`\`

## From PyTorch

\`\`\`python
import ${name}_torch

net = ${name}_torch.Network()
outputs = net(*inputs)                    # contiguous tensors on the GPU, in the order above
\`\`\`
`;
}

const argumentsOf = (parts: NetworkParts): Code => list(parametersOf(parts).map((parameter) => parameter.name));
