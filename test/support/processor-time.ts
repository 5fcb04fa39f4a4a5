/** @file A stopwatch for processor time: it stands still while other work has the processor. */

/** @returns the seconds of this process's processor since the call; what compiles and collects in the engine is in them */
export function processorWatch(): () => number {
  const begun = process.cpuUsage();
  return () => {
    const { user, system } = process.cpuUsage(begun);
    return (user + system) / 1e6;
  };
}
