// What becomes of one number that a device has computed in integers; tests/support/requantize.py explains it.
#pragma once

#include <algorithm>
#include <cmath>

#include "codes.h"
#include "polynomials.h"
#include "requantize.h"

namespace qc {

// Bits of the multipliers of the vector unit, and of the matrix unit.
constexpr int kVectorBits = 15, kMatrixBits = 11;
// The matrix unit keeps so many of the bits of a sum that are worth less than a code, or more by one.
constexpr int kKeptBits = 4;
// What is moved to another grid has so many bits behind the point on the way, fewer where 16 do not hold it;
// behind a slope it has one more, but not more than that where numbers become smaller.
constexpr int kMovedBits = 6, kSlopedBits = 7;
// The multiplier of a sum along an axis is in units of this below its power of two.
constexpr double kReducedUnit = (1 << 15) - 1;
// A product of two codes is moved by a multiple of the first, and the constant behind it is smaller than the
// second.
constexpr double kProductUnit = 256, kMostConstant = 1 << 15;
// What a quotient is multiplied from has so many bits behind the point. By zero it is zero where the
// exponents of the dividend and of the ratio of the scales add up to less than the second.
constexpr int kQuotientBits = 14, kLeastByZero = -3;

// The nearest number whose mantissa has so many bits.
inline double rounded_to_bits(double multiplier, int bits) {
  int exponent = 0;
  const double mantissa = std::frexp(multiplier, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
}

// The nearest number with so many bits behind the point.
inline double rounded_to_fraction(double x, int bits) {
  return std::ldexp(std::floor(std::ldexp(x, bits) + 0.5), -bits);
}

// What a device multiplies by instead of a number, which is the largest one or smaller.
inline double device_multiplier(Arithmetic arithmetic, float exact, float largest) {
  const bool halves = arithmetic == Arithmetic::halves, matrix = arithmetic == Arithmetic::matrix;
  int exponent = 0;
  const double mantissa = std::frexp(halves ? rounded_to_bits(largest, kVectorBits) : exact, &exponent);
  if (!halves && arithmetic != Arithmetic::reduced)
    return rounded_to_bits(exact, matrix ? kMatrixBits : kVectorBits);
  const double units =
      halves ? std::ldexp(mantissa, kVectorBits) * (exact / largest) : mantissa * kReducedUnit;
  return std::ldexp(std::floor(units + 0.5), exponent - kVectorBits);
}

// What is added to a code before ties are looked for, as part of a step.
inline double lift_of(Arithmetic arithmetic, float largest) {
  int exponent = 0;
  std::frexp(rounded_to_bits(largest, kVectorBits), &exponent);
  return arithmetic == Arithmetic::halves && exponent < 0 ? std::ldexp(1, exponent - 4) : 0;
}

// What becomes of one accumulated sum: code = floor(floor((sum + offset) * first + half) * multiplier +
// after).
struct Rescaling {
  double step, offset, first, half, multiplier, after;

  // share: the scale of the weight as part of the largest one among its channels. It and what it is
  // multiplied by are float32, as the device has it.
  Rescaling(Arithmetic arithmetic, float input, float weight, float largest, const Codes& codes)
      : Rescaling(arithmetic, input * largest / static_cast<float>(codes.scale), weight / largest, codes) {
    step = static_cast<double>(input) * weight;
  }

  // Of sums that are whole numbers, by what one of them is worth in codes: a share of what is the most.
  Rescaling(Arithmetic arithmetic, float most, float share, const Codes& codes) : step(1) {
    const float exact = most * share;
    const bool matrix = arithmetic == Arithmetic::matrix, moved = arithmetic == Arithmetic::moved;
    const double rounded = device_multiplier(arithmetic, exact, most);
    int exponent = 0;
    std::frexp(rounded, &exponent);
    first = moved ? std::ldexp(rounded, kMovedBits - std::max(exponent - 1, 0)) : 1;
    if (matrix) first = std::ldexp(1, std::min(exponent + kKeptBits - 1, 0));
    half = moved ? 0.5 : 0;
    multiplier = rounded / first;
    const bool after_all = !matrix && arithmetic != Arithmetic::vector;
    offset = after_all ? 0 : std::floor(static_cast<float>(codes.zero_point) / exact + 0.5f);
    after = 0.5 + (after_all ? codes.zero_point : 0) + lift_of(arithmetic, most);
  }

  double code(double x) const {
    return std::floor(std::floor((std::nearbyint(x / step) + offset) * first + half) * multiplier + after);
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

  double code(double product) const {
    return std::floor(std::ldexp((product + move) * factor + constant, -shift));
  }
};

// What becomes of the quotient of two codes less their zero points: a code less that of the result.
struct QuotientRescaling {
  double factor;
  int exponent;

  QuotientRescaling(float a_scale, float b_scale, const Codes& codes) {
    const double mantissa = std::frexp(a_scale / b_scale / static_cast<float>(codes.scale), &exponent);
    factor = rounded_to_fraction(mantissa, kVectorBits);
  }

  double code(double steps, double by) const {
    if (by < 0) steps = -steps;
    int length = 0;  // in two's complement: of -4 it is 2
    std::frexp(std::abs(steps + 0.5) - 0.5, &length);
    const int place = exponent + length;
    if (by == 0) return place < kLeastByZero ? 0 : std::copysign(INFINITY, steps + 0.5);
    const Reciprocal reciprocal(std::abs(by));
    const double moved = rounded_to_fraction(factor * std::ldexp(steps, -length), kVectorBits);
    const double product = rounded_to_fraction(moved * reciprocal.value, kQuotientBits);
    return std::floor(std::ldexp(product, place - reciprocal.exponent) + 0.5);
  }
};

// What becomes of a code less its zero point, which is multiplied by a slope below 0: a code less that of the
// result.
struct SlopedRescaling {
  double unit, step, fine, whole;

  SlopedRescaling(float multiplier, const Tensor<float>& slope) {
    float largest = 0;
    for (std::size_t i = 0; i < slope.shape.count(); ++i)
      largest = std::max(largest, std::abs(slope.data[i]));
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

}  // namespace qc
