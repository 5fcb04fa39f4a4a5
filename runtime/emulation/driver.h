/*
 * Runs generated kernels one after another on prepared inputs: ./program DATA OUTPUTS FIRST
 *
 *     data       for each kernel: how its threads take turns (two words), how many tensors, the bytes of each, the bytes of the inputs;
 *                the output is the first tensor
 *     outputs    for each kernel from FIRST on: the output's bytes
 *
 * Every tensor ends at a page that may not be touched, so that an access beyond it ends the program. What a kernel leaves of its
 * output is a NaN. `runtime/emulated-kernel.ts` writes the rest of the program.
 */
#ifndef AUTOMAP_EMULATION_DRIVER_H
#define AUTOMAP_EMULATION_DRIVER_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct Job {
  unsigned long (*workspace_bytes)();
  void (*run)(void* workspace, void** tensors, const uint32_t* bytes, const uint32_t* turns);
};

static uint32_t next_word(FILE* from) {
  uint32_t word = 0;
  if (fread(&word, sizeof word, 1, from) != 1) exit(3);
  return word;
}

/* Memory that ends where nothing may be read, and a gap of a page before it. */
static unsigned char* fenced(size_t bytes) {
  const size_t page = 4096, whole = (bytes + page - 1) / page * page;
  unsigned char* at = (unsigned char*)mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) exit(3);
  mprotect(at, page, PROT_NONE);
  mprotect(at + page + whole, page, PROT_NONE);
  return at + page + whole - bytes;
}

static int run_jobs(const Job* jobs, int count, char** argv) {
  FILE* data = fopen(argv[1], "rb");
  FILE* outputs = fopen(argv[2], "wb");
  const int first = atoi(argv[3]);
  if (!data || !outputs) return 3;
  for (int job = 0; job < count; job++) {
    void* tensors[32];
    uint32_t bytes[32];
    const uint32_t turns[2] = {next_word(data), next_word(data)};
    const uint32_t held = next_word(data);
    for (uint32_t t = 0; t < held; t++) bytes[t] = next_word(data);
    for (uint32_t t = 0; t < held; t++) {
      unsigned char* memory = fenced(bytes[t]);
      tensors[t] = memory;
      if (t == 0) memset(memory, 0xff, bytes[t]);
      else if (fread(memory, 1, bytes[t], data) != bytes[t]) return 3;
    }
    if (job < first) continue;
    void* workspace = aligned_alloc(64, (jobs[job].workspace_bytes() + 63) / 64 * 64);
    jobs[job].run(workspace, tensors, bytes, turns);
    fwrite(tensors[0], 1, bytes[0], outputs);
    fflush(outputs);
    printf("%d\n", job);
    fflush(stdout);
  }
  return fclose(outputs) == 0 ? 0 : 3;
}

#endif
