// qc::ObserveMoments: sums of the elements of a tensor and of their products, in float64. NaN and infinity count as
// zero. The order of the additions depends on nothing but shapes.
#pragma once

#include <string>
#include <vector>

#include "tensor.h"

namespace qc {

// What the kernel of a convolution sees of its input at each place, in the words of Conv's attributes. Lists may be
// empty, but for the kernel, which says how many axes behind those of the batch and the channels there are.
struct Window {
  std::vector<std::int64_t> kernel, strides, dilations, pads;
  std::int64_t group = 1;
  std::string auto_pad = "NOTSET";
};

// A tensor as rows of features: those of a position are multiplied with each other, within each group.
class Rows {
 public:
  // The features are the channels along an axis.
  Rows(const Shape& x, std::int64_t axis);
  // The features are those of a patch: each channel of a group, and within it each place of the kernel.
  // Throws InvalidArgument if the window does not fit.
  Rows(const Shape& x, const Window& window);

  std::size_t groups() const { return groups_; }
  std::size_t features() const { return channels_ * kernel_.size(); }  // of a group
  std::size_t positions() const { return positions_; }
  std::size_t products() const { return groups_ * features() * (features() + 1) / 2; }

  // Strips that hold the features of all groups, each group filled up with zeros.
  std::size_t strips() const { return groups_ * group_strips(); }
  std::size_t group_strips() const { return (features() + kStrip - 1) / kStrip; }

  // Writes some rows to panels: strip after strip, each with room for the given number of rows.
  void pack(const float* x, std::size_t first, std::size_t count, std::size_t room, double* panels) const;

 private:
  struct Axis {
    std::int64_t length, outputs, stride, begin;
  };

  std::size_t groups_ = 1, channels_ = 0, positions_ = 0, plane_ = 1;
  std::vector<Axis> axes_;
  std::vector<std::vector<std::int64_t>> kernel_;  // for each of its places the distance along each axis
};

// For the whole tensor (axis is -1) or each index along the axis, the sums of the elements and of their squares.
void observe_moments(const FloatTensor& x, std::int64_t axis, double* sums, double* squares, const TaskRunner& run);

// For each group the sums of the features, and of the products of each two: the rows of the upper triangle of a
// matrix, one behind the other.
void observe_products(const FloatTensor& x, const Rows& rows, double* sums, double* products, const TaskRunner& run);

}  // namespace qc
