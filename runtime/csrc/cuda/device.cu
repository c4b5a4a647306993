// Whether there is a GPU to run on.
#include "../tensor.h"
#include "launch.h"

namespace {

__global__ void nothing() {}

}  // namespace

// Null if kernels of this library can run on the current device, else what CUDA says of it. Looking for a
// kernel finds out all of that: a driver that is missing or too old, no device, or one that there is no
// machine code for.
QC_EXPORT const char* qc_cuda_failure() {
  cudaFuncAttributes attributes;
  const cudaError_t code = cudaFuncGetAttributes(&attributes, nothing);
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}
