#include "requantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "broadcast.h"
#include "codes.h"
#include "formats.h"
#include "rescaling.h"

namespace qc {
namespace {

// The constant term of a sum of two tensors is a multiple of the first; its factors have the second.
constexpr double kSumUnit = 256;
constexpr int kSumBits = 13;
// The scale that a column of codes is divided by, and its reciprocal, are whole numbers of the parts of one.
constexpr double kColumnUnit = 1 << 11, kReciprocalUnit = 1 << 16;

// A matrix of codes less their zero point, whose columns become codes of int8 by scales of their own: NaN for
// columns that have a number without a code.
struct SignedColumns {
  std::vector<std::int32_t> codes;
  std::vector<float> scales;

  SignedColumns(const float* numbers, double scale, std::size_t rows, std::size_t columns)
      : codes(rows * columns), scales(columns) {
    std::vector<double> largest(columns, 1);
    for (std::size_t i = 0; i < codes.size(); ++i) {
      const double steps = steps_of(numbers[i], scale);
      if (std::isnan(steps)) scales[i % columns] = NAN;
      codes[i] = whole_steps(steps);
      largest[i % columns] = std::max(largest[i % columns], codes[i] / (codes[i] < 0 ? -128.0 : 127.0));
    }
    for (std::size_t column = 0; column < columns; ++column) {
      const double own = std::floor(largest[column] * kColumnUnit + 0.5) / kColumnUnit;
      const double reciprocal = std::floor(kReciprocalUnit / own + 0.5) / kReciprocalUnit;
      scales[column] += static_cast<float>(own);
      for (std::size_t i = column; i < codes.size(); i += columns) {
        const auto code = static_cast<std::int32_t>(std::floor(codes[i] * reciprocal + 0.5));
        codes[i] = std::min(std::max(code, -128), 127);
      }
    }
  }
};

// Calls action(i, place in a, place in b) for the elements i of a result.
template <class Action>
void each_pair(const Shape& a, const Shape& b, const Shape& result, const TaskRunner& run,
               const Action& action) {
  const std::size_t count = result.count();
  const bool alike = a.count() == count && b.count() == count;
  const std::vector<std::size_t> of_a = strides_in(a, result), of_b = strides_in(b, result);
  in_tasks(count, run, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      action(i, alike ? i : place_of(i, result, of_a), alike ? i : place_of(i, result, of_b));
  });
}

// Writes for each pair of numbers what a rescaling of both scales and the grid makes of their steps: a code.
// If one of the scales is zero, exact(number, number) is written.
template <class Exact, class Rescale>
void requantize_pairs(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                      const TaskRunner& run, const Exact& exact, const Rescale& rescale) {
  const Codes codes(grid);
  const float scale_a = one_number("a_scale", a.scale), scale_b = one_number("b_scale", b.scale);
  const float *numbers_a = a.numbers.data, *numbers_b = b.numbers.data;
  if (codes.scale == 0 || scale_a == 0 || scale_b == 0)
    return each_pair(
        a.numbers.shape, b.numbers.shape, shape, run,
        [&](std::size_t i, std::size_t p, std::size_t q) { y[i] = exact(numbers_a[p], numbers_b[q]); });
  const auto code = rescale(scale_a, scale_b, codes);
  each_pair(a.numbers.shape, b.numbers.shape, shape, run, [&](std::size_t i, std::size_t p, std::size_t q) {
    const double steps_a = steps_of(numbers_a[p], scale_a), steps_b = steps_of(numbers_b[q], scale_b);
    y[i] = codes.number(std::isnan(steps_a + steps_b) ? NAN : code(steps_a, steps_b));
  });
}

template <class Number>
void multiply(const Number* a, const Number* b, std::size_t rows, std::size_t inner, std::size_t columns,
              Number* y) {
  std::fill(y, y + rows * columns, Number{0});
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t k = 0; k < inner; ++k)
      for (std::size_t column = 0; column < columns; ++column)
        y[row * columns + column] += a[row * inner + k] * b[k * columns + column];
}

}  // namespace

Arithmetic arithmetic_of(const std::string& word) {
  if (word == "matrix") return Arithmetic::matrix;
  if (word == "vector") return Arithmetic::vector;
  if (word == "codes") return Arithmetic::codes;
  if (word == "halves") return Arithmetic::halves;
  if (word == "reduced") return Arithmetic::reduced;
  if (word == "moved") return Arithmetic::moved;
  throw InvalidArgument("Requantize: attribute arithmetic is '" + word +
                        "' but must be one of matrix, vector, codes, halves, reduced, moved.");
}

