// DeviceBatches: the micro-batches of a step in the memory of a device: always in the same place
// for steps of the same sizes, so that steps that were recorded find them. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "nn/core/tensor.h"
#include "nn/data/batch_loader.h"
#include "nn/data/resident_images.h"

namespace dlaunch {

struct DeviceBatch {
  nn::Tensor images;   // [size, H, W, C]
  nn::Tensor numbers;  // i32, as nn::numbers_of() has them
  nn::Tensor labels;   // i32 [size]: their beginning
  // If the images are mixed, as in a MicroBatch:
  std::vector<std::int32_t> own_labels;
  std::vector<std::int32_t> partner_labels;
  float own_share = 1;
};

double samples_of(const std::vector<DeviceBatch>& batches);
/// Height and width of an image; 0 without images.
std::array<std::int64_t, 2> sides_of(const std::vector<DeviceBatch>& batches);

class DeviceBatches {
 public:
  /// Images are made by `resident`, in `type`, or if that is null copied. The backend and
  /// `resident` must outlive it.
  DeviceBatches(nn::Backend& backend, const nn::ResidentImages* resident, DType type)
      : backend_(backend), resident_(resident), type_(type) {}

  /// Brings `count` micro-batches, each from `next`, to the device. Valid until the next call.
  const std::vector<DeviceBatch>& load(std::size_t count,
                                       const std::function<const nn::MicroBatch&()>& next);

 private:
  DeviceBatch& place_of(std::size_t index, const nn::MicroBatch& batch);

  nn::Backend& backend_;
  const nn::ResidentImages* const resident_;
  const DType type_;
  std::map<std::array<std::size_t, 4>, DeviceBatch> places_;  // by index, size, height and width
  std::vector<DeviceBatch> current_;
};

}  // namespace dlaunch
