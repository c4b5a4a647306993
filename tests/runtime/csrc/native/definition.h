// Fake quantization to integers by its definition, one element at a time: see qc.ir.arithmetic.fake_quantize.
#pragma once

#include "common.h"
#include "fake_quantize.h"

namespace qc_test {

// Which elements share a scale, in the words of qc::QuantizerAttributes.
struct Sharing {
  std::string granularity;
  std::int64_t axis;
  std::int64_t block_size;
};

// All elements one, and along each axis each index, and each block of some sizes.
std::vector<Sharing> ways_to_share(const Dims& dims);

// The shape of the scales of a tensor.
Dims scale_dims(const Sharing& sharing, const Dims& dims);

// The index of the scale of element i.
std::size_t scale_index(const Sharing& sharing, const Dims& dims, std::size_t i);

// A grid and its memory. A new one has scales and zero points of zero.
struct OwnGrid {
  Dims dims;
  std::vector<float> scale;
  std::vector<std::int32_t> zero_point, limits;

  OwnGrid(const Dims& scales, std::int32_t lowest, std::int32_t highest);
  qc::Grid grid() const;
};

// What x becomes on the scale and the zero point of that index.
float rounded(const OwnGrid& grid, std::size_t index, qc::Rounding rounding, float x);

}  // namespace qc_test
