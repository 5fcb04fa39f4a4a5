// ---------------------------------------------------------------------------------------------------- signals

/* The kind of access that faulted, where the system tells. */
#if defined(__x86_64__)
static const char* access_of(const ucontext_t* context) { return context->uc_mcontext.gregs[REG_ERR] & 2 ? "wrote" : "read"; }
static const char* stack_pointer(const ucontext_t* context) {
  return reinterpret_cast<const char*>(context->uc_mcontext.gregs[REG_RSP]);
}
#elif defined(__aarch64__)
/** Bit WnR of the syndrome, in a record after the registers. Source: arch/arm64/include/uapi/asm/sigcontext.h. */
static const char* access_of(const ucontext_t* context) {
  const char* at = reinterpret_cast<const char*>(context->uc_mcontext.__reserved);
  for (;;) {
    const auto* record = reinterpret_cast<const _aarch64_ctx*>(at);
    if (record->magic == ESR_MAGIC) return reinterpret_cast<const esr_context*>(at)->esr >> 6 & 1 ? "wrote" : "read";
    if (record->magic == 0 || record->size == 0) return "touched";
    at += record->size;
  }
}
static const char* stack_pointer(const ucontext_t* context) { return reinterpret_cast<const char*>(context->uc_mcontext.sp); }
#else
static const char* access_of(const ucontext_t*) { return "touched"; }
static const char* stack_pointer(const ucontext_t*) { return nullptr; }
#endif

static void on_fault(int signal, siginfo_t* info, void* context) {
  const char* address = static_cast<const char*>(info->si_addr);
  const auto* state = static_cast<const ucontext_t*>(context);
  char text[256];
  if (signal == SIGILL) {
    snprintf(text, sizeof text, "the processor does not know the instruction at %p", info->si_addr);
    fault("illegal-instruction", text);
  }
  if (signal == SIGSEGV) {
    const char* verb = access_of(state);
    for (int i = 0; i < buffer_count; i++) {
      const Buffer& b = buffers[i];
      if (address < b.map || address >= b.end() + GUARD) continue;
      if (address < b.data) snprintf(text, sizeof text, "%s %zd bytes before the start of %s", verb, b.data - address, b.name);
      else if (address >= b.data + b.bytes)
        snprintf(text, sizeof text, "%s %zd bytes behind the end of %s", verb, address - (b.data + b.bytes) + 1, b.name);
      else snprintf(text, sizeof text, "wrote to %s, byte %zd, which is an input", b.name, address - b.data);
      fault("out-of-bounds", text);
    }
  }
  if (refused > 0) {
    snprintf(text, sizeof text, "an allocation of %zu bytes was refused, then signal %d", refused.load(), signal);
    fault("out-of-memory", text);
  }
  const char* near = stack_pointer(state);
  if (signal == SIGSEGV && near && address > near - (1 << 16) && address < near + (1 << 16))
    snprintf(text, sizeof text, "the stack overflowed at %p", info->si_addr);
  else if (signal == SIGSEGV && info->si_code == SI_KERNEL)
    snprintf(text, sizeof text, "general protection: a misaligned access, or an address that cannot be");
  else if (signal == SIGSEGV) snprintf(text, sizeof text, "%s address %p", access_of(state), info->si_addr);
  else snprintf(text, sizeof text, "signal %d (%s)", signal, strsignal(signal));
  fault("crashed", text);
}

/** Reports faults on a separate stack, since the kernel's may have overflowed. */
static void use_fault_stack() {
  stack_t stack = {};
  stack.ss_size = 1 << 16;
  stack.ss_sp = mmap(nullptr, stack.ss_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  sigaltstack(&stack, nullptr);
}

static void install_handlers() {
  use_fault_stack();
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT, SIGTRAP, SIGSYS, SIGXFSZ}) sigaction(signal, &action, nullptr);
}

