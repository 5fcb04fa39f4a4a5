/*
 * The harness: runs kernels, checks every element they write, and times them. Compiled once a compiler; one process answers one request.
 * Its parts are compiled as one text, in the order of PARTS in run.ts; each needs those before it.
 *
 * The request comes on stdin, a keyword and the rest of its line each:
 *
 *     parent 4711                      the process that asks: this one ends with it
 *     threads 2                        parts of a call, one pinned thread each
 *     cpus 0 1                         where they are pinned
 *     memory 1073741824                bytes the kernels may allocate
 *     cache warm                       or `flushed`: out of every cache before each call
 *     batch 0.0002                     least seconds of a batch of calls
 *     budget 0.3                       seconds of batches for each kernel
 *     batches 5 200                    least and most batches
 *     enough 20 0.01                   batches that are enough once they have taken so many seconds; never when left out
 *     argument f32 1024 out            the output, then the inputs: type, elements, name
 *     set random                       a set of inputs with its answer; then one file a line:
 *     expected PATH                      f64, in the output's memory order
 *     tolerance PATH                     f64, largest |got - want| that passes
 *     stored PATH                        in place of `expected`: in the output's type
 *     within 1e-6                        in place of `tolerance`: of every element
 *     checked PATH                       u8, 0 where memory holds no element; left out when all do
 *     input PATH                         bytes of each input, in the order of the arguments
 *     kernel PATH                      shared objects; with several, batches alternate A B A B, unless
 *     race                             each is checked and timed before the next is looked at, and one that fails ends the process
 *     goal 0.0002                      of a race: seconds of a call to beat; what is clearly slower is not timed to the end
 *     baseline                         time the fixed loop below instead, to see the machine drift
 *     go                               the request is complete
 *
 * Answers go to descriptor 3, so that what a kernel prints cannot be taken for one:
 *
 *     at 0 call 1 on random inputs     kernel 0 has come this far; also a sign of life
 *     wrong 0 MESSAGE                  refused: `wrong`, or `out-of-bounds`
 *     fault 0 STATUS MESSAGE           the process ends here; `environment` is no fault of the kernel's
 *     load 0.02                        share of the processors' time that others took while kernels were timed; of several processors the most
 *     dropped 0 0.0002                 the samples that follow are fewer: every one is longer than this by a margin
 *     samples 0 1.2e-05 ...            seconds of one call, one number a batch
 *     tick 2.1e-08                     seconds: smallest step seen of CLOCK_MONOTONIC_RAW
 *     done
 *     ended exit 0                     how the process that ran the kernels ended, `exit CODE` or `signal NUMBER`
 */

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

// ---------------------------------------------------------------------------------------------------- answers

static constexpr int ANSWERS = 3;

/** Who may answer: a process that a kernel forked runs this code too, and says nothing. */
static pid_t current_process = 0;

static void write_all(const char* text, size_t length) {
  if (getpid() != current_process) _exit(97);
  while (length > 0) {
    ssize_t written = write(ANSWERS, text, length);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(97);
    text += written;
    length -= written;
  }
}

static void answer(const std::string& line) { write_all((line + "\n").c_str(), line.size() + 1); }

__attribute__((format(printf, 1, 2))) static std::string format(const char* how, ...) {
  char text[1024];
  va_list values;
  va_start(values, how);
  vsnprintf(text, sizeof text, how, values);
  va_end(values);
  return text;
}

/** Which kernel is doing what; read by the signal handler. */
static int current_kernel = 0;

static void at(int kernel, const std::string& stage) {
  current_kernel = kernel;
  answer(format("at %d ", kernel) + stage);
}

/** Ends the process with a status of the kernel that was running. Safe in a signal handler. */
[[noreturn]] static void fault(const char* status, const char* message) {
  char line[512];
  int length = snprintf(line, sizeof line, "fault %d %s %s\n", current_kernel, status, message);
  write_all(line, std::min<size_t>(length, sizeof line - 1));
  _exit(98);
}

