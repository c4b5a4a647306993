#include "fake_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace qc {
namespace {

// Elements handed to one task; large enough for a task to cost far more than its start.
constexpr std::size_t kTaskElements = std::size_t{1} << 16;

template <class Value, std::size_t size>
Value one_of(const char* attribute, const std::string& word, const std::pair<const char*, Value> (&choices)[size]) {
  std::string known;
  for (const auto& choice : choices) {
    if (word == choice.first) return choice.second;
    known += (known.empty() ? "" : ", ") + std::string(choice.first);
  }
  throw InvalidArgument(std::string("FakeQuantize: attribute ") + attribute + " is '" + word + "' but must be one of " +
                        known + ".");
}

// How the elements of a tensor find their scale. The tensor is seen as rows of runs (the last run of a row may
// be shorter). Either the elements of a run share one scale, or a run has as many scales as elements.
struct Layout {
  std::size_t row;            // elements of a row
  std::size_t run;            // elements of a run
  bool shared;                // whether a run shares one scale
  std::size_t repeat;         // how many runs in a row use the same row of scales, if not shared
  std::size_t scales_of_row;  // how far the scales move on from row to row: 0 if all rows use the same
};

std::size_t checked_axis(std::int64_t axis, const Shape& shape) {
  const auto rank = static_cast<std::int64_t>(shape.rank);
  if (axis < -rank || axis >= rank)
    throw InvalidArgument("FakeQuantize: attribute axis is " + std::to_string(axis) + ", outside a tensor of shape " +
                          shape.text() + ".");
  return static_cast<std::size_t>(axis < 0 ? axis + rank : axis);
}

void check_channel_scale(const Shape& scale, const Shape& x, std::size_t axis) {
  if (scale.rank == 1 && scale.dims[0] == x.dims[axis]) return;
  throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " but axis " + std::to_string(axis) +
                        " of a tensor of shape " + x.text() + " needs (" + std::to_string(x.dims[axis]) + ",).");
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

Layout layout_of(const QuantizerAttributes& attributes, const Shape& x, const Shape& scale) {
  const Layout whole = {x.count(), x.count(), true, 1, 0};
  if (attributes.granularity == Granularity::tensor) {
    if (scale.count() == 1) return whole;
    throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " but one for the tensor is needed.");
  }
  const std::size_t axis = checked_axis(attributes.axis, x);
  const std::size_t inner = x.count(axis + 1, x.rank);
  const auto length = static_cast<std::size_t>(x.dims[axis]);
  if (attributes.granularity == Granularity::channel) {
    check_channel_scale(scale, x, axis);
    if (length == 1) return whole;
    if (inner == 1) return {length, length, false, 1, 0};
    return {length * inner, inner, true, 1, 0};
  }
  check_block_scale(scale, x, axis, attributes.block_size);
  const auto block = static_cast<std::size_t>(attributes.block_size);
  const auto scales_of_row = static_cast<std::size_t>(scale.dims[axis]) * inner;
  if (inner == 1) return {length, block, true, 1, scales_of_row};
  return {length * inner, inner, false, block, scales_of_row};
}

// Calls visit(first element, elements, first scale) for each run, or part of a run, in [begin, end).
template <class Visit>
void for_each_run(const Layout& layout, std::size_t begin, std::size_t end, const Visit& visit) {
  std::size_t row = begin / layout.row, within = begin % layout.row;
  while (begin < end) {
    const std::size_t run = within / layout.run, offset = within % layout.run;
    const std::size_t length = std::min({layout.run - offset, layout.row - within, end - begin});
    const std::size_t scale = layout.shared ? run : run / layout.repeat * layout.run + offset;
    visit(begin, length, row * layout.scales_of_row + scale);
    begin += length;
    within += length;
    if (within == layout.row) {
      within = 0;
      ++row;
    }
  }
}

