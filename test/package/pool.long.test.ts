/**
 * @file The thread pool of C libraries, compiled with a kernel whose parts check one another under the thread sanitizer: every part of a phase runs
 * once, after all parts of the phase before; also where there are fewer processors than threads, and in a process that was forked.
 */

import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { spell } from "../../abstraction/source-text.ts";
import { POOL } from "../../package/pool.ts";
import { scratchFolder } from "../support/scratch.ts";

const folder = scratchFolder();
const program = join(folder, "pool");
/** Part p of phase n adds the values that all parts left in phase n - 1; the sums are plain memory, in which the sanitizer sees a race. */
const SOURCE = `
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct Code {
  unsigned long (*workspace_bytes)(void);
  void (*prepare)(void* workspace, const void* const* tensors);
  int (*phases)(void);
  void (*run)(void* workspace, void* const* tensors, int phase, int part, int parts);
};
enum { THREADS = 4, PHASES = 3 };
${spell(POOL, "c++")}
typedef unsigned long Values[PHASES][THREADS];

static int phases(void) { return PHASES; }
static void run(void* workspace, void* const* tensors, int phase, int part, int parts) {
  Values& values = *static_cast<Values*>(workspace);
  const int pause = static_cast<const int*>(tensors[0])[part];
  if (pause) usleep(pause);
  unsigned long sum = 1;
  for (int other = 0; other < parts; other++) sum += values[(phase + PHASES - 1) % PHASES][other];
  values[phase][part] += sum;
}
static const Code sums = {nullptr, nullptr, phases, run};

/* Sums of some calls, by the pool or by this thread alone. */
static unsigned long called(Pool* pool, int calls, const int* pauses) {
  Values values = {};
  void* const tensors[] = {const_cast<int*>(pauses)};
  for (int call = 0; call < calls; call++) {
    if (pool) {
      pool->begin();
      for (int step = 0; step < 2; step++) pool->run(sums, values, tensors);
      pool->end();
    } else {
      for (int step = 0; step < 2 * PHASES; step++)
        for (int part = 0; part < THREADS; part++) run(values, tensors, step % PHASES, part, THREADS);
    }
  }
  return values[PHASES - 1][0];
}

static bool asleep(void) {
  int sleeping = 0, all = 0;
  for (int thread = 0; thread < 65536; thread++) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", getpid() + thread);
    FILE* file = fopen(path, "r");
    if (!file) continue;
    if (fscanf(file, "%*d (%*[^)]) %c", &state) == 1 && thread > 0) all++, sleeping += state == 'S';
    fclose(file);
  }
  return all >= THREADS - 1 && sleeping == all;
}

int main(int, char** words) {
  const int none[THREADS] = {}, late[THREADS] = {0, 300, 0, 4000}, first[THREADS] = {4000, 0, 0, 0};
  const bool isAllowed = !strcmp(words[1], "allowed");
  if (isAllowed || !strcmp(words[1], "one")) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    sched_setaffinity(0, sizeof set, &set);
  }
  if (isAllowed && processors() != 1) return puts("more than one processor"), 1;
  Pool* pool = new Pool;
  if (!pool->start(isAllowed ? processors() : !strcmp(words[1], "fewer") ? 2 : !strcmp(words[1], "none") ? 1 : THREADS)) return puts("no threads"), 1;
  if (!strcmp(words[1], "asleep")) {
    called(pool, 10, none);
    while (!asleep()) usleep(1000);
  }
  if (!strcmp(words[1], "forked")) {
    called(pool, 10, none);
    usleep(2000);
    if (const pid_t child = fork()) {
      int status;
      waitpid(child, &status, 0);
      Pool::destroy(pool);
      return puts(WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "right" : "the child failed"), 0;
    }
    const bool right = called(pool, 10, none) == called(nullptr, 10, none);
    Pool::destroy(pool);
    _exit(right ? 0 : 1);
  }
  bool right = true;
  const struct { const int* pauses; int calls; } cases[] = {{none, 400}, {late, 5}, {first, 5}};
  for (const auto& c : cases) right = right && called(pool, c.calls, c.pauses) == called(nullptr, c.calls, none);
  Pool::destroy(pool);
  puts(right ? "right" : "wrong");
}
`;

beforeAll(() => {
  writeFileSync(`${program}.cpp`, SOURCE);
  const flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-pthread", `${program}.cpp`, "-o", program];
  const compiled = (...more: string[]) => spawnSync("g++", [...more, ...flags], { encoding: "utf8" });
  // Some systems package the sanitizer apart; without it the sums are still compared.
  const checked = compiled("-fsanitize=thread");
  const { status, stderr } = checked.status === 0 ? checked : compiled();
  expect(stderr).toBe("");
  expect(status).toBe(0);
});

it.each([
  ["by threads that spin and threads that sleep", "many"],
  ["by four threads on one processor", "one"],
  ["by as many threads as there are processors for, which is one", "allowed"],
  ["by two threads that take four parts", "fewer"],
  ["by the caller alone", "none"],
  ["by threads that slept until then", "asleep"],
  ["by the caller alone in a forked process, which ends like any other", "forked"],
])("runs every part once, after the phase before: %s", (_, word) => {
  // Addresses are not randomised: the sanitizer of GCC 12 and earlier does not start where the system spreads them widely.
  const start = spawnSync("setarch", ["-R", "true"]).status === 0 ? ["setarch", "-R"] : ["env"];
  const [command = "", ...words] = [...start, program, word];
  const { stdout, stderr, signal } = spawnSync(command, words, { encoding: "utf8", timeout: 600_000 });
  expect({ said: stdout.trim(), stderr, signal }).toEqual({ said: "right", stderr: "", signal: null });
});
