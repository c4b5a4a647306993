// The grids that single elements are rounded to, the same on every processor. Everything here has internal
// linkage, as in formats.h.
#pragma once

#include "element_loops.h"
#include "formats.h"

namespace qc {
namespace {

// Adding and subtracting 1.5 * 2^23 rounds to an integer, ties to even, if |value| <= 2^22. It also turns a
// negative zero into zero, as going through an integer code does.
QC_EVERYWHERE static inline float round_half_even(float value) {
  constexpr float shift = 12582912.0f;
  return (value + shift) - shift;
}

QC_EVERYWHERE static inline float round_half_away(float value) {
  const float whole = static_cast<float>(static_cast<std::int32_t>(value));
  const float rest = value - whole;
  const float up = rest >= 0.5f ? 1.0f : 0.0f;
  const float down = rest <= -0.5f ? 1.0f : 0.0f;
  return whole + (up - down);
}

// Ties up, after taking the lowest code away, which rounds to float32 and so makes ties of what is close to
// one.
QC_EVERYWHERE static inline float round_half_up(float value, float lowest) {
  const float above = value - lowest;
  const float whole = static_cast<float>(static_cast<std::int32_t>(above));
  return (whole + (above - whole >= 0.5f ? 1.0f : 0.0f)) + lowest;
}

// The codes around a zero point: fake quantization is round(cut(x / scale)). NaN becomes the lowest code.
template <Rounding rounding>
struct IntegerGrid {
  static constexpr bool kKeepsNan = false;
  static constexpr bool kMayMultiply = true;  // see ByReciprocal in element_loops.cpp
  static constexpr Rounding kRounding = rounding;
  float scale, lowest, highest;

  QC_EVERYWHERE IntegerGrid(const Rule& rule, float step, std::int32_t zero_point)
      : scale(step),
        lowest(static_cast<float>(rule.lowest - zero_point)),
        highest(lowest + static_cast<float>(rule.highest - rule.lowest)) {}

  QC_EVERYWHERE static float cut(float value, float low, float high) {
    value = value > low ? value : low;
    return value < high ? value : high;
  }
  QC_EVERYWHERE float round(float steps) const {
    if constexpr (rounding == Rounding::half_even) return round_half_even(steps) * scale;
    if constexpr (rounding == Rounding::half_away) return round_half_away(steps) * scale;
    return round_half_up(steps, lowest) * scale;
  }
  QC_EVERYWHERE float quantize(float x) const { return round(cut(x / scale, lowest, highest)); }
};

// The numbers of a small float; those of 16 bits have no scale. NaN stays NaN.
template <Format format>
struct FloatGrid {
  static constexpr bool kKeepsNan = true;
  static constexpr bool kMayMultiply = false;  // it would lose the sign of zero
  float scale;

  QC_EVERYWHERE FloatGrid(const Rule&, float step, std::int32_t) : scale(step) {}

  QC_EVERYWHERE float quantize(float x) const {
    if constexpr (format == Format::float16) return round_to_float16(x);
    if constexpr (format == Format::bfloat16) return round_to_bfloat16(x);
    if constexpr (format == Format::float8e4m3fn) return round_to_float8e4m3fn(x / scale) * scale;
    return round_to_float8e5m2(x / scale) * scale;
  }
};

template <class Grid>
struct Kind {
  using Type = Grid;
};

// Calls action with the kind of grid that the rule asks for.
template <class Action>
inline void with_grid(const Rule& rule, const Action& action) {
  switch (rule.format) {
    case Format::float16:
      return action(Kind<FloatGrid<Format::float16>>());
    case Format::bfloat16:
      return action(Kind<FloatGrid<Format::bfloat16>>());
    case Format::float8e4m3fn:
      return action(Kind<FloatGrid<Format::float8e4m3fn>>());
    case Format::float8e5m2:
      return action(Kind<FloatGrid<Format::float8e5m2>>());
    case Format::integer:
      break;
  }
  switch (rule.rounding) {
    case Rounding::half_even:
      return action(Kind<IntegerGrid<Rounding::half_even>>());
    case Rounding::half_away:
      return action(Kind<IntegerGrid<Rounding::half_away>>());
    case Rounding::half_up:
      return action(Kind<IntegerGrid<Rounding::half_up>>());
  }
}

}  // namespace
}  // namespace qc
