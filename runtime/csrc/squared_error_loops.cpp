// Squared errors of integer grids and of arrays, compiled once for every instruction set like
// element_loops.cpp, which says what that asks of this file. Terms are added in the order of numpy's sums, so
// that results equal the plain definition bit for bit: eight sums side by side for up to 128 terms, and the
// sums of two halves for more.
#include <cstring>

#include "element_loops.h"
#include "grids.h"
#include "vectors.h"

namespace qc {
namespace {

constexpr std::size_t kPiece = 128, kLanes = 8;

template <class Number>
Number total(const Number (&lanes)[kLanes]) {
  return ((lanes[0] + lanes[1]) + (lanes[2] + lanes[3])) + ((lanes[4] + lanes[5]) + (lanes[6] + lanes[7]));
}

template <class Number>
Number sum_of_piece(const Number* terms, std::size_t count) {
  Number sum = 0;
  std::size_t i = 0;
  if (count >= kLanes) {
    Number lanes[kLanes] = {};
    for (; i + kLanes <= count; i += kLanes)
      for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += terms[i + lane];
    sum = total(lanes);
  }
  for (; i < count; ++i) sum += terms[i];
  return sum;
}

// The sum of terms [begin, begin + count); terms.write(begin, count, to) computes up to kPiece of them.
template <class Number, class Terms>
Number sum_of(const Terms& terms, std::size_t begin, std::size_t count) {
  if (count > kPiece) {
    const std::size_t half = count / 2 / kLanes * kLanes;
    return sum_of<Number>(terms, begin, half) + sum_of<Number>(terms, begin + half, count - half);
  }
  Number piece[kPiece];
  terms.write(begin, count, piece);
  return sum_of_piece(piece, count);
}

using WeightGrid = IntegerGrid<Rounding::half_even>;

inline float squared_error(const WeightGrid& grid, float shift, float x) {
  const float steps = WeightGrid::cut(x / grid.scale - shift, grid.lowest, grid.highest);
  const float error = x - (round_half_even(steps) + shift) * grid.scale;
  return error * error;
}

struct SquaredErrors {
  WeightGrid grid;
  float shift;
  const float* x;

  void write(std::size_t begin, std::size_t count, float* terms) const {
    for (std::size_t i = 0; i < count; ++i) terms[i] = squared_error(grid, shift, x[begin + i]);
  }
};

void add_runs(const Rule& rule, float shift, const float* scale, const std::int32_t* zero_point,
              std::size_t run, const float* x, std::size_t count, float* errors) {
  for (; count > 0; ++scale, ++zero_point, ++errors) {
    const std::size_t length = run < count ? run : count;
    *errors += sum_of<float>(SquaredErrors{WeightGrid(rule, *scale, *zero_point), shift, x}, 0, length);
    x += length;
    count -= length;
  }
}

void add_each(const Rule& rule, float shift, const float* scale, const std::int32_t* zero_point,
              const float* x, std::size_t count, float* errors) {
  const Rule own = rule;
  for (std::size_t i = 0; i < count; ++i)
    errors[i] += squared_error(WeightGrid(own, scale[i], zero_point[i]), shift, x[i]);
}

inline double cut(double value, double highest) {
  value = value > 0.0 ? value : 0.0;
  return value < highest ? value : highest;
}

// As round_half_even for float32: adding and subtracting 1.5 * 2^52 rounds what is not negative and below
// 2^51.
inline double rounded(double value) {
  constexpr double shift = 0x1.8p52;
  return (value + shift) - shift;
}

// For each bin how many elements it has, times the mean of their squared distances to the nearest code, in
// steps.
struct BinErrors {
  const double *edges, *counts;
  double scale, offset, steps, clipping;

  void write(std::size_t begin, std::size_t count, double* terms) const {
    double ends[kPiece + 1], integrals[kPiece + 1];
    for (std::size_t i = 0; i <= count; ++i) {
      const double end = edges[begin + i] / scale + offset, inside = cut(end, steps),
                   nearest = rounded(inside);
      const double rest = inside - nearest, outside = end - inside;
      const double cubes = rest * rest * rest + clipping * (outside * outside * outside);
      ends[i] = end;
      integrals[i] = nearest / 12.0 + cubes / 3.0;
    }
    for (std::size_t i = 0; i < count; ++i) {
      const double width = ends[i + 1] - ends[i], centre = (ends[i] + ends[i + 1]) / 2.0;
      const double point = centre - rounded(cut(centre, steps));
      const double weight = (centre < 0.0) | (centre > steps) ? clipping : 1.0;
      const double mean = (integrals[i + 1] - integrals[i]) / width;
      terms[i] = counts[begin + i] * (width > kNarrowBin ? mean : weight * point * point);
    }
  }
};

double histogram_error(const Histogram& histogram, double scale, double offset, double steps,
                       double clipping) {
  const BinErrors bins = {histogram.edges, histogram.counts, scale, offset, steps, clipping};
  return sum_of<double>(bins, 0, histogram.bins) * scale * scale;
}

// Vectors side by side, one sum for each of kLanes elements.
struct Lanes {
  static constexpr std::size_t kVectors = kLanes / kWidth;
  Doubles signal[kVectors] = {}, energy[kVectors] = {}, product[kVectors] = {}, noise[kVectors] = {};
  Doubles largest[kVectors] = {};
  Longs equal[kVectors] = {};

  void add(const float* x, const float* y) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Floats left, right;
      std::memcpy(&left, x + v * kWidth, sizeof left);
      std::memcpy(&right, y + v * kWidth, sizeof right);
      const Doubles one = __builtin_convertvector(left, Doubles),
                    other = __builtin_convertvector(right, Doubles);
      const Doubles error = one - other, distance = error < -error ? -error : error;
      signal[v] += one * one;
      energy[v] += other * other;
      product[v] += one * other;
      noise[v] += error * error;
      largest[v] = distance > largest[v] ? distance : largest[v];
      equal[v] -= (Longs)(one == other);
    }
  }
};

template <class Number, class Vector>
Number total_of(const Vector& vectors) {
  Number lanes[kLanes];
  static_assert(sizeof lanes == sizeof vectors);
  std::memcpy(lanes, &vectors, sizeof lanes);
  return total(lanes);
}

void compare(const float* x, const float* y, std::size_t count, Difference& sums) {
  Lanes lanes;
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) lanes.add(x + i, y + i);
  if (i < count) {  // zeros behind the end, which are equal
    float left[kLanes] = {}, right[kLanes] = {};
    std::memcpy(left, x + i, (count - i) * sizeof(float));
    std::memcpy(right, y + i, (count - i) * sizeof(float));
    lanes.add(left, right);
    sums.equal -= static_cast<std::int64_t>(kLanes - (count - i));
  }
  sums.signal += total_of<double>(lanes.signal);
  sums.energy += total_of<double>(lanes.energy);
  sums.product += total_of<double>(lanes.product);
  sums.noise += total_of<double>(lanes.noise);
  sums.equal += total_of<std::int64_t>(lanes.equal);
  double largest[kLanes];
  std::memcpy(largest, lanes.largest, sizeof largest);
  for (const double one : largest) sums.largest = one > sums.largest ? one : sums.largest;
}

}  // namespace

extern const ErrorLoops QC_JOIN(errors_, QC_INSTRUCTION_SET);
const ErrorLoops QC_JOIN(errors_, QC_INSTRUCTION_SET) = {add_runs, add_each, histogram_error, compare};

}  // namespace qc
