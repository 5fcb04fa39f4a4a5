/*
 * The part of Intel's cm_rt.h that host programs use: devices, buffers, kernels in thread groups. Kernels are functions
 * of the same program, as in Intel's own emulation: CM_KERNEL_FUNCTION gives a kernel's address beside its name.
 */
#ifndef AUTOMAP_EMULATION_CM_RT_H
#define AUTOMAP_EMULATION_CM_RT_H

#include <vector>

#include "cm.h"

enum { CM_SUCCESS = 0, CM_FAILURE = -1, CM_INVALID_ARG_VALUE = -10 };
#define CM_KERNEL_FUNCTION(...) #__VA_ARGS__, (const void*)__VA_ARGS__

struct CmEvent {
  int WaitForTaskFinished(unsigned = 0) { return CM_SUCCESS; }
};
struct CmProgram {};
struct CmThreadGroupSpace {
  unsigned groups;
};

class CmBuffer {
  std::vector<unsigned char> held;
  SurfaceIndex index;

 public:
  explicit CmBuffer(unsigned bytes) : held(bytes, 0xff), index{held.data(), bytes} {}
  int GetIndex(SurfaceIndex*& to) { return to = &index, CM_SUCCESS; }
  int WriteSurface(const unsigned char* from, CmEvent*, unsigned long long = ~0ull) { return memcpy(held.data(), from, held.size()), CM_SUCCESS; }
  int ReadSurface(unsigned char* to, CmEvent*, unsigned long long = ~0ull) { return memcpy(to, held.data(), held.size()), CM_SUCCESS; }
};

class CmKernel {
  const void* function;
  std::vector<SurfaceIndex> given;

  template <class... S> void call(S... surfaces) const { ((void (*)(S...))function)(surfaces...); }

 public:
  explicit CmKernel(const void* function) : function(function) {}
  int SetKernelArg(unsigned i, size_t bytes, const void* value) {
    if (bytes != sizeof(SurfaceIndex) || i != given.size()) return CM_INVALID_ARG_VALUE;
    given.push_back(*(const SurfaceIndex*)value);
    return CM_SUCCESS;
  }
  int run() const {
    const SurfaceIndex* s = given.data();
    switch (given.size()) {
      case 1: return call(s[0]), CM_SUCCESS;
      case 2: return call(s[0], s[1]), CM_SUCCESS;
      case 3: return call(s[0], s[1], s[2]), CM_SUCCESS;
      case 4: return call(s[0], s[1], s[2], s[3]), CM_SUCCESS;
      case 5: return call(s[0], s[1], s[2], s[3], s[4]), CM_SUCCESS;
      case 6: return call(s[0], s[1], s[2], s[3], s[4], s[5]), CM_SUCCESS;
      default: return CM_FAILURE;
    }
  }
};

struct CmTask {
  CmKernel* kernel;
  int AddKernel(CmKernel* added) { return kernel ? CM_FAILURE : (kernel = added, CM_SUCCESS); }
};

struct CmQueue {
  int EnqueueWithGroup(CmTask* task, CmEvent*& event, const CmThreadGroupSpace* space = nullptr) {
    if (!space || !task->kernel) return CM_INVALID_ARG_VALUE;
    int result = CM_SUCCESS;
    emulation::run_groups(space->groups, [&] { result |= task->kernel->run(); });
    event = new CmEvent;
    return result;
  }
  int DestroyEvent(CmEvent*& event) { return delete event, event = nullptr, CM_SUCCESS; }
};

struct CmDevice {
  CmQueue queue;
  int CreateBuffer(unsigned bytes, CmBuffer*& to) { return to = new CmBuffer(bytes), CM_SUCCESS; }
  int LoadProgram(void*, unsigned, CmProgram*& to, const char* = nullptr) { return to = new CmProgram, CM_SUCCESS; }
  int CreateQueue(CmQueue*& to) { return to = &queue, CM_SUCCESS; }
  int CreateKernel(CmProgram* program, const char*, const void* function, CmKernel*& to, const char* = nullptr) {
    return program ? (to = new CmKernel(function), CM_SUCCESS) : CM_INVALID_ARG_VALUE;
  }
  int CreateTask(CmTask*& to) { return to = new CmTask{nullptr}, CM_SUCCESS; }
  int CreateThreadGroupSpace(unsigned width, unsigned height, unsigned groups, unsigned rows, CmThreadGroupSpace*& to) {
    return width == 1 && height == 1 && rows == 1 ? (to = new CmThreadGroupSpace{groups}, CM_SUCCESS) : CM_INVALID_ARG_VALUE;
  }
  int DestroyKernel(CmKernel*& kernel) { return delete kernel, kernel = nullptr, CM_SUCCESS; }
  int DestroyTask(CmTask*& task) { return delete task, task = nullptr, CM_SUCCESS; }
  int DestroyThreadGroupSpace(CmThreadGroupSpace*& space) { return delete space, space = nullptr, CM_SUCCESS; }
};
static inline int CreateCmDevice(CmDevice*& to, unsigned& version) { return version = 600, to = new CmDevice, CM_SUCCESS; }
static inline int DestroyCmDevice(CmDevice*& device) { return device = nullptr, CM_SUCCESS; }

#endif
