// Runs the kernels on many shapes, types, grids and threads, and compares every result with a plain definition.
// Buffers have exactly the size that is needed, so that a sanitizer sees every access beyond. Built with
// -DQC_NATIVE_TEST=ON; needs neither Python nor ONNX Runtime. Ends with exit code 1 at the first difference.
//
// qc_kernel_test [INSTRUCTION_SET]: in all that this processor has, or in one.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "errors.h"
#include "fake_quantize.h"
#include "formats.h"
#include "moments.h"
#include "observe.h"

struct QcTensor {
  const void* data;
  const std::int64_t* dims;
  std::int64_t rank;
};
struct QcQuantizer {
  const char* granularity;
  std::int64_t axis;
  std::int64_t block_size;
  const char* rounding;
  const char* format;
};
struct QcError {
  char text[512];
};
extern "C" int qc_fake_quantize(const QcTensor*, const char*, const QcQuantizer*, const QcTensor*, const QcTensor*,
                                const QcTensor*, void*, QcError*);
extern "C" int qc_observe(const QcTensor*, const char*, std::int64_t, float*, float*, std::int64_t*, std::int64_t*,
                          std::int64_t*, QcError*);

namespace {

using qc::ElementType;
using qc::Rounding;
using Dims = std::vector<std::int64_t>;

int comparisons = 0;

void expect(bool holds, const std::string& what) {
  ++comparisons;
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

// Runs tasks on four threads, in no particular order.
void run_on_threads(std::size_t count, const qc::Task& task) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

// A sequence that is the same everywhere.
struct Random {
  std::uint64_t state;

  std::uint32_t next() {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<std::uint32_t>(state >> 33);
  }
  float uniform(float low, float high) { return low + (high - low) * static_cast<float>(next() % 65536) / 65536.0f; }
};

float decoded(ElementType type, const void* data, std::size_t i) {
  if (type == ElementType::float32) return static_cast<const float*>(data)[i];
  const std::uint16_t bits = static_cast<const std::uint16_t*>(data)[i];
  return type == ElementType::float16 ? qc::float16_value(bits) : qc::bfloat16_value(bits);
}

std::uint32_t encoded(ElementType type, float value) {
  if (type == ElementType::float32) return qc::bits_of(value);
  return type == ElementType::float16 ? qc::float16_bits(value) : qc::bfloat16_bits(value);
}

std::uint32_t stored(ElementType type, const void* data, std::size_t i) {
  if (type == ElementType::float32) return static_cast<const std::uint32_t*>(data)[i];
  return static_cast<const std::uint16_t*>(data)[i];
}

// A tensor in exactly as many bytes as it needs.
struct Buffer {
  ElementType type;
  Dims dims;
  std::size_t count;
  std::vector<char> bytes;

  Buffer(ElementType element, const Dims& sizes) : type(element), dims(sizes), count(1) {
    for (const std::int64_t n : dims) count *= static_cast<std::size_t>(n);
    bytes.resize(count * qc::byte_size(type));
    bytes.shrink_to_fit();
  }
  qc::Shape shape() const { return {dims.data(), dims.size()}; }
  qc::FloatTensor tensor() const { return {bytes.data(), shape(), type}; }
  void set(std::size_t i, float value) {
    const std::uint32_t bits = encoded(type, value);
    std::memcpy(&bytes[i * qc::byte_size(type)], &bits, qc::byte_size(type));
  }
};

Buffer sample(ElementType type, const Dims& dims, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,     -0.0f,     std::nanf(""), infinity, -infinity, 1e-45f,
                           -1e-45f, 3e38f, -3e38f,        65504.0f, 448.0f,    1e-7f};
  Buffer x(type, dims);
  for (std::size_t i = 0; i < x.count; ++i) {
    const float ties = static_cast<float>(static_cast<int>(random.next() % 64) - 32) * 0.125f;
    x.set(i, random.next() % 8 == 0 ? special[random.next() % 12] : random.next() % 2 ? ties : random.uniform(-9, 9));
  }
  return x;
}

struct Case {
  std::string granularity;
  std::int64_t axis;
  std::int64_t block_size;
};

// The index of the scale of element i.
std::size_t scale_index(const Case& how, const Buffer& x, const Dims& scales, std::size_t i) {
  if (how.granularity == "tensor") return 0;
  std::size_t index = 0, stride = 1, rest = i;
  for (std::size_t axis = x.dims.size(); axis-- > 0;) {
    const auto n = static_cast<std::size_t>(x.dims[axis]);
    const std::size_t place = rest % n;
    rest /= n;
    const bool own = axis == static_cast<std::size_t>(how.axis);
    if (how.granularity == "channel" && own) return place;
    if (how.granularity == "block") {
      index += (own ? place / static_cast<std::size_t>(how.block_size) : place) * stride;
      stride *= static_cast<std::size_t>(scales[axis]);
    }
  }
  return index;
}

float expected(Rounding rounding, float x, float scale, float lowest, float highest) {
  float steps = x / scale;
  steps = steps > lowest ? steps : lowest;
  steps = steps < highest ? steps : highest;
  if (rounding == Rounding::half_even) return (std::nearbyint(steps) + 0.0f) * scale;
  if (rounding == Rounding::half_away) return (std::round(steps) + 0.0f) * scale;
  const float above = steps - lowest, whole = std::floor(above);
  return (whole + (above - whole >= 0.5f ? 1.0f : 0.0f) + lowest) * scale;
}

Dims scale_dims(const Case& how, const Dims& dims) {
  if (how.granularity == "tensor") return {};
  if (how.granularity == "channel") return {dims[static_cast<std::size_t>(how.axis)]};
  Dims result = dims;
  std::int64_t& n = result[static_cast<std::size_t>(how.axis)];
  n = (n + how.block_size - 1) / how.block_size;
  return result;
}

// A tensor of more elements is computed in several tasks. It is rounded in one way only, to save time.
constexpr std::size_t kOneTask = std::size_t{1} << 16;

// One tensor, in all roundings and formats: out of place, in place, and on threads.
void check_quantization(ElementType type, const Dims& dims, const Case& how, Random& random) {
  const Buffer x = sample(type, dims, random);
  const Dims sizes = scale_dims(how, dims);
  const Buffer shape(ElementType::float32, sizes);
  std::vector<float> scale(shape.count);
  std::vector<std::int32_t> zero_point(shape.count), limits = {-128, 127};
  for (std::size_t i = 0; i < shape.count; ++i) {
    scale[i] = random.next() % 4 ? random.uniform(0.01f, 0.5f) : 0.125f;
    zero_point[i] = static_cast<std::int32_t>(random.next() % 256) - 128;
  }
  const std::int64_t two = 2;
  const qc::Grid grid = {
      {scale.data(), shape.shape()}, {zero_point.data(), shape.shape()}, {limits.data(), {&two, 1}}};
  const char* const roundings[] = {"half-even", "half-away", "half-up"};
  const std::size_t ways = x.count > kOneTask ? 1 : 3;
  for (const char* format : {"int", "float16", "bfloat16", "float8e4m3fn", "float8e5m2"}) {
    const bool integer = std::strcmp(format, "int") == 0;
    if (!integer && x.count > kOneTask) break;
    for (std::size_t rounding = 0; rounding < (integer ? ways : 1); ++rounding) {
      const qc::QuantizerAttributes attributes(how.granularity, how.axis, how.block_size, roundings[rounding], format);
      Buffer apart(type, dims), threaded(type, dims), in_place = x;
      qc::fake_quantize(attributes, x.tensor(), grid, apart.bytes.data(), qc::run_in_sequence);
      qc::fake_quantize(attributes, x.tensor(), grid, threaded.bytes.data(), run_on_threads);
      qc::fake_quantize(attributes, in_place.tensor(), grid, in_place.bytes.data(), run_on_threads);
      expect(apart.bytes == threaded.bytes, "threads change a result");
      expect(apart.bytes == in_place.bytes, "working in place changes a result");
      if (!integer) continue;
      for (std::size_t i = 0; i < x.count; ++i) {
        const std::size_t at = scale_index(how, x, sizes, i);
        const float value = expected(static_cast<Rounding>(rounding), decoded(type, x.bytes.data(), i), scale[at],
                                     static_cast<float>(-128 - zero_point[at]), static_cast<float>(127 - zero_point[at]));
        if (stored(type, apart.bytes.data(), i) == encoded(type, value)) continue;
        std::ostringstream what;
        what << how.granularity << " " << roundings[rounding] << " element " << i << " of " << x.count << ": "
             << decoded(type, x.bytes.data(), i) << " became " << decoded(type, apart.bytes.data(), i) << " but not "
             << value << ", in " << qc::element_loops().name;
        expect(false, what.str());
      }
    }
  }
}

void check_observation(ElementType type, const Dims& dims, std::int64_t axis, Random& random) {
  const Buffer x = sample(type, dims, random);
  const std::size_t channels = qc::observed_channels(x.shape(), axis);
  std::vector<float> low(channels, INFINITY), high(channels, -INFINITY);
  std::vector<std::int64_t> bins(axis < 0 ? qc::kHistogramBins : 0);
  std::int64_t finite = 0;
  for (std::size_t i = 0; i < x.count; ++i) {
    const float value = decoded(type, x.bytes.data(), i);
    if (!std::isfinite(value)) continue;
    const std::size_t channel = axis < 0 ? 0 : scale_index({"channel", axis, 0}, x, {}, i);
    low[channel] = std::min(low[channel], value);
    high[channel] = std::max(high[channel], value);
    if (axis < 0) ++bins[qc::bits_of(value) >> 16];
    ++finite;
  }
  for (const bool threads : {false, true}) {
    std::vector<float> minimum(channels), maximum(channels);
    std::vector<std::int64_t> histogram(axis < 0 ? qc::kHistogramBins : 0);
    std::int64_t count = -1, nonfinite = -1;
    const qc::Observation result = {minimum.data(), maximum.data(), &count, &nonfinite,
                                    axis < 0 ? histogram.data() : nullptr};
    qc::observe(x.tensor(), axis, result, threads ? qc::TaskRunner(run_on_threads) : qc::run_in_sequence);
    expect(minimum == low && maximum == high, "a range is not that of the finite elements");
    expect(count == finite && count + nonfinite == static_cast<std::int64_t>(x.count), "elements are miscounted");
    expect(histogram == bins, "a histogram is not that of the finite elements");
  }
}

void check_shapes() {
  const std::vector<Dims> shapes = {{},        {0},         {1},        {7},          {16},        {17},
                                    {3, 5},    {0, 4},      {2, 3, 37}, {5, 16, 2},   {4, 1, 33},  {2, 3, 0, 5},
                                    {700, 3},  {64, 40, 3}, {1, 7, 64}, {2, 40001},   {40001, 2}};
  Random random{1};
  for (const ElementType type : {ElementType::float32, ElementType::float16, ElementType::bfloat16})
    for (const Dims& dims : shapes) {
      check_quantization(type, dims, {"tensor", 0, 0}, random);
      check_observation(type, dims, -1, random);
      for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(dims.size()); ++axis) {
        check_quantization(type, dims, {"channel", axis, 0}, random);
        check_observation(type, dims, axis, random);
        for (const std::int64_t block : {1, 4, 32}) check_quantization(type, dims, {"block", axis, block}, random);
      }
    }
}

