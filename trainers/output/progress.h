// What a person sees while training runs: on a terminal one line that is rewritten, elsewhere a
// plain line now and then. One thread; rank 0 only.
#pragma once

#include <chrono>
#include <cstddef>
#include <ostream>
#include <string>

#include "trainers/config/config.h"

namespace dlaunch {

struct ProgressState {
  std::size_t epoch = 0;  // from 0
  std::size_t epochs = 0;
  std::size_t step = 0;  // done of the epoch's
  std::size_t steps = 0;
  double loss = 0;  // mean over the latest images
  double images_per_second = 0;
  double seconds_left = 0;  // of the whole run
};

class Progress {
 public:
  using Clock = std::chrono::steady_clock;

  /// kAuto becomes a bar if `out_is_terminal`, else lines.
  Progress(ProgressStyle style, std::ostream& out, bool out_is_terminal, std::size_t columns = 80);
  ~Progress() { end(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Whether show() would write something now: a bar follows ten times a second, lines every ten
  /// seconds.
  bool due(Clock::time_point now) const;
  void show(const ProgressState& state, Clock::time_point now);

  /// Ends the bar's line, so that what is written next has one of its own.
  void end();

  /// A line that stays, above the bar.
  void line(const std::string& text);

 private:
  void erase_bar();

  ProgressStyle style_;
  std::ostream& out_;
  std::size_t columns_;
  Clock::time_point last_ = Clock::now();
  bool bar_shown_ = false;
};

/// "1:02:03", "2:03", "42s" or "4.2s".
std::string format_duration(double seconds);

}  // namespace dlaunch
