#include "trainers/output/set_aside.h"

#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {

std::string set_aside(const std::string& path, bool stay) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) return "";
  std::string previous = path + kPreviousSuffix;
  if (stay) {
    fs::copy_file(path, previous, fs::copy_options::overwrite_existing, error);
  } else {
    fs::rename(path, previous, error);
  }
  if (error)
    throw std::runtime_error(
        fmt::format("{}: of an earlier run; cannot set it aside as {}: {}; set output.directory",
                    path, previous, error.message()));
  return previous;
}

}  // namespace dlaunch
