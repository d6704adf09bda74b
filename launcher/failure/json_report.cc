#include "launcher/failure/json_report.h"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "launcher/base/same_file.h"
#include "launcher/supervision/signals.h"

namespace dlaunch {
namespace {

using nlohmann::ordered_json;

double in_seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

// "2026-05-01T12:00:00.123Z"
std::string utc(std::chrono::system_clock::time_point time) {
  const auto whole = std::chrono::floor<std::chrono::seconds>(time);
  const auto milliseconds = std::chrono::floor<std::chrono::milliseconds>(time - whole).count();
  const std::time_t stamp = std::chrono::system_clock::to_time_t(whole);
  std::tm parts{};
  gmtime_r(&stamp, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03dZ", static_cast<int>(milliseconds));
  return text;
}

std::string_view name_of(AttemptOutcome::Cause cause) {
  switch (cause) {
    case AttemptOutcome::Cause::kNone:
      return "finished";
    case AttemptOutcome::Cause::kRankFailed:
      return "rank failed";
    case AttemptOutcome::Cause::kTimeout:
      return "timeout";
    case AttemptOutcome::Cause::kSignal:
      return "signal";
    case AttemptOutcome::Cause::kElsewhere:
      return "other node";
  }
  return "";
}

std::string_view role_of(const AttemptOutcome& attempt, std::size_t index) {
  const RankOutcome& rank = attempt.ranks[index];
  if (rank.running) return "could not be killed";
  if (!rank.failed()) return "finished";
  if (attempt.cause != AttemptOutcome::Cause::kRankFailed) return "ended";
  return index == attempt.first_failed ? "first failure" : "collateral";
}

ordered_json rank_to_json(const AttemptOutcome& attempt, std::size_t index,
                          const std::string& host) {
  const RankOutcome& rank = attempt.ranks[index];
  const bool signalled = !rank.running && WIFSIGNALED(rank.wait_status);
  ordered_json result{{"rank", rank.rank},
                      {"host", host},
                      {"pid", rank.pid},
                      {"role", role_of(attempt, index)},
                      {"exit_code", nullptr},
                      {"signal", nullptr},
                      {"signal_name", nullptr},
                      {"told_to_end", rank.signalled},
                      {"seconds", in_seconds(rank.lifetime)},
                      {"peak_memory_bytes", rank.peak_memory},
                      {"user_seconds", in_seconds(rank.user_time)},
                      {"system_seconds", in_seconds(rank.system_time)},
                      {"start_up",
                       {{"spawned", in_seconds(rank.spawned)},
                        {"executed", in_seconds(rank.executed)},
                        {"ready", nullptr}}},
                      {"last_lines", rank.last_lines}};
  if (rank.ready) result["start_up"]["ready"] = in_seconds(*rank.ready);
  if (signalled) {
    result["signal"] = WTERMSIG(rank.wait_status);
    result["signal_name"] = signal_name(WTERMSIG(rank.wait_status));
  } else if (!rank.running) {
    result["exit_code"] = WEXITSTATUS(rank.wait_status);
  }
  return result;
}

ordered_json attempt_to_json(const AttemptOutcome& attempt, const std::string& host) {
  ordered_json ranks = ordered_json::array();
  for (std::size_t i = 0; i < attempt.ranks.size(); ++i) {
    ranks.push_back(rank_to_json(attempt, i, host));
  }
  ordered_json result{{"number", attempt.number},
                      {"started", utc(attempt.started)},
                      {"seconds", in_seconds(attempt.duration)},
                      {"got_ready", attempt.got_ready},
                      {"ended_by", name_of(attempt.cause)},
                      {"first_failure", nullptr},
                      {"ranks", std::move(ranks)}};
  if (attempt.failure) result["first_failure"] = to_json(*attempt.failure);
  if (attempt.failure_elsewhere) result["first_failure"] = to_json(*attempt.failure_elsewhere);
  if (!attempt.verdict.empty()) result["verdict"] = attempt.verdict;
  if (attempt.cause == AttemptOutcome::Cause::kSignal) {
    result["signal_name"] = signal_name(attempt.signal);
  }
  return result;
}

ordered_json describe_node(int node, const std::string& host, int first_rank, std::size_t ranks,
                           bool lost) {
  return {
      {"node", node}, {"host", host}, {"first_rank", first_rank}, {"ranks", ranks}, {"lost", lost}};
}

// What another node tells of its ranks; nothing if the text is no such account, for whoever has the
// job's secret can write it.
std::optional<ordered_json> told_ranks(const std::string& text) {
  const ordered_json told = ordered_json::parse(text, nullptr, false);
  if (!told.is_object() || !told.contains("ranks") || !told["ranks"].is_array()) return {};
  const auto is_rank = [](const ordered_json& rank) {
    return rank.is_object() && rank.contains("rank") && rank.contains("role");
  };
  if (!std::ranges::all_of(told["ranks"], is_rank)) return {};
  return told["ranks"];
}

// Each node takes the first failure of its own ranks for the job's.
void correct_roles(ordered_json& ranks, const ordered_json& first_failure) {
  if (first_failure.is_null()) return;
  for (ordered_json& rank : ranks) {
    const bool failed = rank["role"] == "first failure" || rank["role"] == "ended";
    if (!failed) continue;
    rank["role"] = rank["rank"] == first_failure["rank"] ? "first failure" : "collateral";
  }
}

// Adds what the other nodes of the job tell.
ordered_json with_other_nodes(ordered_json result, const AttemptOutcome& attempt,
                              const std::string& host) {
  if (attempt.others.empty()) return result;
  ordered_json& ranks = result["ranks"];
  ordered_json nodes = ordered_json::array();
  const int own_first = attempt.ranks.empty() ? 0 : attempt.ranks.front().rank;
  nodes.push_back(describe_node(attempt.node, host, own_first, attempt.ranks.size(), false));
  for (const NodeOutcome& other : attempt.others) {
    const auto told = told_ranks(other.text);
    nodes.push_back(describe_node(other.node, other.host, other.first_rank,
                                  static_cast<std::size_t>(other.ranks), other.lost && !told));
    if (!told) continue;
    for (const ordered_json& rank : *told) ranks.push_back(rank);
  }
  const auto by = [](const char* field) {
    return [field](const ordered_json& a, const ordered_json& b) { return a[field] < b[field]; };
  };
  std::sort(ranks.begin(), ranks.end(), by("rank"));
  std::sort(nodes.begin(), nodes.end(), by("node"));
  correct_roles(ranks, result["first_failure"]);
  result["nodes"] = std::move(nodes);
  return result;
}

// This process's stdout or stderr if `file` is a regular one and that leads to it; else -1.
int output_to(int file) {
  struct stat about {};
  if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode)) return -1;
  for (const int output : {STDOUT_FILENO, STDERR_FILENO}) {
    if (same_file(file, output)) return output;
  }
  return -1;
}

}  // namespace

