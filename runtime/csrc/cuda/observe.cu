#include <algorithm>
#include <atomic>

#include "../keys.h"
#include "kernels.h"
#include "launch.h"
#include "packs.h"

namespace qc::cuda {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::size_t kBlocksOfProcessor = 4;  // resident blocks that keep the memory busy
constexpr std::size_t kRunElements = 4096;     // at least so many elements of a channel for each block
constexpr std::size_t kRowsOfThread = 64;      // rows that a thread walks at least, if a block takes columns

// A whole tensor is for few large blocks, since each has to bring what it found together with the others.
constexpr unsigned kTensorThreads = 1024;
constexpr std::size_t kTensorBlocksOfProcessor = 2;
constexpr std::size_t kCountingBlocksOfProcessor = 1;
constexpr unsigned kPacksOfThread = 4;  // loaded before the first is visited, which keeps the memory busy

using Counter = unsigned long long;  // atomicAdd takes this and no std::uint64_t

// Extremes are gathered as distances, so that zeros are those of no elements.
__device__ inline std::uint32_t below_infinity(std::int32_t key) {
  return static_cast<std::uint32_t>(kKeyOfInfinity) - static_cast<std::uint32_t>(key);
}
__device__ inline std::uint32_t above_minus_infinity(std::int32_t key) {
  return static_cast<std::uint32_t>(key) - static_cast<std::uint32_t>(kKeyOfMinusInfinity);
}
__device__ inline float minimum_of(std::uint32_t below) {
  return value_of_key(static_cast<std::int32_t>(static_cast<std::uint32_t>(kKeyOfInfinity) - below));
}
__device__ inline float maximum_of(std::uint32_t above) {
  return value_of_key(static_cast<std::int32_t>(static_cast<std::uint32_t>(kKeyOfMinusInfinity) + above));
}

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

  __device__ void add_extremes_to(std::uint32_t* below, std::uint32_t* above) const {
    raise(below, below_infinity(lowest));
    raise(above, above_minus_infinity(highest));
  }

  // Looks first, because threads that change the same memory wait for each other. What a look finds may be
  // out of date, but never larger than the truth, so that no change is missed.
  __device__ static void raise(volatile std::uint32_t* greatest, std::uint32_t distance) {
    if (distance > *greatest) atomicMax(const_cast<std::uint32_t*>(greatest), distance);
  }
};

// Calls visit for all elements, as float32; the threads of all blocks share them.
template <ElementType type, class Visit>
__device__ inline void for_each_shared(const Stored<type>* x, std::size_t count, const Visit& visit) {
  const std::size_t threads = std::size_t{gridDim.x} * kTensorThreads;
  const std::size_t first = std::size_t{blockIdx.x} * kTensorThreads + threadIdx.x;
  const std::size_t packs = is_aligned(x) ? count / kPackElements<type> : 0;
  const auto* const from = reinterpret_cast<const Pack<type>*>(x);
  for (std::size_t i = first; i < packs; i += kPacksOfThread * threads) {
    Pack<type> loaded[kPacksOfThread];
#pragma unroll
    for (unsigned place = 0; place < kPacksOfThread; ++place)
      if (i + place * threads < packs) loaded[place] = from[i + place * threads];
#pragma unroll
    for (unsigned place = 0; place < kPacksOfThread; ++place)
      if (i + place * threads < packs)
#pragma unroll
        for (unsigned element = 0; element < kPackElements<type>; ++element)
          visit(widened<type>(loaded[place].elements[element]));
  }
  for (std::size_t i = packs * kPackElements<type> + first; i < count; i += threads)
    visit(widened<type>(x[i]));
}

// Most values of networks are zero or have a magnitude in these 32 powers of two. A block counts those in
// memory of its own, which is many times faster than that of the device, and the others where the results go.
constexpr std::uint32_t kWindowBegin = (127 - 20) << 7;  // 2^-20, as a bin
constexpr std::uint32_t kWindowBins = 32 << 7;
constexpr std::uint32_t kSignedSlots = kWindowBins + 1;  // the last is for zero

