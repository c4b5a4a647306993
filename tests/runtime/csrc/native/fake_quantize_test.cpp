// qc::fake_quantize: every element, on all shapes, types, grids and threads; and the same past the caches.
#include <algorithm>
#include <cstring>
#include <sstream>

#include "definition.h"

namespace qc_test {
namespace {

using qc::ElementType;
using qc::Rounding;

// A tensor of more elements is computed in several tasks. It is rounded in one way only, to save time.
constexpr std::size_t kOneTask = std::size_t{1} << 16;

struct Way {
  const char* word;
  Rounding rounding;
};
constexpr Way kRoundings[] = {
    {"half-even", Rounding::half_even}, {"half-away", Rounding::half_away}, {"half-up", Rounding::half_up}};

qc::QuantizerAttributes attributes_of(const Sharing& sharing, const char* rounding, const char* format) {
  return qc::QuantizerAttributes(sharing.granularity, sharing.axis, sharing.block_size, rounding, format);
}

OwnGrid random_grid(const Dims& scales, Random& random) {
  OwnGrid grid(scales, -128, 127);
  for (std::size_t i = 0; i < grid.scale.size(); ++i) {
    grid.scale[i] = random.next() % 4 ? random.uniform(0.01f, 0.5f) : 0.125f;
    grid.zero_point[i] = static_cast<std::int32_t>(random.next() % 256) - 128;
  }
  return grid;
}

// One grid for a whole tensor.
OwnGrid tensor_grid() {
  OwnGrid grid({}, -128, 127);
  grid.scale = {0.1f};
  grid.zero_point = {3};
  return grid;
}

// The result, which is the same out of place, in place, and on threads.
Buffer quantized(const qc::QuantizerAttributes& attributes, const Buffer& x, const qc::Grid& grid) {
  Buffer apart(x.type, x.dims), threaded(x.type, x.dims), in_place = x;
  qc::fake_quantize(attributes, x.tensor(), grid, apart.bytes.data(), qc::run_in_sequence);
  qc::fake_quantize(attributes, x.tensor(), grid, threaded.bytes.data(), run_on_threads);
  qc::fake_quantize(attributes, in_place.tensor(), grid, in_place.bytes.data(), run_on_threads);
  expect(apart.bytes == threaded.bytes, "threads change a result");
  expect(apart.bytes == in_place.bytes, "working in place changes a result");
  return apart;
}

// One tensor on integers: every element is what the definition says.
void check_integers(const Buffer& x, const Sharing& sharing, const OwnGrid& grid, const Way& way) {
  const Buffer y = quantized(attributes_of(sharing, way.word, "int"), x, grid.grid());
  for (std::size_t i = 0; i < x.count; ++i) {
    const float value = rounded(grid, scale_index(sharing, x.dims, i), way.rounding, x.value(i));
    if (y.bits(i) == encoded(x.type, value)) continue;
    std::ostringstream what;
    what << sharing.granularity << " " << way.word << " element " << i << " of " << x.count << ": "
         << x.value(i) << " became " << y.value(i) << " but not " << value << ", in "
         << qc::element_loops().name;
    expect(false, what.str());
  }
}

// One tensor, in all roundings and formats.
void check_tensor(ElementType type, const Dims& dims, const Sharing& sharing, Random& random) {
  const Buffer x = sample(type, dims, random);
  const OwnGrid grid = random_grid(scale_dims(sharing, dims), random);
  if (x.count > kOneTask) return check_integers(x, sharing, grid, kRoundings[0]);
  for (const Way& way : kRoundings) check_integers(x, sharing, grid, way);
  for (const char* format : {"float16", "bfloat16", "float8e4m3fn", "float8e5m2"})
    quantized(attributes_of(sharing, "half-even", format), x, grid.grid());
}

// A tensor that begins so many elements behind the start of its memory, with results past the caches and
// without.
void check_streaming(ElementType type, qc::Format format, std::int64_t count, std::int64_t before,
                     Random& random) {
  constexpr std::size_t run = 300;
  const qc::ElementLoops& loops = qc::element_loops();
  const Buffer x = sample(type, {count}, random);
  std::vector<float> scale(x.count);
  const std::vector<std::int32_t> zero_point(x.count, 3);
  for (float& step : scale) step = random.uniform(0.01f, 0.5f);
  Buffer plain(type, {before + count}), streamed = plain, plain_each = plain, streamed_each = plain;
  const std::size_t bytes_before = static_cast<std::size_t>(before) * qc::byte_size(type);
  const auto place = [&](Buffer& y) { return &y.bytes[bytes_before]; };
  qc::Rule rule = {type, format, Rounding::half_even, -128, 127};
  loops.quantize_runs(rule, scale.data(), zero_point.data(), run, x.bytes.data(), place(plain), x.count);
  loops.quantize_each(rule, scale.data(), zero_point.data(), x.bytes.data(), place(plain_each), x.count);
  rule.streamed = true;
  loops.quantize_runs(rule, scale.data(), zero_point.data(), run, x.bytes.data(), place(streamed), x.count);
  loops.quantize_each(rule, scale.data(), zero_point.data(), x.bytes.data(), place(streamed_each), x.count);
  expect(plain.bytes == streamed.bytes, "streaming changes a result");
  expect(plain_each.bytes == streamed_each.bytes, "streaming changes a result with a scale for each element");
}

// Streaming changes no result, wherever a result begins and ends within the lines of the cache.
void check_all_streaming() {
  Random random{5};
  for (const ElementType type : kElementTypes)
    for (const qc::Format format : {qc::Format::integer, qc::Format::float8e4m3fn})
      for (const std::int64_t count : {5, 100, 1000})
        for (const std::int64_t before : {0, 1, 7}) check_streaming(type, format, count, before, random);
}

// Many calls at once on the same input.
void check_calls_at_once() {
  Random random{3};
  const Buffer x = sample(ElementType::float32, {300, 300}, random);
  const qc::QuantizerAttributes attributes = attributes_of({"tensor", 0, 0}, "half-even", "int");
  const OwnGrid grid = tensor_grid();
  std::vector<Buffer> results(6, Buffer(x.type, x.dims));
  run_on_threads(results.size(), [&](std::size_t i) {
    qc::fake_quantize(attributes, x.tensor(), grid.grid(), results[i].bytes.data(), run_on_threads);
  });
  for (const Buffer& result : results)
    expect(result.bytes == results[0].bytes, "calls at once disturb each other");
}

}  // namespace

void check_fake_quantize() {
  Random random{1};
  for (const ElementType type : kElementTypes)
    for (const Dims& dims : shapes())
      for (const Sharing& sharing : ways_to_share(dims)) check_tensor(type, dims, sharing, random);
  check_all_streaming();
  check_calls_at_once();
}

// Results that are larger than the caches take another way to memory, unless they are in place.
void check_large_results() {
  const std::int64_t elements = (64 << 19) + 3;
  Buffer x(ElementType::float16, {elements}), y = x;
  for (std::size_t i = 0; i < kOneTask; ++i) std::memcpy(&x.bytes[2 * i], &i, 2);
  for (std::size_t done = 2 * kOneTask; done < x.bytes.size(); done *= 2)
    std::memcpy(&x.bytes[done], &x.bytes[0], std::min(done, x.bytes.size() - done));
  const qc::QuantizerAttributes attributes = attributes_of({"tensor", 0, 0}, "half-even", "int");
  const OwnGrid grid = tensor_grid();
  qc::fake_quantize(attributes, x.tensor(), grid.grid(), y.bytes.data(), run_on_threads);
  qc::fake_quantize(attributes, x.tensor(), grid.grid(), x.bytes.data(), run_on_threads);
  expect(x.bytes == y.bytes, "streaming on threads changes a result");
}

}  // namespace qc_test