std::string attempt_report(const AttemptOutcome& attempt, const std::string& host,
                           std::size_t most_bytes) {
  ordered_json report = attempt_to_json(attempt, host);
  const auto text = [&] {
    return report.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
  };
  if (std::string whole = text(); whole.size() <= most_bytes) return whole;
  for (ordered_json& rank : report["ranks"]) rank["last_lines"] = ordered_json::array();
  return text();
}

std::string json_report(const JobOutcome& job, int exit_code, const std::string& error) {
  ordered_json result{{"format", 1},
                      {"dlaunch", DLAUNCH_VERSION},
                      {"job", job.job_id},
                      {"host", job.host},
                      {"command", job.command},
                      {"exit_code", exit_code},
                      {"launcher_error", nullptr},
                      {"restarts", {{"used", job.restarts}, {"allowed", job.max_restarts}}},
                      {"first_failure", nullptr},
                      {"attempts", ordered_json::array()}};
  if (!error.empty()) result["launcher_error"] = error;
  for (const AttemptOutcome& attempt : job.attempts) {
    result["attempts"].push_back(
        with_other_nodes(attempt_to_json(attempt, job.host), attempt, job.host));
  }
  if (!job.attempts.empty()) result["first_failure"] = result["attempts"].back()["first_failure"];
  // What ranks have written need not be UTF-8.
  return result.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<ReportFile> ReportFile::open(const std::string& path) {
  // A FIFO is not waited for until somebody reads it, nor in write(): nothing could interrupt that.
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644));
  if (!file.is_open() && errno == ENXIO) {
    return Status(StatusCode::kUnavailable, "--report " + path + ": nobody reads it");
  }
  if (!file.is_open()) return Status::from_errno("--report " + path, errno);
  // What others have written there stays, and what the ranks write: the report goes on from there.
  if (const int output = output_to(file.get()); output >= 0) {
    Descriptor shared(fcntl(output, F_DUPFD_CLOEXEC, 0));
    if (!shared.is_open()) return Status::from_errno("--report " + path, errno);
    return ReportFile(path, std::move(shared));
  }
  // An earlier job's must not be taken for this one's. A device or a pipe cannot be cut.
  if (ftruncate(file.get(), 0) != 0 && errno != EINVAL) {
    return Status::from_errno("--report " + path, errno);
  }
  return ReportFile(path, std::move(file));
}

Status ReportFile::write(const std::string& text, const std::function<bool(int)>& wait) {
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::write(file_.get(), rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (wait(file_.get())) continue;
      return Status(StatusCode::kUnavailable, "--report " + path_ + ": nobody reads all of it");
    }
    if (count < 0) return Status::from_errno("--report " + path_, errno);
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  return {};
}

}  // namespace dlaunch
