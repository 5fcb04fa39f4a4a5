/**
 * @file The state of a network search: what each task may still gain, as the basis for dividing the time.
 *
 *     field.gainOf(state)      seconds of the network's time that another share for this task may save
 *     depthwise, 112 x 112     12.3 us now, 5.6 at the rate of the last cache: gains more than a product at 0.9 of the best rate
 */

import { type Computation, computationKey } from "../../abstraction/computation.ts";
import type { Conditions } from "../../db/index.ts";
import type { Form } from "../../network/forms.ts";
import type { Network } from "../../network/network.ts";
import type { Task } from "../../network/tasks.ts";
import { expectedSeconds, type FormCosts, type Forms, inBestForms, levelOfWeights, secondsOfForm } from "./forms.ts";

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
  beaten: boolean;
  best: number | undefined;
  /** Shares in a row that saved little. */
  fruitless: number;
  /** Whether another share would measure nothing new. */
  over: boolean;
  failed?: string;
}

/** The state of the tasks of all forms, and the tasks that the network would use now. */
export class Field {
  private readonly program: Network;
  private readonly forms: Forms;
  private readonly states: ReadonlyMap<string, State>;
  private readonly costs: FormCosts;
  private readonly floorOf: (computation: Computation) => number;

  /** @param floorOf seconds that no kernel of a computation goes below, whatever its rate of multiply-adds; 0 when left out */
  constructor(
    program: Network,
    forms: Forms,
    states: readonly State[],
    rates: Pick<FormCosts, "target" | "threads">,
    floorOf: (computation: Computation) => number = () => 0,
  ) {
    this.program = program;
    this.forms = forms;
    this.states = new Map(states.map((state) => [computationKey(state.task.computation), state]));
    this.costs = {
      secondsOf: (computation) => this.stateOf(computation)?.best,
      isFlushed: (computation) => this.stateOf(computation)?.cache === "flushed",
      ...rates,
    };
    this.floorOf = floorOf;
  }

  /** Whether it belongs to a form other than a step's own equation. */
  isOfForm({ task }: State): boolean {
    return task.steps.every((step) => !this.program.steps.includes(step));
  }

  inUse(): ReadonlySet<State> {
    const { steps } = inBestForms(this.program, this.forms, this.costs);
    // Chains stand for several steps.
    const chains = [...this.states.values()].filter(({ task }) => task.computation.program);
    return new Set([...steps.flatMap(({ computation }) => this.stateOf(computation) ?? []), ...chains]);
  }

  /**
   * Whether each step of a task has another form that is faster than the task could be: at a rate somewhat above the best that any kernel has
   * reached, and by the model.
   */
  isBeaten({ task }: State): boolean {
    const weights = levelOfWeights(this.program, this.costs.target);
    const others = task.steps.map((step) => {
      const forms = (this.forms.get(step) ?? []).filter((form) => !form.includes(step));
      return Math.min(...forms.map((form) => secondsOfForm(form, this.costs, weights) ?? Number.POSITIVE_INFINITY));
    });
    const slowest = Math.max(...others);
    if (slowest >= this.leastSecondsOf(task)) return false;
    return slowest < (expectedSeconds(task.computation, this.costs.threads) ?? Number.POSITIVE_INFINITY);
  }

  /** Seconds of the network's time that another share may save: in steps of its own, and in those that have it as a form. */
  gainOf(state: State): number {
    const { task, fruitless } = state;
    const least = this.leastSecondsOf(task);
    const weights = levelOfWeights(this.program, this.costs.target);
    const secondsIn = (form: Form, costs: FormCosts): number =>
      secondsOfForm(form, costs, weights) ?? Number.POSITIVE_INFINITY;
    const hoped: FormCosts = {
      ...this.costs,
      secondsOf: (computation) => (this.stateOf(computation) === state ? least : this.costs.secondsOf(computation)),
    };
    let gain = 0;
    let steps = task.steps.length;
    for (const [, forms] of this.forms) {
      const own = forms.find((form) => form.some((step) => task.steps.includes(step)));
      if (!own) continue;
      steps--;
      const now = Math.min(...forms.map((form) => secondsIn(form, this.costs)));
      const then = secondsIn(own, hoped);
      gain += now === Number.POSITIVE_INFINITY ? this.secondsOf(state) - least : Math.max(0, now - then);
    }
    return (gain + steps * Math.max(0, this.secondsOf(state) - least)) / 2 ** fruitless;
  }

  /** Seconds of a task's best kernel, or what it is taken to need while none works. */
  secondsOf({ task, best }: State): number {
    return best ?? UNKNOWN * this.leastSecondsOf(task);
  }

  /**
   * Seconds of a task at a rate somewhat above the best that a kernel of any has reached, but no less than its floor. While no kernel works the
   * floors alone count, or without floors the ratios of the tasks.
   */
  private leastSecondsOf({ computation, multiplyAdds }: Task): number {
    const rates = [...this.states.values()].map(({ task, best }) => (best ? task.multiplyAdds / best : 0));
    const floor = this.floorOf(computation);
    const most = Math.max(...rates);
    if (most === 0 && floor > 0) return floor;
    return Math.max(floor, multiplyAdds / ((most || 1) * FASTER_YET));
  }

  private stateOf(computation: Computation): State | undefined {
    return this.states.get(computationKey(computation));
  }
}
