// NetworkFile: a network in a file, alone (model.safetensors, best.safetensors, of torch) or in a
// checkpoint of dtrain, of which the moving average is taken if it has one; and what the file says
// about the network. One thread.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "nn/checkpoint/safetensors.h"
#include "nn/core/module.h"
#include "nn/data/dataset.h"
#include "trainers/config/config.h"

namespace dlaunch {

class NetworkFile {
 public:
  /// Throws nn::DataError; if `path` is a folder, with the file in it that may be meant.
  explicit NetworkFile(const std::string& path);

  /// What differs between what the network was trained with and how it is to be used, a line each;
  /// none where the file does not say, as others' files do not. Throws nn::DataError if it is
  /// another network, or has other classes: its scores would be taken for those of others.
  std::vector<std::string> differences(const TrainConfig& config, const nn::Dataset& images) const;

  enum class Classifier { kFromFile, kStays };  // the last linear layer
  /// Fills the network. Throws nn::DataError.
  void load(const nn::Module& network, Classifier classifier = Classifier::kFromFile) const;

 private:
  nlohmann::json about() const;
  std::string prefix_of(const std::string& name) const;
  void check_classes(const std::string& weight, const nn::Module& network,
                     const std::string& prefix) const;

  nn::SafetensorsFile file_;
};

}  // namespace dlaunch
