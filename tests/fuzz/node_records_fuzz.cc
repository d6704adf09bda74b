// What the nodes of a job tell each other, against the code that reads it, and against the
// coordinator: whatever comes in whatever order, it gives rounds and verdicts that can be read, and
// it ends when it is told to.
//
// Input: lines. Each has a letter that says what happens, and a record.
#include <chrono>
#include <string>
#include <string_view>

#include "launcher/failure/failure.h"
#include "launcher/hang/observed_text.h"
#include "launcher/nodes/cluster_environment.h"
#include "launcher/nodes/node_coordinator.h"
#include "launcher/nodes/node_records.h"
#include "tests/fuzz/fuzz_target.h"

namespace dlaunch::fuzz {
namespace {

using namespace std::chrono_literals;

template <typename T>
void read_and_read_again(std::string_view text) {
  const auto record = parse_record<T>(text);
  if (!record.ok()) return;
  const std::string written = to_text(*record);
  const auto again = parse_record<T>(written);
  require(again.ok() && to_text(*again) == written, "a record reads as itself");
}

void read_alone(std::string_view text) {
  read_and_read_again<MemberRecord>(text);
  read_and_read_again<RoundRecord>(text);
  read_and_read_again<EndedRecord>(text);
  read_and_read_again<StopRecord>(text);
  read_and_read_again<VerdictRecord>(text);
  read_and_read_again<LookRecord>(text);
  read_and_read_again<SeenRecord>(text);
  const auto now = Deadline::Clock::now();
  if (const auto ranks = parse_observed(text, now); ranks.ok()) {
    const auto again = parse_observed(serialize(*ranks, now), now);
    require(again.ok() && again->size() == ranks->size(), "what was seen reads as itself");
    (void)describe_ranks(*ranks, 4, now);
  }
  (void)parse_failure(text).ok();
  (void)first_host(text);
}

class Job {
 public:
  void happens(char what, std::string_view text) {
    switch (what) {
      case 'm':
        if (const auto member = parse_record<MemberRecord>(text); member.ok()) {
          coordinator_.member_came(*member, now_);
        }
        break;
      case 'e':
        if (const auto ended = parse_record<EndedRecord>(text); ended.ok()) {
          for (const char* id : {"a", "b", "c"})
            coordinator_.member_ended(round_, id, *ended, now_);
        }
        break;
      case 'A':
      case 'B':
      case 'C':
        if (const auto ended = parse_record<EndedRecord>(text); ended.ok()) {
          const std::string id(1, static_cast<char>(what - 'A' + 'a'));
          coordinator_.member_ended(round_, id, *ended, now_);
        }
        break;
      case 'l':
        coordinator_.member_left(std::string(text), "it left", now_ - 1s, now_);
        break;
      case 's':
        coordinator_.member_silent(std::string(text), "it is silent", now_ - 1s, now_);
        break;
      case 'b':
        coordinator_.member_lived(std::string(text), now_);
        coordinator_.time_passed(now_);
        break;
      default:
        now_ += 3s;
        coordinator_.time_passed(now_);
    }
    read_writes();
  }
  void end() {
    for (int times = 0; times < 8; ++times) {
      now_ += 10min;
      coordinator_.time_passed(now_);
      read_writes();
    }
    require(coordinator_.done() || runs_, "only ranks that run are waited for without a limit");
    coordinator_.give_up();
    read_writes();
    require(coordinator_.done(), "a job ends when its store goes");
  }

 private:
  void read_writes() {
    for (const auto& write : coordinator_.take_writes()) {
      if (!write.value) continue;
      if (write.key == node_keys::kRound) runs_ = true;
      if (write.key == node_keys::kStop) runs_ = false;
      if (write.key == node_keys::kVerdict) {
        runs_ = false;
        require(parse_record<VerdictRecord>(*write.value).ok(), "verdicts can be read");
      }
      if (write.key != node_keys::kRound) continue;
      const auto round = parse_record<RoundRecord>(*write.value);
      require(round.ok(), "rounds can be read");
      round_ = round->number;
      int ranks = 0;
      for (const auto& node : round->nodes) {
        require(node.first_rank == ranks, "ranks are counted through");
        ranks += node.ranks;
      }
      require(ranks == round->world, "a world is the sum of its nodes");
    }
  }

  NodeCoordinator::Time now_{1h};
  NodeCoordinator coordinator_{{.least = 2,
                                .most = 3,
                                .nodes = "2:3",
                                .version = "1",
                                .job_id = "job",
                                .host_id = "a",
                                .max_restarts = 2},
                               now_};
  int round_ = 0;
  bool runs_ = false;  // and nobody has told it to end
};

std::string member(const std::string& id, int node_rank) {
  return "m" +
         to_text(MemberRecord{.id = id,
                              .host = "h" + id,
                              .pid = 7,
                              .version = "1",
                              .nodes = "2:3",
                              .node_rank = node_rank,
                              .ranks = 2,
                              .address = "10.0.0.1",
                              .store = "10.0.0.2",
                              .master_port = 4711,
                              .grace_ms = 5000}) +
         "\n";
}

std::string ended(EndedRecord::How how, const std::string& failure) {
  return "e" +
         to_text(EndedRecord{.how = how, .failure = failure, .age_ns = 5, .got_ready = true}) +
         "\n";
}

std::string observed() {
  ObservedRank rank{.rank = 1, .pid = 5, .state = "sleeping", .shown = {}};
  rank.shown.process = 5;
  rank.shown.activities.push_back({.kind = ActivityKind::kCollective,
                                   .name = "world/1",
                                   .operation = "barrier",
                                   .sequence = 2,
                                   .members = 4});
  return serialize({rank}, Deadline::Clock::now());
}

}  // namespace

std::vector<std::string> seed_inputs() {
  using How = EndedRecord::How;
  const std::string failure =
      serialize({.rank = 1, .host = "h", .pid = 9, .exit_code = 3, .last_lines = {"a line"}});
  const std::string two = member("a", -1) + member("b", 1) + "t\n";
  return {two + ended(How::kFinished, ""),
          two + ended(How::kFailed, failure) + "t\nt\n" + ended(How::kFinished, ""),
          two + "lb\n" + ended(How::kStopped, "") + member("c", 0) + "t\n",
          two + member("c", -1) + ended(How::kStopped, "") + "t\nt\n",
          member("a", 0) + member("b", 0) + "t\nla\n",
          "m{\"ranks\": 4e77, \"pid\": 1.5}\n" + two,
          "x" + to_text(LookRecord{.question = "q", .round = 0, .stacks_of = {1}}) + "\nx" +
              to_text(SeenRecord{.ranks = "[]", .lines = {"#0"}}) + "\nx" + observed() + "\n",
          two + member("c", -1) + "t\nsc\nt\nbc\n" + "B" + ended(How::kStopped, "").substr(1) +
              "B" + ended(How::kSignal, "").substr(1) + "sb\nbb\n",
          "mrack[2-3]-node[05-06].site,x\n" + two + "la\nt\nt\nt\nt\nt\nt\nt\nt\n"};
}

}  // namespace dlaunch::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  dlaunch::fuzz::Job job;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.empty()) continue;
    dlaunch::fuzz::read_alone(line.substr(1));
    job.happens(line.front(), line.substr(1));
  }
  job.end();
  return 0;
}
