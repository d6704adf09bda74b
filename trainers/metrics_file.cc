#include "trainers/metrics_file.h"

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

[[noreturn]] void fail(const std::string& path, const std::error_code& error) {
  throw std::runtime_error(
      fmt::format("{}: cannot write metrics: {}; set output.directory", path, error.message()));
}

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, const std::string& name, bool append)
    : path_((std::filesystem::path(directory) / name).string()) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), error);
  if (error) fail(path_, error);
  file_.reset(std::fopen(path_.c_str(), append ? "ae" : "we"));
  if (file_ == nullptr) fail(path_, {errno, std::generic_category()});
}

void MetricsFile::write(const nlohmann::ordered_json& line) {
  if (file_ == nullptr) return;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size() ||
      std::fflush(file_.get()) != 0)
    fail(path_, {errno, std::generic_category()});
}

}  // namespace dlaunch