// What a block counts of a histogram.
struct Bins {
  unsigned* window;  // kSignedSlots positive, then as many negative
  Counter* histogram;

  __device__ void add(float value) const {
    const std::uint32_t bits = bits_of(value), bin = bits >> 16, magnitude = bin & 0x7fffu;
    const std::uint32_t slot = magnitude == 0 ? kWindowBins : magnitude - kWindowBegin;
    if (slot < kWindowBins || magnitude == 0)
      atomicAdd(&window[slot + (bin >> 15) * kSignedSlots], 1u);
    else if ((bits & kInfinityBits) != kInfinityBits)
      atomicAdd(&histogram[bin], Counter{1});
  }

  // Adds a full window to the histogram. Each block begins elsewhere, since those that change the same memory
  // wait for each other.
  __device__ void finish() const {
    const unsigned begin = 2 * kSignedSlots / gridDim.x * blockIdx.x;
    for (unsigned step = threadIdx.x; step < 2 * kSignedSlots; step += kTensorThreads) {
      const unsigned place = (begin + step) % (2 * kSignedSlots);
      const unsigned sign = place / kSignedSlots, slot = place % kSignedSlots;
      const unsigned magnitude = slot == kWindowBins ? 0 : kWindowBegin + slot;
      if (window[place] > 0) atomicAdd(&histogram[(sign << 15) + magnitude], Counter{window[place]});
    }
  }
};

// Where the blocks of a kernel bring together what they found. The last one leaves zeros for the next kernel.
struct Meeting {
  std::uint32_t below, above;
  unsigned blocks;  // that are done
  Counter nonfinite;
};

// One for each kernel that may be under way; CUDA does not keep so many waiting.
constexpr unsigned kMeetings = 1u << 16;
__device__ Meeting meetings[kMeetings];

// The range of a whole tensor, unless result has no place for it; and if counts, the histogram, which is
// added to what is there.
template <ElementType type, bool counts>
__global__ void __launch_bounds__(kTensorThreads)
    observe_tensor(const Stored<type>* x, std::size_t count, unsigned meeting_place, Observation result) {
  __shared__ std::uint32_t below, above;
  __shared__ unsigned nonfinite;
  __shared__ unsigned window[counts ? 2 * kSignedSlots : 1];
  if (threadIdx.x == 0) below = above = nonfinite = 0;
  if (counts)
    for (unsigned place = threadIdx.x; place < 2 * kSignedSlots; place += kTensorThreads) window[place] = 0;
  __syncthreads();
  Seen seen;
  const Bins bins = {window, reinterpret_cast<Counter*>(result.histogram)};
  for_each_shared<type>(x, count, [&](float value) {
    seen.add(value);
    if (counts) bins.add(value);
  });
  seen.add_extremes_to(&below, &above);
  if (seen.nonfinite > 0) atomicAdd(&nonfinite, seen.nonfinite);
  __syncthreads();
  if (counts) bins.finish();
  if (threadIdx.x > 0 || result.minimum == nullptr) return;

  Meeting& meeting = meetings[meeting_place];
  atomicMax(&meeting.below, below);
  atomicMax(&meeting.above, above);
  atomicAdd(&meeting.nonfinite, Counter{nonfinite});
  __threadfence();
  if (atomicAdd(&meeting.blocks, 1u) + 1 < gridDim.x) return;
  __threadfence();
  const volatile Meeting& all = meeting;
  *result.minimum = minimum_of(all.below);
  *result.maximum = maximum_of(all.above);
  *result.nonfinite = static_cast<std::int64_t>(all.nonfinite);
  *result.count = static_cast<std::int64_t>(count - all.nonfinite);
  meeting = {};
}

__global__ void begin_histogram(const std::int64_t* before, std::int64_t* histogram) {
  const std::size_t bin = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (bin < kHistogramBins) histogram[bin] = before == nullptr ? 0 : before[bin];
}

