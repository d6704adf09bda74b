// In what two resolved configurations differ.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

namespace dlaunch {

struct ConfigDifference {
  std::string key;  // "optimizer.learning_rate"
  nlohmann::ordered_json here;
  nlohmann::ordered_json there;  // null on the side that has no such key

  /// As configurations have it, or "not set".
  static std::string text(const nlohmann::ordered_json& value);
};

/// In the order of `here`; then what only `there` has.
std::vector<ConfigDifference> config_differences(const nlohmann::ordered_json& here,
                                                 const nlohmann::ordered_json& there,
                                                 const std::string& path = "");

/// A resolved configuration without what a rank may have of its own: where files are, and what only
/// changes its memory or its speed.
nlohmann::ordered_json common_part(nlohmann::ordered_json resolved);

/// The same without what a run that resumes may change and train as before: what it writes, with
/// what weights it began, and where it stops.
nlohmann::ordered_json training_part(nlohmann::ordered_json resolved);

}  // namespace dlaunch
