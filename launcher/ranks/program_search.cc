#include "launcher/ranks/program_search.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>

#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/exit_codes.h"

namespace dlaunch {
namespace {

// Nothing if `path` can be executed, else why not.
std::optional<ProgramError> check(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == ENOENT || errno == ENOTDIR) {
      return ProgramError{kLauncherNotFound, path + ": there is no such program"};
    }
    return ProgramError{kLauncherNotExecutable,
                        path + ": " + std::generic_category().message(errno)};
  }
  if (S_ISDIR(info.st_mode)) {
    return ProgramError{kLauncherNotExecutable, path + ": is a directory, not a program"};
  }
  if (!S_ISREG(info.st_mode) || access(path.c_str(), X_OK) != 0) {
    return ProgramError{kLauncherNotExecutable,
                        path + ": is not executable (chmod +x, or name its interpreter first)"};
  }
  return std::nullopt;
}

// Where dlaunch lies, and what is installed with it.
std::string own_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace

std::variant<std::string, ProgramError> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (auto error = check(name)) return *error;
    return name;
  }
  if (name.empty()) return ProgramError{kLauncherNotFound, "'': there is no such program"};
  const char* path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): no other thread yet
  const std::string_view folders = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  std::optional<ProgramError> not_executable;
  // An empty one is the current folder, also where it is the last: as for execvp().
  for (std::size_t begin = 0; begin <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', begin), folders.size());
    const std::string folder(folders.substr(begin, end - begin));
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    const auto error = check(candidate);
    if (!error) return candidate;
    // What cannot be looked at, in a folder of somebody else's say, is none: as for a shell.
    if (error->exit_code == kLauncherNotExecutable && !not_executable &&
        access(candidate.c_str(), F_OK) == 0) {
      not_executable = error;
    }
    begin = end + 1;
  }
  if (not_executable) return *not_executable;
  std::string text = name + ": there is no such program in PATH";
  if (std::error_code ignored; std::filesystem::is_directory(name, ignored)) {
    text += ", and " + name + " here is a directory";
  } else if (access(name.c_str(), F_OK) == 0) {
    text +=
        " (did you mean " + (name.ends_with(".py") ? "python3 " : std::string("./")) + name + "?)";
  } else if (const std::string beside = own_folder() + "/" + name; !check(beside)) {
    text += " (did you mean " + beside + "?)";
  }
  return ProgramError{kLauncherNotFound, text};
}

}  // namespace dlaunch
