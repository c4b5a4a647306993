#include "../elements.h"
#include "../grids.h"
#include "kernels.h"
#include "launch.h"

namespace qc::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kPackBytes = 16;  // what a thread reads and writes at once

template <ElementType type>
constexpr std::size_t kPackElements = kPackBytes / sizeof(Stored<type>);

// What all threads are told. The pointers are of the device.
struct Quantization {
  Layout layout;
  bool single;  // whether there is but one scale
  Rule rule;    // without limits
  const float* scale;
  const std::int32_t* zero_point;
  const std::int32_t* limits;  // read for integer formats only
};

// Whether the fake quantization is defined; see kernels.h.
__device__ inline bool is_valid(const Rule& rule, float scale, std::int64_t zero_point) {
  if (!(scale > 0.0f && bits_of(scale) < kInfinityBits)) return false;
  if (rule.format != Format::integer) return true;
  const std::int64_t lowest = rule.lowest - zero_point, highest = rule.highest - zero_point;
  return lowest < highest && lowest >= -kLargestStep && lowest <= kLargestStep && highest >= -kLargestStep &&
         highest <= kLargestStep;
}

// The grid of an element and those that follow it, up to a number of them.
template <class Grid>
class Step {
 public:
  __device__ Step(const Quantization& quantization, std::size_t element, unsigned most)
      : length_(most), grid_(quantization.rule, 1.0f, 0) {
    const std::size_t index = quantization.single ? 0 : look_up(quantization.layout, element);
    Rule rule = quantization.rule;
    if (rule.format == Format::integer) {
      rule.lowest = quantization.limits[0];
      rule.highest = quantization.limits[1];
    }
    const float scale = quantization.scale[index];
    const std::int32_t zero_point = quantization.zero_point[index];
    valid_ = is_valid(rule, scale, zero_point);
    if (valid_) grid_ = Grid(rule, scale, zero_point);
  }

  __device__ unsigned length() const { return length_; }
  __device__ float quantize(float x) const { return valid_ ? grid_.quantize(x) : float_of(kNotANumberBits); }

 private:
  static constexpr std::uint32_t kNotANumberBits = 0x7fc00000u;

  // The index of the scale; see Layout. Shortens the length to the elements that share it.
  __device__ std::size_t look_up(const Layout& layout, std::size_t element) {
    const std::size_t row = element / layout.row, within = element % layout.row;
    const std::size_t run = within / layout.run, offset = within % layout.run;
    const std::size_t run_left = layout.run - offset, row_left = layout.row - within;
    const std::size_t left = !layout.shared ? 1 : run_left < row_left ? run_left : row_left;
    if (left < length_) length_ = static_cast<unsigned>(left);
    return row * layout.scales_of_row + (layout.shared ? run : run / layout.repeat * layout.run + offset);
  }

  unsigned length_;
  bool valid_;
  Grid grid_;
};

template <ElementType type>
struct alignas(kPackBytes) Pack {
  Stored<type> elements[kPackElements<type>];
};

// Each thread quantizes a pack of neighbouring elements. x and y may be the same memory.
template <ElementType type, class Grid>
__global__ void quantize_packs(const Stored<type>* x, Stored<type>* y, std::size_t count, bool aligned,
                               Quantization quantization) {
  constexpr unsigned width = kPackElements<type>;
  const std::size_t first = (std::size_t{blockIdx.x} * kThreads + threadIdx.x) * width;
  if (first >= count) return;
  x += first;
  y += first;
  const bool off = quantization.scale[0] == 0.0f;
  Step<Grid> step(quantization, first, width);
  unsigned end = step.length();
  const auto quantize = [&](unsigned i, Stored<type> element) {
    if (i == end) {
      step = Step<Grid>(quantization, first + i, width);
      end += step.length();
    }
    return off ? element : narrowed<type, true>(step.quantize(widened<type>(element)));
  };
  if (aligned && count - first >= width) {
    Pack<type> pack = *reinterpret_cast<const Pack<type>*>(x);
    for (unsigned i = 0; i < width; ++i) pack.elements[i] = quantize(i, pack.elements[i]);
    *reinterpret_cast<Pack<type>*>(y) = pack;
  } else {
    const unsigned length = count - first < width ? static_cast<unsigned>(count - first) : width;
    for (unsigned i = 0; i < length; ++i) y[i] = quantize(i, x[i]);
  }
}

bool is_aligned(const void* memory) { return reinterpret_cast<std::uintptr_t>(memory) % kPackBytes == 0; }

template <ElementType type>
void quantize_all(const void* x, void* y, std::size_t count, const Quantization& quantization, Stream stream) {
  with_grid(quantization.rule, [&](auto kind) {
    launch(quantize_packs<type, typename decltype(kind)::Type>, divide_up(count, kThreads * kPackElements<type>),
           kThreads, stream, static_cast<const Stored<type>*>(x), static_cast<Stored<type>*>(y), count,
           is_aligned(x) && is_aligned(y), quantization);
  });
}

}  // namespace

void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const qc::Grid& grid, void* y,
                   Stream stream) {
  check_grid_shapes(attributes, grid);
  const Quantization quantization = {layout_of(attributes, x.shape, grid.scale.shape),
                                     grid.scale.shape.count() == 1,
                                     {x.type, attributes.format, attributes.rounding, 0, 0},
                                     grid.scale.data,
                                     grid.zero_point.data,
                                     grid.limits.data};
  const std::size_t count = x.shape.count();
  if (count == 0) return;
  switch (x.type) {
    case ElementType::float32:
      return quantize_all<ElementType::float32>(x.data, y, count, quantization, stream);
    case ElementType::float16:
      return quantize_all<ElementType::float16>(x.data, y, count, quantization, stream);
    case ElementType::bfloat16:
      return quantize_all<ElementType::bfloat16>(x.data, y, count, quantization, stream);
  }
}

}  // namespace qc::cuda
