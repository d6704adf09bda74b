// A fixture for tests of dtrain's checkpoints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "nn/checkpoint/checkpoint_folder.h"
#include "nn/checkpoint/safetensors.h"
#include "tests/trainers/dtrain_test.h"

namespace dlaunch::testing {

using Tensors = std::map<std::string, std::vector<std::byte>>;

/// A run's checkpoints lie in out/checkpoints.
class Checkpoints : public DtrainTest {
 protected:
  std::string folder() const { return directory_ + "/out/checkpoints"; }

  std::vector<std::uint64_t> steps() const {
    std::vector<std::uint64_t> steps;
    for (const nn::CheckpointFile& file : nn::CheckpointFolder(folder()).list())
      steps.push_back(file.step);
    return steps;
  }

  static Tensors tensors_in(const std::string& path) {
    const nn::SafetensorsFile file(path);
    Tensors tensors;
    for (const auto& [name, entry] : file.tensors()) tensors[name] = file.read(name);
    return tensors;
  }
  static std::vector<float> floats_of(const std::vector<std::byte>& bytes) {
    std::vector<float> values(bytes.size() / sizeof(float));
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
    return values;
  }
  std::string newest() const { return nn::CheckpointFolder(folder()).list().back().path; }

  /// Writes the file anew with the same tensors, and what `change` makes of what a checkpoint says
  /// of its run.
  static void edit(const std::string& path,
                   const std::function<void(nlohmann::json& training)>& change) {
    const nn::SafetensorsFile file(path);
    nn::TensorMetadata metadata = file.metadata();
    nlohmann::json training = nlohmann::json::parse(metadata.at("dlaunch.training"));
    change(training);
    metadata["dlaunch.training"] = training.dump();
    const Tensors all = tensors_in(path);
    std::vector<nn::TensorBytes> tensors;
    for (const auto& [name, bytes] : all)
      tensors.push_back({name, file.entry(name).dtype, file.entry(name).shape, bytes});
    nn::write_safetensors(path, tensors, metadata);
  }

  /// Changes a byte in the middle of the file's data.
  static void damage(const std::string& path) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto middle = static_cast<std::streamoff>(std::filesystem::file_size(path) / 2);
    file.seekg(middle);
    const int byte = file.get();
    file.seekp(middle);
    file.put(static_cast<char>(byte ^ 1));
  }
};

}  // namespace dlaunch::testing
