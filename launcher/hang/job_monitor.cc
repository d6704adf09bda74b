#include "launcher/hang/job_monitor.h"

#include <cstdio>
#include <vector>

#include <unistd.h>

#include "launcher/failure/report.h"

namespace dlaunch {
namespace {

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

}  // namespace

JobMonitor::JobMonitor(EventLoop& loop, OutputRelay& relay, const JobOutcome& job,
                       const Options& options)
    : loop_(loop),
      relay_(relay),
      job_(job),
      options_(options),
      inspector_(loop, options.signal_mask),
      server_(loop, job.job_id, [this](StatusRequest request, const StatusServer::Answer& answer) {
        serve(request, answer);
      }) {}

void JobMonitor::begin_attempt(const JobIdentity& job, const Supervisor& supervisor,
                               const ActivityBoard& board) {
  attempt_ = &job;
  supervisor_ = &supervisor;
  inspector_.look_at(&supervisor, &board, job.world);
  stall_watch_.emplace(loop_, board, options_.stall_after, [this](std::chrono::nanoseconds since) {
    report("no rank has made progress for " + seconds(since));
  });
}

void JobMonitor::end_attempt() {
  attempt_ = nullptr;
  supervisor_ = nullptr;
  stall_watch_.reset();
  inspector_.look_at(nullptr, nullptr, 1);
}

void JobMonitor::report(const std::string& why) {
  relay_.write_line("dlaunch: " + why);
  for (const std::string& line : activities()) relay_.write_line("dlaunch: " + line);
  inspector_.collect_stacks([this](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      relay_.write_line(line.starts_with(" ") ? line : "dlaunch: " + line);
    }
  });
}

// What the ranks of this node do, and where to ask about the others.
std::vector<std::string> JobMonitor::activities() const {
  std::vector<std::string> lines = inspector_.activities();
  if (attempt_ == nullptr) return lines;
  for (const NodePlace& other : attempt_->others) {
    const int last = other.first_rank + other.ranks - 1;
    const std::string ranks =
        other.ranks == 1 ? " " + std::to_string(last)
                         : "s " + std::to_string(other.first_rank) + "-" + std::to_string(last);
    lines.push_back("not shown: rank" + ranks + " on node " + std::to_string(other.node) +
                    "; ask there: ssh " + other.host + " dlaunch status " + job_.job_id);
  }
  return lines;
}

// "ID PID RANKS ATTEMPT TIME COMMAND", aligned.
std::string JobMonitor::summary() const {
  const std::size_t attempt = job_.attempts.size() + (supervisor_ != nullptr ? 1 : 0);
  char text[128];
  std::snprintf(text, sizeof text, "%-12s %-8d %-5d %-7zu %-9s ", job_.job_id.c_str(),
                static_cast<int>(getppid()), options_.ranks, attempt,
                seconds(EventLoop::Clock::now() - start_).c_str());
  std::string line = text;
  for (const std::string& word : job_.command) line += word + " ";
  line.back() = '\n';
  return line;
}

void JobMonitor::serve(StatusRequest request, const StatusServer::Answer& answer) {
  const std::string text = summary();
  switch (request) {
    case StatusRequest::kActivities:
      return answer(text + lines_of(activities()));
    case StatusRequest::kStacks:
      return inspector_.collect_stacks([answer, text = text + lines_of(activities())](
                                           const auto& lines) { answer(text + lines_of(lines)); });
    case StatusRequest::kSummary:
      break;
  }
  answer(text);
}

}  // namespace dlaunch
