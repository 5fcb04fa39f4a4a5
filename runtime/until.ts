/** @file Signals and time limits that end work early, and waits that last no longer than these. */

/** Ends a round while its kernels compile. The remaining ones are neither compiled nor measured. */
export interface Until {
  /** Aborted shortly before the time is up: what is compiled by then can still be measured, and nothing else is compiled. */
  readonly soon: AbortSignal;
  /** Aborted when time is up. */
  readonly time: AbortSignal;
  /** Aborted when the user stops. */
  readonly stop: AbortSignal;
  /** Whether to wait for the first kernel even if time is up, so that a search has one result. */
  readonly needsOne: boolean;
  /** The best median so far, in seconds. A clearly slower kernel need not be timed to the end. */
  readonly goal?: number | undefined;
}

/** A signal that follows another after some milliseconds, until it is released. */
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

/**
 * Closes a runner when a signal is aborted, which ends what it does; the work under way is then rejected. It may be
 * closed again.
 * @returns ends the listening
 */
export function closedBy(signal: AbortSignal | undefined, runner: { readonly close: () => Promise<void> }): () => void {
  const stop = (): void => void runner.close().catch(() => undefined);
  signal?.addEventListener("abort", stop);
  if (signal?.aborted) stop();
  return () => signal?.removeEventListener("abort", stop);
}

/** @returns false if the signal came first. The work then continues, and its outcome is ignored */
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
