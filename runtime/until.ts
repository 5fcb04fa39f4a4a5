/** @file Signals and deadlines that end work early, and waits bounded by them. */

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

/** Calls what listens when a signal is aborted, at once if it is. @returns ends the listening */
export function heard(signal: AbortSignal | undefined, listen: () => void): () => void {
  if (signal?.aborted) listen();
  else signal?.addEventListener("abort", listen);
  return () => signal?.removeEventListener("abort", listen);
}

/** A signal that follows another after some milliseconds, with its reason, until it is released. */
export function following(
  signal: AbortSignal,
  ms: number,
): { readonly signal: AbortSignal; readonly letGo: () => void } {
  const controller = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const release = heard(signal, () => {
    timer = setTimeout(() => controller.abort(signal.reason), ms);
  });
  const letGo = (): void => {
    clearTimeout(timer);
    release();
  };
  return { signal: controller.signal, letGo };
}

/**
 * Closes a runner when a signal is aborted, which ends what it does; the work under way is then rejected. It may be
 * closed again.
 * @returns ends the listening
 */
export function closedBy(signal: AbortSignal | undefined, runner: { readonly close: () => Promise<void> }): () => void {
  return heard(signal, () => void runner.close().catch(() => undefined));
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
  let release = (): void => undefined;
  const ended = new Promise<false>((resolve) => {
    release = heard(signal, () => resolve(false));
  });
  return Promise.race([done, ended]).finally(release);
}
