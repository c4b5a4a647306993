// How a device makes codes of softmax and normalizations, as tests/support/requantize_normalization.py
// defines it.
#pragma once

#include "requantize.h"

namespace qc {

// What weights a normalization along the last dimension: one number or one for each place in a row.
struct RowWeights {
  Tensor<float> weight;
  Tensor<float> weight_scale;
  Tensor<float> bias;
  Tensor<float> epsilon;
  bool centered;
};

// Both write numbers of the grid for what is made of x, which is on a grid with one scale; `made` is what the
// exact operator gives, which is written where a scale of zero among the arguments switches a quantizer off.
// A row of x that has NaN or infinity becomes the lowest codes. They throw InvalidArgument if shapes do not
// fit or a scale is not finite or below zero.

// The softmax along an axis.
void requantize_softmax(const Tensor<float>& made, const Grid& grid, const Tensor<float>& x,
                        const Tensor<float>& x_scale, std::int64_t axis, float* y, const TaskRunner& run);

// The normalization of the last dimension.
void requantize_normalization(const Tensor<float>& made, const Grid& grid, const Tensor<float>& x,
                              const Tensor<float>& x_scale, const RowWeights& weights, float* y,
                              const TaskRunner& run);

}  // namespace qc
