#include "fake_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "elements.h"
#include "stream.h"

namespace qc {
namespace {

// Elements handed to one task; large enough for a task to cost far more than its start.
constexpr std::size_t kTaskElements = std::size_t{1} << 16;

constexpr const char* kWrongLimits =
    "FakeQuantize: limits must hold two codes, the lowest and then the highest.";

template <class Value, std::size_t size>
Value one_of(const char* attribute, const std::string& word,
             const std::pair<const char*, Value> (&choices)[size]) {
  std::string known;
  for (const auto& choice : choices) {
    if (word == choice.first) return choice.second;
    known += (known.empty() ? "" : ", ") + std::string(choice.first);
  }
  throw InvalidArgument(std::string("FakeQuantize: attribute ") + attribute + " is '" + word +
                        "' but must be one of " + known + ".");
}

// Channels of fewer contiguous elements are computed with a scale for each element, if there are rows enough
// to make the copies of the scales worth while: so many elements of them.
constexpr std::size_t kShortRun = 16;
constexpr std::size_t kSpreadElements = 1024;

std::size_t checked_axis(std::int64_t axis, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.rank);
  if (axis < -rank || axis >= rank)
    throw InvalidArgument("FakeQuantize: attribute axis is " + std::to_string(axis) +
                          ", outside a tensor of shape " + shape.text() + ".");
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

void check_channel_scale(const Shape& scale, const Shape& x, std::size_t axis) {
  if (scale.rank == 1 && scale.dims[0] == x.dims[axis]) return;
  throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " but axis " +
                        std::to_string(axis) + " of a tensor of shape " + x.text() + " needs (" +
                        std::to_string(x.dims[axis]) + ",).");
}

void check_block_scale(const Shape& scale, const Shape& x, std::size_t axis, std::int64_t block_size) {
  bool fits = scale.rank == x.rank;
  for (std::size_t i = 0; fits && i < x.rank; ++i) {
    const std::int64_t n = x.dims[i];
    fits = scale.dims[i] == (i == axis ? n / block_size + (n % block_size != 0) : n);
  }
  if (!fits)
    throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " which does not fit blocks of " +
                          std::to_string(block_size) + " along axis " + std::to_string(axis) +
                          " of a tensor of shape " + x.text() + ".");
}

void check_grid_values(const QuantizerAttributes& attributes, const Grid& grid) {
  const std::size_t count = grid.scale.shape.count();
  for (std::size_t i = 0; i < count; ++i)
    if (!(grid.scale.data[i] > 0.0f && std::isfinite(grid.scale.data[i])))
      throw InvalidArgument("FakeQuantize: scale holds " + std::to_string(grid.scale.data[i]) +
                            " but every scale must be finite and above zero.");
  if (attributes.format != Format::integer) return;
  const std::int64_t lowest = grid.limits.data[0], highest = grid.limits.data[1];
  if (lowest >= highest) throw InvalidArgument(kWrongLimits);
  for (std::size_t i = 0; i < count; ++i) {
    const std::int64_t zero = grid.zero_point.data[i];
    if (zero - lowest > kLargestStep || highest - zero > kLargestStep || lowest - zero > kLargestStep ||
        zero - highest > kLargestStep)
      throw InvalidArgument("FakeQuantize: zero_point holds " + std::to_string(zero) + ", more than " +
                            std::to_string(kLargestStep) + " away from a code, which float32 cannot count.");
  }
}

class Quantization {
 public:
  Quantization(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y)
      : layout_(layout_of(attributes, x.shape, grid.scale.shape)),
        x_(static_cast<const char*>(x.data)),
        y_(static_cast<char*>(y)),
        element_(byte_size(x.type)),
        scales_(grid.scale.data),
        zero_points_(grid.zero_point.data) {
    const bool integer = attributes.format == Format::integer;
    const std::size_t count = x.shape.count();
    const bool channels = attributes.granularity == Granularity::channel;
    if (channels && layout_.run < kShortRun && count > 0 && count / 4 >= layout_.row) spread(count);
    const bool streamed =
        x.data != y && layout_.run * element_ >= kStreamRun && may_stream(y, count * element_);
    rule_ = {x.type,
             attributes.format,
             attributes.rounding,
             integer ? grid.limits.data[0] : 0,
             integer ? grid.limits.data[1] : 0,
             streamed};
  }

  // Computes the elements in [begin, end).
  void compute(std::size_t begin, std::size_t end) const {
    while (begin < end) {
      const std::size_t row = begin / layout_.row, within = begin % layout_.row;
      const std::size_t run = within / layout_.run, offset = within % layout_.run;
      // What is left of a run, or as many runs of a row with scales of their own as there are.
      const std::size_t whole = layout_.shared && offset == 0 ? layout_.row : layout_.run;
      const std::size_t length = std::min({whole - offset, layout_.row - within, end - begin});
      const std::size_t scale = layout_.shared ? run : run / layout_.repeat * layout_.run + offset;
      compute_part(begin, length, row * layout_.scales_of_row + scale);
      begin += length;
    }
    if (rule_.streamed) finish_stream();
  }

  void compute_part(std::size_t begin, std::size_t length, std::size_t scale) const {
    const char* const x = x_ + begin * element_;
    char* const y = y_ + begin * element_;
    if (layout_.shared)
      loops_.quantize_runs(rule_, scales_ + scale, zero_points_ + scale, layout_.run, x, y, length);
    else
      loops_.quantize_each(rule_, scales_ + scale, zero_points_ + scale, x, y, length);
  }

