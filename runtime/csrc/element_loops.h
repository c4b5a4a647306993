// Loops over contiguous elements, compiled once for every instruction set; see element_loops.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

namespace qc {

enum class Rounding { half_even, half_away };
enum class Format { integer, float16, bfloat16, float8e4m3fn, float8e5m2 };
enum class ElementType { float32, float16, bfloat16 };

// What does not change from element to element: codes run from lowest to highest (integer formats only).
struct Rule {
  Format format;
  Rounding rounding;
  std::int32_t lowest;
  std::int32_t highest;
};

// Distance of the outermost codes from the zero point up to which rounding by addition is exact.
constexpr std::int64_t kLargestStep = std::int64_t{1} << 22;

// Float32 values in the order of signed integers: -inf < -1 < -0 < 0 < 1 < inf. A range is kept as such keys,
// because integer minima may be taken in any order and are therefore vectorized.
struct Extremes {
  std::int32_t lowest;
  std::int32_t highest;
};
constexpr std::int32_t kKeyOfInfinity = 0x7f800000;
constexpr std::int32_t kKeyOfMinusInfinity = -0x7f800000 - 1;
constexpr Extremes kNoExtremes = {kKeyOfInfinity, kKeyOfMinusInfinity};

struct ElementLoops {
  const char* name;

  // y = fake quantization of x with one scale and zero point. x and y are equal or do not overlap.
  void (*quantize_uniform)(const Rule& rule, float scale, std::int32_t zero_point, const float* x, float* y,
                           std::size_t count);

  // The same with a scale and a zero point for each element.
  void (*quantize_varying)(const Rule& rule, const float* scale, const std::int32_t* zero_point, const float* x,
                           float* y, std::size_t count);

  // float16 or bfloat16 to float32, and back with rounding to nearest even.
  void (*widen)(ElementType type, const std::uint16_t* x, float* y, std::size_t count);
  void (*narrow)(ElementType type, const float* x, std::uint16_t* y, std::size_t count);

  // Widens extremes by the finite elements of x; returns the number of infinite and NaN elements.
  std::int64_t (*extend)(const float* x, std::size_t count, Extremes& extremes);

  // The same for a row of less than 2^31 elements in which every element has its own minimum and maximum.
  std::int64_t (*extend_each)(const float* x, std::size_t count, std::int32_t* lowest, std::int32_t* highest);
};

// The loops in use: the best that this processor can run, unless use_instruction_set chose others.
const ElementLoops& element_loops();

// Names of the instruction sets this processor can run, best first, separated by commas.
const char* instruction_sets();

// Chooses the loops for the whole process; false if the name is unknown. Results do not depend on it.
bool use_instruction_set(const char* name);

}  // namespace qc
