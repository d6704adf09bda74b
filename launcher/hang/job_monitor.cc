#include "launcher/hang/job_monitor.h"

#include <algorithm>
#include <cstdio>
#include <utility>
#include <vector>

#include <unistd.h>

#include "launcher/failure/report.h"

namespace dlaunch {
namespace {

constexpr std::size_t kMostStacks = 16;

std::string lines_of(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text.append(line).append("\n");
  return text;
}

// "node 1 (host2), which has ranks 2-3".
std::string ranks_of(const NodePlace& node) {
  const int last = node.first_rank + node.ranks - 1;
  const std::string ranks =
      node.ranks == 1 ? " " + std::to_string(last)
                      : "s " + std::to_string(node.first_rank) + "-" + std::to_string(last);
  return "node " + std::to_string(node.node) + " (" + node.host + "), which has rank" + ranks;
}

// Without what would move the cursor of the terminal that shows it: control characters, also those
// beyond ASCII, which UTF-8 begins with 0xC2.
std::string printable(std::string_view text) {
  std::string shown;
  bool after_c2 = false;
  for (const char each : text) {
    const auto byte = static_cast<unsigned char>(each);
    if (after_c2 && byte < 0xA0) {
      shown.back() = '?';
    } else {
      shown += byte < 0x20 || byte == 0x7F ? '?' : each;
    }
    after_c2 = byte == 0xC2;
  }
  return shown;
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
      }) {
  if (const Status& why = server_.status(); !why.ok())
    relay_.write_line("dlaunch: dlaunch status will not find this job: " + why.to_string());
}

void JobMonitor::begin_attempt(const JobIdentity& job, const Supervisor& supervisor,
                               const ActivityBoard& board) {
  attempt_ = &job;
  supervisor_ = &supervisor;
  inspector_.look_at(&supervisor, &board);
  stall_watch_.emplace(loop_, board, options_.stall_after, [this](std::chrono::nanoseconds since) {
    report("no rank has made progress for " + seconds(since), true);
  });
}

void JobMonitor::end_attempt() {
  attempt_ = nullptr;
  supervisor_ = nullptr;
  stall_watch_.reset();
  inspector_.look_at(nullptr, nullptr);
}

void JobMonitor::report(const std::string& why, bool stalled) {
  ++reports_;
  relay_.write_line("dlaunch: " + why);
  look(stalled, [this](const View& view) {
    for (const std::string& line : view.lines) relay_.write_line("dlaunch: " + line);
    stacks(view, [this](const std::vector<std::string>& lines) {
      --reports_;
      for (const std::string& line : lines) {
        relay_.write_line(line.starts_with(" ") ? line : "dlaunch: " + line);
      }
    });
  });
}

void JobMonitor::look(bool stalled, const ViewTaker& take) {
  if (attempt_ == nullptr || !elsewhere_) return take(view_with({}));
  elsewhere_({}, stalled,
             [this, take](const std::vector<SeenElsewhere>& seen) { take(view_with(seen)); });
}

JobMonitor::View JobMonitor::view_with(const std::vector<SeenElsewhere>& elsewhere) const {
  View view;
  if (attempt_ == nullptr) {
    view.lines = {std::string(kNoRanksRun) + " here; they have ended, or are about to be started"};
    return view;
  }
  view.world = attempt_->world;
  view.ranks = inspector_.observe();
  std::vector<std::string> silent;
  for (const NodePlace& other : attempt_->others) {
    const auto found = std::ranges::find(elsewhere, other.node, &SeenElsewhere::node);
    if (found == elsewhere.end() || !found->answers) {
      silent.push_back("no answer from " + ranks_of(other));
    } else if (found->ended) {
      silent.push_back("has ended: " + ranks_of(other));
    } else if (found->ranks.empty()) {
      silent.push_back("not running yet: " + ranks_of(other));
    } else {
      view.ranks.insert(view.ranks.end(), found->ranks.begin(), found->ranks.end());
    }
  }
  std::ranges::sort(view.ranks, {}, &ObservedRank::rank);
  view.lines = describe_ranks(view.ranks, view.world, Deadline::Clock::now());
  view.lines.insert(view.lines.end(), silent.begin(), silent.end());
  return view;
}

// Of those that are most worth it; first of the ones here.
void JobMonitor::stacks(const View& view, const Inspector::Sink& sink) {
  std::vector<ObservedRank> wanted = by_interest(view.ranks, view.world);
  const std::size_t left_out = wanted.size() - std::min(wanted.size(), kMostStacks);
  wanted.resize(wanted.size() - left_out);
  std::vector<int> ranks(wanted.size());
  std::ranges::transform(wanted, ranks.begin(), &ObservedRank::rank);
  const auto finish = [left_out, sink](std::vector<std::string> lines) {
    if (left_out > 0) {
      lines.push_back("the stacks of " + std::to_string(left_out) + " more ranks are left out");
    }
    sink(lines);
  };
  collect_stacks(ranks, [this, ranks, finish](const std::vector<std::string>& own) {
    if (attempt_ == nullptr || !elsewhere_) return finish(own);
    elsewhere_(ranks, false, [this, own, ranks, finish](const std::vector<SeenElsewhere>& seen) {
      std::vector<std::string> lines = own;
      for (const SeenElsewhere& node : seen) {
        lines.insert(lines.end(), node.lines.begin(), node.lines.end());
      }
      const std::vector<std::string> missing = without_stacks(ranks, seen);
      lines.insert(lines.end(), missing.begin(), missing.end());
      finish(lines);
    });
  });
}

// A line for each other node that was asked and did not answer.
std::vector<std::string> JobMonitor::without_stacks(const std::vector<int>& ranks,
                                                    const std::vector<SeenElsewhere>& seen) const {
  std::vector<std::string> lines;
  if (attempt_ == nullptr) return lines;
  for (const NodePlace& other : attempt_->others) {
    const bool asked = std::ranges::any_of(ranks, [&](int rank) {
      return rank >= other.first_rank && rank < other.first_rank + other.ranks;
    });
    const auto found = std::ranges::find(seen, other.node, &SeenElsewhere::node);
    if (asked && (found == seen.end() || !found->answers)) {
      lines.push_back("no stacks from " + ranks_of(other));
    }
  }
  return lines;
}

void JobMonitor::collect_stacks(const std::vector<int>& ranks, Inspector::Sink sink) {
  std::vector<ObservedRank> wanted;
  const std::vector<ObservedRank> observed = inspector_.observe();
  for (const int rank : ranks) {
    const auto found = std::ranges::find(observed, rank, &ObservedRank::rank);
    if (found != observed.end()) wanted.push_back(*found);
  }
  inspector_.collect_stacks(wanted, std::move(sink));
}

void JobMonitor::leave_stall_to_others() {
  if (stall_watch_) stall_watch_->hold();
}

void JobMonitor::set_stopped(bool stopped) {
  if (stall_watch_) stall_watch_->set_stopped(stopped);
}

// "ID PID RANKS ATTEMPT TIME COMMAND", aligned.
std::string JobMonitor::summary() const {
  const std::size_t attempt = job_.attempts.size();  // as in --log-dir: the first is 0
  char text[128];
  std::snprintf(text, sizeof text, "%-12s %-8d %-5d %-7zu %-9s ", job_.job_id.c_str(),
                static_cast<int>(getppid()), options_.ranks, attempt,
                seconds(EventLoop::Clock::now() - start_).c_str());
  std::string line = text;
  for (const std::string& word : job_.command) line += printable(word) + " ";
  line.back() = '\n';
  return line;
}

void JobMonitor::serve(StatusRequest request, const StatusServer::Answer& answer) {
  const std::string text = summary();
  if (request != StatusRequest::kActivities && request != StatusRequest::kStacks) {
    return answer(text);
  }
  look(false, [this, request, answer, text](const View& view) {
    const std::string so_far = text + lines_of(view.lines);
    if (request == StatusRequest::kActivities) return answer(so_far);
    stacks(view, [answer, so_far](const std::vector<std::string>& lines) {
      answer(so_far + lines_of(lines));
    });
  });
}

}  // namespace dlaunch
