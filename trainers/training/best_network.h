// BestNetwork: what best.safetensors says of the network in it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

namespace dlaunch {

struct BestNetwork {
  static constexpr const char* kKey = "dlaunch.best";  // of the text in the file's metadata

  std::string run;        // that has written it: Checkpointing::run_id()
  double top1 = 0;        // of the validation it was written after
  std::size_t epoch = 0;  // after so many

  std::string text() const;
  /// Nothing if it is no text() of one.
  static std::optional<BestNetwork> from_text(const std::string& text);
  /// Nothing if there is no such file, or it does not say.
  static std::optional<BestNetwork> in_file(const std::string& path);

  friend bool operator==(const BestNetwork&, const BestNetwork&) = default;
};

}  // namespace dlaunch