// Results that are larger than the caches take another way to memory, unless they are in place.
void check_large() {
  const std::int64_t elements = (64 << 19) + 3, two = 2;
  Buffer x(ElementType::float16, {elements}), y(ElementType::float16, {elements});
  for (std::size_t i = 0; i < kOneTask; ++i) std::memcpy(&x.bytes[2 * i], &i, 2);
  for (std::size_t done = 2 * kOneTask; done < x.bytes.size(); done *= 2)
    std::memcpy(&x.bytes[done], &x.bytes[0], std::min(done, x.bytes.size() - done));
  const qc::QuantizerAttributes attributes("tensor", 0, 0, "half-even", "int");
  const float scale = 0.1f;
  const std::int32_t zero_point = 3, limits[] = {-128, 127};
  const qc::Grid grid = {{&scale, {nullptr, 0}}, {&zero_point, {nullptr, 0}}, {limits, {&two, 1}}};
  qc::fake_quantize(attributes, x.tensor(), grid, y.bytes.data(), run_on_threads);
  qc::fake_quantize(attributes, x.tensor(), grid, x.bytes.data(), run_on_threads);
  expect(x.bytes == y.bytes, "streaming on threads changes a result");
}

// Streaming changes no result, wherever a result begins and ends within the lines of the cache.
void check_streaming() {
  Random random{5};
  constexpr std::size_t run = 300;
  const qc::ElementLoops& loops = qc::element_loops();
  for (const ElementType type : {ElementType::float32, ElementType::float16, ElementType::bfloat16})
    for (const qc::Format format : {qc::Format::integer, qc::Format::float8e4m3fn})
      for (const std::int64_t count : {5, 100, 1000})
        for (const std::int64_t before : {0, 1, 7}) {
          const Buffer x = sample(type, {count}, random);
          const std::size_t elements = x.count;
          std::vector<float> scale(elements);
          std::vector<std::int32_t> zero_point(elements, 3);
          for (float& step : scale) step = random.uniform(0.01f, 0.5f);
          Buffer plain(type, {before + count}), streamed = plain, plain_each = plain, streamed_each = plain;
          const std::size_t bytes_before = static_cast<std::size_t>(before) * qc::byte_size(type);
          const auto place = [&](Buffer& y) { return &y.bytes[bytes_before]; };
          qc::Rule rule = {type, format, Rounding::half_even, -128, 127};
          loops.quantize_runs(rule, scale.data(), zero_point.data(), run, x.bytes.data(), place(plain), elements);
          loops.quantize_each(rule, scale.data(), zero_point.data(), x.bytes.data(), place(plain_each), elements);
          rule.streamed = true;
          loops.quantize_runs(rule, scale.data(), zero_point.data(), run, x.bytes.data(), place(streamed), elements);
          loops.quantize_each(rule, scale.data(), zero_point.data(), x.bytes.data(), place(streamed_each), elements);
          expect(plain.bytes == streamed.bytes, "streaming changes a result");
          expect(plain_each.bytes == streamed_each.bytes, "streaming changes a result with a scale for each element");
        }
}

