#include "runtime/comm/part_name.h"

#include <algorithm>
#include <charconv>
#include <numeric>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "runtime/comm/words.h"

namespace dlaunch {
namespace {

constexpr std::string_view kInPart = "in part ";

// The numbers of ranks in an error: "peer 3", "root 2", "rank 1", "ranks 1, 4 and 7".
std::set<int> ranks_named_in(std::string_view text) {
  std::set<int> ranks;
  for (const std::string_view word : {"peer ", "root ", "rank ", "ranks "}) {
    for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
      std::string_view rest = text.substr(at + word.size());
      int rank = 0;
      while (true) {
        const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), rank);
        if (error != std::errc()) break;
        ranks.insert(rank);
        rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
        const std::size_t comma = rest.starts_with(", ") ? 2 : rest.starts_with(" and ") ? 5 : 0;
        if (comma == 0) break;
        rest.remove_prefix(comma);
      }
    }
  }
  return ranks;
}

class ExplainedWork final : public Work::State {
 public:
  ExplainedWork(Work work, PartName part) : work_(std::move(work)), part_(std::move(part)) {}
  bool done() const override { return work_.done(); }
  std::chrono::steady_clock::time_point ended() const override { return work_.ended(); }
  Status wait(std::chrono::nanoseconds timeout) override {
    return part_.explain(work_.wait(timeout));
  }

 private:
  Work work_;
  const PartName part_;
};

}  // namespace

struct PartName::Part {
  std::string name;
  std::vector<int> of_world;  // by rank
};

PartName PartName::of_part(std::string name, std::span<const int> members, int size) const {
  std::vector<int> everybody(static_cast<std::size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  if (std::ranges::equal(members, everybody)) return *this;
  Part part{.name = std::move(name), .of_world = {members.begin(), members.end()}};
  for (int& rank : part.of_world) rank = rank_in_world(rank);
  PartName made;
  made.part_ = std::make_shared<const Part>(std::move(part));
  return made;
}

int PartName::rank_in_world(int rank) const {
  return part_ == nullptr ? rank : part_->of_world[static_cast<std::size_t>(rank)];
}

Status PartName::explain(const Status& status) const {
  if (status.ok() || part_ == nullptr) return status;
  const std::string text = status.to_string();
  std::vector<int> own;
  std::vector<int> of_world;
  // What is said of another part is explained already.
  for (const int rank : ranks_named_in(std::string_view(text).substr(0, text.find(kInPart)))) {
    if (rank >= std::ssize(part_->of_world) || rank < 0) continue;
    own.push_back(rank);
    of_world.push_back(rank_in_world(rank));
  }
  std::string words = std::string(kInPart) + part_->name;
  if (!own.empty()) {
    words += ", whose " + list_of_ranks(own) + (own.size() == 1 ? " is " : " are ") +
             list_of_ranks(of_world) + " of the world";
  }
  return status.within(std::move(words));
}

Work PartName::explain(Work work) const {
  if (part_ == nullptr) return work;
  return Work(std::make_shared<ExplainedWork>(std::move(work), *this));
}

}  // namespace dlaunch
