// ---------------------------------------------------------------------------------------------------- supervision

/*
 * Two processes: a worker runs kernels, and a watcher, which automap started, supervises it. A kernel may start
 * processes, even in a new session. Orphans are adopted by the nearest ancestor that asks for them (prctl(2),
 * PR_SET_CHILD_SUBREAPER): the watcher, which ends only after them. Once it has ended, nothing of the kernel runs.
 */

/** How long a kernel's processes are killed repeatedly: a chain of forks may need several rounds. */
static constexpr double REAP_SECONDS = 2;

static double monotonic() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + 1e-9 * t.tv_nsec;
}

/** Kills every process whose parent is this one. */
static void kill_children() {
  static char path[64];
  snprintf(path, sizeof path, "/proc/self/task/%d/children", int(getpid()));
  if (FILE* file = fopen(path, "r")) {
    for (int child; fscanf(file, "%d", &child) == 1;) kill(child, SIGKILL);
    fclose(file);
    return;
  }
  // Linux without that file (CONFIG_PROC_CHILDREN): look through all processes.
  DIR* all = opendir("/proc");
  if (!all) return;
  while (dirent* entry = readdir(all)) {
    int process = atoi(entry->d_name), parent = 0;
    if (process <= 0) continue;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE* file = fopen(path, "r");
    if (!file) continue;
    // The name is in parentheses and may contain any character. The parent is the second word after the last of them.
    char line[512];
    size_t length = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[length] = 0;
    const char* behind = strrchr(line, ')');
    if (behind && sscanf(behind + 1, " %*c %d", &parent) == 1 && parent == getpid()) kill(process, SIGKILL);
  }
  closedir(all);
}

/** Waits until the worker ends, automap ends or SIGTERM arrives; then kills what is left. */
[[noreturn]] static void watch(pid_t worker, const sigset_t& awaited) {
  int status = 0;
  bool ended = false, stopped = false;
  auto reap = [&] {
    for (int one;;) {
      pid_t gone = waitpid(-1, &one, WNOHANG);
      if (gone <= 0) return gone == 0;
      if (gone == worker) status = one, ended = true;
    }
  };
  while (!ended && !stopped) {
    int signal = sigwaitinfo(&awaited, nullptr);
    if (signal == SIGTERM) stopped = true;
    reap();
  }
  kill(-worker, SIGKILL);
  for (double until = monotonic() + REAP_SECONDS; reap() && monotonic() < until;) {
    kill_children();
    sched_yield();
  }
  if (ended) {
    // At the limit of processor time a process gets SIGXCPU, or SIGKILL if the hard limit equals the soft one.
    rlimit time = {};
    getrlimit(RLIMIT_CPU, &time);
    bool spent = WIFSIGNALED(status) && time.rlim_cur != RLIM_INFINITY && (WTERMSIG(status) == SIGXCPU || WTERMSIG(status) == SIGKILL);
    if (spent) answer(format("fault 0 environment this shell allows %lu seconds of processor time (ulimit -t)", (unsigned long)time.rlim_cur));
    if (WIFSIGNALED(status)) answer(format("ended signal %d", WTERMSIG(status)));
    else answer(format("ended exit %d", WEXITSTATUS(status)));
  }
  _exit(0);
}

/** Returns only in the process that runs kernels. @param starter the process that started this one */
static void supervise(pid_t starter) {
  sigset_t awaited, before;
  sigemptyset(&awaited);
  sigaddset(&awaited, SIGTERM);
  sigaddset(&awaited, SIGCHLD);
  sigprocmask(SIG_BLOCK, &awaited, &before);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != starter) _exit(95);
  pid_t watcher = getpid();
  pid_t worker = fork();
  if (worker < 0) fault("environment", format("no process could be started: %s", strerror(errno)).c_str());
  if (worker > 0) {
    // Closed here, so that their readers see the end when the worker ends.
    for (int file : {0, 1, 2}) close(file);
    watch(worker, awaited);
  }
  current_process = getpid();
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != watcher) _exit(95);
  sigprocmask(SIG_SETMASK, &before, nullptr);
}
