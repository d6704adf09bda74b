#include "trainers/training/datasets.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include <spdlog/fmt/fmt.h>

#include "nn/data/image_folder.h"

namespace dlaunch {
namespace {

// Images that are handed over together, to be shared among threads: up to so many, and bytes, but
// at least the eight whose sums are made together.
constexpr std::size_t kImagesTogether = 512;
constexpr std::size_t kLeastTogether = 8;
constexpr std::size_t kBytesTogether = std::size_t{128} << 20;

// Empty: it is one.
std::string why_no_folder(const std::string& path) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (std::filesystem::is_directory(status)) return "";
  if (status.type() == std::filesystem::file_type::not_found) return "no such folder";
  return error ? error.message() : "not a folder";
}

/// Images to validate on are in test/, or else, as ImageNet has them, in val/.
std::string folder_of(const DataConfig& config, nn::Split split) {
  if (split == nn::Split::kTrain) return config.directory + "/train";
  const std::string test = config.directory + "/test", val = config.directory + "/val";
  return !std::filesystem::exists(test) && why_no_folder(val).empty() ? val : test;
}

std::unique_ptr<nn::Dataset> open_folder(const DataConfig& config, nn::Split split) {
  const std::string directory = folder_of(config, split);
  const std::string why = why_no_folder(directory);
  if (!why.empty())
    throw nn::DataError(
        fmt::format("{}: {}; data.directory must hold train/CLASS/... and test/CLASS/... (or "
                    "val/CLASS/...)",
                    directory, why));
  return nn::open_image_folder(directory, config.image_size);
}

}  // namespace

std::unique_ptr<nn::Dataset> open_dataset(const DataConfig& config, nn::Split split) {
  switch (config.set) {
    case DataSet::kCifar10:
      return open_cifar(cifar_layout(nn::CifarSet::kCifar10, split, config.directory));
    case DataSet::kCifar100:
      return open_cifar(cifar_layout(nn::CifarSet::kCifar100, split, config.directory));
    case DataSet::kFolder:
      return open_folder(config, split);
    case DataSet::kSynthetic:
      break;
  }
  return make_synthetic(config.synthetic, split);
}

DataShape data_shape(const DataConfig& config) {
  if (config.set == DataSet::kCifar10) return {{32, 32, 3}, 10};
  if (config.set == DataSet::kCifar100) return {{32, 32, 3}, 100};
  if (config.set == DataSet::kSynthetic) return {config.synthetic.shape, config.synthetic.classes};
  return data_shape(*open_dataset(config, nn::Split::kTrain));
}

DataShape data_shape(const nn::Dataset& dataset) {
  return {dataset.image_shape(), dataset.class_names().size()};
}

nn::Shape image_batch(std::size_t count, const nn::ImageShape& image) {
  return {static_cast<std::int64_t>(count), static_cast<std::int64_t>(image.height),
          static_cast<std::int64_t>(image.width), static_cast<std::int64_t>(image.channels)};
}

void add_training_images(const nn::Dataset& dataset, const nn::ImageTransform& transform,
                         std::size_t count, nn::PatchCovariance& covariance) {
  const nn::ImageShape& shape = transform.shape();
  std::vector<std::uint8_t> bytes(shape.size());
  count = std::min(count, dataset.size());
  const std::size_t fit = kBytesTogether / (shape.size() * sizeof(float));
  const std::size_t at_once = std::min(
      count, std::clamp(fit, kLeastTogether, kImagesTogether) / kLeastTogether * kLeastTogether);
  std::vector<float> images(at_once * shape.size());
  for (std::size_t first = 0; first < count; first += at_once) {
    const std::size_t together = std::min(at_once, count - first);
    const std::span<float> values = std::span(images).first(together * shape.size());
    for (std::size_t i = 0; i < together; ++i) {
      dataset.copy_image(first + i, bytes);
      transform.normalise(bytes, values.subspan(i * shape.size(), shape.size()));
    }
    covariance.add(values, static_cast<std::int64_t>(shape.height),
                   static_cast<std::int64_t>(shape.width));
  }
}

}  // namespace dlaunch
