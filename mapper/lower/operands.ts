/**
 * @file The memory from which a schedule loads operands (the tensor, a copy, or packed tiles), and the loops that fill the copies.
 *
 *     in padded          pack      for n, h, w, c: in_padded[...] <- in[...]             once a call; zeros around it stay
 *     w tiled            prepare   for k, c, n_inner, k_inner: b_tiles[...] <- w[...]    ahead of time: w is constant
 *     in within p/4      in the loop over p/4: in_padded[...] <- what its step reads     a copy a step, a thread
 *
 * Each gives the address of a tile for the current position of the loops.
 */

import type { Placement } from "../../abstraction/candidate.ts";
import { keptIn, type Tensor, tensorOf } from "../../abstraction/computation.ts";
import { type Access, access, axis, type Expr, number, plus, substitute, times } from "../../abstraction/expression.ts";
import type { Operand } from "../../abstraction/intrinsic.ts";
import type { Dimension } from "../../abstraction/layout.ts";
import { loop, type Statement } from "../../abstraction/loop-nest.ts";
import { tileElements, tileRowElements } from "../../abstraction/memory-tile.ts";
import { partsPackedIn, scheduledParts } from "../match/conditions.ts";
import { blockOf } from "../schedule/block.ts";
import { partialReach } from "../schedule/cache-tiles.ts";
import type { LoopDimension } from "../schedule/dimensions.ts";
import { type PaddedCopy, type Reach, reachExpr, reachInPlace, reachPadded, reachWindowed } from "../schedule/reach.ts";
import { type Around, copyWithin, type Moved, movedBy, STILL } from "../schedule/within.ts";
import { assign } from "./assign.ts";
import { copyParts } from "./copies.ts";
import type { Position } from "./operand-tiles.ts";
import { PackedTiles, type Parts, type Placed, type Tiles } from "./packed-tiles.ts";

export class OperandPlacement extends PackedTiles {
  place(operand: Operand): Placed {
    const bound = this.mapping.binding[operand.name];
    const placement = this.schedule.placement[operand.name];
    if (bound === undefined || placement === undefined) throw new Error(`internal: ${operand.name} is not placed`);
    if (placement === "tiled" || bound.kind !== "access") return this.placeTiled(operand, bound);
    const plain = this.placePlain(operand, bound, placement);
    const keepsOut = partsPackedIn(scheduledParts(this.problem), operand.name).length > 0;
    return keepsOut ? { ...plain, edges: this.placeTiled(operand, bound, true) } : plain;
  }

  /** Places an operand in the tensor itself, or in a copy made once a call. */
  private placePlain(operand: Operand, bound: Access, placement: Exclude<Placement, "tiled">): Placed {
    const { computation, mapping, dimensions } = this;
    const loaded = { mapping, operand, access: bound, dimensions };
    if (placement === "in-place") {
      const reach = reachInPlace(loaded);
      if (typeof reach === "string") throw new Error(`internal: ${reach}`);
      return this.reached(operand, bound.tensor, reach);
    }
    if (this.schedule.within?.[operand.name] !== undefined) return this.placeWithin(operand, bound);
    const reachCopy = placement === "padded" ? reachPadded : reachWindowed;
    const padded = reachCopy(loaded);
    if (typeof padded === "string") throw new Error(`internal: ${padded}`);
    const tensor = tensorOf(computation, bound.tensor);
    const buffer = this.allocate(this.copyName(tensor, operand), operand.dtype, padded.copy.elements);
    const walks = this.copyPadded(tensor, bound, padded.copy, buffer);
    this.packing(tensor.constant).push(...walks.flatMap(({ walk, body }) => this.dealt(walk, body)));
    return this.reached(operand, buffer, padded.reach);
  }

