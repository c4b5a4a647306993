#include "requantize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "codes.h"
#include "formats.h"
#include "polynomials.h"

namespace qc {
namespace {

constexpr int kVectorBits = 15, kMatrixBits = 11, kSumBits = 13, kKeptBits = 4, kMovedBits = 6, kSlopedBits = 7;
constexpr double kColumnUnit = 1 << 11, kReciprocalUnit = 1 << 16;
constexpr int kQuotientBits = 14, kLeastByZero = -3;
constexpr double kSumUnit = 256, kProductUnit = 256, kMostConstant = 1 << 15, kReducedUnit = (1 << 15) - 1;

// The nearest number whose mantissa has so many bits.
double of_bits(double multiplier, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(multiplier, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

// The nearest number with so many bits behind the point.
double of_fraction(double x, int bits) { return std::ldexp(std::floor(std::ldexp(x, bits) + 0.5), -bits); }

// What a device multiplies by instead of a number, which is the largest one or smaller.
double few_of(Arithmetic arithmetic, float exact, float largest) {
  const bool halves = arithmetic == Arithmetic::halves, matrix = arithmetic == Arithmetic::matrix;
  int exponent = 0;
  const double mantissa = std::frexp(halves ? of_bits(largest, kVectorBits) : static_cast<double>(exact), &exponent);
  if (halves) return std::ldexp(std::floor(std::ldexp(mantissa, kVectorBits) * (exact / largest) + 0.5), exponent - kVectorBits);
  if (arithmetic != Arithmetic::reduced) return of_bits(exact, matrix ? kMatrixBits : kVectorBits);
  return std::ldexp(std::floor(mantissa * kReducedUnit + 0.5), exponent - kVectorBits);
}

// What is added to a code before ties are looked for, as part of a step.
double lift_of(Arithmetic arithmetic, float largest) {
  int exponent = 0;
  std::frexp(of_bits(largest, kVectorBits), &exponent);
  return arithmetic == Arithmetic::halves && exponent < 0 ? std::ldexp(1, exponent - 4) : 0;
}

// What becomes of one accumulated sum: code = floor(floor((sum + offset) * first + half) * multiplier + after).
struct Rescaling {
  double step, offset, first, half, multiplier, after;

  // share: the scale of the weight as part of the largest one among its channels. It and what it is multiplied by
  // are float32, as the device has it.
  Rescaling(Arithmetic arithmetic, float input, float weight, float largest, const Codes& codes)
      : Rescaling(arithmetic, input * largest / static_cast<float>(codes.scale), weight / largest, codes) {
    step = static_cast<double>(input) * weight;
  }

  // Of sums that are whole numbers, by what one of them is worth in codes: a share of what is the most.
  Rescaling(Arithmetic arithmetic, float most, float share, const Codes& codes) : step(1) {
    const float exact = most * share;
    const bool matrix = arithmetic == Arithmetic::matrix, moved = arithmetic == Arithmetic::moved;
    const double few = few_of(arithmetic, exact, most);
    int exponent = 0;
    std::frexp(few, &exponent);
    first = moved ? std::ldexp(few, kMovedBits - std::max(exponent - 1, 0)) : 1;
    if (matrix) first = std::ldexp(1, std::min(exponent + kKeptBits - 1, 0));
    half = moved ? 0.5 : 0;
    multiplier = few / first;
    const bool after_all = !matrix && arithmetic != Arithmetic::vector;
    offset = after_all ? 0 : std::floor(static_cast<float>(codes.zero_point) / exact + 0.5f);
    after = 0.5 + (after_all ? codes.zero_point : 0) + lift_of(arithmetic, most);
  }

  double code(double x) const {
    return std::floor(std::floor((std::nearbyint(x / step) + offset) * first + half) * multiplier + after);
  }
};

// A matrix of codes less their zero point, whose columns become codes of int8 by scales of their own: NaN for columns
// that have a number without a code.
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

// What becomes of one product of two codes less their zero points:
// code = floor(((product + move) * factor + constant) / 2^shift).
struct ProductRescaling {
  double move, factor, constant;
  int shift;

  ProductRescaling(float a_scale, float b_scale, double zero_a, double zero_b, const Codes& codes)
      : move(-kProductUnit * std::nearbyint((zero_a - 127.5) * (zero_b - 127.5) / 128)) {
    const double exact = a_scale / static_cast<float>(codes.scale) * b_scale;
    int exponent = 0;
    std::frexp(exact, &exponent);
    const int least = -exponent - kVectorBits + 1;
    for (shift = -exponent;; --shift) {
      factor = std::ldexp(std::nearbyint(std::ldexp(exact, shift + kVectorBits)), -kVectorBits);
      constant = std::floor(-move * factor + 0.5) + std::ldexp(codes.zero_point + 0.5, shift);
      if (std::abs(constant) < kMostConstant || shift == least) return;
    }
  }

  double code(double product) const { return std::floor(std::ldexp((product + move) * factor + constant, -shift)); }
};

// What becomes of the quotient of two codes less their zero points: a code less that of the result.
struct QuotientRescaling {
  double factor;
  int exponent;

  QuotientRescaling(float a_scale, float b_scale, const Codes& codes) {
    const double mantissa = std::frexp(a_scale / b_scale / static_cast<float>(codes.scale), &exponent);
    factor = of_fraction(mantissa, kVectorBits);
  }

  double code(double steps, double by) const {
    if (by < 0) steps = -steps;
    int length = 0;  // in two's complement: of -4 it is 2
    std::frexp(std::abs(steps + 0.5) - 0.5, &length);
    const int place = exponent + length;
    if (by == 0) return place < kLeastByZero ? 0 : std::copysign(INFINITY, steps + 0.5);
    const Reciprocal reciprocal(std::abs(by));
    const double moved = of_fraction(factor * std::ldexp(steps, -length), kVectorBits);
    const double product = of_fraction(moved * reciprocal.value, kQuotientBits);
    return std::floor(std::ldexp(product, place - reciprocal.exponent) + 0.5);
  }
};

// What becomes of a code less its zero point, which is multiplied by a slope below 0: a code less that of the result.
struct SlopedRescaling {
  double unit, step, fine, whole;

  SlopedRescaling(float multiplier, const Tensor<float>& slope) {
    float largest = 0;
    for (std::size_t i = 0; i < slope.shape.count(); ++i) largest = std::max(largest, std::abs(slope.data[i]));
    int exponent = 0, of_slope = 0;
    std::frexp(multiplier * std::max(static_cast<double>(largest), 1.0), &exponent);
    std::frexp(largest, &of_slope);
    exponent = std::max(exponent, 0);
    unit = std::ldexp(1, exponent - kVectorBits);
    step = std::ldexp(1, exponent - kSlopedBits);
    fine = std::ldexp(1, of_slope - kVectorBits);
    whole = std::floor(multiplier / unit + 0.5);
  }

  double code(double steps, float slope) const {
    const double by = steps < 0 ? std::floor(std::floor(slope / fine + 0.5) * fine * whole) : whole;
    return std::floor(std::floor(steps * by * unit / step + 0.5) * step + 0.5);
  }
};

// How far an operand moves on along each dimension of the result; 0 where it is repeated.
std::vector<std::size_t> strides_in(const Shape& shape, const Shape& result) {
  std::vector<std::size_t> strides(result.rank, 0);
  std::size_t stride = 1;
  for (std::size_t i = 0; i < shape.rank; ++i) {
    const auto length = static_cast<std::size_t>(shape.dims[shape.rank - 1 - i]);
    if (length != 1) strides[result.rank - 1 - i] = stride;
    stride *= length;
  }
  return strides;
}

std::size_t place_of(std::size_t index, const Shape& result, const std::vector<std::size_t>& strides) {
  std::size_t place = 0;
  for (std::size_t i = result.rank; i-- > 0;) {
    const auto length = static_cast<std::size_t>(result.dims[i]);
    place += index % length * strides[i];
    index /= length;
  }
  return place;
}

// Calls action(i, place in a, place in b) for the elements i of a result.
template <class Action>
void each_pair(const Shape& a, const Shape& b, const Shape& result, const TaskRunner& run, const Action& action) {
  const std::size_t count = result.count();
  const bool alike = a.count() == count && b.count() == count;
  const std::vector<std::size_t> of_a = strides_in(a, result), of_b = strides_in(b, result);
  in_tasks(count, run, [&](std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < end; ++i)
      action(i, alike ? i : place_of(i, result, of_a), alike ? i : place_of(i, result, of_b));
  });
}

// Writes for each pair of numbers what a rescaling of both scales and the grid makes of their steps: a code. If one of
// the scales is zero, exact(number, number) is written.
template <class Exact, class Rescale>
void requantize_pairs(const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y, const TaskRunner& run,
                      const Exact& exact, const Rescale& rescale) {
  const Codes codes(grid);
  const float scale_a = one_number("a_scale", a.scale), scale_b = one_number("b_scale", b.scale);
  const float *numbers_a = a.numbers.data, *numbers_b = b.numbers.data;
  if (codes.scale == 0 || scale_a == 0 || scale_b == 0)
    return each_pair(a.numbers.shape, b.numbers.shape, shape, run,
                     [&](std::size_t i, std::size_t p, std::size_t q) { y[i] = exact(numbers_a[p], numbers_b[q]); });
  const auto code = rescale(scale_a, scale_b, codes);
  each_pair(a.numbers.shape, b.numbers.shape, shape, run, [&](std::size_t i, std::size_t p, std::size_t q) {
    const double steps_a = steps_of(numbers_a[p], scale_a), steps_b = steps_of(numbers_b[q], scale_b);
    y[i] = codes.number(std::isnan(steps_a + steps_b) ? NAN : code(steps_a, steps_b));
  });
}

template <class Number>
void multiply(const Number* a, const Number* b, std::size_t rows, std::size_t inner, std::size_t columns, Number* y) {
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
                const Tensor<float>& input_scale, const Tensor<float>& weight_scale, float* y, const TaskRunner& run) {
  const Codes codes(grid);
  const float input = one_number("input_scale", input_scale);
  const std::size_t count = x.shape.count(), channels = weight_scale.shape.count();
  const auto rank = static_cast<std::int64_t>(x.shape.rank);
  const auto place = static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
  const std::size_t behind = channels == 1 ? x.shape.rank : place + weight_scale.shape.rank;
  const bool fits = channels == 1 || (place < behind && behind <= x.shape.rank &&
                                      std::equal(x.shape.dims + place, x.shape.dims + behind, weight_scale.shape.dims));
  if (!fits || channels == 0)
    throw InvalidArgument("Requantize: weight_scale has shape " + weight_scale.shape.text() + ", which does not fit axis " +
                          std::to_string(axis) + " of a tensor of shape " + x.shape.text() + ".");
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

void requantize_sum(bool subtract, const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y,
                    const TaskRunner& run) {
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
  const auto rows = static_cast<std::size_t>(of_a.dims[of_a.rank - 2]), inner = static_cast<std::size_t>(of_a.dims[of_a.rank - 1]);
  const auto columns = static_cast<std::size_t>(of_b.dims[of_b.rank - 1]);
  const Shape matrices = {shape.dims, shape.rank - 2};
  const auto strides_a = strides_in({of_a.dims, of_a.rank - 2}, matrices), strides_b = strides_in({of_b.dims, of_b.rank - 2}, matrices);
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

void requantize_prelu(const Tensor<float>& x, const Grid& grid, const Tensor<float>& input_scale, const Tensor<float>& slope,
                      float* y, const TaskRunner& run) {
  const Codes codes(grid);
  const float input = one_number("input_scale", input_scale);
  const std::vector<std::int64_t> dims = broadcast_shape(x.shape, slope.shape);
  if (!std::equal(dims.begin(), dims.end(), x.shape.dims, x.shape.dims + x.shape.rank))
    throw InvalidArgument("Requantize: a slope of shape " + slope.shape.text() + " is longer than what it is for.");
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

void quantize_in_float16(bool with_zero_point, const Tensor<float>& x, const Grid& grid, float* y, const TaskRunner& run) {
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

std::vector<std::int64_t> broadcast_shape(const Shape& a, const Shape& b) {
  std::vector<std::int64_t> shape(std::max(a.rank, b.rank), 1);
  for (const Shape& one : {a, b})
    for (std::size_t i = 0; i < one.rank; ++i) {
      std::int64_t& length = shape[shape.size() - one.rank + i];
      if (length != 1 && one.dims[i] != 1 && length != one.dims[i])
        throw InvalidArgument("Requantize: shapes " + a.text() + " and " + b.text() + " do not broadcast.");
      if (one.dims[i] != 1) length = one.dims[i];
    }
  return shape;
}

std::vector<std::int64_t> matmul_shape(const Shape& a, const Shape& b) {
  const bool fits = a.rank > 1 && b.rank > 1 && a.dims[a.rank - 1] == b.dims[b.rank - 2];
  if (!fits) throw InvalidArgument("Requantize: no matrix product of shapes " + a.text() + " and " + b.text() + ".");
  std::vector<std::int64_t> shape = broadcast_shape({a.dims, a.rank - 2}, {b.dims, b.rank - 2});
  shape.insert(shape.end(), {a.dims[a.rank - 2], b.dims[b.rank - 1]});
  return shape;
}

}  // namespace qc
