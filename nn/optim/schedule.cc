#include "nn/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>
#include <utility>

#include "nn/core/error.h"

namespace dlaunch::nn {
namespace {

void require(bool holds, const char* message) {
  if (!holds) throw Error(message);
}

double interpolate(const std::vector<SchedulePoint>& points, double progress) {
  const auto next = std::upper_bound(
      points.begin(), points.end(), progress,
      [](double value, const SchedulePoint& point) { return value < point.progress; });
  if (next == points.begin()) return points.front().rate;
  if (next == points.end()) return points.back().rate;
  const SchedulePoint& last = *std::prev(next);
  const double share = (progress - last.progress) / (next->progress - last.progress);
  return last.rate + share * (next->rate - last.rate);
}

}  // namespace

Schedule constant_schedule(double rate) {
  return [rate](double) { return rate; };
}

Schedule multi_step_schedule(double rate, std::vector<double> milestones, double gamma) {
  require(std::is_sorted(milestones.begin(), milestones.end()),
          "multi-step schedule: milestones must ascend");
  return [rate, milestones = std::move(milestones), gamma](double progress) {
    const auto reached = std::upper_bound(milestones.begin(), milestones.end(), progress);
    return rate * std::pow(gamma, static_cast<double>(reached - milestones.begin()));
  };
}

Schedule cosine_schedule(double rate, double begin, double end, double final_rate) {
  require(begin >= 0 && end > begin, "cosine schedule: it must end after it begins, at 0 or later");
  return [=](double progress) {
    const double share = std::clamp((progress - begin) / (end - begin), 0.0, 1.0);
    return final_rate + (rate - final_rate) * (1 + std::cos(std::numbers::pi * share)) / 2;
  };
}

Schedule piecewise_linear_schedule(std::vector<SchedulePoint> points) {
  require(!points.empty(), "piecewise linear schedule: at least one point is needed");
  require(std::is_sorted(points.begin(), points.end(),
                         [](const SchedulePoint& a, const SchedulePoint& b) {
                           return a.progress < b.progress;
                         }),
          "piecewise linear schedule: points must ascend in progress");
  return [points = std::move(points)](double progress) { return interpolate(points, progress); };
}

Schedule with_linear_warmup(Schedule schedule, double length, double start_factor) {
  require(length >= 0, "warm-up: the length must not be negative");
  return [schedule = std::move(schedule), length, start_factor](double progress) {
    const double rate = schedule(progress);
    if (progress >= length) return rate;
    return rate * (start_factor + (1 - start_factor) * progress / length);
  };
}

}  // namespace dlaunch::nn
