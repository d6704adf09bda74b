// LostFiles: what could not be written, and why. What cannot be written must not cost what can be.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace dlaunch {

class LostFiles {
 public:
  /// Writes the file of this name, as TrainConfig has it, unless that throws std::runtime_error. An
  /// error of the communicator goes on.
  void try_to_write(const std::string& name, const std::function<void()>& write);
  void add(const std::string& name, const std::string& why) { files_.emplace_back(name, why); }

  bool empty() const { return files_.empty(); }
  bool contains(const std::string& name) const;
  /// In one line; empty: nothing was lost.
  std::string why() const;

 private:
  std::vector<std::pair<std::string, std::string>> files_;  // and why
};

}  // namespace dlaunch
