#include "moments.h"

#include <algorithm>

#include "formats.h"
#include "observe.h"

namespace qc {
namespace {

// Rows are multiplied in blocks, whose products are added one after the other: a strip of so many rows fits into the
// first cache beside another one. So many are unfolded at once.
constexpr std::size_t kBlockRows = 128;
constexpr std::size_t kPanelRows = 8 * kBlockRows;

constexpr std::size_t kSliceElements = std::size_t{1} << 17;
constexpr std::size_t kMostSlices = 64;

std::int64_t at(const std::vector<std::int64_t>& list, std::size_t index, std::int64_t otherwise) {
  return index < list.size() ? list[index] : otherwise;
}

// All elements as float32: the tensor's own, or a copy.
const float* widened_elements(const FloatTensor& x, std::vector<float>& copy, const TaskRunner& run) {
  if (x.type == ElementType::float32) return static_cast<const float*>(x.data);
  const std::size_t count = x.shape.count();
  copy.resize(count);
  run((count + kSliceElements - 1) / kSliceElements, [&](std::size_t slice) {
    const std::size_t first = slice * kSliceElements;
    element_loops().widen(x.type, static_cast<const std::uint16_t*>(x.data) + first, copy.data() + first,
                          std::min(kSliceElements, count - first));
  });
  return copy.data();
}

// How much is put before an axis, and how many outputs there are along it.
std::pair<std::int64_t, std::int64_t> padded(const Window& window, std::size_t axis, std::size_t axes,
                                             std::int64_t length) {
  const std::int64_t stride = at(window.strides, axis, 1);
  const std::int64_t reach = (window.kernel[axis] - 1) * at(window.dilations, axis, 1) + 1;
  if (window.auto_pad == "SAME_UPPER" || window.auto_pad == "SAME_LOWER") {
    const std::int64_t outputs = (length + stride - 1) / stride;
    const std::int64_t pads = std::max<std::int64_t>(0, (outputs - 1) * stride + reach - length);
    return {window.auto_pad == "SAME_UPPER" ? pads / 2 : (pads + 1) / 2, outputs};
  }
  const bool valid = window.auto_pad == "VALID";
  const std::int64_t before = valid ? 0 : at(window.pads, axis, 0), after = valid ? 0 : at(window.pads, axes + axis, 0);
  return {before, (before + length + after - reach) / stride + (before + length + after >= reach)};
}

}  // namespace

Rows::Rows(const Shape& x, std::int64_t axis) : channels_(observed_channels(x, axis)), kernel_{{0}} {
  const auto place = static_cast<std::size_t>(axis);
  plane_ = x.count(place + 1, x.rank);
  positions_ = x.count(0, place) * plane_;
  axes_ = {{static_cast<std::int64_t>(plane_), static_cast<std::int64_t>(plane_), 1, 0}};
}

Rows::Rows(const Shape& x, const Window& window) : groups_(static_cast<std::size_t>(std::max<std::int64_t>(window.group, 1))) {
  const std::size_t axes = window.kernel.size();
  const auto positive = [](const std::vector<std::int64_t>& list) {
    return std::all_of(list.begin(), list.end(), [](std::int64_t number) { return number > 0; });
  };
  if (x.rank != axes + 2 || window.group < 1 || x.dims[1] % window.group != 0 || !positive(window.kernel) ||
      !positive(window.strides) || !positive(window.dilations))
    throw InvalidArgument("ObserveMoments: a kernel of " + std::to_string(axes) + " axes in " +
                          std::to_string(window.group) + " groups does not fit a tensor of shape " + x.text() + ".");
  channels_ = static_cast<std::size_t>(x.dims[1] / window.group);
  positions_ = static_cast<std::size_t>(x.dims[0]);
  kernel_ = {{}};
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::int64_t length = x.dims[axis + 2];
    const auto [before, outputs] = padded(window, axis, axes, length);
    axes_.push_back({length, std::max<std::int64_t>(outputs, 0), at(window.strides, axis, 1), -before});
    plane_ *= static_cast<std::size_t>(length);
    positions_ *= static_cast<std::size_t>(axes_.back().outputs);
    std::vector<std::vector<std::int64_t>> longer;
    for (const auto& place : kernel_)
      for (std::int64_t step = 0; step < window.kernel[axis]; ++step) {
        longer.push_back(place);
        longer.back().push_back(step * at(window.dilations, axis, 1));
      }
    kernel_ = std::move(longer);
  }
}

