// qc::observe_moments and qc::observe_products: sums in float64, of elements, their squares, and products of
// two.
#include "moments.h"

#include <cmath>

#include "definition.h"

namespace qc_test {
namespace {

using qc::ElementType;

// A sum, and that of the magnitudes of what it adds, which says how exact it can be.
struct Sum {
  double value = 0, size = 0;

  void add(double number) {
    value += number;
    size += std::fabs(number);
  }
  bool is_close(double found) const { return std::fabs(found - value) <= 1e-12 * size; }
};

// A finite element of a matrix, or zero.
double element(const Buffer& x, std::size_t row, std::size_t column) {
  const double value = x.value(row * static_cast<std::size_t>(x.dims[1]) + column);
  return std::isfinite(value) ? value : 0.0;
}

// All elements, where axis is -1, or those of each index along an axis: their sums and those of their
// squares.
void check_elements(const Buffer& x, std::int64_t axis) {
  const auto number = static_cast<std::size_t>(axis < 0 ? 1 : x.dims[static_cast<std::size_t>(axis)]);
  std::vector<Sum> sums(number), squares(number);
  for (std::size_t i = 0; i < x.count; ++i) {
    const double value = std::isfinite(x.value(i)) ? x.value(i) : 0.0;
    const std::size_t index = axis < 0 ? 0 : scale_index({"channel", axis, 0}, x.dims, i);
    sums[index].add(value);
    squares[index].add(value * value);
  }
  std::vector<double> found(number), found_squares(number);
  qc::observe_moments(x.tensor(), axis, found.data(), found_squares.data(), run_on_threads);
  for (std::size_t i = 0; i < number; ++i) {
    expect(sums[i].is_close(found[i]), "a sum of elements");
    expect(squares[i].is_close(found_squares[i]), "a sum of squares");
  }
}

// The rows of a matrix: the sums of its columns, and of the products of each two of them.
void check_products(const Buffer& x) {
  const auto rows = static_cast<std::size_t>(x.dims[0]), columns = static_cast<std::size_t>(x.dims[1]);
  const qc::Rows features(x.shape(), 1);
  std::vector<double> sums(columns), products(features.products());
  qc::observe_products({x.tensor()}, features, sums.data(), products.data(), run_on_threads);
  std::size_t place = 0;
  for (std::size_t i = 0; i < columns; ++i)
    for (std::size_t j = i; j < columns; ++j, ++place) {
      Sum sum, product;
      for (std::size_t row = 0; row < rows; ++row) {
        sum.add(element(x, row, i));
        product.add(element(x, row, i) * element(x, row, j));
      }
      expect(product.is_close(products[place]), "a product");
      if (i == j) expect(sum.is_close(sums[i]), "a sum");
    }
}

}  // namespace

void check_moments() {
  Random random{11};
  for (const Dims& dims : {Dims{1, 1}, Dims{130, 17}, Dims{2000, 40}, Dims{3, 0}, Dims{0, 3}})
    for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) {
      const Buffer x = sample(type, dims, random);
      for (const std::int64_t axis : {-1, 0, 1}) check_elements(x, axis);
      check_products(x);
    }
}

}  // namespace qc_test
