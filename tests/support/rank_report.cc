#include "tests/support/rank_report.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include <nlohmann/json.hpp>

namespace dlaunch::testing {

void write_event(int descriptor, const RankEvent& event) {
  const nlohmann::json object{{"rank", event.rank},
                              {"kind", static_cast<int>(event.kind)},
                              {"file", event.file},
                              {"line", event.line},
                              {"message", event.message}};
  const std::string line =
      object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  if (::write(descriptor, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    std::perror("dlaunch::testing: cannot write the report of this rank");
    std::abort();
  }
}

std::vector<RankEvent> parse_events(std::string_view report) {
  std::vector<RankEvent> events;
  for (std::size_t end = report.find('\n'); end != std::string_view::npos;
       end = report.find('\n')) {
    const auto object = nlohmann::json::parse(report.substr(0, end), nullptr, false);
    report.remove_prefix(end + 1);
    if (object.is_discarded()) continue;  // begun by a rank that was killed while it wrote
    events.push_back({.rank = object.at("rank"),
                      .kind = static_cast<RankEvent::Kind>(object.at("kind").get<int>()),
                      .file = object.at("file"),
                      .line = object.at("line"),
                      .message = object.at("message")});
  }
  return events;
}

void ReportingListener::tell() {
  const ::testing::TestResult& results = *test_.result();
  while (told_ < results.total_part_count()) write(results.GetTestPartResult(told_++));
}

void ReportingListener::skip_silently() {
  silent_ = true;
  GTEST_MESSAGE_AT_(test_.file(), test_.line(), "the body has run",
                    ::testing::TestPartResult::kSkip);
  silent_ = false;
  told_ = test_.result()->total_part_count();
}

void ReportingListener::OnTestPartResult(const ::testing::TestPartResult& result) {
  if (silent_) return;
  if (during_ == During::kTest) tell();
  if (during_ == During::kNoTest) write(result);
}

void ReportingListener::finish() const {
  write_event(descriptor_, {.rank = rank_, .kind = RankEvent::Kind::kFinished});
  std::exit(0);  // NOLINT(concurrency-mt-unsafe): the communicator's threads have ended
}

void ReportingListener::write(const ::testing::TestPartResult& result) const {
  if (result.passed()) return;
  RankEvent event{.rank = rank_,
                  .kind = RankEvent::Kind::kFailure,
                  .file = result.file_name() == nullptr ? "" : result.file_name(),
                  .line = result.line_number(),
                  .message = result.message()};
  if (result.skipped()) event.kind = RankEvent::Kind::kSkip;
  if (result.fatally_failed()) event.kind = RankEvent::Kind::kFatalFailure;
  write_event(descriptor_, event);
}

}  // namespace dlaunch::testing
