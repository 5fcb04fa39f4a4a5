/*
 * The part of OpenCL C that the intrinsics table uses: four-byte vectors and Arm's integer dot products.
 * Written from the OpenCL extension cl_arm_integer_dot_product.
 */
#ifndef AUTOMAP_EMULATION_OPENCL_H
#define AUTOMAP_EMULATION_OPENCL_H

#include <stddef.h>
#include <stdint.h>

#define __global
typedef unsigned char uchar;
typedef unsigned int uint;
struct char4 {
  signed char s0, s1, s2, s3;
};
struct uchar4 {
  uchar s0, s1, s2, s3;
};

static inline char4 vload4(size_t offset, const char* p) {
  const signed char* from = (const signed char*)p + 4 * offset;
  return {from[0], from[1], from[2], from[3]};
}
static inline uchar4 vload4(size_t offset, const uchar* p) {
  const uchar* from = p + 4 * offset;
  return {from[0], from[1], from[2], from[3]};
}

static inline int arm_dot(char4 a, char4 b) { return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3; }
static inline uint arm_dot(uchar4 a, uchar4 b) { return a.s0 * b.s0 + a.s1 * b.s1 + a.s2 * b.s2 + a.s3 * b.s3; }
static inline int arm_dot_acc(char4 a, char4 b, int c) { return (int)((uint)arm_dot(a, b) + (uint)c); }
static inline uint arm_dot_acc(uchar4 a, uchar4 b, uint c) { return arm_dot(a, b) + c; }
static inline int arm_dot_acc_sat(char4 a, char4 b, int c) {
  int64_t sum = (int64_t)arm_dot(a, b) + c;
  return sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : (int)sum;
}

#endif
