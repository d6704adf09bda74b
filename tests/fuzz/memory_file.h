// A file without a name, in memory, for code that reads files by their path.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "runtime/base/descriptor.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {

class MemoryFile {
 public:
  explicit MemoryFile(std::string_view content) : file_(memfd_create("fuzz", MFD_CLOEXEC)) {
    const auto bytes = static_cast<ssize_t>(content.size());
    require(write(file_.get(), content.data(), content.size()) == bytes, "there is memory");
  }
  /// Good while this lives.
  std::string path() const { return "/proc/self/fd/" + std::to_string(file_.get()); }

 private:
  Descriptor file_;
};

}  // namespace dlaunch::fuzz
