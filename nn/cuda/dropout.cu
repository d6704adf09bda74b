#include "nn/core/dropout_mask.h"
#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

// A thread for each four elements, which one block of random words serves.
template <typename T>
__global__ void dropout_all(std::int64_t count, DropoutMask mask,
                            const std::uint64_t* shift_or_null, const T* x, T* y) {
  const std::uint64_t first_block =
      mask.first_block + (shift_or_null == nullptr ? 0 : *shift_or_null);
  for (std::int64_t i = global_thread(); 4 * i < count; i += all_threads()) {
    const auto words =
        philox_block(mask.seed, mask.stream, first_block + static_cast<std::uint64_t>(i));
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const std::int64_t at = 4 * i + k;
      if (at < count) store(y[at], words[k] >= mask.threshold ? load(x[at]) * mask.scale : 0.0F);
    }
  }
}

}  // namespace

void dropout(Device& device, std::int64_t count, double probability, const RandomState& random,
             ConstArrayRef x, ArrayRef y) {
  if (count == 0) return;
  const DropoutMask mask = dropout_mask(probability, random);
  visit_activation(y.dtype, [&]<typename T>() {
    launch(device, "dropout", dropout_all<T>, blocks_for(device, divide_up(count, 4)), kThreads,
           count, mask, device.random_shift(), as<T>(x), as<T>(y));
  });
}

}  // namespace dlaunch::nn::cuda
