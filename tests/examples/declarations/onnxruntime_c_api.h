// What examples/c needs of ONNX Runtime's C interface, for tests: its Python package has the library, but no
// headers. The interface is a table that only ever grows, so entries are declared by their position in it.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define ORT_API_VERSION 18

typedef struct OrtStatus OrtStatus;
typedef struct OrtEnv OrtEnv;
typedef struct OrtSession OrtSession;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtRunOptions OrtRunOptions;
typedef struct OrtMemoryInfo OrtMemoryInfo;
typedef struct OrtValue OrtValue;
typedef enum { ORT_LOGGING_LEVEL_ERROR = 3 } OrtLoggingLevel;
typedef enum { OrtArenaAllocator = 1 } OrtAllocatorType;
typedef enum { OrtMemTypeDefault = 0 } OrtMemType;
typedef enum { ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT = 1 } ONNXTensorElementDataType;
typedef void (*Unused)(void);

typedef struct {
  Unused from_0[2];
  const char* (*GetErrorMessage)(const OrtStatus*);
  OrtStatus* (*CreateEnv)(OrtLoggingLevel, const char*, OrtEnv**);
  Unused from_4[3];
  OrtStatus* (*CreateSession)(const OrtEnv*, const char*, const OrtSessionOptions*, OrtSession**);
  Unused from_8[1];
  OrtStatus* (*Run)(OrtSession*, const OrtRunOptions*, const char* const*, const OrtValue* const*, size_t,
                    const char* const*, size_t, OrtValue**);
  OrtStatus* (*CreateSessionOptions)(OrtSessionOptions**);
  Unused from_11[18];
  OrtStatus* (*RegisterCustomOpsLibrary)(OrtSessionOptions*, const char*, void**);
  Unused from_30[19];
  OrtStatus* (*CreateTensorWithDataAsOrtValue)(const OrtMemoryInfo*, void*, size_t, const int64_t*, size_t,
                                               ONNXTensorElementDataType, OrtValue**);
  Unused from_50[1];
  OrtStatus* (*GetTensorMutableData)(OrtValue*, void**);
  Unused from_52[17];
  OrtStatus* (*CreateCpuMemoryInfo)(OrtAllocatorType, OrtMemType, OrtMemoryInfo**);
  Unused from_70[22];
  void (*ReleaseEnv)(OrtEnv*);
  void (*ReleaseStatus)(OrtStatus*);
  void (*ReleaseMemoryInfo)(OrtMemoryInfo*);
  void (*ReleaseSession)(OrtSession*);
  void (*ReleaseValue)(OrtValue*);
  Unused from_97[3];
  void (*ReleaseSessionOptions)(OrtSessionOptions*);
} OrtApi;

typedef struct {
  const OrtApi* (*GetApi)(uint32_t);
} OrtApiBase;

const OrtApiBase* OrtGetApiBase(void);
