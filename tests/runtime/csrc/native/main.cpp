// Runs the kernels on many shapes, types, grids and threads, and compares every result with a plain
// definition. Buffers have exactly the size that is needed, so that a sanitizer sees every access beyond.
// Built with -DQC_NATIVE_TEST=ON; needs neither Python nor ONNX Runtime. Ends with exit code 1 at the first
// difference.
//
// qc_kernel_test [INSTRUCTION_SET]: in all that this processor has, or in one.
#include <cstdio>
#include <sstream>

#include "common.h"

int main(int count, char** words) {
  using namespace qc_test;
  std::string names = count > 1 ? words[1] : qc::instruction_sets();
  for (std::istringstream list(names); std::getline(list, names, ',');) {
    expect(qc::use_instruction_set(names.c_str()), "an instruction set cannot be chosen");
    check_fake_quantize();
    check_observe();
    check_moments();
    check_errors();
    std::printf("%s: %d comparisons\n", names.c_str(), comparisons);
  }
  check_large_results();
  check_requantize();
  check_bad_arguments();
}
