#include <algorithm>

#include "../elements.h"
#include "../keys.h"
#include "kernels.h"
#include "launch.h"

namespace qc::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBlocksOfProcessor = 4;  // resident blocks that keep the memory busy
constexpr std::size_t kRunElements = 4096;     // at least so many elements of a channel for each block
constexpr std::size_t kRowsOfThread = 64;      // rows that a thread walks at least, if a block takes columns
constexpr std::size_t kHistogramElements = 16384;  // at least so many elements for each block

using Counter = unsigned long long;  // atomicAdd takes this and no std::uint64_t

// Where the kernels gather what they find. The extremes are keys of floats (see Extremes) until the end, in the
// memory of the results.
struct Gathered {
  std::int32_t* lowest;
  std::int32_t* highest;
  Counter* count;
  Counter* nonfinite;
  Counter* histogram;  // null if not wanted
};

// Elements as rows, in which each channel has a run of elements.
struct Channels {
  std::size_t rows;
  std::size_t number;
  std::size_t run;
};

// What a thread has seen of one channel.
struct Seen {
  std::int32_t lowest = kKeyOfInfinity;
  std::int32_t highest = kKeyOfMinusInfinity;
  unsigned nonfinite = 0;

  // Without branches, so that the loads of several elements are under way at once.
  __device__ void add(float value) {
    const bool finite = (bits_of(value) & kInfinityBits) != kInfinityBits;
    const std::int32_t key = key_of(value);
    lowest = finite && key < lowest ? key : lowest;
    highest = finite && key > highest ? key : highest;
    nonfinite += !finite;
  }

  // Looks first, because threads that change the same memory wait for each other. What a look finds may be out of
  // date, but never closer than the truth, so that no change is missed.
  __device__ void add_extremes_to(volatile std::int32_t* least, volatile std::int32_t* greatest) const {
    if (lowest < *least) atomicMin(const_cast<std::int32_t*>(least), lowest);
    if (highest > *greatest) atomicMax(const_cast<std::int32_t*>(greatest), highest);
  }
};

// Calls visit for the elements first, first + stride and so on before last, as float32. Several are loaded before
// the first of them is visited, which keeps the memory busy.
template <ElementType type, class Visit>
__device__ inline void for_each_strided(const Stored<type>* x, std::size_t first, std::size_t last, std::size_t stride,
                                        const Visit& visit) {
  constexpr unsigned batch = 8;
  std::size_t i = first;
  for (; i < last && last - i > (batch - 1) * stride; i += batch * stride) {
    Stored<type> loaded[batch];
    for (unsigned place = 0; place < batch; ++place) loaded[place] = x[i + place * stride];
    for (unsigned place = 0; place < batch; ++place) visit(widened<type>(loaded[place]));
  }
  for (; i < last; i += stride) visit(widened<type>(x[i]));
}

__global__ void begin(Gathered gathered, std::size_t channels) {
  const std::size_t index = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index < channels) {
    gathered.lowest[index] = kKeyOfInfinity;
    gathered.highest[index] = kKeyOfMinusInfinity;
  }
  if (index == 0) *gathered.nonfinite = 0;
  if (gathered.histogram != nullptr && index < kHistogramBins) gathered.histogram[index] = 0;
}

// For long runs: a block takes one piece of the run of one channel after the other.
template <ElementType type>
__global__ void observe_runs(const Stored<type>* x, Channels channels, std::size_t piece, Gathered gathered) {
  __shared__ std::int32_t lowest, highest;
  const std::size_t pieces = (channels.run + piece - 1) / piece;
  const std::size_t all = channels.rows * channels.number * pieces;
  unsigned nonfinite = 0;
  for (std::size_t index = blockIdx.x; index < all; index += gridDim.x) {
    if (threadIdx.x == 0) {
      lowest = kKeyOfInfinity;
      highest = kKeyOfMinusInfinity;
    }
    __syncthreads();
    const std::size_t run = index / pieces, first = index % pieces * piece;
    const std::size_t last = first + piece < channels.run ? first + piece : channels.run;
    Seen seen;
    for_each_strided<type>(x + run * channels.run, first + threadIdx.x, last, kThreads,
                           [&seen](float value) { seen.add(value); });
    seen.add_extremes_to(&lowest, &highest);
    nonfinite += seen.nonfinite;
    __syncthreads();
    if (threadIdx.x == 0) {
      const Seen all_seen = {lowest, highest, 0};
      all_seen.add_extremes_to(&gathered.lowest[run % channels.number], &gathered.highest[run % channels.number]);
    }
  }
  if (nonfinite > 0) atomicAdd(gathered.nonfinite, Counter{nonfinite});
}

// For short runs: a thread takes one column, whose elements are all of one channel, and walks some rows.
template <ElementType type>
__global__ void observe_columns(const Stored<type>* x, Channels channels, std::size_t rows, Gathered gathered) {
  const std::size_t columns = channels.number * channels.run, blocks = (columns + kThreads - 1) / kThreads;
  const std::size_t column = blockIdx.x % blocks * kThreads + threadIdx.x, first = blockIdx.x / blocks * rows;
  if (column >= columns) return;
  const std::size_t last = first + rows < channels.rows ? first + rows : channels.rows;
  const std::size_t channel = column / channels.run;
  Seen seen;
  for_each_strided<type>(x, first * columns + column, last * columns, columns,
                         [&seen](float value) { seen.add(value); });
  seen.add_extremes_to(&gathered.lowest[channel], &gathered.highest[channel]);
  if (seen.nonfinite > 0) atomicAdd(gathered.nonfinite, Counter{seen.nonfinite});
}

