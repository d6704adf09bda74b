#include "launcher/status/status_command.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include "launcher/hang/hang_report.h"
#include "launcher/status/status_socket.h"
#include "runtime/base/deadline.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/option_errors.h"
#include "runtime/base/option_help.h"

namespace dlaunch {
namespace {

// Stacks are collected one after the other.
constexpr std::chrono::minutes kStackLimit{6};
constexpr std::chrono::seconds kSummaryLimit{5};

Result<std::string> ask(const std::string& path, StatusRequest request, Deadline deadline) {
  auto connection = connect_status(path);
  if (!connection.ok()) return connection.status();
  const int socket = connection->get();
  const char byte = static_cast<char>(request);
  if (send(socket, &byte, 1, MSG_NOSIGNAL) != 1) return Status::from_errno(path, errno);
  std::string text;
  std::array<char, 16 << 10> buffer;
  while (true) {
    pollfd waiting{.fd = socket, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    if (poll(&waiting, 1, static_cast<int>(left)) == 0) {
      return Status(StatusCode::kTimeout, path + ": no answer");
    }
    const ssize_t count = read(socket, buffer.data(), buffer.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count < 0) return Status::from_errno(path, errno);
    if (count == 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
}

struct Job {
  std::string path;
  std::string summary;  // "ID PID ...", a line
  bool answers = true;
};

// An error: the folder in which they are to be found cannot be used.
Result<std::vector<Job>> running_jobs() {
  std::vector<Job> jobs;
  const auto folder = status_folder(false);
  if (folder.status().code() == StatusCode::kNotFound) return jobs;
  if (!folder.ok()) return folder.status();
  for (const std::string& name : jobs_in(*folder)) {
    const std::string path = *folder + "/" + name;
    auto summary = ask(path, StatusRequest::kSummary, Deadline::after(kSummaryLimit));
    if (summary.status().code() == StatusCode::kTimeout) {
      jobs.push_back({path, name + " - does not answer: its dlaunch is stopped\n", false});
    } else if (summary.ok() && !summary->empty()) {
      jobs.push_back({path, *std::move(summary)});
    }
  }
  return jobs;
}

// By its id, the beginning of that, or the process id of its dlaunch.
bool is_named(const Job& job, const std::string& name) {
  const auto space = job.summary.find(' ');
  const auto pid_start = job.summary.find_first_not_of(' ', space);
  const std::string pid =
      job.summary.substr(pid_start, job.summary.find(' ', pid_start) - pid_start);
  return pid == name || (name.size() >= 4 && job.summary.starts_with(name));
}

int list_jobs(const std::vector<Job>& jobs) {
  if (jobs.empty()) {
    std::fputs("no job of this user is running on this machine\n", stdout);
    return kExitOk;
  }
  std::fputs("JOB          PID      RANKS ATTEMPT TIME      COMMAND\n", stdout);
  for (const Job& job : jobs) std::fputs(job.summary.c_str(), stdout);
  return kExitOk;
}

std::string id_of(const Job& job) {
  return job.summary.substr(0, job.summary.find(' '));
}

int refuse_job(const std::string& why) {
  std::fprintf(stderr, "dlaunch: %s\n", why.c_str());
  return kExitFailure;
}

// None of those that answer is called so. One that does not answer does not tell its process id.
int job_is_missing(const std::vector<Job>& jobs, const std::string& name) {
  std::string silent;
  for (const Job& job : jobs) {
    if (!job.answers) silent += "; job " + id_of(job) + " does not answer: its dlaunch is stopped";
  }
  return refuse_job("no running job of this user is called '" + name + "'" + silent +
                    "; see dlaunch status");
}

// Several of one id are nodes of one job on this machine: each whose ranks run can tell of all.
int show_job(const std::vector<Job>& jobs, const std::string& name, StatusRequest request) {
  std::vector<Job> found;
  std::ranges::copy_if(jobs, std::back_inserter(found),
                       [&](const Job& job) { return is_named(job, name); });
  if (found.empty()) return job_is_missing(jobs, name);
  for (const Job& job : found) {
    if (id_of(job) == id_of(found.front())) continue;
    return refuse_job("more than one job of this user is called '" + name +
                      "'; see dlaunch status");
  }
  Result<std::string> answer =
      Status(StatusCode::kTimeout,
             "job " + id_of(found.front()) + " does not answer: its dlaunch is stopped");
  for (const Job& job : found) {
    if (!job.answers) continue;
    answer = ask(job.path, request, Deadline::after(kStackLimit));
    if (answer.ok() && answer->find(kNoRanksRun) == std::string::npos) break;
  }
  if (!answer.ok()) return refuse_job(answer.status().to_string());
  std::fputs(answer->c_str(), stdout);
  return kExitOk;
}

}  // namespace

int status_command(int argc, const char* const* argv) {
  CLI::App app(
      "Lists this user's running jobs on this machine, or tells what the ranks of one are doing.",
      "dlaunch status");
  app.formatter(std::make_shared<OptionHelp>());
  std::string name;
  bool without_stacks = false;
  app.add_option("JOB", name, "Id of the job, or process id of its dlaunch");
  app.add_flag("--no-stacks", without_stacks, kNoStacksHelp);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(app.help().c_str(), stdout);
    return kExitOk;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "dlaunch: status: %s\n", refusal(app, error).c_str());
    return kLauncherFailure;
  }
  const auto jobs = running_jobs();
  if (!jobs.ok()) return refuse_job(jobs.status().to_string());
  if (name.empty()) return list_jobs(*jobs);
  return show_job(*jobs, name,
                  without_stacks ? StatusRequest::kActivities : StatusRequest::kStacks);
}

}  // namespace dlaunch
