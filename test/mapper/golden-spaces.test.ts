/**
 * @file What a search chooses from and what the model says of it: for every computation and machine of a table the size of the space or why there is
 * none, and of candidates that a seed draws the predicted time, its parts, and the kernel by a hash. So a change of a space, a model, a lowering
 * or a printer shows here, be it on a candidate that no search likes; whether a kernel is right is the subject of other files.
 *
 *     vitest run test/mapper/golden-spaces.test.ts --update       after a change that is meant
 */

import { expect, it } from "vitest";
import { candidateKey } from "../../abstraction/candidate.ts";
import { attempt } from "../../abstraction/error.ts";
import type { Target } from "../../abstraction/machine.ts";
import { seededRandom } from "../../abstraction/random.ts";
import { finished } from "../../abstraction/steps.ts";
import { createTerms } from "../../perfmodel/model.ts";
import { modelTarget } from "../../perfmodel/target.ts";
import { chooseSpace, usableIntrinsics } from "../../session/kinds/choose.ts";
import { choiceOnGpu, costsOnGpu } from "../../session/kinds/gpu-kinds.ts";
import type { SessionSpace } from "../../session/kinds/session-space.ts";
import { createCounts } from "../support/counts.ts";
import { hashOf, machineNamed } from "../support/machines.ts";
import { stated } from "../support/subjects.ts";

type Drawn = ReturnType<SessionSpace["random"]>;

/** Candidates drawn of each space, and mutated once. */
const DRAWS = 8;
/** So many of them are printed, which takes longer than all predictions. */
const PRINTED = 3;
/** So many candidates of a space that can be listed are told by a hash of their predictions. */
const LISTED = 60;
/** Of so many mappings one is searched. */
const KEPT = 4;

/** Computations, and machines of which a part of the instructions may do, named by a regular expression. */
const SUBJECTS: readonly (readonly [line: string, ...on: string[]])[] = [
  ["matvec --m 40 --k 96 --dtype u8s8", "xeon", "v1 arm", "h100 dp4a|m16n8k32"],
  ["matmul --m 20 --n 40 --k 24", "xeon", "h100", "v1 sve256"],
  ["matmul --m 64 --n 64 --k 64 --dtype f16 --epilogue relu", "h100 wgmma|k16.f32", "dg2", "mali"],
  ["matmul --m 384 --n 512 --k 512 --dtype u8s8", "xeon vpdpbusd|amx"],
  ["grouped-fc --n 16 --i 32 --o 64 --groups 4 --dtype bf16", "xeon", "h100"],
  ["conv1d --n 2 --c 8 --k 16 --l 30 --r 3 --stride 2 --dtype f16", "h100 m16n8k8|thread", "xeon"],
  ["conv2d --c 3 --k 16 --h 8 --w 12 --r 3 --s 3 --stride 2 --pad 1", "xeon avx512.fma.f32.broadcast", "h100 thread"],
  [
    "conv2d --c 32 --k 32 --h 7 --w 7 --r 3 --s 3 --pad 1 --dtype u8s8 --layout NHWC --epilogue requantize",
    "xeon amx.tdpbusd",
    "xeon avx512.vpdpbusd.lanes",
  ],
  ["conv2d --n 2 --c 32 --k 64 --h 14 --w 14 --r 3 --s 3 --pad 1 --dtype f16 --layout NHWC", "h100 wgmma.m64n64k16"],
  [
    "conv2d --c 16 --k 32 --h 9 --w 9 --r 3 --s 3 --pad 2 --dilation 2 --dtype bf16 --layout NHWC",
    "xeon avx512.vdpbf16ps",
    "v1 sve256.bfmmla",
  ],
  ["conv2d --c 8 --k 8 --h 8 --w 8 --r 1 --s 1 --pad 0 --dtype f64", "xeon", "h100"],
  ["conv2d --c 64 --k 64 --h 28 --w 28 --r 1 --s 1 --pad 0 --dtype f16", "h100 mma.m16n8k16.f32.f16$"],
  ["grouped-conv2d --c 16 --k 16 --h 8 --w 18 --r 3 --s 3 --pad 1 --groups 4", "xeon groups4|avx2.fma.f32.broadcast"],
  ["depthwise-conv2d --c 16 --h 8 --w 10 --m 1 --r 3 --s 3 --layout NHWC", "xeon avx512.fma.f32$", "h100 thread"],
  ["transposed-conv2d --c 4 --k 8 --h 6 --w 6 --r 3 --s 3 --stride 2 --pad 1", "xeon avx2.fma.f32.broadcast"],
  ["conv2d-single --h 34 --w 64 --r 5 --s 5 --pad 2", "xeon avx512.fma.f32$", "h100"],
  ["conv2d-single --h 34 --w 64 --r 3 --s 3 --pad 1 --dtype s8", "xeon"],
  ["conv2d-single --h 34 --w 64 --r 3 --s 3 --pad 1 --dtype f16", "h100", "xeon"],
  ["conv3d --c 4 --k 8 --d 4 --h 6 --w 6", "xeon avx512.fma.f32.broadcast"],
  ["3d13pt --d 12 --h 16 --w 32", "xeon", "h100"],
  ["2d9pt --h 40 --w 64 --dtype f64", "xeon", "h100"],
  ["mean --n 2 --c 4 --h 8 --w 32", "xeon", "h100"],
  ["interaction --b 2 --v 6 --k 16 --dtype bf16", "xeon", "h100"],
  ["c[i,j] += f32(a[i,k]) * f32(b[k,j]) where j <= i and k <= i --i 32 --j 32 --k 32 --dtype f16", "h100", "xeon"],
  ["y[i,j] = max(x[i,j], 0) + b[j] --i 40 --j 72", "xeon"],
  ["y[i] max= x[i,j] --i 20 --j 50", "xeon", "h100"],
  ["u[t,i,j] = 0.5*u[t-1,i,j] + 0.25*u[t-1,i-1,j] + 0.25*u[t-1,i,j+1] --t 6 --i 30 --j 64", "xeon", "h100"],
  [
    "u[t,i,j,k] = 0.25*u[t-1,i,j,k] + 0.125*(u[t-1,i-1,j,k] + u[t-1,i+1,j,k] + u[t-1,i,j-1,k] + u[t-1,i,j+1,k] + u[t-1,i,j,k-1] + u[t-1,i,j,k+1]) --t 8 --i 20 --j 40 --k 64",
    "xeon",
    "h100",
  ],
  ["c[i,j] = max(c[i-1,j], c[i,j-1]) + x[i,j] --i 20 --j 40", "xeon", "h100"],
];

