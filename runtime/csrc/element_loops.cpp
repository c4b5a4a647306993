// The loops of element_loops.h, written so that compilers vectorize them. The build compiles this file once
// for every instruction set, each time with another QC_INSTRUCTION_SET. Everything but the table at the end
// has internal linkage, and no standard template is used: otherwise the linker could keep a function that was
// compiled for a newer processor and use it everywhere.
#include "element_loops.h"

#include "formats.h"

#if defined(__clang__)
#define QC_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define QC_INDEPENDENT _Pragma("GCC ivdep")
#else
#define QC_INDEPENDENT
#endif

namespace qc {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even, if |value| <= 2^22. It also turns a
// negative zero into zero, as going through an integer code does.
inline float round_half_even(float value) {
  constexpr float shift = 12582912.0f;
  return (value + shift) - shift;
}

inline float round_half_away(float value) {
  const float whole = static_cast<float>(static_cast<std::int32_t>(value));
  const float rest = value - whole;
  const float up = rest >= 0.5f ? 1.0f : 0.0f;
  const float down = rest <= -0.5f ? 1.0f : 0.0f;
  return whole + (up - down);
}

template <Rounding rounding>
inline float quantize_integer(float x, float scale, float lowest, float highest) {
  float steps = x / scale;
  steps = steps > lowest ? steps : lowest;  // the lowest code also if steps is NaN
  steps = steps < highest ? steps : highest;
  return (rounding == Rounding::half_even ? round_half_even(steps) : round_half_away(steps)) * scale;
}

template <Format format>
inline float quantize_float(float x, float scale) {
  switch (format) {
    case Format::float16:
      return round_to_float16(x);
    case Format::bfloat16:
      return round_to_bfloat16(x);
    case Format::float8e4m3fn:
      return round_to_float8e4m3fn(x / scale) * scale;
    default:
      return round_to_float8e5m2(x / scale) * scale;
  }
}

template <Rounding rounding>
void integer_uniform(const Rule& rule, float scale, std::int32_t zero_point, const float* x, float* y,
                     std::size_t count) {
  const float lowest = static_cast<float>(rule.lowest - zero_point);
  const float highest = static_cast<float>(rule.highest - zero_point);
  QC_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) y[i] = quantize_integer<rounding>(x[i], scale, lowest, highest);
}

template <Rounding rounding>
void integer_varying(const Rule& rule, const float* scale, const std::int32_t* zero_point, const float* x, float* y,
                     std::size_t count) {
  const std::int32_t lowest = rule.lowest, highest = rule.highest;
  QC_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i)
    y[i] = quantize_integer<rounding>(x[i], scale[i], static_cast<float>(lowest - zero_point[i]),
                                      static_cast<float>(highest - zero_point[i]));
}

template <Format format>
void float_uniform(float scale, const float* x, float* y, std::size_t count) {
  QC_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) y[i] = quantize_float<format>(x[i], scale);
}

template <Format format>
void float_varying(const float* scale, const float* x, float* y, std::size_t count) {
  QC_INDEPENDENT
  for (std::size_t i = 0; i < count; ++i) y[i] = quantize_float<format>(x[i], scale[i]);
}

void quantize_uniform(const Rule& rule, float scale, std::int32_t zero_point, const float* x, float* y,
                      std::size_t count) {
  switch (rule.format) {
    case Format::integer:
      return rule.rounding == Rounding::half_even
                 ? integer_uniform<Rounding::half_even>(rule, scale, zero_point, x, y, count)
                 : integer_uniform<Rounding::half_away>(rule, scale, zero_point, x, y, count);
    case Format::float16:
      return float_uniform<Format::float16>(scale, x, y, count);
    case Format::bfloat16:
      return float_uniform<Format::bfloat16>(scale, x, y, count);
    case Format::float8e4m3fn:
      return float_uniform<Format::float8e4m3fn>(scale, x, y, count);
    case Format::float8e5m2:
      return float_uniform<Format::float8e5m2>(scale, x, y, count);
  }
}

void quantize_varying(const Rule& rule, const float* scale, const std::int32_t* zero_point, const float* x, float* y,
                      std::size_t count) {
  switch (rule.format) {
    case Format::integer:
      return rule.rounding == Rounding::half_even
                 ? integer_varying<Rounding::half_even>(rule, scale, zero_point, x, y, count)
                 : integer_varying<Rounding::half_away>(rule, scale, zero_point, x, y, count);
    case Format::float16:
      return float_varying<Format::float16>(scale, x, y, count);
    case Format::bfloat16:
      return float_varying<Format::bfloat16>(scale, x, y, count);
    case Format::float8e4m3fn:
      return float_varying<Format::float8e4m3fn>(scale, x, y, count);
    case Format::float8e5m2:
      return float_varying<Format::float8e5m2>(scale, x, y, count);
  }
}

