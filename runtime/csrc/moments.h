// qc::ObserveMoments: sums of the elements of a tensor and of their products, in float64. NaN and infinity
// count as zero. The order of the additions depends on nothing but shapes.
#pragma once

#include <string>
#include <vector>

#include "tensor.h"

namespace qc {

// What the kernel of a convolution sees of its input at each place, in the words of Conv's attributes; or
// that of a transposed one, in those of ConvTranspose's. Lists may be empty, but for the kernel, which says
// how many axes behind those of the batch and the channels there are.
struct Window {
  std::vector<std::int64_t> kernel, strides, dilations, pads;
  std::int64_t group = 1;
  std::string auto_pad = "NOTSET";
  bool transposed = false;
  std::vector<std::int64_t> output_padding, output_shape;
};

// Tensors of one shape, side by side, as rows of features: those of a position are multiplied with each
// other, within each group.
class Rows {
 public:
  // The features are the channels along an axis.
  Rows(const Shape& x, std::int64_t axis);
  // The features are those of a patch: each channel of a group, and within it each place of the kernel.
  // Throws InvalidArgument if the window does not fit.
  Rows(const Shape& x, const Window& window);

  // Only some positions, which increase, of so many tensors.
  void choose(std::vector<std::size_t> positions, std::size_t tensors);

  std::size_t groups() const { return groups_; }
  std::size_t features() const {
    return tensors_ * channels_ * kernel_.size();
  }  // of a group, of one tensor first
  std::size_t positions() const { return chosen_.empty() ? positions_ : chosen_.size(); }
  std::size_t products() const { return groups_ * features() * (features() + 1) / 2; }

  // Strips that hold the features of a group, filled up with zeros.
  std::size_t strips() const { return (features() + kStrip - 1) / kStrip; }

  struct Range {
    std::size_t first, count;
  };
  // Writes some rows of some groups to panels: strip after strip, each with room for the given number of
  // rows.
  void pack(const std::vector<const float*>& tensors, Range groups, Range rows, std::size_t room,
            double* panels) const;

 private:
  // An output begins at stride times its index, plus begin, of the input with zeros put between its elements,
  // every spread-th of which is one of them.
  struct Axis {
    std::int64_t length, outputs, stride, begin, spread;
  };

  void find_offsets(std::size_t position, std::vector<std::int64_t>& offsets) const;

  std::size_t groups_ = 1, channels_ = 0, positions_ = 0, plane_ = 1, tensors_ = 1;
  std::vector<std::size_t> chosen_;  // empty for all
  std::vector<Axis> axes_;
  std::vector<std::vector<std::int64_t>> kernel_;  // for each of its places the distance along each axis
};

// For the whole tensor (axis is -1) or each index along the axis, the sums of the elements and of their
// squares.
void observe_moments(const FloatTensor& x, std::int64_t axis, double* sums, double* squares,
                     const TaskRunner& run);

// For each group the sums of the features, and of the products of each two: the rows of the upper triangle of
// a matrix, one behind the other.
void observe_products(const std::vector<FloatTensor>& tensors, const Rows& rows, double* sums,
                      double* products, const TaskRunner& run);

}  // namespace qc
