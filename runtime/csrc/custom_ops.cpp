// The operators on the CPU, with the threads of the session.
#include <cstring>
#include <mutex>

#include "broadcast.h"
#include "moments.h"
#include "operators.h"
#include "requantize.h"
#include "requantize_normalization.h"

namespace qc {
namespace {

// Runs tasks on the threads of the session. The first exception is kept and thrown again here, because it may
// not pass through the thread pool.
TaskRunner session_threads(const ort::Api& api, const ort::KernelContext* context) {
  return [&api, context](std::size_t count, const Task& task) {
    struct Job {
      const Task& task;
      std::mutex mutex;
      std::exception_ptr failure;
    } job{task, {}, nullptr};
    const auto call = [](void* data, std::size_t index) {
      Job& shared = *static_cast<Job*>(data);
      try {
        shared.task(index);
      } catch (...) {
        const std::lock_guard<std::mutex> lock(shared.mutex);
        if (!shared.failure) shared.failure = std::current_exception();
      }
    };
    check(api, api.KernelContext_ParallelFor(context, call, count, 0, &job));
    if (job.failure) std::rethrow_exception(job.failure);
  };
}

class Cpu {
 public:
  static constexpr const char* kProvider = nullptr;
  static constexpr bool kCountsOnHost = true;

  Cpu(const ort::Api& api, ort::KernelContext* context) : threads_(session_threads(api, context)) {}

  void fake_quantize(const QuantizerAttributes& attributes, const FloatTensor& x, const Grid& grid,
                     void* y) const {
    qc::fake_quantize(attributes, x, grid, y, threads_);
  }

  void observe(const FloatTensor& x, std::int64_t axis, const Observation& result) const {
    qc::observe(x, axis, result, threads_);
  }

  float add_observed(const FloatTensor& x, std::int64_t axis, const Observation& result) const {
    return qc::add_observed(x, axis, result, threads_);
  }

 private:
  const TaskRunner threads_;
};

std::vector<std::int64_t> list_attribute(const ort::Api& api, const ort::KernelInfo* info, const char* name) {
  std::size_t size = 0;
  if (ort::Status* missing = api.KernelInfoGetAttributeArray_int64(info, name, nullptr, &size)) {
    api.ReleaseStatus(missing);
    return {};
  }
  std::vector<std::int64_t> list(size);
  check(api, api.KernelInfoGetAttributeArray_int64(info, name, list.data(), &size));
  return list;
}

// The range of a tensor and its moments: sums of elements and of squares; with gram = 1 sums of features and
// of their products, where the features are the channels along an axis or, with kernel_shape, those of
// patches.
struct ObserveMomentsKernel {
  const ort::Api& api;
  const ElementType type;
  const std::int64_t axis;
  const bool gram;
  const Window window;

  ObserveMomentsKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType input_type)
      : api(table),
        type(input_type),
        axis(integer_attribute(table, info, "axis", -1)),
        gram(integer_attribute(table, info, "gram", 0) != 0),
        window{list_attribute(table, info, "kernel_shape"),
               list_attribute(table, info, "strides"),
               list_attribute(table, info, "dilations"),
               list_attribute(table, info, "pads"),
               integer_attribute(table, info, "group", 1),
               text_attribute(table, info, "auto_pad", "NOTSET"),
               integer_attribute(table, info, "transposed", 0) != 0,
               list_attribute(table, info, "output_padding"),
               list_attribute(table, info, "output_shape")} {}

  void compute(ort::KernelContext* context) const {
    const Input input(api, context, 0);
    const FloatTensor x = {input.data(), input.shape(), type};
    const auto channels = static_cast<std::int64_t>(observed_channels(x.shape, axis));
    const std::int64_t one = 1;
    Cpu(api, context)
        .observe(
            x, axis,
            {output<float>(api, context, 0, {&channels, 1}), output<float>(api, context, 1, {&channels, 1}),
             output<std::int64_t>(api, context, 2, {&one, 1}),
             output<std::int64_t>(api, context, 3, {&one, 1}), nullptr});
    std::int64_t* const positions = output<std::int64_t>(api, context, 6, {&one, 1});
    const TaskRunner threads = session_threads(api, context);
    if (!gram) {
      *positions = channels == 0 ? 0 : static_cast<std::int64_t>(x.shape.count()) / channels;
      double* const sums = output<double>(api, context, 4, {&channels, 1});
      return observe_moments(x, axis, sums, output<double>(api, context, 5, {&channels, 1}), threads);
    }
    if (window.kernel.empty() && axis < 0)
      throw InvalidArgument("ObserveMoments: gram needs axis or kernel_shape.");
    const Rows rows = window.kernel.empty() ? Rows(x.shape, axis) : Rows(x.shape, window);
    *positions = static_cast<std::int64_t>(rows.positions());
    const auto features = static_cast<std::int64_t>(rows.groups() * rows.features());
    const auto products = static_cast<std::int64_t>(rows.products());
    double* const sums = output<double>(api, context, 4, {&features, 1});
    observe_products({x}, rows, sums, output<double>(api, context, 5, {&products, 1}), threads);
  }
};

// Only for the CPU: a session on a GPU copies the tensor to it.
struct ObserveMomentsOp : TypedOp {
  ObserveMomentsOp(ElementType input_type, const ort::Api& table) : TypedOp(input_type, table) {
    use_kernel<ObserveMomentsKernel>(*this);
    GetExecutionProviderType = [](const ort::Op*) { return Cpu::kProvider; };
    GetName = [](const ort::Op*) { return "ObserveMoments"; };
    GetInputTypeCount = [](const ort::Op*) -> std::size_t { return 1; };
    GetInputType = [](const ort::Op* self, std::size_t) { return tensor_element(type_of(self)); };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 7; };
    GetOutputType = [](const ort::Op*, std::size_t index) {
      return index < 2 ? ort::kFloat32 : index == 4 || index == 5 ? ort::kFloat64 : ort::kInt64;
    };
  }
};

