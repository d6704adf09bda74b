#include "tests/launcher/launcher_runs.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <memory>
#include <random>
#include <sstream>

#include <dirent.h>
#include <unistd.h>

namespace dlaunch::testing {
namespace {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> found;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), &closedir);
  while (const dirent* entry = readdir(folder.get())) {  // NOLINT(concurrency-mt-unsafe): own DIR
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec == std::errc()) {
      found.push_back(pid);
    }
  }
  return found;
}

// Empty for a process that has gone, and the command line of a zombie is empty too.
std::string content_of(pid_t pid, const char* file) {
  std::ifstream stream("/proc/" + std::to_string(pid) + "/" + file);
  std::ostringstream content;
  content << stream.rdbuf();
  return content.str();
}

}  // namespace

Command ranks_of(const std::string& program, const Strings& actions, const Strings& options) {
  Command command;
  command.arguments.push_back(built_program("dlaunch"));
  command.arguments.insert(command.arguments.end(), options.begin(), options.end());
  command.arguments.emplace_back("--");
  command.arguments.push_back(built_program(program));
  command.arguments.insert(command.arguments.end(), actions.begin(), actions.end());
  return command;
}

Command ranks_that(const Strings& actions, const Strings& options) {
  return ranks_of("test_rank", actions, options);
}

Command ranks_that(const Strings& actions, int ranks) {
  return ranks_that(actions, Strings{"--nproc", std::to_string(ranks)});
}

Command ranks_in_a_script(const std::string& script, const Strings& actions,
                          const Strings& options) {
  Command command = ranks_that(actions, options);
  const auto program = std::ranges::find(command.arguments, built_program("test_rank"));
  const Strings shell{"/bin/sh", "-c", script, "sh"};
  command.arguments.insert(program, shell.begin(), shell.end());
  return command;
}

std::string fresh_mark() {
  std::random_device random;
  return "mark=" + std::to_string(getpid()) + "-" + std::to_string(random());
}

std::vector<pid_t> processes_with(std::string_view mark) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    if (pid == getpid()) continue;
    if (content_of(pid, "cmdline").find(mark) != std::string::npos) found.push_back(pid);
  }
  return found;
}

bool all_gone(std::string_view mark, Deadline deadline) {
  return becomes_true([&] { return processes_with(mark).empty(); }, deadline);
}

bool all_there(std::string_view mark, std::size_t count, Deadline deadline) {
  return becomes_true([&] { return processes_with(mark).size() >= count; }, deadline);
}

bool becomes_zombie(pid_t pid, Deadline deadline) {
  return becomes_true(
      [&] {
        const std::string stat = content_of(pid, "stat");
        const auto name_end = stat.rfind(')');
        return name_end != std::string::npos && stat.compare(name_end, 3, ") Z") == 0;
      },
      deadline);
}

std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const pid_t pid : all_processes()) {
    const std::string stat = content_of(pid, "stat");
    const auto name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    if (std::atoi(stat.c_str() + name_end + 4) == parent) found.push_back(pid);
  }
  return found;
}

Command with_room_for_threads(int threads, const Command& command) {
  constexpr int kStack = 500'000;  // KiB
  const std::string script = "ulimit -s " + std::to_string(kStack) + "; ulimit -v " +
                             std::to_string(kStack * threads + kStack * 4 / 5) + "; exec \"$@\"";
  Command limited = command;
  limited.arguments = {"/bin/sh", "-c", script, "sh"};
  limited.arguments.insert(limited.arguments.end(), command.arguments.begin(),
                           command.arguments.end());
  return limited;
}

}  // namespace dlaunch::testing
