#include "nn/checkpoint/checkpoint_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <system_error>

#include <spdlog/fmt/fmt.h>

#include "nn/checkpoint/atomic_file.h"
#include "nn/data/dataset.h"

namespace dlaunch::nn {
namespace {

constexpr std::string_view kBegin = "step-";
constexpr std::string_view kEnd = ".safetensors";

std::optional<std::uint64_t> step_of(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  const std::string_view digits =
      name.substr(kBegin.size(), name.size() - kBegin.size() - kEnd.size());
  std::uint64_t step = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), step);
  if (error != std::errc() || end != digits.end()) return std::nullopt;
  return step;
}

}  // namespace

void make_writable_folder(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    throw std::runtime_error(fmt::format("cannot make {}: {}", directory, error.message()));
  if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) != 0)
    throw std::runtime_error(
        fmt::format("cannot write to {}: {}", directory, std::generic_category().message(errno)));
}

Descriptor try_to_lock_folder(const std::string& directory) {
  Descriptor folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open())
    throw std::runtime_error(
        fmt::format("cannot open {}: {}", directory, std::generic_category().message(errno)));
  if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) return {};
  return folder;
}

std::string CheckpointFolder::path_of(std::uint64_t step) const {
  return fmt::format("{}/{}{:08}{}", directory_, kBegin, step, kEnd);
}

std::vector<CheckpointFile> CheckpointFolder::list() const {
  std::error_code error;
  std::vector<CheckpointFile> files = list(error);
  // Taken for an empty folder, it would make a run begin anew that is to go on.
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw DataError(fmt::format("{}: cannot be read: {}", directory_, error.message()));
  return files;
}

std::vector<CheckpointFile> CheckpointFolder::list(std::error_code& error) const {
  std::vector<CheckpointFile> files;
  for (std::filesystem::directory_iterator entry(directory_, error), end; !error && entry != end;
       entry.increment(error))
    if (const auto step = step_of(entry->path().filename().string()))
      files.push_back({*step, entry->path().string()});
  std::sort(files.begin(), files.end(),
            [](const CheckpointFile& a, const CheckpointFile& b) { return a.step < b.step; });
  return files;
}

void CheckpointFolder::prepare() const {
  make_writable_folder(directory_);
  AtomicFile::remove_leftovers(directory_,
                               [](std::string_view name) { return step_of(name).has_value(); });
}

/// Those after step `begin` that can be found.
std::vector<CheckpointFile> CheckpointFolder::after(std::uint64_t begin) const {
  std::error_code ignored;  // an old checkpoint too many does no harm
  std::vector<CheckpointFile> files = list(ignored);
  std::erase_if(files, [begin](const CheckpointFile& file) { return file.step <= begin; });
  return files;
}

void CheckpointFolder::keep_newest(std::size_t count, std::uint64_t begin) const {
  const std::vector<CheckpointFile> files = after(begin);
  std::error_code ignored;
  for (std::size_t i = 0; i + count < files.size(); ++i)
    std::filesystem::remove(files[i].path, ignored);
}

std::string CheckpointFolder::remove_oldest(std::uint64_t begin) const {
  const std::vector<CheckpointFile> files = after(begin);
  if (files.size() < 2) return "";
  std::error_code failed;
  std::filesystem::remove(files.front().path, failed);
  return failed ? "" : files.front().path;
}

}  // namespace dlaunch::nn
