// qc::FakeQuantize: rounds a tensor to the grid of a quantizer, as qc.ir.arithmetic.fake_quantize defines it.
#pragma once

#include "tensor.h"

namespace qc {

enum class Granularity { tensor, channel, block };

// The attributes of the operator.
struct QuantizerAttributes {
  Granularity granularity;
  std::int64_t axis;
  std::int64_t block_size;
  Rounding rounding;
  Format format;

  // Throws InvalidArgument if a word is unknown or the block size is not positive.
  QuantizerAttributes(const std::string& granularity, std::int64_t axis, std::int64_t block_size,
                      const std::string& rounding, const std::string& format);
};

// The grid: limits are the lowest and the highest code, read for integer formats only. A scale tensor
// whose first element is zero switches the quantizer off.
struct Grid {
  Tensor<float> scale;
  Tensor<std::int32_t> zero_point;
  Tensor<std::int32_t> limits;
};

// Writes the fake quantization of x to y, which has the type and shape of x and is the same memory or does
// not overlap it. Throws InvalidArgument if the grid does not fit.
void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y,
                   const TaskRunner& run);

}  // namespace qc