// Many calls at once on the same input.
void check_calls_at_once() {
  Random random{3};
  const Buffer x = sample(ElementType::float32, {300, 300}, random);
  const qc::QuantizerAttributes attributes("tensor", 0, 0, "half-even", "int");
  const float scale = 0.1f;
  const std::int32_t zero_point = 3, limits[] = {-128, 127};
  const std::int64_t two = 2;
  const qc::Grid grid = {{&scale, {nullptr, 0}}, {&zero_point, {nullptr, 0}}, {limits, {&two, 1}}};
  std::vector<Buffer> results(6, Buffer(ElementType::float32, {300, 300}));
  run_on_threads(results.size(), [&](std::size_t i) {
    qc::fake_quantize(attributes, x.tensor(), grid, results[i].bytes.data(), run_on_threads);
  });
  for (const Buffer& result : results) expect(result.bytes == results[0].bytes, "calls at once disturb each other");
}

// The rows of a matrix, with another one behind each element of it: the sums of all, and of all products.
void check_moments() {
  Random random = {11};
  for (const Dims& dims : {Dims{1, 1}, Dims{130, 17}, Dims{2000, 40}, Dims{3, 0}, Dims{0, 3}})
    for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
      const Buffer x = sample(type, dims, random);
      const auto rows = static_cast<std::size_t>(dims[0]), columns = static_cast<std::size_t>(dims[1]);
      const auto element = [&](std::size_t row, std::size_t column) {
        const double value = decoded(type, x.bytes.data(), row * columns + column);
        return std::isfinite(value) ? value : 0.0;
      };
      const qc::Rows features(x.shape(), 1);
      std::vector<double> sums(columns), squares(columns), means(columns), products(features.products());
      qc::observe_moments(x.tensor(), 1, sums.data(), squares.data(), run_on_threads);
      qc::observe_products({x.tensor()}, features, means.data(), products.data(), run_on_threads);
      const auto close = [](double found, double expected, double scale) {
        return std::fabs(found - expected) <= 1e-12 * scale;
      };
      std::size_t place = 0;
      for (std::size_t i = 0; i < columns; ++i)
        for (std::size_t j = i; j < columns; ++j, ++place) {
          double sum = 0, product = 0, scale = 0, size = 0;
          for (std::size_t row = 0; row < rows; ++row) {
            sum += element(row, i);
            size += std::fabs(element(row, i));
            product += element(row, i) * element(row, j);
            scale += std::fabs(element(row, i) * element(row, j));
          }
          expect(close(products[place], product, scale), "a product");
          if (i == j) expect(close(squares[i], product, scale), "a square");
          if (i == j) expect(close(sums[i], sum, size) && close(means[i], sum, size), "a sum");
        }
    }
}

