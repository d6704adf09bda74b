#include "trainers/training/best_network.h"

#include <nlohmann/json.hpp>

#include "nn/checkpoint/safetensors.h"
#include "nn/data/dataset.h"

namespace dlaunch {

std::string BestNetwork::text() const {
  return nlohmann::json{{"run", run}, {"top1", top1}, {"epoch", epoch}}.dump();
}

std::optional<BestNetwork> BestNetwork::from_text(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    return BestNetwork{.run = json.at("run").get<std::string>(),
                       .top1 = json.at("top1").get<double>(),
                       .epoch = json.at("epoch").get<std::size_t>()};
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

std::optional<BestNetwork> BestNetwork::in_file(const std::string& path) {
  try {
    const nn::SafetensorsFile file(path);
    const auto found = file.metadata().find(kKey);
    return found == file.metadata().end() ? std::nullopt : from_text(found->second);
  } catch (const nn::DataError&) {
    return std::nullopt;
  }
}

}  // namespace dlaunch
