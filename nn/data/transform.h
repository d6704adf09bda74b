// From stored bytes to what a network sees: augmentation, normalisation, float.
//
// Augmentation of a training image is drawn from a Generator of that (seed, epoch, sample), so that
// it is the same on whichever rank the sample lands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/core/random.h"
#include "nn/data/dataset.h"

namespace dlaunch::nn {

/// x -> (x / 255 - mean) / deviation, per channel.
struct Normalization {
  std::vector<double> mean;
  std::vector<double> deviation;
};

enum class PadMode { kZero, kReflect };

/// Applied in this order: crop, flip, cutout. The default changes nothing.
struct Augmentation {
  std::size_t crop_padding = 0;  // pad all sides by so many pixels, cut the old size out somewhere
  PadMode pad_mode = PadMode::kZero;  // black, or mirrored without repeating the edge
  bool flip = false;                  // left and right, half of the time
  std::size_t cutout = 0;  // side of a square set to the mean, its centre anywhere (DeVries 2017)
};

/// A value for one image size; const members may be called from any thread.
class ImageTransform {
 public:
  /// Both vectors of the normalisation have shape.channels elements; crop_padding is below the
  /// image's sides (nn::Error).
  ImageTransform(const ImageShape& shape, const Normalization& normalization,
                 const Augmentation& augmentation);

  const ImageShape& shape() const { return shape_; }
  /// Whether anything is drawn at all.
  bool augments() const;

  /// HWC bytes to HWC floats, without augmentation, of one image or several.
  void normalise(std::span<const std::uint8_t> images, std::span<float> out) const;
  /// With augmentation drawn from `generator`.
  void augment(std::span<const std::uint8_t> image, Generator generator,
               std::span<float> out) const;

 private:
  /// What of the padded image is taken.
  struct Crop {
    std::ptrdiff_t y = 0;  // from where it was, down
    std::ptrdiff_t x = 0;
    bool flip = false;
  };
  void crop_row(std::span<const std::uint8_t> image, std::ptrdiff_t y, const Crop& crop,
                std::span<std::uint8_t> out) const;

  ImageShape shape_;
  Augmentation augmentation_;
  std::vector<float> means_;    // of each byte of an image
  std::vector<float> factors_;  // one over the deviation
};

}  // namespace dlaunch::nn
