/*
 * The harness: runs kernels, checks every element they write, and times them. It is compiled once for each compiler;
 * one process answers one request. Its parts are joined in the order of PARTS in run.ts; each needs those before it.
 *
 * The request comes on stdin. Each line is a keyword and its values:
 *
 *     parent 4711                      the requesting process; the harness ends when it does
 *     threads 2                        parts of a call, one pinned thread each
 *     cpus 0 1                         processors to which they are pinned
 *     memory 1073741824                bytes the kernels may allocate
 *     cache warm                       or `flushed`: caches are emptied before each call
 *     batch 0.0002                     least seconds of a batch of calls
 *     budget 0.3                       seconds of batches for each kernel
 *     batches 5 200                    least and most batches
 *     enough 20 0.01                   this many batches suffice once they took this many seconds; default never
 *     argument f32 1024 out            the output, then the inputs: type, elements, name
 *     set random                       a set of inputs with its answer; then one file a line:
 *     output 1                           the argument that the answer is of; 0 when left out
 *     expected PATH                      f64, in the output's memory order
 *     tolerance PATH                     f64, largest |got - want| that passes
 *     stored PATH                        instead of `expected`: in the output's type
 *     within 1e-6                        instead of `tolerance`: for every element
 *     looser PATH, loosely 1e-4          instead of these for kernels of another form; may be left out
 *     checked PATH                       u8, 0 where memory holds no element; may be left out if all do
 *     input PATH                         bytes of each argument but the first, in their order
 *     kernel PATH                      shared objects; the batches of several alternate A B A B
 *     form PATH                        the same for a kernel of another form of the equation
 *     race                             instead checks and times one kernel after another; a failure ends the process
 *     goal 0.0002                      in a race: seconds of a call to beat; clearly slower kernels are timed briefly
 *     baseline                         times the fixed loop below instead, to detect drift of the machine
 *     go                               the request is complete
 *
 * Answers go to descriptor 3, so that a kernel's own output cannot be mistaken for one:
 *
 *     at 0 call 1 on random inputs     progress of kernel 0; also a sign of life
 *     wrong 0 MESSAGE                  refused: `wrong`, or `out-of-bounds`
 *     fault 0 STATUS MESSAGE           the process ends here; `environment` is not the kernel's fault
 *     load 0.02                        share of processor time used by others during timing; the most of any processor
 *     dropped 0 0.0002                 fewer samples follow, since each exceeds this goal by a margin; one where it is several times the goal
 *     samples 0 1.2e-05 ...            seconds of one call, one number a batch
 *     tick 2.1e-08                     seconds: smallest observed step of CLOCK_MONOTONIC_RAW
 *     done
 *     ended exit 0                     end of the process that ran the kernels: `exit CODE` or `signal NUMBER`
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

/** The process that may answer. A process forked by a kernel runs this code too, and must stay silent. */
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

/** Kernel in progress and what it is doing, for the signal handler. */
static int current_kernel = 0;

static void at(int kernel, const std::string& stage) {
  current_kernel = kernel;
  answer(format("at %d ", kernel) + stage);
}

/** Ends the process and reports a status for the running kernel. Safe in a signal handler. */
[[noreturn]] static void fault(const char* status, const char* message) {
  char line[512];
  int length = snprintf(line, sizeof line, "fault %d %s %s\n", current_kernel, status, message);
  write_all(line, std::min<size_t>(length, sizeof line - 1));
  _exit(98);
}

