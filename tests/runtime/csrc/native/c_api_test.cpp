// The C functions of c_api.cpp, given what is wrong: they fail with a sentence, and write nowhere else.
#include "c_api.h"

#include <cmath>

#include "common.h"

namespace qc_test {
namespace {

constexpr std::int64_t kTwo = 2, kThree = 3;
constexpr float kData[] = {1, 2, 3};
constexpr QcTensor kTensor = {kData, &kThree, 1};
constexpr QcQuantizer kGood = {"tensor", 0, 0, "half-even", "int"};

// A call of qc_fake_quantize; what is not set is right.
struct Call {
  const char* type = "float32";
  QcQuantizer quantizer = kGood;
  float scale = 0.5f;
  std::int32_t zero_point = 0;
};

// The sentence with which it fails.
std::string failure(const Call& call) {
  const std::int32_t limits[] = {-128, 127};
  const QcTensor scale = {&call.scale, nullptr, 0}, zero_point = {&call.zero_point, nullptr, 0};
  const QcTensor codes = {limits, &kTwo, 1};
  float y[3];
  QcError error = {};
  expect(qc_fake_quantize(&kTensor, call.type, &call.quantizer, &scale, &zero_point, &codes, y, &error) == 1,
         "a bad call succeeds");
  return error.text;
}

void check_fails(const Call& call, const char* part, const char* what) {
  expect(failure(call).find(part) != std::string::npos, what);
}

void check_bad_quantizers() {
  check_fails({"float64"}, "float64 are not supported", "type");
  check_fails({"float32", {"row", 0, 0, "half-even", "int"}}, "granularity", "word");
  check_fails({"float32", {"channel", 7, 0, "half-even", "int"}}, "axis is 7", "axis");
  check_fails({"float32", {"channel", 0, 0, "half-even", "int"}}, "needs (3,)", "fit");
  check_fails({"float32", {"block", 0, 0, "half-even", "int"}}, "at least 1", "block");
  const std::string endless(2000, 'x');  // an error is cut, never written beyond its place
  expect(failure({"float32", {endless.c_str(), 0, 0, "half-even", "int"}}).size() == 511, "length");
}

void check_bad_grids() {
  for (const float bad : {-1.0f, std::nanf(""), INFINITY})
    check_fails({"float32", kGood, bad}, "finite and above zero", "scale");
  check_fails({"float32", kGood, 0.5f, 1 << 30}, "zero_point", "zero point");
}

void check_bad_observations() {
  float minimum, maximum;
  std::int64_t count, nonfinite;
  const auto fails = [&](const char* type, std::int64_t axis) {
    QcError error = {};
    return qc_observe(&kTensor, type, axis, &minimum, &maximum, &count, &nonfinite, nullptr, &error) == 1;
  };
  expect(fails("int8", -1), "observe type");
  expect(fails("float32", 1), "observe axis");
}

}  // namespace

void check_bad_arguments() {
  check_bad_quantizers();
  check_bad_grids();
  check_bad_observations();
}

}  // namespace qc_test
