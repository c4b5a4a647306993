// qc::squared_error, and the errors on histograms and of one array beside another: sums of squares.
#include "squared_error.h"

#include <cmath>

#include "definition.h"

namespace qc_test {
namespace {

OwnGrid random_grid(const Dims& scales, Random& random) {
  OwnGrid grid(scales, -8, 7);
  for (float& step : grid.scale) step = random.uniform(0.1f, 0.9f);
  for (std::int32_t& zero_point : grid.zero_point) zero_point = 3;
  return grid;
}

// The squared errors of one tensor, summed for each scale.
void check_tensor(const Dims& dims, const Sharing& sharing, Random& random) {
  Buffer x(qc::ElementType::float32, dims);
  for (std::size_t i = 0; i < x.count; ++i) x.set(i, random.uniform(-9, 9));
  const OwnGrid grid = random_grid(scale_dims(sharing, dims), random);
  const qc::QuantizerAttributes attributes(sharing.granularity, sharing.axis, sharing.block_size, "half-even",
                                           "int");
  std::vector<float> errors(grid.scale.size());
  const auto* const data = reinterpret_cast<const float*>(x.bytes.data());
  qc::squared_error(attributes, {data, x.shape()}, grid.grid(), 0.0f, errors.data());
  std::vector<double> sums(errors.size());
  for (std::size_t i = 0; i < x.count; ++i) {
    const std::size_t at = scale_index(sharing, dims, i);
    const double error = data[i] - rounded(grid, at, qc::Rounding::half_even, data[i]);
    sums[at] += error * error;
  }
  for (std::size_t i = 0; i < errors.size(); ++i)
    expect(std::fabs(errors[i] - sums[i]) <= 1e-4 * sums[i], "a sum of squared errors");
}

void check_squared_errors() {
  Random random{13};
  for (const Dims& dims :
       {Dims{}, Dims{0, 4}, Dims{7}, Dims{5, 16, 2}, Dims{2, 3, 37}, Dims{300, 3}, Dims{3, 300}})
    for (const Sharing& sharing : ways_to_share(dims)) check_tensor(dims, sharing, random);
}

// A histogram has an edge more than bins. In a bin of one step numbers are a twelfth of a square step off.
void check_histograms() {
  for (const std::size_t bins : {1, 7, 200}) {
    std::vector<double> edges(bins + 1), counts(bins, 6.0);
    for (std::size_t i = 0; i <= bins; ++i) edges[i] = 0.5 * static_cast<double>(i);
    const qc::Histogram histogram = {edges.data(), counts.data(), bins};
    const double found = qc::element_loops().errors->histogram_error(histogram, 0.5, 0, 255, 1);
    expect(std::fabs(found - static_cast<double>(bins) * 0.125) < 1e-9, "an error on a histogram");
  }
}

void check_comparisons() {
  for (const std::size_t count : {0, 5, 8, 203}) {
    const std::vector<float> x(count, 1.0f), y(count, 3.0f);
    qc::Difference sums = {};
    qc::element_loops().errors->compare(x.data(), y.data(), count, sums);
    const double size = static_cast<double>(count);
    expect(sums.signal == size && sums.energy == 9 * size && sums.product == 3 * size &&
               sums.noise == 4 * size && sums.largest == (count ? 2 : 0) && sums.equal == 0,
           "how far two arrays are apart");
  }
}

}  // namespace

void check_errors() {
  check_squared_errors();
  check_histograms();
  check_comparisons();
}

}  // namespace qc_test
