// One launch for many arrays: the kernel's argument is a list of them, and each block works on a
// chunk of one (as apex's multi_tensor_apply, NVIDIA). What a block gets depends on the sizes
// alone.
//
// An Item is a plain struct with a `count` of elements.
#pragma once

#include <span>

#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {

constexpr std::int64_t kChunk = std::int64_t{16} * kThreads;  // elements
constexpr std::size_t kListBytes = 4000;                      // a kernel's arguments may have 4096

template <typename Item>
struct ArrayList {
  static constexpr int kMost =
      static_cast<int>((kListBytes - 16) / (sizeof(Item) + sizeof(unsigned)));

  int size = 0;
  unsigned first_blocks[kMost + 1] = {};  // of each item, and behind the last
  Item items[kMost];
};

/// Elements [begin, end) of item number `item`, whose chunks belong to blocks [first, last).
struct Chunk {
  int item;
  std::int64_t begin, end;
  unsigned first, last;
};

/// What this block works on.
template <typename Item>
__device__ inline Chunk chunk_of(const ArrayList<Item>& list) {
  int item = 0;
  for (int end = list.size; end - item > 1;) {
    const int middle = (item + end) / 2;
    (list.first_blocks[middle] <= blockIdx.x ? item : end) = middle;
  }
  const unsigned first = list.first_blocks[item];
  const std::int64_t begin = (blockIdx.x - first) * kChunk;
  const std::int64_t count = list.items[item].count;
  return {item, begin, begin + kChunk < count ? begin + kChunk : count, first,
          list.first_blocks[item + 1]};
}

/// for_packs() for what this thread of a block does of its chunk.
template <int kWidth, typename Function>
__device__ inline void for_packs(const Chunk& chunk, bool is_aligned, const Function& function) {
  for_packs<kWidth>(chunk.begin, chunk.end, threadIdx.x, kThreads, is_aligned, function);
}

/// Calls function(list, blocks) for lists of all these items; as a rule there is one.
template <typename Item, typename Function>
void for_lists(std::span<const Item> items, const Function& function) {
  while (!items.empty()) {
    ArrayList<Item> list;
    static_assert(sizeof list <= kListBytes);
    list.size = static_cast<int>(std::min<std::size_t>(items.size(), ArrayList<Item>::kMost));
    for (int i = 0; i < list.size; ++i) {
      list.items[i] = items[static_cast<std::size_t>(i)];
      list.first_blocks[i + 1] =
          list.first_blocks[i] + static_cast<unsigned>(divide_up(list.items[i].count, kChunk));
    }
    items = items.subspan(static_cast<std::size_t>(list.size));
    if (const unsigned blocks = list.first_blocks[list.size]; blocks > 0) function(list, blocks);
  }
}

}  // namespace dlaunch::nn::cuda
