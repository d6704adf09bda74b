// The data sets that a configuration names.
#pragma once

#include <memory>

#include "nn/data/cifar.h"
#include "nn/data/dataset.h"
#include "nn/data/transform.h"
#include "nn/layers/patch_whitening.h"
#include "trainers/config/config.h"

namespace dlaunch {

/// Opens one split; throws nn::DataError. A folder has its splits in the folders "train" and
/// "test".
std::unique_ptr<nn::Dataset> open_dataset(const DataConfig& config, nn::Split split);

/// What a model must fit, known without reading images where the set allows.
struct DataShape {
  nn::ImageShape image;
  std::size_t classes = 0;
};
DataShape data_shape(const DataConfig& config);
DataShape data_shape(const nn::Dataset& dataset);

/// [count, height, width, channels], as networks want them.
nn::Shape image_batch(std::size_t count, const nn::ImageShape& image);

/// The patches of the first `count` images, as the network sees them without augmentation.
void add_training_images(const nn::Dataset& dataset, const nn::ImageTransform& transform,
                         std::size_t count, nn::PatchCovariance& covariance);

}  // namespace dlaunch