/** As many digits as processors agree in. */
const digits = (x: number): string => x.toPrecision(7);

/** The parts of a predicted time, in microseconds, and its traits. Only mappings have them: on a CPU, and on the blocks or threads of a GPU. */
function partsOf(space: SessionSpace, candidate: Drawn, machine: Target): string {
  const mapping = space.mappingOf(candidate);
  const costs = attempt(() => {
    if (candidate.kind === "mapping") return mapping && createTerms(mapping, modelTarget(machine))(candidate.schedule);
    if (candidate.kind !== "grid" && candidate.kind !== "threads") return undefined;
    return mapping && costsOnGpu(choiceOnGpu(mapping.computation, candidate, machine), machine);
  });
  const { terms = [], traits = [] } = costs ?? {};
  const counts = candidate.kind === "mapping" && mapping && createCounts(mapping)(candidate.schedule);
  const parts = terms.filter(({ seconds }) => seconds > 0).map((t) => `${t.name} ${digits(1e6 * t.seconds)}`);
  return [...parts, ...traits, ...(counts ? [JSON.stringify(counts)] : [])].join(", ");
}

function spaceText(line: string, on: string): string[] {
  const [name = "", rows = ""] = on.split(" ");
  const machine = machineNamed(name);
  const computation = stated(line);
  let turn = 0;
  const found = finished(
    chooseSpace(
      computation,
      usableIntrinsics(machine).filter((row) => new RegExp(rows).test(row.name)),
      { machine, threads: 2, seed: 1, keeps: () => turn++ % KEPT === 0 },
    ),
  );
  if ("refused" in found) return [`  ${on}:`, ...found.refused.map(({ rule, because }) => `    ${rule}: ${because}`)];
  const { space, chosen } = found;
  const { promising = [], representatives = [] } = space;
  const firsts = [promising.slice(0, 40), representatives].map(
    (list) => `${list.length} ${hashOf(list.map(candidateKey).join())}`,
  );
  const random = seededRandom(7);
  const first = Array.from({ length: DRAWS }, () => space.random(random));
  const crossed = first.map((c, i) => space.key(space.crossover(c, first[i - 1] ?? c, random)));
  const drawn = first.flatMap((c) => [c, space.mutate(c, random)]);
  const told = drawn.map((candidate, i) => {
    const seconds = space.predict(candidate)?.seconds ?? Number.NaN;
    const parts = partsOf(space, candidate, machine);
    const what = `${candidate.kind} ${candidate.intrinsic} ${hashOf(space.key(candidate))} ${space.codeSize?.(candidate) ?? ""}`;
    const kernel = i < PRINTED ? `, ${hashOf(space.kernelOf(candidate).source)}` : "";
    return `    ${what}: ${digits(1e6 * seconds)} us${kernel}${parts && `   ${parts}`}`;
  });
  const every = Math.ceil((space.size ?? 0) / LISTED);
  const listed = every === 0 ? [] : [...space.all()].filter((_, i) => i % every === 0);
  const all = hashOf(listed.map((c) => digits(space.predict(c)?.seconds ?? Number.NaN)).join());
  const head = `  ${on}: ${space.size} candidates on ${chosen.length} instructions, first ${firsts.join(", ")}, crossed ${hashOf(crossed.join())}, all ${all}`;
  return [head, ...new Set(told.sort())];
}

it("spaces, predictions and kernels are those of the golden file", async () => {
  const told = SUBJECTS.flatMap(([line, ...on]) => [line, ...on.flatMap((one) => spaceText(line, one))]);
  await expect(`${told.join("\n")}\n`).toMatchFileSnapshot("../golden/spaces.txt");
});
