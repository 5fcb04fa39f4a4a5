// --------------------------------------------------------------------------------------------- memory that was refused

/* After an allocation beyond the limit a kernel often crashes, on null or by std::bad_alloc. The size explains why. */
static std::atomic<size_t> refused{0};

static void* noted(void* memory, size_t bytes) {
  if (!memory) refused = bytes;
  return memory;
}

#if defined(__GLIBC__)
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t bytes) noexcept { return noted(__libc_malloc(bytes), bytes); }
void* calloc(size_t count, size_t bytes) noexcept { return noted(__libc_calloc(count, bytes), count * bytes); }
void* realloc(void* old, size_t bytes) noexcept {
  void* memory = __libc_realloc(old, bytes);
  return bytes == 0 ? memory : noted(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) noexcept { return noted(__libc_memalign(alignment, bytes), bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) noexcept { return noted(__libc_memalign(alignment, bytes), bytes); }
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  *memory = noted(__libc_memalign(alignment, bytes), bytes);
  return *memory ? 0 : ENOMEM;
}
void* mmap(void* where, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  long address = syscall(SYS_mmap, where, bytes, protection, flags, file, offset);
  if (address == -1 && errno == ENOMEM) refused = bytes;
  return reinterpret_cast<void*>(address);
}
}
#endif

// ---------------------------------------------------------------------------------------------- buffers between guards

/** Granularity of memory protection: 4 KB on x86, 16 or 64 KB on some Arm systems. */
static const size_t PAGE = sysconf(_SC_PAGESIZE);
/** Inaccessible memory on each side, large enough to catch an index that is off by a whole row. */
static constexpr size_t GUARD = 1 << 20;
static constexpr unsigned char CANARY = 0xc3;

static size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

/** Position of the data: ending at the guard behind, starting at the guard before, or away from both, as usual. */
enum class Placement { end, start, spread };

struct Buffer {
  char name[64];
  char* map;
  size_t pages; /* bytes between the guards */
  size_t room;  /* bytes of the mapping between its guards, of which a buffer that was smaller before left some behind */
  bool is_huge; /* whether large pages were asked for */
  char* data;
  size_t bytes;
  bool read_only;

  size_t mapped() const { return room + 2 * GUARD; }
  char* begin() const { return map + GUARD; }
  char* end() const { return begin() + pages; }
};

static Buffer buffers[64];
static int buffer_count = 0;
/** Whether a kernel was called. A refused allocation before that is due to the machine, later perhaps to the kernel. */
static bool kernels_ran = false;

/**
 * Released memory, oldest first, for the next sets and kernels. Fresh pages cost a virtual machine 10 to 20 us each: 0.3 s for
 * weights of 67 MB, which a kernel is given four times, as its workspace is (Zen 5, 2026-11-30).
 */
static std::vector<Buffer> spares;
static size_t spare_bytes = 0;
static constexpr size_t MOST_SPARE_BYTES = size_t(1) << 29;
/** Bytes of address space that the process may use besides its spares. */
static size_t most_space = 0;

/** Spares take nothing of what kernels may allocate. */
static void add_spare_bytes(size_t bytes) {
  spare_bytes += bytes;
  if (most_space == 0) return;
  rlimit value = {};
  getrlimit(RLIMIT_AS, &value);
  value.rlim_cur = std::min<size_t>(value.rlim_max, most_space + spare_bytes);
  setrlimit(RLIMIT_AS, &value);
}

static void unmap_oldest_spare() {
  const Buffer b = spares.front();
  spares.erase(spares.begin());
  munmap(b.map, b.mapped());
  add_spare_bytes(-b.mapped());
}

/** Inaccessible memory between guards: the smallest spare that is large enough, or fresh; null if it is refused. */
static char* room_for(Buffer& b) {
  size_t best = spares.size();
  for (size_t i = 0; i < spares.size(); i++)
    if (spares[i].is_huge == b.is_huge && spares[i].room >= b.pages && (best == spares.size() || spares[i].room < spares[best].room)) best = i;
  if (best < spares.size()) {
    const Buffer spare = spares[best];
    spares.erase(spares.begin() + best);
    add_spare_bytes(-spare.mapped());
    b.room = spare.room;
    return spare.map;
  }
  b.room = b.pages;
  void* map = mmap(nullptr, b.mapped(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return map == MAP_FAILED ? nullptr : static_cast<char*>(map);
}

static Buffer& allocate(const std::string& name, size_t bytes, size_t alignment, Placement placement) {
  if (buffer_count == 64) fault("crashed", "the harness holds 64 buffers at most");
  Buffer& b = buffers[buffer_count];
  snprintf(b.name, sizeof b.name, "%s", name.c_str());
  // Tensors that all start on a page boundary would evict each other from caches, so starts are 320 bytes apart.
  size_t offset = placement == Placement::spread ? buffer_count * 320 % PAGE : 0;
  b.pages = round_up(std::max<size_t>(bytes + offset, 1), PAGE);
  b.bytes = bytes;
  b.read_only = false;
  // Large pages are faster to allocate. Not where kernels are timed.
  b.is_huge = placement != Placement::spread;
  b.map = room_for(b);
  const size_t left = b.room - b.pages; // qemu refuses to protect 0 bytes
  if (!b.map || mprotect(b.begin(), b.pages, PROT_READ | PROT_WRITE) || (left > 0 && mprotect(b.end(), left, PROT_NONE)))
    fault(kernels_ran ? "out-of-memory" : "environment", format("%zu bytes for %s were refused", bytes, b.name).c_str());
#ifdef MADV_HUGEPAGE
  if (b.is_huge) madvise(b.begin(), b.pages, MADV_HUGEPAGE);
#endif
#ifdef MADV_POPULATE_WRITE
  // All pages are written. One by one they take twice as long to come.
  madvise(b.begin(), b.pages, MADV_POPULATE_WRITE);
#endif
  b.data = b.begin() + offset;
  if (placement == Placement::end) b.data = b.begin() + (b.pages - bytes) / alignment * alignment;
  // Fills the space between the data and the guards. The caller fills the data.
  memset(b.begin(), CANARY, b.data - b.begin());
  memset(b.data + bytes, CANARY, b.end() - (b.data + bytes));
  buffer_count++;
  return b;
}

static void release_all() {
  while (buffer_count > 0) {
    spares.push_back(buffers[--buffer_count]);
    add_spare_bytes(spares.back().mapped());
  }
  while (spare_bytes > MOST_SPARE_BYTES) unmap_oldest_spare();
}

static void protect(Buffer& b) {
  mprotect(b.begin(), b.pages, PROT_READ);
  b.read_only = true;
}

/** Describes a write between the data and the guards, at its farthest byte; empty if there is none. */
static std::string damage() {
  for (int i = 0; i < buffer_count; i++) {
    const Buffer& b = buffers[i];
    auto intact = [](const char* p) { return static_cast<unsigned char>(*p) == CANARY; };
    for (const char* p = b.begin(); p < b.data; p++)
      if (!intact(p)) return format("wrote %zd bytes before the start of %s", b.data - p, b.name);
    for (const char* p = b.end(); p-- > b.data + b.bytes;)
      if (!intact(p)) return format("wrote %zd bytes behind the end of %s", p - (b.data + b.bytes) + 1, b.name);
  }
  return "";
}

