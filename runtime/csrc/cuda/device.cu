// Whether there is a GPU to run on.
#include "../tensor.h"
#include "launch.h"

// Null if kernels of this library can run on some device, else what CUDA says of it.
QC_EXPORT const char* qc_cuda_failure() {
  int devices = 0;
  const cudaError_t code = cudaGetDeviceCount(&devices);
  return code == cudaSuccess ? nullptr : cudaGetErrorString(code);
}
