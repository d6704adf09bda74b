#include "nn/data/synthetic.h"

#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "nn/core/random.h"
#include "nn/data/streams.h"

namespace dlaunch::nn {
namespace {

constexpr std::size_t kGrid = 4;  // a pattern has kGrid x kGrid random colours
constexpr int kMiddle = 128;

/// A kGrid x kGrid grid of random colours, interpolated linearly (around the edges) to the image's
/// size. Integers only, so that it is the same everywhere.
std::vector<std::uint8_t> make_pattern(const ImageShape& shape, Generator generator) {
  std::vector<int> grid(kGrid * kGrid * shape.channels);
  for (int& colour : grid) colour = static_cast<int>(generator.below(256));
  const auto at = [&](std::size_t y, std::size_t x, std::size_t c) {
    return grid[((y % kGrid) * kGrid + x % kGrid) * shape.channels + c];
  };
  std::vector<std::uint8_t> pattern;
  pattern.reserve(shape.size());
  for (std::size_t y = 0; y < shape.height; ++y) {
    const std::size_t row = y * kGrid / shape.height;
    const auto down = static_cast<int>((y * kGrid * 256 / shape.height) % 256);
    for (std::size_t x = 0; x < shape.width; ++x) {
      const std::size_t column = x * kGrid / shape.width;
      const auto right = static_cast<int>((x * kGrid * 256 / shape.width) % 256);
      for (std::size_t c = 0; c < shape.channels; ++c) {
        const int top = at(row, column, c) * (256 - right) + at(row, column + 1, c) * right;
        const int bottom =
            at(row + 1, column, c) * (256 - right) + at(row + 1, column + 1, c) * right;
        pattern.push_back(static_cast<std::uint8_t>((top * (256 - down) + bottom * down) >> 16));
      }
    }
  }
  return pattern;
}

class SyntheticDataset : public Dataset {
 public:
  SyntheticDataset(const SyntheticOptions& options, Split split)
      : options_(options), split_(split) {
    for (std::size_t i = 0; i < options.classes; ++i) {
      class_names_.push_back(fmt::format("pattern {}", i));
      patterns_.push_back(make_pattern(
          options.shape,
          Generator(options.seed, random_stream(RandomPurpose::kSyntheticPattern, 0, i))));
    }
  }

  std::size_t size() const override {
    return split_ == Split::kTrain ? options_.train_size : options_.test_size;
  }
  ImageShape image_shape() const override { return options_.shape; }
  const std::vector<std::string>& class_names() const override { return class_names_; }
  std::int32_t label(std::size_t index) const override {
    return static_cast<std::int32_t>(index % options_.classes);
  }

  void copy_image(std::size_t index, std::span<std::uint8_t> image) const override {
    const ImageShape& shape = options_.shape;
    const std::uint64_t split = split_ == Split::kTrain ? 0 : 1;
    Generator generator(options_.seed,
                        random_stream(RandomPurpose::kSyntheticSample, split, index));
    const std::vector<std::uint8_t>& pattern = patterns_[index % options_.classes];
    const std::size_t shift_y = generator.below(static_cast<std::uint32_t>(shape.height));
    const std::size_t shift_x = generator.below(static_cast<std::uint32_t>(shape.width));
    const int contrast = 64 + static_cast<int>(generator.below(129));  // of 256
    const int noise = options_.noise;
    for (std::size_t y = 0; y < shape.height; ++y) {
      const std::size_t from_row = (y + shift_y) % shape.height * shape.width;
      for (std::size_t x = 0; x < shape.width; ++x) {
        const std::size_t from = (from_row + (x + shift_x) % shape.width) * shape.channels;
        for (std::size_t c = 0; c < shape.channels; ++c) {
          const int offset =
              noise == 0 ? 0
                         : static_cast<int>(generator() >> 16) * (2 * noise + 1) / 65536 - noise;
          const int signal = (pattern[from + c] - kMiddle) * contrast / 256;
          *image_at(image, y, x, c) =
              static_cast<std::uint8_t>(std::clamp(kMiddle + signal + offset, 0, 255));
        }
      }
    }
  }

  std::string fingerprint() const override {
    const ImageShape& shape = options_.shape;
    return fmt::format("synthetic {} {} {} {} {}x{}x{} {}", options_.seed, options_.classes, size(),
                       split_ == Split::kTrain ? "train" : "test", shape.height, shape.width,
                       shape.channels, options_.noise);
  }

 private:
  std::uint8_t* image_at(std::span<std::uint8_t> image, std::size_t y, std::size_t x,
                         std::size_t c) const {
    return &image[(y * options_.shape.width + x) * options_.shape.channels + c];
  }

  SyntheticOptions options_;
  Split split_;
  std::vector<std::string> class_names_;
  std::vector<std::vector<std::uint8_t>> patterns_;
};

}  // namespace

std::unique_ptr<Dataset> make_synthetic(const SyntheticOptions& options, Split split) {
  return std::make_unique<SyntheticDataset>(options, split);
}

}  // namespace dlaunch::nn
