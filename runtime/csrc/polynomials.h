// The polynomials by which a device finds powers of two and reciprocals, as tests/support/polynomials.py has
// them.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace qc {

// Bits behind the point of the arguments and of the results.
constexpr int kFractionBits = 16, kResultBits = 15;
constexpr std::int64_t kFractionMask = (1 << kFractionBits) - 1;

// Of each of four quarters of an interval, the coefficients of x^2, x and 1.
using Polynomial = std::array<std::array<std::int64_t, 4>, 3>;
constexpr Polynomial kPower = {
    {{4300, 5119, 6087, 7230}, {22652, 21816, 19857, 16404}, {32769, 32876, 33371, 34675}}};
constexpr Polynomial kReciprocal = {
    {{11794, 6555, 3945, 2530}, {-32086, -27318, -22353, -18222}, {32769, 32232, 31054, 29548}}};

// A function of x, from 0 to 1 in units of 2^-16, which kFractionMask holds, in units of 2^-15.
inline std::int64_t value_of(const Polynomial& polynomial, std::int64_t x) {
  const std::int64_t quarter = x >> (kFractionBits - 2);
  std::int64_t result = polynomial[0][quarter];
  for (std::size_t i = 1; i < polynomial.size(); ++i)
    result = (result * x + polynomial[i][quarter] * (1 << kResultBits)) >> kFractionBits;
  return result;
}

// 1 / (1 + f), and the exponent of two by which a finite number above 0 is 1 + f, f from 0 to 1, of which 16
// bits are taken. Of any other number the value means nothing, but nothing is read out of bounds.
struct Reciprocal {
  double value;
  int exponent;

  explicit Reciprocal(double x) {
    const double mantissa = std::frexp(x, &exponent);
    const auto fraction = static_cast<std::int64_t>(std::ldexp(2 * mantissa - 1, kFractionBits));
    value =
        std::ldexp(static_cast<double>(2 * value_of(kReciprocal, fraction & kFractionMask)), -kResultBits);
    exponent -= 1;
  }
};

}  // namespace qc
