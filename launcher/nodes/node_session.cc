#include "launcher/nodes/node_session.h"

#include <algorithm>
#include <utility>

#include <sys/epoll.h>
#include <unistd.h>

#include "launcher/nodes/addresses.h"
#include "launcher/nodes/node_report.h"
#include "runtime/base/exit_codes.h"
#include "runtime/base/token.h"

namespace dlaunch {
namespace {

using namespace std::chrono_literals;

// Nodes that come together within this time do so silently.
constexpr auto kPatience = 1s;
// And those that end their ranks.
constexpr auto kEndPatience = 2s;

// Where every machine that is told the same endpoint meets itself alone.
std::string advice_on(const NodeSettings& settings) {
  if (!is_loopback_by_name(settings.host) && !is_unspecified(settings.host)) return "";
  return settings.host +
         " means a different machine on every node: give --rdzv-endpoint a name or address that "
         "the other nodes reach";
}

}  // namespace

NodeAgent::Options describe_node(const NodeSettings& settings, const JobOptions& options,
                                 const std::string& job_id, const std::string& host,
                                 std::uint16_t master_port) {
  std::string nodes = std::to_string(settings.least);
  if (settings.most != settings.least) nodes += ":" + std::to_string(settings.most);
  const int pid = getpid();
  MemberRecord self{
      .id = host + ":" + std::to_string(pid) + ":" + token_to_hex(make_token()).substr(0, 8),
      .host = host,
      .pid = pid,
      .version = DLAUNCH_VERSION,
      .nodes = nodes,
      .run_id = settings.run_id,
      .node_rank = settings.node_rank.value_or(-1),
      .ranks = options.ranks,
      .master_port = master_port,
      .wants_outcomes = !options.supervision.report.empty(),
      .grace_ms = std::chrono::ceil<std::chrono::milliseconds>(options.supervision.grace).count()};
  NodeCoordinator::Options coordinator{.least = settings.least,
                                       .most = settings.most,
                                       .nodes = nodes,
                                       .version = DLAUNCH_VERSION,
                                       .run_id = settings.run_id,
                                       .job_id = job_id,
                                       .host_id = self.id,
                                       .advice = [settings] { return advice_on(settings); },
                                       .max_restarts = options.supervision.max_restarts,
                                       .restart_delay = options.supervision.restart_delay,
                                       .join_timeout = settings.join_timeout,
                                       .longest_silence = settings.longest_silence,
                                       .settle = settings.last_call};
  return {.settings = settings, .self = std::move(self), .coordinator = std::move(coordinator)};
}

NodeSession::NodeSession(EventLoop& loop, OutputRelay& relay, NodeAgent::Options options)
    : loop_(loop), relay_(relay), agent_(std::move(options)) {
  loop_.add(agent_.event_descriptor(), EPOLLIN, [this] { take_events(); });
}

NodeSession::~NodeSession() {
  if (patience_) loop_.cancel(*patience_);
  loop_.remove(agent_.event_descriptor());
}

bool NodeSession::over() const {
  return error_ || left_ || gave_up_ ||
         (verdict_ && verdict_->action != VerdictRecord::Action::kAgain);
}

std::optional<RoundRecord> NodeSession::next_round(const std::function<bool()>& interrupted) {
  if (over()) return std::nullopt;
  notices_shown_ = false;
  patience_ = loop_.call_at(EventLoop::Clock::now() + kPatience, [this] {
    patience_.reset();
    notices_shown_ = true;
    show_notice();
  });
  while (!coming_ && !over() && !interrupted()) loop_.run_once();
  if (patience_) loop_.cancel(*patience_);
  patience_.reset();
  notice_.clear();
  if (over() && verdict_ && !error_) {
    for (const std::string& line : make_node_report(*verdict_)) relay_.write_line(line);
  }
  if (!coming_ || over() || interrupted()) return std::nullopt;
  current_ = coming_->number;
  round_ = *std::exchange(coming_, std::nullopt);
  return round_;
}

void NodeSession::when_round_stops(std::function<void()> end) {
  end_ = std::move(end);
  if ((stopped_ == current_ || error_) && end_) end_();
}

bool NodeSession::end_round(const EndedRecord& ended, const std::string& outcome,
                            const User& user) {
  end_ = nullptr;
  if (error_) return false;
  const int round = std::exchange(current_, -1);
  ended_ = round;
  notices_shown_ = false;
  agent_.report(round, ended, outcome);
  const auto judged = [&] { return verdict_ && verdict_->number == round; };
  // Where all went well, ranks of other nodes may have work for days.
  bool to_end = ended.how != EndedRecord::How::kFinished;
  using How = EndedRecord::How;
  bool departs = ended.how == How::kSignal || ended.how == How::kTimeout;
  while (!judged() && !over() && !to_end) {
    to_end = stopped_ == round;
    if (const auto by_user = to_end ? std::nullopt : user.departure()) {
      left_ = by_user->silent;
      if (left_) return false;
      agent_.leave(by_user->ended);
      to_end = departs = true;
    }
    if (!to_end) loop_.run_once();
  }
  if (to_end) await_end_elsewhere(departs, judged, user);
  // A lost node would be waited for while the next round runs.
  if (asking_) agent_.give_up_asking();
  return judged() && !error_;
}

// All nodes are to end their ranks, and have a limit for it. `departs`: as the user of this node
// has said before, so that a further signal ends the waiting.
void NodeSession::await_end_elsewhere(bool departs, const std::function<bool()>& judged,
                                      const User& user) {
  const auto now = EventLoop::Clock::now();
  bool late = false;
  const auto limit = loop_.call_at(now + std::chrono::milliseconds(round_->verdict_limit_ms),
                                   [&] { late = true; });
  const auto patience = loop_.call_at(now + kEndPatience, [this] {
    relay_.write_line(
        "dlaunch: waiting for the other nodes to end their ranks; Ctrl-C ends the waiting");
  });
  int signals = user.signals();
  while (!judged() && !over() && !late) {
    const auto departure = departs ? std::nullopt : user.departure();
    if (departure && !departure->lost) {
      agent_.leave(departure->ended);
      departs = true;
      signals = user.signals();
      gave_up_ = departure->silent;
    } else {
      gave_up_ = (departs || departure) && user.signals() != signals;
    }
    if (!gave_up_) loop_.run_once();
  }
  loop_.cancel(limit);
  loop_.cancel(patience);
  if (late) error_ = NodeError{kLauncherNodeLost, "the node with the store does not decide"};
}

void NodeSession::end_between(const EndedRecord& ended) {
  if (!over()) agent_.leave(ended);
}

int NodeSession::node_of(const RoundRecord& round) const {
  const auto own = std::find_if(round.nodes.begin(), round.nodes.end(),
                                [&](const auto& node) { return node.id == agent_.id(); });
  return static_cast<int>(own - round.nodes.begin());
}

void NodeSession::take_events() {
  for (NodeEvent& event : agent_.take_events()) {
    std::visit([this](auto& each) { take(std::move(each)); }, event);
  }
}

void NodeSession::take(NodeNotice notice) {
  notice_ = std::move(notice.line);
  if (notices_shown_ && current_ < 0) show_notice();
}

void NodeSession::show_notice() {
  if (!notice_.empty()) relay_.write_line("dlaunch: " + std::exchange(notice_, ""));
}

// After the last verdict nothing is needed from the store, which may be gone before ranks that end
// slowly.
void NodeSession::take(NodeError error) {
  if (over()) return;
  error_ = std::move(error);
  if (end_) end_();
}

// A newcomer is shown rounds without it, and those that have been.
void NodeSession::take(RoundRecord round) {
  if (node_of(round) == static_cast<int>(round.nodes.size())) return;
  coming_ = std::move(round);
}

void NodeSession::take(const StopRecord& stop) {
  // It may come together with its round, before that is taken up.
  stopped_ = stop.number;
  if (stopped_ == current_ && end_) end_();
}

void NodeSession::take(VerdictRecord verdict) {
  verdict_ = std::move(verdict);
  notice_.clear();  // of the round that is over
}

void NodeSession::ask(LookRecord look, std::chrono::nanoseconds limit, Take take) {
  look.question = agent_.id() + "." + std::to_string(++questions_asked_);
  look.round = current_;
  questions_.push_back({std::move(look), limit, std::move(take)});
  ask_next();
}

// Unless one is being asked. What was to be asked about a round that is over is given up, as is
// what is being asked (end_round).
void NodeSession::ask_next() {
  while (!asking_ && !questions_.empty()) {
    if (current_ >= 0 && questions_.front().look.round == current_) {
      asking_ = true;
      return agent_.ask(questions_.front().look, *round_, questions_.front().limit);
    }
    const Take take = std::move(questions_.front().take);
    questions_.pop_front();
    take({});
  }
}

void NodeSession::take(const NodeAnswers& answers) {
  if (questions_.empty() || questions_.front().look.question != answers.question) return;
  const Take take = std::move(questions_.front().take);
  questions_.pop_front();
  asking_ = false;
  ask_next();
  take(answers.seen);
}

void NodeSession::take(const LookRecord& look) {
  if (look.round == current_ && asked_) return asked_(look);
  if (look.round == ended_) return agent_.answer_ended(look, *round_);
  if (coming_ && look.round == coming_->number) agent_.answer(look, {});  // nothing runs yet
}

}  // namespace dlaunch
