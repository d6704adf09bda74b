// CheckpointFolder: where the checkpoints of a run lie, one file per step:
// step-00001200.safetensors. Used by one process at a time, by any of its threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <system_error>
#include <vector>

#include "runtime/base/descriptor.h"

namespace dlaunch::nn {

struct CheckpointFile {
  std::uint64_t step = 0;  // optimizer steps done
  std::string path;
};

/// Makes a folder for files that are written atomically, if need be. Throws std::runtime_error if
/// it cannot, or if no files can be made in the folder.
void make_writable_folder(const std::string& directory);

/// A lock on a folder for this process alone, which ends with the descriptor or the process, and of
/// which nothing is left in the folder. Not open if another process has it. Where the file system
/// knows no locks (NFS knows none on folders) all get it.
Descriptor try_to_lock_folder(const std::string& directory);

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  std::string path_of(std::uint64_t step) const;
  /// By step, ascending; none if there is no such folder. Throws DataError if it cannot be read.
  std::vector<CheckpointFile> list() const;
  /// Makes the folder (make_writable_folder), and removes what killed writers of checkpoints left
  /// in it, and nothing else. Throws std::runtime_error.
  void prepare() const;
  /// Removes all but the newest `count` of the checkpoints after step `begin`; those up to there
  /// are another run's.
  void keep_newest(std::size_t count, std::uint64_t begin = 0) const;
  /// Removes the oldest of those, unless it is the newest too. Its path; empty: none was removed.
  std::string remove_oldest(std::uint64_t begin = 0) const;

 private:
  std::vector<CheckpointFile> list(std::error_code& error) const;
  std::vector<CheckpointFile> after(std::uint64_t begin) const;

  std::string directory_;
};

}  // namespace dlaunch::nn
