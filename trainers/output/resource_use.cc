#include "trainers/output/resource_use.h"

#include <algorithm>
#include <array>
#include <span>

#include <spdlog/fmt/fmt.h>

namespace dlaunch {
namespace {

struct MemoryKind {
  const char* name;
  std::size_t MemoryUse::*bytes;
};

constexpr std::array kMemoryKinds{
    MemoryKind{"parameters", &MemoryUse::parameters},
    MemoryKind{"gradients", &MemoryUse::gradients},
    MemoryKind{"optimizer", &MemoryUse::optimizer},
    MemoryKind{"activations", &MemoryUse::activations},
    MemoryKind{"buffers", &MemoryUse::buffers},
    MemoryKind{"whole process", &MemoryUse::resident},
};

constexpr std::size_t kTimes = kStepPhases + 2;
constexpr std::size_t kFigures = kTimes + kMemoryKinds.size();  // of a rank
using Figures = std::array<double, kFigures>;

Figures pack(const ResourceUse::Rank& rank) {
  Figures figures{};
  auto next = std::ranges::copy(rank.step.phases, figures.begin()).out;
  *next++ = rank.step.hidden_communication;
  *next++ = rank.step.exchange;
  for (const MemoryKind& kind : kMemoryKinds)
    *next++ = static_cast<double>(rank.memory.*kind.bytes);
  return figures;
}

ResourceUse::Rank unpack(std::span<const double> figures) {
  ResourceUse::Rank rank;
  std::copy_n(figures.begin(), kStepPhases, rank.step.phases.begin());
  rank.step.hidden_communication = figures[kStepPhases];
  rank.step.exchange = figures[kStepPhases + 1];
  for (std::size_t i = 0; i < kMemoryKinds.size(); ++i)
    rank.memory.*kMemoryKinds[i].bytes = static_cast<std::size_t>(figures[kTimes + i]);
  return rank;
}

StepTimes scaled(StepTimes times, double factor) {
  for (double& phase : times.phases) phase *= factor;
  times.hidden_communication *= factor;
  times.exchange *= factor;
  return times;
}

/// If ranks differ by more than a tenth of a millisecond: which one spends the most.
std::string slowest(const ResourceUse& use, StepPhase phase, double mean) {
  const auto most = std::ranges::max_element(
      use.ranks, {}, [&](const ResourceUse::Rank& rank) { return rank.step[phase]; });
  if (most->step[phase] - mean < 1e-4) return "";
  return fmt::format("   rank {}: {:.1f} ms", most - use.ranks.begin(), 1e3 * most->step[phase]);
}

/// What the exposed communication consists of.
std::string format_exposed(const StepTimes& mean) {
  const auto line = [&](const char* name, double seconds) {
    return fmt::format("\n    {:<20}{:>9.1f} ms {:>5.1f} %", name, 1e3 * seconds,
                       100 * seconds / mean.total());
  };
  const double slower = std::max(0.0, mean[StepPhase::kCommunication] - mean.exchange);  // rounding
  return line("the exchange itself", mean.exchange) + line("for slower ranks", slower);
}

std::string format_times(const ResourceUse& use) {
  const StepTimes mean = use.mean();
  const double step = mean.total();
  std::string text = fmt::format("time of a step, mean of {}: {:.1f} ms (p50 {:.1f}, p90 {:.1f})",
                                 use.steps, 1e3 * step, 1e3 * use.p50, 1e3 * use.p90);
  for (std::size_t i = 0; i < kStepPhases; ++i) {
    const auto phase = static_cast<StepPhase>(i);
    text +=
        fmt::format("\n  {:<22}{:>9.1f} ms {:>5.1f} %{}", to_string(phase), 1e3 * mean[phase],
                    step > 0 ? 100 * mean[phase] / step : 0.0, slowest(use, phase, mean[phase]));
    if (phase == StepPhase::kCommunication && mean[phase] > 0) text += format_exposed(mean);
  }
  const double hidden = mean.hidden_communication;
  const double communication = hidden + mean[StepPhase::kCommunication];
  if (communication > 0)
    text += fmt::format(
        "\n  {:<22}{:>9.1f} ms           (not part of the step: {:.0f} % of communication)",
        "hidden communication", 1e3 * hidden, 100 * hidden / communication);
  return text;
}

std::string format_memory(const ResourceUse& use) {
  constexpr std::size_t kColumns = 8;
  const bool each = use.ranks.size() <= kColumns;
  std::string text = fmt::format("{:<24}", "peak memory, MiB");
  if (each)
    for (std::size_t rank = 0; rank < use.ranks.size(); ++rank)
      text += fmt::format("{:>9}", fmt::format("rank {}", rank));
  else
    text += fmt::format("{:>9}{:>9}", "least", "most");
  constexpr double kMiB = 1024.0 * 1024.0;
  for (const MemoryKind& kind : kMemoryKinds) {
    std::vector<double> sizes;
    for (const ResourceUse::Rank& rank : use.ranks)
      sizes.push_back(static_cast<double>(rank.memory.*kind.bytes) / kMiB);
    if (!each) {
      const auto [least, most] = std::ranges::minmax(sizes);
      sizes = {least, most};
    }
    text += fmt::format("\n  {:<22}", kind.name);
    for (const double size : sizes) text += fmt::format("{:>9.1f}", size);
  }
  return text;
}

}  // namespace

StepTimes ResourceUse::mean() const {
  StepTimes sum;
  for (const Rank& rank : ranks) sum += rank.step;
  return scaled(sum, ranks.empty() ? 0 : 1 / static_cast<double>(ranks.size()));
}

ResourceUse gather_use(Communicator& world, const StepClock& clock, const MemoryUse& memory) {
  ResourceUse use{.steps = clock.steps(),
                  .p50 = clock.percentile(50),
                  .p90 = clock.percentile(90),
                  .ranks = {}};
  const double factor = use.steps > 0 ? 1 / static_cast<double>(use.steps) : 0;
  const Figures own = pack({scaled(clock.sums(), factor), memory});
  std::vector<double> all(kFigures * static_cast<std::size_t>(world.size()));
  throw_if_error(world.all_gather(own, all).within("summary"));
  for (std::size_t begin = 0; begin < all.size(); begin += kFigures)
    use.ranks.push_back(unpack(std::span(all).subspan(begin, kFigures)));
  return use;
}

std::string format_use(const ResourceUse& use) {
  if (use.steps == 0) return "";
  return format_times(use) + "\n" + format_memory(use);
}

nlohmann::ordered_json use_to_json(const ResourceUse& use) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const ResourceUse::Rank& rank : use.ranks) {
    nlohmann::ordered_json seconds;
    for (std::size_t i = 0; i < kStepPhases; ++i)
      seconds[std::string(to_string(static_cast<StepPhase>(i)))] = rank.step.phases[i];
    nlohmann::ordered_json bytes;
    for (const MemoryKind& kind : kMemoryKinds) bytes[kind.name] = rank.memory.*kind.bytes;
    ranks.push_back({{"step_seconds", seconds},
                     {"hidden_communication_seconds", rank.step.hidden_communication},
                     {"exchange_seconds", rank.step.exchange},
                     {"peak_bytes", bytes}});
  }
  return {{"steps", use.steps},
          {"step_seconds_mean", use.mean().total()},
          {"step_seconds_p50", use.p50},
          {"step_seconds_p90", use.p90},
          {"ranks", ranks}};
}

}  // namespace dlaunch
