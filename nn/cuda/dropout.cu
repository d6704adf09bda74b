#include <array>

#include "nn/core/dropout_mask.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

// One block of random words serves four elements.
template <typename T>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce)
    dropout_all(std::int64_t count, DropoutMask mask, const std::uint64_t* shift_or_null,
                const T* x, T* y) {
  const std::uint64_t first_block =
      mask.first_block + (shift_or_null == nullptr ? 0 : *shift_or_null);
  for_packs<pack_of<T>()>(count, aligned(x, y), [&]<int kSize>(std::int64_t i) {
    float values[kSize];
    load_pack(x + i, values);
    std::array<std::uint32_t, 4> words{};
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      if (k % 4 == 0)
        words = philox_block(mask.seed, mask.stream,
                             first_block + static_cast<std::uint64_t>((i + k) / 4));
      const std::uint32_t word = words[kSize > 1 ? k % 4 : static_cast<int>(i % 4)];
      values[k] = word >= mask.threshold ? values[k] * mask.scale : 0.0F;
    }
    store_pack(y + i, values);
  });
}

}  // namespace

void dropout(Device& device, std::int64_t count, double probability, const RandomState& random,
             ConstArrayRef x, ArrayRef y) {
  if (count == 0) return;
  const DropoutMask mask = dropout_mask(probability, random);
  visit_activation(y.dtype, [&]<typename T>() {
    launch(device, "dropout", dropout_all<T>, blocks_for(device, divide_up(count, pack_of<T>())),
           kThreads, count, mask, device.random_shift(), as<T>(x), as<T>(y));
  });
}

}  // namespace dlaunch::nn::cuda
