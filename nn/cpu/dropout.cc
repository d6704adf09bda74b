#include <algorithm>

#include "nn/core/dropout_mask.h"
#include "nn/cpu/activation.h"
#include "nn/cpu/kernels.h"
#include "nn/cpu/parallel.h"
#include "runtime/base/multiversion.h"

namespace dlaunch::nn::cpu {
namespace {

constexpr std::int64_t kLanes = 16;          // Philox blocks computed side by side
constexpr std::int64_t kChunk = 4 * kLanes;  // elements that they serve
constexpr std::int64_t kGrain = 16384;

// Philox4x32-10 as in nn/core/random.h, kLanes counters at a time; words[4 * lane + i] is word i
// of block first_block + lane. Each word of the counters has 64 bits here, of which the lower half
// counts: so products are single instructions, and their upper halves need no shuffling.
inline __attribute__((always_inline)) void philox_words(const DropoutMask& mask,
                                                        std::uint64_t first_block,
                                                        std::uint32_t* words) {
  constexpr std::uint64_t kLower = 0xffffffffU;
  std::uint64_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    const std::uint64_t block = first_block + static_cast<std::uint64_t>(lane);
    c0[lane] = block & kLower;
    c1[lane] = block >> 32;
    c2[lane] = mask.stream & kLower;
    c3[lane] = mask.stream >> 32;
  }
  std::uint64_t key0 = mask.seed & kLower;
  std::uint64_t key1 = mask.seed >> 32;
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma omp simd
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t product0 = (c0[lane] & kLower) * kPhiloxMultiplier0;
      const std::uint64_t product1 = (c2[lane] & kLower) * kPhiloxMultiplier1;
      c0[lane] = (product1 >> 32) ^ c1[lane] ^ key0;
      c1[lane] = product1;
      c2[lane] = (product0 >> 32) ^ c3[lane] ^ key1;
      c3[lane] = product0;
    }
    key0 += kPhiloxWeyl0;
    key1 += kPhiloxWeyl1;
  }
  for (std::int64_t lane = 0; lane < kLanes; ++lane) {
    words[4 * lane] = static_cast<std::uint32_t>(c0[lane]);
    words[4 * lane + 1] = static_cast<std::uint32_t>(c1[lane]);
    words[4 * lane + 2] = static_cast<std::uint32_t>(c2[lane]);
    words[4 * lane + 3] = static_cast<std::uint32_t>(c3[lane]);
  }
}

template <typename T>
DLAUNCH_MULTIVERSION void dropout_range(std::int64_t count, const DropoutMask& mask,
                                        std::uint64_t first_block, const T* x, T* y) {
  const std::uint32_t threshold = mask.threshold;
  const float scale = mask.scale;
  for (std::int64_t begin = 0; begin < count; begin += kChunk, first_block += kLanes) {
    std::uint32_t words[kChunk];
    philox_words(mask, first_block, words);
    const std::int64_t here = count - begin < kChunk ? count - begin : kChunk;
#pragma omp simd
    for (std::int64_t i = 0; i < here; ++i) {
      store(y[begin + i], words[i] >= threshold ? load(x[begin + i]) * scale : 0.0F);
    }
  }
}

}  // namespace

void dropout(std::int64_t count, double probability, const RandomState& random, ConstArrayRef x,
             ArrayRef y) {
  const DropoutMask mask = dropout_mask(probability, random);
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  visit_activation(y.dtype, [&]<typename T>() {
    parallel_ranges(chunks, kGrain / kChunk, [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t from = begin * kChunk;
      dropout_range(std::min(count, end * kChunk) - from, mask,
                    mask.first_block + static_cast<std::uint64_t>(begin * kLanes), as<T>(x) + from,
                    as<T>(y) + from);
    });
  });
}

}  // namespace dlaunch::nn::cpu
