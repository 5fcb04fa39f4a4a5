/**
 * @file The state of a network search: what each task may still gain, as the basis for dividing the time.
 *
 *     field.gainOf(state)      seconds of the network's time that another share for this task may save
 *     depthwise, 112 x 112     12.3 us now, 5.6 at the rate of the last cache: gains more than a product at 0.9 of the best rate
 */

import type { Computation } from "../../abstraction/computation.ts";
import { boundOfForm } from "../../abstraction/winograd.ts";
import type { Conditions } from "../../db/index.ts";
import type { Task } from "../../network/tasks.ts";

/** How much longer than it might take a task is taken to need while none of its kernels works. */
const UNKNOWN = 4;

/** How much faster than all kernels so far another may be: also than the fastest, so that a network of one product is searched on. */
const FASTER_YET = 1.25;

/** What is known of a task while the time is dealt. */
export interface State {
  readonly task: Task;
  readonly place: number;
  /** State of the caches in which its kernels are measured. */
  readonly cache: Conditions["cache"];
  searched: boolean;
  best: number | undefined;
  /** Shares in a row that saved little. */
  fruitless: number;
  /** Whether another share would measure nothing new. */
  over: boolean;
  failed?: string;
}

/** The states of all tasks. */
export class Field {
  private readonly states: readonly State[];
  private readonly floorOf: (computation: Computation) => number;

  /** @param floorOf seconds that no kernel of a computation goes below, whatever its rate of multiply-adds */
  constructor(states: readonly State[], floorOf: (computation: Computation) => number) {
    this.states = states;
    this.floorOf = floorOf;
  }

  /** Seconds of the network's time that another share may save. */
  gainOf(state: State): number {
    const { task, fruitless } = state;
    const saved = Math.max(0, this.secondsOf(state) - this.leastSecondsOf(task));
    return (task.steps.length * saved) / 2 ** fruitless;
  }

  /** Seconds of a task's best kernel, or what it is taken to need while none works. */
  secondsOf({ task, best }: State): number {
    return best ?? UNKNOWN * this.leastSecondsOf(task);
  }

  /**
   * Seconds of a task at a rate somewhat above the best that a kernel of any task like it has reached, but no less than its floor. While no kernel
   * works the floors alone count, or without floors the ratios of the tasks.
   */
  private leastSecondsOf({ computation, multiplyAdds }: Task): number {
    const rated = this.states.filter(({ best }) => best !== undefined);
    // Kernels with fewer products than the equation reach rates that no others do.
    const hasForm = (of: Computation): boolean => boundOfForm(of) !== undefined;
    const like = rated.filter(({ task }) => hasForm(task.computation) === hasForm(computation));
    const rates = (like.length > 0 ? like : rated).map(({ task, best }) => (best ? task.multiplyAdds / best : 0));
    const floor = this.floorOf(computation);
    const most = Math.max(0, ...rates);
    if (most === 0 && floor > 0) return floor;
    return Math.max(floor, multiplyAdds / ((most || 1) * FASTER_YET));
  }
}
