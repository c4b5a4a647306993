#include "../elements.h"
#include "../grids.h"
#include "kernels.h"
#include "launch.h"
#include "packs.h"

namespace qc::cuda {
namespace {

constexpr unsigned kThreads = 256;

// Of a thread; all are loaded before the first is quantized, which keeps the memory busy.
template <ElementType type>
constexpr unsigned kPacks = 16 / kPackElements<type>;

// What all threads are told. The pointers are of the device.
struct Quantization {
  Layout layout;
  Rule rule;  // without limits
  const float* scale;
  const std::int32_t* zero_point;
  const std::int32_t* limits;  // read for integer formats only
  bool clamps;
  float minimum, maximum;  // of what is rounded, if it clamps
};

// Whether the fake quantization is defined; see kernels.h.
__device__ inline bool is_valid(const Rule& rule, float scale, std::int64_t zero_point) {
  if (!(scale > 0.0f && bits_of(scale) < kInfinityBits)) return false;
  if (rule.format != Format::integer) return true;
  const std::int64_t lowest = rule.lowest - zero_point, highest = rule.highest - zero_point;
  return lowest < highest && lowest >= -kLargestStep && lowest <= kLargestStep && highest >= -kLargestStep &&
         highest <= kLargestStep;
}

// What a scale and its zero point make of elements.
template <class Grid>
class Step {
 public:
  __device__ Step(const Quantization& quantization, std::size_t index)
      : off_(quantization.scale[0] == 0.0f),
        clamps_(quantization.clamps),
        minimum_(quantization.minimum),
        maximum_(quantization.maximum),
        grid_(quantization.rule, 1.0f, 0) {
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

  template <ElementType type>
  __device__ Stored<type> quantize(Stored<type> x) const {
    if (off_ && !clamps_) return x;
    const float value = clamps_ ? clamped(widened<type>(x), minimum_, maximum_) : widened<type>(x);
    return narrowed<type, true>(off_ ? value : valid_ ? grid_.quantize(value) : float_of(kNotANumberBits));
  }

 private:
  static constexpr std::uint32_t kNotANumberBits = 0x7fc00000u;

  bool off_, valid_, clamps_;
  float minimum_, maximum_;
  Grid grid_;
};

// The index of the scale of an element; see Layout.
__device__ inline std::size_t scale_of(const Layout& layout, std::size_t element) {
  const std::size_t row = element / layout.row, within = element % layout.row;
  const std::size_t run = within / layout.run, offset = within % layout.run;
  return row * layout.scales_of_row + (layout.shared ? run : run / layout.repeat * layout.run + offset);
}

// For one scale and aligned memory: a thread quantizes several packs. x and y may be the same memory.
template <ElementType type, class Grid>
__global__ void quantize_tensor(const Stored<type>* x, Stored<type>* y, std::size_t count,
                                Quantization quantization) {
  const std::size_t packs = count / kPackElements<type>, rest = count % kPackElements<type>;
  const std::size_t first = std::size_t{blockIdx.x} * kPacks<type> * kThreads + threadIdx.x;
  const auto* const from = reinterpret_cast<const Pack<type>*>(x);
  auto* const to = reinterpret_cast<Pack<type>*>(y);
  Pack<type> loaded[kPacks<type>];
#pragma unroll
  for (unsigned i = 0; i < kPacks<type>; ++i)
    if (first + i * kThreads < packs) loaded[i] = from[first + i * kThreads];
  const Step<Grid> step(quantization, 0);
#pragma unroll
  for (unsigned i = 0; i < kPacks<type>; ++i) {
    if (first + i * kThreads >= packs) break;
    for (auto& element : loaded[i].elements) element = step.template quantize<type>(element);
    to[first + i * kThreads] = loaded[i];
  }
  const std::size_t last = count - rest + threadIdx.x;
  if (blockIdx.x == 0 && threadIdx.x < rest) y[last] = step.template quantize<type>(x[last]);
}

// For any scales and any memory: a thread quantizes one element. x and y may be the same memory.
template <ElementType type, class Grid>
__global__ void quantize_each(const Stored<type>* x, Stored<type>* y, std::size_t count,
                              Quantization quantization) {
  const std::size_t i = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  y[i] = Step<Grid>(quantization, scale_of(quantization.layout, i)).template quantize<type>(x[i]);
}

template <ElementType type>
void quantize_all(const void* data, void* result, std::size_t count, bool single,
                  const Quantization& quantization, Stream stream) {
  const auto* const x = static_cast<const Stored<type>*>(data);
  auto* const y = static_cast<Stored<type>*>(result);
  constexpr std::size_t of_block = std::size_t{kThreads} * kPackElements<type> * kPacks<type>;
  with_grid(quantization.rule, [&](auto kind) {
    using Grid = typename decltype(kind)::Type;
    if (single && is_aligned(x) && is_aligned(y))
      launch(quantize_tensor<type, Grid>, divide_up(count, of_block), kThreads, stream, x, y, count,
             quantization);
    else
      launch(quantize_each<type, Grid>, divide_up(count, kThreads), kThreads, stream, x, y, count,
             quantization);
  });
}

}  // namespace

void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const qc::Grid& grid, void* y,
                   Stream stream) {
  check_grid_shapes(attributes, grid);
  const Quantization quantization = {layout_of(attributes, x.shape, grid.scale.shape),
                                     {x.type, attributes.format, attributes.rounding, 0, 0},
                                     grid.scale.data,
                                     grid.zero_point.data,
                                     grid.limits.data,
                                     attributes.clamps(),
                                     attributes.minimum,
                                     attributes.maximum};
  const std::size_t count = x.shape.count();
  const bool single = grid.scale.shape.count() == 1;
  if (count == 0) return;
  switch (x.type) {
    case ElementType::float32:
      return quantize_all<ElementType::float32>(x.data, y, count, single, quantization, stream);
    case ElementType::float16:
      return quantize_all<ElementType::float16>(x.data, y, count, single, quantization, stream);
    case ElementType::bfloat16:
      return quantize_all<ElementType::bfloat16>(x.data, y, count, single, quantization, stream);
  }
}

}  // namespace qc::cuda