void check_grid(const QuantizerAttributes& attributes, const Grid& grid) {
  const Shape &scale = grid.scale.shape, &zero_point = grid.zero_point.shape;
  if (scale.rank != zero_point.rank || !std::equal(scale.dims, scale.dims + scale.rank, zero_point.dims))
    throw InvalidArgument("FakeQuantize: scale has shape " + scale.text() + " but zero_point has shape " +
                          zero_point.text() + ".");
  const std::size_t count = scale.count();
  for (std::size_t i = 0; i < count; ++i)
    if (!(grid.scale.data[i] > 0.0f && std::isfinite(grid.scale.data[i])))
      throw InvalidArgument("FakeQuantize: scale holds " + std::to_string(grid.scale.data[i]) +
                            " but every scale must be finite and above zero.");
  if (attributes.format != Format::integer) return;
  if (grid.limits.shape.count() != 2 || grid.limits.data[0] >= grid.limits.data[1])
    throw InvalidArgument("FakeQuantize: limits must hold two codes, the lowest and then the highest.");
  const std::int64_t lowest = grid.limits.data[0], highest = grid.limits.data[1];
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
      : layout_(layout_of(attributes, x.shape, grid.scale.shape)), x_(x), grid_(grid), y_(y) {
    const bool integer = attributes.format == Format::integer;
    rule_ = {attributes.format, attributes.rounding, integer ? grid.limits.data[0] : 0,
             integer ? grid.limits.data[1] : 0};
  }

  // Computes the elements in [begin, end).
  void compute(std::size_t begin, std::size_t end) const {
    for_each_run(layout_, begin, end, [this](std::size_t first, std::size_t length, std::size_t scale) {
      if (x_.type == ElementType::float32)
        compute_run(static_cast<const float*>(x_.data) + first, static_cast<float*>(y_) + first, length, scale);
      else
        compute_widened(first, length, scale);
    });
  }

 private:
  void compute_run(const float* x, float* y, std::size_t length, std::size_t scale) const {
    const float* scales = grid_.scale.data + scale;
    const std::int32_t* zero_points = grid_.zero_point.data + scale;
    if (layout_.shared)
      loops_.quantize_uniform(rule_, *scales, *zero_points, x, y, length);
    else
      loops_.quantize_varying(rule_, scales, zero_points, x, y, length);
  }

  void compute_widened(std::size_t first, std::size_t length, std::size_t scale) const {
    float piece[kWidenedPiece];
    for (std::size_t done = 0; done < length; done += kWidenedPiece) {
      const std::size_t part = std::min(kWidenedPiece, length - done);
      loops_.widen(x_.type, static_cast<const std::uint16_t*>(x_.data) + first + done, piece, part);
      compute_run(piece, piece, part, layout_.shared ? scale : scale + done);
      loops_.narrow(x_.type, piece, static_cast<std::uint16_t*>(y_) + first + done, part);
    }
  }

  const Layout layout_;
  const FloatTensor& x_;
  const Grid& grid_;
  void* const y_;
  const ElementLoops& loops_ = element_loops();
  Rule rule_;
};

bool switched_off(const Grid& grid) { return grid.scale.shape.count() > 0 && grid.scale.data[0] == 0.0f; }

}  // namespace

QuantizerAttributes::QuantizerAttributes(const std::string& granularity_name, std::int64_t axis_index,
                                         std::int64_t block_length, const std::string& rounding_name,
                                         const std::string& format_name)
    : granularity(one_of<Granularity>("granularity", granularity_name,
                                      {{"tensor", Granularity::tensor},
                                       {"channel", Granularity::channel},
                                       {"block", Granularity::block}})),
      axis(axis_index),
      block_size(block_length),
      rounding(one_of<Rounding>("rounding", rounding_name,
                                {{"half-even", Rounding::half_even}, {"half-away", Rounding::half_away}})),
      format(one_of<Format>("format", format_name,
                            {{"int", Format::integer},
                             {"float16", Format::float16},
                             {"bfloat16", Format::bfloat16},
                             {"float8e4m3fn", Format::float8e4m3fn},
                             {"float8e5m2", Format::float8e5m2}})) {
  if (granularity == Granularity::block && block_size < 1)
    throw InvalidArgument("FakeQuantize: attribute block_size is " + std::to_string(block_size) +
                          " but must be at least 1.");
}

void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid, void* y,
                   const TaskRunner& run) {
  const std::size_t count = x.shape.count();
  if (switched_off(grid)) {
    if (y != x.data && count > 0) std::memcpy(y, x.data, count * byte_size(x.type));
    return;
  }
  check_grid(attributes, grid);
  const Quantization quantization(attributes, x, grid, y);
  if (count == 0) return;
  const std::size_t tasks = (count + kTaskElements - 1) / kTaskElements;
  if (tasks == 1) return quantization.compute(0, count);
  run(tasks, [&quantization, count](std::size_t task) {
    quantization.compute(task * kTaskElements, std::min(count, (task + 1) * kTaskElements));
  });
}

}  // namespace qc