  // Copies the scales of the channels, so that each element of one long row has its own.
  void spread(std::size_t count) {
    const std::size_t channels = layout_.row / layout_.run;
    const std::size_t rows = std::min(count / layout_.row, 1 + kSpreadElements / layout_.row);
    for (std::size_t i = 0; i < rows * layout_.row; ++i) {
      spread_scales_.push_back(scales_[i / layout_.run % channels]);
      spread_zero_points_.push_back(zero_points_[i / layout_.run % channels]);
    }
    scales_ = spread_scales_.data();
    zero_points_ = spread_zero_points_.data();
    layout_ = {rows * layout_.row, rows * layout_.row, false, 1, 0};
  }

  Layout layout_;
  const char* const x_;
  char* const y_;
  const std::size_t element_;
  const float* scales_;
  const std::int32_t* zero_points_;
  std::vector<float> spread_scales_;
  std::vector<std::int32_t> spread_zero_points_;
  const ElementLoops& loops_ = element_loops();
  Rule rule_;
};

template <ElementType type>
void clamp_elements(const QuantizerAttributes& attributes, const void* data, void* result,
                    std::size_t count) {
  const auto* const x = static_cast<const Stored<type>*>(data);
  auto* const y = static_cast<Stored<type>*>(result);
  for (std::size_t i = 0; i < count; ++i)
    y[i] = narrowed<type, true>(clamped(widened<type>(x[i]), attributes.minimum, attributes.maximum));
}

void clamp(const QuantizerAttributes& attributes, const FloatTensor& x, void* y) {
  const std::size_t count = x.shape.count();
  switch (x.type) {
    case ElementType::float32:
      return clamp_elements<ElementType::float32>(attributes, x.data, y, count);
    case ElementType::float16:
      return clamp_elements<ElementType::float16>(attributes, x.data, y, count);
    case ElementType::bfloat16:
      return clamp_elements<ElementType::bfloat16>(attributes, x.data, y, count);
  }
}

bool switched_off(const Grid& grid) { return grid.scale.shape.count() > 0 && grid.scale.data[0] == 0.0f; }

}  // namespace

QuantizerAttributes::QuantizerAttributes(const std::string& granularity_name, std::int64_t axis_index,
                                         std::int64_t block_length, const std::string& rounding_name,
                                         const std::string& format_name, float least, float greatest)
    : granularity(one_of<Granularity>("granularity", granularity_name,
                                      {{"tensor", Granularity::tensor},
                                       {"channel", Granularity::channel},
                                       {"block", Granularity::block}})),
      axis(axis_index),
      block_size(block_length),
      rounding(one_of<Rounding>("rounding", rounding_name,
                                {{"half-even", Rounding::half_even},
                                 {"half-away", Rounding::half_away},
                                 {"half-up", Rounding::half_up}})),
      format(one_of<Format>("format", format_name,
                            {{"int", Format::integer},
                             {"float16", Format::float16},
                             {"bfloat16", Format::bfloat16},
                             {"float8e4m3fn", Format::float8e4m3fn},
                             {"float8e5m2", Format::float8e5m2}})),
      minimum(least),
      maximum(greatest) {
  if (granularity == Granularity::block && block_size < 1)
    throw InvalidArgument("FakeQuantize: attribute block_size is " + std::to_string(block_size) +
                          " but must be at least 1.");
}

Layout layout_of(const QuantizerAttributes& attributes, const Shape& x, const Shape& scale) {
  const Layout whole = {x.count(), x.count(), true, 1, 0};
  if (attributes.granularity == Granularity::tensor) {
    if (scale.count() == 1) return whole;
    throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() +
                          " but one for the tensor is needed.");
  }
  const std::size_t axis = checked_axis(attributes.axis, x);
  const std::size_t inner = x.count(axis + 1, x.rank);
  const auto length = static_cast<std::size_t>(x.dims[axis]);
  if (attributes.granularity == Granularity::channel) {
    check_channel_scale(scale, x, axis);
    if (length == 1) return whole;
    return {length * inner, inner, true, 1, 0};
  }
  check_block_scale(scale, x, axis, attributes.block_size);
  const auto block = static_cast<std::size_t>(attributes.block_size);
  const auto scales_of_row = static_cast<std::size_t>(scale.dims[axis]) * inner;
  if (inner == 1 && length % block == 0) return {x.count(), block, true, 1, 0};  // rows follow seamlessly
  if (inner == 1) return {length, block, true, 1, scales_of_row};
  return {length * inner, inner, false, block, scales_of_row};
}

void check_grid_shapes(const QuantizerAttributes& attributes, const Grid& grid) {
  const Shape &scale = grid.scale.shape, &zero_point = grid.zero_point.shape;
  if (scale.rank != zero_point.rank || !std::equal(scale.dims, scale.dims + scale.rank, zero_point.dims))
    throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " but zero_point has shape " +
                          zero_point.text() + ".");
  if (attributes.format == Format::integer && grid.limits.shape.count() != 2)
    throw InvalidArgument(kWrongLimits);
}

void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& given, const Grid& grid, void* y,
                   const TaskRunner& run) {
  FloatTensor x = given;
  if (attributes.clamps()) {
    clamp(attributes, given, y);
    x.data = y;
  }
  const std::size_t count = x.shape.count();
  if (switched_off(grid)) {
    if (y != x.data && count > 0) std::memcpy(y, x.data, count * byte_size(x.type));
    return;
  }
  check_grid_shapes(attributes, grid);
  check_grid_values(attributes, grid);
  const Quantization quantization(attributes, x, grid, y);
  if (count == 0) return;
  const std::size_t tasks = (count + kTaskElements - 1) / kTaskElements;
  if (tasks == 1) return quantization.compute(0, count);
  run(tasks, [&quantization, count](std::size_t task) {
    quantization.compute(task * kTaskElements, std::min(count, (task + 1) * kTaskElements));
  });
}

}  // namespace qc
