/**
 * @file The host program that runs a C for Metal kernel once, through the CM runtime (header `cm_rt.h`).
 *
 *     k.cm          kernels        cmc -march=... k.cm -o k.isa
 *     k.host.cpp    this           c++ k.host.cpp -ligfxcmrt -o k
 *                                  ./k k.isa out.bin in.bin w.bin
 *
 * Tensors are files with their elements in memory order. An emulated runtime needs a kernel's address beside its name,
 * so the kernels are declared.
 */

import { bytesOf } from "../../abstraction/dtype.ts";
import { internal } from "../../abstraction/error.ts";
import type { Kernel, Launch } from "../../abstraction/kernel.ts";
import {
  type Code,
  code,
  identifier,
  list,
  NOTHING,
  type SourceText,
  spell,
  stringLiteral,
} from "../../abstraction/source-text.ts";

const HELPERS = code`
#define MUST(call) must(call, #call)
static void must(int result, const char* what) {
  if (result == CM_SUCCESS) return;
  fprintf(stderr, "%s returned %d\\n", what, result);
  exit(1);
}

/* What a file holds: so many bytes, or, of the kernels, as many as there are. */
static std::vector<unsigned char> contents(const char* path, size_t bytes) {
  FILE* file = fopen(path, "rb");
  std::vector<unsigned char> held;
  for (int c; file && (c = fgetc(file)) != EOF;) held.push_back((unsigned char)c);
  if (!file || (bytes != 0 && held.size() != bytes)) {
    fprintf(stderr, "%s: cannot be read, or holds other than %zu bytes\\n", path, bytes);
    exit(1);
  }
  fclose(file);
  return held;
}

static CmDevice* device = nullptr;
static CmProgram* program = nullptr;
static CmQueue* queue = nullptr;

static CmBuffer* surface_of(const std::vector<unsigned char>& bytes) {
  CmBuffer* buffer = nullptr;
  MUST(device->CreateBuffer((unsigned)bytes.size(), buffer));
  MUST(buffer->WriteSurface(bytes.data(), nullptr));
  return buffer;
}

/* One kernel in so many thread groups of one thread, to its end. */
static void run(CmKernel* kernel, unsigned groups, const std::vector<CmBuffer*>& surfaces) {
  for (size_t i = 0; i < surfaces.size(); i++) {
    SurfaceIndex* index = nullptr;
    MUST(surfaces[i]->GetIndex(index));
    MUST(kernel->SetKernelArg((unsigned)i, sizeof(SurfaceIndex), index));
  }
  CmTask* task = nullptr;
  CmThreadGroupSpace* space = nullptr;
  CmEvent* event = nullptr;
  MUST(device->CreateTask(task));
  MUST(task->AddKernel(kernel));
  MUST(device->CreateThreadGroupSpace(1, 1, groups, 1, space));
  MUST(queue->EnqueueWithGroup(task, event, space));
  MUST(event->WaitForTaskFinished());
  MUST(queue->DestroyEvent(event));
  MUST(device->DestroyThreadGroupSpace(space));
  MUST(device->DestroyTask(task));
}
`;

const HEAD = code`/* Runs the kernels once. cm_rt.h is the header of the CM runtime, igfxcmrt its library. */`;
/** The first line of every host program. A file that begins otherwise was not written by automap. */
export const CM_HOST_HEAD: string = spell(HEAD, "c++");

/** The text of the host program. @throws Error for a kernel in another language */
export function cmHost({ arguments: tensors, launches, workspaceBytes }: Kernel): SourceText {
  if (!launches) internal("only kernels in CM have this host program");
  const files = tensors.map((t) => t.tensor);
  const usage = `usage: %s kernels.isa ${files.map((name) => `${name}.bin`).join(" ")}\n`;
  const declared = launches.map(
    (l) => code`extern "C" void ${identifier(l.function)}(${list(surfacesOf(l).map(() => code`SurfaceIndex`))});`,
  );
  const surfaces = tensors.map(({ role, elements, dtype, tensor }, i) => {
    const bytes = elements * bytesOf(dtype);
    const held =
      role === "output" ? code`std::vector<unsigned char>(${bytes})` : code`contents(argv[${i + 2}], ${bytes})`;
    return code`surface_of(${held}), /* ${stringLiteral(tensor)} */`;
  });
  const workspace =
    workspaceBytes === undefined
      ? []
      : [code`CmBuffer* workspace = surface_of(std::vector<unsigned char>(${workspaceBytes})); /* starts as zeros */`];
  const text = code`${HEAD}
#include "cm_rt.h"
#include <stdio.h>
#include <stdlib.h>
#include <vector>

${declared}
${HELPERS}
int main(int argc, char** argv) {
  if (argc != ${tensors.length + 2}) return fprintf(stderr, ${stringLiteral(usage)}, argv[0]), 2;
  unsigned version = 0;
  MUST(CreateCmDevice(device, version));
  std::vector<unsigned char> isa = contents(argv[1], 0);
  MUST(device->LoadProgram(isa.data(), (unsigned)isa.size(), program));
  MUST(device->CreateQueue(queue));
  CmBuffer* tensors[] = {
    ${surfaces}
  };
  ${workspace}
  ${NOTHING}
  ${launches.flatMap((l, i) => calls(l, i, files))}
  ${NOTHING}
  std::vector<unsigned char> output(${tensors[0] ? tensors[0].elements * bytesOf(tensors[0].dtype) : 0});
  MUST(tensors[0]->ReadSurface(output.data(), nullptr));
  FILE* file = fopen(argv[2], "wb");
  if (!file || fwrite(output.data(), 1, output.size(), file) != output.size() || fclose(file) != 0) {
    fprintf(stderr, "%s: cannot be written\\n", argv[2]);
    return 1;
  }
  MUST(DestroyCmDevice(device));
  return 0;
}
`;
  return spell(text, "c++");
}

const surfacesOf = ({ workspace, arguments: names }: Launch): readonly (string | undefined)[] => [
  ...(workspace ? [undefined] : []),
  ...names,
];

function calls(launch: Launch, i: number, files: readonly string[]): Code[] {
  const surfaces = surfacesOf(launch).map((name) =>
    name === undefined ? code`workspace` : code`tensors[${files.indexOf(name)}]`,
  );
  const kernel = code`kernel_${i}`;
  return [
    ...(launch.once ? [code`/* Once, before the first call. */`] : []),
    code`CmKernel* ${kernel} = nullptr;`,
    code`MUST(device->CreateKernel(program, CM_KERNEL_FUNCTION(${identifier(launch.function)}), ${kernel}));`,
    code`run(${kernel}, ${launch.groups}, {${list(surfaces)}});`,
    code`MUST(device->DestroyKernel(${kernel}));`,
  ];
}
