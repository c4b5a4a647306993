// The operators of the domain "qc" as ONNX Runtime sees them. Each is registered once for every type of its
// first input. They keep no state: scales are inputs, statistics are outputs.
//
// An operator is a template over the device that computes it:
//
//   struct Device {
//     static constexpr const char* kProvider;  // execution provider; null for the CPU's
//     static constexpr bool kCountsOnHost;     // whether counts can be read at once, so that histograms can
//     be sparse Device(const ort::Api& api, ort::KernelContext* context); void fake_quantize(const
//     QuantizerAttributes&, const FloatTensor& x, const Grid&, void* y) const; void observe(const
//     FloatTensor& x, std::int64_t axis, const Observation& result) const; float add_observed(...) const; //
//     likewise, see observe.h; only if it counts on the host
//   };
//
// Shapes are in the memory of the host, and data where the device has its memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fake_quantize.h"
#include "observe.h"
#include "ort_abi.h"

namespace qc {

// Turns a failure of ONNX Runtime into an exception.
inline void check(const ort::Api& api, ort::Status* status) {
  if (status == nullptr) return;
  const std::string message = api.GetErrorMessage(status);
  api.ReleaseStatus(status);
  throw std::runtime_error(message);
}

// Calls an action and turns its exceptions into a status, because none may pass a C interface.
template <class Action>
ort::Status* guarded(const ort::Api& api, const Action& action) {
  try {
    action();
    return nullptr;
  } catch (const InvalidArgument& error) {
    return api.CreateStatus(ort::kInvalidArgument, error.what());
  } catch (const std::exception& error) {
    return api.CreateStatus(ort::kFail, error.what());
  }
}

inline std::string text_attribute(const ort::Api& api, const ort::KernelInfo* info, const char* name,
                                  const char* otherwise) {
  std::size_t size = 0;
  if (ort::Status* missing = api.KernelInfoGetAttribute_string(info, name, nullptr, &size)) {
    api.ReleaseStatus(missing);
    return otherwise;
  }
  std::string text(size, '\0');
  check(api, api.KernelInfoGetAttribute_string(info, name, &text[0], &size));
  text.resize(size - 1);  // without the terminating zero
  return text;
}

inline std::int64_t integer_attribute(const ort::Api& api, const ort::KernelInfo* info, const char* name,
                                      std::int64_t otherwise) {
  std::int64_t number = 0;
  ort::Status* missing = api.KernelInfoGetAttribute_int64(info, name, &number);
  if (missing == nullptr) return number;
  api.ReleaseStatus(missing);
  return otherwise;
}

inline float float_attribute(const ort::Api& api, const ort::KernelInfo* info, const char* name,
                             float otherwise) {
  float number = 0.0f;
  ort::Status* missing = api.KernelInfoGetAttribute_float(info, name, &number);
  if (missing == nullptr) return number;
  api.ReleaseStatus(missing);
  return otherwise;
}

// An input of a kernel with its shape.
class Input {
 public:
  Input(const ort::Api& api, const ort::KernelContext* context, std::size_t index) {
    const ort::Value* value = nullptr;
    check(api, api.KernelContext_GetInput(context, index, &value));
    void* memory = nullptr;
    check(api, api.GetTensorMutableData(const_cast<ort::Value*>(value), &memory));
    data_ = memory;
    ort::TensorInfo* described = nullptr;
    check(api, api.GetTensorTypeAndShape(value, &described));
    const std::unique_ptr<ort::TensorInfo, decltype(api.ReleaseTensorTypeAndShapeInfo)> info(
        described, api.ReleaseTensorTypeAndShapeInfo);
    std::size_t rank = 0;
    check(api, api.GetDimensionsCount(info.get(), &rank));
    dims_.resize(rank);
    check(api, api.GetDimensions(info.get(), dims_.data(), rank));
  }

  const void* data() const { return data_; }
  Shape shape() const { return {dims_.data(), dims_.size()}; }

  template <class Element>
  Tensor<Element> tensor() const {
    return {static_cast<const Element*>(data_), shape()};
  }

 private:
  const void* data_ = nullptr;
  std::vector<std::int64_t> dims_;
};

template <class Element>
Element* output(const ort::Api& api, ort::KernelContext* context, std::size_t index, const Shape& shape) {
  ort::Value* value = nullptr;
  check(api, api.KernelContext_GetOutput(context, index, shape.dims, shape.rank, &value));
  if (value == nullptr) return nullptr;  // an optional output that the model does not use
  void* memory = nullptr;
  check(api, api.GetTensorMutableData(value, &memory));
  return static_cast<Element*>(memory);
}

inline ort::TensorElement tensor_element(ElementType type) {
  switch (type) {
    case ElementType::float16:
      return ort::kFloat16;
    case ElementType::bfloat16:
      return ort::kBfloat16;
    default:
      return ort::kFloat32;
  }
}

// What all operators here have in common; an operator knows the type of its first input.
struct TypedOp : ort::Op {
  ElementType type;
  const ort::Api* api;

