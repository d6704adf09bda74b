#include "launcher/output/rank_logs.h"

#include <cerrno>
#include <filesystem>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr int kStreams = 2;

}  // namespace

Status make_log_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Status::from_errno("--log-dir: " + folder, error.value());
  if (access(folder.c_str(), W_OK | X_OK) == 0) return {};
  return Status::from_errno("--log-dir: " + folder, errno);
}

Status RankLogs::open(int attempt, int rank) {
  if (folder_.empty()) return {};
  for (const Stream stream : {Stream::kOutput, Stream::kError}) files_.erase({rank, stream});
  Status made = make_files(attempt, rank);
  if (!made.ok() && attempt == 0) return made;
  opened_ += kStreams;
  if (!made.ok()) incomplete_ += kStreams;
  return made;
}

Status RankLogs::make_files(int attempt, int rank) {
  const std::string folder =
      folder_ + "/attempt-" + std::to_string(attempt) + "/rank-" + std::to_string(rank);
  DLAUNCH_RETURN_IF_ERROR(make_log_folder(folder));
  for (const Stream stream : {Stream::kOutput, Stream::kError}) {
    const std::string path = folder + (stream == Stream::kOutput ? "/stdout" : "/stderr");
    // A FIFO that nobody reads is an error, and no reason to wait.
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NONBLOCK;
    Descriptor file(::open(path.c_str(), kFlags, 0666));
    if (!file.is_open()) return Status::from_errno("--log-dir: " + path, errno);
    ::fcntl(file.get(), F_SETFL, 0);
    files_[{rank, stream}] = {path, std::move(file)};
  }
  return {};
}

std::optional<std::string> RankLogs::write(int rank, Stream stream, std::string_view bytes) {
  const auto found = files_.find({rank, stream});
  if (found == files_.end()) return std::nullopt;
  File& file = found->second;
  while (!bytes.empty() && file.descriptor.is_open()) {
    const ssize_t count = ::write(file.descriptor.get(), bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      const std::string why = std::generic_category().message(errno);
      file.descriptor.close();
      if (++incomplete_ > 1) return std::nullopt;
      return "--log-dir: " + file.path + ": " + why +
             "; the job goes on, what cannot be written is not kept";
    }
  }
  return std::nullopt;
}

std::optional<std::string> RankLogs::summary() {
  if (incomplete_ == 0 || std::exchange(summarised_, true)) return std::nullopt;
  return "--log-dir: " + std::to_string(incomplete_) + " of " + std::to_string(opened_) +
         " files are incomplete";
}

}  // namespace dlaunch
