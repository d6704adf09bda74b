// ResidentImages: all images of a data set in the memory of a backend, as stored bytes, of which
// batches are made there. They are those that BatchLoader makes for the same seed.
//
// Used by the backend's thread.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/core/tensor.h"
#include "nn/data/batch_loader.h"

namespace dlaunch::nn {

/// What a device has to know of a micro-batch besides the images, to be copied at once: its labels,
/// the numbers of its samples, and those of its partners if they are mixed.
std::vector<std::int32_t> numbers_of(const MicroBatch& batch);

class ResidentImages {
 public:
  /// Copies all images. `samples` is how many an epoch has. The backend must outlive it. Throws
  /// DataError, and Error if there is no memory.
  ResidentImages(Backend& backend, const Dataset& dataset, const ImageTransform& transform,
                 std::uint64_t seed, std::size_t samples);

  /// Makes the micro-batch's images: [size, H, W, C], f32, bf16 or f16. `numbers` are its own
  /// (numbers_of), i32 in the backend's memory.
  void make(const MicroBatch& batch, const Tensor& numbers, const Tensor& images) const;

 private:
  ImageTransform transform_;
  std::uint64_t seed_;
  std::size_t samples_;
  Tensor images_;  // u8 [all, H, W, C]
};

}  // namespace dlaunch::nn