// The squared errors of one tensor, summed for each scale.
void check_squared_errors(const Dims& dims, const Case& how, Random& random) {
  Buffer x(ElementType::float32, dims);
  for (std::size_t i = 0; i < x.count; ++i) x.set(i, random.uniform(-9, 9));
  const Dims sizes = scale_dims(how, dims);
  const Buffer shape(ElementType::float32, sizes);
  std::vector<float> scale(shape.count), errors(shape.count);
  std::vector<std::int32_t> zero_point(shape.count, 3), limits = {-8, 7};
  for (float& step : scale) step = random.uniform(0.1f, 0.9f);
  const std::int64_t two = 2;
  const qc::Grid grid = {
      {scale.data(), shape.shape()}, {zero_point.data(), shape.shape()}, {limits.data(), {&two, 1}}};
  const qc::QuantizerAttributes attributes(how.granularity, how.axis, how.block_size, "half-even", "int");
  const auto* const data = reinterpret_cast<const float*>(x.bytes.data());
  qc::squared_error(attributes, {data, x.shape()}, grid, 0.0f, errors.data());
  std::vector<double> sums(shape.count);
  for (std::size_t i = 0; i < x.count; ++i) {
    const std::size_t at = scale_index(how, x, sizes, i);
    const double error = data[i] - expected(Rounding::half_even, data[i], scale[at], -11, 4);
    sums[at] += error * error;
  }
  for (std::size_t i = 0; i < shape.count; ++i)
    expect(std::fabs(errors[i] - sums[i]) <= 1e-4 * sums[i], "a sum of squared errors");
}