Grid grid_of(const ort::Api& api, const ort::KernelContext* context, std::vector<Input>& held,
             std::size_t first) {
  for (std::size_t i = first; i < first + 3; ++i) held.emplace_back(api, context, i);
  const Input* const last = &held.back();
  return {last[-2].tensor<float>(), last[-1].tensor<std::int32_t>(), last->tensor<std::int32_t>()};
}

// x, the grid, the scale of the input and that of the weight.
struct RequantizeKernel {
  const ort::Api& api;
  const Arithmetic arithmetic;
  const std::int64_t axis;

  RequantizeKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table),
        arithmetic(arithmetic_of(text_attribute(table, info, "arithmetic", "matrix"))),
        axis(integer_attribute(table, info, "axis", 0)) {}

  void compute(ort::KernelContext* context) const {
    const Input x(api, context, 0), input_scale(api, context, 4), weight_scale(api, context, 5);
    std::vector<Input> held;
    held.reserve(3);
    requantize(arithmetic, axis, x.tensor<float>(), grid_of(api, context, held, 1),
               input_scale.tensor<float>(), weight_scale.tensor<float>(),
               output<float>(api, context, 0, x.shape()), session_threads(api, context));
  }
};

// Of two tensors: a, its scale and zero point, b and the same, and the grid.
struct PairKernel {
  const ort::Api& api;

  // Calls action(a, b, grid, shape of the result, result).
  template <class Action>
  void on_pair(ort::KernelContext* context, const Action& action,
               std::vector<std::int64_t> (*shape_of)(const Shape&, const Shape&) = broadcast_shape) const {
    std::vector<Input> held;
    held.reserve(9);
    for (std::size_t i = 0; i < 6; ++i) held.emplace_back(api, context, i);
    const Grid grid = grid_of(api, context, held, 6);
    const OnGrid a = {held[0].tensor<float>(), held[1].tensor<float>(), held[2].tensor<std::int32_t>()};
    const OnGrid b = {held[3].tensor<float>(), held[4].tensor<float>(), held[5].tensor<std::int32_t>()};
    const std::vector<std::int64_t> dims = shape_of(a.numbers.shape, b.numbers.shape);
    const Shape shape = {dims.data(), dims.size()};
    action(a, b, grid, shape, output<float>(api, context, 0, shape));
  }
};

struct RequantizeSumKernel : PairKernel {
  const bool subtract;

  RequantizeSumKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : PairKernel{table}, subtract(integer_attribute(table, info, "subtract", 0) != 0) {}

  void compute(ort::KernelContext* context) const {
    on_pair(context, [&](const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape, float* y) {
      requantize_sum(subtract, a, b, grid, shape, y, session_threads(api, context));
    });
  }
};

// An operator of two tensors that has no attributes.
template <auto requantize_pair, auto shape_of>
struct RequantizePairKernel : PairKernel {
  RequantizePairKernel(const ort::Api& table, const ort::KernelInfo*, ElementType) : PairKernel{table} {}

  void compute(ort::KernelContext* context) const {
    const auto action = [&](const OnGrid& a, const OnGrid& b, const Grid& grid, const Shape& shape,
                            float* y) {
      requantize_pair(a, b, grid, shape, y, session_threads(api, context));
    };
    on_pair(context, action, shape_of);
  }
};

using RequantizeProductKernel = RequantizePairKernel<requantize_product, broadcast_shape>;
using RequantizeQuotientKernel = RequantizePairKernel<requantize_quotient, broadcast_shape>;
using RequantizeMatMulKernel = RequantizePairKernel<requantize_matmul, matmul_shape>;

// x, the grid, the scale of the input and the slope.
struct RequantizePReluKernel {
  const ort::Api& api;

  RequantizePReluKernel(const ort::Api& table, const ort::KernelInfo*, ElementType) : api(table) {}

  void compute(ort::KernelContext* context) const {
    const Input x(api, context, 0), input_scale(api, context, 4), slope(api, context, 5);
    std::vector<Input> held;
    held.reserve(3);
    requantize_prelu(x.tensor<float>(), grid_of(api, context, held, 1), input_scale.tensor<float>(),
                     slope.tensor<float>(), output<float>(api, context, 0, x.shape()),
                     session_threads(api, context));
  }
};

