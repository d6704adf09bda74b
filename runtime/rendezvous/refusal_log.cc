#include "runtime/rendezvous/refusal_log.h"

namespace dlaunch {
namespace {

constexpr std::chrono::seconds kSilence{10};

}  // namespace

void RefusalLog::note(spdlog::level::level_enum level, const std::string& peer,
                      const std::string& why) {
  ++count_;
  // What would not be shown does not keep back what would.
  if (!logger_->should_log(level)) return;
  const auto now = std::chrono::steady_clock::now();
  if (now < silent_until_) {
    ++unsaid_;
    return;
  }
  silent_until_ = now + kSilence;
  const std::string others =
      unsaid_ == 0 ? "" : " (and " + std::to_string(unsaid_) + " more before it)";
  unsaid_ = 0;
  logger_->log(level, "refused {} on the store's port: {}{}", peer, why, others);
}

}  // namespace dlaunch
