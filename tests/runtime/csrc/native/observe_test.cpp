// qc::observe: ranges, counts and histograms.
#include "observe.h"

#include <algorithm>
#include <cmath>

#include "definition.h"
#include "formats.h"

namespace qc_test {
namespace {

using qc::ElementType;

// What qc::observe finds, with memory of its own. There is a histogram of whole tensors only.
struct OwnObservation {
  std::vector<float> minimum, maximum;
  std::int64_t count = -1, nonfinite = -1;
  std::vector<std::int64_t> histogram;

  OwnObservation(const Buffer& x, std::int64_t axis)
      : minimum(qc::observed_channels(x.shape(), axis)),
        maximum(minimum.size()),
        histogram(axis < 0 ? qc::kHistogramBins : 0) {}
};

OwnObservation expected(const Buffer& x, std::int64_t axis) {
  OwnObservation result(x, axis);
  result.minimum.assign(result.minimum.size(), INFINITY);
  result.maximum.assign(result.maximum.size(), -INFINITY);
  result.count = result.nonfinite = 0;
  for (std::size_t i = 0; i < x.count; ++i) {
    const float value = x.value(i);
    if (!std::isfinite(value)) {
      ++result.nonfinite;
      continue;
    }
    const std::size_t channel = axis < 0 ? 0 : scale_index({"channel", axis, 0}, x.dims, i);
    result.minimum[channel] = std::min(result.minimum[channel], value);
    result.maximum[channel] = std::max(result.maximum[channel], value);
    if (axis < 0) ++result.histogram[qc::bits_of(value) >> 16];
    ++result.count;
  }
  return result;
}

OwnObservation observed(const Buffer& x, std::int64_t axis, const qc::TaskRunner& run) {
  OwnObservation result(x, axis);
  qc::observe(x.tensor(), axis,
              {result.minimum.data(), result.maximum.data(), &result.count, &result.nonfinite,
               axis < 0 ? result.histogram.data() : nullptr},
              run);
  return result;
}

void check_observation(const Buffer& x, std::int64_t axis) {
  const OwnObservation right = expected(x, axis);
  for (const qc::TaskRunner& run : {qc::TaskRunner(qc::run_in_sequence), qc::TaskRunner(run_on_threads)}) {
    const OwnObservation found = observed(x, axis, run);
    expect(found.minimum == right.minimum && found.maximum == right.maximum,
           "a range is not that of the finite elements");
    expect(found.count == right.count && found.nonfinite == right.nonfinite, "elements are miscounted");
    expect(found.histogram == right.histogram, "a histogram is not that of the finite elements");
  }
}

}  // namespace

void check_observe() {
  Random random{1};
  for (const ElementType type : kElementTypes)
    for (const Dims& dims : shapes())
      for (std::int64_t axis = -1; axis < static_cast<std::int64_t>(dims.size()); ++axis)
        check_observation(sample(type, dims, random), axis);
}

}  // namespace qc_test