void requantize(Arithmetic arithmetic, std::int64_t axis, const Tensor<float>& x, const Grid& grid,
                const Tensor<float>& input_scale, const Tensor<float>& weight_scale, float* y,
                const TaskRunner& run) {
  const Codes codes(grid);
  const float input = one_number("input_scale", input_scale);
  const std::size_t count = x.shape.count(), channels = weight_scale.shape.count();
  const auto rank = static_cast<std::int64_t>(x.shape.rank);
  const auto place = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  const std::size_t behind = channels == 1 ? x.shape.rank : place + weight_scale.shape.rank;
  const bool fits =
      channels == 1 || (place < behind && behind <= x.shape.rank &&
                        std::equal(x.shape.dims + place, x.shape.dims + behind, weight_scale.shape.dims));
  if (!fits || channels == 0)
    throw InvalidArgument("Requantize: weight_scale has shape " + weight_scale.shape.text() +
                          ", which does not fit axis " + std::to_string(axis) + " of a tensor of shape " +
                          x.shape.text() + ".");
  if (codes.scale == 0 || input == 0) {
    std::copy(x.data, x.data + count, y);
    return;
  }
  const float largest = *std::max_element(weight_scale.data, weight_scale.data + channels);
  std::vector<Rescaling> rescaling;
  for (std::size_t i = 0; i < channels; ++i)
    rescaling.emplace_back(arithmetic, input, weight_scale.data[i], largest, codes);
  const std::size_t inner = channels == 1 ? count : x.shape.count(behind, x.shape.rank);
  in_tasks(count, run, [&](std::size_t begin, std::size_t end) {
    while (begin < end) {
      const Rescaling& here = rescaling[begin / inner % channels];
      const std::size_t stop = std::min(end, (begin / inner + 1) * inner);
      for (; begin < stop; ++begin)
        y[begin] = here.step == 0 ? x.data[begin] : codes.number(here.code(x.data[begin]));
    }
  });
}

void requantize_sum(bool subtract, const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape,
                    float* y, const TaskRunner& run) {
  const float sign = subtract ? -1 : 1;
  const auto exact = [=](float p, float q) { return p + sign * q; };
  requantize_pairs(a, b, grid, shape, y, run, exact, [&](double scale_a, double scale_b, const Codes& codes) {
    const double ratio_a = scale_a / codes.scale, ratio_b = scale_b / codes.scale;
    const double largest = subtract ? std::max(ratio_a, ratio_b) : ratio_a + ratio_b;
    const int shift = kSumBits - std::ilogb(largest);
    const double factor_a = std::nearbyint(std::ldexp(ratio_a, shift));
    const double factor_b = sign * std::nearbyint(std::ldexp(ratio_b, shift));
    const double zeros = factor_a * a.zero_point.data[0] + factor_b * b.zero_point.data[0];
    const double constant = std::ldexp(codes.zero_point, shift) - zeros;
    const double offset = kSumUnit * std::nearbyint(constant / kSumUnit) + zeros;
    return [=](double steps_a, double steps_b) {
      return std::floor(std::ldexp(offset + steps_a * factor_a + steps_b * factor_b, -shift) + 0.5);
    };
  });
}

void requantize_product(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                        const TaskRunner& run) {
  const auto exact = [](float p, float q) { return p * q; };
  requantize_pairs(a, b, grid, shape, y, run, exact, [&](float scale_a, float scale_b, const Codes& codes) {
    const ProductRescaling here(scale_a, scale_b, a.zero_point.data[0], b.zero_point.data[0], codes);
    return [=](double steps_a, double steps_b) { return here.code(steps_a * steps_b); };
  });
}

void requantize_quotient(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                         const TaskRunner& run) {
  const auto exact = [](float p, float q) { return p / q; };
  requantize_pairs(a, b, grid, shape, y, run, exact, [&](float scale_a, float scale_b, const Codes& codes) {
    const QuotientRescaling here(scale_a, scale_b, codes);
    return [=](double steps_a, double steps_b) { return here.code(steps_a, steps_b) + codes.zero_point; };
  });
}

