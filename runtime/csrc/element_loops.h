// Loops over contiguous elements, compiled once for every instruction set; see element_loops.cpp.
#pragma once

#include <cstddef>
#include <cstdint>

// The name of the loops that were compiled for an instruction set.
#define QC_JOIN_OF(left, right) left##right
#define QC_JOIN(left, right) QC_JOIN_OF(left, right)
#define QC_LOOPS(instruction_set) QC_JOIN(loops_, instruction_set)

namespace qc {

// How ties are rounded: to the even neighbour, away from zero, or up, counted from the lowest code as AIMET
// does.
enum class Rounding { half_even, half_away, half_up };
enum class Format { integer, float16, bfloat16, float8e4m3fn, float8e5m2 };
enum class ElementType { float32, float16, bfloat16 };

// What does not change from element to element: codes run from lowest to highest (integer formats only).
struct Rule {
  ElementType type;
  Format format;
  Rounding rounding;
  std::int32_t lowest;
  std::int32_t highest;
  bool streamed = false;  // whether results go to memory past the caches; see stream.h
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

// Features are multiplied in strips of so many, each row by row.
constexpr std::size_t kStrip = 8;

// Sums in float64; see sum_loops.cpp.
struct SumLoops {
  // Adds the finite elements of x and their squares to one sum each, or to one for each element.
  void (*add_run)(const float* x, std::size_t count, double* sum, double* square);
  void (*add_each)(const float* x, std::size_t count, double* sums, double* squares);

  // tile[i][j] = the sum over rows of left[row][i] * right[row][j]; all have kStrip columns, and left and
  // right float32 numbers.
  void (*multiply_strips)(const double* left, const double* right, std::size_t rows, double* tile);

  // Adds a finite number to each of some exact sums, of which all first digits come first.
  void (*add_exact)(const double* x, std::size_t count, std::int16_t* top, std::int64_t* digits);
};

// Bins of float64 edges, one more than there are bins, which do not decrease.
struct Histogram {
  const double* edges;
  const double* counts;
  std::size_t bins;
};
// Bins of fewer steps count as points, where the difference of two integrals would be lost in rounding.
constexpr double kNarrowBin = 1e-3;

// How far y is from x, summed up in float64; noise is of the squares of x - y.
struct Difference {
  double signal, energy, product, noise, largest;
  std::int64_t equal;
};

// Squared errors of integer grids, and of one array beside another; see squared_error_loops.cpp.
struct ErrorLoops {
  // Adds those of x to one sum for each run of elements that share a scale and a zero point, the last of
  // which may be shorter; or to one for each element. The grid lies shift steps higher than its codes say.
  void (*add_runs)(const Rule& rule, float shift, const float* scale, const std::int32_t* zero_point,
                   std::size_t run, const float* x, std::size_t count, float* errors);
  void (*add_each)(const Rule& rule, float shift, const float* scale, const std::int32_t* zero_point,
                   const float* x, std::size_t count, float* errors);

  // The sum of those of a histogram, whose numbers are spread evenly within bins, on a grid of codes from 0
  // to steps, of which offset is that of zero. What lies outside counts clipping times.
  double (*histogram_error)(const Histogram& histogram, double scale, double offset, double steps,
                            double clipping);

  // Adds that of y beside x. Where an element is not finite in both, the noise is neither.
  void (*compare)(const float* x, const float* y, std::size_t count, Difference& sums);
};

struct ElementLoops {
  const char* name;
  const SumLoops* sums;
  const ErrorLoops* errors;

  // y = fake quantization of x, in runs of elements that share a scale and a zero point; the last run may be
  // shorter. x and y have elements of the rule's type, and are equal or do not overlap.
  void (*quantize_runs)(const Rule& rule, const float* scale, const std::int32_t* zero_point, std::size_t run,
                        const void* x, void* y, std::size_t count);

  // The same with a scale and a zero point for each element.
  void (*quantize_each)(const Rule& rule, const float* scale, const std::int32_t* zero_point, const void* x,
                        void* y, std::size_t count);

  // float16 or bfloat16 to float32.
  void (*widen)(ElementType type, const std::uint16_t* x, float* y, std::size_t count);

  // Widens extremes by the finite elements of x; returns the number of infinite and NaN elements.
  std::int64_t (*extend)(ElementType type, const void* x, std::size_t count, Extremes& extremes);

  // The same for a row of less than 2^31 float32 elements in which every element has its own minimum and
  // maximum.
  std::int64_t (*extend_each)(const float* x, std::size_t count, std::int32_t* lowest, std::int32_t* highest);
};

// The loops in use: the best that this processor can run, unless use_instruction_set chose others.
const ElementLoops& element_loops();

// Names of the instruction sets this processor can run, best first, separated by commas.
const char* instruction_sets();

// Chooses the loops for the whole process; false if the name is unknown. Results do not depend on it.
bool use_instruction_set(const char* name);

}  // namespace qc
