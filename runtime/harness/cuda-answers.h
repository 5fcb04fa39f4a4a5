/* What a process that runs CUDA kernels answers, in the words of harness.cpp: how far it is, what failed and why. */
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

/* What is known of kernels when the machine fails is told before the end. */
static void (*tell_what_is_known)() = nullptr;

/* After an error the context may be lost for good: the process ends, and the kernels without a verdict start again in another. */
[[noreturn]] static void fault(int kernel, const char* status, const std::string& what) {
  if (tell_what_is_known && !strcmp(status, "environment")) tell_what_is_known();
  answer("fault %d %s %s", kernel, status, what.c_str());
  _exit(0);
}

/* The kernel that is being dealt with, for the handler of what ends the process. */
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

/* On a stack of its own: that of the kernel may be what is lost. */
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

/* A fault of the machine is no kernel's, whichever call tells of it. */
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

/* What no kernel has a part in. */
static void check_device(cudaError_t error, const char* what) {
  if (error != cudaSuccess) fault(0, "environment", told(error, what));
}

/* What a kernel asks for before it starts: shared memory that no block has is refused as an invalid value. */
static void check_asked(int kernel, cudaError_t error) {
  if (error == cudaErrorInvalidValue) fault(kernel, "out-of-resources", told(error, "more shared memory than a block has"));
  check(kernel, error, "prepare");
}
