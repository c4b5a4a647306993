#include "common.h"

#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <thread>

#include "formats.h"

namespace qc_test {

using qc::ElementType;

int comparisons = 0;

void expect(bool holds, const std::string& what) {
  ++comparisons;
  if (holds) return;
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

void run_on_threads(std::size_t count, const qc::Task& task) {
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) task(i);
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
}

std::uint32_t Random::next() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return static_cast<std::uint32_t>(state >> 33);
}

float Random::uniform(float low, float high) {
  return low + (high - low) * static_cast<float>(next() % 65536) / 65536.0f;
}

std::uint32_t encoded(ElementType type, float value) {
  if (type == ElementType::float32) return qc::bits_of(value);
  return type == ElementType::float16 ? qc::float16_bits(value) : qc::bfloat16_bits(value);
}

Buffer::Buffer(ElementType element, const Dims& sizes) : type(element), dims(sizes), count(shape().count()) {
  bytes.resize(count * qc::byte_size(type));
  bytes.shrink_to_fit();
}

std::uint32_t Buffer::bits(std::size_t i) const {
  if (type == ElementType::float32) return reinterpret_cast<const std::uint32_t*>(bytes.data())[i];
  return reinterpret_cast<const std::uint16_t*>(bytes.data())[i];
}

float Buffer::value(std::size_t i) const {
  if (type == ElementType::float32) return reinterpret_cast<const float*>(bytes.data())[i];
  const auto half = static_cast<std::uint16_t>(bits(i));
  return type == ElementType::float16 ? qc::float16_value(half) : qc::bfloat16_value(half);
}

void Buffer::set(std::size_t i, float value) {
  const std::uint32_t bits = encoded(type, value);
  std::memcpy(&bytes[i * qc::byte_size(type)], &bits, qc::byte_size(type));
}

const std::vector<Dims>& shapes() {
  static const std::vector<Dims> list = {{},         {0},          {1},      {7},         {16},
                                         {17},       {3, 5},       {0, 4},   {2, 3, 37},  {5, 16, 2},
                                         {4, 1, 33}, {2, 3, 0, 5}, {700, 3}, {64, 40, 3}, {1, 7, 64},
                                         {2, 40001}, {40001, 2}};
  return list;
}

Buffer sample(ElementType type, const Dims& dims, Random& random) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const float special[] = {0.0f,    -0.0f, std::nanf(""), infinity, -infinity, 1e-45f,
                           -1e-45f, 3e38f, -3e38f,        65504.0f, 448.0f,    1e-7f};
  Buffer x(type, dims);
  for (std::size_t i = 0; i < x.count; ++i) {
    const float ties = static_cast<float>(static_cast<int>(random.next() % 64) - 32) * 0.125f;
    x.set(i, random.next() % 8 == 0 ? special[random.next() % 12]
             : random.next() % 2    ? ties
                                    : random.uniform(-9, 9));
  }
  return x;
}

}  // namespace qc_test
