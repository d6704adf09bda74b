#include "trainers/output/step_clock.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace dlaunch {
namespace {

using TimePoint = StepClock::TimePoint;
using Interval = std::pair<TimePoint, TimePoint>;

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// What two sets of intervals have in common; each is in order and without overlap.
double common_seconds(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  double sum = 0;
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const TimePoint begin = std::max(a[i].first, b[j].first);
    const TimePoint end = std::min(a[i].second, b[j].second);
    if (begin < end) sum += seconds(end - begin);
    a[i].second < b[j].second ? ++i : ++j;
  }
  return sum;
}

/// The same times, in order and without overlap.
std::vector<Interval> merged(std::vector<Interval> intervals) {
  std::ranges::sort(intervals);
  std::vector<Interval> result;
  for (const Interval& next : intervals) {
    if (!result.empty() && next.first <= result.back().second)
      result.back().second = std::max(result.back().second, next.second);
    else
      result.push_back(next);
  }
  return result;
}

}  // namespace

std::string_view to_string(StepPhase phase) {
  constexpr std::array<std::string_view, kStepPhases> kNames{
      "waiting for data", "forward", "backward", "optimizer", "exposed communication", "other"};
  return kNames[static_cast<std::size_t>(phase)];
}

double StepTimes::total() const {
  return std::accumulate(phases.begin(), phases.end(), 0.0);
}

StepTimes& StepTimes::operator+=(const StepTimes& more) {
  for (std::size_t i = 0; i < phases.size(); ++i) phases[i] += more.phases[i];
  hidden_communication += more.hidden_communication;
  exchange += more.exchange;
  return *this;
}

void StepClock::begin_step(TimePoint now) {
  in_step_ = true;
  step_begin_ = now;
  step_ = {};
  in_flight_.clear();
  waits_.clear();
}

void StepClock::section(StepPhase phase, TimePoint begin, TimePoint end) {
  step_[phase] += seconds(end - begin) - common_seconds({{begin, end}}, waits_);
}

void StepClock::communicated(const CommunicationSpan& span, TimePoint now) {
  if (span.lane != CallLane::kBlocking && span.end > step_begin_)
    in_flight_.emplace_back(std::max(span.begin, step_begin_), span.end);
  const TimePoint since = waits_.empty() ? step_begin_ : waits_.back().second;
  waits_.emplace_back(std::max(since, now - span.waited), now);
  if (in_step_)
    compared_waits_.push_back({span.lane, span.sequence, seconds(now - waits_.back().first)});
}

void StepClock::compare_waits(Communicator& world) {
  std::ranges::sort(compared_waits_, {},
                    [](const Wait& wait) { return std::tuple(wait.lane, wait.sequence); });
  std::vector<double> least;
  for (const Wait& wait : compared_waits_) least.push_back(wait.seconds);
  compared_waits_.clear();
  throw_if_error(world.all_reduce(least, ReduceOp::kMin).within("comparison of waits"));
  sums_.exchange += std::accumulate(least.begin(), least.end(), 0.0);
}

StepTimes StepClock::end_step(TimePoint now) {
  const std::vector<Interval> step{{step_begin_, now}};
  const std::vector<Interval> in_flight = merged(std::move(in_flight_));
  step_.hidden_communication = common_seconds(in_flight, step) - common_seconds(in_flight, waits_);
  step_[StepPhase::kCommunication] = common_seconds(waits_, step);
  const double duration = seconds(now - step_begin_);
  step_[StepPhase::kOther] = duration - step_.total();
  sums_ += step_;
  durations_.push_back(static_cast<float>(duration));
  in_flight_.clear();
  in_step_ = false;
  return step_;
}

double StepClock::percentile(double percent) const {
  if (durations_.empty()) return 0;
  std::vector<float> sorted = durations_;
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  const auto index = static_cast<std::ptrdiff_t>(std::max(rank - 1, 0.0));
  std::nth_element(sorted.begin(), sorted.begin() + index, sorted.end());
  return sorted[static_cast<std::size_t>(index)];
}

}  // namespace dlaunch
