// A stand-in for the header of CUDA that runs kernels on the processor, so that tests can run them where
// there is no GPU. It has what the kernels of qc use, and nothing that waits for a device: a kernel library
// that would do so does not compile here.
//
// The threads of a block are contexts that take turns: each runs until it ends or waits for the others. The
// order of the turns is reversed from one wait to the next, to find code that relies on an order.
#pragma once

#include <ucontext.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __shared__ static
#define __launch_bounds__(threads)

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3() = default;
  dim3(unsigned width) : x(width) {}
};

using cudaError_t = int;
using cudaStream_t = void*;
constexpr cudaError_t cudaSuccess = 0;
constexpr int cudaDevAttrMultiProcessorCount = 0;

inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }

inline cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, int, int) {
  *value = 2;
  return cudaSuccess;
}

inline dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace cuda_on_host {

class Block {
 public:
  // Runs one block of threads to the end.
  void run(unsigned threads, const std::function<void()>& kernel) {
    kernel_ = &kernel;
    threads_.resize(threads);
    stacks_.resize(threads * kStack);
    for (unsigned index = 0; index < threads; ++index) start(index);
    unsigned running = threads;
    for (bool reversed = false; running > 0; reversed = !reversed) {
      unsigned ended = 0;
      for (unsigned turn = 0; turn < threads; ++turn) ended += resume(reversed ? threads - 1 - turn : turn);
      if (ended != 0 && ended != running) {
        std::fputs("some threads of a block ended while others wait for them in __syncthreads\n", stderr);
        std::abort();
      }
      running -= ended;
    }
  }

  void wait() { swapcontext(&threads_[threadIdx.x].context, &scheduler_); }

 private:
  static constexpr std::size_t kStack = 64 << 10;
  struct Thread {
    ucontext_t context;
    bool ended = false;
  };

  void start(unsigned index) {
    Thread& thread = threads_[index];
    thread.ended = false;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = &stacks_[index * kStack];
    thread.context.uc_stack.ss_size = kStack;
    thread.context.uc_link = &scheduler_;
    makecontext(&thread.context, &Block::enter, 0);
  }

  unsigned resume(unsigned index) {
    if (threads_[index].ended) return 0;
    threadIdx.x = index;
    swapcontext(&scheduler_, &threads_[index].context);
    return threads_[index].ended;
  }

  static void enter();

  const std::function<void()>* kernel_ = nullptr;
  ucontext_t scheduler_;
  std::vector<Thread> threads_;
  std::vector<char> stacks_;
};

inline Block block;

inline void Block::enter() {
  (*block.kernel_)();
  block.threads_[threadIdx.x].ended = true;
}

inline std::mutex mutex;

}  // namespace cuda_on_host

inline void __syncthreads() { cuda_on_host::block.wait(); }
inline void __threadfence() {}

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  cudaStream_t stream = nullptr;
};

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments... arguments) {
  const std::lock_guard<std::mutex> lock(cuda_on_host::mutex);
  gridDim = config->gridDim;
  blockDim = config->blockDim;
  for (unsigned index = 0; index < gridDim.x; ++index) {
    blockIdx.x = index;
    cuda_on_host::block.run(blockDim.x, [&] { kernel(arguments...); });
  }
  return cudaSuccess;
}

template <class Number>
Number atomicAdd(Number* target, Number summand) {
  const Number before = *target;
  *target += summand;
  return before;
}

template <class Number>
Number atomicMin(Number* target, Number other) {
  const Number before = *target;
  if (other < before) *target = other;
  return before;
}

template <class Number>
Number atomicMax(Number* target, Number other) {
  const Number before = *target;
  if (other > before) *target = other;
  return before;
}