  TypedOp(ElementType input_type, const ort::Api& table) : ort::Op{}, type(input_type), api(&table) {
    version = ort::kApiVersion;
    GetInputCharacteristic = [](const ort::Op*, std::size_t) { return ort::kRequired; };
    GetOutputCharacteristic = [](const ort::Op*, std::size_t) { return ort::kRequired; };
    GetInputMemoryType = [](const ort::Op*, std::size_t) { return ort::kOrdinaryMemory; };
    GetStartVersion = [](const ort::Op*) { return 1; };
    GetEndVersion = [](const ort::Op*) { return 1; };
  }
};

inline ElementType type_of(const ort::Op* op) { return static_cast<const TypedOp*>(op)->type; }

// Makes the functions of an operator from a kernel class with a constructor and compute().
template <class Kernel>
void use_kernel(ort::Op& op) {
  op.CreateKernelV2 = [](const ort::Op* self, const ort::Api* api, const ort::KernelInfo* info,
                         void** kernel) {
    return guarded(*api, [&] { *kernel = new Kernel(*api, info, type_of(self)); });
  };
  op.KernelComputeV2 = [](void* kernel, ort::KernelContext* context) {
    const Kernel& self = *static_cast<const Kernel*>(kernel);
    return guarded(self.api, [&] { self.compute(context); });
  };
  op.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
}

template <class Device>
struct FakeQuantizeKernel {
  const ort::Api& api;
  const ElementType type;
  const QuantizerAttributes attributes;

  FakeQuantizeKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType input_type)
      : api(table),
        type(input_type),
        attributes(text_attribute(table, info, "granularity", "tensor"),
                   integer_attribute(table, info, "axis", 0), integer_attribute(table, info, "block_size", 0),
                   text_attribute(table, info, "rounding", "half-even"),
                   text_attribute(table, info, "format", "int"),
                   float_attribute(table, info, "minimum", -QuantizerAttributes::kInfinity),
                   float_attribute(table, info, "maximum", QuantizerAttributes::kInfinity)) {}

  void compute(ort::KernelContext* context) const {
    const Input x(api, context, 0), scale(api, context, 1), zero_point(api, context, 2),
        limits(api, context, 3);
    const Grid grid = {scale.tensor<float>(), zero_point.tensor<std::int32_t>(),
                       limits.tensor<std::int32_t>()};
    void* y = output<void>(api, context, 0, x.shape());
    Device(api, context).fake_quantize(attributes, {x.data(), x.shape(), type}, grid, y);
  }
};

// Tells the shape of Y, which the optimizer needs, and Scan of what its body gives back. An input of unknown
// rank looks like a scalar here, so that nothing is said of those. A dimension must have a number or a name;
// unknown ones that have none get a name that no other has, as nothing is known to be equal to them.
inline void infer_same_shape(const ort::Api& api, ort::ShapeContext* context) {
  ort::TensorInfo* info = nullptr;  // belongs to the context
  check(api, api.ShapeInferContext_GetInputTypeShape(context, 0, &info));
  std::size_t rank = 0;
  check(api, api.GetDimensionsCount(info, &rank));
  if (rank == 0) return;
  std::vector<std::int64_t> dims(rank);
  std::vector<const char*> names(rank);
  check(api, api.GetDimensions(info, dims.data(), rank));
  check(api, api.GetSymbolicDimensions(info, names.data(), rank));
  static std::atomic<std::uint64_t> count{0};
  std::vector<std::string> made(rank);
  for (std::size_t i = 0; i < rank; ++i)
    if (dims[i] < 0 && names[i][0] == '\0') {
      made[i] = "qc.unknown." + std::to_string(count++);
      names[i] = made[i].c_str();
    }
  check(api, api.SetSymbolicDimensions(info, names.data(), rank));
  check(api, api.ShapeInferContext_SetOutputTypeShape(context, 0, info));
}

template <class Device>
struct FakeQuantizeOp : TypedOp {
  FakeQuantizeOp(ElementType input_type, const ort::Api& table) : TypedOp(input_type, table) {
    use_kernel<FakeQuantizeKernel<Device>>(*this);
    GetExecutionProviderType = [](const ort::Op*) { return Device::kProvider; };
    GetName = [](const ort::Op*) { return "FakeQuantize"; };
    GetInputTypeCount = [](const ort::Op*) -> std::size_t { return 4; };
    GetInputType = [](const ort::Op* self, std::size_t index) {
      return index == 0 ? tensor_element(type_of(self)) : index == 1 ? ort::kFloat32 : ort::kInt32;
    };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 1; };
    GetOutputType = [](const ort::Op* self, std::size_t) { return tensor_element(type_of(self)); };
    InferOutputShapeFn = [](const ort::Op* self, ort::ShapeContext* context) {
      const ort::Api& api = *static_cast<const TypedOp*>(self)->api;
      return guarded(api, [&] { infer_same_shape(api, context); });
    };
    GetMayInplace = [](int** inputs, int** outputs) -> std::size_t {
      static int first_input = 0, first_output = 0;
      *inputs = &first_input;
      *outputs = &first_output;
      return 1;
    };
    ReleaseMayInplace = [](int*, int*) {};
  }
};

