// The metrics file: one JSON object per line, each with the name of its event ("start", "step",
// "epoch", "summary"). Every line is in the file when write() returns.
#pragma once

#include <cstdio>
#include <memory>
#include <string>

#include <nlohmann/json.hpp>

namespace dlaunch {

class MetricsFile {
 public:
  /// Writes nowhere.
  MetricsFile() = default;
  /// Makes the directory and a new file in it, or goes on with the old one if `append`. Throws
  /// std::runtime_error.
  MetricsFile(const std::string& directory, const std::string& name, bool append);

  /// Throws std::runtime_error if the line cannot be written (the disk is full).
  void write(const nlohmann::ordered_json& line);

  /// Empty: nowhere.
  const std::string& path() const { return path_; }

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace dlaunch