void Rows::pack(const float* x, std::size_t first, std::size_t count, std::size_t room, double* panels) const {
  constexpr std::int64_t outside = -1;
  const std::size_t places = kernel_.size();
  std::vector<std::int64_t> begin(axes_.size()), offsets(places);
  for (std::size_t row = 0; row < count; ++row) {
    std::size_t rest = first + row;
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      const auto outputs = static_cast<std::size_t>(axes_[axis].outputs);
      begin[axis] = static_cast<std::int64_t>(rest % outputs) * axes_[axis].stride + axes_[axis].begin;
      rest /= outputs;
    }
    for (std::size_t place = 0; place < places; ++place) {
      std::int64_t offset = 0;
      for (std::size_t axis = 0; axis < axes_.size() && offset != outside; ++axis) {
        const std::int64_t index = begin[axis] + kernel_[place][axis];
        offset = index < 0 || index >= axes_[axis].length ? outside : offset * axes_[axis].length + index;
      }
      offsets[place] = offset;
    }
    const float* channel = x + rest * groups_ * channels_ * plane_;
    for (std::size_t group = 0; group < groups_; ++group) {
      double* const strips = panels + group * group_strips() * room * kStrip + row * kStrip;
      std::size_t feature = 0;
      const auto write = [&](double value) {
        strips[feature / kStrip * room * kStrip + feature % kStrip] = value;
        ++feature;
      };
      for (std::size_t index = 0; index < channels_; ++index, channel += plane_)
        for (const std::int64_t offset : offsets) {
          const float value = offset == outside ? 0.0f : channel[offset];
          write((bits_of(value) & kInfinityBits) == kInfinityBits ? 0.0 : value);
        }
      while (feature < group_strips() * kStrip) write(0.0);
    }
  }
}

void observe_moments(const FloatTensor& x, std::int64_t axis, double* sums, double* squares, const TaskRunner& run) {
  const std::size_t count = x.shape.count(), number = observed_channels(x.shape, axis);
  const std::size_t length =
      number == 1 ? count : x.shape.count(static_cast<std::size_t>(axis) + 1, x.shape.rank);  // of a channel's run
  std::fill_n(sums, number, 0.0);
  std::fill_n(squares, number, 0.0);
  if (count == 0) return;
  std::vector<float> copy;
  const float* const elements = widened_elements(x, copy, run);
  const std::size_t slice = std::max({kSliceElements, 4 * number, (count + kMostSlices - 1) / kMostSlices});
  const std::size_t slices = (count + slice - 1) / slice;
  std::vector<double> parts(slices * 2 * number);
  run(slices, [&](std::size_t index) {
    const SumLoops& loops = *element_loops().sums;
    double* const part = parts.data() + index * 2 * number;
    const std::size_t end = std::min(count, (index + 1) * slice), whole = length == 1 ? number : length;
    for (std::size_t begin = index * slice, run_length; begin < end; begin += run_length) {
      run_length = std::min(whole - begin % whole, end - begin);
      const std::size_t channel = begin / length % number;
      (length == 1 ? loops.add_each : loops.add_run)(elements + begin, run_length, part + channel,
                                                     part + number + channel);
    }
  });
  for (std::size_t index = 0; index < slices; ++index)
    for (std::size_t channel = 0; channel < number; ++channel) {
      sums[channel] += parts[index * 2 * number + channel];
      squares[channel] += parts[(index * 2 + 1) * number + channel];
    }
}

void observe_products(const FloatTensor& x, const Rows& rows, double* sums, double* products, const TaskRunner& run) {
  const std::size_t features = rows.features(), group_strips = rows.group_strips();
  const std::size_t triangle = features * (features + 1) / 2;
  std::fill_n(sums, rows.groups() * features, 0.0);
  std::fill_n(products, rows.products(), 0.0);
  if (rows.positions() == 0 || features == 0) return;
  std::vector<float> copy;
  const float* const elements = widened_elements(x, copy, run);
  const std::size_t block_size = rows.strips() * kBlockRows * kStrip;
  std::vector<double> panels(std::min(kPanelRows, (rows.positions() + kBlockRows - 1) / kBlockRows * kBlockRows) /
                             kBlockRows * block_size);
  for (std::size_t first = 0; first < rows.positions(); first += kPanelRows) {
    const std::size_t count = std::min(kPanelRows, rows.positions() - first);
    const std::size_t blocks = (count + kBlockRows - 1) / kBlockRows;
    const auto rows_of = [&](std::size_t block) { return std::min(kBlockRows, count - block * kBlockRows); };
    run(blocks, [&](std::size_t block) {
      rows.pack(elements, first + block * kBlockRows, rows_of(block), kBlockRows, panels.data() + block * block_size);
    });
    run(rows.strips(), [&](std::size_t strip) {
      const SumLoops& loops = *element_loops().sums;
      const std::size_t group = strip / group_strips, top = strip % group_strips * kStrip;
      const std::size_t height = std::min(kStrip, features - top);
      double* const group_sums = sums + group * features + top;
      double* const group_products = products + group * triangle;
      double tile[kStrip * kStrip];
      for (std::size_t block = 0; block < blocks; ++block) {
        const double* const panel = panels.data() + block * block_size;
        const double* const left = panel + strip * kBlockRows * kStrip;
        for (std::size_t row = 0; row < rows_of(block); ++row)
          for (std::size_t i = 0; i < height; ++i) group_sums[i] += left[row * kStrip + i];
        for (std::size_t other = strip; other < (group + 1) * group_strips; ++other) {
          loops.multiply_strips(left, panel + other * kBlockRows * kStrip, rows_of(block), tile);
          const std::size_t column = (other - group * group_strips) * kStrip;
          for (std::size_t i = 0; i < height; ++i) {
            const std::size_t row = top + i, begin = std::max(row, column), end = std::min(column + kStrip, features);
            double* const line = group_products + row * features - row * (row - 1) / 2 - row;
            for (std::size_t j = begin; j < end; ++j) line[j] += tile[i * kStrip + j - column];
          }
        }
      }
    });
  }
}

}  // namespace qc
