/**
 * @file Prints a loop nest as C for Metal: one self-contained source whose kernels take buffer surfaces, for Xe-HPG and
 * later; for Gen9 with what cm-memory.ts changes.
 *
 *     for (int step = cm_group_id(0); step < 448; step += cm_group_count(0)) {         for parallel p in 0..56, q_outer in 0..8
 *       const int p = step / 8, q_outer = step % 8;
 *       c0 = 0;                                                                       c{0} <- identity
 *       b0 = load_rows<int, 8, 8>(workspace, (w_tiled + 128 * r) * 1, 32);             b{0} <- w_tiled[128*r]
 *       c0 = cm_dpas<CM_PRECISION_S8, CM_PRECISION_U8, 8, 8>(c0, b0, a0);             c{0} <- dpas(a{0}, b{0})
 *
 * A thread of the nest is a thread group with one thread. It executes innermost scalar loops sixteen lanes at a time.
 * Its own memory is shared local memory; buffers of the workspace are parts of one surface. Emulation:
 * runtime/emulation/cm.h.
 */

import type { Extents } from "../../abstraction/affine.ts";
import { present, upTo } from "../../abstraction/collections.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { internal } from "../../abstraction/error.ts";
import type { Intrinsic } from "../../abstraction/intrinsic.ts";
import type { Kernel, Launch } from "../../abstraction/kernel.ts";
import type { LoopNest, Statement } from "../../abstraction/loop-nest.ts";
import {
  axisName,
  block,
  type Code,
  code,
  list,
  namesIn,
  skeleton,
  spell,
  tensorName,
} from "../../abstraction/source-text.ts";
import { argumentsOf, headOf, intrinsicLine, ownPrelude, type SourceNotes, workspaceOf } from "../cpp/cpp-frame.ts";
import { calledIn, type Helpers, helpersOf, replacedBy } from "../cpp/cpp-helpers.ts";
import { dealtTo } from "../subgroup/subgroup-tasks.ts";
import { type Loop, namedIn, type Of, phasesOf } from "../walk.ts";
import { CM_HELPERS } from "./cm-helpers.ts";
import { CM_LANES, CM_MEMORY, checkGen9, GEN9_MEMORY } from "./cm-memory.ts";
import { CmSurfaces, ONLY } from "./cm-surfaces.ts";
import { lanesName, WORKSPACE } from "./cm-values.ts";

const NUMBERS = code`lane_numbers`;
const HELPERS: Helpers = replacedBy({ ...CM_HELPERS, ...CM_MEMORY }, helpersOf("_GENX_ inline"));
const GEN9_HELPERS: Helpers = replacedBy({ ...CM_HELPERS, ...GEN9_MEMORY }, HELPERS);

/** The kernels of a scheduled nest. @throws UsageError for what CM cannot express */
export function generateCm(computation: Computation, intrinsic: Intrinsic, nest: LoopNest, notes: SourceNotes): Kernel {
  return new CmWriter(computation, nest).kernel(intrinsic, notes);
}

class CmWriter extends CmSurfaces {
  kernel(intrinsic: Intrinsic, notes: SourceNotes): Kernel {
    const { computation } = this.c;
    const phases = phasesOf(this.nest.body);
    const kernels = present([
      this.nest.prepare.length > 0 && this.kernelFunction(code`automap_prepare`, this.nest.prepare, true),
      ...phases.map((phase, i) => this.kernelFunction(code`automap_phase_${i}`, phase, false)),
    ]);
    const text = kernels.map((k) => k.text);
    const isGen9 = intrinsic.isa === "gen9";
    if (isGen9) checkGen9(computation, this.nest);
    const source = code`${headOf(computation, [intrinsicLine(intrinsic), ...notes.lines])}
#include <cm/cm.h>

static const uint ${NUMBERS}[${CM_LANES}] = {${list(upTo(CM_LANES).map((i) => code`${i}`))}};
${ownPrelude(intrinsic)}
${calledIn(text, isGen9 ? GEN9_HELPERS : HELPERS)}

${text}`;
    return {
      language: "cm",
      source: spell(source, "cm"),
      features: intrinsic.features,
      promises: intrinsic.mnemonic,
      arguments: argumentsOf(computation),
      launches: kernels.map((k) => k.launch),
      workspaceBytes: workspaceOf(this.nest).bytes,
    };
  }

