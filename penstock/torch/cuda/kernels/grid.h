// Kernels as CUDA compiles them, or as loops over blocks and threads: the same source runs on a processor, where every
// address can be checked. A kernel is one function of a thread, or several with barriers between them.

#pragma once

typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

#ifdef __CUDACC_RTC__

#define DEVICE static __device__ __forceinline__
#define DEVICE_METHOD __device__ __forceinline__
#define CONSTANT static __constant__ const
#define TABLE static __device__ const // threads read it with different indices

DEVICE u32 swap_bytes(u32 word) { return __byte_perm(word, 0, 0x0123); }
DEVICE i32 count_ones(i32 word) { return __popc(word); }

#define KERNEL(name, Argument, argument)                                                                               \
  DEVICE void name##_thread(const Argument &);                                                                         \
  extern "C" __global__ void name(const __grid_constant__ Argument argument) { name##_thread(argument); }              \
  DEVICE void name##_thread(const Argument &argument)

template <typename Argument, typename Shared, void (*...phases)(const Argument &, Shared &)>
DEVICE void run_phases(const Argument &argument, Shared &shared) {
  ((phases(argument, shared), __syncthreads()), ...);
}

// Phases: functions of the argument and of memory that a block's threads share, with barriers between them.
#define KERNEL_OF(name, Argument, Shared, ...)                                                                         \
  extern "C" __global__ void name(const __grid_constant__ Argument argument) {                                         \
    __shared__ Shared shared;                                                                                          \
    run_phases<Argument, Shared, __VA_ARGS__>(argument, shared);                                                       \
  }

template <typename T> DEVICE void add_shared(T &sum, T value) { atomicAdd(&sum, value); }

#else

#include <cstring>

#define DEVICE static inline
#define DEVICE_METHOD inline
#define CONSTANT static const
#define TABLE static const

DEVICE u32 swap_bytes(u32 word) { return word << 24 | (word & 0xff00) << 8 | (word >> 8 & 0xff00) | word >> 24; }
DEVICE i32 count_ones(i32 word) { return __builtin_popcount((u32)word); }

struct Index {
  i32 x, y;
};
static thread_local Index threadIdx, blockIdx, blockDim, gridDim;

template <typename Run> static void run_grid(i32 columns, i32 rows, Run run) {
  gridDim = {columns, rows};
  for (blockIdx.y = 0; blockIdx.y < rows; blockIdx.y++)
    for (blockIdx.x = 0; blockIdx.x < columns; blockIdx.x++)
      run();
}

// `REVERSED`: from the last thread to the first. Where threads of a block depend on each other without a barrier, the
// results differ.
template <typename Run> static void run_block(i32 threads, Run run) {
  blockDim = {threads, 1};
  for (i32 i = 0; i < threads; i++) {
#ifdef REVERSED
    threadIdx = {threads - 1 - i, 0};
#else
    threadIdx = {i, 0};
#endif
    run();
  }
}

#define KERNEL(name, Argument, argument)                                                                               \
  static void name##_thread(const Argument &);                                                                         \
  extern "C" void name(const Argument *given, i32 columns, i32 rows, i32 threads) {                                    \
    run_grid(columns, rows, [&] { run_block(threads, [&] { name##_thread(*given); }); });                              \
  }                                                                                                                    \
  static void name##_thread(const Argument &argument)

template <typename Argument, typename Shared, void (*...phases)(const Argument &, Shared &)>
static void run_phases(const Argument &argument, i32 threads) {
  Shared *shared = new Shared; // on the heap, where its bounds are checked
  memset((void *)shared, 0xa5, sizeof(Shared));
  (run_block(threads, [&] { phases(argument, *shared); }), ...);
  delete shared;
}

#define KERNEL_OF(name, Argument, Shared, ...)                                                                         \
  extern "C" void name(const Argument *given, i32 columns, i32 rows, i32 threads) {                                    \
    run_grid(columns, rows, [&] { run_phases<Argument, Shared, __VA_ARGS__>(*given, threads); });                      \
  }

template <typename T> DEVICE void add_shared(T &sum, T value) { sum += value; }

#endif

template <typename T> DEVICE T least(T a, T b) { return a < b ? a : b; }
template <typename T> DEVICE T most(T a, T b) { return a > b ? a : b; }
template <typename T> DEVICE T clamp(T value, T low, T high) { return value < low ? low : value > high ? high : value; }
