#include "moments.h"

#include <algorithm>
#include <numeric>

#include "formats.h"
#include "observe.h"

namespace qc {
namespace {

// Rows are multiplied in blocks, whose products are added one after the other: a strip of so many rows fits
// into the first cache beside another one. So many are unfolded at once.
constexpr std::size_t kBlockRows = 128;
constexpr std::size_t kPanelRows = 8 * kBlockRows;
// So many groups are unfolded at once as have room among so many numbers, about those of the second cache.
constexpr std::size_t kPanelElements = std::size_t{1} << 17;

// Where a kernel sees what is put around its input, or between its elements.
constexpr std::int64_t kOutside = -1;

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

// Where the outputs of a window lie along an axis of its input: how many, and how far before it the first one
// begins.
struct Outputs {
  std::int64_t number, before;
};

// The share of what is added to both ends of an axis that is before it.
std::int64_t half_before(std::int64_t both, bool lower) { return lower ? (both + 1) / 2 : both / 2; }

Outputs outputs_of(const Window& window, std::size_t axis, std::size_t axes, std::int64_t length) {
  const std::int64_t stride = at(window.strides, axis, 1);
  const std::int64_t reach = (window.kernel[axis] - 1) * at(window.dilations, axis, 1) + 1;
  const bool lower = window.auto_pad == "SAME_LOWER", same = lower || window.auto_pad == "SAME_UPPER";
  if (same && !window.transposed) {
    const std::int64_t outputs = (length + stride - 1) / stride;
    return {outputs, half_before(std::max<std::int64_t>(0, (outputs - 1) * stride + reach - length), lower)};
  }
  const bool given = window.auto_pad == "NOTSET";
  const std::int64_t before = given ? at(window.pads, axis, 0) : 0,
                     after = given ? at(window.pads, axes + axis, 0) : 0;
  if (!window.transposed) {
    const std::int64_t room = before + length + after - reach;
    return {room < 0 ? 0 : room / stride + 1, before};
  }
  const std::int64_t full =
      length == 0 ? 0 : (length - 1) * stride + at(window.output_padding, axis, 0) + reach;
  if (!same && window.output_shape.empty()) return {full - before - after, before};
  // Nothing is added behind the last place that the kernel reaches, unless that many outputs are asked for.
  const std::int64_t outputs = at(window.output_shape, axis, std::min(length * stride, full));
  return {outputs, half_before(std::max<std::int64_t>(0, full - outputs), window.auto_pad != "SAME_UPPER")};
}

}  // namespace

Rows::Rows(const Shape& x, std::int64_t axis) : channels_(observed_channels(x, axis)), kernel_{{0}} {
  const auto place = static_cast<std::size_t>(axis);
  plane_ = x.count(place + 1, x.rank);
  positions_ = x.count(0, place) * plane_;
  axes_ = {{static_cast<std::int64_t>(plane_), static_cast<std::int64_t>(plane_), 1, 0, 1}};
}

Rows::Rows(const Shape& x, const Window& window)
    : groups_(static_cast<std::size_t>(std::max<std::int64_t>(window.group, 1))) {
  const std::size_t axes = window.kernel.size();
  const auto positive = [](const std::vector<std::int64_t>& list) {
    return std::all_of(list.begin(), list.end(), [](std::int64_t number) { return number > 0; });
  };
  if (x.rank != axes + 2 || window.group < 1 || x.dims[1] % window.group != 0 || !positive(window.kernel) ||
      !positive(window.strides) || !positive(window.dilations))
    throw InvalidArgument("ObserveMoments: a kernel of " + std::to_string(axes) + " axes in " +
                          std::to_string(window.group) + " groups does not fit a tensor of shape " +
                          x.text() + ".");
  channels_ = static_cast<std::size_t>(x.dims[1] / window.group);
  positions_ = static_cast<std::size_t>(x.dims[0]);
  kernel_ = {{}};
  for (std::size_t axis = 0; axis < axes; ++axis) {
    const std::int64_t length = x.dims[axis + 2];
    const std::int64_t stride = at(window.strides, axis, 1);
    const std::int64_t step = at(window.dilations, axis, 1) * (window.transposed ? -1 : 1);
    const auto [number, before] = outputs_of(window, axis, axes, length);
    const std::int64_t outputs = std::max<std::int64_t>(number, 0);
    if (window.transposed)
      axes_.push_back({length, outputs, 1, before, stride});
    else
      axes_.push_back({length, outputs, stride, -before, 1});
    plane_ *= static_cast<std::size_t>(length);
    positions_ *= static_cast<std::size_t>(axes_.back().outputs);
    std::vector<std::vector<std::int64_t>> longer;
    for (const auto& place : kernel_)
      for (std::int64_t index = 0; index < window.kernel[axis]; ++index) {
        longer.push_back(place);
        longer.back().push_back(index * step);
      }
    kernel_ = std::move(longer);
  }
}

void Rows::choose(std::vector<std::size_t> positions, std::size_t tensors) {
  // In order, so that the last one tells of all; a negative one has become larger than any.
  if (tensors < 1 || positions.empty() || !std::is_sorted(positions.begin(), positions.end()) ||
      positions.back() >= positions_)
    throw InvalidArgument("The rows of a tensor were chosen out of order, or beyond its last one.");
  chosen_ = std::move(positions);
  tensors_ = tensors;
}

// The distance of each place of the kernel from the beginning of a channel; kOutside where it sees no
// element.
void Rows::find_offsets(std::size_t position, std::vector<std::int64_t>& offsets) const {
  std::fill(offsets.begin(), offsets.end(), 0);
  std::int64_t whole = 1;
  for (std::size_t axis = axes_.size(); axis-- > 0;) {
    const Axis& along = axes_[axis];
    const auto outputs = static_cast<std::size_t>(along.outputs);
    const std::int64_t begin = static_cast<std::int64_t>(position % outputs) * along.stride + along.begin;
    position /= outputs;
    for (std::size_t place = 0; place < offsets.size(); ++place) {
      const std::int64_t index = begin + kernel_[place][axis];
      const std::int64_t element = along.spread == 1 ? index : index / along.spread;
      const bool inside = index >= 0 && element < along.length && element * along.spread == index;
      if (!inside) offsets[place] = kOutside;
      if (offsets[place] != kOutside) offsets[place] += element * whole;
    }
    whole *= along.length;
  }
}

void Rows::pack(const std::vector<const float*>& tensors, Range groups, Range rows, std::size_t room,
                double* panels) const {
  const std::size_t outputs = std::accumulate(
      axes_.begin(), axes_.end(), std::size_t{1},
      [](std::size_t product, const Axis& axis) { return product * static_cast<std::size_t>(axis.outputs); });
  std::vector<std::int64_t> offsets(kernel_.size());
  for (std::size_t row = 0; row < rows.count; ++row) {
    const std::size_t position = chosen_.empty() ? rows.first + row : chosen_[rows.first + row];
    const std::size_t start = position / outputs * groups_;
    find_offsets(position % outputs, offsets);
    for (std::size_t group = 0; group < groups.count; ++group) {
      double* at = panels + group * strips() * room * kStrip + row * kStrip;
      std::size_t column = 0;
      const auto write = [&](double value) {
        at[column++] = value;
        if (column < kStrip) return;
        column = 0;
        at += room * kStrip;
      };
      for (const float* tensor : tensors) {
        const float* channel = tensor + (start + groups.first + group) * channels_ * plane_;
        for (std::size_t index = 0; index < channels_; ++index, channel += plane_)
          for (const std::int64_t offset : offsets) {
            const float value = offset == kOutside ? 0.0f : channel[offset];
            write((bits_of(value) & kInfinityBits) == kInfinityBits ? 0.0 : value);
          }
      }
      while (column > 0) write(0.0);
    }
  }
}

void observe_moments(const FloatTensor& x, std::int64_t axis, double* sums, double* squares,
                     const TaskRunner& run) {
  const std::size_t count = x.shape.count(), number = observed_channels(x.shape, axis);
  const std::size_t length =
      number == 1 ? count
                  : x.shape.count(static_cast<std::size_t>(axis) + 1, x.shape.rank);  // of a channel's run
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

void observe_products(const std::vector<FloatTensor>& tensors, const Rows& rows, double* sums,
                      double* products, const TaskRunner& run) {
  const std::size_t features = rows.features(), strips = rows.strips();
  const std::size_t triangle = features * (features + 1) / 2;
  std::fill_n(sums, rows.groups() * features, 0.0);
  std::fill_n(products, rows.products(), 0.0);
  if (rows.positions() == 0 || features == 0) return;
  std::vector<std::vector<float>> copies(tensors.size());
  std::vector<const float*> elements;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    elements.push_back(widened_elements(tensors[i], copies[i], run));
  const std::size_t room = strips * kPanelRows * kStrip;
  const std::size_t together = std::clamp(kPanelElements / room, std::size_t{1}, rows.groups());
  const std::size_t block_size = together * strips * kBlockRows * kStrip;
  std::vector<double> panels(
      std::min(kPanelRows / kBlockRows, (rows.positions() + kBlockRows - 1) / kBlockRows) * block_size);
  for (std::size_t first = 0; first < rows.positions(); first += kPanelRows)
    for (std::size_t first_group = 0; first_group < rows.groups(); first_group += together) {
      const Rows::Range groups = {first_group, std::min(together, rows.groups() - first_group)};
      const std::size_t count = std::min(kPanelRows, rows.positions() - first);
      const std::size_t blocks = (count + kBlockRows - 1) / kBlockRows;
      const auto rows_of = [&](std::size_t block) {
        return std::min(kBlockRows, count - block * kBlockRows);
      };
      run(blocks, [&](std::size_t block) {
        rows.pack(elements, groups, {first + block * kBlockRows, rows_of(block)}, kBlockRows,
                  panels.data() + block * block_size);
      });
      run(groups.count * strips, [&](std::size_t strip) {
        const SumLoops& loops = *element_loops().sums;
        const std::size_t group = first_group + strip / strips, top = strip % strips * kStrip;
        const std::size_t height = std::min(kStrip, features - top);
        double* const group_products = products + group * triangle;
        double tile[kStrip * kStrip], strip_sums[kStrip] = {};
        for (std::size_t block = 0; block < blocks; ++block) {
          const double* const left = panels.data() + block * block_size + strip * kBlockRows * kStrip;
          for (std::size_t row = 0; row < rows_of(block); ++row)
            for (std::size_t i = 0; i < kStrip; ++i) strip_sums[i] += left[row * kStrip + i];
          const double* right = left;
          for (std::size_t column = top; column < features; column += kStrip, right += kBlockRows * kStrip) {
            loops.multiply_strips(left, right, rows_of(block), tile);
            for (std::size_t i = 0; i < height; ++i) {
              const std::size_t row = top + i, begin = std::max(row, column),
                                end = std::min(column + kStrip, features);
              double* const line = group_products + row * features - row * (row - 1) / 2 - row;
              for (std::size_t j = begin; j < end; ++j) line[j] += tile[i * kStrip + j - column];
            }
          }
        }
        for (std::size_t i = 0; i < height; ++i) sums[group * features + top + i] += strip_sums[i];
      });
    }
}

}  // namespace qc
