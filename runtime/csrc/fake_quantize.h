// qc::FakeQuantize: rounds a tensor to the grid of a quantizer, as qc.ir.arithmetic.fake_quantize defines it.
#pragma once

#include <limits>

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
  float minimum,
      maximum;  // elements are clamped to these before they are rounded, and if the quantizer is off

  // Throws InvalidArgument if a word is unknown or the block size is not positive.
  QuantizerAttributes(const std::string& granularity, std::int64_t axis, std::int64_t block_size,
                      const std::string& rounding, const std::string& format, float minimum = -kInfinity,
                      float maximum = kInfinity);

  bool clamps() const { return minimum > -kInfinity || maximum < kInfinity; }

  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
};

// The grid: limits are the lowest and the highest code, read for integer formats only. A scale tensor
// whose first element is zero switches the quantizer off.
struct Grid {
  Tensor<float> scale;
  Tensor<std::int32_t> zero_point;
  Tensor<std::int32_t> limits;
};

// How the elements of a tensor find their scale. The tensor is seen as rows of runs (the last run of a row
// may be shorter). Either the elements of a run share one scale, or a run has as many scales as elements.
struct Layout {
  std::size_t row;            // elements of a row
  std::size_t run;            // elements of a run
  bool shared;                // whether a run shares one scale
  std::size_t repeat;         // how many runs in a row use the same row of scales, if not shared
  std::size_t scales_of_row;  // how far the scales move on from row to row: 0 if all rows use the same
};

// Throws InvalidArgument if the scale does not fit x.
Layout layout_of(const QuantizerAttributes& attributes, const Shape& x, const Shape& scale);

// Throws InvalidArgument if the shapes of the grid do not fit each other; reads no data.
void check_grid_shapes(const QuantizerAttributes& attributes, const Grid& grid);

// Writes the fake quantization of x to y, which has the type and shape of x and is the same memory or does
// not overlap it. Throws InvalidArgument if the grid does not fit.
void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y,
                   const TaskRunner& run);

}  // namespace qc
