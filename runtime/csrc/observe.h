// qc::Observe: the range, the number and, if wanted, the histogram of the finite elements of a tensor.
#pragma once

#include <vector>

#include "tensor.h"

namespace qc {

// A bin for each value of the upper 16 bits of a float32: sign, exponent and 7 bits of the mantissa.
constexpr std::size_t kHistogramBins = std::size_t{1} << 16;

// Where results go. minimum and maximum have one element, or one for each channel; they are infinity and
// minus infinity where there is no finite element. histogram is null if not wanted.
struct Observation {
  float* minimum;
  float* maximum;
  std::int64_t* count;      // finite elements
  std::int64_t* nonfinite;  // infinite and NaN elements
  std::int64_t* histogram;  // kHistogramBins, of the finite elements
  // Counts to which those of the histogram are added; may be the same memory.
  const std::int64_t* before = nullptr;
};

// The number of minima: 1 if axis is -1, else the length of that axis. Throws InvalidArgument if x has no
// such.
std::size_t observed_channels(const Shape& x, std::int64_t axis);

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, const TaskRunner& run);

// Like observe, but adds to what is in the memory of the histogram. Returns the largest magnitude, infinity
// if an element is not finite.
float add_observed(const FloatTensor& x, std::int64_t axis, const Observation& result, const TaskRunner& run);

struct BinCount {
  std::int64_t bin, count;
};

// Takes so many elements of no larger magnitude, which are all there are, out of a histogram and leaves
// zeros.
void take_counts(std::int64_t* histogram, float largest, std::int64_t elements,
                 std::vector<BinCount>& counts);

}  // namespace qc
