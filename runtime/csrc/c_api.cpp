#include "c_api.h"

#include <algorithm>
#include <cstring>

#include "fake_quantize.h"
#include "moments.h"
#include "observe.h"
#include "squared_error.h"

namespace {

qc::Shape shape_of(const QcTensor& tensor) { return {tensor.dims, static_cast<std::size_t>(tensor.rank)}; }

template <class Element>
qc::Tensor<Element> tensor_of(const QcTensor& tensor) {
  return {static_cast<const Element*>(tensor.data), shape_of(tensor)};
}

// The names are those of numpy and ml_dtypes.
qc::FloatTensor floats_of(const QcTensor& tensor, const char* type) {
  const std::string name = type;
  if (name == "float32") return {tensor.data, shape_of(tensor), qc::ElementType::float32};
  if (name == "float16") return {tensor.data, shape_of(tensor), qc::ElementType::float16};
  if (name == "bfloat16") return {tensor.data, shape_of(tensor), qc::ElementType::bfloat16};
  throw qc::InvalidArgument("Elements of type " + name +
                            " are not supported: use float32, float16 or bfloat16.");
}

qc::QuantizerAttributes attributes_of(const QcQuantizer& quantizer) {
  return qc::QuantizerAttributes(quantizer.granularity, quantizer.axis, quantizer.block_size,
                                 quantizer.rounding, quantizer.format);
}

qc::Grid grid_of(const QcTensor& scale, const QcTensor& zero_point, const QcTensor& limits) {
  return {tensor_of<float>(scale), tensor_of<std::int32_t>(zero_point), tensor_of<std::int32_t>(limits)};
}

qc::Rows rows_of(const QcTensor& tensor, const QcFeatures& features) {
  if (features.axes == 0) return qc::Rows(shape_of(tensor), features.channel_axis);
  const auto list = [&](const std::int64_t* numbers, std::int64_t times = 1) {
    return numbers == nullptr ? std::vector<std::int64_t>{}
                              : std::vector<std::int64_t>(numbers, numbers + times * features.axes);
  };
  return qc::Rows(shape_of(tensor),
                  {list(features.kernel), list(features.strides), list(features.dilations),
                   list(features.pads, 2), features.group, features.auto_pad, features.transposed != 0,
                   list(features.output_padding), list(features.output_shape)});
}

template <class Action>
int guarded(QcError* error, const Action& action) {
  try {
    action();
    return 0;
  } catch (const std::exception& failure) {
    const std::size_t length = std::min(std::strlen(failure.what()), sizeof error->text - 1);
    std::memcpy(error->text, failure.what(), length);
    error->text[length] = '\0';
    return 1;
  }
}

}  // namespace

// A number that changes with the functions here or the operators; runtime/native/library.py has the same.
QC_EXPORT int qc_interface() { return 7; }

QC_EXPORT int qc_fake_quantize(const QcTensor* x, const char* type, const QcQuantizer* quantizer,
                               const QcTensor* scale, const QcTensor* zero_point, const QcTensor* limits,
                               void* y, QcError* error) {
  return guarded(error, [&] {
    const qc::Grid grid = grid_of(*scale, *zero_point, *limits);
    qc::fake_quantize(attributes_of(*quantizer), floats_of(*x, type), grid, y, qc::run_in_sequence);
  });
}

// errors has room for one element for each scale; see squared_error.h.
QC_EXPORT int qc_squared_error(const QcTensor* x, const QcQuantizer* quantizer, const QcTensor* scale,
                               const QcTensor* zero_point, const QcTensor* limits, float shift, float* errors,
                               QcError* error) {
  return guarded(error, [&] {
    const qc::Grid grid = grid_of(*scale, *zero_point, *limits);
    qc::squared_error(attributes_of(*quantizer), tensor_of<float>(*x), grid, shift, errors);
  });
}

// The errors of some grids of codes from 0 to steps on one histogram; see element_loops.h.
QC_EXPORT void qc_histogram_errors(const double* edges, const double* counts, std::int64_t bins,
                                   const double* scales, const double* offsets, std::int64_t grids,
                                   double steps, double clipping, double* errors) {
  const qc::Histogram histogram = {edges, counts, static_cast<std::size_t>(bins)};
  for (std::int64_t i = 0; i < grids; ++i)
    errors[i] =
        qc::element_loops().errors->histogram_error(histogram, scales[i], offsets[i], steps, clipping);
}

// Adds how far y is from x to sums; see element_loops.h.
QC_EXPORT void qc_compare(const float* x, const float* y, std::int64_t count, qc::Difference* sums) {
  qc::element_loops().errors->compare(x, y, static_cast<std::size_t>(count), *sums);
}

// minimum and maximum have room for one element if axis is -1, else for the length of that axis; histogram is
// null or has room for 65536 elements.
QC_EXPORT int qc_observe(const QcTensor* x, const char* type, std::int64_t axis, float* minimum,
                         float* maximum, std::int64_t* count, std::int64_t* nonfinite,
                         std::int64_t* histogram, QcError* error) {
  return guarded(error, [&] {
    qc::observe(floats_of(*x, type), axis, {minimum, maximum, count, nonfinite, histogram},
                qc::run_in_sequence);
  });
}

// Adds counts to those bins of a histogram.
QC_EXPORT void qc_add_counts(const std::int64_t* bins, const std::int64_t* counts, std::int64_t number,
                             std::int64_t* histogram) {
  for (std::int64_t i = 0; i < number; ++i) histogram[bins[i]] += counts[i];
}

// Adds a finite number to each of some exact sums, of which all first digits come first; see exact_sum.py.
QC_EXPORT void qc_add_exact(const double* x, std::int64_t number, std::int16_t* top, std::int64_t* digits) {
  qc::element_loops().sums->add_exact(x, static_cast<std::size_t>(number), top, digits);
}

// How a tensor is seen as rows of features: of so many groups, features and positions.
QC_EXPORT int qc_rows(const QcTensor* x, const QcFeatures* features, std::int64_t* sizes, QcError* error) {
  return guarded(error, [&] {
    const qc::Rows rows = rows_of(*x, *features);
    sizes[0] = static_cast<std::int64_t>(rows.groups());
    sizes[1] = static_cast<std::int64_t>(rows.features());
    sizes[2] = static_cast<std::int64_t>(rows.positions());
  });
}

// The sums of features of float32 tensors of one shape, side by side, and of their products, at some
// positions, which increase; see moments.h.
QC_EXPORT int qc_products(const QcTensor* tensors, std::int64_t count, const QcFeatures* features,
                          const std::int64_t* positions, std::int64_t number, double* sums, double* products,
                          QcError* error) {
  return guarded(error, [&] {
    qc::Rows rows = rows_of(*tensors, *features);
    rows.choose({positions, positions + number}, static_cast<std::size_t>(count));
    std::vector<qc::FloatTensor> given;
    for (std::int64_t i = 0; i < count; ++i) given.push_back(floats_of(tensors[i], "float32"));
    qc::observe_products(given, rows, sums, products, qc::run_in_sequence);
  });
}

// Names of the usable instruction sets, best first, separated by commas.
QC_EXPORT const char* qc_instruction_sets() { return qc::instruction_sets(); }

// Chooses one of them for the whole process; returns 1 if there is none of that name.
QC_EXPORT int qc_use_instruction_set(const char* name) { return qc::use_instruction_set(name) ? 0 : 1; }