// A histogram has an edge more than bins. In a bin of one step numbers are a twelfth of a square step off.
void check_errors() {
  Random random{13};
  for (const Dims& dims : {Dims{}, Dims{0, 4}, Dims{7}, Dims{5, 16, 2}, Dims{2, 3, 37}, Dims{300, 3}, Dims{3, 300}}) {
    check_squared_errors(dims, {"tensor", 0, 0}, random);
    for (std::int64_t axis = 0; axis < static_cast<std::int64_t>(dims.size()); ++axis) {
      check_squared_errors(dims, {"channel", axis, 0}, random);
      for (const std::int64_t block : {1, 4, 32}) check_squared_errors(dims, {"block", axis, block}, random);
    }
  }
  for (const std::size_t bins : {1, 7, 200}) {
    std::vector<double> edges(bins + 1), counts(bins, 6.0);
    for (std::size_t i = 0; i <= bins; ++i) edges[i] = 0.5 * static_cast<double>(i);
    const double found = qc::element_loops().errors->histogram_error({edges.data(), counts.data(), bins}, 0.5, 0, 255, 1);
    expect(std::fabs(found - static_cast<double>(bins) * 0.125) < 1e-9, "an error on a histogram");
  }
  for (const std::size_t count : {0, 5, 8, 203}) {
    const std::vector<float> x(count, 1.0f), y(count, 3.0f);
    qc::Difference sums = {};
    qc::element_loops().errors->compare(x.data(), y.data(), count, sums);
    const double size = static_cast<double>(count);
    expect(sums.signal == size && sums.energy == 9 * size && sums.product == 3 * size && sums.noise == 4 * size &&
               sums.largest == (count ? 2 : 0) && sums.equal == 0,
           "how far two arrays are apart");
  }
}

