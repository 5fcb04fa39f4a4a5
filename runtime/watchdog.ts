/**
 * @file Ends what this process started if the process itself is killed: SIGKILL leaves it no time to do so.
 *
 *     const child = spawnWatched(["g++", "a.cpp"], { cwd });      g++, and what it starts, die with this process
 *
 * A shell in a session of its own reads from a pipe which groups run. Only this process holds the other end, so the
 * pipe ends with it, however it ends, and the shell kills the groups that are left. Linux could tell a child of its
 * parent's death (prctl(2), PR_SET_PDEATHSIG), but only the compiler's driver and not what the driver started.
 */

import { type ChildProcessWithoutNullStreams, type SpawnOptions, spawn } from "node:child_process";
import { Socket } from "node:net";
import type { Writable } from "node:stream";

/** Reads `began 4711` and `ended 4711`, and kills the groups that have not ended when its input does. */
const WATCHDOG = `
groups=
while read -r change group; do
  left=
  for one in $groups; do
    [ "$one" = "$group" ] || left="$left $one"
  done
  [ "$change" = began ] && left="$left $group"
  groups=$left
done
for group in $groups; do
  kill -KILL "-$group" 2>/dev/null
done
`;

/** Waits for a line before it becomes the command: without one, this process died before the child was watched. */
const GATE = `read -r _ || exit 1; exec "$@" </dev/null`;

/**
 * Starts a command under watch, as the leader of a process group.
 * @throws Error if the system starts no process
 */
export function spawnWatched(
  command: readonly string[],
  options: Pick<SpawnOptions, "cwd" | "env">,
): ChildProcessWithoutNullStreams {
  const watchdog = startedWatchdog();
  const child = spawn("/bin/sh", ["-c", GATE, "sh", ...command], { ...options, detached: true });
  const { pid } = child;
  if (pid === undefined) return child;
  groups.add(pid);
  child.once("exit", () => {
    // What the command left behind in its group ends with it.
    killGroup(pid);
    groups.delete(pid);
    pipe?.write(`ended ${pid}\n`);
  });
  watchdog.write(`began ${pid}\n`);
  child.stdin.on("error", () => child.stdin.destroy());
  child.stdin.end("go\n");
  return child;
}

/** Kills a process group. A group that has just ended is not an error. */
export function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    return;
  }
}

/** Groups of commands that run. */
const groups = new Set<number>();
let pipe: Writable | undefined;

/** The pipe to the shell, which is started at the first command, and again should somebody have ended it. */
function startedWatchdog(): Writable {
  if (pipe) return pipe;
  const watchdog = spawn("/bin/sh", ["-c", WATCHDOG], { detached: true, stdio: ["pipe", "ignore", "ignore"] });
  const { stdin } = watchdog;
  const gone = (): void => {
    if (pipe === stdin) pipe = undefined;
  };
  watchdog.on("error", gone).on("exit", gone).unref();
  // Node gives a child no pipes if it has no file descriptors left.
  if (!(stdin instanceof Socket)) throw new Error("EMFILE: too many open files");
  stdin.on("error", gone);
  // It keeps no process alive.
  stdin.unref();
  for (const group of groups) stdin.write(`began ${group}\n`);
  pipe = stdin;
  return stdin;
}