// What the exact operator made, the grid, what it read and the scale of that.
struct RequantizeSoftmaxKernel {
  const ort::Api& api;
  const std::int64_t axis;

  RequantizeSoftmaxKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), axis(integer_attribute(table, info, "axis", -1)) {}

  void compute(ort::KernelContext* context) const {
    const Input made(api, context, 0), x(api, context, 4), x_scale(api, context, 5);
    std::vector<Input> held;
    held.reserve(3);
    requantize_softmax(made.tensor<float>(), grid_of(api, context, held, 1), x.tensor<float>(),
                       x_scale.tensor<float>(), axis, output<float>(api, context, 0, made.shape()),
                       session_threads(api, context));
  }
};

// The same, then the weight, its scale, the bias and epsilon.
struct RequantizeNormalizationKernel {
  const ort::Api& api;
  const bool centered;

  RequantizeNormalizationKernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), centered(integer_attribute(table, info, "centered", 1) != 0) {}

  void compute(ort::KernelContext* context) const {
    const Input made(api, context, 0);
    std::vector<Input> held, read;
    held.reserve(3);
    read.reserve(6);
    for (std::size_t i = 4; i < 10; ++i) read.emplace_back(api, context, i);
    const RowWeights weights = {read[2].tensor<float>(), read[3].tensor<float>(), read[4].tensor<float>(),
                                read[5].tensor<float>(), centered};
    requantize_normalization(made.tensor<float>(), grid_of(api, context, held, 1), read[0].tensor<float>(),
                             read[1].tensor<float>(), weights, output<float>(api, context, 0, made.shape()),
                             session_threads(api, context));
  }
};

// x and the grid.
struct QuantizeInFloat16Kernel {
  const ort::Api& api;
  const bool with_zero_point;

  QuantizeInFloat16Kernel(const ort::Api& table, const ort::KernelInfo* info, ElementType)
      : api(table), with_zero_point(integer_attribute(table, info, "with_zero_point", 0) != 0) {}

  void compute(ort::KernelContext* context) const {
    const Input x(api, context, 0);
    std::vector<Input> held;
    held.reserve(3);
    quantize_in_float16(with_zero_point, x.tensor<float>(), grid_of(api, context, held, 1),
                        output<float>(api, context, 0, x.shape()), session_threads(api, context));
  }
};

// An operator of the arithmetic of devices, of float32 alone. ``inputs`` has a letter for the type of each
// input.
template <class Kernel>
struct DeviceOp : TypedOp {
  const char* const name;
  const char* const inputs;

  DeviceOp(const char* op_type, const char* input_types, const ort::Api& table)
      : TypedOp(ElementType::float32, table), name(op_type), inputs(input_types) {
    use_kernel<Kernel>(*this);
    GetExecutionProviderType = [](const ort::Op*) { return Cpu::kProvider; };
    GetName = [](const ort::Op* self) { return static_cast<const DeviceOp*>(self)->name; };
    GetInputTypeCount = [](const ort::Op* self) {
      return std::strlen(static_cast<const DeviceOp*>(self)->inputs);
    };
    GetInputType = [](const ort::Op* self, std::size_t index) {
      return static_cast<const DeviceOp*>(self)->inputs[index] == 'f' ? ort::kFloat32 : ort::kInt32;
    };
    GetOutputTypeCount = [](const ort::Op*) -> std::size_t { return 1; };
    GetOutputType = [](const ort::Op*, std::size_t) { return ort::kFloat32; };
  }
};

}  // namespace

Operators cpu_operators(const ort::Api& api) {
  Operators operators = operators_of<Cpu>(api);
  for (const ElementType type : kElementTypes)
    operators.push_back(std::make_unique<ObserveMomentsOp>(type, api));
  operators.push_back(std::make_unique<DeviceOp<RequantizeKernel>>("Requantize", "ffiiff", api));
  operators.push_back(std::make_unique<DeviceOp<RequantizeSumKernel>>("RequantizeSum", "ffiffifii", api));
  operators.push_back(
      std::make_unique<DeviceOp<RequantizeProductKernel>>("RequantizeProduct", "ffiffifii", api));
  operators.push_back(
      std::make_unique<DeviceOp<RequantizeQuotientKernel>>("RequantizeQuotient", "ffiffifii", api));
  operators.push_back(
      std::make_unique<DeviceOp<RequantizeMatMulKernel>>("RequantizeMatMul", "ffiffifii", api));
  operators.push_back(std::make_unique<DeviceOp<RequantizePReluKernel>>("RequantizePRelu", "ffiiff", api));
  operators.push_back(
      std::make_unique<DeviceOp<RequantizeSoftmaxKernel>>("RequantizeSoftmax", "ffiiff", api));
  operators.push_back(std::make_unique<DeviceOp<RequantizeNormalizationKernel>>("RequantizeNormalization",
                                                                                "ffiiffffff", api));
  operators.push_back(std::make_unique<DeviceOp<QuantizeInFloat16Kernel>>("QuantizeInFloat16", "ffii", api));
  return operators;
}

}  // namespace qc