template <class Device>
struct ObserveKernel {
  const ort::Api& api;
  const ElementType type;
  const std::int64_t axis;
  const bool histogram;
  const bool sparse;

  ObserveKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType input_type)
      : api(table),
        type(input_type),
        axis(integer_attribute(table, info, "axis", -1)),
        histogram(integer_attribute(table, info, "histogram", 0) != 0),
        sparse(integer_attribute(table, info, "sparse", 0) != 0) {}

  void compute(ort::KernelContext* context) const {
    const Input x(api, context, 0);
    const std::optional<Input> before = counts_before(context);
    const auto channels = static_cast<std::int64_t>(observed_channels(x.shape(), axis));
    const std::int64_t one = 1, bins = kHistogramBins;
    Observation result = {};
    result.minimum = output<float>(api, context, 0, {&channels, 1});
    result.maximum = output<float>(api, context, 1, {&channels, 1});
    result.count = output<std::int64_t>(api, context, 2, {&one, 1});
    result.nonfinite = output<std::int64_t>(api, context, 3, {&one, 1});
    std::size_t outputs = 0;
    check(api, api.KernelContext_GetOutputCount(context, &outputs));
    const FloatTensor tensor = {x.data(), x.shape(), type};
    const Device device(api, context);
    if (histogram && outputs > 4) {
      if constexpr (Device::kCountsOnHost)
        if (sparse) return observe_sparse(context, device, tensor, result);
      result.histogram = output<std::int64_t>(api, context, 4, {&bins, 1});
      if (before) result.before = before->tensor<std::int64_t>().data;
    }
    device.observe(tensor, axis, result);
  }

  // The optional input: a histogram to which that of x is added.
  std::optional<Input> counts_before(ort::KernelContext* context) const {
    std::size_t inputs = 0;
    check(api, api.KernelContext_GetInputCount(context, &inputs));
    if (inputs < 2) return std::nullopt;
    Input before(api, context, 1);
    if (before.shape().count() != kHistogramBins)
      throw InvalidArgument("Observe: the histogram to add to has shape " + before.shape().text() +
                            " but needs (" + std::to_string(kHistogramBins) + ",).");
    return before;
  }

  // Gives the used bins and their counts, as two rows: to make, hand over and read all bins of hundreds of
  // tensors takes several times as long as to count.
  void observe_sparse(ort::KernelContext* context, const Device& device, const FloatTensor& tensor,
                      Observation result) const {
    thread_local std::vector<std::int64_t> zeros(kHistogramBins);
    thread_local std::vector<BinCount> counts;
    result.histogram = zeros.data();
    const float largest = device.add_observed(tensor, axis, result);
    take_counts(zeros.data(), largest, *result.count, counts);
    const std::int64_t shape[] = {2, static_cast<std::int64_t>(counts.size())};
    std::int64_t* const rows = output<std::int64_t>(api, context, 4, {shape, 2});
    for (std::size_t i = 0; i < counts.size(); ++i) {
      rows[i] = counts[i].bin;
      rows[counts.size() + i] = counts[i].count;
    }
  }
};

template <class Device>
struct ObserveOp : TypedOp {
  ObserveOp(ElementType input_type, const ort::Api& table) : TypedOp(input_type, table) {
    use_kernel<ObserveKernel<Device>>(*this);
    GetExecutionProviderType = [](const ort::Op*) { return Device::kProvider; };
    GetName = [](const ort::Op*) { return "Observe"; };
    GetInputTypeCount = [](const ort::Op*) -> std::size_t { return 2; };
    GetInputType = [](const ort::Op* self, std::size_t index) {
      return index == 0 ? tensor_element(type_of(self)) : ort::kInt64;
    };
    GetInputCharacteristic = [](const ort::Op*, std::size_t index) {
      return index == 1 ? ort::kOptional : ort::kRequired;
    };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 5; };
    GetOutputType = [](const ort::Op*, std::size_t index) { return index < 2 ? ort::kFloat32 : ort::kInt64; };
    GetOutputCharacteristic = [](const ort::Op*, std::size_t index) {
      return index == 4 ? ort::kOptional : ort::kRequired;
    };
  }
};

constexpr ElementType kElementTypes[] = {ElementType::float32, ElementType::float16, ElementType::bfloat16};
using Operators = std::vector<std::unique_ptr<ort::Op>>;

template <class Device>
Operators operators_of(const ort::Api& api) {
  Operators operators;
  for (const ElementType type : kElementTypes) {
    operators.push_back(std::make_unique<FakeQuantizeOp<Device>>(type, api));
    operators.push_back(std::make_unique<ObserveOp<Device>>(type, api));
  }
  return operators;
}

// Runs tasks on the threads of the session. The first exception is kept and thrown again by the caller,
// because it may not pass through the thread pool.
TaskRunner session_threads(const ort::Api& api, const ort::KernelContext* context);

Operators cpu_operators(const ort::Api& api);
Operators requantize_operators(const ort::Api& api);  // of those on the CPU
Operators cuda_operators(const ort::Api& api);        // only in the library for CUDA

}  // namespace qc
