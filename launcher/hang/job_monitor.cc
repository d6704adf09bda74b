#include "launcher/hang/job_monitor.h"

#include <cstdio>
#include <vector>

#include <unistd.h>

#include "launcher/failure/report.h"

namespace dlaunch {
namespace {

std::string joined(const std::vector<std::string>& lines) {
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
      inspector_(loop, options.signal_mask, options.world),
      server_(loop, job.job_id, [this](StatusRequest request, const StatusServer::Answer& answer) {
        serve(request, answer);
      }) {}

void JobMonitor::begin_attempt(const Supervisor& supervisor, const ActivityBoard& board) {
  supervisor_ = &supervisor;
  inspector_.look_at(&supervisor, &board);
  stall_watch_.emplace(loop_, board, options_.stall_after, [this](std::chrono::nanoseconds since) {
    report("no rank has made progress for " + seconds(since));
  });
}

void JobMonitor::end_attempt() {
  supervisor_ = nullptr;
  stall_watch_.reset();
  inspector_.look_at(nullptr, nullptr);
}

void JobMonitor::report(const std::string& why) {
  relay_.write_line("dlaunch: " + why);
  for (const std::string& line : inspector_.activities()) relay_.write_line("dlaunch: " + line);
  inspector_.collect_stacks([this](const std::vector<std::string>& lines) {
    for (const std::string& line : lines) {
      relay_.write_line(line.starts_with(" ") ? line : "dlaunch: " + line);
    }
  });
}

// "ID PID RANKS ATTEMPT TIME COMMAND", aligned.
std::string JobMonitor::summary() const {
  const std::size_t attempt = job_.attempts.size() + (supervisor_ != nullptr ? 1 : 0);
  char text[128];
  std::snprintf(text, sizeof text, "%-12s %-8d %-5d %-7zu %-9s ", job_.job_id.c_str(),
                static_cast<int>(getppid()), options_.world, attempt,
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
      return answer(text + joined(inspector_.activities()));
    case StatusRequest::kStacks:
      return inspector_.collect_stacks([answer, text = text + joined(inspector_.activities())](
                                           const auto& lines) { answer(text + joined(lines)); });
    case StatusRequest::kSummary:
      break;
  }
  answer(text);
}

}  // namespace dlaunch
