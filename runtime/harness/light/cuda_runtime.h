/*
 * What kernels need of CUDA's own header of this name, which nvcc includes in every text: a third of its time for one kernel is spent on the rest,
 * the mathematical functions above all. Texts that call those are compiled with the whole header (runtime/run/cuda-parts.ts).
 */
#pragma once
#define __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__
#include "crt/host_config.h"
#include "crt/host_defines.h"
#include "builtin_types.h"
#include "cuda_runtime_api.h"
#include "vector_functions.h"
#include "crt/device_functions.h"
#include "device_launch_parameters.h"
#undef __CUDA_INCLUDE_COMPILER_INTERNAL_HEADERS__

/* The host's part is compiled elsewhere. */
template <class F, class... T> static cudaError_t cudaLaunchKernel(F*, T...) { return cudaSuccess; }
template <class F, class... T> static cudaError_t cudaFuncSetAttribute(F*, T...) { return cudaSuccess; }