// Where the kernels for channels gather what they find: in the memory of the results, as distances until the
// end.
struct Gathered {
  std::uint32_t* below;
  std::uint32_t* above;
  Counter* nonfinite;
};

// Elements as rows, in which each channel has a run of elements.
struct Channels {
  std::size_t rows;
  std::size_t number;
  std::size_t run;
};

// Calls visit for the elements first, first + stride and so on before last, as float32. Several are loaded
// before the first of them is visited, which keeps the memory busy.
template <ElementType type, class Visit>
__device__ inline void for_each_strided(const Stored<type>* x, std::size_t first, std::size_t last,
                                        std::size_t stride, const Visit& visit) {
  constexpr unsigned batch = 8;
  std::size_t i = first;
  for (; i < last && last - i > (batch - 1) * stride; i += batch * stride) {
    Stored<type> loaded[batch];
    for (unsigned place = 0; place < batch; ++place) loaded[place] = x[i + place * stride];
    for (unsigned place = 0; place < batch; ++place) visit(widened<type>(loaded[place]));
  }
  for (; i < last; i += stride) visit(widened<type>(x[i]));
}

__global__ void begin_channels(Gathered gathered, std::size_t channels) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < channels) gathered.below[index] = gathered.above[index] = 0;
  if (index == 0) *gathered.nonfinite = 0;
}

// For long runs: a block takes one piece of the run of one channel after the other.
template <ElementType type>
__global__ void observe_runs(const Stored<type>* x, Channels channels, std::size_t piece, Gathered gathered) {
  __shared__ std::uint32_t below, above;
  const std::size_t pieces = (channels.run + piece - 1) / piece;
  const std::size_t all = channels.rows * channels.number * pieces;
  unsigned nonfinite = 0;
  for (std::size_t index = blockIdx.x; index < all; index += gridDim.x) {
    if (threadIdx.x == 0) below = above = 0;
    __syncthreads();
    const std::size_t run = index / pieces, first = index % pieces * piece;
    const std::size_t last = first + piece < channels.run ? first + piece : channels.run;
    Seen seen;
    for_each_strided<type>(x + run * channels.run, first + threadIdx.x, last, kThreads,
                           [&seen](float value) { seen.add(value); });
    seen.add_extremes_to(&below, &above);
    nonfinite += seen.nonfinite;
    __syncthreads();
    if (threadIdx.x == 0) {
      Seen::raise(&gathered.below[run % channels.number], below);
      Seen::raise(&gathered.above[run % channels.number], above);
    }
  }
  if (nonfinite > 0) atomicAdd(gathered.nonfinite, Counter{nonfinite});
}

// For short runs: a thread takes one column, whose elements are all of one channel, and walks some rows.
template <ElementType type>
__global__ void observe_columns(const Stored<type>* x, Channels channels, std::size_t rows,
                                Gathered gathered) {
  const std::size_t columns = channels.number * channels.run, blocks = (columns + kThreads - 1) / kThreads;
  const std::size_t column = blockIdx.x % blocks * kThreads + threadIdx.x, first = blockIdx.x / blocks * rows;
  if (column >= columns) return;
  const std::size_t last = first + rows < channels.rows ? first + rows : channels.rows;
  const std::size_t channel = column / channels.run;
  Seen seen;
  for_each_strided<type>(x, first * columns + column, last * columns, columns,
                         [&seen](float value) { seen.add(value); });
  seen.add_extremes_to(&gathered.below[channel], &gathered.above[channel]);
  if (seen.nonfinite > 0) atomicAdd(gathered.nonfinite, Counter{seen.nonfinite});
}

__global__ void finish_channels(Gathered gathered, Observation result, std::size_t channels,
                                std::size_t elements) {
  const std::size_t index = std::size_t{blockIdx.x} * kThreads + threadIdx.x;
  if (index < channels) {
    result.minimum[index] = minimum_of(gathered.below[index]);
    result.maximum[index] = maximum_of(gathered.above[index]);
  }
  if (index == 0) *result.count = static_cast<std::int64_t>(elements - *gathered.nonfinite);
}