  /**
   * Places an operand in a copy that each step of a loop makes anew. Its borders differ from step to step, so they are
   * written too.
   */
  private placeWithin(operand: Operand, bound: Access): Placed {
    const found = copyWithin(this.mapping, this.schedule, operand.name, this.dimensions);
    if (typeof found === "string") throw new Error(`internal: ${found}`);
    const { copy, reach, around } = found;
    const tensor = tensorOf(this.computation, bound.tensor);
    const buffer = this.names.fresh(this.copyName(tensor, operand));
    this.scratch.push({ name: buffer, dtype: operand.dtype, elements: copy.elements, scope: "local" });
    const every = this.names.fresh(`${buffer}_zero`);
    this.zeros.push(loop(every, copy.elements, [assign(access(buffer, [axis(every)]), number(0))]));
    const name = this.schedule.within?.[operand.name] ?? "";
    const make = (parts: Parts, tiles: Tiles): readonly Statement[] => {
      const first = ({ dimension: d, of }: Around): Expr => {
        const block = of === "block" ? parts.get(d.name)?.outer : tiles.ranges.get(d.name)?.first;
        return times(block ?? 0, blockOf(this.schedule, d));
      };
      const written = this.copyPadded(tensor, bound, copy, buffer, movedBy(around, first));
      return written.flatMap(({ walk, body }) => this.alone(walk, body));
    };
    this.makeWithin(name, make);
    return this.reached(operand, buffer, reach, around);
  }

  /**
   * An operand at the affine position `reach` of a buffer.
   * @param around loops whose positions the buffer already accounts for
   */
  reached(operand: Operand, buffer: string, reach: Reach, around: readonly Around[] = []): Placed {
    const base = (at: Position): Expr =>
      reachExpr(reach, (name) => {
        const d = this.dimension(name);
        const { outer, inner, inTile } = at(d);
        const of = around.find((a) => a.dimension === d)?.of;
        if (of === "block") return inner;
        return plus(times(of === "tile" ? inTile : outer, blockOf(this.schedule, d)), inner);
      });
    return { operand, buffer, stride: reach.stride, base };
  }

  /**
   * Copies only what is inside the tensor; the border was zeroed once and stays. Dimensions that enclosing loops shift
   * are copied whole, with zeros for what is outside at this step.
   */
  private copyPadded(
    tensor: Tensor,
    bound: Access,
    copy: PaddedCopy,
    buffer: string,
    moved: Moved = STILL,
  ): readonly { readonly walk: readonly Dimension[]; readonly body: readonly Statement[] }[] {
    const counter = (name: string): string => this.names.fresh(`${name}_copy`);
    const at = ({ name, from }: { name: string; from: number }): Expr => plus(axis(counter(name)), from);
    return copyParts(tensor, bound, copy, moved).map(({ held, apart }) => {
      const values = new Map(apart.map((l) => [l.name, at(l)]));
      const place = [
        ...held.map((h) => ({ at: at({ name: h.name, from: h.from - h.low }), stride: h.stride })),
        ...apart.map((l) => ({ at: at(l), stride: l.stride })),
      ].reduce<Expr>((sum, { at, stride }) => plus(sum, times(at, stride)), number(0));
      const index = tensor.dims.map((d, i) => {
        const h = held.find((x) => x.name === d.name);
        const e = bound.index[i] ?? number(0);
        return moved.from(e, h ? at(h) : substitute(e, values, "index"));
      });
      const walk = [...held, ...apart].sort((a, b) => b.stride - a.stride);
      return {
        walk: walk.map(({ name, extent }) => ({ name: counter(name), extent })),
        body: [assign(access(buffer, [place]), access(tensor.name, index))],
      };
    });
  }

  /** `x_padded`. If both inputs read the same tensor, each has its own copy, and the second is `x_padded_b`. */
  private copyName({ name: tensor }: Tensor, { name: operand }: Operand): string {
    const name = `${tensor}_${this.schedule.placement[operand]}`;
    return this.scratch.some((s) => s.name === this.names.fresh(name)) ? `${name}_${operand}` : name;
  }

  /**
   * Places sums between passes: in the output, if it has the layout that the instruction stores; otherwise in packed
   * tiles.
   */
  placePartialSums(target: Operand): Placed {
    const { computation, mapping } = this;
    const spatial = keptIn(this.dimensions);
    const reach = partialReach(mapping, this.schedule);
    if (reach !== undefined) return this.reached(target, computation.equation.target.tensor, reach);
    const { elements, base } = this.layout(spatial, tileElements(target));
    const buffer = this.allocate(`${target.name}_partial`, target.dtype, elements);
    return { operand: target, buffer, stride: tileRowElements(target), base };
  }

  /** The copies that each step of a loop makes. */
  copiesWithin(loop: string, parts: Parts, tiles: Tiles): readonly Statement[] {
    return (this.within.get(loop) ?? []).flatMap((make) => make(parts, tiles));
  }

  dimension(name: string): LoopDimension {
    const found = this.dimensions.find((d) => d.name === name);
    if (!found) throw new Error(`internal: no dimension ${name}`);
    return found;
  }
}
