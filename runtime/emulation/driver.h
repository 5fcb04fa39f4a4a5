/*
 * Runs generated kernels one after another on prepared inputs: ./program DATA OUTPUTS FIRST
 *
 *     data       for each kernel: the order of its threads (two words), the number of tensors, the bytes of each, the
 *                inputs' contents; the output is the first tensor
 *     outputs    for each kernel from FIRST on: the output's bytes
 *
 * Every tensor ends at an inaccessible page, so an access beyond it ends the program, as does a write to an input or
 * before the output. Unwritten outputs and memory before a float input are NaN. runtime/emulated-kernel.ts has main().
 */
#ifndef AUTOMAP_EMULATION_DRIVER_H
#define AUTOMAP_EMULATION_DRIVER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct Job {
  unsigned long (*workspace_bytes)();
  void (*run)(void* workspace, void** tensors, const uint32_t* bytes, const uint32_t* turns);
};

static uint32_t next_word(FILE* from) {
  uint32_t word = 0;
  if (fread(&word, sizeof word, 1, from) != 1) exit(3);
  return word;
}

/* Memory between inaccessible pages. Data ends at the second; what precedes it is filled with NaN and checked. */
struct Fenced {
  unsigned char* pages;
  size_t whole;
  unsigned char* data;
  size_t bytes;
};
static const unsigned char AROUND = 0xff;

static Fenced fenced(size_t bytes, size_t alignment = 1) {
  const size_t page = sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
  unsigned char* at = (unsigned char*)mmap(nullptr, whole + 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) exit(3);
  mprotect(at, page, PROT_NONE);
  mprotect(at + page + whole, page, PROT_NONE);
  memset(at + page, AROUND, whole);
  return {at + page, whole, at + page + (whole - bytes) / alignment * alignment, bytes};
}

/* Ends the program if something was written outside the data. */
static void check_fence(const Fenced& f, const char* name) {
  for (size_t i = 0; i < f.whole; i++) {
    const ptrdiff_t from = f.pages + i - f.data;
    if (f.pages[i] == AROUND || (from >= 0 && from < (ptrdiff_t)f.bytes)) continue;
    fprintf(stderr, "something was written %s %s\n", from < 0 ? "before" : "behind", name);
    exit(5);
  }
}

static int run_jobs(const Job* jobs, int count, char** argv) {
  FILE* data = fopen(argv[1], "rb");
  FILE* outputs = fopen(argv[2], "wb");
  const int first = atoi(argv[3]);
  if (!data || !outputs) return 3;
  for (int job = 0; job < count; job++) {
    void* tensors[32]; /* and room for the scratch of a kernel */
    uint32_t bytes[32];
    const uint32_t turns[2] = {next_word(data), next_word(data)};
    const uint32_t held = next_word(data);
    Fenced output = {};
    for (uint32_t t = 0; t < held; t++) bytes[t] = next_word(data);
    for (uint32_t t = 0; t < held; t++) {
      const Fenced memory = fenced(bytes[t]);
      tensors[t] = memory.data;
      if (t == 0) output = memory;
      else if (fread(memory.data, 1, bytes[t], data) != bytes[t] || mprotect(memory.pages, memory.whole, PROT_READ)) return 3;
    }
    if (job < first) continue;
    const Fenced workspace = fenced(jobs[job].workspace_bytes(), 64);
    jobs[job].run(workspace.data, tensors, bytes, turns);
    check_fence(output, "the output");
    check_fence(workspace, "the workspace");
    fwrite(tensors[0], 1, bytes[0], outputs);
    fflush(outputs);
    printf("%d\n", job);
    fflush(stdout);
  }
  return fclose(outputs) == 0 ? 0 : 3;
}

#endif
