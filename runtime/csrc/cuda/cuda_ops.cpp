// The operators on NVIDIA GPUs, on the stream of the session.
#include "../operators.h"
#include "kernels.h"

namespace qc {
namespace {

class Cuda {
 public:
  static constexpr const char* kProvider = "CUDAExecutionProvider";
  static constexpr bool kCountsOnHost = false;

  Cuda(const ort::Api& api, ort::KernelContext* context) {
    check(api, api.KernelContext_GetGPUComputeStream(context, &stream_));
  }

  void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid,
                     void* y) const {
    cuda::fake_quantize(attributes, x, grid, y, stream_);
  }

  void observe(const FloatTensor& x, std::int64_t axis, const Observation& result) const {
    cuda::observe(x, axis, result, stream_);
  }

 private:
  cuda::Stream stream_ = nullptr;
};

}  // namespace

Operators cuda_operators(const ort::Api& api) { return operators_of<Cuda>(api); }

}  // namespace qc