void requantize_matmul(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                       const TaskRunner& run) {
  const Codes codes(grid);
  const float scale_a = one_number("a_scale", a.scale), scale_b = one_number("b_scale", b.scale);
  const bool off = codes.scale == 0 || scale_a == 0 || scale_b == 0;
  const Shape &of_a = a.numbers.shape, &of_b = b.numbers.shape;
  const auto rows = static_cast<std::size_t>(of_a.dims[of_a.rank - 2]);
  const auto inner = static_cast<std::size_t>(of_a.dims[of_a.rank - 1]);
  const auto columns = static_cast<std::size_t>(of_b.dims[of_b.rank - 1]);
  const Shape matrices = {shape.dims, shape.rank - 2};
  const auto strides_a = strides_in({of_a.dims, of_a.rank - 2}, matrices);
  const auto strides_b = strides_in({of_b.dims, of_b.rank - 2}, matrices);
  run(matrices.count(), [&](std::size_t matrix) {
    const float* left = a.numbers.data + place_of(matrix, matrices, strides_a) * rows * inner;
    const float* right = b.numbers.data + place_of(matrix, matrices, strides_b) * inner * columns;
    float* result = y + matrix * rows * columns;
    if (off) return multiply(left, right, rows, inner, columns, result);
    const SignedColumns signed_codes(right, scale_b, inner, columns);
    std::vector<std::int32_t> steps(rows * inner), sums(rows * columns);
    std::vector<double> missing(rows);  // NaN for rows that have a number without a code
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const double exact = steps_of(left[i], scale_a);
      if (std::isnan(exact)) missing[i / inner] = NAN;
      steps[i] = whole_steps(exact);
    }
    multiply(steps.data(), signed_codes.codes.data(), rows, inner, columns, sums.data());
    for (std::size_t column = 0; column < columns; ++column) {
      const float exact = scale_a / static_cast<float>(codes.scale) * scale_b;
      const Rescaling rescaling(Arithmetic::matrix, exact, signed_codes.scales[column], codes);
      for (std::size_t i = column; i < sums.size(); i += columns)
        result[i] = codes.number(rescaling.code(sums[i] + missing[i / columns]));
    }
  });
}

void requantize_prelu(const Tensor<float>& x, const Grid& grid, const Tensor<float>& input_scale,
                      const Tensor<float>& slope, float* y, const TaskRunner& run) {
  const Codes codes(grid);
  const float input = one_number("input_scale", input_scale);
  const std::vector<std::int64_t> dims = broadcast_shape(x.shape, slope.shape);
  if (!std::equal(dims.begin(), dims.end(), x.shape.dims, x.shape.dims + x.shape.rank))
    throw InvalidArgument("Requantize: a slope of shape " + slope.shape.text() +
                          " is longer than what it is for.");
  if (codes.scale == 0 || input == 0)
    return each_pair(x.shape, slope.shape, x.shape, run, [&](std::size_t i, std::size_t p, std::size_t q) {
      y[i] = x.data[p] < 0 ? x.data[p] * slope.data[q] : x.data[p];
    });
  const SlopedRescaling here(input / static_cast<float>(codes.scale), slope);
  each_pair(x.shape, slope.shape, x.shape, run, [&](std::size_t i, std::size_t p, std::size_t q) {
    const double steps = std::nearbyint(x.data[p] / static_cast<double>(input));
    y[i] = codes.number(here.code(steps, slope.data[q]) + codes.zero_point);
  });
}

void quantize_in_float16(bool with_zero_point, const Tensor<float>& x, const Grid& grid, float* y,
                         const TaskRunner& run) {
  const Codes codes(grid);
  const auto scale = static_cast<float>(codes.scale);
  if (scale == 0) {
    std::copy(x.data, x.data + x.shape.count(), y);
    return;
  }
  in_tasks(x.shape.count(), run, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i) {
      if (with_zero_point) {
        const auto code = static_cast<float>(x.data[i] / codes.scale + codes.zero_point);
        y[i] = codes.number(std::floor(round_to_float16(code) + 0.5));
      } else {
        const double scaled = round_to_float16(x.data[i] * (1.0f / scale));
        y[i] = codes.number(std::trunc(scaled + std::copysign(0.5, scaled)) + codes.zero_point);
      }
    }
  });
}

}  // namespace qc
