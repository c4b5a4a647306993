// The arithmetic of devices: codes are near those of exact arithmetic, the lowest where there is none, and
// the same on threads. That they are the codes of a device is for tests/runtime/csrc/test_requantize.py to
// say.
#include "requantize.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "broadcast.h"
#include "definition.h"
#include "requantize_normalization.h"

namespace qc_test {
namespace {

using qc::TaskRunner;

constexpr float kNotFinite[] = {NAN, INFINITY, -INFINITY};

// Writes what an operator makes.
using Kernel = std::function<void(float* y, const TaskRunner& run)>;
// What it should make of some element in exact arithmetic.
using Exact = std::function<double(std::size_t i)>;

OwnGrid uint8_grid(double scale, Random& random) {
  OwnGrid grid({}, 0, 255);
  grid.scale = {static_cast<float>(scale)};
  grid.zero_point = {static_cast<std::int32_t>(random.next() % 256)};
  return grid;
}

// Where an element of the result is in a tensor that broadcasts to it.
std::size_t place_in(const Dims& dims, const Dims& result, std::size_t i) {
  std::size_t place = 0, stride = 1;
  for (std::size_t axis = dims.size(), behind = result.size(); axis-- > 0;) {
    const auto length = static_cast<std::size_t>(dims[axis]),
               repeated = static_cast<std::size_t>(result[--behind]);
    if (length > 1) place += i % repeated * stride;
    stride *= length;
    i /= repeated;
  }
  return place;
}

// A tensor on a grid; one in sixteen of its numbers may be NaN or infinity.
struct Operand {
  OwnGrid grid;
  Buffer x;

  Operand(const Dims& dims, bool finite, Random& random)
      : grid(uint8_grid(random.uniform(0.01f, 0.5f), random)), x(qc::ElementType::float32, dims) {
    for (std::size_t i = 0; i < x.count; ++i) {
      const auto steps = static_cast<std::int32_t>(random.next() % 256) - grid.zero_point[0];
      const bool kept = finite || random.next() % 16 != 0;
      x.set(i, kept ? static_cast<float>(steps) * grid.scale[0] : kNotFinite[random.next() % 3]);
    }
  }

  double scale() const { return grid.scale[0]; }
  qc::Tensor<float> numbers() const { return {reinterpret_cast<const float*>(x.bytes.data()), x.shape()}; }
  qc::OnGrid on_grid() const { return {numbers(), grid.grid().scale, grid.grid().zero_point}; }
  double finite(std::size_t i) const { return std::isfinite(x.value(i)) ? x.value(i) : NAN; }
};

// Of the numbers from 0 to 255; of NaN the lowest.
double code_of(const OwnGrid& grid, double number) {
  return std::min(std::max(0.0, number / grid.scale[0] + grid.zero_point[0]), 255.0);
}

// What a kernel makes, which is the same in sequence and on threads.
std::vector<float> made(std::size_t count, const Kernel& kernel) {
  std::vector<float> y(count), threaded(count);
  kernel(y.data(), qc::run_in_sequence);
  kernel(threaded.data(), run_on_threads);
  expect(y == threaded, "threads change a code");
  return y;
}

// Codes are no farther than this from those of exact arithmetic.
void check_codes(const std::string& name, const OwnGrid& grid, std::size_t count, double distance,
                 const Kernel& kernel, const Exact& exact) {
  const std::vector<float> y = made(count, kernel);
  for (std::size_t i = 0; i < count; ++i) {
    const double wanted = exact(i), code = y[i] / grid.scale[0] + grid.zero_point[0];
    if (std::fabs(code - code_of(grid, wanted)) > (std::isnan(wanted) ? 1e-3 : distance))
      expect(false,
             name + ": code " + std::to_string(code) + " for " + std::to_string(code_of(grid, wanted)));
  }
}

double quotient_of(double a, double b) {
  if (b != 0 || std::isnan(a)) return a / b;
  return a < 0 ? -INFINITY : INFINITY;
}

void check_pairs(const Dims& of_a, const Dims& of_b, bool finite, Random& random) {
  const Operand a(of_a, finite, random), b(of_b, finite, random);
  const qc::OnGrid on_a = a.on_grid(), on_b = b.on_grid();
  const Dims dims = qc::broadcast_shape(a.x.shape(), b.x.shape());
  const qc::Shape shape = {dims.data(), dims.size()};
  const auto check = [&](const char* name, double scale, const auto& kernel, const auto& exact) {
    const OwnGrid grid = uint8_grid(scale * random.uniform(0.5f, 2), random);
    check_codes(
        name, grid, shape.count(), 1,
        [&](float* y, const TaskRunner& run) { kernel(on_a, on_b, grid.grid(), shape, y, run); },
        [&](std::size_t i) {
          return exact(a.finite(place_in(of_a, dims, i)), b.finite(place_in(of_b, dims, i)));
        });
  };
  const auto sum = [](auto... given) { qc::requantize_sum(false, given...); };
  const auto difference = [](auto... given) { qc::requantize_sum(true, given...); };
  check("a sum", a.scale() + b.scale(), sum, [](double p, double q) { return p + q; });
  check("a difference", std::max(a.scale(), b.scale()), difference, [](double p, double q) { return p - q; });
  check("a product", a.scale() * b.scale() * 99, qc::requantize_product,
        [](double p, double q) { return p * q; });
  check("a quotient", a.scale() / b.scale() / 9, qc::requantize_quotient, quotient_of);
}

// The signed columns of a device are too coarse for codes to be near.
void check_matrices(const Dims& of_a, const Dims& of_b, bool finite, Random& random) {
  Operand a(of_a, finite, random), b(of_b, finite, random);
  if (!finite && a.x.count > 0) a.x.set(0, 3e38f);
  if (!finite && b.x.count > 0) b.x.set(0, -3e38f);
  const Dims dims = qc::matmul_shape(a.x.shape(), b.x.shape());
  const qc::Shape shape = {dims.data(), dims.size()};
  const OwnGrid grid = uint8_grid(1, random);
  made(shape.count(), [&](float* y, const TaskRunner& run) {
    qc::requantize_matmul(a.on_grid(), b.on_grid(), grid.grid(), shape, y, run);
  });
}

// What is brought to another grid, a slope for each place of the last dimension, and float16.
void check_single(const Dims& dims, bool finite, Random& random) {
  const Operand x(dims, finite, random), slope({dims.back()}, true, random);
  const OwnGrid grid = uint8_grid(x.scale() * 1.5, random);
  const qc::Tensor<float> numbers = x.numbers(), scale = x.grid.grid().scale;
  const std::vector<float> ones(static_cast<std::size_t>(dims.back()), 1);
  const auto check = [&](const std::string& name, const Kernel& kernel, const Exact& exact) {
    check_codes(name, grid, x.x.count, 1, kernel, exact);
  };
  const auto number = [&](std::size_t i) { return static_cast<double>(x.x.value(i)); };
  for (const char* word : {"matrix", "vector", "codes", "halves", "reduced", "moved"})
    check(
        word,
        [&](float* y, const TaskRunner& run) {
          qc::requantize(qc::arithmetic_of(word), -1, numbers, grid.grid(), scale,
                         {ones.data(), slope.x.shape()}, y, run);
        },
        number);
  for (const bool with_zero_point : {false, true})
    check(
        "float16",
        [&](float* y, const TaskRunner& run) {
          qc::quantize_in_float16(with_zero_point, numbers, grid.grid(), y, run);
        },
        number);
  made(x.x.count, [&](float* y, const TaskRunner& run) {
    qc::requantize_prelu(numbers, grid.grid(), scale, slope.numbers(), y, run);
  });
}

// Sums along rows, whose elements lie apart if there are inner ones.
struct RowSums {
  double count = 0, largest = -INFINITY, sum = 0, squares = 0, powers = 0;