// Most values of networks are zero or have a magnitude in these 32 powers of two. A block counts those in
// memory of its own, which is many times faster than that of the device, and the others where the results go.
constexpr std::uint32_t kWindowBegin = (127 - 20) << 7;  // 2^-20, as a bin
constexpr std::uint32_t kWindowBins = 32 << 7;
constexpr std::uint32_t kNegativeBin = kHistogramBins / 2;  // that of the negative zero

template <ElementType type>
__global__ void count_bins(const Stored<type>* x, std::size_t count, Counter* histogram) {
  __shared__ unsigned window[2 * kWindowBins];  // positive, then negative
  for (unsigned slot = threadIdx.x; slot < 2 * kWindowBins; slot += kThreads) window[slot] = 0;
  __syncthreads();
  unsigned zeros = 0, negative_zeros = 0;
  const auto count_one = [&](float value) {
    const std::uint32_t bits = bits_of(value), bin = bits >> 16, slot = (bin & 0x7fffu) - kWindowBegin;
    if (bin == 0)
      ++zeros;
    else if (bin == kNegativeBin)
      ++negative_zeros;
    else if (slot < kWindowBins)
      atomicAdd(&window[slot + (bin >> 15) * kWindowBins], 1u);
    else if ((bits & kInfinityBits) != kInfinityBits)
      atomicAdd(&histogram[bin], Counter{1});
  };
  for_each_strided<type>(x, std::size_t{blockIdx.x} * kThreads + threadIdx.x, count,
                         std::size_t{gridDim.x} * kThreads, count_one);
  if (zeros > 0) atomicAdd(&histogram[0], Counter{zeros});
  if (negative_zeros > 0) atomicAdd(&histogram[kNegativeBin], Counter{negative_zeros});
  __syncthreads();
  for (unsigned slot = threadIdx.x; slot < 2 * kWindowBins; slot += kThreads) {
    const unsigned sign = slot / kWindowBins;
    if (window[slot] > 0)
      atomicAdd(&histogram[(sign << 15) + kWindowBegin + slot % kWindowBins], Counter{window[slot]});
  }
}

__global__ void finish(Gathered gathered, Observation result, std::size_t channels, std::size_t elements) {
  const std::size_t index = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index < channels) {
    result.minimum[index] = value_of_key(gathered.lowest[index]);
    result.maximum[index] = value_of_key(gathered.highest[index]);
  }
  if (index == 0) *gathered.count = elements - *gathered.nonfinite;
}

template <ElementType type>
void gather(const void* data, std::size_t count, const Channels& channels, const Gathered& gathered, Stream stream) {
  const auto* x = static_cast<const Stored<type>*>(data);
  const std::size_t most = kBlocksOfProcessor * multiprocessors();
  if (channels.run >= kThreads) {
    const std::size_t piece = divide_up(channels.run, std::min(divide_up(channels.run, kRunElements), most));
    const std::size_t pieces = channels.rows * channels.number * divide_up(channels.run, piece);
    launch(observe_runs<type>, std::min(pieces, most), kThreads, stream, x, channels, piece, gathered);
  } else {
    const std::size_t blocks = divide_up(channels.number * channels.run, kThreads);
    const std::size_t slices = std::min(divide_up(channels.rows, kRowsOfThread), divide_up(most, blocks));
    const std::size_t rows = divide_up(channels.rows, slices);
    launch(observe_columns<type>, blocks * divide_up(channels.rows, rows), kThreads, stream, x, channels, rows,
           gathered);
  }
  if (gathered.histogram != nullptr)
    launch(count_bins<type>, std::min(divide_up(count, kHistogramElements), most), kThreads, stream, x, count,
           gathered.histogram);
}

void gather(const FloatTensor& x, const Channels& channels, const Gathered& gathered, Stream stream) {
  const std::size_t count = x.shape.count();
  switch (x.type) {
    case ElementType::float32:
      return gather<ElementType::float32>(x.data, count, channels, gathered, stream);
    case ElementType::float16:
      return gather<ElementType::float16>(x.data, count, channels, gathered, stream);
    case ElementType::bfloat16:
      return gather<ElementType::bfloat16>(x.data, count, channels, gathered, stream);
  }
}

}  // namespace

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, Stream stream) {
  const std::size_t number = observed_channels(x.shape, axis), count = x.shape.count();
  const Gathered gathered = {reinterpret_cast<std::int32_t*>(result.minimum),
                             reinterpret_cast<std::int32_t*>(result.maximum),
                             reinterpret_cast<Counter*>(result.count), reinterpret_cast<Counter*>(result.nonfinite),
                             reinterpret_cast<Counter*>(result.histogram)};
  const std::size_t cleared = std::max({number, std::size_t{1}, result.histogram ? kHistogramBins : 0});
  launch(begin, divide_up(cleared, kThreads), kThreads, stream, gathered, number);
  if (count > 0) {
    const std::size_t run =
        number == 1 ? count : x.shape.count(static_cast<std::size_t>(axis) + 1, x.shape.rank);
    gather(x, {count / (number * run), number, run}, gathered, stream);
  }
  launch(finish, divide_up(std::max(number, std::size_t{1}), kThreads), kThreads, stream, gathered, result, number,
         count);
}

}  // namespace qc::cuda
