#include "trainers/training/machine.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include <omp.h>
#include <spdlog/fmt/fmt.h>

#include "runtime/base/available_memory.h"
#include "runtime/base/control_group.h"
#include "runtime/base/json_reader.h"
#include "runtime/base/usable_cores.h"

namespace dlaunch {
namespace {

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Elements that are there at the same time in backward, at its largest layer. A convolution or
/// linear layer keeps its input, and makes its input's gradient beside its output's; a
/// normalisation keeps what it normalises, which has the size of its output, and works in the
/// gradient's place. Layers without parameters overwrite or share what others keep, or keep less.
std::int64_t most_in_backward(const nn::Module& network, const nn::Shape& image) {
  std::int64_t kept = 0;  // by the layers above and this one: backward comes to them later
  std::int64_t most = 0;
  bool trained_above = false;  // so there is a gradient to pass on
  for (const nn::LayerRow& row : nn::layer_table(network, image)) {
    if (row.parameters == 0) continue;
    const bool multiplies = row.multiply_adds > 0;
    if (!row.shares_input) kept += multiplies ? row.input.size() : row.output.size();
    const std::int64_t passed_on = multiplies && trained_above ? row.input.size() : 0;
    most = std::max(most, kept + row.output.size() + passed_on);
    trained_above = true;
  }
  return most;
}

// Without dlaunch, which counts them: OpenMP may have bound this thread, and knows what it had
// before that.
int own_cores(const JobEnvironment& job) {
  return job.launched() ? job.local_cores : cores_with_time(omp_get_num_procs(), cpu_quota());
}

std::string ranks_and_threads(const Machine& machine) {
  return fmt::format("{} rank{} x {} thread{}", machine.ranks, machine.ranks == 1 ? "" : "s",
                     machine.threads, machine.threads == 1 ? "" : "s");
}

}  // namespace

Machine read_machine(const JobEnvironment& job) {
  Machine machine{.ranks = job.local_world_size,
                  .local_rank = job.local_rank,
                  .cores = own_cores(job),
                  .threads = omp_get_max_threads(),
                  .memory = available_memory()};
  if (const auto most = most_memory(own_control_groups(), kControlGroups))
    machine.memory = std::min(machine.memory, static_cast<std::size_t>(*most));
  // Left alone, OpenMP takes one per core also where a container's quota leaves time for few.
  // NOLINTNEXTLINE(concurrency-mt-unsafe): nobody changes the environment
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    machine.threads = std::min(machine.threads, machine.cores);
  return machine;
}

void use_threads(const Machine& machine) {
  omp_set_num_threads(machine.threads);
}

std::string warn_of_threads(const Machine& machine) {
  if (machine.ranks * machine.threads <= machine.cores) return "";
  const int enough = machine.cores / machine.ranks;
  return fmt::format("{} on {} core{}: {}", ranks_and_threads(machine), machine.cores,
                     machine.cores == 1 ? "" : "s",
                     enough > 0 ? fmt::format("set OMP_NUM_THREADS to {} at most", enough)
                                : "fewer ranks, each of one thread, would be faster");
}

std::string remark_on_idle_cores(const Machine& machine) {
  constexpr int kTimes = 3;
  const int possible = machine.cores / machine.ranks;
  if (possible < kTimes * machine.threads) return "";
  return fmt::format(
      "{} of {} cores are idle with {}: more ranks, or OMP_NUM_THREADS={}, would use them",
      machine.cores - machine.ranks * machine.threads, machine.cores, ranks_and_threads(machine),
      possible);
}

MemoryNeed least_memory(const nn::Module& network, const nn::Shape& image, DType compute_type,
                        std::size_t images, std::size_t prefetch) {
  const auto count = static_cast<double>(images);
  MemoryNeed need;
  need.parameters = 2.0 * sizeof(float) * static_cast<double>(network.parameter_count());
  need.activations = count * static_cast<double>(most_in_backward(network, image)) *
                     static_cast<double>(size_of(compute_type));
  need.batches =
      static_cast<double>(prefetch + 1) * count * static_cast<double>(image.size()) * sizeof(float);
  return need;
}

double least_evaluation_memory(const nn::Module& network, const nn::Shape& image,
                               DType compute_type) {
  std::int64_t most = 0;
  for (const nn::LayerRow& row : nn::layer_table(network, image))
    if (row.multiply_adds > 0)  // others may work in place
      most = std::max(most, row.input.size() + row.output.size());
  return static_cast<double>(most) * static_cast<double>(size_of(compute_type));
}

void refuse_unless_validation_fits(const ValidationNeed& need, const Machine& machine) {
  const auto memory = static_cast<double>(machine.memory);
  const double total = need.share_bytes + need.together_bytes;
  if (machine.memory == 0 || machine.ranks * total <= memory) return;
  const auto numbers = [&](double bytes, const std::string& what) {
    return fmt::format(
        "a rank needs at least {:.1f} GiB {}, {} of them on this machine {:.1f} GiB, which has "
        "{:.1f}",
        bytes / kGiB, what, machine.ranks, machine.ranks * bytes / kGiB, memory / kGiB);
  };
  if (machine.ranks * need.share_bytes > memory)
    throw ConfigError(
        fmt::format("data: {}; use fewer test images, or more machines",
                    numbers(need.share_bytes, fmt::format("for its {} test images", need.share))));
  throw ConfigError(
      fmt::format("train.validation_batch_size: {}; use less",
                  numbers(total, fmt::format("to validate {} images at a time", need.together))));
}

void refuse_unless_it_fits(const std::string& key, const MemoryNeed& need, std::size_t images,
                           const Machine& machine) {
  const auto memory = static_cast<double>(machine.memory);
  if (machine.memory == 0 || machine.ranks * need.total() <= memory) return;
  throw ConfigError(fmt::format(
      "{}: a rank needs at least {:.1f} GiB for micro-batches of {} images "
      "(activations with gradients {:.1f}, images made in advance {:.1f}, parameters with "
      "gradients {:.1f}), {} "
      "of them on this machine {:.1f} GiB, which has {:.1f}; use smaller batches and more "
      "train.accumulation_steps, or a smaller data.prefetch",
      key, need.total() / kGiB, images, need.activations / kGiB, need.batches / kGiB,
      need.parameters / kGiB, machine.ranks, machine.ranks * need.total() / kGiB, memory / kGiB));
}

}  // namespace dlaunch