unsigned next_meeting() {
  static std::atomic<unsigned> count{0};
  return count++ % kMeetings;
}

template <ElementType type>
void observe_whole(const Stored<type>* x, std::size_t count, const Observation& result, Stream stream) {
  const bool counts = result.histogram != nullptr;
  const std::size_t share = std::size_t{kTensorThreads} * kPacksOfThread * kPackElements<type>;
  const std::size_t most =
      (counts ? kCountingBlocksOfProcessor : kTensorBlocksOfProcessor) * multiprocessors();
  const std::size_t blocks = std::max(std::size_t{1}, std::min(divide_up(count, share), most));
  const auto kernel = counts ? observe_tensor<type, true> : observe_tensor<type, false>;
  launch(kernel, blocks, kTensorThreads, stream, x, count, next_meeting(), result);
}

template <ElementType type>
void observe_channels(const Stored<type>* x, std::size_t count, const Channels& channels,
                      const Observation& result, Stream stream) {
  const Gathered gathered = {reinterpret_cast<std::uint32_t*>(result.minimum),
                             reinterpret_cast<std::uint32_t*>(result.maximum),
                             reinterpret_cast<Counter*>(result.nonfinite)};
  const std::size_t most = kBlocksOfProcessor * multiprocessors();
  const std::size_t blocks_for_all = divide_up(std::max(channels.number, std::size_t{1}), kThreads);
  launch(begin_channels, blocks_for_all, kThreads, stream, gathered, channels.number);
  if (count > 0 && channels.run >= kThreads) {
    const std::size_t piece = divide_up(channels.run, std::min(divide_up(channels.run, kRunElements), most));
    const std::size_t pieces = channels.rows * channels.number * divide_up(channels.run, piece);
    launch(observe_runs<type>, std::min(pieces, most), kThreads, stream, x, channels, piece, gathered);
  } else if (count > 0) {
    const std::size_t blocks = divide_up(channels.number * channels.run, kThreads);
    const std::size_t slices = std::min(divide_up(channels.rows, kRowsOfThread), divide_up(most, blocks));
    const std::size_t rows = divide_up(channels.rows, slices);
    launch(observe_columns<type>, blocks * divide_up(channels.rows, rows), kThreads, stream, x, channels,
           rows, gathered);
  }
  launch(finish_channels, blocks_for_all, kThreads, stream, gathered, result, channels.number, count);
}

template <ElementType type>
void observe_elements(const FloatTensor& tensor, std::int64_t axis, Observation result, Stream stream) {
  const auto* const x = static_cast<const Stored<type>*>(tensor.data);
  const std::size_t number = observed_channels(tensor.shape, axis), count = tensor.shape.count();
  if (number != 1) {
    const std::size_t run = tensor.shape.count(static_cast<std::size_t>(axis) + 1, tensor.shape.rank);
    const std::size_t rows = count > 0 ? count / (number * run) : 0;
    observe_channels<type>(x, count, {rows, number, run}, result, stream);
    result.minimum = nullptr;
  }
  if (result.histogram != nullptr && result.histogram != result.before)
    launch(begin_histogram, divide_up(kHistogramBins, kThreads), kThreads, stream, result.before,
           result.histogram);
  if (number == 1 || result.histogram != nullptr) observe_whole<type>(x, count, result, stream);
}

}  // namespace

void observe(const FloatTensor& x, std::int64_t axis, const Observation& result, Stream stream) {
  switch (x.type) {
    case ElementType::float32:
      return observe_elements<ElementType::float32>(x, axis, result, stream);
    case ElementType::float16:
      return observe_elements<ElementType::float16>(x, axis, result, stream);
    case ElementType::bfloat16:
      return observe_elements<ElementType::bfloat16>(x, axis, result, stream);
  }
}

}  // namespace qc::cuda
