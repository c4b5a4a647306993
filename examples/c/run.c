// Runs a quantized model, or a simulation by qc's library of operators, without Python.
//
//     cc run.c -I ONNXRUNTIME/include -L ONNXRUNTIME/lib -lonnxruntime -o run
//     ./run model.q.onnx image logits < pixels.bin
//     ./run model.simulation.onnx image logits libqc_runtime.so < pixels.bin
//
// It reads a picture of 8 by 8 float32 pixels and prints the scores of 10 classes. qc.runtime.library_path()
// in Python tells where the library of operators is. ONNXRUNTIME is a release for C, not older than the ONNX
// Runtime that the model was made with, of https://github.com/microsoft/onnxruntime/releases.
#include <onnxruntime_c_api.h>
#include <stdio.h>
#include <stdlib.h>

static const OrtApi* api;

static void check(OrtStatus* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s\n", api->GetErrorMessage(status));
  api->ReleaseStatus(status);
  exit(1);
}

int main(int count, char** arguments) {
  if (count < 4) return fprintf(stderr, "usage: run MODEL INPUT OUTPUT [LIBRARY] < PIXELS\n"), 2;
  api = OrtGetApiBase()->GetApi(ORT_API_VERSION);
  OrtEnv* environment;
  OrtSessionOptions* options;
  OrtSession* session;
  check(api->CreateEnv(ORT_LOGGING_LEVEL_ERROR, "run", &environment));
  check(api->CreateSessionOptions(&options));
  void* library = NULL;
  if (count > 4) check(api->RegisterCustomOpsLibrary(options, arguments[4], &library));
  check(api->CreateSession(environment, arguments[1], options, &session));

  float pixels[64];
  if (fread(pixels, sizeof(float), 64, stdin) != 64) return fprintf(stderr, "64 numbers are wanted\n"), 1;
  const int64_t shape[] = {1, 1, 8, 8};
  OrtMemoryInfo* memory;
  OrtValue *image, *scores = NULL;
  check(api->CreateCpuMemoryInfo(OrtArenaAllocator, OrtMemTypeDefault, &memory));
  check(api->CreateTensorWithDataAsOrtValue(memory, pixels, sizeof(pixels), shape, 4,
                                            ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, &image));
  const OrtValue* inputs[] = {image};
  const char *input_names[] = {arguments[2]}, *output_names[] = {arguments[3]};
  check(api->Run(session, NULL, input_names, inputs, 1, output_names, 1, &scores));
  float* numbers;
  check(api->GetTensorMutableData(scores, (void**)&numbers));
  for (int i = 0; i < 10; ++i) printf("%.9g\n", numbers[i]);

  api->ReleaseValue(scores);
  api->ReleaseValue(image);
  api->ReleaseMemoryInfo(memory);
  api->ReleaseSession(session);
  api->ReleaseSessionOptions(options);
  api->ReleaseEnv(environment);
  return 0;
}
