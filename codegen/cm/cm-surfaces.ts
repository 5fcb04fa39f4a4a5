/**
 * @file The storage of kernels of mappings in C for Metal: tensors and buffers in surfaces, a thread's own memory in
 * shared local memory, tiles in registers.
 *
 *     const int w_tiled = 4096; // of workspace                          buffer w_tiled: s8[...] in workspace
 *     const uint c_results = cm_slm_alloc(512);                           buffer c_results: s32[128] of a thread
 *     b0 = load_rows<int, 1, 64>(workspace, w_tiled + 256 * r, 256);      b{0} <- w_tiled[256*r]
 */

import type { Extents } from "../../abstraction/affine.ts";
import type { Computation } from "../../abstraction/computation.ts";
import { bytesOf } from "../../abstraction/dtype.ts";
import { internal, UsageError } from "../../abstraction/error.ts";
import type { LoopNest, Scratch } from "../../abstraction/loop-nest.ts";
import { dwordRows } from "../../abstraction/memory-tile.ts";
import { type Code, code, Name, tensorName } from "../../abstraction/source-text.ts";
import { argumentsOf, workspaceOf } from "../cpp/cpp-frame.ts";
import { divisorOf } from "../short-index.ts";
import { SubgroupWriter } from "../subgroup/subgroup.ts";
import type { Named, Of } from "../walk.ts";
import { CM_LANES } from "./cm-memory.ts";
import { CM_WORDS, CmValues, WORKSPACE } from "./cm-values.ts";

/** A surface holds fewer bytes than this, since lane indices are signed. */
const SURFACE_BYTES = 2 ** 31;
/** The most shared local memory of a thread group. Intel oneAPI GPU Optimization Guide, Xe GPU Architecture. */
const SLM_BYTES = 64 * 1024;
const CACHE_LINE = 64;

/** The mask of the first lane. */
export const ONLY = new Name("local", "first_lane");

export abstract class CmSurfaces extends SubgroupWriter {
  protected override readonly c: CmValues;

  /** @throws UsageError for more than a surface or shared local memory holds */
  constructor(computation: Computation, nest: LoopNest) {
    const c = new CmValues(computation, nest, CM_WORDS);
    super(CM_LANES, c);
    this.c = c;
    checkSizes(computation, nest);
  }

  /**
   * Declares buffers as offsets in the workspace, a thread's own memory as offsets in shared local memory, and
   * registers.
   */
  protected declarations(named: Named, mentioned: ReadonlySet<string>): Code[] {
    const { buffers } = workspaceOf(this.nest);
    const own = this.nest.scratch.filter((s) => s.scope === "local" && named.memory.has(s.name));
    return [
      ...sharedLocal(own),
      ...buffers
        .filter(({ name }) => mentioned.has(tensorName(name).id))
        .map(
          ({ name, dtype, offset }) =>
            code`const int ${tensorName(name)} = ${offset / bytesOf(dtype)}; /* of ${WORKSPACE} */`,
        ),
      ...(mentioned.has(ONLY.id) ? [code`vector<ushort, 16> ${ONLY} = 0;`, code`${ONLY}(0) = 1;`] : []),
      ...this.registersOf(named),
    ];
  }

  move({ kind, register, memory }: Of<"load" | "store">, extents: Extents): Code[] {
    const { operand } = this.heldAt(register);
    const bytes = bytesOf(operand.dtype);
    const index = this.c.index(memory.base, extents);
    const isOwn = this.c.isOwn(memory.buffer);
    const ptr = isOwn
      ? code`${tensorName(memory.buffer)} + ${times(bytes, index)}`
      : code`${this.c.surface(memory.buffer)}, ${times(bytes, code`${this.c.from(memory.buffer)}${index}`)}`;
    const dword = 4;
    const isAligned = [divisorOf(memory.base, extents), memory.stride].every((n) => (n * bytes) % dword === 0);
    if (!isAligned && kind === "store") internal(`sums of ${register.file} lie at no multiple of four bytes`);
    const { rows, dwords, stride } = dwordRows(operand, memory.stride * bytes, isAligned);
    const by = code`${isAligned ? "" : "_of_bytes"}${isOwn ? "_slm" : ""}`;
    const moved = this.moved(kind, register, ptr, memory.stride, {
      by,
      rows: code`${rows}, ${dwords}`,
      stride: code`${stride}`,
    });
    return [moved];
  }
}

/** Bytes of a buffer in shared local memory: whole cache lines, so that the next one is aligned. */
const linesOf = (s: Scratch): number => CACHE_LINE * Math.ceil((s.elements * bytesOf(s.dtype)) / CACHE_LINE);

/** Declares buffers in shared local memory. A second `cm_slm_alloc` ends Intel's emulation, so all are parts of one allocation. */
function sharedLocal(own: readonly Scratch[]): Code[] {
  const [first] = own;
  if (!first) return [];
  const all = own.reduce((bytes, s) => bytes + linesOf(s), 0);
  let from = 0;
  return [
    code`cm_slm_init(${all});`,
    ...own.map((s) => {
      const place = s === first ? code`cm_slm_alloc(${all})` : code`${tensorName(first.name)} + ${from}`;
      from += linesOf(s);
      return code`const uint ${tensorName(s.name)} = ${place};`;
    }),
  ];
}

const times = (factor: number, text: Code): Code => (factor === 1 ? text : code`${factor} * (${text})`);

/** @throws UsageError for more than a surface or shared local memory holds */
export function checkSizes(computation: Computation, nest: LoopNest): void {
  const surfaces = [
    ...argumentsOf(computation).map((a) => ({ name: a.tensor, bytes: a.elements * bytesOf(a.dtype) })),
    { name: "the workspace", bytes: workspaceOf(nest).bytes },
  ];
  for (const { name, bytes } of surfaces)
    if (bytes >= SURFACE_BYTES)
      throw new UsageError(
        `CM: ${name} has ${bytes} bytes, and a buffer surface fewer than 2^31`,
        "choose smaller extents",
      );
  const own = nest.scratch.filter((s) => s.scope === "local");
  const bytes = own.reduce((all, s) => all + linesOf(s), 0);
  if (bytes > SLM_BYTES)
    throw new UsageError(
      `CM: a thread keeps ${bytes} bytes of its own, and shared local memory has ${SLM_BYTES}`,
      "choose a schedule with smaller blocks",
    );
}
