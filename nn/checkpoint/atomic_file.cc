#include "nn/checkpoint/atomic_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <spdlog/fmt/fmt.h>

namespace dlaunch::nn {
namespace {

constexpr std::string_view kMark = ".partial-";  // and the writer's pid

/// The name of the file that a temporary one of this name was to become; empty: it is none.
std::string_view name_within(std::string_view temporary) {
  const std::size_t mark = temporary.rfind(kMark);
  if (mark == std::string_view::npos) return {};
  const std::string_view pid = temporary.substr(mark + kMark.size());
  if (pid.empty() || pid.find_first_not_of("0123456789") != std::string_view::npos) return {};
  return temporary.substr(0, mark);
}

[[noreturn]] void fail(const std::string& path, int error_number) {
  throw std::system_error(error_number, std::generic_category(), "cannot write " + path);
}

/// The system's number of the error, 0 if there was none. A folder that must not be read, or on a
/// file system that flushes no folders, cannot be flushed: the file is in place all the same.
int flush_folder(const std::string& path) {
  const Descriptor folder(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder.is_open()) return errno == EACCES ? 0 : errno;
  if (::fsync(folder.get()) == 0) return 0;
  return errno == EINVAL || errno == ENOTSUP || errno == EBADF ? 0 : errno;
}

}  // namespace

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}{}{}", path_, kMark, ::getpid())) {
  constexpr mode_t kLikeAnyFile = 0666;
  file_ = Descriptor(
      ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, kLikeAnyFile));
  if (!file_.is_open()) fail(path_, errno);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file_.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(path_, errno);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

void AtomicFile::commit() {
  if (::fsync(file_.get()) != 0) fail(path_, errno);
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, errno);
  temporary_.clear();
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  if (const int error = flush_folder(parent.empty() ? "." : parent); error != 0) fail(path_, error);
}

void AtomicFile::remove_leftovers(const std::string& directory,
                                  const std::function<bool(std::string_view)>& is_own) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string temporary = entry->path().filename().string();
    const std::string_view name = name_within(temporary);
    std::error_code ignored;
    const bool is_file = std::filesystem::is_regular_file(entry->symlink_status(ignored));
    if (is_file && !name.empty() && is_own(name)) std::filesystem::remove(entry->path(), ignored);
  }
}

}  // namespace dlaunch::nn
