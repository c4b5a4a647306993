#include "requantize_normalization.h"

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "codes.h"
#include "formats.h"
#include "polynomials.h"

namespace qc {
namespace {

constexpr std::size_t kLong = 17;
constexpr int kFewBits = 8, kManyBits = 15, kShareBits = 5;
constexpr std::int64_t kMostHalvings = 31;
constexpr double kOne = 1 << kResultBits;
constexpr std::size_t kPair = 2;
constexpr int kFactorBits = 15;
constexpr double kPairLevels = 255, kSameScale = 1.0 / 850, kMovedUnit = 64;
constexpr double kMeanUnit = 64, kRateUnit = 1 << 16;
constexpr std::uint32_t kGuess = 0x5F375A86;
constexpr int kSteps = 2;
constexpr float kLogarithmOfTwo = 0.693147180559945309f;

// 1 / sqrt(x), a little too small.
double inverse_root(float x) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t first = kGuess - static_cast<std::uint32_t>(bits >> 1);
  float guess = 0;
  std::memcpy(&guess, &first, sizeof guess);
  for (int step = 0; step < kSteps; ++step) guess = guess * (1.5f - 0.5f * x * guess * guess);
  return guess;
}

// The softmax of rows of one length, from the distances of their codes to the largest.
class RowSoftmax {
 public:
  RowSoftmax(float scale, std::size_t length, double levels)
      : long_(length >= kLong), scale_(scale), levels_(levels), power_(length) {
    int exponent = 0;
    const double mantissa = std::frexp(scale / kLogarithmOfTwo, &exponent);
    const int bits = long_ ? kFewBits : kManyBits;
    factor_ = std::floor(std::ldexp(mantissa, bits) + (long_ ? 0 : 0.5));
    shift_ = exponent - bits + kFractionBits;
  }

  // Replaces the distances by codes.
  void operator()(std::vector<double>& row) {
    if (row.size() == kPair) return pair(row);
    for (std::size_t i = 0; i < row.size(); ++i) power_[i] = power_at(row[i]);
    const double total = std::accumulate(power_.begin(), power_.end(), 0.0);
    if (!long_) return shares(total, row);
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = std::floor(power_[i] * levels_ / total + 0.5);
  }

 private:
  double power_at(double distance) const {
    const double position = std::floor(std::ldexp(distance * factor_, shift_));
    const auto whole =
        static_cast<std::int64_t>(std::min(position, std::ldexp(kMostHalvings, kFractionBits)));
    const std::int64_t halvings = std::min(whole >> kFractionBits, kMostHalvings);
    const std::int64_t power = value_of(kPower, ~whole & kFractionMask);
    return long_ ? static_cast<double>(power >> halvings)
                 : std::ldexp(static_cast<double>(power), -static_cast<int>(halvings));
  }

  // Two numbers, the second of which is the larger one where they are equal.
  void pair(std::vector<double>& row) const {
    const double larger = std::floor(kPairLevels / (1 + std::exp(-std::max(row[0], row[1]) * scale_)) + 0.5);
    row[0] = row[0] < row[1] ? larger : kPairLevels - larger;
    row[1] = kPairLevels - row[0];
    if (std::abs(kPairLevels / levels_ - 1) < kSameScale) return;
    int exponent = 0;
    const double mantissa = std::frexp(levels_ / 256, &exponent);
    const double factor =
        std::ldexp(std::floor(std::ldexp(mantissa, kFactorBits) + 0.5), exponent - kFactorBits);
    for (double& share : row)
      share = std::floor(std::floor(share * factor * kMovedUnit + 0.5) / kMovedUnit + 0.5);
  }

  // Powers are multiplied by a reciprocal of their sum of 15 bits.
  void shares(double total, std::vector<double>& row) const {
    int doublings = 0;
    std::frexp(total, &doublings);
    doublings -= kResultBits;
    const Reciprocal reciprocal(std::floor(std::ldexp(total, -doublings)));
    const double scaled = std::floor(std::min(reciprocal.value * kOne, kOne - 1) * levels_ / 256);
    for (std::size_t i = 0; i < row.size(); ++i) {
      const double product = std::floor(std::floor(power_[i] + 0.5) * scaled / (2 * kOne) + 0.5);
      row[i] = std::floor(std::ldexp(product, -kShareBits - doublings) + 0.5);
    }
  }

  bool long_;
  double scale_, levels_, factor_;
  int shift_;
  std::vector<double> power_;
};

void require_shape(const char* name, const Shape& shape, const Shape& wanted) {
  if (shape.count() != wanted.count())
    throw InvalidArgument(std::string("Requantize: ") + name + " has shape " + shape.text() + " but " +
                          wanted.text() + " is needed.");
}

// Calls action(row) for rows of some length, many of short ones in one task.
template <class Action>
void each_row(std::size_t rows, std::size_t length, const TaskRunner& run, const Action& action) {
  const std::size_t together = std::max<std::size_t>(1, kTaskElements / std::max<std::size_t>(1, length));
  run((rows + together - 1) / together, [&](std::size_t task) {
    for (std::size_t row = task * together; row < std::min(rows, (task + 1) * together); ++row) action(row);
  });
}

// One number for each place in a row, whichever are given.
struct Places {
  const float* data;
  std::size_t step;