  private kernelFunction(
    name: Code,
    body: readonly Statement[],
    once: boolean,
  ): { readonly text: Code; readonly launch: Launch } {
    const named = namedIn(body, this.nest);
    const text = this.bodyOf(body);
    const tensors = Object.keys(this.c.computation.tensors).filter((t) => named.memory.has(t));
    const workspace = workspaceOf(this.nest).buffers.some((b) => named.memory.has(b.name));
    const groups = once ? 1 : dealtTo(body, this.tasks);
    const surfaces = present([workspace && WORKSPACE, ...tensors.map((t) => tensorName(t))]);
    const parameters = surfaces.map((s) => code`SurfaceIndex ${s} [[type("buffer_t")]]`);
    const kernel = code`/* ${groups} thread groups of one thread${once ? ". Runs once, before the first call" : ""}. */
extern "C" _GENX_MAIN_ void ${name}(${list(parameters)}) {
  const int part = cm_group_id(0), parts = cm_group_count(0);
  ${this.declarations(named, namesIn(text))}
  ${text}
}
`;
    const launch: Launch = {
      function: skeleton(name),
      groups,
      arguments: tensors,
      ...(workspace && { workspace }),
      ...(once && { once }),
    };
    return { text: kernel, launch };
  }

  // ---- loops ------------------------------------------------------------------------------------------------------------------

  protected override sharedLoop({ axis, extent }: Loop, body: () => Code[]): Code[] {
    const name = axisName(axis);
    const numbers = lanesName(axis);
    const active = extent % CM_LANES === 0 ? undefined : code`${numbers.with("_inside")}`;
    return block(code`for (int ${name} = 0; ${name} < ${extent}; ${name} += ${CM_LANES}) {`, [
      code`vector<int, 16> ${numbers}(${NUMBERS});`,
      code`${numbers} += ${name};`,
      active && code`vector<ushort, 16> ${active} = ${numbers} < ${extent};`,
      ...this.c.within({ axis, active }, body),
    ]);
  }

  /** Fences, after which this thread reads what it has written. */
  protected override barriersOf(buffers: readonly string[]): Code[] {
    return present([
      buffers.some((b) => !this.c.isOwn(b)) && code`cm_fence();`,
      buffers.some((b) => this.c.isOwn(b)) && code`cm_slm_fence(CM_GLOBAL_COHERENT_FENCE);`,
    ]);
  }

  protected override bounded(helper: "at_least" | "at_most", bound: Code, other: Code): Code {
    const op = helper === "at_least" ? ">" : "<";
    return code`((${bound}) ${op} ${other} ? (${bound}) : ${other})`;
  }

  // ---- scalars ----------------------------------------------------------------------------------------------------------------

  protected override onOneLane(print: () => Code[]): Code[] {
    return this.c.within({ axis: undefined, active: code`${ONLY}` }, print);
  }

  protected override assigned({ equation }: Of<"scalar">, extents: Extents): Code[] {
    const { target, op, value, where } = equation;
    if (op !== "=") internal(`a scheduled nest assigns, it does not ${op}`);
    const dtype = this.c.dtypes[target.tensor] ?? "f32";
    const place = this.c.placeOf(target, extents);
    const active = this.c.mask(present([where, ...place.guards]), extents) ?? code`vector<ushort, 16>(1)`;
    const at = this.c.laneIndex(place.at, extents);
    const stored = this.c.stored(value, dtype, extents);
    return [this.c.scattered(target.tensor, at, stored, active)];
  }
}
