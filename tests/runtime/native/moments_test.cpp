// qc::observe_moments and qc::observe_products: sums in float64, of elements, their squares, and products of two.
#include "moments.h"

#include <cmath>

#include "common.h"

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

// The rows of a matrix: the sums of its columns, of their squares, and of the products of each two of them.
void check_sums(const Buffer& x) {
  const auto rows = static_cast<std::size_t>(x.dims[0]), columns = static_cast<std::size_t>(x.dims[1]);
  const qc::Rows features(x.shape(), 1);
  std::vector<double> sums(columns), squares(columns), sums_beside(columns), products(features.products());
  qc::observe_moments(x.tensor(), 1, sums.data(), squares.data(), run_on_threads);
  qc::observe_products({x.tensor()}, features, sums_beside.data(), products.data(), run_on_threads);
  std::size_t place = 0;
  for (std::size_t i = 0; i < columns; ++i)
    for (std::size_t j = i; j < columns; ++j, ++place) {
      Sum sum, product;
      for (std::size_t row = 0; row < rows; ++row) {
        sum.add(element(x, row, i));
        product.add(element(x, row, i) * element(x, row, j));
      }
      expect(product.is_close(products[place]), "a product");
      if (i == j) expect(product.is_close(squares[i]), "a square");
      if (i == j) expect(sum.is_close(sums[i]) && sum.is_close(sums_beside[i]), "a sum");
    }
}

}  // namespace

void check_moments() {
  Random random{11};
  for (const Dims& dims : {Dims{1, 1}, Dims{130, 17}, Dims{2000, 40}, Dims{3, 0}, Dims{0, 3}})
    for (const ElementType type : {ElementType::float32, ElementType::bfloat16}) check_sums(sample(type, dims, random));
}

}  // namespace qc_test
