#include "trainers/output/metrics_file.h"

#include <filesystem>
#include <fstream>

namespace dlaunch {
namespace {

/// Whether a process was killed, or a disk was full, in the middle of the last line.
bool ends_within_a_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

}  // namespace

MetricsFile::MetricsFile(const std::string& directory, const std::string& name) {
  const std::filesystem::path path = std::filesystem::path(directory) / name;
  const char* advice = std::filesystem::path(name).is_absolute()
                           ? "set output.metrics, or to \"\" for none"
                           : "set output.directory, or output.metrics to \"\"";
  file_ = std::make_unique<RecordFile>(path.string(), RecordFile::Words{"metrics", advice});
}

std::string MetricsFile::begin(bool append) {
  if (file_ == nullptr) return "";
  if (!append) return file_->set_aside();
  if (!file_->is_empty() && ends_within_a_line(file_->path())) file_->append("\n");
  return "";
}

void MetricsFile::write(const nlohmann::ordered_json& line) {
  if (file_ != nullptr)
    file_->append(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void MetricsFile::finish() {
  if (file_ != nullptr) file_->finish();
}

}  // namespace dlaunch
