// The metrics file: one JSON object per line, each with the name of its event ("start", "step",
// "epoch", "summary"). Every line is in the file when write() returns, or, if it cannot be written,
// tried again with the next one (record_file.h).
#pragma once

#include <memory>
#include <string>

#include <nlohmann/json.hpp>

#include "trainers/output/record_file.h"

namespace dlaunch {

class MetricsFile {
 public:
  /// Writes nowhere.
  MetricsFile() = default;
  /// Makes the directory and finds out whether the file can be written, but changes nothing in it.
  /// Throws std::runtime_error.
  MetricsFile(const std::string& directory, const std::string& name);

  /// Before the first line: goes on with the old file if `append`, else begins a new one. Returns
  /// where what was in it is then; empty: it still is, or there was nothing that would be worth the
  /// place of an older file.
  std::string begin(bool append);
  void write(const nlohmann::ordered_json& line);
  /// Throws std::runtime_error if a line could not be written (the disk is full).
  void finish();

  /// Empty: nowhere.
  std::string path() const { return file_ == nullptr ? "" : file_->path(); }

 private:
  std::unique_ptr<RecordFile> file_;
};

}  // namespace dlaunch
