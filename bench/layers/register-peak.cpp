/*
 * How near a kernel of the default conv2d (C = K = 64, 56x56, 3x3: 231,211,008 operations) comes to its own instruction: the same number
 * of operations from registers only, sixteen independent accumulators, in turns with the kernel, in one process.
 *
 *     automap tune conv2d --layout NHWC --intrinsic avx512.vpdpbusds --to kernel.cpp
 *     g++ -O3 -std=c++17 -shared -fPIC -ffp-contract=off -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni kernel.cpp -o kernel.so
 *     g++ -O2 -mavx512f -mavx512vnni bench/layers/register-peak.cpp -o register-peak -ldl && ./register-peak ./kernel.so vnni
 *
 * With `--dtype f32`, the last word is `f32`.
 */
#include <dlfcn.h>
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <algorithm>
#include <vector>
static double now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1e6 + t.tv_nsec * 1e-3; }
#define R(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
__attribute__((noinline)) static void vnni(long n){
#define D(i) __m512i c##i=_mm512_setzero_si512();
R(D) __m512i a=_mm512_set1_epi8(1),b=a;
while(n--){
#define I(i) asm volatile("vpdpbusd %2,%1,%0":"+v"(c##i):"v"(a),"v"(b));
R(I)}}
__attribute__((noinline)) static void fma(long n){
#define E(i) __m512 f##i=_mm512_setzero_ps();
R(E) __m512 a=_mm512_set1_ps(1),b=a;
while(n--){
#define J(i) asm volatile("vfmadd231ps %2,%1,%0":"+v"(f##i):"v"(a),"v"(b));
R(J)}}
int main(int c,char**v){void*h=dlopen(v[1],RTLD_NOW);bool f32=v[2][0]=='f';double per=f32?512:2048;/*ops of 16 issues: 16*32 or 16*128*/
auto wb=(unsigned long(*)())dlsym(h,"automap_workspace_bytes");auto sb=(unsigned long(*)())dlsym(h,"automap_scratch_bytes");auto prep=(void(*)(void*,const void*const*))dlsym(h,"automap_prepare");auto ph=(int(*)())dlsym(h,"automap_phases");auto run=(void(*)(void*,void*const*,int,int,int))dlsym(h,"automap_run");
void*ws=aligned_alloc(64,(wb()+63)/64*64);void*t[4];for(auto&p:t){p=aligned_alloc(64,1<<21);memset(p,1,1<<21);}t[3]=aligned_alloc(64,sb()/64*64+64);prep(ws,t);double ops=231211008;long n=ops/per;std::vector<double> k,q;
for(int i=0;i<1500;i++){double a=now();for(int p=0;p<ph();p++)run(ws,t,p,0,1);double b=now();if(f32)fma(n);else vnni(n);double e=now();k.push_back(b-a);q.push_back(e-b);}
std::sort(k.begin(),k.end());std::sort(q.begin(),q.end());printf("%s kernel %.1f us, same operations from registers %.1f us, share %.3f\n",v[2],k[750],q[750],q[750]/k[750]);}
