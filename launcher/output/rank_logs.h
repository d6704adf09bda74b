// RankLogs: the files of --log-dir, one for each stream of each rank and attempt:
// DIR/attempt-0/rank-3/stderr. What an earlier job left in a file of that name is overwritten.
//
// Belongs to the event loop's thread. Writes block as long as the file system makes them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/base/descriptor.h"
#include "runtime/base/status.h"

namespace dlaunch {

enum class Stream { kOutput, kError };

/// Makes a folder of --log-dir and those above it; an error also if files cannot be made there.
Status make_log_folder(const std::string& folder);

class RankLogs {
 public:
  /// Keeps nothing if `folder` is empty.
  explicit RankLogs(std::string folder) : folder_(std::move(folder)) {}

  /// Makes the files of a rank, and the folders above them. If that fails nothing is kept of this
  /// attempt of the rank; after the first one its files then count as incomplete.
  Status open(int attempt, int rank);

  /// Adds what a rank wrote. If that cannot be, the file is kept as it is and no more added.
  /// Returns what to tell the user: the first time only, since a full disk concerns all files.
  std::optional<std::string> write(int rank, Stream stream, std::string_view bytes);

  /// For the end: how many files are incomplete, if any. The first time only.
  std::optional<std::string> summary();

 private:
  struct File {
    std::string path;
    Descriptor descriptor;
  };

  Status make_files(int attempt, int rank);

  std::string folder_;
  std::map<std::pair<int, Stream>, File> files_;  // of the last attempt
  int opened_ = 0;
  int incomplete_ = 0;
  bool summarised_ = false;
};

}  // namespace dlaunch