void check_bad_arguments() {
  const std::int64_t three = 3, two = 2;
  const float x[3] = {1, 2, 3};
  float y[3], scale = 0.5f, minimum, maximum;
  std::int32_t zero_point = 0, limits[2] = {-128, 127};
  std::int64_t count, nonfinite;
  const QcTensor tensor = {x, &three, 1}, one = {&scale, nullptr, 0}, zero = {&zero_point, nullptr, 0};
  const QcTensor codes = {limits, &two, 1};
  const auto failure = [&](const char* type, const QcQuantizer& quantizer, const QcTensor& grid) {
    QcError error = {};
    expect(qc_fake_quantize(&tensor, type, &quantizer, &grid, &zero, &codes, y, &error) == 1, "a bad call succeeds");
    return std::string(error.text);
  };
  const QcQuantizer good = {"tensor", 0, 0, "half-even", "int"};
  expect(failure("float64", good, one).find("float64 are not supported") != std::string::npos, "type");
  expect(failure("float32", {"row", 0, 0, "half-even", "int"}, one).find("granularity") != std::string::npos, "word");
  expect(failure("float32", {"channel", 7, 0, "half-even", "int"}, one).find("axis is 7") != std::string::npos, "axis");
  expect(failure("float32", {"channel", 0, 0, "half-even", "int"}, one).find("needs (3,)") != std::string::npos, "fit");
  expect(failure("float32", {"block", 0, 0, "half-even", "int"}, one).find("at least 1") != std::string::npos, "block");
  const std::string endless(2000, 'x');  // an error is cut, never written beyond its place
  expect(failure("float32", {endless.c_str(), 0, 0, "half-even", "int"}, one).size() == 511, "length");
  for (const float bad : {-1.0f, std::nanf(""), INFINITY}) {
    scale = bad;
    expect(failure("float32", good, one).find("finite and above zero") != std::string::npos, "scale");
  }
  scale = 0.5f;
  zero_point = 1 << 30;
  expect(failure("float32", good, one).find("zero_point") != std::string::npos, "zero point");
  QcError error = {};
  expect(qc_observe(&tensor, "int8", -1, &minimum, &maximum, &count, &nonfinite, nullptr, &error) == 1, "observe type");
  expect(qc_observe(&tensor, "float32", 1, &minimum, &maximum, &count, &nonfinite, nullptr, &error) == 1, "observe axis");
}

}  // namespace

int main(int count, char** words) {
  std::string names = count > 1 ? words[1] : qc::instruction_sets();
  for (std::istringstream list(names); std::getline(list, names, ',');) {
    expect(qc::use_instruction_set(names.c_str()), "an instruction set cannot be chosen");
    check_shapes();
    check_streaming();
    check_moments();
    check_errors();
    check_calls_at_once();
    std::printf("%s: %d comparisons\n", names.c_str(), comparisons);
  }
  check_large();
  check_bad_arguments();
}
