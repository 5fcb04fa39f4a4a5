/* Samples the clock during timing through the driver's library (NVML), loaded by name; without it there are no samples.
 * Runs on its own thread, so that no batch waits. */
struct ClockSample {
  int kernel;
  unsigned megahertz, reasons;
};
static volatile bool clocks_wanted = false;
static std::vector<ClockSample> clock_samples;
static constexpr unsigned CLOCK_PERIOD_US = 5000;

/* NVML API Reference, nvmlClocksEventReasons, in the order of THROTTLES in abstraction/trial.ts. */
static unsigned throttles(unsigned long long reasons) {
  const unsigned long long bits[] = {0x4 /* SwPowerCap */, 0x8 /* HwSlowdown */, 0x20 /* SwThermalSlowdown */,
                                     0x40 /* HwThermalSlowdown */, 0x80 /* HwPowerBrakeSlowdown */};
  unsigned found = 0;
  for (int i = 0; i < 5; i++)
    if (reasons & bits[i]) found |= 1u << i;
  return found;
}

static void watch_clocks() {
  typedef void* Device;
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) return;
  const auto begin = (int (*)())dlsym(library, "nvmlInit_v2");
  const auto by_uuid = (int (*)(const char*, Device*))dlsym(library, "nvmlDeviceGetHandleByUUID");
  const auto clock = (int (*)(Device, int, unsigned*))dlsym(library, "nvmlDeviceGetClockInfo");
  const auto reasons = (int (*)(Device, unsigned long long*))dlsym(library, "nvmlDeviceGetCurrentClocksThrottleReasons");
  const char* uuid = getenv("CUDA_VISIBLE_DEVICES"); /* which the parent has set to the device's own */
  Device device = nullptr;
  if (!begin || !by_uuid || !clock || !reasons || !uuid || begin() != 0 || by_uuid(uuid, &device) != 0) return;
  for (; clocks_wanted; usleep(CLOCK_PERIOD_US)) {
    unsigned megahertz = 0;
    unsigned long long why = 0;
    if (clock(device, 1 /* NVML_CLOCK_SM */, &megahertz) != 0 || reasons(device, &why) != 0) return;
    clock_samples.push_back({current_kernel, megahertz, throttles(why)});
  }
}

/* The median over a kernel's own batches; over all batches if no sample fell into its own. */
static void answer_clock(int kernel) {
  std::vector<unsigned> clocks;
  unsigned reasons = 0;
  for (bool own : {true, false}) {
    for (const ClockSample& s : clock_samples)
      if (!own || s.kernel == kernel) clocks.push_back(s.megahertz), reasons |= s.reasons;
    if (!clocks.empty()) break;
  }
  if (clocks.empty()) return;
  std::nth_element(clocks.begin(), clocks.begin() + clocks.size() / 2, clocks.end());
  answer("clock %d %u %u", kernel, clocks[clocks.size() / 2], reasons);
}
