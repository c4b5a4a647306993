// Sums of floats in float64, compiled once for every instruction set like element_loops.cpp, which says what
// that asks of this file. The order of the additions is fixed, so that results do not depend on the
// instruction set; and a product of two float32 numbers is exact in float64, so that it makes no difference
// whether a processor rounds it before it is added. Therefore the build lets compilers fuse the two here, and
// only here.
#include <cstring>

#include "element_loops.h"
#include "formats.h"
#include "vectors.h"

namespace qc {
namespace {

constexpr std::size_t kLanes = 16;  // sums side by side, which hides how long an addition takes
constexpr std::size_t kVectors = kLanes / kWidth;

inline const Loose& vector_at(const double* x) { return *reinterpret_cast<const Loose*>(x); }
inline Loose& vector_at(double* x) { return *reinterpret_cast<Loose*>(x); }

inline void load_finite(const float* x, Doubles& wide) {
  Bits bits;
  std::memcpy(&bits, x, sizeof bits);
  bits &= (bits & static_cast<std::int32_t>(kInfinityBits)) != static_cast<std::int32_t>(kInfinityBits);
  Floats finite;
  std::memcpy(&finite, &bits, sizeof bits);
  wide = __builtin_convertvector(finite, Doubles);
}

double total(const Doubles (&vectors)[kVectors]) {
  double lanes[kLanes];
  for (std::size_t v = 0; v < kVectors; ++v) vector_at(lanes + v * kWidth) = vectors[v];
  for (std::size_t half = kLanes / 2; half > 0; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

void add_run(const float* x, std::size_t count, double* sum, double* square) {
  Doubles sums[kVectors] = {}, squares[kVectors] = {};
  const auto add_lanes = [&](const float* lanes) {
    for (std::size_t v = 0; v < kVectors; ++v) {
      Doubles wide;
      load_finite(lanes + v * kWidth, wide);
      sums[v] += wide;
      squares[v] += wide * wide;
    }
  };
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) add_lanes(x + i);
  if (i < count) {
    float rest[kLanes] = {};
    std::memcpy(rest, x + i, (count - i) * sizeof(float));
    add_lanes(rest);
  }
  *sum += total(sums);
  *square += total(squares);
}

void add_each(const float* x, std::size_t count, double* sums, double* squares) {
  std::size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    Doubles wide;
    load_finite(x + i, wide);
    vector_at(sums + i) += wide;
    vector_at(squares + i) += wide * wide;
  }
  for (; i < count; ++i) {
    const double wide = (bits_of(x[i]) & kInfinityBits) == kInfinityBits ? 0.0 : x[i];
    sums[i] += wide;
    squares[i] += wide * wide;
  }
}

// So many rows of a tile are computed at once as there are registers for.
#if defined(__AVX512F__)
constexpr std::size_t kTileRows = 8;
#elif defined(__AVX__) || defined(__aarch64__)
constexpr std::size_t kTileRows = 2;
#else
constexpr std::size_t kTileRows = 1;
#endif

void multiply_strips(const double* left, const double* right, std::size_t rows, double* tile) {
  constexpr std::size_t vectors = kStrip / kWidth;
  for (std::size_t first = 0; first < kStrip; first += kTileRows) {
    Doubles sums[kTileRows][vectors] = {};
    for (std::size_t row = 0; row < rows; ++row) {
      Doubles factors[vectors];
      for (std::size_t v = 0; v < vectors; ++v) factors[v] = vector_at(right + row * kStrip + v * kWidth);
      for (std::size_t i = 0; i < kTileRows; ++i)
        for (std::size_t v = 0; v < vectors; ++v) sums[i][v] += left[row * kStrip + first + i] * factors[v];
    }
    for (std::size_t i = 0; i < kTileRows; ++i)
      for (std::size_t v = 0; v < vectors; ++v)
        vector_at(tile + (first + i) * kStrip + v * kWidth) = sums[i][v];
  }
}

// Exact sums have so many digits of so many bits; see runtime/statistics/exact_sum.py.
constexpr int kDigits = 3, kDigit = 40;
constexpr std::int16_t kLowestTop = -27;

std::int16_t top_of(double x) {
  if (x == 0) return kLowestTop;
  int exponent;
  __builtin_frexp(x, &exponent);
  return static_cast<std::int16_t>(exponent > 0 ? (exponent + kDigit - 1) / kDigit : -(-exponent / kDigit));
}

// Not below that of a normal number, and not above that of any.
std::int32_t exponent_of(double x) {
  std::uint64_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return static_cast<std::int32_t>(bits >> 52 & 2047) - 1022;
}

double power_of_two(std::int64_t exponent) {  // a normal number
  const std::uint64_t bits = static_cast<std::uint64_t>(exponent + 1023) << 52;
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Makes room for larger numbers; what is too small beside them is lost.
void raise_tops(const double* x, std::size_t count, std::int16_t* top,
                std::int64_t* const (&digits)[kDigits]) {
  for (std::size_t i = 0; i < count; ++i) {
    const int places = top_of(x[i]) - top[i];
    if (places <= 0) continue;
    top[i] = static_cast<std::int16_t>(top[i] + places);
    for (int digit = kDigits - 1; digit >= 0; --digit)
      digits[digit][i] = digit >= places ? digits[digit - places][i] : 0;
  }
}

void add_digits(const double* x, std::size_t count, std::int16_t* top,
                std::int64_t* const (&digits)[kDigits]) {
  std::int32_t grows = 0;
  for (std::size_t i = 0; i < count; ++i) grows |= (x[i] != 0) & (exponent_of(x[i]) > kDigit * top[i]);
  if (grows) raise_tops(x, count, top, digits);
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i) {
    // The power for the smallest numbers is too large for a float64, but its root is not.
    const double root = power_of_two(-kDigit / 2 * (std::int64_t{top[i]} - 1));
    double rest = x[i] * root * root;
    for (int digit = 0; digit < kDigits; ++digit) {
      const auto whole = static_cast<std::int64_t>(rest);
      digits[digit][i] += whole;
      rest = (rest - static_cast<double>(whole)) * 0x1p40;
    }
  }
}

void add_exact(const double* x, std::size_t count, std::int16_t* top, std::int64_t* digits) {
  constexpr std::size_t piece = 1024;
  for (std::size_t first = 0; first < count; first += piece) {
    std::int64_t* const places[kDigits] = {digits + first, digits + count + first,
                                           digits + 2 * count + first};
    add_digits(x + first, count - first < piece ? count - first : piece, top + first, places);
  }
}

}  // namespace

extern const SumLoops QC_JOIN(sums_, QC_INSTRUCTION_SET);
const SumLoops QC_JOIN(sums_, QC_INSTRUCTION_SET) = {add_run, add_each, multiply_strips, add_exact};

}  // namespace qc
