// What a Trainer's run consists of: resumed, saved, shared with the other ranks, validated.
#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <future>
#include <iterator>
#include <span>
#include <utility>

#include <spdlog/fmt/fmt.h>

#include "nn/core/digest.h"
#include "nn/parallel/tensor_memory.h"
#include "runtime/comm/objects.h"
#include "runtime/parallel/long_work.h"
#include "runtime/parallel/state_broadcast.h"
#include "trainers/training/stop_signals.h"
#include "trainers/training/trainer.h"
#include "trainers/training/trainer_parts.h"

namespace dlaunch {

/// In which products are computed here: what "auto" has come to.
std::string Trainer::compute_type() const {
  return name_of_compute_type(compute_type_of(config_, backend_));
}

/// Where training begins.
RunPosition Trainer::resume() {
  try {
    return restore();
  } catch (const nlohmann::json::exception& error) {  // on all ranks: they have the same text
    throw UnusableCheckpoint(fmt::format("{}: {}", checkpointing_.found(), error.what()));
  }
}

RunPosition Trainer::restore() {
  const Checkpointing::ResumePoint from = checkpointing_.resume();
  GradientReducerOptions options = reducer_options(config_.parallel, parameters_);
  if (from.found) {
    const RunPosition& at = from.position;
    if (at.step >= plan_.steps() || at.steps_done != at.epoch * plan_.steps() + at.step)
      throw UnusableCheckpoint(
          fmt::format("{}: epoch {} and step {} are no place after {} steps, {} in an epoch",
                      checkpointing_.found(), at.epoch, at.step, at.steps_done, plan_.steps()));
    reporter_.restore(from.report.at("progress"));
    earlier_ = {.total_seconds = reporter_.summary().total_seconds,
                .communication_seconds = reporter_.summary().communication_seconds};
    if (at.epoch >= config_.epochs)
      reporter_.note(fmt::format("nothing is left to train: {} epoch{} done, train.epochs is {}",
                                 at.epoch, at.epoch == 1 ? " is" : "s are", config_.epochs));
    for (const std::string& line : from.changed) reporter_.note(line);
    optimizer_.restored();
    // So that sums of gradients have the same bits.
    options.order = from.report.at("gradient_order").get<std::vector<std::size_t>>();
    const bool of_one_rank = options.order.empty();
    if (!of_one_rank && !is_order_of(options.order, parameters_.views.size()))
      throw UnusableCheckpoint(fmt::format("{}: gradient_order is no order of {} parameters",
                                           checkpointing_.found(), parameters_.views.size()));
    take_best(from.report, at);
    const std::string here = compute_type();
    if (const std::string there = from.report.at("compute_type").get<std::string>(); there != here)
      reporter_.note(
          fmt::format("resuming in {}; the checkpoint was written by a run in {}", here, there));
  }
  rank_statistics_.scatter();
  rank_statistics_.forget();
  ExchangeMemory memory = compression_memory_.scatter();
  compression_memory_.forget();
  const bool compressing = !memory.empty();
  options.plain_steps -=
      compressing ? options.plain_steps : std::min(options.plain_steps, from.position.steps_done);
  reducer_.emplace(world_, memory_of(parameters_.gradients), gradient_ranges(parameters_),
                   std::move(options));
  if (compressing) {
    const Status kept = remember(std::move(memory), from.report);
    if (!kept.ok())
      throw UnusableCheckpoint(
          fmt::format("{}: {}; use parallel.gradients and parallel.power_sgd_rank as they were",
                      checkpointing_.found(), kept.to_string()));
  }
  stop_ = config_.max_steps > 0 && from.position.steps_done >= config_.max_steps;
  load_from(from.position.epoch, from.position.step);
  return from.position;
}

/// Rank 0 alone writes the best network and knows whether it could. The file says whose network it
/// holds: one that this run has written counts, also after this checkpoint, and the one that the
/// checkpoint tells of. Else nobody has a network of that accuracy.
void Trainer::take_best(const nlohmann::json& report, const RunPosition& at) {
  if (world_.rank() != 0 || !config_.checkpoint.keep_best) return;
  best_failure_ = report.at("best_failure").get<std::string>();
  best_ = BestNetwork::from_text(report.at("best").get<std::string>());
  const std::size_t epoch = reporter_.summary().best_epoch;
  if (epoch == 0 || at.epoch >= config_.epochs || is_last(at.steps_done)) return;
  const std::string path = config_.output_path(kBestFile);
  const std::optional<BestNetwork> found = BestNetwork::in_file(path);
  if (found && (found == best_ || found->run == checkpointing_.run_id())) {
    best_ = found;
    return reporter_.set_best(found->top1, found->epoch);
  }
  const bool other = std::filesystem::exists(path);
  reporter_.note(
      fmt::format("{} is {}: the best network is looked for from here", path,
                  other ? fmt::format("not the network of epoch {}", epoch) : "not there"));
  best_.reset();
  reporter_.set_best(0, 0);
}

/// What compressed gradients have to make good.
Status Trainer::remember(ExchangeMemory memory, const nlohmann::json& report) {
  if (world_.size() > 1) return reducer_->remember(memory);
  // A rank alone compresses nothing: it keeps that for a run that does.
  kept_memory_ = std::move(memory);
  const std::size_t here = config_.parallel.power_sgd_rank;
  const auto there = report.at("power_sgd_rank").get<std::size_t>();
  if (there == here) return Status();
  return Status(StatusCode::kInvalidArgument,
                fmt::format("power_sgd: errors of rank {}, not {}", there, here));
}

void Trainer::save(const RunPosition& position) {
  const Observation::Interlude interlude(observation_, "checkpoint");
  sum_up_times();
  share_network();
  check_network("no checkpoint was written");
  optimizer_.gather(*reducer_);
  compression_memory_.gather(world_.size() == 1 ? kept_memory_ : reducer_->memory());
  rank_statistics_.gather();
  checkpointing_.save(position, {{"progress", reporter_.state()},
                                 {"gradient_order", reducer_->order()},
                                 {"power_sgd_rank", config_.parallel.power_sgd_rank},
                                 {"compute_type", compute_type()},
                                 {"best", best_ ? best_->text() : ""},
                                 {"best_failure", best_failure_}});
  optimizer_.forget_whole();
  compression_memory_.forget();
  rank_statistics_.forget();
  rank_statistics_.restore();
}

/// What only rank 0 has of the run's state, to be filled from `source` or, if null, to be written.
std::vector<nn::NamedTensor> Trainer::leader_state(const nn::SafetensorsFile* source) {
  if (source != nullptr) {
    compression_memory_.prepare(*source, config_.parallel.gradients == GradientExchange::kPowerSgd);
    rank_statistics_.prepare(*source);
  }
  std::vector<nn::NamedTensor> state = optimizer_.whole_state();
  std::ranges::move(compression_memory_.tensors(), std::back_inserter(state));
  std::ranges::move(rank_statistics_.tensors(), std::back_inserter(state));
  if (ema_)
    for (nn::NamedTensor item : ema_->averages()) {
      item.name = "ema." + item.name;
      state.push_back(std::move(item));
    }
  return state;
}

/// Where batch norm is not synchronised each rank has running statistics of its own, which are put
/// together here, until they are restored; where it is, rank 0's hold.
void Trainer::share_network() {
  share_parameters();
  rank_statistics_.merge();
  std::vector<Buffer> statistics;
  for (const nn::NamedBuffer& buffer : model_->buffers())
    statistics.emplace_back(memory_of(buffer.tensor));
  throw_if_error(broadcast_state(world_, statistics).within("running statistics"));
}

/// Ranks make the same parameters of the same sums of gradients if they round alike. Processors and
/// GPUs of different kinds do not in all that a rank computes for itself, above all in Muon's
/// products: then rank 0's hold.
void Trainer::share_parameters() {
  if (world_.size() == 1) return;
  const std::vector<float> values = parameters_.values.host_values<float>();
  const std::string mine = nn::digest_of(std::as_bytes(std::span(values)));
  std::string leaders = mine;
  throw_if_error(broadcast_bytes(world_, leaders, 0).within("parameters"));
  std::array<std::int32_t, 1> differ{mine == leaders ? 0 : 1};
  throw_if_error(world_.all_reduce(differ, ReduceOp::kMax).within("parameters"));
  if (differ[0] == 0) return;
  if (!std::exchange(reported_differences_, true))
    reporter_.warn(
        fmt::format("after step {} ranks have different parameters, as machines of different kinds "
                    "round differently: here, and at every validation and checkpoint from now on, "
                    "all go on with rank 0's",
                    reporter_.summary().steps));
  throw_if_error(world_.broadcast(memory_of(parameters_.values), 0).within("parameters"));
}

/// Puts the average that rank 0 keeps into the network of every rank, and back.
void Trainer::exchange_average() {
  if (!config_.ema.enabled()) return;
  if (ema_) ema_->swap();
  std::vector<Buffer> state{memory_of(parameters_.values)};
  for (const nn::NamedBuffer& buffer : model_->buffers())
    state.emplace_back(memory_of(buffer.tensor));
  throw_if_error(broadcast_state(world_, state).within("average"));
}

ValidationSums Trainer::validate_model(bool may_be_best) {
  const Observation::Interlude interlude(observation_, "validation");
  share_network();
  check_network("nothing was validated");
  exchange_average();
  const ValidationSums sums =
      validate(world_, backend_, *model_, validation_transform_, shard_, validation_options_);
  if (may_be_best && config_.checkpoint.keep_best)
    save_best(sums);  // while it is the one that was validated
  exchange_average();
  rank_statistics_.restore();
  return sums;
}

/// Collective: if it is the best, which rank 0 knows. As with checkpoints, a full disk does not end
/// the run as long as a later file fits.
void Trainer::save_best(const ValidationSums& sums) {
  const Summary& summary = reporter_.summary();
  const bool best = world_.rank() == 0 && summary.is_best(sums);
  const BestNetwork network{checkpointing_.run_id(), sums.mean_top1(), summary.epochs};
  nn::TensorMetadata about = about_network_;
  about[BestNetwork::kKey] = network.text();
  LostFiles lost;
  lost.try_to_write(kBestFile, [&] { save_network(kBestFile, best, about); });
  if (!best) return;
  best_failure_ = lost.why();
  if (lost.empty())
    best_ = network;
  else
    logger_->warn("{}; training goes on, the next best network is tried", best_failure_);
}

/// Collective: what a run leaves that a signal ends, as fast as it can.
void Trainer::end_interrupted(int signal) {
  const std::string name = name_of_stop_signal(signal);
  reporter_.interrupted(name);
  std::string left;
  LostFiles lost;
  if (config_.checkpoint.enabled()) {
    lost.try_to_write(kCheckpointFolder, [&] { checkpointing_.finish(); });
    left = "resume with --resume auto";
  } else {
    left = "it cannot be resumed, as it writes no checkpoints (checkpoint.every_epochs)";
    share_network();
    check_network("no network was written");
    lost.try_to_write(kModelFile, [&] { save_final_network(); });
    if (config_.checkpoint.final_network)
      left += "; the network as it was then is in " + config_.output_path(kModelFile);
  }
  reporter_.close(lost);
  // Which code the job ends with must not depend on who is the first to end.
  std::array<std::int32_t, 1> failed{lost.empty() ? 0 : 1};
  throw_if_error(world_.all_reduce(failed, ReduceOp::kMax).within("stop"));
  if (failed[0] != 0) throw TrainingFailure(lost.why());  // rank 0's, which says it
  throw Interruption(signal, fmt::format("stopped by {} after step {}; {}", name,
                                         reporter_.summary().steps, left));
}

/// Collective: as it is now.
void Trainer::save_final_network() {
  if (!config_.checkpoint.final_network) return;
  rank_statistics_.merge();
  if (ema_) ema_->swap();
  save_network(kModelFile, world_.rank() == 0, about_network_);
  if (ema_) ema_->swap();
}

/// Collective: writes `mine`, the network alone as it is now on this rank, which is rank 0.
void Trainer::save_network(const std::string& name, bool mine, const nn::TensorMetadata& about) {
  nn::Snapshot snapshot;
  std::future<void> writing;
  if (mine) {
    snapshot.take(nn::state_of(*model_));
    writing = std::async([&] {
      checkpointing_.write_with_room([&] { snapshot.write(config_.output_path(name), about); });
    });
  }
  throw_if_error(await_work(world_, writing).within(name));
  if (writing.valid()) writing.get();
}

}  // namespace dlaunch