  RowSums(const Operand& x, std::size_t first, std::size_t length, std::size_t inner)
      : count(static_cast<double>(length)) {
    for (std::size_t i = 0; i < length; ++i) largest = std::max(largest, x.finite(first + i * inner));
    for (std::size_t i = 0; i < length; ++i) {
      const double number = x.finite(first + i * inner);
      sum += number;
      squares += number * number;
      powers += std::exp(number - largest);
    }
  }
};

void check_softmax(std::int64_t length, bool finite, Random& random) {
  constexpr std::size_t inner = 300;
  const Operand x({60, length, inner}, finite, random);
  OwnGrid grid = uint8_grid(random.next() % 2 ? 1 / 255.0 : 1 / 256.0, random);
  grid.zero_point = {0};
  const auto size = static_cast<std::size_t>(length);
  check_codes(
      "softmax", grid, x.x.count, 2,
      [&](float* y, const TaskRunner& run) {
        qc::requantize_softmax(x.numbers(), grid.grid(), x.numbers(), x.grid.grid().scale, 1, y, run);
      },
      [&](std::size_t i) {
        const RowSums row(x, i / inner / size * inner * size + i % inner, size, inner);
        return std::exp(x.finite(i) - row.largest) / row.powers;
      });
}

void check_normalization(std::int64_t length, bool centered, bool finite, Random& random) {
  const Operand x({700, length}, finite, random), weight({length}, true, random),
      bias({length}, true, random);
  const OwnGrid grid = uint8_grid(weight.scale(), random);
  const float epsilon = 1e-3f, none = 0;
  const qc::Tensor<float> one = {&epsilon, grid.grid().scale.shape}, zero = {&none, one.shape};
  const auto size = static_cast<std::size_t>(length);
  check_codes(
      "a normalization", grid, x.x.count, 2,
      [&](float* y, const TaskRunner& run) {
        const qc::RowWeights weights = {weight.numbers(), weight.grid.grid().scale,
                                        centered ? bias.numbers() : zero, one, centered};
        qc::requantize_normalization(x.numbers(), grid.grid(), x.numbers(), x.grid.grid().scale, weights, y,
                                     run);
      },
      [&](std::size_t i) {
        const RowSums row(x, i / size * size, size, 1);
        const double mean = centered ? row.sum / row.count : 0,
                     variance = row.squares / row.count - mean * mean;
        const double scaled = (x.finite(i) - mean) / std::sqrt(variance + epsilon) * weight.finite(i % size);
        return scaled + (centered ? bias.finite(i % size) : 0);
      });
}

}  // namespace

void check_requantize() {
  Random random{7};
  for (const bool finite : {true, false}) {
    check_pairs({}, {}, finite, random);
    check_pairs({0, 4}, {4}, finite, random);
    check_pairs({2, 3, 37}, {3, 1}, finite, random);
    check_pairs({5, 1}, {2, 1, 7}, finite, random);
    check_pairs({300, 64}, {64}, finite, random);
    check_pairs({300, 64}, {300, 64}, finite, random);
    check_matrices({3, 0}, {0, 5}, finite, random);
    check_matrices({2, 1, 7, 33}, {3, 33, 9}, finite, random);
    for (const Dims& dims : {Dims{1}, Dims{0, 5}, Dims{2, 3, 17}, Dims{700, 40}})
      check_single(dims, finite, random);
    for (const std::int64_t length : {1, 2, 3, 16, 17, 40}) {
      check_softmax(length, finite, random);
      for (const bool centered : {true, false}) check_normalization(length, centered, finite, random);
    }
  }
}

}  // namespace qc_test
