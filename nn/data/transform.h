// From stored bytes to what a network sees: augmentation, normalisation, float.
//
// Augmentation of a training image is a function of (seed, epoch, step, sample), so that it is the
// same on whichever rank, and on whichever device, the sample lands (nn/data/augmentation.h).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/data/augmentation.h"
#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// x -> (x / 255 - mean) / deviation, per channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> deviation;
};

/// Applied in this order: crop, flip, brightness and contrast, cutout. The default changes nothing.
struct Augmentation {
  std::size_t crop_padding = 0;  // pad all sides by so many pixels, cut the old size out somewhere
  PadMode pad_mode = PadMode::kZero;  // black, or mirrored without repeating the edge
  bool crop_batch = false;            // at the same place in all images of a step
  FlipMode flip = FlipMode::kNone;    // left and right
  double brightness = 0;              // values times a factor within 1 - and 1 + this
  double contrast = 0;                // the same of their distances from the image's mean
  std::size_t cutout = 0;  // side of a square set to the mean, its centre anywhere (DeVries 2017)

  friend bool operator==(const Augmentation&, const Augmentation&) = default;
};

/// A value for one image size; const members may be called from any thread.
class ImageTransform {
 public:
  /// Both vectors of the normalisation have shape.channels elements, at most kMostChannels;
  /// crop_padding is below the image's sides (nn::Error).
  ImageTransform(const ImageShape& shape, const Normalization& normalization,
                 const Augmentation& augmentation);

  const ImageShape& shape() const { return shape_; }
  /// Whether anything is drawn at all.
  bool augments() const { return augments_; }
  /// For batches of images of side x side (0: as they are stored) from epochs of `samples` samples.
  AugmentationPlan plan(std::size_t side, std::size_t samples) const;

  /// HWC bytes to HWC floats, without augmentation, of one image or several.
  void normalise(std::span<const std::uint8_t> images, std::span<float> out) const;

 private:
  ImageShape shape_;
  bool augments_;
  AugmentationPlan plan_;
};

}  // namespace dlaunch::nn
