// DeviceBatches: the micro-batches of a step in the memory of a device: always in the same place
// for steps of the same sizes, so that steps that were recorded find them. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "nn/core/tensor.h"
#include "nn/data/batch_loader.h"

namespace dlaunch {

struct DeviceBatch {
  nn::Tensor images;  // [size, H, W, C]
  nn::Tensor labels;  // i32 [size]
  // If the images are mixed, as in a MicroBatch:
  std::vector<std::int32_t> own_labels;
  std::vector<std::int32_t> partner_labels;
  float own_share = 1;
};

double samples_of(const std::vector<DeviceBatch>& batches);

class DeviceBatches {
 public:
  /// The backend must outlive it.
  DeviceBatches(nn::Backend& backend, const nn::ImageShape& shape)
      : backend_(backend), shape_(shape) {}

  /// Copies `count` micro-batches, each from `next`, to the device. Valid until the next call.
  const std::vector<DeviceBatch>& load(std::size_t count,
                                       const std::function<const nn::MicroBatch&()>& next);

 private:
  DeviceBatch& place_of(std::size_t index, std::size_t size);

  nn::Backend& backend_;
  const nn::ImageShape shape_;
  std::map<std::pair<std::size_t, std::size_t>, DeviceBatch> places_;  // by index and size
  std::vector<DeviceBatch> current_;
};

}  // namespace dlaunch
