#include "launcher/status/status_socket.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include <dirent.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

namespace dlaunch {
namespace {

constexpr const char* kLongestName = "/.0123456789ab";  // of a socket that is being made
constexpr std::size_t kJobIdDigits = 12;

std::string folder_path() {
  const char* named =
      std::getenv("DLAUNCH_STATUS_DIR");  // NOLINT(concurrency-mt-unsafe): read only
  if (named != nullptr && *named != '\0') return named;
  return "/tmp/dlaunch-" + std::to_string(getuid());
}

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    return Status(StatusCode::kInvalidArgument, path + ": too long for a socket");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// The folder may be one in which the user keeps other things: nothing that is no job's socket is to
// be connected to, let alone removed.
bool is_job_socket(const std::string& folder, const std::string& name) {
  if (name.size() != kJobIdDigits ||
      name.find_first_not_of("0123456789abcdef") != std::string::npos)
    return false;
  struct stat entry {};
  return lstat((folder + "/" + name).c_str(), &entry) == 0 && S_ISSOCK(entry.st_mode);
}

}  // namespace

Result<std::string> status_folder(bool create) {
  const std::string path = folder_path();
  DLAUNCH_RETURN_IF_ERROR(address_of(path + kLongestName).status());
  if (create && mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return Status::from_errno(path, errno);
  }
  struct stat folder {};
  if (lstat(path.c_str(), &folder) != 0) {
    if (errno == ENOENT) return Status(StatusCode::kNotFound, path + ": does not exist");
    return Status::from_errno(path, errno);
  }
  if (!S_ISDIR(folder.st_mode) || folder.st_uid != getuid() || (folder.st_mode & 077) != 0) {
    return Status(StatusCode::kInvalidArgument,
                  path + ": is not a folder of this user that is closed to others");
  }
  return path;
}

std::vector<std::string> jobs_in(const std::string& folder) {
  std::vector<std::string> jobs;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(folder.c_str()), &closedir);
  if (!entries) return jobs;
  while (const dirent* entry = readdir(entries.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    if (is_job_socket(folder, entry->d_name)) jobs.emplace_back(entry->d_name);
  }
  std::sort(jobs.begin(), jobs.end());
  return jobs;
}

Result<Descriptor> connect_status(const std::string& path) {
  const auto address = address_of(path);
  if (!address.ok()) return address.status();
  // Without waiting: a job that is stopped (Ctrl-Z) takes no connections, and soon has no room for
  // further ones.
  Descriptor connection(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!connection.is_open()) return Status::from_errno("socket", errno);
  if (connect(connection.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) !=
      0) {
    if (errno == ECONNREFUSED || errno == ENOENT) {
      return Status(StatusCode::kUnavailable, path + ": nobody listens there");
    }
    if (errno == EAGAIN) {
      return Status(StatusCode::kTimeout, path + ": takes no connections; its dlaunch is stopped");
    }
    return Status::from_errno(path, errno);
  }
  if (!is_own_user(connection.get())) {
    return Status(StatusCode::kUnauthenticated, path + ": belongs to another user's process");
  }
  return connection;
}

Result<Descriptor> listen_status(const std::string& folder, const std::string& job_id) {
  const std::string path = folder + "/." + job_id;  // not yet to be found
  const auto address = address_of(path);
  if (!address.ok()) return address.status();
  Descriptor listener(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.is_open()) return Status::from_errno("socket", errno);
  if (bind(listener.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0 ||
      listen(listener.get(), 16) != 0 ||
      rename(path.c_str(), (folder + "/" + job_id).c_str()) != 0) {
    return Status::from_errno(path, errno);
  }
  return listener;
}

bool is_own_user(int socket) {
  ucred peer{};
  socklen_t length = sizeof peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) return false;
  return peer.uid == getuid() || peer.uid == 0;
}

}  // namespace dlaunch
