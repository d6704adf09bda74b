#include "trainers/output/progress.h"

#include <algorithm>
#include <cmath>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

constexpr std::chrono::milliseconds kBarInterval{100};
constexpr std::chrono::seconds kLineInterval{10};
constexpr std::size_t kBarWidth = 20;

std::string bar(const ProgressState& state) {
  const std::size_t filled = state.steps > 0 ? kBarWidth * state.step / state.steps : kBarWidth;
  std::string text = "[";
  for (std::size_t i = 0; i < kBarWidth; ++i) text += i < filled ? '#' : '.';
  return text + "]";
}

}  // namespace

std::string format_duration(double seconds) {
  if (seconds < 9.95) return fmt::format("{:.1f}s", std::max(seconds, 0.0));
  const auto total = static_cast<long long>(std::llround(std::clamp(seconds, 0.0, 1e9)));
  if (total < 60) return fmt::format("{}s", total);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

Progress::Progress(ProgressStyle style, std::ostream& out, bool out_is_terminal,
                   std::size_t columns)
    : style_(style), out_(out), columns_(columns) {
  if (style_ == ProgressStyle::kAuto)
    style_ = out_is_terminal ? ProgressStyle::kBar : ProgressStyle::kLines;
}

void Progress::end() {
  if (bar_shown_) out_ << "\n" << std::flush;
  bar_shown_ = false;
}

bool Progress::due(Clock::time_point now) const {
  if (style_ == ProgressStyle::kNone) return false;
  return style_ == ProgressStyle::kBar ? now - last_ >= kBarInterval : now - last_ >= kLineInterval;
}

void Progress::show(const ProgressState& state, Clock::time_point now) {
  if (!due(now)) return;
  last_ = now;
  const std::string figures =
      fmt::format("loss {:.3f}  {:.0f} images/s  {} left", state.loss, state.images_per_second,
                  format_duration(state.seconds_left));
  if (style_ == ProgressStyle::kLines) {
    out_ << fmt::format("epoch {}/{}  step {}/{}  {}\n", state.epoch + 1, state.epochs, state.step,
                        state.steps, figures);
  } else {
    // Cut to the terminal's width: a line that wraps could not be rewritten.
    std::string text =
        fmt::format("epoch {}/{} {}  {}", state.epoch + 1, state.epochs, bar(state), figures);
    if (columns_ > 0 && text.size() >= columns_) text.resize(columns_ - 1);
    out_ << "\r" << text << "\x1b[K";
    bar_shown_ = true;
  }
  out_.flush();
}

void Progress::line(const std::string& text) {
  if (style_ == ProgressStyle::kNone) return;
  erase_bar();
  out_ << text << "\n";
  out_.flush();
}

void Progress::erase_bar() {
  if (bar_shown_) out_ << "\r\x1b[K";
  bar_shown_ = false;
}

}  // namespace dlaunch
