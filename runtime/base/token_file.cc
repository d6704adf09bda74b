#include "runtime/base/token_file.h"

#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/descriptor.h"
#include "runtime/base/token.h"

namespace dlaunch {
namespace {

// 64 digits, and some white space at the end.
constexpr std::size_t kMostFileBytes = 256;

// The open file is looked at, not its name, so that nobody can exchange it in between.
Status check_access(int file) {
  struct stat about {};
  if (fstat(file, &about) != 0) return Status::from_errno("stat", errno);
  if (!S_ISREG(about.st_mode)) return Status(StatusCode::kInvalidArgument, "not a regular file");
  if (about.st_uid != geteuid() && about.st_uid != 0) {
    return Status(StatusCode::kInvalidArgument, "it belongs to another user");
  }
  if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  "others than its owner have access to it (chmod 600 it)");
  }
  return {};
}

}  // namespace

Result<std::string> read_token_file(const std::string& path) {
  const auto refuse = [&](const Status& why) {
    return Status(StatusCode::kInvalidArgument, "token file '" + path + "': " + why.to_string());
  };
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file.is_open()) return refuse(Status::from_errno("open", errno));
  const Status allowed = check_access(file.get());
  if (!allowed.ok()) return refuse(allowed);
  std::array<char, kMostFileBytes> content{};
  const ssize_t bytes = read(file.get(), content.data(), content.size());
  if (bytes < 0) return refuse(Status::from_errno("read", errno));
  auto token = token_from_hex({content.data(), static_cast<std::size_t>(bytes)});
  if (!token.ok()) return refuse(token.status());
  return token;
}

}  // namespace dlaunch
