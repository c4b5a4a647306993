// Starting CUDA kernels, and failures of CUDA as exceptions. Nothing here waits for the GPU.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <stdexcept>
#include <string>

#include "kernels.h"

namespace qc::cuda {

inline void check(cudaError_t code) {
  if (code != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(code));
}

// Starts a kernel with that many blocks. Cards take up to 2^31 - 1 of them, more than any memory has work
// for.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), std::size_t blocks, unsigned threads, Stream stream,
            Arguments... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(threads);
  config.stream = static_cast<cudaStream_t>(stream);
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}

inline std::size_t divide_up(std::size_t count, std::size_t size) { return (count + size - 1) / size; }

// The number of multiprocessors of the current device.
inline std::size_t multiprocessors() {
  int device = 0, number = 0;
  check(cudaGetDevice(&device));
  check(cudaDeviceGetAttribute(&number, cudaDevAttrMultiProcessorCount, device));
  return static_cast<std::size_t>(number);
}

}  // namespace qc::cuda
