// Kernels as CUDA compiles them, or as loops over blocks and threads: the same source runs on a processor, where every
// address can be checked. A kernel is one function of a thread, or two with a barrier between them.

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

DEVICE u32 swap_bytes(u32 word) { return __byte_perm(word, 0, 0x0123); }

#define KERNEL(name)                                                                                                   \
  DEVICE void name##_thread(const Batch &);                                                                            \
  extern "C" __global__ void name(const Batch batch) { name##_thread(batch); }                                         \
  DEVICE void name##_thread(const Batch &batch)

// `first` and `second`: functions of the batch and of memory that a block's threads share.
#define KERNEL_OF_TWO(name, Shared, first, second)                                                                     \
  extern "C" __global__ void name(const Batch batch) {                                                                 \
    __shared__ Shared shared;                                                                                          \
    first(batch, shared);                                                                                              \
    __syncthreads();                                                                                                   \
    second(batch, shared);                                                                                             \
  }

#else

#include <cstring>

#define DEVICE static inline
#define DEVICE_METHOD inline
#define CONSTANT static const

DEVICE u32 swap_bytes(u32 word) { return word << 24 | (word & 0xff00) << 8 | (word >> 8 & 0xff00) | word >> 24; }

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

template <typename Run> static void run_block(i32 threads, Run run) {
  blockDim = {threads, 1};
  for (threadIdx = {0, 0}; threadIdx.x < threads; threadIdx.x++)
    run();
}

#define KERNEL(name)                                                                                                   \
  static void name##_thread(const Batch &);                                                                            \
  extern "C" void name(const Batch *batch, i32 columns, i32 rows, i32 threads) {                                       \
    run_grid(columns, rows, [&] { run_block(threads, [&] { name##_thread(*batch); }); });                              \
  }                                                                                                                    \
  static void name##_thread(const Batch &batch)

#define KERNEL_OF_TWO(name, Shared, first, second)                                                                     \
  extern "C" void name(const Batch *batch, i32 columns, i32 rows, i32 threads) {                                       \
    run_grid(columns, rows, [&] {                                                                                      \
      Shared *shared = new Shared; /* on the heap, where its bounds are checked */                                     \
      memset((void *)shared, 0xa5, sizeof(Shared));                                                                    \
      run_block(threads, [&] { first(*batch, *shared); });                                                             \
      run_block(threads, [&] { second(*batch, *shared); });                                                            \
      delete shared;                                                                                                   \
    });                                                                                                                \
  }

#endif

// The number of this thread among those of its row of the grid.
DEVICE i64 thread_number() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }

template <typename T> DEVICE T least(T a, T b) { return a < b ? a : b; }
template <typename T> DEVICE T most(T a, T b) { return a > b ? a : b; }
template <typename T> DEVICE T clamp(T value, T low, T high) { return value < low ? low : value > high ? high : value; }
