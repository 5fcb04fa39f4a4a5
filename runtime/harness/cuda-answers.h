/* Answers of a process that runs CUDA kernels, as in answers.h: its progress, and what failed and why. */
static constexpr int ANSWERS = 3;

__attribute__((format(printf, 1, 2))) static void answer(const char* format, ...) {
  char line[2000];
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(line, sizeof line - 1, format, arguments);
  va_end(arguments);
  length = std::min<int>(length, sizeof line - 2);
  for (int i = 0; i < length; i++)
    if (line[i] == '\n') line[i] = ' ';
  line[length++] = '\n';
  if (write(ANSWERS, line, length) != length) _exit(97);
}

static void answer_samples(int kernel, const std::vector<double>& samples) {
  std::string line = "samples " + std::to_string(kernel);
  char number[40];
  for (double s : samples) {
    snprintf(number, sizeof number, " %.9e", s);
    line += number;
  }
  line += '\n';
  for (size_t at = 0; at < line.size();) {
    ssize_t written = write(ANSWERS, line.data() + at, line.size() - at);
    if (written <= 0) _exit(97);
    at += written;
  }
}

[[noreturn]] static void refuse(const std::string& why) {
  answer("refused %s", why.c_str());
  _exit(2);
}

/* Reports known results before the process ends because of the machine. */
static void (*tell_what_is_known)() = nullptr;

/* An error may destroy the context, so the process ends. Another one restarts the kernels without a verdict. */
[[noreturn]] static void fault(int kernel, const char* status, const std::string& what) {
  if (tell_what_is_known && !strcmp(status, "environment")) tell_what_is_known();
  answer("fault %d %s %s", kernel, status, what.c_str());
  _exit(0);
}

/* The kernel in progress, for the signal handler. */
static volatile int current_kernel = 0;

static void on_fault(int number) {
  static const char* const names[] = {"SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT"};
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  const char* name = "a signal";
  for (int i = 0; i < 5; i++)
    if (numbers[i] == number) name = names[i];
  char line[100];
  const int length = snprintf(line, sizeof line, "fault %d crashed killed by %s\n", current_kernel, name);
  if (write(ANSWERS, line, (size_t)length) != length) _exit(97);
  _exit(0);
}

/* Uses a separate stack, since the kernel may have corrupted its own. */
static void report_faults() {
  static char memory[64 * 1024];
  stack_t stack = {};
  stack.ss_sp = memory, stack.ss_size = sizeof memory;
  sigaltstack(&stack, nullptr);
  struct sigaction action = {};
  action.sa_handler = on_fault;
  action.sa_flags = SA_ONSTACK;
  for (int number : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigaction(number, &action, nullptr);
}

/* An error of the machine is not the kernel's fault, whichever call reports it. */
static bool is_machine(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorHardwareStackError: return true;
    default: return false;
  }
}

static const char* status_of(cudaError_t error) {
  if (is_machine(error)) return "environment";
  switch (error) {
    case cudaErrorMemoryAllocation: return "out-of-memory";
    case cudaErrorLaunchOutOfResources:
    case cudaErrorCooperativeLaunchTooLarge: return "out-of-resources";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace: return "out-of-bounds";
    case cudaErrorIllegalInstruction:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction: return "illegal-instruction";
    case cudaErrorLaunchTimeout: return "timed-out";
    default: return "crashed";
  }
}

static std::string told(cudaError_t error, const char* what) {
  return std::string(what) + ": " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error);
}

static void check(int kernel, cudaError_t error, const char* what) {
  if (error != cudaSuccess) fault(kernel, status_of(error), told(error, what));
}

/* Checks a call that does not depend on a kernel. */
static void check_device(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fault(0, "environment", told(error, what));
}

/* Checks a kernel's requests before it starts: too much shared memory is reported as an invalid value. */
static void check_asked(int kernel, cudaError_t error) {
  if (error == cudaErrorInvalidValue) fault(kernel, "out-of-resources", told(error, "more shared memory than a block has"));
  check(kernel, error, "prepare");
}

static void* device_memory(size_t bytes, const char* what) {
  void* memory = nullptr;
  check_device(cudaMalloc(&memory, bytes), what);
  return memory;
}

/* Whether less than half of the device's memory is free, so that others may need what could be found again. */
static bool is_memory_short() {
  size_t free = 0, all = 0;
  check_device(cudaMemGetInfo(&free, &all), "cudaMemGetInfo");
  return free < all / 2;
}
