// AtomicFile: a file that is there as a whole or not at all, whatever happens while it is written:
// the process is killed, the machine loses its power, the disk is full. What had its name before
// stays until commit().
//
// It is written under a temporary name in the same folder, flushed to the disk, renamed, and then
// the folder is flushed. One thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/descriptor.h"

namespace dlaunch::nn {

class AtomicFile {
 public:
  /// Makes the temporary file. Throws std::system_error, like all that follow, with the path and
  /// the system's reason.
  explicit AtomicFile(std::string path);
  /// Without commit() the temporary file is removed.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes);
  /// Gives the file its name. Once, after all writes.
  void commit();

  /// Removes from a folder what processes left behind that were killed while they wrote a file
  /// whose name `is_own`.
  static void remove_leftovers(const std::string& directory,
                               const std::function<bool(std::string_view)>& is_own);

 private:
  std::string path_;
  std::string temporary_;  // empty once it has been renamed
  Descriptor file_;
};

}  // namespace dlaunch::nn
