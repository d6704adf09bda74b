// Batches made of stored images: a block makes one image (or mixture), its threads a pixel each in
// turn. The formulas are those of the CPU (nn/data/augmentation.h).
#include "nn/data/augmentation.h"

#include "nn/cuda/kernels.h"
#include "nn/cuda/launch.cuh"

namespace dlaunch::nn::cuda {
namespace {

constexpr int kAugmentThreads = 256;

// What a block knows of one image before it looks at pixels.
struct Source {
  const std::uint8_t* image;
  ImageDraw draw;
  float mean;  // of its bytes, if anybody needs it
};

// The sum of `value` over the block's threads, for all of them. `shared` has room for every thread.
__device__ unsigned long long block_sum(unsigned long long value, unsigned long long* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = kAugmentThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  const unsigned long long sum = shared[0];
  __syncthreads();  // before it is used again
  return sum;
}

// All threads of the block call it: it meets at barriers.
__device__ void find_source(const AugmentedBatch& batch, std::int64_t index, bool partner,
                            unsigned long long* shared, Source* source) {
  const int size = batch.plan.height * batch.plan.width * batch.plan.channels;
  const std::uint32_t* const samples = partner ? batch.partners : batch.samples;
  const std::int64_t sample = samples == nullptr ? index : std::int64_t{samples[index]};
  const std::uint8_t* const image = batch.images + sample * size;
  unsigned long long sum = 0;
  if (batch.plan.jitters()) {
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kAugmentThreads) sum += image[i];
    sum = block_sum(sum, shared);
  }
  if (threadIdx.x == 0) {
    source->image = image;
    source->draw = draw_of(batch, index, partner);
    source->mean = static_cast<float>(sum) / static_cast<float>(size);
  }
}

__device__ float value_of(const AugmentedBatch& batch, const Source& source, int y, int x, int c) {
  return batch_value(batch.plan, source.draw, source.mean, source.image, y, x, c);
}

template <typename T>
__global__ void __launch_bounds__(kAugmentThreads) augment_images(AugmentedBatch batch, T* out) {
  __shared__ unsigned long long sums[kAugmentThreads];
  // Bytes, because what is shared must not have a constructor.
  alignas(Source) __shared__ unsigned char sources[2 * sizeof(Source)];
  Source& own = reinterpret_cast<Source*>(sources)[0];
  Source& partner = reinterpret_cast<Source*>(sources)[1];
  const AugmentationPlan& plan = batch.plan;
  const int pixels = plan.out_height * plan.out_width;
  for (std::int64_t index = blockIdx.x; index < batch.n; index += gridDim.x) {
    find_source(batch, index, false, sums, &own);
    if (batch.partners != nullptr) find_source(batch, index, true, sums, &partner);
    __syncthreads();
    for (int pixel = static_cast<int>(threadIdx.x); pixel < pixels; pixel += kAugmentThreads) {
      const int y = pixel / plan.out_width;
      const int x = pixel % plan.out_width;
      T* const to = out + (index * pixels + pixel) * plan.channels;
      for (int c = 0; c < plan.channels; ++c) {
        float value = value_of(batch, own, y, x, c);
        if (batch.partners != nullptr)
          value = mixed(batch.mix, y, x, value, value_of(batch, partner, y, x, c));
        store(to[c], value);
      }
    }
    __syncthreads();  // before the sources are overwritten
  }
}

}  // namespace

void augment(Device& device, const AugmentedBatch& batch, ArrayRef y) {
  if (batch.n == 0) return;
  constexpr std::int64_t kMostBlocks = 65535;
  const auto blocks = static_cast<unsigned>(std::min(batch.n, kMostBlocks));
  visit_activation(y.dtype, [&]<typename T>() {
    launch(device, "augment", augment_images<T>, blocks, kAugmentThreads, batch, as<T>(y));
  });
}

}  // namespace dlaunch::nn::cuda
