// The part of ONNX Runtime's C interface that a library of operators needs.
//
// ONNX Runtime's Python package has no headers. Its interface is a table of function pointers that only ever
// grows, so an entry never changes its position, and this file declares the entries used here by position,
// from the public documentation. Compile with QC_OFFICIAL_ORT_HEADERS to use the official header instead; the
// positions are then checked against it.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(QC_OFFICIAL_ORT_HEADERS)
#include <onnxruntime_c_api.h>
#endif

namespace qc::ort {

// The version of the interface that holds everything used here (in-place operators came last).
constexpr std::uint32_t kApiVersion = 18;
constexpr const char* kRuntimeVersion = "1.18";

#if defined(QC_OFFICIAL_ORT_HEADERS)

using Status = OrtStatus;
using SessionOptions = OrtSessionOptions;
using OpDomain = OrtCustomOpDomain;
using KernelInfo = OrtKernelInfo;
using KernelContext = OrtKernelContext;
using ShapeContext = OrtShapeInferContext;
using Value = OrtValue;
using TensorInfo = OrtTensorTypeAndShapeInfo;
using Api = OrtApi;
using ApiBase = OrtApiBase;
using Op = OrtCustomOp;
using ErrorCode = OrtErrorCode;
using TensorElement = ONNXTensorElementDataType;
using Occurrence = OrtCustomOpInputOutputCharacteristic;
using MemoryType = OrtMemType;

#else

struct Status;
struct SessionOptions;
struct OpDomain;
struct KernelInfo;
struct KernelContext;
struct ShapeContext;
struct Value;
struct TensorInfo;
struct Op;

enum ErrorCode : int {};
enum TensorElement : int {};
enum Occurrence : int {};
enum MemoryType : int {};

using Unused = void (*)();

// Functions return null for success, if their result is a Status.
struct Api {
  Status* (*CreateStatus)(ErrorCode code, const char* message);
  Unused unused_1;
  const char* (*GetErrorMessage)(const Status* status);
  Unused unused_3[23];
  Status* (*CreateCustomOpDomain)(const char* name, OpDomain** result);
  Status* (*CustomOpDomain_Add)(OpDomain* domain, const Op* op);
  Status* (*AddCustomOpDomain)(SessionOptions* options, OpDomain* domain);
  Unused unused_29[22];
  Status* (*GetTensorMutableData)(Value* value, void** result);
  Unused unused_52[9];
  Status* (*GetDimensionsCount)(const TensorInfo* info, std::size_t* result);
  Status* (*GetDimensions)(const TensorInfo* info, std::int64_t* dims, std::size_t count);
  Status* (*GetSymbolicDimensions)(const TensorInfo* info, const char** names, std::size_t count);
  Unused unused_64;
  Status* (*GetTensorTypeAndShape)(const Value* value, TensorInfo** result);
  Unused unused_66[19];
  Status* (*KernelInfoGetAttribute_float)(const KernelInfo* info, const char* name, float* result);
  Status* (*KernelInfoGetAttribute_int64)(const KernelInfo* info, const char* name, std::int64_t* result);
  Status* (*KernelInfoGetAttribute_string)(const KernelInfo* info, const char* name, char* text,
                                           std::size_t* size);
  Status* (*KernelContext_GetInputCount)(const KernelContext* context, std::size_t* result);
  Status* (*KernelContext_GetOutputCount)(const KernelContext* context, std::size_t* result);
  Status* (*KernelContext_GetInput)(const KernelContext* context, std::size_t index, const Value** result);
  Status* (*KernelContext_GetOutput)(KernelContext* context, std::size_t index, const std::int64_t* dims,
                                     std::size_t rank, Value** result);
  Unused unused_92;
  void (*ReleaseStatus)(Status* status);
  Unused unused_94[5];
  void (*ReleaseTensorTypeAndShapeInfo)(TensorInfo* info);
  Unused unused_100[63];
  Status* (*KernelInfoGetAttributeArray_int64)(const KernelInfo* info, const char* name, std::int64_t* list,
                                               std::size_t* size);
  Unused unused_164[29];
  Status* (*KernelContext_GetGPUComputeStream)(const KernelContext* context, void** result);
  Unused unused_194[74];
  Status* (*ShapeInferContext_GetInputTypeShape)(const ShapeContext* context, std::size_t index,
                                                 TensorInfo** result);
  Unused unused_269;
  Status* (*ShapeInferContext_SetOutputTypeShape)(const ShapeContext* context, std::size_t index,
                                                  const TensorInfo* info);
  Status* (*SetSymbolicDimensions)(TensorInfo* info, const char** names, std::size_t count);
  Unused unused_272[2];
  Status* (*KernelContext_ParallelFor)(const KernelContext* context,
                                       void (*task)(void* data, std::size_t index), std::size_t count,
                                       std::size_t batches, void* data);
};

struct ApiBase {
  const Api* (*GetApi)(std::uint32_t version);
  const char* (*GetVersionString)();
};

// An operator; a library derives its own from it. Functions that are not wanted are null.
struct Op {
  std::uint32_t version;
  Unused CreateKernel;
  const char* (*GetName)(const Op* op);
  const char* (*GetExecutionProviderType)(const Op* op);
  TensorElement (*GetInputType)(const Op* op, std::size_t index);
  std::size_t (*GetInputTypeCount)(const Op* op);
  TensorElement (*GetOutputType)(const Op* op, std::size_t index);
  std::size_t (*GetOutputTypeCount)(const Op* op);
  Unused KernelCompute;
  void (*KernelDestroy)(void* kernel);
  Occurrence (*GetInputCharacteristic)(const Op* op, std::size_t index);
  Occurrence (*GetOutputCharacteristic)(const Op* op, std::size_t index);
  MemoryType (*GetInputMemoryType)(const Op* op, std::size_t index);
  Unused variadic[4];
  Status* (*CreateKernelV2)(const Op* op, const Api* api, const KernelInfo* info, void** kernel);
  Status* (*KernelComputeV2)(void* kernel, KernelContext* context);
  Status* (*InferOutputShapeFn)(const Op* op, ShapeContext* context);
  int (*GetStartVersion)(const Op* op);
  int (*GetEndVersion)(const Op* op);
  std::size_t (*GetMayInplace)(int** inputs, int** outputs);
  void (*ReleaseMayInplace)(int* inputs, int* outputs);
  Unused alias[2];
};

#endif

constexpr auto kFail = static_cast<ErrorCode>(1);
constexpr auto kInvalidArgument = static_cast<ErrorCode>(2);
constexpr auto kFloat32 = static_cast<TensorElement>(1);
constexpr auto kInt32 = static_cast<TensorElement>(6);
constexpr auto kInt64 = static_cast<TensorElement>(7);
constexpr auto kFloat16 = static_cast<TensorElement>(10);
constexpr auto kFloat64 = static_cast<TensorElement>(11);
constexpr auto kBfloat16 = static_cast<TensorElement>(16);
constexpr auto kRequired = static_cast<Occurrence>(0);
constexpr auto kOptional = static_cast<Occurrence>(1);
constexpr auto kOrdinaryMemory = static_cast<MemoryType>(0);

#define QC_ORT_POSITION(name, position) \
  static_assert(offsetof(Api, name) == (position) * sizeof(void*), #name " must be entry " #position)
QC_ORT_POSITION(CreateStatus, 0);
QC_ORT_POSITION(GetErrorMessage, 2);
QC_ORT_POSITION(CreateCustomOpDomain, 26);
QC_ORT_POSITION(CustomOpDomain_Add, 27);
QC_ORT_POSITION(AddCustomOpDomain, 28);
QC_ORT_POSITION(GetTensorMutableData, 51);
QC_ORT_POSITION(GetDimensionsCount, 61);
QC_ORT_POSITION(GetDimensions, 62);
QC_ORT_POSITION(GetSymbolicDimensions, 63);
QC_ORT_POSITION(GetTensorTypeAndShape, 65);
QC_ORT_POSITION(KernelInfoGetAttribute_float, 85);
QC_ORT_POSITION(KernelInfoGetAttribute_int64, 86);
QC_ORT_POSITION(KernelInfoGetAttribute_string, 87);
QC_ORT_POSITION(KernelContext_GetInputCount, 88);
QC_ORT_POSITION(KernelContext_GetOutputCount, 89);
QC_ORT_POSITION(KernelContext_GetInput, 90);
QC_ORT_POSITION(KernelContext_GetOutput, 91);
QC_ORT_POSITION(ReleaseStatus, 93);
QC_ORT_POSITION(ReleaseTensorTypeAndShapeInfo, 99);
QC_ORT_POSITION(KernelInfoGetAttributeArray_int64, 163);
QC_ORT_POSITION(KernelContext_GetGPUComputeStream, 193);
QC_ORT_POSITION(ShapeInferContext_GetInputTypeShape, 268);
QC_ORT_POSITION(ShapeInferContext_SetOutputTypeShape, 270);
QC_ORT_POSITION(SetSymbolicDimensions, 271);
QC_ORT_POSITION(KernelContext_ParallelFor, 274);
#undef QC_ORT_POSITION

#define QC_ORT_MEMBER(name, place) \
  static_assert(offsetof(Op, name) == (place) * sizeof(void*), #name " must be member " #place)
QC_ORT_MEMBER(GetName, 2);
QC_ORT_MEMBER(KernelDestroy, 9);
QC_ORT_MEMBER(GetInputMemoryType, 12);
QC_ORT_MEMBER(CreateKernelV2, 17);
QC_ORT_MEMBER(InferOutputShapeFn, 19);
QC_ORT_MEMBER(GetMayInplace, 22);
QC_ORT_MEMBER(ReleaseMayInplace, 23);
#undef QC_ORT_MEMBER
static_assert(sizeof(Op) == 26 * sizeof(void*), "an operator of API version 18 has 26 members");

}  // namespace qc::ort
