// How a device makes codes of what it computed in integers, as tests/support/requantize.py defines it.
#pragma once

#include <vector>

#include "fake_quantize.h"

namespace qc {

// How accumulated integers become codes; qc.ir.quant.device_arithmetic tells what each does.
enum class Arithmetic { matrix, vector, codes, halves, reduced, moved };

// Throws InvalidArgument if the word is unknown.
Arithmetic arithmetic_of(const std::string& word);

// Numbers on a grid of one scale.
struct OnGrid {
  Tensor<float> numbers;
  Tensor<float> scale;
  Tensor<std::int32_t> zero_point;
};

// All of these write the numbers of the grid that are nearest to something as a device finds them. The grid
// has one scale and an integer format. A scale of zero among the arguments switches the quantizer off, and
// what is computed exactly is written. NaN gives the lowest code; so does infinity where several numbers are
// combined, and the end of the grid where there is one. They throw InvalidArgument if shapes do not fit or a
// scale is not finite or below zero.

// To x, which are sums of integers as real numbers. What one is worth there is the scale of the input times
// that of the weight; the latter is one for the tensor, one for each channel along the axis, or one for each
// place along as many axes from it on as it has.
void requantize(Arithmetic arithmetic, std::int64_t axis, const Tensor<float>& x, const Grid& grid,
                const Tensor<float>& input_scale, const Tensor<float>& weight_scale, float* y,
                const TaskRunner& run);

// To a + b, or to a - b; y has the shape that both broadcast to.
void requantize_sum(bool subtract, const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape,
                    float* y, const TaskRunner& run);

// To a * b; y has the shape that both broadcast to.
void requantize_product(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                        const TaskRunner& run);

// To a / b; y has the shape that both broadcast to.
void requantize_quotient(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                         const TaskRunner& run);

// To the matrix product of a and b, whose columns become int8 first; y has the shape of matmul_shape. More
// than 255 steps count as 255.
void requantize_matmul(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                       const TaskRunner& run);

// To x, of which what is below 0 is multiplied by a slope; y has the shape of x.
void requantize_prelu(const Tensor<float>& x, const Grid& grid, const Tensor<float>& input_scale,
                      const Tensor<float>& slope, float* y, const TaskRunner& run);

// To x, found in float16: the steps, of which halves go away from zero, or the codes, of which halves go up.
void quantize_in_float16(bool with_zero_point, const Tensor<float>& x, const Grid& grid, float* y,
                         const TaskRunner& run);

}  // namespace qc