  Places(const char* name, const Tensor<float>& given, std::size_t length)
      : data(given.data), step(given.shape.count() == 1 ? 0 : 1) {
    if (step != 0 && given.shape.count() != length)
      throw InvalidArgument(std::string("Requantize: ") + name + " has shape " + given.shape.text() +
                            " for rows of " + std::to_string(length) + ".");
  }

  double at(std::size_t place) const { return data[place * step]; }
};

}  // namespace

void requantize_softmax(const Tensor<float>& made, const Grid& grid, const Tensor<float>& x,
                        const Tensor<float>& x_scale, std::int64_t axis, float* y, const TaskRunner& run) {
  const Codes codes(grid);
  const float scale = one_number("x_scale", x_scale);
  const auto rank = static_cast<std::int64_t>(x.shape.rank), place = axis < 0 ? axis + rank : axis;
  require_shape("x", x.shape, made.shape);
  if (place < 0 || place >= rank)
    throw InvalidArgument("RequantizeSoftmax: there is no axis " + std::to_string(axis) + ".");
  const std::size_t count = x.shape.count();
  if (codes.scale == 0 || scale == 0 || count == 0) {
    std::copy(made.data, made.data + count, y);
    return;
  }
  const auto length = static_cast<std::size_t>(x.shape.dims[place]);
  const std::size_t inner = x.shape.count(static_cast<std::size_t>(place) + 1, x.shape.rank);
  const double levels = 1.0f / static_cast<float>(codes.scale);
  each_row(count / length, length, run, [&](std::size_t row) {
    const std::size_t first = row / inner * inner * length + row % inner;
    std::vector<double> distances(length);
    for (std::size_t i = 0; i < length; ++i) distances[i] = steps_of(x.data[first + i * inner], scale);
    if (std::none_of(distances.begin(), distances.end(), [](double steps) { return std::isnan(steps); })) {
      const double largest = *std::max_element(distances.begin(), distances.end());
      for (double& distance : distances) distance = largest - distance;
      RowSoftmax(scale, length, levels)(distances);
    } else {
      std::fill(distances.begin(), distances.end(), NAN);
    }
    for (std::size_t i = 0; i < length; ++i) y[first + i * inner] = codes.number(distances[i]);
  });
}

void requantize_normalization(const Tensor<float>& made, const Grid& grid, const Tensor<float>& x,
                              const Tensor<float>& x_scale, const RowWeights& weights, float* y,
                              const TaskRunner& run) {
  const Codes codes(grid);
  const double scale = one_number("x_scale", x_scale),
               weight_scale = one_number("weight_scale", weights.weight_scale);
  require_shape("x", x.shape, made.shape);
  if (x.shape.rank == 0) throw InvalidArgument("RequantizeNormalization: x has no dimension.");
  const std::size_t count = x.shape.count();
  if (codes.scale == 0 || scale == 0 || weight_scale == 0 || count == 0) {
    std::copy(made.data, made.data + count, y);
    return;
  }
  const auto length = static_cast<std::size_t>(x.shape.dims[x.shape.rank - 1]);
  const Places weight("weight", weights.weight, length), bias("bias", weights.bias, length);
  const double epsilon = one_number("epsilon", weights.epsilon);
  const double number = static_cast<double>(length), ratio = weight_scale / codes.scale;
  each_row(count / length, length, run, [&](std::size_t row) {
    const float* const from = x.data + row * length;
    float* const to = y + row * length;
    double total = 0, squares = 0;
    std::vector<double> steps(length);
    for (std::size_t i = 0; i < length; ++i) {
      steps[i] = steps_of(from[i], scale);
      total += steps[i];
      squares += steps[i] * steps[i];
    }
    const double spread =
        weights.centered ? (number * squares - total * total) / (number * number) : squares / number;
    const double variance = spread + epsilon / (scale * scale);
    const double mean = std::floor(total * kMeanUnit / number) / kMeanUnit;
    const double rate = weights.centered
                            ? std::floor(kRateUnit * ratio * inverse_root(static_cast<float>(variance)))
                            : ratio / std::sqrt(variance);
    for (std::size_t i = 0; i < length; ++i) {
      const double of_weight = std::nearbyint(weight.at(i) / weight_scale);
      const double moved =
          (steps[i] - mean) * rate * of_weight / kRateUnit + std::nearbyint(bias.at(i) / codes.scale);
      const auto exact = static_cast<float>(steps[i] * rate * of_weight + codes.zero_point);
      to[i] = codes.number(
          std::floor(weights.centered ? moved + codes.zero_point + 0.5 : round_to_float16(exact)));
    }
  });
}

}  // namespace qc
