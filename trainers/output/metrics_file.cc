#include "trainers/output/metrics_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>

#include "trainers/output/set_aside.h"

namespace dlaunch {
namespace {

/// Whether a process was killed, or a disk was full, in the middle of the last line.
bool ends_within_a_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return file.seekg(-1, std::ios::end) && file.get() != '\n';
}

/// Whether a line of metrics tells what an epoch, or a whole run, has come to, or is not dtrain's
/// and thus worth keeping.
bool is_result(const std::string& line) {
  constexpr std::array<const char*, 5> kBefore{"start", "resume", "step", "unused_parameters",
                                               "failed"};
  const auto json = nlohmann::json::parse(line, nullptr, false);
  return !json.is_object() ||
         std::ranges::find(kBefore, json.value("event", nlohmann::json())) == kBefore.end();
}

bool has_results(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  for (std::string line; std::getline(file, line);)
    if (is_result(line)) return true;
  return false;
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
  if (!append) {
    // Not in the place of what a run before has achieved.
    const bool has_previous = std::filesystem::exists(file_->path() + kPreviousSuffix);
    if (file_->is_empty() || !has_previous || has_results(file_->path())) return file_->set_aside();
    file_->clear();
    return "";
  }
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
