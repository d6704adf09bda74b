#include "trainers/training/network_file.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/checkpoint/named_tensors.h"
#include "nn/layers/linear.h"
#include "trainers/training/checkpointing.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {
namespace {

/// `path`, of which the system would only say that it is no file.
const std::string& refuse_folder(const std::string& path) {
  std::error_code ignored;  // whoever opens it says it
  if (!std::filesystem::is_directory(path, ignored)) return path;
  const std::string inside = (std::filesystem::path(path) / kModelFile).string();
  const bool is_there = std::filesystem::is_regular_file(inside, ignored);
  throw nn::DataError(fmt::format("{} is a folder; name a file{}", path,
                                  is_there ? ", as " + inside : std::string()));
}

/// The last linear layer's.
std::string classifier_of(const nn::Module& network) {
  std::string name;
  for (const nn::NamedModule& module : named_modules(network))
    if (dynamic_cast<const nn::Linear*>(module.module) != nullptr) name = module.name;
  return name;
}

std::string what_differs(const nlohmann::json& there, const nlohmann::json& here) {
  if (there.size() != here.size())
    return fmt::format("there are {}, here {}", there.size(), here.size());
  std::size_t first = 0;
  while (there.at(first) == here.at(first)) ++first;
  return fmt::format("number {} is {} there, {} here", first + 1, there.at(first).dump(),
                     here.at(first).dump());
}

}  // namespace

NetworkFile::NetworkFile(const std::string& path) : file_(refuse_folder(path)) {}

/// By the keys of describe_network(); what the file does not say is left out.
nlohmann::json NetworkFile::about() const {
  if (is_checkpoint(file_)) {
    const nlohmann::json config = training_in(file_).at("config");
    return {{"model", config.at("model").at("name")},
            {"mean", config.at("data").at("mean")},
            {"std", config.at("data").at("std")}};
  }
  const auto found = file_.metadata().find(kNetworkKey);
  if (found == file_.metadata().end()) return nlohmann::json::object();
  return nlohmann::json::parse(found->second);
}

std::vector<std::string> NetworkFile::differences(const TrainConfig& config,
                                                  const nn::Dataset& images) const {
  const auto here = nlohmann::json::parse(describe_network(config, images).at(kNetworkKey));
  try {
    const nlohmann::json there = about();
    const auto differ = [&](const char* key) {
      return there.contains(key) && there.at(key) != here.at(key);
    };
    if (differ("model"))
      file_.refuse("model.name", fmt::format("it is {} in this file, {} in the configuration",
                                             there.at("model").dump(), here.at("model").dump()));
    if (differ("classes"))
      file_.refuse("classes", "they are not those of the images: " +
                                  what_differs(there.at("classes"), here.at("classes")));
    std::vector<std::string> lines;
    for (const auto& [key, name] : {std::pair("mean", "data.mean"), std::pair("std", "data.std"),
                                    std::pair("image", "images of (height, width, channels)")})
      if (differ(key))
        lines.push_back(fmt::format("{}: the network was trained with {} {}, here they are {}",
                                    file_.path(), name, there.at(key).dump(), here.at(key).dump()));
    return lines;
  } catch (const nlohmann::json::exception&) {
    file_.refuse(kNetworkKey, "not what dtrain writes");
  }
}

/// What stands before the names of the network, of which this is one: a checkpoint's moving average
/// is what its run has validated, and torch's wrappers put their own names before all others.
std::string NetworkFile::prefix_of(const std::string& name) const {
  const auto& there = file_.tensors();
  if (is_checkpoint(file_)) return there.contains("ema." + name) ? "ema." : "";
  for (const char* prefix : {"module.", "_orig_mod."})  // DistributedDataParallel, torch.compile
    if (!there.contains(name) && there.contains(prefix + name)) return prefix;
  return "";
}

/// Shapes alone tell nobody what can be done.
void NetworkFile::check_classes(const std::string& weight, const nn::Module& network,
                                const std::string& prefix) const {
  const auto there = file_.tensors().find(prefix + weight);
  const auto parameters = network.parameters();
  const auto here = std::ranges::find(parameters, weight, &nn::NamedParameter::name);
  if (there == file_.tensors().end() || here == parameters.end()) return;
  const nn::Shape& shape = here->tensor.shape();
  const nn::Shape& found = there->second.shape;
  if (found.rank() != 2 || found[1] != shape[1] || found[0] == shape[0]) return;
  file_.refuse(there->first, fmt::format("shape {}, expected {}: it is of {} classes, here are {}; "
                                         "to train on others set model.new_classifier=true",
                                         found.to_string(), shape.to_string(), found[0], shape[0]));
}

void NetworkFile::load(const nn::Module& network, Classifier classifier) const {
  std::vector<nn::NamedTensor> state = nn::state_of(network);
  const std::string prefix = prefix_of(state.front().name);
  const std::string last = classifier_of(network);
  std::set<std::string> left;  // in the file
  if (classifier == Classifier::kStays) {
    left = {last + ".weight", last + ".bias"};
    std::erase_if(state, [&](const nn::NamedTensor& item) { return left.contains(item.name); });
    left = {prefix + last + ".weight", prefix + last + ".bias"};
  } else {
    check_classes(last + ".weight", network, prefix);
  }
  for (nn::NamedTensor& item : state) item.name = prefix + item.name;
  if (is_checkpoint(file_)) return load_some_tensors(file_, state);
  load_tensors(file_, state, left);
}

}  // namespace dlaunch
