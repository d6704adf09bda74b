// Learning rate schedules: pure functions from progress to a rate.
//
// Progress is a number >= 0 in whatever unit the schedule was made with, epochs or steps; it may be
// fractional (epoch 2.5). Schedules are values: copy them, call them from any thread. Factories
// throw nn::Error for arguments that make no schedule.
#pragma once

#include <functional>
#include <vector>

namespace dlaunch::nn {

using Schedule = std::function<double(double progress)>;

/// Always `rate`.
Schedule constant_schedule(double rate);

/// rate * gamma^(number of milestones reached). Milestones ascend.
Schedule multi_step_schedule(double rate, std::vector<double> milestones, double gamma);

/// `rate` up to `begin`, from there half a cosine down to `final_rate` at `end`, `final_rate`
/// beyond (Loshchilov & Hutter 2017, without restarts).
Schedule cosine_schedule(double rate, double begin, double end, double final_rate = 0);

struct SchedulePoint {
  double progress = 0;
  double rate = 0;
};

/// Straight lines between the points, constant before the first and after the last. Points ascend
/// in progress; two at the same progress make a jump, which takes the later one's value. One-cycle
/// and triangular policies are three of these.
Schedule piecewise_linear_schedule(std::vector<SchedulePoint> points);

/// `schedule`, scaled by a factor that rises linearly from `start_factor` at 0 to 1 at `length`.
Schedule with_linear_warmup(Schedule schedule, double length, double start_factor = 0);

}  // namespace dlaunch::nn