void widen(ElementType type, const std::uint16_t* x, float* y, std::size_t count) {
  if (type == ElementType::float16) {
    QC_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) y[i] = float16_value(x[i]);
  } else {
    QC_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) y[i] = bfloat16_value(x[i]);
  }
}

void narrow(ElementType type, const float* x, std::uint16_t* y, std::size_t count) {
  if (type == ElementType::float16) {
    QC_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) y[i] = float16_bits(x[i]);
  } else {
    QC_INDEPENDENT
    for (std::size_t i = 0; i < count; ++i) y[i] = bfloat16_bits(x[i]);
  }
}

// See Extremes: the magnitude bits of negative numbers are flipped.
inline std::int32_t key_of(float value) {
  const std::int32_t bits = static_cast<std::int32_t>(bits_of(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

// All ones for infinities and NaN, else zero. Choosing with this mask keeps compilers from making branches.
inline std::int32_t nonfinite_mask(float value) { return -((bits_of(value) & kInfinityBits) == kInfinityBits); }

inline std::int32_t choose(std::int32_t mask, std::int32_t set, std::int32_t unset) {
  return (mask & set) | (~mask & unset);
}

void unite(Extremes& extremes, const Extremes& other) {
  extremes.lowest = other.lowest < extremes.lowest ? other.lowest : extremes.lowest;
  extremes.highest = other.highest > extremes.highest ? other.highest : extremes.highest;
}

// Widens extremes by all elements, finite or not.
void extend_by_all(const float* x, std::size_t count, Extremes& extremes) {
  std::int32_t lowest = extremes.lowest, highest = extremes.highest;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t key = key_of(x[i]);
    lowest = key < lowest ? key : lowest;
    highest = key > highest ? key : highest;
  }
  extremes = {lowest, highest};
}

std::int64_t extend_by_finite(const float* x, std::size_t count, Extremes& extremes) {
  std::int32_t lowest = extremes.lowest, highest = extremes.highest, nonfinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t mask = nonfinite_mask(x[i]);
    const std::int32_t low = choose(mask, kKeyOfInfinity, key_of(x[i]));
    const std::int32_t high = choose(mask, kKeyOfMinusInfinity, key_of(x[i]));
    lowest = low < lowest ? low : lowest;
    highest = high > highest ? high : highest;
    nonfinite -= mask;
  }
  extremes = {lowest, highest};
  return nonfinite;
}

// Looks at the elements in pieces that fit the first cache: infinities and NaN lie at the two ends of the
// order of keys, so that one look at the extremes of a piece tells whether it has any, and only then is the
// piece read again with care.
std::int64_t extend(const float* x, std::size_t count, Extremes& extremes) {
  constexpr std::size_t piece = 4096;
  std::int64_t nonfinite = 0;
  for (std::size_t begin = 0; begin < count; begin += piece) {
    const std::size_t length = count - begin < piece ? count - begin : piece;
    Extremes all = {kKeyOfInfinity - 1, kKeyOfMinusInfinity + 1};
    extend_by_all(x + begin, length, all);
    if (all.lowest > kKeyOfMinusInfinity && all.highest < kKeyOfInfinity)
      unite(extremes, all);
    else
      nonfinite += extend_by_finite(x + begin, length, extremes);
  }
  return nonfinite;
}

std::int64_t extend_each(const float* x, std::size_t count, std::int32_t* lowest, std::int32_t* highest) {
  std::int32_t nonfinite = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::int32_t mask = nonfinite_mask(x[i]);
    const std::int32_t low = choose(mask, kKeyOfInfinity, key_of(x[i]));
    const std::int32_t high = choose(mask, kKeyOfMinusInfinity, key_of(x[i]));
    lowest[i] = low < lowest[i] ? low : lowest[i];
    highest[i] = high > highest[i] ? high : highest[i];
    nonfinite -= mask;
  }
  return nonfinite;
}

}  // namespace

#define QC_TEXT_OF(word) #word
#define QC_TEXT(word) QC_TEXT_OF(word)
#define QC_JOIN_OF(left, right) left##right
#define QC_JOIN(left, right) QC_JOIN_OF(left, right)

extern const ElementLoops QC_JOIN(loops_, QC_INSTRUCTION_SET);
const ElementLoops QC_JOIN(loops_, QC_INSTRUCTION_SET) = {
    QC_TEXT(QC_INSTRUCTION_SET), quantize_uniform, quantize_varying, widen, narrow, extend, extend_each,
};

}  // namespace qc
