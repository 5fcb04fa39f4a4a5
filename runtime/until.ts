/** @file Signals and time limits that end work early, and waits that last no longer than these. */

/** What ends a round while its kernels compile: the rest of them is then neither compiled nor measured. */
export interface Until {
  /** The time is up. */
  readonly time: AbortSignal;
  /** The user wants no more. */
  readonly stop: AbortSignal;
  /** Whether the first kernel is waited for although the time is up: a search should have one answer. */
  readonly needsOne: boolean;
  /** The least median so far, seconds: what is clearly slower need not be timed to the end. */
  readonly goal?: number | undefined;
}

/** A signal that follows another after so many milliseconds, until it is let go. */
export function following(
  signal: AbortSignal,
  ms: number,
): { readonly signal: AbortSignal; readonly letGo: () => void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const begin = (): void => {
    timer = setTimeout(() => controller.abort(), ms);
  };
  if (signal.aborted) begin();
  else signal.addEventListener("abort", begin);
  const letGo = (): void => {
    clearTimeout(timer);
    signal.removeEventListener("abort", begin);
  };
  return { signal: controller.signal, letGo };
}

/** @returns false when the signal came first: the work goes on, and how it ends is nobody's concern any more */
export async function isDoneBefore(
  work: Promise<unknown> | undefined,
  signal: AbortSignal | undefined,
): Promise<boolean> {
  const done = Promise.resolve(work).then(() => true);
  if (!signal) return done;
  done.catch(() => undefined);
  if (signal.aborted) return false;
  let stop = (): void => undefined;
  const ended = new Promise<false>((resolve) => {
    stop = () => resolve(false);
    signal.addEventListener("abort", stop);
  });
  return Promise.race([done, ended]).finally(() => signal.removeEventListener("abort", stop));
}
